"tile.kernel"() ({
^bb0(%a: !tile.desc<tensor<16x16xf16>>, %b: !tile.desc<tensor<16x16xf16>>, %d: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %one = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %two = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %one_1, %two_1 = scf.for %k = %0 to %K step %1 iter_args(%one_2 = %one, %two_2 = %two) -> (tensor<16x16xf32>, tensor<16x16xf32>) : i32 {
    %x = tile.desc_load %a[%0, %k] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %b_1 = tile.desc_load %b[%k, %0] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %one_3 = tile.dot %x, %b_1, %one_2 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %d_1 = tile.desc_load %d[%k, %0] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %two_3 = tile.dot %x, %d_1, %two_2 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %one_3, %two_3 : tensor<16x16xf32>, tensor<16x16xf32>
  }
  %2 = tile.elementwise "add"(%one_1, %two_1) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %3 = tile.cast %2 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  tile.desc_store %out[%0, %0], %3 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "two_dots", arguments = [{name = "a"}, {name = "b"}, {name = "d"}, {name = "out"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
