"""Where shared memory is short, operands that are read one after the other lie in one buffer."""

import numpy as np

import tawa
import tawa.language as tl
from tawa.ir import hopper, parse
from tawa.ir.walk import all_of

CUBINS = True


@tawa.jit
def chained(q, k, v, out, n, B: tl.constexpr):
    """Both operands of each iteration are stored by threads: tiles of 64 KiB each."""
    r, c = tl.arange(0, B), tl.arange(0, B)
    x = tl.load(q + r[:, None] * B + c[None, :])
    acc = tl.zeros((B, B), tl.float32)
    for s in range(0, n, B):
        y = tl.load(k + (s + c[None, :]) * B + r[:, None], mask=s + c[None, :] < n, other=0.0)
        p = tl.dot(x, y)
        z = tl.load(v + (s + r[:, None]) * B + c[None, :], mask=s + r[:, None] < n, other=0.0)
        acc += tl.dot(p, z)
    tl.store(out + r[:, None] * B + c[None, :], acc)


def test_operands_that_are_read_one_after_the_other_share() -> None:
    draw = np.random.default_rng(0)
    q, k, v = (draw.integers(-1, 2, shape).astype(np.float32) for shape in ((128, 128),) * 3)
    k, v = np.concatenate([k, k[::-1]]), np.concatenate([v, v.T])
    out = np.zeros((128, 128), np.float32)
    compiled = chained[1,](q, k, v, out, 256, B=128, num_warps=8)
    assert np.array_equal(out, q @ k.T @ v)
    assert compiled.plan.sharing
    buffers = all_of(parse(compiled.asm["hopper"]), hopper.Shared)
    labels = [buffer.label.data for buffer in buffers]
    assert sum("operand" in label for label in labels) == 1
