"tile.kernel"() ({
^bb0(%q_desc: !tile.desc<tensor<16x16xf16>>, %k_desc: !tile.desc<tensor<32x16xf16>>, %v_desc: !tile.desc<tensor<32x16xf16>>, %o_desc: !tile.desc<tensor<16x16xf16>>, %length: i32, %scale: f32):
  %0 = tile.program_id {axis = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %start = tile.elementwise "mul"(%0, %1) : (i32, i32) -> i32
  %2 = tile.constant {value = #builtin.int<0>} : i32
  %q = tile.desc_load %q_desc[%start, %2] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
  %row_max = tile.constant {value = #tile.real<"-inf">} : tensor<16xf32>
  %row_sum = tile.constant {value = #tile.real<"0.0">} : tensor<16xf32>
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %3 = tile.constant {value = #builtin.int<32>} : i32
  %row_max_1, %row_sum_1, %acc_1 = scf.for %n = %2 to %length step %3 iter_args(%row_max_2 = %row_max, %row_sum_2 = %row_sum, %acc_2 = %acc) -> (tensor<16xf32>, tensor<16xf32>, tensor<16x16xf32>) : i32 {
    %k = tile.desc_load %k_desc[%n, %2] : (!tile.desc<tensor<32x16xf16>>, i32, i32) -> tensor<32x16xf16>
    %4 = tile.transpose %k {permutation = [#builtin.int<1>, #builtin.int<0>]} : (tensor<32x16xf16>) -> tensor<16x32xf16>
    %5 = tile.constant {value = #tile.real<"0.0">} : tensor<16x32xf32>
    %scores = tile.dot %q, %4, %5 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x32xf16>, tensor<16x32xf32>) -> tensor<16x32xf32>
    %6 = tile.constant {value = #tile.real<"1.44269504">} : f32
    %7 = tile.elementwise "mul"(%scale, %6) : (f32, f32) -> f32
    %8 = tile.splat %7 : (f32) -> tensor<16x32xf32>
    %scores_1 = tile.elementwise "mul"(%scores, %8) : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<16x32xf32>
    %new_max = "tile.reduce"(%scores_1) ({
    ^bb0(%9: f32, %10: f32):
      %11 = tile.elementwise "max"(%9, %10) : (f32, f32) -> f32
      tile.yield %11 : f32
    }) {axis = #builtin.int<1>} : (tensor<16x32xf32>) -> tensor<16xf32>
    %new_max_1 = tile.elementwise "max"(%row_max_2, %new_max) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    %12 = tile.expand_dims %new_max_1 {axis = #builtin.int<1>} : (tensor<16xf32>) -> tensor<16x1xf32>
    %13 = tile.broadcast %12 : (tensor<16x1xf32>) -> tensor<16x32xf32>
    %14 = tile.elementwise "sub"(%scores_1, %13) : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<16x32xf32>
    %weights = tile.elementwise "exp2"(%14) : (tensor<16x32xf32>) -> tensor<16x32xf32>
    %15 = tile.elementwise "sub"(%row_max_2, %new_max_1) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    %correction = tile.elementwise "exp2"(%15) : (tensor<16xf32>) -> tensor<16xf32>
    %16 = tile.elementwise "mul"(%row_sum_2, %correction) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    %row_sum_3 = "tile.reduce"(%weights) ({
    ^bb0(%17: f32, %18: f32):
      %19 = tile.elementwise "add"(%17, %18) : (f32, f32) -> f32
      tile.yield %19 : f32
    }) {axis = #builtin.int<1>} : (tensor<16x32xf32>) -> tensor<16xf32>
    %row_sum_4 = tile.elementwise "add"(%16, %row_sum_3) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    %v = tile.desc_load %v_desc[%n, %2] : (!tile.desc<tensor<32x16xf16>>, i32, i32) -> tensor<32x16xf16>
    %20 = tile.cast %weights : (tensor<16x32xf32>) -> tensor<16x32xf16>
    %21 = tile.expand_dims %correction {axis = #builtin.int<1>} : (tensor<16xf32>) -> tensor<16x1xf32>
    %22 = tile.broadcast %21 : (tensor<16x1xf32>) -> tensor<16x16xf32>
    %23 = tile.elementwise "mul"(%acc_2, %22) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %acc_3 = tile.dot %20, %v, %23 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x32xf16>, tensor<32x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %new_max_1, %row_sum_4, %acc_3 : tensor<16xf32>, tensor<16xf32>, tensor<16x16xf32>
  }
  %24 = tile.expand_dims %row_sum_1 {axis = #builtin.int<1>} : (tensor<16xf32>) -> tensor<16x1xf32>
  %25 = tile.broadcast %24 : (tensor<16x1xf32>) -> tensor<16x16xf32>
  %26 = tile.elementwise "div"(%acc_1, %25) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %27 = tile.cast %26 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  tile.desc_store %o_desc[%start, %2], %27 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "attention", arguments = [{name = "q_desc"}, {name = "k_desc"}, {name = "v_desc"}, {name = "o_desc"}, {name = "length"}, {name = "scale"}], options = {num_warps = #builtin.int<4>}} : () -> ()
