"tile.kernel"() ({
^bb0(%a_desc : !tile.desc<tensor<128x64xbf16>>, %b_desc : !tile.desc<tensor<64x256xbf16>>, %c_desc : !tile.desc<tensor<128x256xbf16>>, %K : i32):
  %ab = aref.create "a+b@14" {depth = #builtin.int<3>} : !aref.aref<[tensor<128x64xbf16>, tensor<64x256xbf16>]>
  "aref.role"() ({
    %pid_m = tile.program_id {axis = #builtin.int<0>} : i32
    %pid_n = tile.program_id {axis = #builtin.int<1>} : i32
    %bm = tile.constant {value = #builtin.int<128>} : i32
    %bn = tile.constant {value = #builtin.int<256>} : i32
    %m = tile.elementwise "mul"(%pid_m, %bm) : (i32, i32) -> i32
    %n = tile.elementwise "mul"(%pid_n, %bn) : (i32, i32) -> i32
    %c0 = tile.constant {value = #builtin.int<0>} : i32
    %bk = tile.constant {value = #builtin.int<64>} : i32
    scf.for %k = %c0 to %K step %bk : i32 {
      %slot = aref.put_enter %ab : (!aref.aref<[tensor<128x64xbf16>, tensor<64x256xbf16>]>) -> !aref.slot<[tensor<128x64xbf16>, tensor<64x256xbf16>]>
      %a = tile.desc_load %a_desc[%m, %k] : (!tile.desc<tensor<128x64xbf16>>, i32, i32) -> tensor<128x64xbf16>
      %b = tile.desc_load %b_desc[%k, %n] : (!tile.desc<tensor<64x256xbf16>>, i32, i32) -> tensor<64x256xbf16>
      aref.put_exit %slot(%a, %b) : !aref.slot<[tensor<128x64xbf16>, tensor<64x256xbf16>]>, tensor<128x64xbf16>, tensor<64x256xbf16>
    }
  }) {label = "load", warps = #builtin.int<4>, registers = #builtin.int<40>} : () -> ()
  "aref.role"() ({
    %pid_m = tile.program_id {axis = #builtin.int<0>} : i32
    %pid_n = tile.program_id {axis = #builtin.int<1>} : i32
    %bm = tile.constant {value = #builtin.int<128>} : i32
    %bn = tile.constant {value = #builtin.int<256>} : i32
    %m = tile.elementwise "mul"(%pid_m, %bm) : (i32, i32) -> i32
    %n = tile.elementwise "mul"(%pid_n, %bn) : (i32, i32) -> i32
    %zero = tile.constant {value = #builtin.int<0>} : tensor<128x256xf32>
    %c0 = tile.constant {value = #builtin.int<0>} : i32
    %bk = tile.constant {value = #builtin.int<64>} : i32
    %acc = scf.for %k = %c0 to %K step %bk iter_args(%acc_in = %zero) -> (tensor<128x256xf32>) : i32 {
      %a, %b = aref.get_enter %ab : (!aref.aref<[tensor<128x64xbf16>, tensor<64x256xbf16>]>) -> (tensor<128x64xbf16>, tensor<64x256xbf16>)
      %acc_out = tile.dot %a, %b, %acc_in {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<128x64xbf16>, tensor<64x256xbf16>, tensor<128x256xf32>) -> tensor<128x256xf32>
      aref.get_exit %ab : !aref.aref<[tensor<128x64xbf16>, tensor<64x256xbf16>]>
      scf.yield %acc_out : tensor<128x256xf32>
    }
    %c = tile.cast %acc : (tensor<128x256xf32>) -> tensor<128x256xbf16>
    tile.desc_store %c_desc[%m, %n], %c : !tile.desc<tensor<128x256xbf16>>, i32, i32, tensor<128x256xbf16>
  }) {label = "mma", warps = #builtin.int<8>, registers = #builtin.int<232>} : () -> ()
}) {sym_name = "matmul", arguments = [{name = "a_desc"}, {name = "b_desc"}, {name = "c_desc"}, {name = "K", divisible = #builtin.int<16>}], options = {}} : () -> ()
