"""# 1. Vector add

A *tile kernel* is a program for one block of threads. It says what happens to a whole tile; which
thread does what is the compiler's business. If you know Triton, you know the language: the names
and their meaning are those of `triton.language`.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # this program's elements
    inside = at < n  # the last program may reach past the end
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, x + y, mask=inside)


# %%
# A launch names a grid: how many programs run. Where the data lives decides where it runs. Arrays
# of torch, CuPy or JAX on a GPU run there; NumPy arrays run in the simulator, on any machine.

n = 1000
x, y = (np.random.default_rng(seed).standard_normal(n).astype(np.float32) for seed in (1, 2))
out = np.empty_like(x)
add[tawa.cdiv(n, 256),](x, y, out, n, BLOCK=256)
print("largest error", abs(out - (x + y)).max())

# %%
# ## What did the compiler do?
#
# `compile` needs no data: `tawa.array` stands for an array. The report says what was decided.
# There is no product to feed, so nothing is specialized: this is an ordinary kernel, as fast as
# memory allows.

kernel = add.compile(*(tawa.array((n,), "f32") for _ in range(3)), n, BLOCK=1024, num_warps=8)
print(kernel.plan)

# %%
# ## See it run
#
# The simulator gives a timeline of a simple machine. It shows what overlaps and what waits, not
# the speed of a GPU. With `timeline="add.json"` it is written for ui.perfetto.dev.

trace = tawa.simulate(add, x, y, out, n, grid=(1,), BLOCK=256)
print(sorted({span.name for span in trace.spans}))

# %%
# ## One experiment
#
# A decision of the planner can be *pinned*. A pin that cannot be honoured is an error with the
# reason, never silently dropped. Here we ask for two roles where there is nothing to divide.

try:
    add.compile(*(tawa.array((n,), "f32") for _ in range(3)), n, BLOCK=1024, specialize=True)
except tawa.TawaError as error:
    print(error)
