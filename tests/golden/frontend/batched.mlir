"tile.kernel"() ({
^bb0(%a_desc: !tile.desc<tensor<1x16x16xf16>>, %b_desc: !tile.desc<tensor<1x16x16xf16>>, %c_desc: !tile.desc<tensor<1x16x16xf16>>, %K: i32):
  %batch = tile.program_id {axis = #builtin.int<2>} : i32
  %0 = tile.program_id {axis = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %m = tile.elementwise "mul"(%0, %1) : (i32, i32) -> i32
  %2 = tile.program_id {axis = #builtin.int<1>} : i32
  %n = tile.elementwise "mul"(%2, %1) : (i32, i32) -> i32
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %3 = tile.constant {value = #builtin.int<0>} : i32
  %acc_1 = scf.for %k = %3 to %K step %1 iter_args(%acc_2 = %acc) -> (tensor<16x16xf32>) : i32 {
    %a = tile.desc_load %a_desc[%batch, %m, %k] : (!tile.desc<tensor<1x16x16xf16>>, i32, i32, i32) -> tensor<1x16x16xf16>
    %a_1 = tile.reshape %a : (tensor<1x16x16xf16>) -> tensor<16x16xf16>
    %b = tile.desc_load %b_desc[%batch, %k, %n] : (!tile.desc<tensor<1x16x16xf16>>, i32, i32, i32) -> tensor<1x16x16xf16>
    %b_1 = tile.reshape %b : (tensor<1x16x16xf16>) -> tensor<16x16xf16>
    %4 = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
    %acc_3 = tile.dot %a_1, %b_1, %4 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %acc_4 = tile.elementwise "add"(%acc_2, %acc_3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %acc_4 : tensor<16x16xf32>
  }
  %5 = tile.cast %acc_1 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  %6 = tile.reshape %5 : (tensor<16x16xf16>) -> tensor<1x16x16xf16>
  tile.desc_store %c_desc[%batch, %m, %n], %6 : !tile.desc<tensor<1x16x16xf16>>, i32, i32, i32, tensor<1x16x16xf16>
}) {sym_name = "batched", arguments = [{name = "a_desc"}, {name = "b_desc"}, {name = "c_desc"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
