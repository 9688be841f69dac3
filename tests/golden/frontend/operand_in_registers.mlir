"tile.kernel"() ({
^bb0(%a: !tile.desc<tensor<16x16xf16>>, %b: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %acc_1 = scf.for %k = %0 to %K step %1 iter_args(%acc_2 = %acc) -> (tensor<16x16xf32>) : i32 {
    %a_1 = tile.desc_load %a[%0, %k] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %2 = tile.constant {value = #tile.real<"2.0">} : tensor<16x16xf16>
    %x = tile.elementwise "mul"(%a_1, %2) : (tensor<16x16xf16>, tensor<16x16xf16>) -> tensor<16x16xf16>
    %b_1 = tile.desc_load %b[%k, %0] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %acc_3 = tile.dot %x, %b_1, %acc_2 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %acc_3 : tensor<16x16xf32>
  }
  %3 = tile.cast %acc_1 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  tile.desc_store %out[%0, %0], %3 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "operand_in_registers", arguments = [{name = "a"}, {name = "b"}, {name = "out"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
