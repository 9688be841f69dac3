"tile.kernel"() ({
^bb0(%a: !tile.ptr<f16>, %out: !tile.ptr<f16>, %T: i32):
  %0 = tile.constant {value = #builtin.int<2147483647>} : i64
  %1 = tile.constant {value = #builtin.int<48>} : i64
  %2 = tile.constant {value = #builtin.int<1>} : i64
  %out_desc = "tile.make_desc"(%out, %0, %0, %1, %2) <{operandSegmentSizes = array<i32: 1, 2, 2>}> {padding = "zero"} : (!tile.ptr<f16>, i64, i64, i64, i64) -> !tile.desc<tensor<32x32xf16>>
  %3 = tile.cast %T : (i32) -> i64
  %4 = tile.constant {value = #builtin.int<96>} : i64
  %a_desc = "tile.make_desc"(%a, %0, %3, %1, %1, %4, %2) <{operandSegmentSizes = array<i32: 1, 3, 3>}> {padding = "zero"} : (!tile.ptr<f16>, i64, i64, i64, i64, i64, i64) -> !tile.desc<tensor<1x32x32xf16>>
  %head = tile.program_id {axis = #builtin.int<1>} : i32
  %5 = tile.program_id {axis = #builtin.int<0>} : i32
  %6 = tile.constant {value = #builtin.int<32>} : i32
  %7 = tile.constant {value = #builtin.int<0>} : i32
  %8 = tile.constant {value = #builtin.int<48>} : i32
  %9 = tile.constant {value = #builtin.int<-1>} : i32
  %10 = tile.elementwise "mul"(%5, %6) : (i32, i32) -> i32
  %11 = tile.elementwise "add"(%9, %10) : (i32, i32) -> i32
  scf.for %column = %7 to %8 step %6 : i32 {
    %12 = tile.elementwise "idiv"(%column, %6) : (i32, i32) -> i32
    %13 = tile.elementwise "mul"(%12, %6) : (i32, i32) -> i32
    %x = tile.desc_load %a_desc[%head, %11, %13] {label = "x@390"} : (!tile.desc<tensor<1x32x32xf16>>, i32, i32, i32) -> tensor<1x32x32xf16>
    %x_1 = tile.reshape %x : (tensor<1x32x32xf16>) -> tensor<32x32xf16>
    tile.desc_store %out_desc[%7, %13], %x_1 {label = "out_desc@391"} : !tile.desc<tensor<32x32xf16>>, i32, i32, tensor<32x32xf16>
  } {label = "for column@388"}
}) {sym_name = "taken", arguments = [{name = "a", divisible = #builtin.int<16>}, {name = "out", divisible = #builtin.int<16>}, {name = "T", divisible = #builtin.int<16>}], options = {}, guards = ["never_negative((-1*program(1) + 2147483646))", "never_negative((-32*program(0) + 2147483616))", "never_negative((T))"]} : () -> ()
