"tile.kernel"() ({
^bb0(%a: !tile.desc<tensor<16x16xf16>>, %b: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %largest = tile.constant {value = #tile.real<"0.0">} : tensor<16xf32>
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %acc_1, %largest_1 = scf.for %k = %0 to %K step %1 iter_args(%acc_2 = %acc, %largest_2 = %largest) -> (tensor<16x16xf32>, tensor<16xf32>) : i32 {
    %x = tile.desc_load %a[%0, %k] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %b_1 = tile.desc_load %b[%k, %0] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %acc_3 = tile.dot %x, %b_1, %acc_2 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %2 = tile.cast %x : (tensor<16x16xf16>) -> tensor<16x16xf32>
    %largest_3 = "tile.reduce"(%2) ({
    ^bb0(%3: f32, %4: f32):
      %5 = tile.elementwise "max"(%3, %4) : (f32, f32) -> f32
      tile.yield %5 : f32
    }) {axis = #builtin.int<1>} : (tensor<16x16xf32>) -> tensor<16xf32>
    %largest_4 = tile.elementwise "max"(%largest_2, %largest_3) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    scf.yield %acc_3, %largest_4 : tensor<16x16xf32>, tensor<16xf32>
  }
  %6 = tile.expand_dims %largest_1 {axis = #builtin.int<1>} : (tensor<16xf32>) -> tensor<16x1xf32>
  %7 = tile.broadcast %6 : (tensor<16x1xf32>) -> tensor<16x16xf32>
  %8 = tile.elementwise "mul"(%acc_1, %7) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %9 = tile.cast %8 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  tile.desc_store %out[%0, %0], %9 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "load_for_dot_and_arithmetic", arguments = [{name = "a"}, {name = "b"}, {name = "out"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
