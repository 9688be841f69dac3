"""# 2. Softmax

One program takes one row. `tl.max` and `tl.sum` reduce over the tile; how threads exchange their
parts is decided by the compiler.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def softmax(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, mask=at < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row + at, e / tl.sum(e, 0), mask=at < columns)


x = np.random.default_rng(0).standard_normal((8, 300)).astype(np.float32)
out = np.empty_like(x)
softmax[8,](x, out, 300, 300, BLOCK=512)
wanted = np.exp(x) / np.exp(x).sum(1, keepdims=True)
print("agrees with NumPy:", np.allclose(out, wanted, atol=1e-6))

# %%
# ## What did the compiler do?
#
# The same kernel at every level is text that can be read: `tile` is what the kernel means,
# `hopper` what runs, `cuda` the generated CUDA C++. Here are the operations of the first level.

kernel = softmax.compile(x, out, 300, 300, BLOCK=512, num_warps=4)
print(kernel.asm["tile"])

# %%
# ## One experiment
#
# With 4 warps the row lies over 4 warps, which exchange their maxima through shared memory. With
# one warp they shuffle, and no shared memory is needed.

for warps in (4, 1):
    kernel = softmax.compile(x, out, 300, 300, BLOCK=512, num_warps=warps)
    syncs = kernel.asm["hopper"].count("hopper.named_barrier")
    print(f"{warps} warps: {kernel.launch.shared} bytes of shared memory, {syncs} barriers")

# %%
# ## See it run
#
# A wrong kernel is found here too: the simulator reports races and hangs with the line.

trace = tawa.simulate(softmax, x, out, 300, 300, grid=(2,), BLOCK=512, num_warps=4)
print(f"{trace.end:.0f} ns of the simple machine for two rows")
