"tile.kernel"() ({
^bb0(%x_ptr: !tile.ptr<f32>, %n: i32, %limit: f32):
  %i = tile.program_id {axis = #builtin.int<0>} : i32
  %0 = tile.elementwise "ge"(%i, %n) : (i32, i32) -> i1
  %1 = tile.constant {value = #builtin.int<1>} : i1
  %2 = tile.elementwise "xor"(%0, %1) : (i1, i1) -> i1
  scf.if %2 {
    %3 = tile.ptr_add %x_ptr, %i : (!tile.ptr<f32>, i32) -> !tile.ptr<f32>
    %value = "tile.load"(%3) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tile.ptr<f32>) -> f32
    %4 = tile.elementwise "lt"(%value, %limit) : (f32, f32) -> i1
    scf.if %4 {
      %5 = tile.ptr_add %x_ptr, %i : (!tile.ptr<f32>, i32) -> !tile.ptr<f32>
      %6 = tile.constant {value = #tile.real<"0.0">} : f32
      tile.store %5, %6 : !tile.ptr<f32>, f32
    } else {
      %7 = tile.ptr_add %x_ptr, %i : (!tile.ptr<f32>, i32) -> !tile.ptr<f32>
      %8 = tile.constant {value = #tile.real<"1.0">} : f32
      %9 = tile.elementwise "sub"(%value, %8) : (f32, f32) -> f32
      tile.store %7, %9 : !tile.ptr<f32>, f32
    }
  }
}) {sym_name = "early_return", arguments = [{name = "x_ptr"}, {name = "n"}, {name = "limit"}], options = {num_warps = #builtin.int<4>}} : () -> ()
