"""Attention in the simulator, against float64 in NumPy."""

import numpy as np
import pytest

import tawa
from tawa.errors import ArgumentError, PlanError
from tawa.kernels.attention import Tuner, Variant, attention, bind, prepare, side_by_side, variants
from tawa.runtime.dtypes import numpy_dtype

CUBINS = True


def normal(*shape, dtype="f16", seed=0):
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(numpy_dtype(dtype))


def inputs(batch=1, heads=1, queries=128, keys=128, dim=64, groups=1, dtype="f16"):
    return (
        normal(batch, heads, queries, dim, dtype=dtype),
        normal(batch, heads // groups, keys, dim, dtype=dtype, seed=1),
        normal(batch, heads // groups, keys, dim, dtype=dtype, seed=2),
    )


def reference(q, k, v, causal=False, scale=None):
    """Return attention and log-sum-exp in float64."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = q @ k.swapaxes(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        rows, columns = scores.shape[-2:]
        hidden = np.arange(columns)[None, :] > np.arange(rows)[:, None] + columns - rows
        scores[..., hidden] = -np.inf
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + np.where(np.isfinite(top), top, -np.inf)
    return (weights / np.where(total > 0, total, 1)) @ v, lse[..., 0]


def error(found, want):
    return np.linalg.norm(found.astype(np.float64) - want) / np.linalg.norm(want)


def check(variant, most=2e-3, **sizes):
    causal = sizes.pop("causal", False)
    q, k, v = inputs(**sizes)
    out = np.full_like(q, np.nan)
    attention(q, k, v, causal=causal, out=out, variant=variant)
    assert error(out, reference(q, k, v, causal)[0]) < most


def pins(**named):
    return tuple(named.items())


SMALL = Variant(128, 64)


@pytest.mark.parametrize(
    "keys",
    [64, pytest.param(128, marks=pytest.mark.long), 192, pytest.param(320, marks=pytest.mark.long)],
)
def test_every_trip_count(keys):
    check(SMALL, queries=128, keys=keys)


@pytest.mark.parametrize(
    "how",
    [
        pins(schedule="coarse"),
        pins(schedule="fine"),
        pins(arrangement="pingpong"),
        pins(consumers=1),
        pins(specialize=False),
    ],
    ids=str,
)
@pytest.mark.parametrize("split", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.short(
    "True-(('schedule', 'fine'),)",
    "True-(('arrangement', 'pingpong'),)",
    "True-(('specialize', False),)",
)
def test_schedules_with_a_causal_mask(how, split):
    check(Variant(128, 64, split, how), heads=2, queries=256, keys=256, causal=True)


@pytest.mark.parametrize("split", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        (40, 72),
        pytest.param(136, 200, marks=pytest.mark.long),
        pytest.param(200, 136, marks=pytest.mark.long),
    ],
)
@pytest.mark.short("40-72-True-False")
def test_lengths_that_no_tile_divides(queries, keys, causal, split):
    check(Variant(128, 64, split), queries=queries, keys=keys, causal=causal, heads=2)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.long), True])
def test_grouped_queries_in_a_batch(causal):
    check(SMALL, batch=2, heads=4, groups=2, queries=128, keys=128, causal=causal)


@pytest.mark.parametrize(
    ("variant", "dim"),
    [
        (Variant(192, 128, pins=pins(consumers=3, arrangement="pingpong")), 64),
        (Variant(128, 176), 128),
        pytest.param(Variant(128, 64, True), 128, marks=pytest.mark.long),
        pytest.param(Variant(128, 64), 256, marks=pytest.mark.long),
        pytest.param(SMALL, 96, marks=pytest.mark.long),
        (SMALL, 40),
    ],
    ids=str,
)
def test_tiles_and_widths(variant, dim):
    check(variant, dim=dim, queries=192, keys=352, causal=variant.split)


def test_bf16():
    check(SMALL, most=1e-2, dtype="bf16", queries=128, keys=128)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.long), True])
def test_log_sum_exp(causal):
    q, k, v = inputs(heads=2, queries=136, keys=72)
    out, lse = attention(q, k, v, causal=causal, scale=0.3, return_lse=True, variant=SMALL)
    want, sums = reference(q, k, v, causal, 0.3)
    assert error(out, want) < 2e-3
    seen = np.isfinite(sums)
    assert (np.isneginf(lse) == ~seen).all()
    assert np.abs(lse[seen] - sums[seen]).max() < 1e-3


def test_rows_that_see_nothing_are_zero():
    q, k, v = inputs(queries=200, keys=64)
    out = attention(q, k, v, causal=True, variant=SMALL)
    assert (out[:, :, :136] == 0).all()
    assert np.isfinite(out).all()


def test_no_keys_and_no_queries():
    q, k, v = inputs(queries=8, keys=0)
    out, lse = attention(q, k, v, return_lse=True)
    assert (out == 0).all()
    assert np.isneginf(lse).all()
    assert attention(*inputs(queries=0, keys=8)).shape == (1, 1, 0, 64)


def test_arrays_stored_with_the_heads_inside():
    q, k, v = (x.swapaxes(1, 2).copy().swapaxes(1, 2) for x in inputs(heads=2))
    assert error(attention(q, k, v, variant=SMALL), reference(q, k, v)[0]) < 2e-3


def test_the_first_variant_that_builds_is_remembered():
    q, k, v = inputs()
    tuner = Tuner()
    assert error(attention(q, k, v, tuner=tuner), reference(q, k, v)[0]) < 2e-3
    assert len(tuner.best) == 1


def test_heads_walked_together_divide_all():
    for heads, keys in ((6, 512), (6, 1 << 16), (32, 4096), (1, 8)):
        q, k, v = (tawa.array((2, heads, keys, 128), "f16") for _ in range(3))
        problem = bind(q, k, v, causal=True).problem
        assert 2 * heads % side_by_side(problem) == 0


def test_turns_need_two_warpgroups():
    q, k, v = (tawa.array((1, 1, 256, 64), "f16") for _ in range(3))
    with pytest.raises(PlanError, match="pingpong"):
        prepare(bind(q, k, v), Variant(64, 64, pins=pins(arrangement="pingpong"))).compile()


def test_every_head_width_has_variants():
    for dim in (8, 64, 96, 128, 192, 256):
        q, k, v = (tawa.array((1, 1, 256, dim), "f16") for _ in range(3))
        for causal in (False, True):
            assert len(list(variants(bind(q, k, v, causal=causal).problem))) > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": normal(1, 1, 128, 32)}, "k has shape"),
        ({"v": normal(1, 1, 64, 64)}, "v has shape"),
        ({"q": normal(128, 64)}, "q has shape"),
        ({"k": normal(1, 3, 128, 64), "v": normal(1, 3, 128, 64)}, "heads"),
        ({"v": normal(1, 1, 128, 64, dtype="bf16")}, "element types"),
        ({"q": normal(1, 1, 128, 128)[..., ::2]}, "q has strides"),
        ({"out": normal(1, 1, 64, 64)}, "out has shape"),
        ({"out": normal(1, 1, 128, 64, dtype="f32")}, "out holds f32"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, message):
    arrays = dict(zip("qkv", inputs())) | change
    with pytest.raises(ArgumentError, match=message):
        attention(arrays["q"], arrays["k"], arrays["v"], out=arrays.get("out"))


def test_heads_too_wide_are_refused():
    with pytest.raises(ArgumentError, match="head_dim is 320"):
        attention(*inputs(dim=320))


@pytest.mark.parametrize(
    ("variant", "sizes"),
    [
        (Variant(128, 64), {"keys": 200, "queries": 136}),
        (Variant(128, 96, True), {"dim": 128, "causal": True, "queries": 160, "keys": 160}),
        (Variant(128, 128, False, pins(arrangement="pingpong")), {"heads": 2, "groups": 2}),
    ],
)
@pytest.mark.short("variant0-sizes0", "variant2-sizes2")
def test_eight_bits(variant, sizes):
    causal = sizes.pop("causal", False)
    q, k, v = inputs(dtype="f8e4m3", **sizes)
    out, lse = attention(
        q, k, v, causal=causal, descale=(2.0, 0.5, 3.0), return_lse=True, variant=variant
    )
    want, sums = reference(q, k, v, causal)
    assert out.dtype == numpy_dtype("bf16")
    assert error(out, 3 * want) < 2.8e-2
    assert np.allclose(lse, sums, atol=1e-4)


def test_blocks_ask_for_their_tiles_where_a_role_transposes():
    q, k, v = inputs(dtype="f8e4m3", queries=256, keys=256)
    compiled = prepare(bind(q, k, v, causal=True), Variant(128, 64)).compile()
    assert any(role.label == "transpose" for role in compiled.plan.roles)
    assert compiled.plan.walk == "dynamic"


def test_weights_of_eight_bits_keep_what_is_far_below_the_largest():
    """One key is far above the rest, which together weigh as much: below 2 ** -9 each."""
    q, k, v = inputs(queries=64, keys=1024, dtype="f8e4m3")
    q[...], k[...] = 0, 0
    q[..., 0], k[..., 0, 0] = 1, 6.5
    out = attention(q, k, v, scale=1.0, variant=Variant(64, 64), out=np.zeros(q.shape, np.float16))
    assert error(out, reference(q, k, v, scale=1.0)[0]) < 4e-2


@pytest.mark.parametrize(
    ("dtype", "change", "message"),
    [
        ("f16", {"descale": (1.0, 1.0, 1.0)}, "descale beside arrays of f16"),
        ("f8e4m3", {"descale": (1.0, 1.0)}, "2 numbers"),
        ("f8e4m3", {"softcap": 2.0}, "softcap beside arrays of f8e4m3"),
        ("f8e4m3", {"out": np.zeros((1, 1, 128, 64), np.float32)}, "out holds f32"),
    ],
)
def test_what_eight_bits_do_not_take_is_refused_by_name(dtype, change, message):
    with pytest.raises(ArgumentError, match=message):
        attention(*inputs(dtype=dtype), **change)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.short("True")
def test_wide_heads_whose_output_goes_through_the_slot_of_the_queries(causal):
    check(Variant(128, 80, pins=pins(store="slot")), dim=256, keys=200, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_three_warpgroups_with_one_slot_of_queries(causal):
    deep = pins(depth=(("q", 1), ("k", 3), ("v", 3)))
    check(Variant(192, 80, not causal, deep), dim=128, keys=200, queries=200, causal=causal)
