"tile.kernel"() ({
^bb0(%a_desc: !tile.desc<tensor<128x64xbf16>>, %b_desc: !tile.desc<tensor<64x256xbf16>>, %c_desc: !tile.desc<tensor<128x256xbf16>>, %K: i32):
  %a_map = hopper.tensor_map %a_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<128x64xbf16>>) -> !hopper.tensor_map<bf16, [#builtin.int<128>, #builtin.int<64>]>
  %b_map = hopper.tensor_map %b_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<64x256xbf16>>) -> !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>
  %c_map = hopper.tensor_map %c_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<128x256xbf16>>) -> !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>
  %a_ring = hopper.shared "a" {offset = #builtin.int<0>} : !hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
  %b_ring = hopper.shared "b" {offset = #builtin.int<49152>} : !hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>
  %c_stage = hopper.shared "c" {offset = #builtin.int<147456>} : !hopper.buffer<#builtin.int<1>, bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>
  %filled = hopper.barriers "a+b@14 filled" {offset = #builtin.int<212992>, arrivals = #builtin.int<1>} : !hopper.barriers<#builtin.int<3>>
  %freed = hopper.barriers "a+b@14 freed" {offset = #builtin.int<213016>, arrivals = #builtin.int<2>} : !hopper.barriers<#builtin.int<3>>
  hopper.prefetch_map %a_map : !hopper.tensor_map<bf16, [#builtin.int<128>, #builtin.int<64>]>
  hopper.prefetch_map %b_map : !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>
  hopper.prefetch_map %c_map : !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>
  hopper.init_barriers %filled : !hopper.barriers<#builtin.int<3>>
  hopper.init_barriers %freed : !hopper.barriers<#builtin.int<3>>
  hopper.fence_barrier_init
  hopper.block_sync
  "hopper.role"() ({
    hopper.set_registers "dec" {count = #builtin.int<40>}
    "hopper.one_thread"() ({
      %zero = tile.constant {value = #builtin.int<0>} : i32
      %one = tile.constant {value = #builtin.int<1>} : i32
      %depth = tile.constant {value = #builtin.int<3>} : i32
      %bk = tile.constant {value = #builtin.int<64>} : i32
      %bm = tile.constant {value = #builtin.int<128>} : i32
      %bn = tile.constant {value = #builtin.int<256>} : i32
      %pid_m = hopper.block_id {axis = #builtin.int<0>} : i32
      %pid_n = hopper.block_id {axis = #builtin.int<1>} : i32
      %m = tile.elementwise "mul"(%pid_m, %bm) : (i32, i32) -> i32
      %n = tile.elementwise "mul"(%pid_n, %bn) : (i32, i32) -> i32
      %slot_end, %phase_end = scf.for %k = %zero to %K step %bk iter_args(%slot = %zero, %phase = %one) -> (i32, i32) : i32 {
        hopper.wait %freed[%slot], %phase : !hopper.barriers<#builtin.int<3>>, i32, i32
        hopper.expect %filled[%slot] {bytes = #builtin.int<49152>} : !hopper.barriers<#builtin.int<3>>, i32
        %a = hopper.slot %a_ring[%slot] : (!hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
        hopper.tma_load %a_map[%m, %k], %a, %filled[%slot] : !hopper.tensor_map<bf16, [#builtin.int<128>, #builtin.int<64>]>, i32, i32, !hopper.view<bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, !hopper.barriers<#builtin.int<3>>, i32
        %b = hopper.slot %b_ring[%slot] : (!hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>
        hopper.tma_load %b_map[%k, %n], %b, %filled[%slot] : !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>, i32, i32, !hopper.view<bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>, !hopper.barriers<#builtin.int<3>>, i32
        %slot_out_next = tile.elementwise "add"(%slot, %one) : (i32, i32) -> i32
        %slot_out_wraps = tile.elementwise "eq"(%slot_out_next, %depth) : (i32, i32) -> i1
        %slot_out = tile.elementwise "select"(%slot_out_wraps, %zero, %slot_out_next) : (i1, i32, i32) -> i32
        %phase_out_flip = tile.elementwise "xor"(%phase, %one) : (i32, i32) -> i32
        %phase_out = tile.elementwise "select"(%slot_out_wraps, %phase_out_flip, %phase) : (i1, i32, i32) -> i32
        scf.yield %slot_out, %phase_out : i32, i32
      }
    }) : () -> ()
  }) {label = "load", first_warp = #builtin.int<0>, warps = #builtin.int<4>, registers = #builtin.int<40>} : () -> ()
  "hopper.role"() ({
    hopper.set_registers "inc" {count = #builtin.int<232>}
    %zero_1 = tile.constant {value = #builtin.int<0>} : i32
    %one_1 = tile.constant {value = #builtin.int<1>} : i32
    %depth_1 = tile.constant {value = #builtin.int<3>} : i32
    %bk_1 = tile.constant {value = #builtin.int<64>} : i32
    %bm_1 = tile.constant {value = #builtin.int<128>} : i32
    %bn_1 = tile.constant {value = #builtin.int<256>} : i32
    %pid_m_1 = hopper.block_id {axis = #builtin.int<0>} : i32
    %pid_n_1 = hopper.block_id {axis = #builtin.int<1>} : i32
    %m_1 = tile.elementwise "mul"(%pid_m_1, %bm_1) : (i32, i32) -> i32
    %n_1 = tile.elementwise "mul"(%pid_n_1, %bn_1) : (i32, i32) -> i32
    %acc_zero = tile.constant {value = #builtin.int<0>} : tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
    %acc, %slot_end_1, %phase_end_1, %iteration_end, %oldest_end = scf.for %k_1 = %zero_1 to %K step %bk_1 iter_args(%acc_in = %acc_zero, %slot_1 = %zero_1, %phase_1 = %zero_1, %iteration = %zero_1, %oldest = %zero_1) -> (tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i32, i32, i32, i32) : i32 {
      hopper.wait %filled[%slot_1], %phase_1 : !hopper.barriers<#builtin.int<3>>, i32, i32
      %a_1 = hopper.slot %a_ring[%slot_1] : (!hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
      %b_1 = hopper.slot %b_ring[%slot_1] : (!hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>
      hopper.wgmma_fence
      %more = tile.elementwise "gt"(%iteration, %zero_1) : (i32, i32) -> i1
      %acc_out = hopper.wgmma %a_1, %b_1, %acc_in if %more : (!hopper.view<bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, !hopper.view<bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>, tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i1) -> tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      hopper.wgmma_commit
      hopper.wgmma_wait {pending = #builtin.int<1>}
      %oldest_out = scf.if %more -> (i32) {
        hopper.arrive %freed[%oldest] {by = "warpgroup"} : !hopper.barriers<#builtin.int<3>>, i32
        %oldest_then_next = tile.elementwise "add"(%oldest, %one_1) : (i32, i32) -> i32
        %oldest_then_wraps = tile.elementwise "eq"(%oldest_then_next, %depth_1) : (i32, i32) -> i1
        %oldest_then = tile.elementwise "select"(%oldest_then_wraps, %zero_1, %oldest_then_next) : (i1, i32, i32) -> i32
        scf.yield %oldest_then : i32
      } else {
        scf.yield %oldest : i32
      }
      %slot_out_next_1 = tile.elementwise "add"(%slot_1, %one_1) : (i32, i32) -> i32
      %slot_out_wraps_1 = tile.elementwise "eq"(%slot_out_next_1, %depth_1) : (i32, i32) -> i1
      %slot_out_1 = tile.elementwise "select"(%slot_out_wraps_1, %zero_1, %slot_out_next_1) : (i1, i32, i32) -> i32
      %phase_out_flip_1 = tile.elementwise "xor"(%phase_1, %one_1) : (i32, i32) -> i32
      %phase_out_1 = tile.elementwise "select"(%slot_out_wraps_1, %phase_out_flip_1, %phase_1) : (i1, i32, i32) -> i32
      %iteration_out = tile.elementwise "add"(%iteration, %one_1) : (i32, i32) -> i32
      scf.yield %acc_out, %slot_out_1, %phase_out_1, %iteration_out, %oldest_out : tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i32, i32, i32, i32
    }
    %acc_done = hopper.wgmma_wait {pending = #builtin.int<0>} of %acc : tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">> -> tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
    %any = tile.elementwise "gt"(%iteration_end, %zero_1) : (i32, i32) -> i1
    scf.if %any {
      hopper.arrive %freed[%oldest_end] {by = "warpgroup"} : !hopper.barriers<#builtin.int<3>>, i32
    }
    %c = tile.cast %acc_done : (tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x256xbf16, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
    hopper.bulk_wait {pending = #builtin.int<0>, read = true, by = "warpgroup"}
    hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "warpgroup", threads = #builtin.int<128>}
    %c_tile = hopper.slot %c_stage[%zero_1] : (!hopper.buffer<#builtin.int<1>, bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>
    hopper.shared_store "stmatrix" %c, %c_tile : tensor<128x256xbf16, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, !hopper.view<bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>
    hopper.proxy_fence
    hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "warpgroup", threads = #builtin.int<128>}
    hopper.tma_store %c_map[%m_1, %n_1], %c_tile {by = "warpgroup", eviction = "first"} : !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>, i32, i32, !hopper.view<bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>
    hopper.bulk_commit {by = "warpgroup"}
    hopper.bulk_wait {pending = #builtin.int<0>, read = false, by = "warpgroup"}
  }) {label = "mma", first_warp = #builtin.int<4>, warps = #builtin.int<8>, registers = #builtin.int<232>} : () -> ()
}) {sym_name = "matmul", arguments = [{name = "a_desc"}, {name = "b_desc"}, {name = "c_desc"}, {name = "K", divisible = #builtin.int<16>}], options = {}, launch = {threads = #builtin.int<384>, registers = #builtin.int<168>, shared = #builtin.int<213040>, cluster = #builtin.int<1>, persistent = false}} : () -> ()
