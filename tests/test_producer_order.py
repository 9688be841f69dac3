"""A producer with two slots a ring loads in the order in which a pipelined consumer takes."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

import tawa
import tawa.language as tl
from known_failures import tried
from tawa.ir import hopper


@tawa.jit
def pair(q_desc, k_desc, v_desc, o_desc, n, B: tl.constexpr, W: tl.constexpr):
    at = tl.program_id(0) * B
    q = q_desc.load([at, 0])
    acc = tl.zeros((B, W), tl.float32)
    for i in range(n):
        p = tl.dot(q, k_desc.load([i * 64, 0]).T) * 0.25
        acc = tl.dot(p.to(tl.float16), v_desc.load([i * 64, 0]), acc)
    o_desc.store([at, 0], acc.to(tl.float16))


def given(rows, iterations):
    rng = np.random.default_rng(iterations)
    shapes = {"q_desc": rows, "k_desc": 64 * max(1, iterations), "v_desc": 64 * max(1, iterations)}
    arrays = {name: rng.integers(-1, 2, (r, 64)).astype(np.float16) for name, r in shapes.items()}
    arrays["o_desc"] = np.full((rows, 64), 7, np.float16)
    blocks = {"q_desc": [128, 64], "o_desc": [128, 64]}
    described = tawa.TensorDescriptor.from_tensor
    found = {name: described(a, blocks.get(name, [64, 64])) for name, a in arrays.items()}
    return found | {"n": iterations}


def innermost_loads(kernel):
    """Return the loads of the producer's innermost loop, in order."""
    loops = [op for op in kernel.asm.program("hopper").walk() if isinstance(op, scf.ForOp)]
    inner = next(
        op for op in loops if any(isinstance(o, hopper.TmaLoad) for o in op.body.block.ops)
    )
    while deeper := [op for op in inner.body.walk() if isinstance(op, scf.ForOp)]:
        inner = deeper[0]
    loads = [op for op in inner.body.block.ops if isinstance(op, hopper.TmaLoad)]
    return loads


@pytest.mark.parametrize("iterations", range(5))
@pytest.mark.short("0", "2", "4")
def test_the_same_values(iterations):
    tried(pair.fn, given(128 * 3, iterations), (3,), B=128, W=64, depth=2, schedule="coarse")


def test_keys_of_a_trip_come_with_values_of_the_one_before():
    kernel = pair.compile(**given(128, 4), grid=(1,), B=128, W=64, depth=2, schedule="coarse")
    k, v = innermost_loads(kernel)
    assert (k.map.name_hint, v.map.name_hint) == ("k_map", "v_map")
    assert k.offsets[0] is not v.offsets[0]


def test_deep_rings_keep_the_order_of_the_text():
    kernel = pair.compile(**given(128, 4), grid=(1,), B=128, W=64, depth=4, schedule="coarse")
    k, v = innermost_loads(kernel)
    assert k.offsets[0] is v.offsets[0]
