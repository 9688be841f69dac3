"""Clusters of kernels that order their tiles: what neighbours share, and on what terms."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa import ir
from tawa.analysis.cluster import Neighbours
from tawa.errors import PlanError
from tawa.ir import hopper, tile
from tawa.kernels.matmul import matmul
from tawa.kernels.prepare import bind, prepare
from tawa.kernels.variants import Variant


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(np.float16)


def pointers(**options):
    sizes = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2, "cluster": 2}
    return Variant("pointers", tawa.Config(sizes | options))


def compiled(a, b, variant):
    (launch,) = prepare(bind(a, b), variant)
    return launch.compile()


@pytest.mark.parametrize("options", [{}, {"persistent": False}, {"arrangement": "pingpong"}])
@pytest.mark.short("options0", "options2")
def test_grouped_tiles_share_their_columns(options):
    a, b = normal(256, 128), normal(128, 192, seed=1)
    kernel = compiled(a, b, pointers(**options))
    shared = [
        op
        for op in ir.parse(kernel.asm.text("hopper")).walk()
        if isinstance(op, hopper.TmaLoad) and op.multicast is not None
    ]
    assert len(shared) == 1
    (guard,) = [each for each in kernel.guards if "always_multiple" in each.condition]
    assert guard.condition == "always_multiple((divide((63 + M), (64))), 2)"
    assert guard.reason == "the blocks of a cluster share loads"


@pytest.mark.parametrize("m", [256, 250, 192, 130])
def test_odd_rows_of_tiles_run_the_ordinary_kernel(m):
    """An even number of rows of tiles passes the guard, an odd one does not; both are right."""
    a, b = normal(m, 128), normal(128, 192, seed=1)
    c = matmul(a, b, variant=pointers())
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(c.astype(np.float64) - want) < 2e-3 * np.linalg.norm(want)


def test_an_odd_group_shares_nothing():
    with pytest.raises(PlanError, match="no load is the same in all blocks"):
        compiled(normal(256, 128), normal(128, 192), pointers(GROUP_M=3))


@tawa.jit
def quotients(out_ptr, n, WIDTH: tl.constexpr, SHIFT: tl.constexpr):
    pid = tl.program_id(0) + SHIFT
    tl.store(out_ptr + tl.arange(0, 128), tl.zeros((128,), tl.float32) + (pid // WIDTH) * n)


def differing(width, shift, assume=False):
    """The divisions of a kernel whose result may differ between two neighbours."""
    out = tawa.array((128,), "f32")
    kernel = quotients.compile(out, 3, WIDTH=width, SHIFT=shift, specialize=False)
    program = ir.parse(kernel.asm.text("hopper"))
    found = Neighbours(program, 2, assume=assume)
    return [
        op.result in found.differing
        for op in program.walk()
        if isinstance(op, tile.Elementwise) and op.function.data == "idiv"
    ]


@pytest.mark.parametrize(("width", "shift", "wanted"), [(6, 0, False), (3, 0, True), (6, 1, True)])
def test_a_quotient_forgets_the_rank_where_the_divisor_is_even(width, shift, wanted):
    assert differing(width, shift) == [wanted]
