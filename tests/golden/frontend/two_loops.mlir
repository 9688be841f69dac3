"tile.kernel"() ({
^bb0(%a: !tile.desc<tensor<16x16xf16>>, %b: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %x = tile.desc_load %a[%0, %0] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %acc_1 = scf.for %k = %0 to %K step %1 iter_args(%acc_2 = %acc) -> (tensor<16x16xf32>) : i32 {
    %y = tile.desc_load %b[%k, %0] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %acc_3 = tile.dot %x, %y, %acc_2 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %acc_3 : tensor<16x16xf32>
  }
  %acc_4 = scf.for %k_1 = %0 to %K step %1 iter_args(%acc_5 = %acc_1) -> (tensor<16x16xf32>) : i32 {
    %y_1 = tile.desc_load %b[%k_1, %1] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %y_2 = tile.cast %y_1 : (tensor<16x16xf16>) -> tensor<16x16xf32>
    %acc_6 = tile.elementwise "add"(%acc_5, %y_2) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %acc_6 : tensor<16x16xf32>
  }
  %2 = tile.cast %acc_4 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  tile.desc_store %out[%0, %0], %2 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "two_loops", arguments = [{name = "a"}, {name = "b"}, {name = "out"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
