"tile.kernel"() ({
^bb0(%x_ptr: !tile.ptr<f32>, %out_ptr: !tile.ptr<f32>, %n: i32):
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16xf32>
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %acc_1 = scf.for %start = %0 to %n step %1 iter_args(%acc_2 = %acc) -> (tensor<16xf32>) : i32 {
    %2 = tile.arange {start = #builtin.int<0>} : tensor<16xi32>
    %3 = tile.splat %start : (i32) -> tensor<16xi32>
    %offsets = tile.elementwise "add"(%3, %2) : (tensor<16xi32>, tensor<16xi32>) -> tensor<16xi32>
    %4 = tile.splat %x_ptr : (!tile.ptr<f32>) -> tensor<16x!tile.ptr<f32>>
    %5 = tile.ptr_add %4, %offsets : (tensor<16x!tile.ptr<f32>>, tensor<16xi32>) -> tensor<16x!tile.ptr<f32>>
    %6 = tile.splat %n : (i32) -> tensor<16xi32>
    %7 = tile.elementwise "lt"(%offsets, %6) : (tensor<16xi32>, tensor<16xi32>) -> tensor<16xi1>
    %8 = tile.constant {value = #tile.real<"0.0">} : tensor<16xf32>
    %x_ptr_1 = "tile.load"(%5, %7, %8) <{operandSegmentSizes = array<i32: 1, 1, 1>}> : (tensor<16x!tile.ptr<f32>>, tensor<16xi1>, tensor<16xf32>) -> tensor<16xf32>
    %acc_3 = tile.elementwise "add"(%acc_2, %x_ptr_1) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    scf.yield %acc_3 : tensor<16xf32>
  }
  %9 = "tile.reduce"(%acc_1) ({
  ^bb0(%10: f32, %11: f32):
    %12 = tile.elementwise "add"(%10, %11) : (f32, f32) -> f32
    tile.yield %12 : f32
  }) {axis = #builtin.int<0>} : (tensor<16xf32>) -> f32
  tile.store %out_ptr, %9 : !tile.ptr<f32>, f32
}) {sym_name = "no_dot", arguments = [{name = "x_ptr"}, {name = "out_ptr"}, {name = "n"}], options = {num_warps = #builtin.int<4>}} : () -> ()
