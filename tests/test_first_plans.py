"""Kernels that users write whose first plan is carried out: no other is tried, nothing unproved."""

import numpy as np
import pytest

import attention_kernels as forms
import tawa
import tawa.language as tl
from tawa.kernels import attention
from tawa.kernels.attention import Variant
from tawa.runtime.compiled import CompiledKernel
from test_attention_options import OPTIONS, SINKS, check, inputs
from test_known_crashes import causal


def given_up(kernel: CompiledKernel) -> list[str]:
    """What became of the plans that were tried before."""
    return [str(each) for each in kernel.declined if each.feature.startswith("plan")]


def described(*shape: int, block: int = 64) -> tawa.TensorDescriptor:
    return tawa.TensorDescriptor.from_tensor(np.zeros(shape, np.float16), [block, block])


def test_the_diagonal_of_a_causal_mask_in_a_loop_of_its_own():
    """It makes one iteration: coarse, all beyond its first would be code that nothing reaches."""
    kernel = tawa.jit(causal).compile(*[described(256, 64)] * 4, 256, B=64, D=64, grid=(4,))
    assert given_up(kernel) == []
    loops = {each.loop: each.schedule for each in kernel.plan.loops}
    assert "coarse" in loops.values()
    assert any("one iteration at most" in each.reason for each in kernel.declined)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("depth", [2, 4])
def test_a_loop_whose_end_grows_with_the_programs(depth, persistent):
    """`range(0, (block + 1) * ROWS)`: where it makes no iteration the number of the block has
    wrapped, which the launch is asked.
    """
    kernel = forms.one_loop.compile(
        *[described(512, 64)] * 4, 2, 256, 0.125, ROWS=64, COLUMNS=64, CAUSAL=True,
        depth={"k": depth, "v": depth}, persistent=persistent, grid=(4, 2),
    )  # fmt: skip
    assert given_up(kernel) == []
    assert any("grid(0)" in str(each) for each in kernel.guards)


@tawa.jit
def rising(a, b, out, K, FIRST: tl.constexpr, AXIS: tl.constexpr, BLOCK: tl.constexpr):
    """A product over as many blocks as the number of the program says."""
    program = tl.program_id(AXIS)
    acc = tl.zeros((64, 64), tl.float32)
    for k in range(0, (program + FIRST) * BLOCK, BLOCK):
        acc = tl.dot(a.load([0, k]), b.load([k, 0]), acc)
    out.store([program * 64, 0], acc.to(tl.float16))


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_products_that_get_longer(first, axis, persistent):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 256), (256, 64)))
    out = np.zeros((192, 64), np.float16)
    arguments = [tawa.TensorDescriptor.from_tensor(each, [64, 64]) for each in (a, b, out)]
    how = {"FIRST": first, "AXIS": axis, "BLOCK": 64, "persistent": persistent}
    grid = (3, 1, 1) if axis == 0 else (1, 3, 1)
    kernel = rising.compile(*arguments, 256, **how, grid=grid)
    assert given_up(kernel) == []
    tawa.simulate(rising, *arguments, 256, **how, grid=grid, level="hopper")
    ends = [64 * (first + program) for program in range(3)]
    want = [a[:, :end].astype(np.float32) @ b[:end].astype(np.float32) for end in ends]
    np.testing.assert_array_equal(out, np.concatenate(want).astype(np.float16))


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"queries": 64, "keys": 8}, OPTIONS["window"]),
        ({"queries": 200, "keys": 40}, {"causal": True, "window": 20}),
        ({"queries": 128, "keys": 128}, {"window": (70, 30), "sink": SINKS}),
    ],
    # Beyond the keys, the first rows see none and the last see them through the window.
    ids=["few keys", "a window beyond the keys", "both sides"],
)
@pytest.mark.parametrize(
    "variant",
    [pytest.param(Variant(64, 64, True), marks=pytest.mark.long), Variant(128, 64, True)],
    ids=str,
)
@pytest.mark.short("128x64 split-a window beyond the keys")
def test_windows_in_loops_of_their_own(given, options, variant):
    """How many blocks of keys an edge of the window goes over follows from its bounds."""
    q, k, v = inputs(**given)
    operands = attention.bind(q, k, v, out=np.empty_like(q), lse=True, **options)
    for launch in attention.launches(operands, variant):
        kernel = launch.kernel.compile(*launch.arguments, grid=launch.grid, **launch.options)
        assert given_up(kernel) == []
    check(q, k, v, variant, **options)
