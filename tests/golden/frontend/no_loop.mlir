"tile.kernel"() ({
^bb0(%a: !tile.desc<tensor<16x16xf16>>, %b: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>):
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %a_1 = tile.desc_load %a[%0, %0] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
  %b_1 = tile.desc_load %b[%0, %0] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
  %1 = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %2 = tile.dot %a_1, %b_1, %1 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %3 = tile.cast %2 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  tile.desc_store %out[%0, %0], %3 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "no_loop", arguments = [{name = "a"}, {name = "b"}, {name = "out"}], options = {num_warps = #builtin.int<4>}} : () -> ()
