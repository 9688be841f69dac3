"""# 3. A matrix product, every decision explained

This is the whole kernel: no warps, no barriers, no stages.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


# %%
# A `TensorDescriptor` says how an array lies in memory and which tile a kernel moves at once. On
# the GPU it is a tensor map, and the tiles are moved by the Tensor Memory Accelerator (TMA).

M, N, K = 256, 256, 512
draw = np.random.default_rng(0).standard_normal
a, b = draw((M, K)).astype(np.float16), draw((K, N)).astype(np.float16)
c = np.empty((M, N), np.float16)
desc = tawa.TensorDescriptor.from_tensor
arguments = desc(a, [128, 64]), desc(b, [64, 256]), desc(c, [128, 256]), K
tiles = {"BM": 128, "BN": 256, "BK": 64}
matmul[2, 1](*arguments, **tiles)
error = abs(c - a.astype(np.float64) @ b).max()
print("error below 0.05:", error < 0.05)

# %%
# ## What did the compiler do?

kernel = matmul.compile(*arguments, **tiles)
print(kernel.plan)

# %%
# Line by line:
#
# - `role load`: one warpgroup only moves tiles. It needs few registers and gives the rest away.
# - `role mma`: two warpgroups compute. Together they share one 128 x 256 tile (*cooperative*),
#   which needs 128 registers a thread for the sums: that is what the registers are for.
# - `aref`: tiles of `a` and `b` travel together through a ring of 3 slots. `filled` tells the
#   consumer that a slot has its tiles, `freed` tells the producer that they have been read.
# - `loop`: one product is waited for before its slot is freed (`mma_depth=1`).
# - `store`: the result leaves by TMA, from shared memory, under the next tile's first loads.
# - `persistent`: a block walks over tiles; its ring never drains between them.
#
# The proof looks at the final program and says that it cannot hang or race, for any K:

print(kernel.proof.ok)

# %%
# ## See it run
#
# Before specialization every warp copies, waits, multiplies, one after the other. After it the
# tensor cores hardly ever wait.

for specialize in (False, True):
    trace = tawa.simulate(matmul, *arguments, grid=(1, 1), **tiles, specialize=specialize)
    busy = sum(s.end - s.start for s in trace.spans if s.engine == "tensor cores")
    print(f"specialize={specialize}: tensor cores work {busy / trace.end:.0%} of the time")

# %%
# ## One experiment: the depth of the ring
#
# With one slot, load and product take turns. Two overlap them; more hide the latency of memory.

for depth in (1, 2, 3):
    trace = tawa.simulate(matmul, *arguments, grid=(1, 1), **tiles, depth={"a": depth})
    print(f"depth {depth}: {trace.end / 1000:.1f} us of the simple machine")

# %%
# Five slots do not fit into shared memory, and the compiler says so before anything runs:

try:
    matmul.compile(*arguments, **tiles, depth={"a": 5})
except tawa.TawaError as error:
    print(error)
