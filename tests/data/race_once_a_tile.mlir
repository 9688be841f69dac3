"tile.kernel"() ({
^bb0(%ptr: !tile.ptr<bf16>, %K: i32, %NT: i32):
  %ring = hopper.shared "a" {offset = #builtin.int<0>} : !hopper.buffer<#builtin.int<2>, bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>
  %filled = hopper.barriers "filled" {offset = #builtin.int<16384>, arrivals = #builtin.int<128>} : !hopper.barriers<#builtin.int<2>>
  %freed = hopper.barriers "freed" {offset = #builtin.int<16400>, arrivals = #builtin.int<1>} : !hopper.barriers<#builtin.int<2>>
  hopper.init_barriers %filled : !hopper.barriers<#builtin.int<2>>
  hopper.init_barriers %freed : !hopper.barriers<#builtin.int<2>>
  hopper.fence_barrier_init
  hopper.block_sync
  
  "hopper.role"() ({
    %c0 = tile.constant {value = #builtin.int<0>} : i32
%c1 = tile.constant {value = #builtin.int<1>} : i32
%c3 = tile.constant {value = #builtin.int<3>} : i32
%c5 = tile.constant {value = #builtin.int<5>} : i32
%c2 = tile.constant {value = #builtin.int<2>} : i32
    %where = tile.splat %ptr : (!tile.ptr<bf16>) -> tensor<64x64x!tile.ptr<bf16>, #hopper.layout<"64x64 r[8:(0,1) 4:(16,0)] l[8:(0,8) 4:(1,0)] w[4:(4,0)]">>
    %se, %pe = scf.for %t = %c0 to %NT step %c1 iter_args(%slot = %c0, %phase = %c1) -> (i32, i32) : i32 {
      %si, %pi = scf.for %k = %c0 to %K step %c1 iter_args(%s = %slot, %p = %phase) -> (i32, i32) : i32 {
        %is0 = tile.elementwise "eq"(%k, %c0) : (i32, i32) -> i1
        %s1, %p1 = scf.if %is0 -> (i32, i32) { 
 hopper.wait %freed[%s], %p : !hopper.barriers<#builtin.int<2>>, i32, i32
 %v = hopper.slot %ring[%s] : (!hopper.buffer<#builtin.int<2>, bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>
 "hopper.copy_async"(%where, %v) <{operandSegmentSizes = array<i32: 1, 0, 1>}> : (tensor<64x64x!tile.ptr<bf16>, #hopper.layout<"64x64 r[8:(0,1) 4:(16,0)] l[8:(0,8) 4:(1,0)] w[4:(4,0)]">>, !hopper.view<bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>) -> ()
 hopper.copy_async_arrive %filled[%s] : !hopper.barriers<#builtin.int<2>>, i32 
 %n = tile.elementwise "add"(%s, %c1) : (i32, i32) -> i32
 %w = tile.elementwise "eq"(%n, %c2) : (i32, i32) -> i1
 %ns = tile.elementwise "select"(%w, %c0, %n) : (i1, i32, i32) -> i32
 %px = tile.elementwise "xor"(%p, %c1) : (i32, i32) -> i32
 %np = tile.elementwise "select"(%w, %px, %p) : (i1, i32, i32) -> i32
 scf.yield %ns, %np : i32, i32
        } else {
          scf.yield %s, %p : i32, i32
        }
         
 %is5 = tile.elementwise "eq"(%k, %c5) : (i32, i32) -> i1
 scf.if %is5 {
   hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "roles", threads = #builtin.int<256>}
 }
        scf.yield %s1, %p1 : i32, i32
      }
      scf.yield %si, %pi : i32, i32
    }
  }) {label = "load", first_warp = #builtin.int<0>, warps = #builtin.int<4>, registers = #builtin.int<24>} : () -> ()
  
  "hopper.role"() ({
    %c0 = tile.constant {value = #builtin.int<0>} : i32
%c1 = tile.constant {value = #builtin.int<1>} : i32
%c3 = tile.constant {value = #builtin.int<3>} : i32
%c5 = tile.constant {value = #builtin.int<5>} : i32
%c2 = tile.constant {value = #builtin.int<2>} : i32
    %where = tile.splat %ptr : (!tile.ptr<bf16>) -> tensor<64x64x!tile.ptr<bf16>, #hopper.layout<"64x64 r[8:(0,1) 4:(16,0)] l[8:(0,8) 4:(1,0)] w[4:(4,0)]">>
    %se, %pe = scf.for %t = %c0 to %NT step %c1 iter_args(%slot = %c0, %phase = %c0) -> (i32, i32) : i32 {
      %si, %pi = scf.for %k = %c0 to %K step %c1 iter_args(%s = %slot, %p = %phase) -> (i32, i32) : i32 {
        %is0 = tile.elementwise "eq"(%k, %c0) : (i32, i32) -> i1
        %s1, %p1 = scf.if %is0 -> (i32, i32) { 
 hopper.wait %filled[%s], %p : !hopper.barriers<#builtin.int<2>>, i32, i32
 hopper.proxy_fence
 
 %v1 = hopper.slot %ring[%s] : (!hopper.buffer<#builtin.int<2>, bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>
 %a1 = tile.constant {value = #builtin.int<0>} : tensor<64x64xf32, #hopper.layout<"64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0)]">>
 hopper.wgmma_fence
 %b1 = hopper.wgmma %v1, %v1, %a1 : (!hopper.view<bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>, !hopper.view<bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>, tensor<64x64xf32, #hopper.layout<"64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0)]">>) -> tensor<64x64xf32, #hopper.layout<"64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0)]">>
 hopper.wgmma_commit
 hopper.wgmma_wait {pending = #builtin.int<0>}
 hopper.arrive %freed[%s] {by = "warpgroup"} : !hopper.barriers<#builtin.int<2>>, i32 
 %n = tile.elementwise "add"(%s, %c1) : (i32, i32) -> i32
 %w = tile.elementwise "eq"(%n, %c2) : (i32, i32) -> i1
 %ns = tile.elementwise "select"(%w, %c0, %n) : (i1, i32, i32) -> i32
 %px = tile.elementwise "xor"(%p, %c1) : (i32, i32) -> i32
 %np = tile.elementwise "select"(%w, %px, %p) : (i1, i32, i32) -> i32
 scf.yield %ns, %np : i32, i32
        } else {
          scf.yield %s, %p : i32, i32
        }
        
 %is3 = tile.elementwise "eq"(%k, %c3) : (i32, i32) -> i1
 scf.if %is3 { 
 %v2 = hopper.slot %ring[%slot] : (!hopper.buffer<#builtin.int<2>, bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>, i32) -> !hopper.view<bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>
 %a2 = tile.constant {value = #builtin.int<0>} : tensor<64x64xf32, #hopper.layout<"64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0)]">>
 hopper.wgmma_fence
 %b2 = hopper.wgmma %v2, %v2, %a2 : (!hopper.view<bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>, !hopper.view<bf16, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">, #hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">>, tensor<64x64xf32, #hopper.layout<"64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0)]">>) -> tensor<64x64xf32, #hopper.layout<"64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0)]">>
 hopper.wgmma_commit
 hopper.wgmma_wait {pending = #builtin.int<0>}
 } 
 %is5 = tile.elementwise "eq"(%k, %c5) : (i32, i32) -> i1
 scf.if %is5 {
   hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "roles", threads = #builtin.int<256>}
 }
        scf.yield %s1, %p1 : i32, i32
      }
      scf.yield %si, %pi : i32, i32
    }
  }) {label = "mma", first_warp = #builtin.int<4>, warps = #builtin.int<4>, registers = #builtin.int<24>} : () -> ()
}) {sym_name = "once", arguments = [{name = "ptr"}, {name = "K"}, {name = "NT"}], options = {}, launch = {threads = #builtin.int<256>, registers = #builtin.int<248>, shared = #builtin.int<16416>, cluster = #builtin.int<1>}} : () -> ()
