"""Running maxima that lag: the same sums however the scores rise, and only where that is proved."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from known_failures import declined, operations
from tawa.ir import tile


@tawa.jit
def online(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    top_ptr,
    n,
    B: tl.constexpr,
    N: tl.constexpr,
    W: tl.constexpr,
    E: tl.constexpr,
    KEEP: tl.constexpr,
    FIRST: tl.constexpr,
):
    q = q_desc.load([0, 0])
    top = tl.full((B,), float("-inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    acc = tl.zeros((B, W), tl.float32)
    for i in range(n):
        scores = tl.dot(q, k_desc.load([i * N, 0]).T)
        above = tl.maximum(top, tl.max(scores, 1))
        if E:
            p = tl.exp(scores - above[:, None])
            r = tl.exp(top - above)
        else:
            p = tl.exp2(scores - above[:, None])
            r = tl.exp2(top - above)
        total = total * r + tl.sum(p, 1)
        if FIRST:
            acc = r[:, None] * acc
        else:
            acc = acc * r[:, None]
        acc = tl.dot(p.to(tl.float16), v_desc.load([i * N, 0]), acc)
        if KEEP:
            acc = acc + above[:, None]
        top = above
    o_desc.store([0, 0], (acc / total[:, None]).to(tl.float16))
    tl.store(top_ptr + tl.arange(0, B), top + tl.log2(total))


def operands(n, width, rise, natural=False):
    """Scores that rise by about `rise` binary orders from one tile of keys to the next."""
    rng = np.random.default_rng(n)
    q = np.ones((64, 64), np.float16)
    k = (rng.standard_normal((max(n, 1) * 32, 64)) / 8).astype(np.float16)
    k += (np.arange(max(n, 1)).repeat(32)[:, None] * rise / 64).astype(np.float16)
    v = rng.standard_normal((max(n, 1) * 32, width)).astype(np.float16)
    o, top = np.zeros((64, width), np.float16), np.zeros(64, np.float32)
    described = tawa.TensorDescriptor.from_tensor
    given = [described(q, [64, 64]), described(k, [32, 64]), described(v, [32, width])]
    scores = q.astype(np.float64) @ k.astype(np.float64).T
    weights = np.exp(scores) if natural else np.exp2(scores)
    want = weights @ v.astype(np.float64) / weights.sum(1, keepdims=True)
    sizes = {"B": 64, "N": 32, "W": width, "E": natural, "KEEP": False, "FIRST": False}
    return (*given, described(o, [64, width]), top, n), sizes, o, top, want, weights.sum(1)


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize(("n", "rise"), [(1, 0.0), (2, 3.0), (5, 3.0), (4, 20.0), (5, -4.0)])
def test_the_same_sums(n, rise, natural):
    arguments, sizes, o, top, want, sums = operands(n, 128, rise, natural)
    online[1,](*arguments, **sizes)
    assert np.linalg.norm(o - want) <= 1e-3 * np.linalg.norm(want)
    if not natural:
        assert np.allclose(top, np.log2(sums), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.short("True")
def test_accumulators_are_left_alone_where_the_maximum_lags(first):
    """The factor may stand on either side; whether it is one is asked where it is made."""
    arguments, sizes, *_ = operands(4, 128, 1.0)
    kernel = online.compile(*arguments, grid=(1,), **(sizes | {"FIRST": first}))
    assert "letting top lag" not in declined(kernel)
    marked = [op for op in operations(kernel, tile.Elementwise) if op.skip_ones is not None]
    assert marked
    text = kernel.asm.text("cuda")
    (rises,) = re.findall(r"const bool (rises\w*) = any_lane\(", text)
    asked, (done,) = text.index(f"const bool {rises}"), re.findall(rf"if \({rises}\) {{", text)
    assert "wgmma_wait" in text[asked : text.index(done)]


@needs_compiler
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("rise", [3.0, 20.0])
def test_the_generated_text_gives_the_same_sums(rise, first):
    arguments, sizes, o, _, want, _ = operands(3, 128, rise)
    sizes |= {"FIRST": first}
    kernel = online.compile(*arguments, grid=(1,), **sizes)
    names = ("q_desc", "k_desc", "v_desc", "o_desc", "top_ptr", "n")
    emulate(kernel.asm.program("hopper"), dict(zip(names, arguments)), (1, 1, 1), blocks=1)
    assert np.linalg.norm(o - want) <= 1e-3 * np.linalg.norm(want)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"W": 64}, "64 columns, too few"),
        ({"KEEP": True}, "depends on it otherwise"),
    ],
)
def test_declined_with_the_reason(options, reason):
    arguments, sizes, *_ = operands(4, options.get("W", 128), 1.0)
    kernel = online.compile(*arguments, grid=(1,), **(sizes | options))
    assert reason in declined(kernel)["letting top lag"]


def test_not_under_strict():
    arguments, sizes, *_ = operands(4, 128, 1.0)
    lagging, exact = (
        online.compile(*arguments, grid=(1,), **sizes, strict=strict).asm.text("hopper")
        for strict in (False, True)
    )
    assert "%kept" in lagging
    assert "%kept" not in exact
