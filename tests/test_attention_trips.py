"""Every variant of attention for every number of tiles of keys, from none to two more than slots.

Rings have two slots; lengths end inside a tile, so that each loop has a tail. Most run under
``make long``; those that run always are one of each form.
"""

import numpy as np
import pytest

import attention_kernels as forms
import tawa
from attention_kernels import normal
from attention_kernels import reference as plain_reference
from tawa.errors import OverBudget
from tawa.kernels.attention import Tuner, Variant, attention
from test_attention_options import SINKS, SLOPES, agree, paged, reference

TRIPS = range(5)  # 0 .. D + 2
TWO = (("depth", {"k": 2, "v": 2}),)
OPTIONS = {
    "causal": {"causal": True},
    "grouped": {},
    "window": {"window": 40, "causal": True},
    "window both sides": {"window": (33, 20)},
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi": SLOPES},
    "sink": {"sink": SINKS, "causal": True},
    "bias": {"bias": True},
}


def iterations(always: int):
    return [n if n == always else pytest.param(n, marks=pytest.mark.long) for n in TRIPS]


def inputs(queries, keys, dim=64, heads=2, groups=2, dtype="f16"):
    shapes = ((1, heads, queries, dim), *[(1, heads // groups, keys, dim)] * 2)
    return [normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("count", iterations(4))
@pytest.mark.parametrize("split", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.short(
    "False-4-softcap", "False-4-window both sides", "False-4-sink", "False-4-bias", "False-4-alibi"
)
def test_options(name, count, split):
    """Under a causal mask the first block sees fewer tiles than the last, down to none."""
    keys = 32 * count - 5 * (count > 0)
    q, k, v = inputs(96, keys)
    options = dict(OPTIONS[name])
    if "bias" in options:
        options["bias"] = normal(1, 2, 96, keys, seed=5)
    out = np.full_like(q, np.nan)
    variant = Variant(64, 32, split, TWO)
    _, lse = attention(q, k, v, out=out, return_lse=True, variant=variant, tuner=Tuner(), **options)
    if keys == 0:
        assert (out == 0).all()
        assert np.allclose(lse, options["sink"][:, None]) if "sink" in options else True
        return
    agree(out, lse, *reference(q, k, v, **options))


@pytest.mark.parametrize("count", iterations(3))
@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.long), True])
def test_packed_and_paged(count, causal):
    keys = 32 * count
    lengths = np.array([keys, 45], np.int32)
    total = int(lengths.sum())
    q, k, v = inputs(total, total)
    out = np.full_like(q, np.nan)
    starts = np.array([0, keys, total], np.int32)
    variant = Variant(64, 32, False, TWO)
    attention(q, k, v, cu_seqlens=starts, out=out, causal=causal, variant=variant, tuner=Tuner())
    for rows in (slice(0, keys), slice(keys, total)):
        part = [x[:, :, rows] for x in (q, k, v)]
        want, _ = reference(*part, causal=causal)
        assert np.abs(out[:, :, rows] - want).max(initial=0) < 4e-3
    cache = inputs(1, max(keys, 1))[1:]
    k_pages, v_pages, table = paged(*cache, 32)
    held = np.array([keys], np.int32)
    few = inputs(3, 1)[0]
    found = attention(
        few, k_pages, v_pages, block_table=table, lengths=held, causal=causal, tuner=Tuner()
    )
    want, _ = reference(few, *(x[:, :, :keys] for x in cache), causal=causal)
    assert np.abs(found - want).max() < 4e-3


@pytest.mark.parametrize("count", iterations(2))
@pytest.mark.parametrize("causal", [False, True])
def test_eight_bits(count, causal):
    q, k, v = inputs(64, 32 * count, groups=1, dtype="f8e4m3")
    out = np.zeros((1, 2, 64, 64), np.float16)
    attention(q, k, v, causal=causal, out=out, variant=Variant(64, 32, False, TWO), tuner=Tuner())
    want, _ = reference(q, k, v, causal=causal)
    assert np.linalg.norm(out - want) <= 4e-2 * max(np.linalg.norm(want), 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiles_that_are_no_powers_of_two(count):
    """176 keys, 192 rows in three warpgroups, heads of 96 and 192."""
    for rows, columns, dim in ((64, 176, 64), (192, 64, 64), (64, 96, 96), (64, 48, 192)):
        q, k, v = inputs(rows + 8, columns * count - 8, dim=dim, groups=1, heads=1)
        out = np.full_like(q, np.nan)
        attention(q, k, v, out=out, variant=Variant(rows, columns), tuner=Tuner())
        assert np.linalg.norm(out - reference(q, k, v)[0]) < 1e-3 * np.linalg.norm(out)


def test_tiles_over_the_budget_leave_the_space_of_a_tuner():
    """What the resource model refuses is not among those that are timed."""
    q, k, v = (normal(1, 1, 64, 64, seed=seed) for seed in range(3))
    out, lines = np.zeros_like(q), np.zeros((1, 1, 64), np.float32)
    configs = [tawa.Config({"ROWS": rows, "COLUMNS": n}) for rows, n in ((64, 4096), (64, 32))]
    tuned = tawa.autotune(configs=configs, key=["keys"])(forms.by_pointers)
    steps = [step // 2 for each in (q, k, v, out) for step in each.strides]
    arguments = (q, k, v, out, lines, 0.125, *steps, 1, 64, 64)
    tuned[lambda named: (1, 1)](*arguments, WIDTH=64, CAUSAL=False)
    want = plain_reference(q, k, v, False, 0.125)[0]
    assert np.linalg.norm(out - want) < 1e-3 * np.linalg.norm(want)
    alone = tawa.autotune(configs=configs[:1], key=["keys"])(forms.by_pointers)
    with pytest.raises(OverBudget, match="bytes of shared memory"):
        alone[lambda named: (1, 1)](*arguments, WIDTH=64, CAUSAL=False)
