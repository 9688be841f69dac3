"""Programs of barriers: phases and bytes of mbarriers, named barriers, clusters and multicast."""

from __future__ import annotations

import numpy as np

from instructions import BARRIER, FILLED, ONE_BARRIER, Program, copy_out, tensor_map
from tawa.codegen.wrappers import arithmetic, memory, tma
from tawa.codegen.wrappers import barriers as b
from tawa.codegen.wrappers.core import Wrapper

STORE, LOAD = memory.shared_store("u32", 1), memory.shared_load("u32", 1)
GIVEN = np.arange(2048, dtype=np.uint32)


def phases() -> Program:
    """Two warps hand a word to and fro; a wait for the phase before the first returns at once."""
    body = f"""\
const u32 filled = shared + {FILLED}, freed = filled + 8;
if (thread == 0) {{ barrier_init(filled, 32); barrier_init(freed, 32); fence_barrier_init(); }}
block_sync();
u32 phase = 0;
for (u32 step = 0; step < 9; ++step) {{
  u32 word = 100 * step + lane;
  if (thread < 32) {{
    barrier_wait(freed, phase ^ 1);
    shared_store_u32x1(shared + 4 * lane, &word);
    barrier_arrive(filled);
  }} else {{
    barrier_wait(filled, phase);
    shared_load_u32x1(&word, shared + 4 * (31 - lane));
    barrier_arrive(freed);
    ((u32*)result)[32 * step + lane] = word;
  }}
  phase ^= 1;
}}
"""
    steps, lanes = np.mgrid[0:9, 0:32]
    expected = (100 * steps + 31 - lanes).astype(np.uint32)
    return Program(
        "mbarrier phases",
        (b.BARRIER_INIT, b.FENCE_BARRIER_INIT, b.BLOCK_SYNC, b.BARRIER_WAIT, b.BARRIER_ARRIVE,
         STORE, LOAD),
        body,
        GIVEN[:4],
        expected,
        threads=64,
    )  # fmt: skip


def bytes_before_they_are_expected() -> Program:
    """A phase ends when arrivals and bytes are whole; bytes may land before they are expected."""
    body = f"""\
const u32 barrier = shared + {FILLED};
if (thread == 0) {{ barrier_init(barrier, 2); fence_barrier_init(); }}
block_sync();
for (u32 step = 0; step < 4; ++step) {{
  if (thread == 0) {{
    tma_load_1d(shared, &map, barrier, step * 256);
    barrier_expect(barrier, 1024);
    tma_load_1d(shared + 1024, &map, barrier, step * 256 + 1024);
    barrier_expect(barrier, 1024);
  }}
  barrier_wait(barrier, step % 2);
  for (u32 i = thread; i < 512; i += 32) {{
    u32 word;
    shared_load_u32x1(&word, shared + 4 * i);
    ((u32*)result)[512 * step + i] = word;
  }}
  block_sync();
}}
"""
    expected = np.stack(
        [np.concatenate([GIVEN[at : at + 256], GIVEN[at + 1024 : at + 1280]]) for at in
         range(0, 1024, 256)]
    )  # fmt: skip
    return Program(
        "mbarrier bytes",
        (*BARRIER, tma.tma_load(1), LOAD),
        body,
        GIVEN,
        expected,
        maps=(tensor_map("map", "given", "u32", (256,)),),
    )


def named() -> Program:
    """bar.arrive announces without waiting, bar.sync waits for all threads of the barrier."""
    body = """\
u32 word = 7 * thread;
if (thread < 64) {
  shared_store_u32x1(shared + 4 * thread, &word);
  named_arrive<3, 128>();
  named_sync<4, 64>();
} else {
  named_sync<3, 128>();
  shared_load_u32x1(&word, shared + 4 * (127 - thread));
}
((u32*)result)[thread] = word;
"""
    threads = np.arange(128)
    expected = np.where(threads < 64, 7 * threads, 7 * (127 - threads)).astype(np.uint32)
    return Program(
        "named barriers",
        (b.NAMED_SYNC, b.NAMED_ARRIVE, STORE, LOAD),
        body,
        GIVEN[:4],
        expected,
        threads=128,
    )


def remote_arrives(relaxed: bool) -> Program:
    """Every block of a cluster arrives at each block's barrier, at the same address there.

    What fence.mbarrier_init releases to the cluster needs no other release.
    """
    body = f"""\
const u32 barrier = shared + {FILLED};
if (thread == 0) {{ barrier_init(barrier, 2); fence_barrier_init(); }}
cluster_sync{"_relaxed" * relaxed}();
for (u32 step = 0; step < 3; ++step) {{
  if (lane < 2) barrier_arrive_cluster(barrier, lane);
  barrier_wait(barrier, step % 2);
  cluster_sync();
}}
((u32*)result)[32 * blockIdx.x + lane] = 100 * cluster_rank() + lane;
cluster_sync();
"""
    ranks, lanes = np.mgrid[0:2, 0:32]
    return Program(
        f"remote arrives{' relaxed' * relaxed}",
        (b.BARRIER_INIT, b.FENCE_BARRIER_INIT, b.CLUSTER_SYNC, b.CLUSTER_SYNC_RELAXED,
         b.BARRIER_WAIT, b.BARRIER_ARRIVE_CLUSTER, b.CLUSTER_RANK),
        body,
        GIVEN[:4],
        (100 * ranks + lanes).astype(np.uint32),
        cluster=2,
    )  # fmt: skip


def multicast(blocks: int, rank: int = 1) -> Program:
    """A copy to the blocks of the mask, at the same address, completing on each one's barrier."""
    at = "256 * cluster_rank()" if rank == 1 else "0, cluster_rank()"
    body = f"""\
const u32 barrier = shared + {FILLED};
if (thread == 0) {{ barrier_init(barrier, 1); fence_barrier_init(); }}
for (u32 i = thread; i < 512; i += 32) {{
  u32 word = 9;
  shared_store_u32x1(shared + 4 * i, &word);
}}
cluster_sync();
const bool receives = {blocks} >> cluster_rank() & 1;
if (thread == 0 && receives) barrier_expect(barrier, {1024 * blocks.bit_count()});
if (thread == 0 && receives) {{
  tma_load_{rank}d_multicast(shared + 1024 * cluster_rank(), &map, barrier, {at}, {blocks});
}}
if (receives) barrier_wait(barrier, 0);
cluster_sync();
""" + copy_out(0, 2048, "2048 * blockIdx.x")
    expected = np.full((2, 512), 9, np.uint32)
    for to in range(2):
        for source in range(2):
            if blocks >> to & 1 and blocks >> source & 1:
                expected[to, 256 * source : 256 * source + 256] = GIVEN[256 * source :][:256]
    return Program(
        f"multicast of {rank} dimensions to blocks {blocks:02b}",
        (b.BARRIER_INIT, b.FENCE_BARRIER_INIT, b.CLUSTER_SYNC, b.BARRIER_WAIT, b.BARRIER_EXPECT,
         b.CLUSTER_RANK, tma.tma_load(rank, multicast=True), STORE, LOAD),
        body,
        GIVEN if rank == 1 else GIVEN.reshape(-1, 256),
        expected,
        cluster=2,
        maps=(tensor_map("map", "given", "u32", (1, 256)[2 - rank :]),),
    )  # fmt: skip


def registers() -> Program:
    """A warpgroup gives registers back, two others take all of them: 24 + 2 x 240 = 3 x 168."""
    body = """\
if (thread < 128) give_registers<24>();
else take_registers<240>();
((u32*)result)[thread] = thread;
"""
    return Program(
        "setmaxnreg",
        (b.GIVE_REGISTERS, b.TAKE_REGISTERS),
        body,
        GIVEN[:4],
        np.arange(384, dtype=np.uint32),
        threads=384,
    )


def fetch() -> Program:
    """A warp converges; what its lanes did before is done for all."""
    warp_sync: tuple[Wrapper, ...] = (b.WARP_SYNC, STORE, LOAD)
    body = """\
u32 word = lane;
shared_store_u32x1(shared + 4 * lane, &word);
warp_sync();
shared_load_u32x1(&word, shared + 4 * (31 - lane));
((u32*)result)[lane] = word;
"""
    reversed_lanes = np.arange(31, -1, -1, dtype=np.uint32)
    return Program("warp sync", warp_sync, body, GIVEN[:4], reversed_lanes)


def elect() -> Program:
    """One lane of a warp is chosen, each time the same."""
    body = """\
u32 word = 99;
if (lane == 0) shared_store_u32x1(shared, &word);
warp_sync();
const bool chosen = elect_one(), again = elect_one();
word = lane;
if (chosen) shared_store_u32x1(shared, &word);
warp_sync();
shared_load_u32x1(&word, shared);
u32* out = (u32*)result + 2 * lane;
out[0] = any_lane(chosen);
out[1] = (word == lane) == chosen && again == chosen;
"""
    wrappers: tuple[Wrapper, ...] = (b.ELECT_ONE, b.WARP_SYNC, arithmetic.ANY_LANE, STORE, LOAD)
    return Program("elect", wrappers, body, GIVEN[:4], np.ones((32, 2), np.uint32))


def kernels_before() -> Program:
    """A kernel waits for those before it, however it is launched, and lets the next one begin."""
    body = """\
grid_wait();
launch_dependents();
((u32*)result)[thread] = ((const u32*)given)[thread];
"""
    waits = (b.GRID_WAIT, b.LAUNCH_DEPENDENTS)
    return Program("griddepcontrol", waits, body, GIVEN[:64], GIVEN[:64], threads=64)


PROGRAMS = [
    phases(), bytes_before_they_are_expected(), named(), remote_arrives(False),
    remote_arrives(True), multicast(3),
    multicast(2), multicast(3, 2), registers(), fetch(), elect(), kernels_before(),
]  # fmt: skip
assert ONE_BARRIER
