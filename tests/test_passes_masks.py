"""Masks that are asked about: one scalar condition, the same values, no mask for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

import tawa
import tawa.language as tl
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, ScalarArg
from tawa.ir import tile, verify
from tawa.passes.simplify import simplify
from tawa.passes.version import version_masks
from tawa.plan.plan import Plan
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.tile import run_tile
from tawa.target import H200

BLOCK = 64
ASKED = {
    "causal": 1,
    "causal reversed": 1,
    "less": 1,
    "window": 1,
    "tail and causal": 1,
    "or": 1,
    "area": 1,
    "switched": 1,
    "loaded": 0,
    "constant shown": 0,
    "modulo": 0,
    "not a product": 0,
}


def masked(x_desc, y_desc, o_desc, flags, n, first, width, switch, FORM: tl.constexpr):
    x = x_desc.load([0, 0])
    acc = tl.zeros((64, 64), tl.float32)
    rows = first + tl.arange(0, 64)[:, None]
    for j in range(0, n, 64):
        y = y_desc.load([j, 0])
        s = tl.dot(x, y)
        columns = j + tl.arange(0, 64)[None, :]
        if FORM == "causal":
            s = tl.where(rows >= columns, s, -7.0)
        elif FORM == "causal reversed":
            s = tl.where(columns > rows, -7.0, s)
        elif FORM == "less":
            s = tl.where(columns < width, s * 2.0, -7.0)
        elif FORM == "window":
            s = tl.where((rows >= columns) & (columns + width > rows), s, -7.0)
        elif FORM == "tail and causal":
            s = tl.where(columns < width, s, -7.0)
            s = tl.where(rows - columns >= 0, s, -9.0)
        elif FORM == "or":
            s = tl.where((rows >= columns) | (columns < width), s, -7.0)
        elif FORM == "area":
            s = tl.where(columns < 3 * width * (first - 1), s, -7.0)
        elif FORM == "switched":
            s = tl.where((switch > 0) & (rows >= columns), s, -7.0)
        elif FORM == "loaded":
            s = tl.where(tl.load(flags + tl.arange(0, 64))[:, None] > columns, s, -7.0)
        elif FORM == "constant shown":
            s = s + tl.where(rows >= columns, 0.0, -7.0)
        elif FORM == "modulo":
            s = tl.where(columns % 3 < 2, s, -7.0)
        elif FORM == "not a product":
            s = s + tl.where(rows >= columns, tl.load(flags + rows * 0 + columns % 64), 0)
        acc += s
    o_desc.store([0, 0], acc.to(tl.float16))


def kernel_of(form: str) -> tile.Kernel:
    signature: dict[str, object] = {
        name: DescriptorArg("f16", (64, 64)) for name in ("x_desc", "y_desc", "o_desc")
    }
    signature |= {"flags": tawa.frontend.signature.PointerArg("f32")}
    signature |= {name: ScalarArg("i32") for name in ("n", "first", "width", "switch")}
    kernel = build(masked, signature | {"FORM": ConstantArg(form)}, {})
    simplify(kernel, Plan(), H200)
    return kernel


def run(kernel: tile.Kernel, **scalars: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    arguments: dict[str, object] = {"flags": rng.integers(0, 200, 64).astype(np.float32), **scalars}
    for name in ("x_desc", "y_desc", "o_desc"):
        base = rng.integers(-1, 2, (320, 64)).astype(np.float16)
        arguments[name] = HostDescriptor(base, (320, 64), (64, 1), (64, 64))
    run_tile(kernel, (1, 1, 1), arguments)
    return arguments["o_desc"].base[:64]


def branches(kernel: tile.Kernel) -> int:
    return sum(isinstance(op, scf.IfOp) for op in kernel.walk())


@pytest.mark.parametrize("form", ASKED)
def test_the_values_stay_the_same(form: str) -> None:
    changed = kernel_of(form)
    version_masks(changed, Plan(), H200)
    simplify(changed, Plan(), H200)
    verify(changed)
    assert branches(changed) == ASKED[form]
    plain = kernel_of(form)
    for first in (0, 1, 63, 64, 65, 200):
        for width in (0, 63, 64, 65, 1000):
            for switch in (0, 1) if form == "switched" else (1,):
                scalars = {"n": 256, "first": first, "width": width, "switch": switch}
                assert (run(changed, **scalars) == run(plain, **scalars)).all(), scalars


@pytest.mark.parametrize("form", [name for name, count in ASKED.items() if count])
def test_nothing_of_the_mask_is_computed_where_it_hides_nothing(form: str) -> None:
    changed = kernel_of(form)
    version_masks(changed, Plan(), H200)
    (branch,) = (op for op in changed.walk() if isinstance(op, scf.IfOp))
    assert len(list(branch.true_region.block.ops)) == 1
    block = branch.parent
    left = [op for op in block.ops if isinstance(op, tile.Elementwise)]
    assert "select" not in {op.function.data for op in left}
    assert "select" in {
        op.function.data for op in branch.false_region.walk() if hasattr(op, "function")
    }


def test_a_condition_is_no_more_than_sufficient() -> None:
    """At an edge of the condition the mask does hide: 63 rows behind, and one element is hidden."""
    kernel = kernel_of("causal")
    version_masks(kernel, Plan(), H200)
    hides = run(kernel, n=64, first=62, width=0, switch=0)
    shows = run(kernel, n=64, first=63, width=0, switch=0)
    assert (hides != shows).sum() <= 1
    assert hides[0, 63] == -7.0
