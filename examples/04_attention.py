"""Attention with options, run on the GPU where there is one and in the simulator where not.

python examples/04_attention.py

A prompt of two sequences of different lengths is attended at once, packed; then one more query a
sequence reads its keys from pages, as a server does. Both with a sliding window and a soft cap.
"""

import numpy as np

import tawa.kernels.attention as kernels

WINDOW, CAP = 48, 20.0
HEADS, KV_HEADS, DIM, PAGE = 4, 2, 64, 64


def expected(q, k, v):
    """Attention of one sequence, [heads, length, dim], in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, HEADS // KV_HEADS, 0) for x in (k, v))
    scores = CAP * np.tanh(q @ k.swapaxes(1, 2) * DIM**-0.5 / CAP)
    rows, columns = np.indices(scores.shape[1:])
    away = rows + k.shape[1] - q.shape[1] - columns
    weights = np.exp(scores) * ((away >= 0) & (away < WINDOW))
    return weights @ v / weights.sum(-1, keepdims=True)


def error(found, want):
    return float(np.linalg.norm(found.astype(np.float64) - want) / np.linalg.norm(want))


def prompt(random, lengths, put):
    """Attend to packed sequences; return the largest error of one."""
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    q, k, v = (
        random.standard_normal((1, heads, starts[-1], DIM)).astype(np.float16)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    out = kernels.attention(
        put(q), put(k), put(v), causal=True, window=WINDOW, softcap=CAP, cu_seqlens=put(starts)
    )
    out = np.asarray(out.cpu() if hasattr(out, "cpu") else out)
    parts = [slice(*starts[i : i + 2]) for i in range(len(lengths))]
    return max(
        error(out[0, :, at], expected(q[0, :, at], k[0, :, at], v[0, :, at])) for at in parts
    )


def next_token(random, lengths, put):
    """Attend to pages of keys with one query a sequence; return the largest error of one."""
    pages = -(-max(lengths) // PAGE)
    table = random.permutation(len(lengths) * pages).reshape(len(lengths), pages).astype(np.int32)
    held = (len(lengths) * pages, KV_HEADS, PAGE, DIM)
    k, v = (random.standard_normal(held).astype(np.float16) for _ in range(2))
    q = random.standard_normal((len(lengths), HEADS, 1, DIM)).astype(np.float16)
    out = kernels.attention(
        put(q), put(k), put(v), causal=True, window=WINDOW, softcap=CAP,
        block_table=put(table), lengths=put(np.array(lengths, np.int32)),
    )  # fmt: skip
    out = np.asarray(out.cpu() if hasattr(out, "cpu") else out)
    errors = []
    for index, length in enumerate(lengths):
        keys, values = (
            x[table[index]].swapaxes(0, 1).reshape(KV_HEADS, -1, DIM)[:, :length] for x in (k, v)
        )
        errors.append(error(out[index], expected(q[index], keys, values)))
    return max(errors)


def main():
    try:
        import torch

        here = torch.cuda.is_available()
    except ImportError:
        here = False

    def put(array):
        return torch.from_numpy(array).cuda() if here else array

    random = np.random.default_rng(0)
    where = "on the GPU" if here else "in the simulator"
    for name, part in (("packed prompt", prompt), ("next token from pages", next_token)):
        found = part(random, (150, 70), put)
        print(f"{name}, {where}: relative error {found:.1e}")
        assert found < 2e-3


if __name__ == "__main__":
    main()
