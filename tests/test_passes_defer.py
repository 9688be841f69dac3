"""Row sums whose cross-lane part leaves the loop: the same values, no shuffle for them inside."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

import tawa.language as tl
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, ScalarArg
from tawa.ir import tile, verify
from tawa.ir.types import shape_of
from tawa.passes import pipeline
from tawa.passes.reassociate import defer_sums
from tawa.plan.plan import Plan
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.tile import run_tile
from tawa.target import H200


def weighted(x_desc, y_desc, o_desc, n, FORM: tl.constexpr):
    x = x_desc.load([0, 0])
    total = tl.full((16,), 3.0, tl.float32)
    other = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, 16), tl.float32)
    for j in range(0, n, 16):
        y = y_desc.load([j, 0])
        s = tl.dot(x, y)
        if FORM == "scaled":
            total = total * tl.max(s, 1) + tl.sum(s, 1)
        elif FORM == "plain":
            total = tl.sum(s, 1) + total
        elif FORM == "read":
            total = total + tl.sum(s, 1)
            other = other + total
        elif FORM == "both":
            total = total * 2.0 + tl.sum(s, 1)
            other = other + tl.sum(s * s, 1)
        acc = acc + s
    o_desc.store([0, 0], (acc + total[:, None] + other[:, None]).to(tl.float16))


def kernel_of(form: str) -> tile.Kernel:
    signature = {name: DescriptorArg("f16", (16, 16)) for name in ("x_desc", "y_desc", "o_desc")}
    signature |= {"n": ScalarArg("i32"), "FORM": ConstantArg(form)}
    kernel = build(weighted, signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    return kernel


def run(kernel: tile.Kernel, iterations: int) -> np.ndarray:
    rng = np.random.default_rng(iterations)
    arguments: dict[str, object] = {"n": 16 * iterations}
    for name in ("x_desc", "y_desc", "o_desc"):
        base = rng.integers(-1, 2, (64, 64)).astype(np.float16)
        arguments[name] = HostDescriptor(base, (64, 64), (64, 1), (16, 16))
    run_tile(kernel, (1, 1, 1), arguments)
    return arguments["o_desc"].base


def row_sums_in_loops(kernel: tile.Kernel) -> int:
    """Sums over all columns that stand in a loop."""
    loops = [op for op in kernel.walk() if isinstance(op, scf.ForOp)]
    sums = [op for loop in loops for op in loop.walk() if isinstance(op, tile.Reduce)]
    return sum(
        shape_of(op.inputs[0].type) == (16, 16)
        and any(getattr(i, "function", None) and i.function.data == "add" for i in op.body.walk())
        for op in sums
    )


@pytest.mark.parametrize(("form", "left"), [("scaled", 0), ("plain", 0), ("both", 0), ("read", 1)])
def test_sums_leave_the_loop_and_stay_the_same(form: str, left: int) -> None:
    changed = kernel_of(form)
    defer_sums(changed, Plan(), H200)
    verify(changed)
    assert row_sums_in_loops(changed) == left
    for iterations in range(4):
        # Small integers: every order of sums is exact.
        assert np.array_equal(run(kernel_of(form), iterations), run(changed, iterations))


def flat(x_desc, y_desc, o_desc, n):
    x = x_desc.load([0, 0])
    total = tl.zeros((8,), tl.float32)
    for j in range(0, n, 64):
        s = tl.dot(x, y_desc.load([0, j]))
        total = total * tl.max(s, 1) + tl.sum(s, 1)
    o_desc.store([0, 0], total[:, None].broadcast_to(8, 64).to(tl.float16))


def test_sums_of_turned_products_cross_no_warp() -> None:
    """8 rows by 64 columns: wgmma has the columns over quads and warps, 32 sums a row."""
    shapes = {"x_desc": (8, 16), "y_desc": (16, 64), "o_desc": (8, 64)}
    signature = {name: DescriptorArg("f16", block) for name, block in shapes.items()}

    def built() -> tile.Kernel:
        kernel = build(flat, signature | {"n": ScalarArg("i32")}, {})
        pipeline.run(pipeline.TILE, kernel, Plan(), H200)
        return kernel

    def result(kernel: tile.Kernel, iterations: int) -> np.ndarray:
        rng = np.random.default_rng(iterations)
        arguments: dict[str, object] = {"n": 64 * iterations}
        for name, block in shapes.items():
            base = rng.integers(-1, 2, (16, 256)).astype(np.float16)
            arguments[name] = HostDescriptor(base, (16, 256), (256, 1), block)
        run_tile(kernel, (1, 1, 1), arguments)
        return arguments["o_desc"].base

    changed = built()
    defer_sums(changed, Plan(), H200)
    verify(changed)
    (loop,) = [op for op in changed.walk() if isinstance(op, scf.ForOp)]
    assert (8, 32) in [shape_of(value.type) for value in loop.results]
    for iterations in range(4):
        assert np.array_equal(result(built(), iterations), result(changed, iterations))


def test_strict_keeps_the_order() -> None:
    assert defer_sums in pipeline.REASSOCIATE
    assert defer_sums not in pipeline.TILE
