"tile.kernel"() ({
^bb0(%out: !tile.desc<tensor<16x16xf16>>):
  %i = tile.arange {start = #builtin.int<0>} : tensor<16xi32>
  %0 = tile.expand_dims %i {axis = #builtin.int<1>} : (tensor<16xi32>) -> tensor<16x1xi32>
  %1 = tile.constant {value = #builtin.int<16>} : tensor<16x1xi32>
  %2 = tile.elementwise "mul"(%0, %1) : (tensor<16x1xi32>, tensor<16x1xi32>) -> tensor<16x1xi32>
  %3 = tile.expand_dims %i {axis = #builtin.int<0>} : (tensor<16xi32>) -> tensor<1x16xi32>
  %4 = tile.broadcast %2 : (tensor<16x1xi32>) -> tensor<16x16xi32>
  %5 = tile.broadcast %3 : (tensor<1x16xi32>) -> tensor<16x16xi32>
  %6 = tile.elementwise "add"(%4, %5) : (tensor<16x16xi32>, tensor<16x16xi32>) -> tensor<16x16xi32>
  %7 = tile.cast %6 : (tensor<16x16xi32>) -> tensor<16x16xf16>
  %8 = tile.constant {value = #builtin.int<0>} : i32
  tile.desc_store %out[%8, %8], %7 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "no_load", arguments = [{name = "out"}], options = {num_warps = #builtin.int<4>}} : () -> ()
