"tile.kernel"() ({
^bb0(%x_ptr: !tile.ptr<f32>, %n: i32):
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %1 = tile.constant {value = #tile.real<"0.0">} : f32
  %i, %total = scf.while (%i_1 = %0, %total_1 = %1) : (i32, f32) -> (i32, f32) {
    %2 = tile.elementwise "lt"(%i_1, %n) : (i32, i32) -> i1
    %3 = scf.if %2 -> (i1) {
      %4 = tile.ptr_add %x_ptr, %i_1 : (!tile.ptr<f32>, i32) -> !tile.ptr<f32>
      %5 = "tile.load"(%4) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tile.ptr<f32>) -> f32
      %6 = tile.elementwise "gt"(%5, %1) : (f32, f32) -> i1
      scf.yield %6 : i1
    } else {
      %7 = tile.constant {value = #builtin.int<0>} : i1
      scf.yield %7 : i1
    }
    scf.condition(%3) %i_1, %total_1 : i32, f32
  } do {
  ^bb0(%i_2: i32, %total_2: f32):
    %8 = tile.ptr_add %x_ptr, %i_2 : (!tile.ptr<f32>, i32) -> !tile.ptr<f32>
    %x_ptr_1 = "tile.load"(%8) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tile.ptr<f32>) -> f32
    %total_3 = tile.elementwise "add"(%total_2, %x_ptr_1) : (f32, f32) -> f32
    %9 = tile.constant {value = #builtin.int<1>} : i32
    %i_3 = tile.elementwise "add"(%i_2, %9) : (i32, i32) -> i32
    scf.yield %i_3, %total_3 : i32, f32
  }
  tile.store %x_ptr, %total : !tile.ptr<f32>, f32
  %10 = tile.constant {value = #builtin.int<1>} : i32
  %11 = tile.ptr_add %x_ptr, %10 : (!tile.ptr<f32>, i32) -> !tile.ptr<f32>
  %12 = tile.cast %i : (i32) -> f32
  %13 = "tile.atomic"(%11, %12) {function = "add", order = "relaxed", scope = "gpu"} : (!tile.ptr<f32>, f32) -> f32
}) {sym_name = "while_loop", arguments = [{name = "x_ptr"}, {name = "n"}], options = {num_warps = #builtin.int<4>}} : () -> ()
