"""Barriers, fences and what concerns the whole block or cluster.

Spelling matters: an mbarrier arrive with `.release.cluster` compiles to a fence of the whole GPU,
the unqualified form does not. The wait spins inside one asm block, so that ptxas sees no loop that
it might move wgmma registers around.
"""

from __future__ import annotations

from tawa.codegen.wrappers.core import Wrapper, asm, instruction

SHARED_ADDRESS = Wrapper(
    "u32 shared_address(const void* pointer)",
    "return (u32)__cvta_generic_to_shared(pointer);",
    "cvta",
    "pure",
)
BARRIER_INIT = instruction(
    "void barrier_init(u32 barrier, u32 arrivals)",
    "mbarrier.init.shared::cta.b64 [%0], %1;",
    "mbarrier.init",
    "barrier.init",
)
BARRIER_EXPECT = instruction(
    "void barrier_expect(u32 barrier, u32 bytes)",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
    "mbarrier.arrive",
    "barrier.expect",
    memory=True,
)
BARRIER_WAIT = instruction(
    "void barrier_wait(u32 barrier, u32 phase)",
    "{\n.reg .pred done;\nSPIN:\n"
    "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
    "@done bra DONE;\nbra SPIN;\nDONE:\n}",
    "mbarrier.try_wait",
    "barrier.wait",
    memory=True,
)
BARRIER_ARRIVE = instruction(
    "void barrier_arrive(u32 barrier)",
    "mbarrier.arrive.shared::cta.b64 _, [%0];",
    "mbarrier.arrive",
    "barrier.arrive",
    memory=True,
)
BARRIER_ARRIVE_CLUSTER = instruction(
    "void barrier_arrive_cluster(u32 barrier, u32 block)",
    "{\n.reg .b32 remote;\n"
    "mapa.shared::cluster.u32 remote, %0, %1;\n"
    "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}",
    "mbarrier.arrive, mapa",
    "barrier.arrive",
    memory=True,
)
FENCE_BARRIER_INIT = instruction(
    "void fence_barrier_init()",
    "fence.mbarrier_init.release.cluster;",
    "membar / fence, fence.mbarrier_init",
    "fence",
    memory=True,
)
FENCE_PROXY_ASYNC = instruction(
    "void fence_proxy_async()",
    "fence.proxy.async.shared::cta;",
    "membar / fence, fence.proxy.async",
    "fence",
    memory=True,
)
BLOCK_SYNC = Wrapper("void block_sync()", "__syncthreads();", "bar", "sync")
WARP_SYNC = Wrapper("void warp_sync()", "__syncwarp();", "bar.warp.sync", "convergent")
ELECT_ONE = Wrapper(
    "bool elect_one()",
    """\
u32 chosen;
asm volatile("{\\n.reg .pred p;\\nelect.sync _|p, 0xFFFFFFFF;\\nselp.u32 %0, 1, 0, p;\\n}"
  : "=r"(chosen));
return chosen;""",
    "elect.sync",
    "convergent",
)
"""One lane of a warp, always the same. ptxas knows that what it alone does is done by one lane: the
operands of a TMA copy need not be taken lane by lane.
"""


def _cluster_sync(name: str, order: str) -> Wrapper:
    code = f"barrier.cluster.arrive.{order}.aligned;\nbarrier.cluster.wait.acquire.aligned;"
    return instruction(f"void {name}()", code, "barrier.cluster", "sync", memory=True)


CLUSTER_SYNC = _cluster_sync("cluster_sync", "release")
CLUSTER_SYNC_RELAXED = _cluster_sync("cluster_sync_relaxed", "relaxed")
GRID_WAIT = instruction(
    "void grid_wait()", "griddepcontrol.wait;", "griddepcontrol", "sync", memory=True
)
LAUNCH_DEPENDENTS = instruction(
    "void launch_dependents()",
    "griddepcontrol.launch_dependents;",
    "griddepcontrol",
    "hint",
    memory=True,
)
CLUSTER_RANK = Wrapper(
    "int cluster_rank()",
    "u32 rank;\n"
    + asm("mov.u32 %0, %%cluster_ctarank;", '"=r"(rank)', volatile=False)
    + "\nreturn (int)rank;",
    "%cluster_ctarank",
    "pure",
)


def _named(name: str, operation: str, *, of_group: bool = False) -> Wrapper:
    """Return the wrapper of a named barrier's operation, one of several barriers for a group.

    Ids are immediates where they are known: one in a register makes ptxas reserve all sixteen.
    """
    return instruction(
        f"void {name}({'u32 id' if of_group else ''})",
        f"bar.{operation} %0, %1;",
        "bar",
        "sync",
        memory=True,
        template="int threads" if of_group else "int id, int threads",
    )


NAMED_SYNC = _named("named_sync", "sync")
NAMED_ARRIVE = _named("named_arrive", "arrive")
NAMED_SYNC_OF_GROUP = _named("named_sync_of_group", "sync", of_group=True)
NAMED_ARRIVE_OF_GROUP = _named("named_arrive_of_group", "arrive", of_group=True)


def _registers(name: str, direction: str) -> Wrapper:
    """Return the wrapper that changes how many registers a thread of the warpgroup has."""
    return instruction(
        f"void {name}_registers()",
        f"setmaxnreg.{direction}.sync.aligned.u32 %0;",
        "setmaxnreg",
        "registers",
        template="int count",
    )


TAKE_REGISTERS = _registers("take", "inc")
GIVE_REGISTERS = _registers("give", "dec")
