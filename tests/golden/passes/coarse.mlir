"tile.kernel"() ({
^bb0(%x: !tile.desc<tensor<16x16xf16>>, %y: !tile.desc<tensor<16x16xf16>>, %z: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %q = aref.create "q" {depth = #builtin.int<1>} : !aref.aref<[tensor<16x16xf16>]>
  %kt = aref.create "kt" {depth = #builtin.int<8>} : !aref.aref<[tensor<16x16xf16>]>
  %v = aref.create "v" {depth = #builtin.int<8>} : !aref.aref<[tensor<16x16xf16>]>
  "aref.role"() ({
    %c0 = tile.constant {value = #builtin.int<0>} : i32
    %c16 = tile.constant {value = #builtin.int<16>} : i32
    %pid = tile.program_id {axis = #builtin.int<0>} : i32
    %m = tile.elementwise "mul"(%pid, %c16) : (i32, i32) -> i32
    %slot = aref.put_enter %q : (!aref.aref<[tensor<16x16xf16>]>) -> !aref.slot<[tensor<16x16xf16>]>
    %q_1 = tile.desc_load %x[%m, %c0] {label = "q"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    aref.put_exit %slot(%q_1) : !aref.slot<[tensor<16x16xf16>]>, tensor<16x16xf16>
    scf.for %k = %c0 to %K step %c16 : i32 {
      %slot_1 = aref.put_enter %kt : (!aref.aref<[tensor<16x16xf16>]>) -> !aref.slot<[tensor<16x16xf16>]>
      %kt_1 = tile.desc_load %y[%k, %c0] {label = "kt"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
      aref.put_exit %slot_1(%kt_1) : !aref.slot<[tensor<16x16xf16>]>, tensor<16x16xf16>
      %slot_2 = aref.put_enter %v : (!aref.aref<[tensor<16x16xf16>]>) -> !aref.slot<[tensor<16x16xf16>]>
      %v_1 = tile.desc_load %z[%k, %c0] {label = "v"} : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
      aref.put_exit %slot_2(%v_1) : !aref.slot<[tensor<16x16xf16>]>, tensor<16x16xf16>
    } {label = "for k"}
  }) {label = "load", warps = #builtin.int<4>, registers = #builtin.int<40>} : () -> ()
  "aref.role"() ({
    %c0_1 = tile.constant {value = #builtin.int<0>} : i32
    %c16_1 = tile.constant {value = #builtin.int<16>} : i32
    %zero = tile.constant {value = #builtin.int<0>} : tensor<16x16xf32>
    %pid_1 = tile.program_id {axis = #builtin.int<0>} : i32
    %m_1 = tile.elementwise "mul"(%pid_1, %c16_1) : (i32, i32) -> i32
    %q_2 = aref.get_enter %q : (!aref.aref<[tensor<16x16xf16>]>) -> tensor<16x16xf16>
    %0 = tile.elementwise "add"(%c0_1, %c16_1) : (i32, i32) -> i32
    %1 = tile.elementwise "lt"(%c0_1, %K) : (i32, i32) -> i1
    %acc = scf.if %1 -> (tensor<16x16xf32>) {
      %kt_2 = aref.get_enter %kt : (!aref.aref<[tensor<16x16xf16>]>) -> tensor<16x16xf16>
      %kv = tile.transpose %kt_2 {permutation = [#builtin.int<1>, #builtin.int<0>]} : (tensor<16x16xf16>) -> tensor<16x16xf16>
      %s = tile.dot %q_2, %kv, %zero {precision = "tf32", max_imprecise = #builtin.int<0>, label = "s"} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
      aref.get_exit %kt : !aref.aref<[tensor<16x16xf16>]>
      %p = tile.cast %s : (tensor<16x16xf32>) -> tensor<16x16xf16>
      %p_1, %acc1 = scf.for %k_1 = %0 to %K step %c16_1 iter_args(%p_2 = %p, %acc1_1 = %zero) -> (tensor<16x16xf16>, tensor<16x16xf32>) : i32 {
        %kt_3 = aref.get_enter %kt : (!aref.aref<[tensor<16x16xf16>]>) -> tensor<16x16xf16>
        %kv_1 = tile.transpose %kt_3 {permutation = [#builtin.int<1>, #builtin.int<0>]} : (tensor<16x16xf16>) -> tensor<16x16xf16>
        %s_1 = tile.dot %q_2, %kv_1, %zero {precision = "tf32", max_imprecise = #builtin.int<0>, label = "s"} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
        %v_2 = aref.get_enter %v : (!aref.aref<[tensor<16x16xf16>]>) -> tensor<16x16xf16>
        %acc2 = tile.dot %p_2, %v_2, %acc1_1 {precision = "tf32", max_imprecise = #builtin.int<0>, label = "acc2"} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
        aref.get_exit %kt : !aref.aref<[tensor<16x16xf16>]>
        aref.get_exit %v : !aref.aref<[tensor<16x16xf16>]>
        %p_3 = tile.cast %s_1 : (tensor<16x16xf32>) -> tensor<16x16xf16>
        scf.yield %p_3, %acc2 : tensor<16x16xf16>, tensor<16x16xf32>
      } {label = "for k"}
      %v_3 = aref.get_enter %v : (!aref.aref<[tensor<16x16xf16>]>) -> tensor<16x16xf16>
      %acc2_1 = tile.dot %p_1, %v_3, %acc1 {precision = "tf32", max_imprecise = #builtin.int<0>, label = "acc2"} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
      aref.get_exit %v : !aref.aref<[tensor<16x16xf16>]>
      scf.yield %acc2_1 : tensor<16x16xf32>
    } else {
      scf.yield %zero : tensor<16x16xf32>
    }
    aref.get_exit %q : !aref.aref<[tensor<16x16xf16>]>
    %result = tile.cast %acc : (tensor<16x16xf32>) -> tensor<16x16xf16>
    tile.desc_store %out[%m_1, %c0_1], %result {label = "out"} : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
  }) {label = "mma", warps = #builtin.int<4>, registers = #builtin.int<240>} : () -> ()
}) {sym_name = "two dots in sequence", arguments = [{name = "x"}, {name = "y"}, {name = "z"}, {name = "out"}, {name = "K"}], options = {}} : () -> ()
