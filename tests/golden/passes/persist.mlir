"tile.kernel"() ({
^bb0(%x: !tile.desc<tensor<16x16xf16>>, %y: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %grid = hopper.grid_extent {axis = #builtin.int<0>} : i32
  %grid_1 = hopper.grid_extent {axis = #builtin.int<1>} : i32
  %grid_2 = hopper.grid_extent {axis = #builtin.int<2>} : i32
  %block = hopper.block_id {axis = #builtin.int<0>} : i32
  %blocks = hopper.num_blocks {axis = #builtin.int<0>} : i32
  %0 = tile.elementwise "mul"(%grid, %grid_1) : (i32, i32) -> i32
  %tiles = tile.elementwise "mul"(%0, %grid_2) : (i32, i32) -> i32
  %c0 = tile.constant {value = #builtin.int<0>} : i32
  %c16 = tile.constant {value = #builtin.int<16>} : i32
  scf.for %program = %block to %tiles step %blocks : i32 {
    %pid = tile.elementwise "irem"(%program, %grid) {natural, within = [#builtin.int<0>, #builtin.int<2147483646>]} : (i32, i32) -> i32
    %zero = tile.constant {value = #builtin.int<0>} : tensor<16x16xf32>
    %m = tile.elementwise "mul"(%pid, %c16) : (i32, i32) -> i32
    %acc = scf.for %k = %c0 to %K step %c16 iter_args(%acc1 = %zero) -> (tensor<16x16xf32>) : i32 {
      %a = tile.desc_load %x[%m, %k] {label = "a"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
      %b = tile.desc_load %y[%k, %c0] {label = "b"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
      %acc2 = tile.dot %a, %b, %acc1 {precision = "tf32", max_imprecise = #builtin.int<0>, label = "acc2"} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
      scf.yield %acc2 : tensor<16x16xf32>
    } {label = "for k"}
    %result = tile.cast %acc : (tensor<16x16xf32>) -> tensor<16x16xf16>
    tile.desc_store %out[%m, %c0], %result {label = "out"} : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
  } {label = "for program"}
}) {sym_name = "gemm", arguments = [{name = "x"}, {name = "y"}, {name = "out"}, {name = "K"}], options = {}} : () -> ()
