"""LLVM IR of the function around a program: a range of lanes one by one, or a kernel of threads."""

from __future__ import annotations

_CPU = """define void @kernel({signature}) nounwind {{
entry:
  %some = icmp slt i64 %first, %end
  br i1 %some, label %loop, label %exit
loop:
  %lane = phi i64 [ %first, %entry ], [ %next, %loop ]
  {call}
  %next = add i64 %lane, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""
# A lane's threads are neighbours in a warp.
_GPU = """declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
define ptx_kernel void @kernel({signature}) nounwind {{
entry:
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %threads = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %thread64 = zext i32 %thread to i64
  %block64 = zext i32 %block to i64
  %threads64 = zext i32 %threads to i64
  %before = mul i64 %block64, %threads64
  %within = add i64 %before, %thread64
  %number = udiv i64 %within, {threads}
  %lane = add i64 %number, %first
  %inside = icmp slt i64 %lane, %end
  br i1 %inside, label %work, label %exit
work:
  {call}
  br label %exit
exit:
  ret void
}}
"""
# A lane that paused goes on at once.
_CPU_AGAIN = _CPU.replace("[ %next, %loop ]", "[ %lane, %loop ], [ %next, %done ]").replace(
    "  %next",
    """  %place = getelementptr i32, ptr %buffer.paused, i64 %lane
  %paused = load i32, ptr %place
  %again = icmp ne i32 %paused, 0
  br i1 %again, label %loop, label %done
done:
  %next""",
)
# A block has lanes of its own, from %start on, and sorts them by the block of the program that they
# run next: each counts those that come before it. So a warp's lanes go the same way, and those that
# are at their end leave whole warps idle.
_GPU_AGAIN = """declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier0()
declare i32 @llvm.nvvm.barrier0.or(i32)
@keys = internal addrspace(3) global [{group} x i32] undef
@order = internal addrspace(3) global [{group} x i32] undef
define ptx_kernel void @kernel({signature}) nounwind {{
entry:
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %slot = udiv i32 %thread, {threads}
  %key.slot = getelementptr i32, ptr addrspace(3) @keys, i32 %slot
  %order.slot = getelementptr i32, ptr addrspace(3) @order, i32 %slot
  %block64 = zext i32 %block to i64
  %before = mul i64 %block64, {last}
  %start = add i64 %before, %first
  %slot64 = zext i32 %slot to i64
  %own = add i64 %start, %slot64
  %inside = icmp slt i64 %own, %end
  br label %turn
turn:
  %at = phi i32 [ %slot, %entry ], [ %at.next, %sorted ]
  %runs = phi i1 [ %inside, %entry ], [ %runs.next, %sorted ]
  %at64 = zext i32 %at to i64
  %lane = add i64 %start, %at64
  br i1 %runs, label %work, label %worked
work:
  {call}
  %place = getelementptr i32, ptr %buffer.paused, i64 %lane
  %paused = load i32, ptr %place
  br label %worked
worked:
  %following = phi i32 [ %paused, %work ], [ 0, %turn ]
  %more = icmp ne i32 %following, 0
  %more32 = zext i1 %more to i32
  %key = sub i32 %following, 1
  store volatile i32 %key, ptr addrspace(3) %key.slot
  %any = call i32 @llvm.nvvm.barrier0.or(i32 %more32)
  %on = icmp ne i32 %any, 0
  br i1 %on, label %count, label %exit
count:
  %k = phi i32 [ 0, %worked ], [ %k.next, %count ]
  %rank = phi i32 [ 0, %worked ], [ %rank.next, %count ]
  %key.k = getelementptr i32, ptr addrspace(3) @keys, i32 %k
  %other = load volatile i32, ptr addrspace(3) %key.k
  %less = icmp ult i32 %other, %key
  %same = icmp eq i32 %other, %key
  %earlier = icmp ult i32 %k, %slot
  %tied = and i1 %same, %earlier
  %first.k = or i1 %less, %tied
  %one = zext i1 %first.k to i32
  %rank.next = add i32 %rank, %one
  %k.next = add i32 %k, 1
  %counted = icmp eq i32 %k.next, {last}
  br i1 %counted, label %sorted, label %count
sorted:
  %order.rank = getelementptr i32, ptr addrspace(3) @order, i32 %rank.next
  %flag = mul i32 %more32, {group}
  %packed = add i32 %at, %flag
  store volatile i32 %packed, ptr addrspace(3) %order.rank
  call void @llvm.nvvm.barrier0()
  %mine = load volatile i32, ptr addrspace(3) %order.slot
  %runs.next = icmp uge i32 %mine, {group}
  %at.next = urem i32 %mine, {group}
  br label %turn
exit:
  ret void
}}
"""

WRAPPERS = {
    (False, False): _CPU,
    (False, True): _CPU_AGAIN,
    (True, False): _GPU,
    (True, True): _GPU_AGAIN,
}
"""By whether a GPU runs them, and whether lanes pause."""
