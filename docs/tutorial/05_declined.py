"""# 5. A kernel that is declined, and why

The order of the program always wins. Where specialization would change it, the compiler keeps the
order and says so.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def chain(x_ptr, w_ptr, steps, N: tl.constexpr):
    """x becomes x @ w[0] @ w[1] ..., in place."""
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    for step in range(steps):
        x = tl.load(x_ptr + at)
        w = tl.load(w_ptr + step * N * N + at)
        tl.store(x_ptr + at, tl.dot(x, w).to(tl.float16))


x, w = tawa.array((64, 64), "f16"), tawa.array((8, 64, 64), "f16")
kernel = chain.compile(x, w, 8, N=64)
for item in kernel.declined + kernel.plan.declined:
    print(f"{item.feature}: {item.reason}")

# %%
# Each step reads what the step before it stored. A producer that ran ahead would read the old
# `x`. So only `w` gets a ring:

print([aref.label for aref in kernel.plan.arefs])

# %%
# `w` and `x` are different arguments, but a caller might pass overlapping arrays. No compiler can
# know; so the launch asks. Where the *guard* fails, the ordinary kernel runs.

for guard in kernel.guards:
    print(f"{guard.condition}: {guard.reason}")

# %%
# ## The same work, said better
#
# The value need not travel through memory: keep it in registers. Now nothing is declined.


@tawa.jit
def chain_in_registers(x_ptr, w_ptr, out_ptr, steps, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    x = tl.load(x_ptr + at)
    for step in range(steps):
        w = tl.load(w_ptr + step * N * N + at)
        x = tl.dot(x, w).to(tl.float16)
    tl.store(out_ptr + at, x)


kernel = chain_in_registers.compile(x, w, x, 8, N=64)
print([f"{item.feature}: {item.reason}" for item in kernel.declined + kernel.plan.declined])

# %%
# ## One experiment
#
# Both give the same result, with and without specialization:

draw = np.random.default_rng(0).standard_normal
start, weights = draw((64, 64)).astype(np.float16), (draw((4, 64, 64)) / 8).astype(np.float16)
results = []
for specialize in (False, True):
    in_place, out = start.copy(), np.empty_like(start)
    chain[1,](in_place, weights, 4, N=64, specialize=specialize)
    chain_in_registers[1,](start, weights, out, 4, N=64, specialize=specialize)
    results += [in_place, out]
print(all(np.array_equal(results[0], each) for each in results))
