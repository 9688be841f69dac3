"tile.kernel"() ({
^bb0(%a_desc: !tile.desc<tensor<16x32xbf16>>, %b_desc: !tile.desc<tensor<32x16xbf16>>, %c_desc: !tile.desc<tensor<16x16xbf16>>, %bias_ptr: !tile.ptr<f32>):
  %0 = tile.program_id {axis = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  %m = tile.elementwise "mul"(%0, %1) : (i32, i32) -> i32
  %2 = tile.program_id {axis = #builtin.int<1>} : i32
  %n = tile.elementwise "mul"(%2, %1) : (i32, i32) -> i32
  %3 = tile.constant {value = #builtin.int<0>} : i32
  %a_desc_1 = tile.desc_load %a_desc[%m, %3] : (!tile.desc<tensor<16x32xbf16>>, i32, i32) -> tensor<16x32xbf16>
  %b_desc_1 = tile.desc_load %b_desc[%3, %n] : (!tile.desc<tensor<32x16xbf16>>, i32, i32) -> tensor<32x16xbf16>
  %4 = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %product = tile.dot %a_desc_1, %b_desc_1, %4 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x32xbf16>, tensor<32x16xbf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %5 = tile.ptr_add %bias_ptr, %n : (!tile.ptr<f32>, i32) -> !tile.ptr<f32>
  %6 = tile.arange {start = #builtin.int<0>} : tensor<16xi32>
  %7 = tile.splat %5 : (!tile.ptr<f32>) -> tensor<16x!tile.ptr<f32>>
  %8 = tile.ptr_add %7, %6 : (tensor<16x!tile.ptr<f32>>, tensor<16xi32>) -> tensor<16x!tile.ptr<f32>>
  %bias = "tile.load"(%8) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<16x!tile.ptr<f32>>) -> tensor<16xf32>
  %9 = tile.expand_dims %bias {axis = #builtin.int<0>} : (tensor<16xf32>) -> tensor<1x16xf32>
  %10 = tile.broadcast %9 : (tensor<1x16xf32>) -> tensor<16x16xf32>
  %x = tile.elementwise "add"(%product, %10) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %11 = tile.elementwise "neg"(%x) : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %12 = tile.elementwise "exp"(%11) : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %13 = tile.constant {value = #tile.real<"1.0">} : tensor<16x16xf32>
  %14 = tile.elementwise "add"(%13, %12) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %15 = tile.constant {value = #tile.real<"1.0">} : tensor<16x16xf32>
  %16 = tile.elementwise "div"(%15, %14) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %17 = tile.elementwise "mul"(%x, %16) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %18 = tile.cast %17 : (tensor<16x16xf32>) -> tensor<16x16xbf16>
  tile.desc_store %c_desc[%m, %n], %18 : !tile.desc<tensor<16x16xbf16>>, i32, i32, tensor<16x16xbf16>
}) {sym_name = "epilogue", arguments = [{name = "a_desc"}, {name = "b_desc"}, {name = "c_desc"}, {name = "bias_ptr"}], options = {num_warps = #builtin.int<4>}} : () -> ()
