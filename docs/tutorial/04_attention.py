"""# 4. Attention

Two products with a softmax between them. While the softmax of one tile of keys runs on ordinary
units, the tensor cores should already work at the next product.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def attention(q_desc, k_desc, v_desc, o_desc, length, scale, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    out = tl.zeros([BM, q.shape[1]], tl.float32)
    for start in range(0, length, BN):
        k = k_desc.load([start, 0])
        scores = tl.dot(q, k.T) * scale
        above = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - above[:, None])
        rescale = tl.exp2(top - above)
        total = total * rescale + tl.sum(weights, 1)
        v = v_desc.load([start, 0])
        out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])
        top = above
    o_desc.store([row, 0], (out / total[:, None]).to(o_desc.dtype))


L, D = 512, 128
draw = np.random.default_rng(0).standard_normal
q, k, v = (draw((L, D)).astype(np.float16) for _ in range(3))
o = np.empty_like(q)
desc = tawa.TensorDescriptor.from_tensor
scale = float(np.log2(np.e) / np.sqrt(D))  # exponentials in base two
arguments = [desc(x, [128, D]) for x in (q, k, v, o)]
attention[L // 128,](*arguments, L, scale, BM=128, BN=128)
scores = q.astype(np.float64) @ k.T / np.sqrt(D)
weights = np.exp(scores - scores.max(1, keepdims=True))
error = abs(o - weights @ v / weights.sum(1, keepdims=True)).max()
print("error below 0.001:", error < 0.001)

# %%
# ## What did the compiler do?

kernel = attention.compile(*arguments, L, scale, BM=128, BN=128)
print(kernel.plan)

# %%
# - `schedule=coarse`: the loop is pipelined by products. The product of the next scores is issued
#   before the softmax of these, so the two overlap inside a warpgroup.
# - `arrangement=pingpong`: the two consumer warpgroups have 64 rows each and take turns at the
#   tensor cores, so that one computes its softmax while the other multiplies.
# - `q`, `k` and `v` have rings of their own: each is freed when the product that reads it is
#   done. `q` has two slots, so that the next tile's queries come while this one ends
#   (`persistent`).
#
# ## One experiment: which overlap is worth what?

for pins in (
    {"specialize": False},
    {"schedule": "fine", "arrangement": "cooperative"},
    {"schedule": "coarse", "arrangement": "cooperative"},
    {"schedule": "coarse", "arrangement": "pingpong"},
):
    trace = tawa.simulate(attention, *arguments, L, scale, grid=(1,), BM=128, BN=128, **pins)
    print(f"{pins}: {trace.end / 1000:.1f} us of the simple machine")

# %%
# The library's kernels are written in the same language: `tawa.kernels.attention.attention(q, k,
# v)` takes batches, heads, masks, windows, caches of keys, and chooses tiles by measurement.
