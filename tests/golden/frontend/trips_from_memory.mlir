"tile.kernel"() ({
^bb0(%a: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %counts: !tile.ptr<i32>):
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %0 = "tile.load"(%counts) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tile.ptr<i32>) -> i32
  %1 = tile.constant {value = #builtin.int<1>} : i32
  %2 = tile.ptr_add %counts, %1 : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>
  %3 = "tile.load"(%2) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tile.ptr<i32>) -> i32
  %acc_1 = scf.for %k = %0 to %3 step %1 iter_args(%acc_2 = %acc) -> (tensor<16x16xf32>) : i32 {
    %4 = tile.constant {value = #builtin.int<16>} : i32
    %5 = tile.elementwise "mul"(%k, %4) : (i32, i32) -> i32
    %6 = tile.constant {value = #builtin.int<0>} : i32
    %a_1 = tile.desc_load %a[%6, %5] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %7 = tile.cast %a_1 : (tensor<16x16xf16>) -> tensor<16x16xf32>
    %acc_3 = tile.elementwise "add"(%acc_2, %7) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %acc_3 : tensor<16x16xf32>
  }
  %8 = tile.cast %acc_1 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  %9 = tile.constant {value = #builtin.int<0>} : i32
  tile.desc_store %out[%9, %9], %8 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "trips_from_memory", arguments = [{name = "a"}, {name = "out"}, {name = "counts"}], options = {num_warps = #builtin.int<4>}} : () -> ()
