"tile.kernel"() ({
^bb0(%q_desc: !tile.desc<tensor<128x64xf16>>, %k_desc: !tile.desc<tensor<128x64xf16>>, %v_desc: !tile.desc<tensor<128x64xf16>>, %o_desc: !tile.desc<tensor<128x64xf16>>, %length: i32, %scale: f32):
  %q_map = hopper.tensor_map %q_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<128x64xf16>>) -> !hopper.tensor_map<f16, [#builtin.int<128>, #builtin.int<64>]>
  %k_map = hopper.tensor_map %k_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<128x64xf16>>) -> !hopper.tensor_map<f16, [#builtin.int<128>, #builtin.int<64>]>
  %v_map = hopper.tensor_map %v_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<128x64xf16>>) -> !hopper.tensor_map<f16, [#builtin.int<128>, #builtin.int<64>]>
  %o_map = hopper.tensor_map %o_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<128x64xf16>>) -> !hopper.tensor_map<f16, [#builtin.int<64>, #builtin.int<64>]>
  %q_ring = hopper.shared "q@292" {offset = #builtin.int<0>} : !hopper.buffer<#builtin.int<2>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
  %k_ring = hopper.shared "k@297" {offset = #builtin.int<32768>} : !hopper.buffer<#builtin.int<5>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
  %v_ring = hopper.shared "v@303" {offset = #builtin.int<114688>} : !hopper.buffer<#builtin.int<5>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
  %o_desc_stage = hopper.shared "o_desc@306 stage" {offset = #builtin.int<196608>} : !hopper.buffer<#builtin.int<1>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
  %filled = hopper.barriers "q@292 filled" {offset = #builtin.int<212992>, arrivals = #builtin.int<1>} : !hopper.barriers<#builtin.int<2>>
  %freed = hopper.barriers "q@292 freed" {offset = #builtin.int<213008>, arrivals = #builtin.int<8>} : !hopper.barriers<#builtin.int<2>>
  %filled_1 = hopper.barriers "k@297 filled" {offset = #builtin.int<213024>, arrivals = #builtin.int<1>} : !hopper.barriers<#builtin.int<5>>
  %freed_1 = hopper.barriers "k@297 freed" {offset = #builtin.int<213064>, arrivals = #builtin.int<2>} : !hopper.barriers<#builtin.int<5>>
  %filled_2 = hopper.barriers "v@303 filled" {offset = #builtin.int<213104>, arrivals = #builtin.int<1>} : !hopper.barriers<#builtin.int<5>>
  %freed_2 = hopper.barriers "v@303 freed" {offset = #builtin.int<213144>, arrivals = #builtin.int<2>} : !hopper.barriers<#builtin.int<5>>
  hopper.init_barriers %filled : !hopper.barriers<#builtin.int<2>>
  hopper.init_barriers %freed : !hopper.barriers<#builtin.int<2>>
  hopper.init_barriers %filled_1 : !hopper.barriers<#builtin.int<5>>
  hopper.init_barriers %freed_1 : !hopper.barriers<#builtin.int<5>>
  hopper.init_barriers %filled_2 : !hopper.barriers<#builtin.int<5>>
  hopper.init_barriers %freed_2 : !hopper.barriers<#builtin.int<5>>
  hopper.fence_barrier_init
  hopper.block_sync
  "hopper.role"() ({
    hopper.set_registers "dec" {count = #builtin.int<40>}
    "hopper.one_thread"() ({
      %zero = tile.constant {value = #builtin.int<0>} : i32
      %0 = tile.constant {value = #builtin.int<2>} : i32
      %1 = tile.constant {value = #builtin.int<5>} : i32
      %one = tile.constant {value = #builtin.int<1>} : i32
      %2 = tile.constant {value = #builtin.int<128>} : i32
      %grid = hopper.grid_extent {axis = #builtin.int<0>} : i32
      %grid_1 = hopper.grid_extent {axis = #builtin.int<1>} : i32
      %grid_2 = hopper.grid_extent {axis = #builtin.int<2>} : i32
      %block = hopper.block_id {axis = #builtin.int<0>} : i32
      %blocks = hopper.num_blocks {axis = #builtin.int<0>} : i32
      %3 = tile.elementwise "mul"(%grid, %grid_1) : (i32, i32) -> i32
      %tiles = tile.elementwise "mul"(%3, %grid_2) : (i32, i32) -> i32
      %slot_end, %phase_end, %slot_end_1, %phase_end_1, %slot_end_2, %phase_end_2 = scf.for %program = %block to %tiles step %blocks iter_args(%slot = %zero, %phase = %one, %slot_1 = %zero, %phase_1 = %one, %slot_2 = %zero, %phase_2 = %one) -> (i32, i32, i32, i32, i32, i32) : i32 {
        %4 = tile.elementwise "irem"(%program, %3) : (i32, i32) -> i32
        %pid = tile.elementwise "irem"(%4, %grid) : (i32, i32) -> i32
        %start = tile.elementwise "mul"(%pid, %2) : (i32, i32) -> i32
        hopper.wait %freed[%slot], %phase : !hopper.barriers<#builtin.int<2>>, i32, i32
        hopper.expect %filled[%slot] {bytes = #builtin.int<16384>} : !hopper.barriers<#builtin.int<2>>, i32
        %q = hopper.slot %q_ring[%slot] : (!hopper.buffer<#builtin.int<2>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
        hopper.tma_load %q_map[%start, %zero], %q, %filled[%slot] : !hopper.tensor_map<f16, [#builtin.int<128>, #builtin.int<64>]>, i32, i32, !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, !hopper.barriers<#builtin.int<2>>, i32
        %5 = tile.elementwise "add"(%slot, %one) : (i32, i32) -> i32
        %6 = tile.elementwise "eq"(%5, %0) : (i32, i32) -> i1
        %next_slot = tile.elementwise "select"(%6, %zero, %5) : (i1, i32, i32) -> i32
        %7 = tile.elementwise "xor"(%phase, %one) : (i32, i32) -> i32
        %next_phase = tile.elementwise "select"(%6, %7, %phase) : (i1, i32, i32) -> i32
        %slot_end_3, %phase_end_3, %slot_end_4, %phase_end_4 = scf.for %n = %zero to %length step %2 iter_args(%slot_3 = %slot_1, %phase_3 = %phase_1, %slot_4 = %slot_2, %phase_4 = %phase_2) -> (i32, i32, i32, i32) : i32 {
          hopper.wait %freed_1[%slot_3], %phase_3 : !hopper.barriers<#builtin.int<5>>, i32, i32
          hopper.expect %filled_1[%slot_3] {bytes = #builtin.int<16384>} : !hopper.barriers<#builtin.int<5>>, i32
          %k = hopper.slot %k_ring[%slot_3] : (!hopper.buffer<#builtin.int<5>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
          hopper.tma_load %k_map[%n, %zero], %k, %filled_1[%slot_3] : !hopper.tensor_map<f16, [#builtin.int<128>, #builtin.int<64>]>, i32, i32, !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, !hopper.barriers<#builtin.int<5>>, i32
          %8 = tile.elementwise "add"(%slot_3, %one) : (i32, i32) -> i32
          %9 = tile.elementwise "eq"(%8, %1) : (i32, i32) -> i1
          %next_slot_1 = tile.elementwise "select"(%9, %zero, %8) : (i1, i32, i32) -> i32
          %10 = tile.elementwise "xor"(%phase_3, %one) : (i32, i32) -> i32
          %next_phase_1 = tile.elementwise "select"(%9, %10, %phase_3) : (i1, i32, i32) -> i32
          hopper.wait %freed_2[%slot_4], %phase_4 : !hopper.barriers<#builtin.int<5>>, i32, i32
          hopper.expect %filled_2[%slot_4] {bytes = #builtin.int<16384>} : !hopper.barriers<#builtin.int<5>>, i32
          %v = hopper.slot %v_ring[%slot_4] : (!hopper.buffer<#builtin.int<5>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
          hopper.tma_load %v_map[%n, %zero], %v, %filled_2[%slot_4] : !hopper.tensor_map<f16, [#builtin.int<128>, #builtin.int<64>]>, i32, i32, !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, !hopper.barriers<#builtin.int<5>>, i32
          %11 = tile.elementwise "add"(%slot_4, %one) : (i32, i32) -> i32
          %12 = tile.elementwise "eq"(%11, %1) : (i32, i32) -> i1
          %next_slot_2 = tile.elementwise "select"(%12, %zero, %11) : (i1, i32, i32) -> i32
          %13 = tile.elementwise "xor"(%phase_4, %one) : (i32, i32) -> i32
          %next_phase_2 = tile.elementwise "select"(%12, %13, %phase_4) : (i1, i32, i32) -> i32
          scf.yield %next_slot_1, %next_phase_1, %next_slot_2, %next_phase_2 : i32, i32, i32, i32
        }
        scf.yield %next_slot, %next_phase, %slot_end_3, %phase_end_3, %slot_end_4, %phase_end_4 : i32, i32, i32, i32, i32, i32
      }
    }) : () -> ()
  }) {label = "load", first_warp = #builtin.int<0>, warps = #builtin.int<4>, registers = #builtin.int<40>} : () -> ()
  "hopper.role"() ({
    hopper.set_registers "inc" {count = #builtin.int<232>}
    %14 = tile.constant {value = #tile.real<"1.44269504">} : f32
    %15 = tile.constant {value = #builtin.int<1>} : i32
    %16 = tile.constant {value = #builtin.int<2>} : i32
    %from_zero = tile.constant {value = #builtin.int<0>} : i1
    %17 = tile.constant {value = #builtin.int<5>} : i32
    %18 = tile.constant {value = #builtin.int<128>} : i32
    %zero_1 = tile.constant {value = #builtin.int<0>} : i32
    %grid_3 = hopper.grid_extent {axis = #builtin.int<0>} : i32
    %grid_4 = hopper.grid_extent {axis = #builtin.int<1>} : i32
    %grid_5 = hopper.grid_extent {axis = #builtin.int<2>} : i32
    %block_1 = hopper.block_id {axis = #builtin.int<0>} : i32
    %blocks_1 = hopper.num_blocks {axis = #builtin.int<0>} : i32
    %19 = tile.elementwise "mul"(%grid_3, %grid_4) : (i32, i32) -> i32
    %tiles_1 = tile.elementwise "mul"(%19, %grid_5) : (i32, i32) -> i32
    %20 = tile.elementwise "mul"(%scale, %14) : (f32, f32) -> f32
    %slot_end_5, %phase_end_5, %slot_end_6, %phase_end_6, %slot_end_7, %phase_end_7 = scf.for %program_1 = %block_1 to %tiles_1 step %blocks_1 iter_args(%slot_5 = %zero_1, %phase_5 = %zero_1, %slot_6 = %zero_1, %phase_6 = %zero_1, %slot_7 = %zero_1, %phase_7 = %zero_1) -> (i32, i32, i32, i32, i32, i32) : i32 {
      %21 = tile.elementwise "irem"(%program_1, %19) : (i32, i32) -> i32
      %pid_1 = tile.elementwise "irem"(%21, %grid_3) : (i32, i32) -> i32
      %start_1 = tile.elementwise "mul"(%pid_1, %18) : (i32, i32) -> i32
      %row_max = tile.constant {value = #tile.real<"-inf">} : tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
      %row_sum = tile.constant {value = #tile.real<"0.0">} : tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
      %acc = tile.constant {value = #tile.real<"0.0">} : tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      hopper.wait %filled[%slot_5], %phase_5 : !hopper.barriers<#builtin.int<2>>, i32, i32
      %q_1 = hopper.slot %q_ring[%slot_5] : (!hopper.buffer<#builtin.int<2>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
      %22 = tile.elementwise "add"(%slot_5, %15) : (i32, i32) -> i32
      %23 = tile.elementwise "eq"(%22, %16) : (i32, i32) -> i1
      %next_slot_3 = tile.elementwise "select"(%23, %zero_1, %22) : (i1, i32, i32) -> i32
      %24 = tile.elementwise "xor"(%phase_5, %15) : (i32, i32) -> i32
      %next_phase_3 = tile.elementwise "select"(%23, %24, %phase_5) : (i1, i32, i32) -> i32
      %row_max_1, %row_sum_1, %acc_1, %slot_end_8, %phase_end_8, %slot_end_9, %phase_end_9 = scf.for %n_1 = %zero_1 to %length step %18 iter_args(%row_max_2 = %row_max, %row_sum_2 = %row_sum, %acc_2 = %acc, %slot_8 = %slot_6, %phase_8 = %phase_6, %slot_9 = %slot_7, %phase_9 = %phase_7) -> (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>, tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>, tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i32, i32, i32, i32) : i32 {
        %25 = tile.constant {value = #tile.real<"0.0">} : tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        hopper.wait %filled_1[%slot_8], %phase_8 : !hopper.barriers<#builtin.int<5>>, i32, i32
        %k_1 = hopper.slot %k_ring[%slot_8] : (!hopper.buffer<#builtin.int<5>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
        %26 = hopper.transpose_view %k_1 {permutation = [#builtin.int<1>, #builtin.int<0>]} : (!hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>) -> !hopper.view<f16, #hopper.shared_layout<"64x128 order(1,0) 16b swizzle128">, #hopper.shared_layout<"64x128 order(1,0) 16b swizzle128">>
        hopper.wgmma_fence
        %scores = hopper.wgmma %q_1, %26, %25 if %from_zero : (!hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, !hopper.view<f16, #hopper.shared_layout<"64x128 order(1,0) 16b swizzle128">, #hopper.shared_layout<"64x128 order(1,0) 16b swizzle128">>, tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i1) -> tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        hopper.wgmma_commit
        %27 = tile.elementwise "add"(%slot_8, %15) : (i32, i32) -> i32
        %28 = tile.elementwise "eq"(%27, %17) : (i32, i32) -> i1
        %next_slot_4 = tile.elementwise "select"(%28, %zero_1, %27) : (i1, i32, i32) -> i32
        %29 = tile.elementwise "xor"(%phase_8, %15) : (i32, i32) -> i32
        %next_phase_4 = tile.elementwise "select"(%28, %29, %phase_8) : (i1, i32, i32) -> i32
        %30 = tile.splat %20 : (f32) -> tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %scores_1 = hopper.wgmma_wait {pending = #builtin.int<0>} of %scores : tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">> -> tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        hopper.arrive %freed_1[%slot_8] {by = "warpgroup"} : !hopper.barriers<#builtin.int<5>>, i32
        %scores_2 = tile.elementwise "mul"(%scores_1, %30) : (tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %new_max = "tile.reduce"(%scores_2) ({
        ^bb0(%31: f32, %32: f32):
          %33 = tile.elementwise "max"(%31, %32) : (f32, f32) -> f32
          tile.yield %33 : f32
        }) {axis = #builtin.int<1>} : (tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
        %new_max_1 = tile.elementwise "max"(%row_max_2, %new_max) : (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>, tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>) -> tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
        %34 = tile.expand_dims %new_max_1 {axis = #builtin.int<1>} : (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>) -> tensor<128x1xf32, #hopper.layout<"128x1 r[2:(8,0)] l[4:(0,0) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %35 = tile.broadcast %34 : (tensor<128x1xf32, #hopper.layout<"128x1 r[2:(8,0)] l[4:(0,0) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %36 = tile.elementwise "sub"(%scores_2, %35) : (tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %weights = tile.elementwise "exp2"(%36) : (tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %37 = tile.elementwise "sub"(%row_max_2, %new_max_1) : (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>, tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>) -> tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
        %correction = tile.elementwise "exp2"(%37) : (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>) -> tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
        %38 = tile.elementwise "mul"(%row_sum_2, %correction) : (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>, tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>) -> tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
        %row_sum_3 = "tile.reduce"(%weights) ({
        ^bb0(%39: f32, %40: f32):
          %41 = tile.elementwise "add"(%39, %40) : (f32, f32) -> f32
          tile.yield %41 : f32
        }) {axis = #builtin.int<1>} : (tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
        %row_sum_4 = tile.elementwise "add"(%38, %row_sum_3) : (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>, tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>) -> tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>
        %42 = tile.cast %weights : (tensor<128x128xf32, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x128xf16, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %43 = tile.expand_dims %correction {axis = #builtin.int<1>} : (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>) -> tensor<128x1xf32, #hopper.layout<"128x1 r[2:(8,0)] l[4:(0,0) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %44 = tile.broadcast %43 : (tensor<128x1xf32, #hopper.layout<"128x1 r[2:(8,0)] l[4:(0,0) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        %45 = tile.elementwise "mul"(%acc_2, %44) : (tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        hopper.wait %filled_2[%slot_9], %phase_9 : !hopper.barriers<#builtin.int<5>>, i32, i32
        %v_1 = hopper.slot %v_ring[%slot_9] : (!hopper.buffer<#builtin.int<5>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
        hopper.wgmma_fence
        %acc_3 = hopper.wgmma %42, %v_1, %45 : (tensor<128x128xf16, #hopper.layout<"128x128 r[2:(0,1) 2:(8,0) 16:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        hopper.wgmma_commit
        %46 = tile.elementwise "add"(%slot_9, %15) : (i32, i32) -> i32
        %47 = tile.elementwise "eq"(%46, %17) : (i32, i32) -> i1
        %next_slot_5 = tile.elementwise "select"(%47, %zero_1, %46) : (i1, i32, i32) -> i32
        %48 = tile.elementwise "xor"(%phase_9, %15) : (i32, i32) -> i32
        %next_phase_5 = tile.elementwise "select"(%47, %48, %phase_9) : (i1, i32, i32) -> i32
        %acc_4 = hopper.wgmma_wait {pending = #builtin.int<0>} of %acc_3 : tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">> -> tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        hopper.arrive %freed_2[%slot_9] {by = "warpgroup"} : !hopper.barriers<#builtin.int<5>>, i32
        scf.yield %new_max_1, %row_sum_4, %acc_4, %next_slot_4, %next_phase_4, %next_slot_5, %next_phase_5 : tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>, tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>, tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i32, i32, i32, i32
      }
      hopper.arrive %freed[%slot_5] {by = "warp"} : !hopper.barriers<#builtin.int<2>>, i32
      %49 = tile.expand_dims %row_sum_1 {axis = #builtin.int<1>} : (tensor<128xf32, #hopper.layout<"128 r[2:(8)] l[4:(0) 8:(1)] w[4:(16) 2:(64)]">>) -> tensor<128x1xf32, #hopper.layout<"128x1 r[2:(8,0)] l[4:(0,0) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      %50 = tile.broadcast %49 : (tensor<128x1xf32, #hopper.layout<"128x1 r[2:(8,0)] l[4:(0,0) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      %51 = tile.elementwise "div"(%acc_1, %50) : (tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      %52 = tile.cast %51 : (tensor<128x64xf32, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x64xf16, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      hopper.bulk_wait {pending = #builtin.int<0>, read = true, by = "warpgroup"}
      hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "warpgroup", threads = #builtin.int<128>}
      %o_desc_1 = hopper.slot %o_desc_stage[%zero_1] : (!hopper.buffer<#builtin.int<1>, f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
      hopper.shared_store "stmatrix" %52, %o_desc_1 : tensor<128x64xf16, #hopper.layout<"128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
      hopper.proxy_fence
      hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "warpgroup", threads = #builtin.int<128>}
      hopper.tma_store %o_map[%start_1, %zero_1], %o_desc_1 {by = "warpgroup", eviction = "first"} : !hopper.tensor_map<f16, [#builtin.int<64>, #builtin.int<64>]>, i32, i32, !hopper.view<f16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
      hopper.bulk_commit {by = "warpgroup"}
      scf.yield %next_slot_3, %next_phase_3, %slot_end_8, %phase_end_8, %slot_end_9, %phase_end_9 : i32, i32, i32, i32, i32, i32
    }
    hopper.bulk_wait {pending = #builtin.int<0>, read = false, by = "warpgroup"}
  }) {label = "mma", first_warp = #builtin.int<4>, warps = #builtin.int<8>, registers = #builtin.int<232>} : () -> ()
}) {sym_name = "attention", arguments = [{name = "q_desc"}, {name = "k_desc"}, {name = "v_desc"}, {name = "o_desc"}, {name = "length"}, {name = "scale"}], options = {}, launch = {threads = #builtin.int<384>, registers = #builtin.int<168>, shared = #builtin.int<213184>, cluster = #builtin.int<1>, persistent = true}} : () -> ()
