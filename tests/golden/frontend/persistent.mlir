"tile.kernel"() ({
^bb0(%a_desc: !tile.desc<tensor<16x32xbf16>>, %b_desc: !tile.desc<tensor<32x16xbf16>>, %c_desc: !tile.desc<tensor<16x8xbf16>>, %M: i32, %N: i32, %K: i32):
  %0 = tile.constant {value = #builtin.int<15>} : i32
  %1 = tile.elementwise "add"(%M, %0) : (i32, i32) -> i32
  %2 = tile.constant {value = #builtin.int<16>} : i32
  %rows = tile.elementwise "idiv"(%1, %2) : (i32, i32) -> i32
  %3 = tile.elementwise "add"(%N, %0) : (i32, i32) -> i32
  %columns = tile.elementwise "idiv"(%3, %2) : (i32, i32) -> i32
  %4 = tile.program_id {axis = #builtin.int<0>} : i32
  %5 = tile.elementwise "mul"(%rows, %columns) : (i32, i32) -> i32
  %6 = tile.constant {value = #builtin.int<3>} : i32
  scf.for %tile = %4 to %5 step %6 : i32 {
    %7 = tile.constant {value = #builtin.int<2>} : i32
    %per_group = tile.elementwise "mul"(%7, %columns) : (i32, i32) -> i32
    %8 = tile.elementwise "idiv"(%tile, %per_group) : (i32, i32) -> i32
    %first = tile.elementwise "mul"(%8, %7) : (i32, i32) -> i32
    %9 = tile.elementwise "sub"(%rows, %first) : (i32, i32) -> i32
    %height = tile.elementwise "min"(%9, %7) : (i32, i32) -> i32
    %10 = tile.elementwise "irem"(%tile, %height) : (i32, i32) -> i32
    %row = tile.elementwise "add"(%first, %10) : (i32, i32) -> i32
    %11 = tile.elementwise "irem"(%tile, %per_group) : (i32, i32) -> i32
    %column = tile.elementwise "idiv"(%11, %height) : (i32, i32) -> i32
    %accumulator = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
    %12 = tile.constant {value = #builtin.int<0>} : i32
    %13 = tile.constant {value = #builtin.int<32>} : i32
    %accumulator_1 = scf.for %k = %12 to %K step %13 iter_args(%accumulator_2 = %accumulator) -> (tensor<16x16xf32>) : i32 {
      %14 = tile.elementwise "mul"(%row, %2) : (i32, i32) -> i32
      %a = tile.desc_load %a_desc[%14, %k] : (!tile.desc<tensor<16x32xbf16>>, i32, i32) -> tensor<16x32xbf16>
      %15 = tile.elementwise "mul"(%column, %2) : (i32, i32) -> i32
      %b = tile.desc_load %b_desc[%k, %15] : (!tile.desc<tensor<32x16xbf16>>, i32, i32) -> tensor<32x16xbf16>
      %accumulator_3 = tile.dot %a, %b, %accumulator_2 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x32xbf16>, tensor<32x16xbf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
      scf.yield %accumulator_3 : tensor<16x16xf32>
    } {num_stages = #builtin.int<3>}
    %parts = tile.reshape %accumulator_1 : (tensor<16x16xf32>) -> tensor<16x2x8xf32>
    %parts_1 = tile.transpose %parts {permutation = [#builtin.int<0>, #builtin.int<2>, #builtin.int<1>]} : (tensor<16x2x8xf32>) -> tensor<16x8x2xf32>
    %left, %right = tile.split %parts_1 : (tensor<16x8x2xf32>) -> (tensor<16x8xf32>, tensor<16x8xf32>)
    %16 = tile.elementwise "mul"(%row, %2) : (i32, i32) -> i32
    %17 = tile.elementwise "mul"(%column, %2) : (i32, i32) -> i32
    %18 = tile.cast %left : (tensor<16x8xf32>) -> tensor<16x8xbf16>
    tile.desc_store %c_desc[%16, %17], %18 : !tile.desc<tensor<16x8xbf16>>, i32, i32, tensor<16x8xbf16>
    %19 = tile.elementwise "mul"(%row, %2) : (i32, i32) -> i32
    %20 = tile.elementwise "mul"(%column, %2) : (i32, i32) -> i32
    %21 = tile.constant {value = #builtin.int<8>} : i32
    %22 = tile.elementwise "add"(%20, %21) : (i32, i32) -> i32
    %23 = tile.cast %right : (tensor<16x8xf32>) -> tensor<16x8xbf16>
    tile.desc_store %c_desc[%19, %22], %23 : !tile.desc<tensor<16x8xbf16>>, i32, i32, tensor<16x8xbf16>
  } {flatten = true}
}) {sym_name = "persistent", arguments = [{name = "a_desc"}, {name = "b_desc"}, {name = "c_desc"}, {name = "M"}, {name = "N"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
