"tile.kernel"() ({
^bb0(%a_desc: !tile.desc<tensor<16x32xbf16>>, %b_desc: !tile.desc<tensor<32x16xbf16>>, %c_desc: !tile.desc<tensor<16x16xbf16>>, %K: i32):
  %0 = tile.program_id {axis = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %m = tile.elementwise "mul"(%0, %1) : (i32, i32) -> i32
  %2 = tile.program_id {axis = #builtin.int<1>} : i32
  %n = tile.elementwise "mul"(%2, %1) : (i32, i32) -> i32
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %3 = tile.constant {value = #builtin.int<0>} : i32
  %4 = tile.constant {value = #builtin.int<32>} : i32
  %acc_1 = scf.for %k = %3 to %K step %4 iter_args(%acc_2 = %acc) -> (tensor<16x16xf32>) : i32 {
    %a = tile.desc_load %a_desc[%m, %k] : (!tile.desc<tensor<16x32xbf16>>, i32, i32) -> tensor<16x32xbf16>
    %b = tile.desc_load %b_desc[%k, %n] : (!tile.desc<tensor<32x16xbf16>>, i32, i32) -> tensor<32x16xbf16>
    %acc_3 = tile.dot %a, %b, %acc_2 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x32xbf16>, tensor<32x16xbf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %acc_3 : tensor<16x16xf32>
  }
  %5 = tile.cast %acc_1 : (tensor<16x16xf32>) -> tensor<16x16xbf16>
  tile.desc_store %c_desc[%m, %n], %5 : !tile.desc<tensor<16x16xbf16>>, i32, i32, tensor<16x16xbf16>
}) {sym_name = "host_descriptors", arguments = [{name = "a_desc"}, {name = "b_desc"}, {name = "c_desc"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
