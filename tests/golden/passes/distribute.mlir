"tile.kernel"() ({
^bb0(%x: !tile.desc<tensor<16x16xf16>>, %y: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %a_b = aref.create "a+b" {depth = #builtin.int<8>} : !aref.aref<[tensor<16x16xf16>, tensor<16x16xf16>]>
  "aref.role"() ({
    %c0 = tile.constant {value = #builtin.int<0>} : i32
    %c16 = tile.constant {value = #builtin.int<16>} : i32
    %pid = tile.program_id {axis = #builtin.int<0>} : i32
    %m = tile.elementwise "mul"(%pid, %c16) : (i32, i32) -> i32
    scf.for %k = %c0 to %K step %c16 : i32 {
      %slot = aref.put_enter %a_b : (!aref.aref<[tensor<16x16xf16>, tensor<16x16xf16>]>) -> !aref.slot<[tensor<16x16xf16>, tensor<16x16xf16>]>
      %a = tile.desc_load %x[%m, %k] {label = "a"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
      %b = tile.desc_load %y[%k, %c0] {label = "b"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
      aref.put_exit %slot(%a, %b) : !aref.slot<[tensor<16x16xf16>, tensor<16x16xf16>]>, tensor<16x16xf16>, tensor<16x16xf16>
    } {label = "for k"}
  }) {label = "load", warps = #builtin.int<4>, registers = #builtin.int<40>} : () -> ()
  "aref.role"() ({
    %c0_1 = tile.constant {value = #builtin.int<0>} : i32
    %c16_1 = tile.constant {value = #builtin.int<16>} : i32
    %zero = tile.constant {value = #builtin.int<0>} : tensor<16x16xf32>
    %pid_1 = tile.program_id {axis = #builtin.int<0>} : i32
    %m_1 = tile.elementwise "mul"(%pid_1, %c16_1) : (i32, i32) -> i32
    %acc = scf.for %k_1 = %c0_1 to %K step %c16_1 iter_args(%acc1 = %zero) -> (tensor<16x16xf32>) : i32 {
      %a_1, %b_1 = aref.get_enter %a_b : (!aref.aref<[tensor<16x16xf16>, tensor<16x16xf16>]>) -> (tensor<16x16xf16>, tensor<16x16xf16>)
      %acc2 = tile.dot %a_1, %b_1, %acc1 {precision = "tf32", max_imprecise = #builtin.int<0>, label = "acc2"} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
      aref.get_exit %a_b : !aref.aref<[tensor<16x16xf16>, tensor<16x16xf16>]>
      scf.yield %acc2 : tensor<16x16xf32>
    } {label = "for k"}
    %result = tile.cast %acc : (tensor<16x16xf32>) -> tensor<16x16xf16>
    tile.desc_store %out[%m_1, %c0_1], %result {label = "out"} : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
  }) {label = "mma", warps = #builtin.int<4>, registers = #builtin.int<88>} : () -> ()
}) {sym_name = "gemm", arguments = [{name = "x"}, {name = "y"}, {name = "out"}, {name = "K"}], options = {}} : () -> ()
