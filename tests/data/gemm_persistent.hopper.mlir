"tile.kernel"() ({
^bb0(%a_desc: !tile.desc<tensor<128x64xbf16>>, %b_desc: !tile.desc<tensor<64x256xbf16>>, %c_desc: !tile.desc<tensor<128x256xbf16>>, %K: i32):
  %a_map = hopper.tensor_map %a_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<128x64xbf16>>) -> !hopper.tensor_map<bf16, [#builtin.int<128>, #builtin.int<64>]>
  %b_map = hopper.tensor_map %b_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<64x256xbf16>>) -> !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>
  %c_map = hopper.tensor_map %c_desc {swizzle = #builtin.int<128>} : (!tile.desc<tensor<128x256xbf16>>) -> !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>
  %a_ring = hopper.shared "a@76" {offset = #builtin.int<0>} : !hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
  %b_ring = hopper.shared "b@80" {offset = #builtin.int<49152>} : !hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>
  %c_desc_stage = hopper.shared "c_desc@82 stage" {offset = #builtin.int<147456>} : !hopper.buffer<#builtin.int<1>, bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>
  %filled = hopper.barriers "a@76+b@80 filled" {offset = #builtin.int<212992>, arrivals = #builtin.int<1>} : !hopper.barriers<#builtin.int<3>>
  %freed = hopper.barriers "a@76+b@80 freed" {offset = #builtin.int<213016>, arrivals = #builtin.int<2>} : !hopper.barriers<#builtin.int<3>>
  hopper.init_barriers %filled : !hopper.barriers<#builtin.int<3>>
  hopper.init_barriers %freed : !hopper.barriers<#builtin.int<3>>
  hopper.fence_barrier_init
  hopper.block_sync
  "hopper.role"() ({
    hopper.set_registers "dec" {count = #builtin.int<40>}
    "hopper.one_thread"() ({
      %0 = tile.constant {value = #builtin.int<128>} : i32
      %1 = tile.constant {value = #builtin.int<256>} : i32
      %zero = tile.constant {value = #builtin.int<0>} : i32
      %2 = tile.constant {value = #builtin.int<64>} : i32
      %3 = tile.constant {value = #builtin.int<3>} : i32
      %one = tile.constant {value = #builtin.int<1>} : i32
      %group = tile.constant {value = #builtin.int<8>} : i32
      %grid = hopper.grid_extent {axis = #builtin.int<0>} : i32
      %grid_1 = hopper.grid_extent {axis = #builtin.int<1>} : i32
      %grid_2 = hopper.grid_extent {axis = #builtin.int<2>} : i32
      %block = hopper.block_id {axis = #builtin.int<0>} : i32
      %blocks = hopper.num_blocks {axis = #builtin.int<0>} : i32
      %4 = tile.elementwise "mul"(%grid, %grid_1) : (i32, i32) -> i32
      %tiles = tile.elementwise "mul"(%4, %grid_2) : (i32, i32) -> i32
      %5 = tile.elementwise "mul"(%group, %grid_1) : (i32, i32) -> i32
      %slot_end, %phase_end = scf.for %program = %block to %tiles step %blocks iter_args(%slot = %zero, %phase = %one) -> (i32, i32) : i32 {
        %6 = tile.elementwise "irem"(%program, %4) : (i32, i32) -> i32
        %7 = tile.elementwise "idiv"(%6, %5) : (i32, i32) -> i32
        %first_row = tile.elementwise "mul"(%7, %group) : (i32, i32) -> i32
        %8 = tile.elementwise "irem"(%6, %5) : (i32, i32) -> i32
        %9 = tile.elementwise "sub"(%grid, %first_row) : (i32, i32) -> i32
        %height = tile.elementwise "min"(%group, %9) : (i32, i32) -> i32
        %10 = tile.elementwise "irem"(%8, %height) : (i32, i32) -> i32
        %pid = tile.elementwise "add"(%first_row, %10) : (i32, i32) -> i32
        %pid_1 = tile.elementwise "idiv"(%8, %height) : (i32, i32) -> i32
        %row = tile.elementwise "mul"(%pid, %0) : (i32, i32) -> i32
        %column = tile.elementwise "mul"(%pid_1, %1) : (i32, i32) -> i32
        %slot_end_1, %phase_end_1 = scf.for %k = %zero to %K step %2 iter_args(%slot_1 = %slot, %phase_1 = %phase) -> (i32, i32) : i32 {
          hopper.wait %freed[%slot_1], %phase_1 : !hopper.barriers<#builtin.int<3>>, i32, i32
          hopper.expect %filled[%slot_1] {bytes = #builtin.int<49152>} : !hopper.barriers<#builtin.int<3>>, i32
          %a = hopper.slot %a_ring[%slot_1] : (!hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
          hopper.tma_load %a_map[%row, %k], %a, %filled[%slot_1] : !hopper.tensor_map<bf16, [#builtin.int<128>, #builtin.int<64>]>, i32, i32, !hopper.view<bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, !hopper.barriers<#builtin.int<3>>, i32
          %b = hopper.slot %b_ring[%slot_1] : (!hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>
          hopper.tma_load %b_map[%k, %column], %b, %filled[%slot_1] : !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>, i32, i32, !hopper.view<bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>, !hopper.barriers<#builtin.int<3>>, i32
          %11 = tile.elementwise "add"(%slot_1, %one) : (i32, i32) -> i32
          %12 = tile.elementwise "eq"(%11, %3) : (i32, i32) -> i1
          %next_slot = tile.elementwise "select"(%12, %zero, %11) : (i1, i32, i32) -> i32
          %13 = tile.elementwise "xor"(%phase_1, %one) : (i32, i32) -> i32
          %next_phase = tile.elementwise "select"(%12, %13, %phase_1) : (i1, i32, i32) -> i32
          scf.yield %next_slot, %next_phase : i32, i32
        }
        scf.yield %slot_end_1, %phase_end_1 : i32, i32
      }
    }) : () -> ()
  }) {label = "load", first_warp = #builtin.int<0>, warps = #builtin.int<4>, registers = #builtin.int<40>} : () -> ()
  "hopper.role"() ({
    hopper.set_registers "inc" {count = #builtin.int<232>}
    %14 = tile.constant {value = #builtin.int<256>} : i32
    %zero_1 = tile.constant {value = #builtin.int<0>} : i32
    %15 = tile.constant {value = #builtin.int<64>} : i32
    %16 = tile.constant {value = #builtin.int<1>} : i32
    %17 = tile.constant {value = #builtin.int<3>} : i32
    %group_1 = tile.constant {value = #builtin.int<8>} : i32
    %18 = tile.constant {value = #builtin.int<128>} : i32
    %grid_3 = hopper.grid_extent {axis = #builtin.int<0>} : i32
    %grid_4 = hopper.grid_extent {axis = #builtin.int<1>} : i32
    %grid_5 = hopper.grid_extent {axis = #builtin.int<2>} : i32
    %block_1 = hopper.block_id {axis = #builtin.int<0>} : i32
    %blocks_1 = hopper.num_blocks {axis = #builtin.int<0>} : i32
    %19 = tile.elementwise "mul"(%grid_3, %grid_4) : (i32, i32) -> i32
    %tiles_1 = tile.elementwise "mul"(%19, %grid_5) : (i32, i32) -> i32
    %20 = tile.elementwise "mul"(%group_1, %grid_4) : (i32, i32) -> i32
    %slot_end_2, %phase_end_2 = scf.for %program_1 = %block_1 to %tiles_1 step %blocks_1 iter_args(%slot_2 = %zero_1, %phase_2 = %zero_1) -> (i32, i32) : i32 {
      %21 = tile.elementwise "irem"(%program_1, %19) : (i32, i32) -> i32
      %22 = tile.elementwise "idiv"(%21, %20) : (i32, i32) -> i32
      %first_row_1 = tile.elementwise "mul"(%22, %group_1) : (i32, i32) -> i32
      %23 = tile.elementwise "irem"(%21, %20) : (i32, i32) -> i32
      %24 = tile.elementwise "sub"(%grid_3, %first_row_1) : (i32, i32) -> i32
      %height_1 = tile.elementwise "min"(%group_1, %24) : (i32, i32) -> i32
      %25 = tile.elementwise "irem"(%23, %height_1) : (i32, i32) -> i32
      %pid_2 = tile.elementwise "add"(%first_row_1, %25) : (i32, i32) -> i32
      %pid_3 = tile.elementwise "idiv"(%23, %height_1) : (i32, i32) -> i32
      %row_1 = tile.elementwise "mul"(%pid_2, %18) : (i32, i32) -> i32
      %column_1 = tile.elementwise "mul"(%pid_3, %14) : (i32, i32) -> i32
      %acc = tile.constant {value = #tile.real<"0.0">} : tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      %acc_1, %slot_end_3, %phase_end_3, %iteration_end, %oldest_end = scf.for %k_1 = %zero_1 to %K step %15 iter_args(%acc_2 = %acc, %slot_3 = %slot_2, %phase_3 = %phase_2, %iteration = %zero_1, %oldest = %zero_1) -> (tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i32, i32, i32, i32) : i32 {
        hopper.wait %filled[%slot_3], %phase_3 : !hopper.barriers<#builtin.int<3>>, i32, i32
        %a_1 = hopper.slot %a_ring[%slot_3] : (!hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>
        %b_1 = hopper.slot %b_ring[%slot_3] : (!hopper.buffer<#builtin.int<3>, bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>
        %more = tile.elementwise "gt"(%iteration, %zero_1) : (i32, i32) -> i1
        hopper.wgmma_fence
        %acc_3 = hopper.wgmma %a_1, %b_1, %acc_2 if %more : (!hopper.view<bf16, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x64 order(0,1) 16b swizzle128">>, !hopper.view<bf16, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x256 order(0,1) 16b swizzle128">>, tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i1) -> tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
        hopper.wgmma_commit
        hopper.wgmma_wait {pending = #builtin.int<1>}
        scf.if %more {
          hopper.arrive %freed[%oldest] {by = "warpgroup"} : !hopper.barriers<#builtin.int<3>>, i32
        }
        %26 = tile.elementwise "add"(%slot_3, %16) : (i32, i32) -> i32
        %27 = tile.elementwise "eq"(%26, %17) : (i32, i32) -> i1
        %next_slot_1 = tile.elementwise "select"(%27, %zero_1, %26) : (i1, i32, i32) -> i32
        %28 = tile.elementwise "xor"(%phase_3, %16) : (i32, i32) -> i32
        %next_phase_1 = tile.elementwise "select"(%27, %28, %phase_3) : (i1, i32, i32) -> i32
        %next_trip = tile.elementwise "add"(%iteration, %16) : (i32, i32) -> i32
        scf.yield %acc_3, %next_slot_1, %next_phase_1, %next_trip, %slot_3 : tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, i32, i32, i32, i32
      }
      %acc_4 = hopper.wgmma_wait {pending = #builtin.int<0>} of %acc_1 : tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">> -> tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      %29 = tile.elementwise "gt"(%iteration_end, %zero_1) : (i32, i32) -> i1
      scf.if %29 {
        hopper.arrive %freed[%oldest_end] {by = "warpgroup"} : !hopper.barriers<#builtin.int<3>>, i32
      }
      %30 = tile.cast %acc_4 : (tensor<128x256xf32, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>) -> tensor<128x256xbf16, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>
      hopper.bulk_wait {pending = #builtin.int<0>, read = true, by = "warpgroup"}
      hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "warpgroup", threads = #builtin.int<128>}
      %c_desc_1 = hopper.slot %c_desc_stage[%zero_1] : (!hopper.buffer<#builtin.int<1>, bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>
      hopper.shared_store "stmatrix" %30, %c_desc_1 : tensor<128x256xbf16, #hopper.layout<"128x256 r[2:(0,1) 2:(8,0) 32:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]">>, !hopper.view<bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>
      hopper.proxy_fence
      hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "warpgroup", threads = #builtin.int<128>}
      hopper.tma_store %c_map[%row_1, %column_1], %c_desc_1 {by = "warpgroup", eviction = "first"} : !hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>, i32, i32, !hopper.view<bf16, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">, #hopper.shared_layout<"128x256 order(0,1) 16b swizzle128">>
      hopper.bulk_commit {by = "warpgroup"}
      scf.yield %slot_end_3, %phase_end_3 : i32, i32
    }
    hopper.bulk_wait {pending = #builtin.int<0>, read = false, by = "warpgroup"}
  }) {label = "mma", first_warp = #builtin.int<4>, warps = #builtin.int<8>, registers = #builtin.int<232>} : () -> ()
}) {sym_name = "matmul_descriptors", arguments = [{name = "a_desc"}, {name = "b_desc"}, {name = "c_desc"}, {name = "K", divisible = #builtin.int<16>}], options = {}, launch = {threads = #builtin.int<384>, registers = #builtin.int<168>, shared = #builtin.int<213040>, cluster = #builtin.int<1>, persistent = true}} : () -> ()
