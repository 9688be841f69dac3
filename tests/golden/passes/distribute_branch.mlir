"tile.kernel"() ({
^bb0(%x: !tile.desc<tensor<16x16xf16>>, %y: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %b = aref.create "b" {depth = #builtin.int<8>} : !aref.aref<[tensor<16x16xf16>]>
  %a = aref.create "a" {depth = #builtin.int<8>} : !aref.aref<[tensor<16x16xf16>]>
  "aref.role"() ({
    %c0 = tile.constant {value = #builtin.int<0>} : i32
    %c16 = tile.constant {value = #builtin.int<16>} : i32
    %pid = tile.program_id {axis = #builtin.int<0>} : i32
    %m = tile.elementwise "mul"(%pid, %c16) : (i32, i32) -> i32
    %c32 = tile.constant {value = #builtin.int<32>} : i32
    scf.for %k = %c0 to %K step %c16 : i32 {
      %slot = aref.put_enter %b : (!aref.aref<[tensor<16x16xf16>]>) -> !aref.slot<[tensor<16x16xf16>]>
      %b_1 = tile.desc_load %y[%k, %c0] {label = "b"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
      aref.put_exit %slot(%b_1) : !aref.slot<[tensor<16x16xf16>]>, tensor<16x16xf16>
      %early = tile.elementwise "lt"(%k, %c32) : (i32, i32) -> i1
      scf.if %early {
        %slot_1 = aref.put_enter %a : (!aref.aref<[tensor<16x16xf16>]>) -> !aref.slot<[tensor<16x16xf16>]>
        %a_1 = tile.desc_load %x[%m, %k] {label = "a"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
        aref.put_exit %slot_1(%a_1) : !aref.slot<[tensor<16x16xf16>]>, tensor<16x16xf16>
      } else {
      }
    } {label = "for k"}
  }) {label = "load", warps = #builtin.int<4>, registers = #builtin.int<40>} : () -> ()
  "aref.role"() ({
    %c0_1 = tile.constant {value = #builtin.int<0>} : i32
    %c16_1 = tile.constant {value = #builtin.int<16>} : i32
    %zero = tile.constant {value = #builtin.int<0>} : tensor<16x16xf32>
    %pid_1 = tile.program_id {axis = #builtin.int<0>} : i32
    %m_1 = tile.elementwise "mul"(%pid_1, %c16_1) : (i32, i32) -> i32
    %c32_1 = tile.constant {value = #builtin.int<32>} : i32
    %acc = scf.for %k_1 = %c0_1 to %K step %c16_1 iter_args(%acc1 = %zero) -> (tensor<16x16xf32>) : i32 {
      %early_1 = tile.elementwise "lt"(%k_1, %c32_1) : (i32, i32) -> i1
      %b_2 = aref.get_enter %b : (!aref.aref<[tensor<16x16xf16>]>) -> tensor<16x16xf16>
      %acc2 = scf.if %early_1 -> (tensor<16x16xf32>) {
        %a_2 = aref.get_enter %a : (!aref.aref<[tensor<16x16xf16>]>) -> tensor<16x16xf16>
        %yes = tile.dot %a_2, %b_2, %acc1 {precision = "tf32", max_imprecise = #builtin.int<0>, label = "yes"} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
        aref.get_exit %a : !aref.aref<[tensor<16x16xf16>]>
        scf.yield %yes : tensor<16x16xf32>
      } else {
        %bf = tile.cast %b_2 : (tensor<16x16xf16>) -> tensor<16x16xf32>
        %no = tile.elementwise "add"(%acc1, %bf) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
        scf.yield %no : tensor<16x16xf32>
      }
      aref.get_exit %b : !aref.aref<[tensor<16x16xf16>]>
      scf.yield %acc2 : tensor<16x16xf32>
    } {label = "for k"}
    %result = tile.cast %acc : (tensor<16x16xf32>) -> tensor<16x16xf16>
    tile.desc_store %out[%m_1, %c0_1], %result {label = "out"} : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
  }) {label = "mma", warps = #builtin.int<4>, registers = #builtin.int<88>} : () -> ()
}) {sym_name = "load under an if", arguments = [{name = "x"}, {name = "y"}, {name = "out"}, {name = "K"}], options = {}} : () -> ()
