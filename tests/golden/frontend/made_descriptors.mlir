"tile.kernel"() ({
^bb0(%a_ptr: !tile.ptr<f16>, %b_ptr: !tile.ptr<f16>, %c_ptr: !tile.ptr<f16>, %M: i32, %N: i32, %K: i32):
  %0 = tile.cast %M : (i32) -> i64
  %1 = tile.cast %K : (i32) -> i64
  %2 = tile.cast %K : (i32) -> i64
  %3 = tile.constant {value = #builtin.int<1>} : i64
  %a_desc = "tile.make_desc"(%a_ptr, %0, %1, %2, %3) <{operandSegmentSizes = array<i32: 1, 2, 2>}> {padding = "zero"} : (!tile.ptr<f16>, i64, i64, i64, i64) -> !tile.desc<tensor<16x16xf16>>
  %4 = tile.cast %N : (i32) -> i64
  %5 = tile.cast %K : (i32) -> i64
  %6 = tile.cast %K : (i32) -> i64
  %b_desc = "tile.make_desc"(%b_ptr, %4, %5, %6, %3) <{operandSegmentSizes = array<i32: 1, 2, 2>}> {padding = "zero"} : (!tile.ptr<f16>, i64, i64, i64, i64) -> !tile.desc<tensor<16x16xf16>>
  %7 = tile.cast %M : (i32) -> i64
  %8 = tile.cast %N : (i32) -> i64
  %9 = tile.cast %N : (i32) -> i64
  %c_desc = "tile.make_desc"(%c_ptr, %7, %8, %9, %3) <{operandSegmentSizes = array<i32: 1, 2, 2>}> {padding = "zero"} : (!tile.ptr<f16>, i64, i64, i64, i64) -> !tile.desc<tensor<16x16xf16>>
  %10 = tile.program_id {axis = #builtin.int<0>} : i32
  %11 = tile.constant {value = #builtin.int<16>} : i32
  %m = tile.elementwise "mul"(%10, %11) : (i32, i32) -> i32
  %12 = tile.program_id {axis = #builtin.int<1>} : i32
  %n = tile.elementwise "mul"(%12, %11) : (i32, i32) -> i32
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %13 = tile.constant {value = #builtin.int<15>} : i32
  %14 = tile.elementwise "add"(%K, %13) : (i32, i32) -> i32
  %15 = tile.elementwise "idiv"(%14, %11) : (i32, i32) -> i32
  %16 = tile.constant {value = #builtin.int<0>} : i32
  %17 = tile.constant {value = #builtin.int<1>} : i32
  %acc_1 = scf.for %step = %16 to %15 step %17 iter_args(%acc_2 = %acc) -> (tensor<16x16xf32>) : i32 {
    %18 = tile.elementwise "mul"(%step, %11) : (i32, i32) -> i32
    %a = tile.desc_load %a_desc[%m, %18] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %19 = tile.elementwise "mul"(%step, %11) : (i32, i32) -> i32
    %b = tile.desc_load %b_desc[%n, %19] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %20 = tile.transpose %b {permutation = [#builtin.int<1>, #builtin.int<0>]} : (tensor<16x16xf16>) -> tensor<16x16xf16>
    %acc_3 = tile.dot %a, %20, %acc_2 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %acc_3 : tensor<16x16xf32>
  }
  %21 = tile.cast %acc_1 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  tile.desc_store %c_desc[%m, %n], %21 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "made_descriptors", arguments = [{name = "a_ptr", divisible = #builtin.int<16>}, {name = "b_ptr", divisible = #builtin.int<16>}, {name = "c_ptr", divisible = #builtin.int<16>}, {name = "M"}, {name = "N"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
