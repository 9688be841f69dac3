"""Convolutions of the library in the simulator, against float64 in NumPy."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import tawa
from tawa.errors import ArgumentError
from tawa.kernels.conv import Tuner, conv1d, conv2d, filters, workspace
from tawa.kernels.conv_geometry import PACKINGS, Geometry, packing
from tawa.kernels.conv_operands import bind
from tawa.kernels.conv_prepare import prepare
from tawa.kernels.conv_variants import (
    FORMS,
    Variant,
    forms_of,
    ranked,
    refused,
    shares,
    variants,
)
from tawa.kernels.conv_views import VIEWS
from tawa.runtime.dtypes import numpy_dtype

BOX = {"BLOCK_I": 1, "BLOCK_H": 8, "BLOCK_W": 8, "BLOCK_N": 32, "BLOCK_K": 16}
STRIPS = {"BLOCK_R": 4, "BLOCK_C": 32, "STRIP": 3}
TILE = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32}


def integers(*shape, dtype="f16", seed=0):
    values = np.random.default_rng(seed).integers(-3, 4, shape)
    return values.astype(np.float32).astype(numpy_dtype(dtype))


def exact(x, w, g):
    """Return the convolution in float64."""
    top, bottom, left, right = g.padding
    x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    y = np.zeros((g.n, g.ho, g.wo, g.co))
    for group in range(g.groups):
        channels = slice(group * g.channels, (group + 1) * g.channels)
        out = slice(group * g.filters, (group + 1) * g.filters)
        for row in range(g.fh):
            for column in range(g.fw):
                down = row * g.dilation[0]
                right = column * g.dilation[1]
                seen = x[
                    :,
                    down : down + g.stride[0] * (g.ho - 1) + 1 : g.stride[0],
                    right : right + g.stride[1] * (g.wo - 1) + 1 : g.stride[1],
                    channels,
                ]
                y[..., out] += seen @ w[out, row, column].astype(np.float64).T
    return y


def variant(form, splits=1, whole=0, **options):
    sizes = {"pointers": TILE, "direct": STRIPS}.get(form, BOX)
    if form in ("im2col", "window", "merged"):
        sizes = BOX | {"BLOCK_H": 1, "BLOCK_W": 64}
    if form == "neighbours":
        sizes = BOX | {"BLOCK_H": 64, "BLOCK_W": 1, "BESIDE": 8}
    return Variant(form, tawa.Config({**sizes, **options}), splits, whole)


def columns(form, g):
    """What a tile of a form needs beyond its sizes: pixels of C elements in place, or of more."""
    return {"CHANNELS": g.c + g.h % 2 * (g.c > 1)} if form == "neighbours" else {}


def arrays(g, dtype="f16"):
    return (
        integers(g.n, g.h, g.w, g.c, dtype=dtype),
        integers(g.co, g.fh, g.fw, g.channels, dtype=dtype, seed=1),
    )


def run(g, form, x, w, splits=1, whole=0, **options):
    """Convolve by a form; `ArgumentError` where it is refused."""
    return conv2d(
        x,
        w,
        stride=g.stride,
        padding=((g.padding[0], g.padding[1]), (g.padding[2], g.padding[3])),
        dilation=g.dilation,
        groups=g.groups,
        variant=variant(form, splits, whole, **columns(form, g)),
        **options,
    )


@st.composite
def geometries(draw, form):
    """A geometry that a form takes, of what the form leaves open."""
    most = {"taps": 1, "direct": 2}.get(form, 3)  # the latter's text grows with strides
    stride = tuple(draw(st.integers(1, most)) for _ in range(2))
    groups = 1
    if form in ("window", "taps", "pointers", "merged", "direct"):
        few = {"direct": (1, 2, 3, 9), "merged": (2, 4, 8)}
        groups = draw(st.sampled_from(few.get(form, (1, 1, 2, 3))))
    dilation = (1, 1)
    if form not in ("rows", "im2win"):
        dilation = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (2, 3))))
    by_tma = form in VIEWS
    step = 16 if groups > 1 else 8
    channels = draw(st.sampled_from((step, 2 * step, 5 * step) if by_tma else (1, 3, 4, 8)))
    filters = draw(st.sampled_from((8, 16, 40) if form == "neighbours" else (1, 4, 8, 40)))
    sizes = [draw(st.integers(1, 12)) for _ in stride]
    longest = 3 if form == "direct" else 5
    window = [draw(st.integers(step + 1 if form == "im2win" else 1, longest)) for step in stride]
    sides = tuple(draw(st.integers(0, 0 if form == "rows" else 2)) for _ in range(4))
    c, co = groups * channels, groups * filters
    g = Geometry(draw(st.integers(0, 3)), *sizes, c, co, *window, stride, sides, dilation, groups)
    assume(g.ho >= 1 and g.wo >= 1)
    return g


def problem(g, dtype="f16"):
    x = tawa.array((g.n, g.h, g.w, g.c), dtype)
    w = tawa.array((g.co, g.fh, g.fw, g.channels), dtype)
    return bind(x, w, g).problem


LENIENT = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def try_geometries(form, **how):
    @settings(**LENIENT, **how)
    @given(geometries(form))
    def random_geometry(g):
        assume(not refused(form, problem(g)))
        x, w = arrays(g)
        assert np.array_equal(run(g, form, x, w).astype(np.float64), exact(x, w, g))

    random_geometry()


TAKEN = [
    ("window", Geometry(2, 9, 11, 24, 40, 3, 3, (3, 2), (2, 1, 0, 2), (1, 2))),
    ("window", Geometry(1, 7, 9, 48, 48, 2, 3, (1, 4), (1, 1, 1, 1), groups=3)),
    ("merged", Geometry(1, 7, 9, 32, 64, 2, 3, (1, 2), (1, 1, 0, 1), groups=8)),
    ("merged", Geometry(2, 5, 7, 96, 48, 3, 3, padding=(1, 1, 1, 1), dilation=(2, 1), groups=12)),
    ("neighbours", Geometry(2, 8, 24, 3, 40, 3, 4)),  # in place
    ("neighbours", Geometry(2, 15, 17, 3, 24, 5, 3, (2, 2), (1, 2, 0, 1), (2, 1))),
    ("rows", Geometry(2, 9, 11, 24, 40, 3, 3)),
    ("rows", Geometry(2, 9, 11, 8, 21, 4, 2, (3, 2))),  # stored through pointers
    ("taps", Geometry(2, 7, 9, 24, 40, 3, 2, padding=(0, 1, 2, 1), dilation=(2, 1))),
    ("taps", Geometry(1, 7, 9, 32, 48, 3, 3, padding=(1, 1, 1, 1), groups=2)),
    ("im2win", Geometry(2, 13, 15, 3, 24, 7, 5, (2, 3), (1, 2, 0, 1))),
    ("im2col", Geometry(2, 9, 11, 3, 24, 3, 2, (2, 3), (1, 0, 1, 1), (2, 1))),
    ("pointers", Geometry(1, 9, 10, 6, 10, 3, 3, (2, 1), (1, 2, 0, 1), (1, 2), 2)),
    ("direct", Geometry(2, 9, 10, 40, 40, 3, 3, (2, 1), (1, 2, 0, 1), (1, 2), 40)),
    ("direct", Geometry(1, 8, 11, 8, 12, 2, 2, (1, 2), (1, 0, 1, 1), (1, 1), 4)),
    ("direct", Geometry(1, 9, 10, 6, 10, 3, 3, (2, 1), (1, 2, 0, 1), (1, 2), 2)),
]


TWICE = {form for form, _ in TAKEN if [name for name, _ in TAKEN].count(form) > 1}


@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=pytest.mark.long if f in TWICE else ()) for f in FORMS]
)
def test_random_geometries(form):
    """Of the forms that are above with one geometry."""
    try_geometries(form, max_examples=1, derandomize=True, phases=[Phase.generate])


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_many_random_geometries(form):
    try_geometries(form, max_examples=300)


@pytest.mark.parametrize(("form", "g"), TAKEN)
def test_every_form(form, g):
    x, w = arrays(g)
    assert np.array_equal(run(g, form, x, w).astype(np.float64), exact(x, w, g))


@pytest.mark.parametrize(("form", "g"), TAKEN)
def test_what_is_beside_an_edge_spoils_only_its_own_windows(form, g):
    """An Inf or NaN in every pixel of the border, one pixel a call: only its windows, and of groups
    the first alone.
    """
    x, w = arrays(g)
    w = np.where(w == 0, w.dtype.type(1), w)  # 0 * Inf is NaN by definition
    for row, column, bad in ((0, 0, np.inf), (-1, -1, np.nan), (0, -1, np.nan), (-1, 0, np.inf)):
        spoilt = x.copy()
        spoilt[-1, row, column, : g.channels] = bad
        marked = np.zeros_like(x)
        marked[-1, row, column, : g.channels] = 1
        reached = exact(marked, np.abs(w), g) != 0
        clean = exact(x, w, g)
        found = run(g, form, spoilt, w).astype(np.float64)
        assert np.array_equal(found[~reached], clean[~reached])
        assert not np.isfinite(found[reached]).any()


@pytest.mark.parametrize(
    ("g", "forms"),
    [
        (Geometry(2, 9, 11, 24, 40, 3, 3), ("rows", "window", "taps")),
        (Geometry(2, 8, 12, 16, 24, 3, 3, (2, 2), (1, 1, 1, 1)), ("window", "im2col", "pointers")),
    ],
)
def test_the_views_agree_bit_for_bit(g, forms):
    x, w = arrays(g)
    first, *others = (run(g, form, x, w) for form in forms)
    for other in others:
        assert np.array_equal(first.view(np.int16), other.view(np.int16))


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f8e4m3", "f8e5m2"])
def test_types(dtype):
    g = Geometry(1, 7, 9, 32, 32, 3, 3, padding=(1, 1, 1, 1))
    x, w = arrays(g, dtype)
    y = conv2d(x, w, padding=1, out_dtype="f32")
    assert np.array_equal(y, exact(x, w, g))


@pytest.mark.parametrize("form", ["window", *PACKINGS, "pointers", "direct"])
@pytest.mark.short("window", "im2win", "pointers")
def test_int8_is_exact(form):
    g = Geometry(1, 5, 6, 32, 32, 3, 2, padding=(1, 1, 1, 1))
    random = np.random.default_rng(0)
    x = random.integers(-128, 128, (1, 5, 6, 32)).astype(np.int8)
    w = random.integers(-128, 128, (32, 3, 2, 32)).astype(np.int8)
    chosen = variant(form) if form == "direct" else variant(form, BLOCK_K=32)
    how = {"padding": 1, "variant": chosen}
    y = conv2d(x, w, **how)
    assert y.dtype == np.int32
    assert np.array_equal(y, exact(x, w, g))
    if form in (*PACKINGS, "direct"):
        return  # of the kernels of the other two
    scale = np.full(1, 2.0**-12, np.float32)
    y = conv2d(x, w, scale=scale, activation="relu", **how)
    assert y.dtype == np.float32
    assert np.array_equal(y, np.maximum(exact(x, w, g) * scale, 0))


def test_neighbours_begin_where_tma_does():
    """Elsewhere a GPU stops."""
    x, w = arrays(Geometry(1, 9, 20, 3, 40, 3, 3))
    for wrong in ({"BESIDE": 4}, {"BLOCK_N": 64, "BESIDE": 8 + 4}, {"BLOCK_H": 32, "BLOCK_W": 2}):
        with pytest.raises(ArgumentError, match="a multiple of 8 pixels"):
            conv2d(x, w, variant=variant("neighbours", CHANNELS=3, **wrong))


def test_parts_of_an_int8_sum_are_refused():
    x, w = integers(1, 7, 9, 32), integers(32, 3, 3, 32)
    parts = variant("taps", 3, BLOCK_K=32)
    with pytest.raises(ArgumentError, match="int8"):
        conv2d(x.astype(np.int8), w.astype(np.int8), variant=parts)


# Each kernel has one finish, for every view; each activation is one function.
CLAMP = ("clamp", -2.0, 3.0)
FINISHES = [
    ("window", 1, ("", "relu", CLAMP, "silu")),
    ("window", 3, ("relu6", "silu")),
    ("pointers", 1, (CLAMP, "silu")),
    ("direct", 1, ("relu",)),
    ("merged", 1, ("relu",)),
    ("neighbours", 1, ("relu",)),
]


@pytest.mark.parametrize(("form", "splits", "activations"), FINISHES)
def test_what_follows_the_sum(form, splits, activations):
    groups = 4 if form in ("direct", "merged") else 1
    g = Geometry(2, 7, 5, 16, 24, 3, 3, padding=(1, 1, 1, 1), groups=groups)
    if form == "neighbours":
        g = replace(g, w=12, c=4, fw=2, padding=(1, 1, 0, 0))
    x, w = arrays(g)
    bias, scale = integers(24, seed=2), np.linspace(0.5, 2, 24, dtype=np.float32)
    residual = integers(*g.results, seed=3)
    given = {"bias": bias, "residual": residual, "scale": scale}
    before = exact(x, w, g) * scale + bias + residual
    limits = {"relu": (0, np.inf), "relu6": (0, 6), CLAMP: (-2, 3), "": None}
    for activation in activations:
        if activation == "silu":
            continue
        y = run(g, form, x, w, splits, activation=activation, out_dtype="f32", **given)
        want = before if limits[activation] is None else np.clip(before, *limits[activation])
        assert np.abs(y - want).max() < 1e-3
    if "silu" in activations:
        y = run(g, form, x, w, splits, scale=scale[:1].copy(), activation="silu", out_dtype="f32")
        want = exact(x, w, g) * scale[0]
        assert np.abs(y - want / (1 + np.exp(-want))).max() < 1e-2


DEALT = [
    ("window", Geometry(2, 9, 11, 24, 40, 3, 3, (3, 2), (2, 1, 0, 2), (1, 2)), 1),
    ("window", Geometry(3, 9, 9, 48, 120, 2, 3, (1, 2), (1, 1, 1, 1), groups=3), 3),
    ("rows", Geometry(3, 9, 11, 8, 40, 4, 2, (1, 2)), 2),
    ("taps", Geometry(3, 9, 9, 32, 96, 3, 3, padding=(1, 1, 1, 1), groups=2), 7),
    ("im2win", Geometry(2, 13, 15, 3, 40, 7, 5, (2, 3), (1, 2, 0, 1)), 3),
    ("im2col", Geometry(2, 9, 11, 3, 40, 3, 2, (1, 2), (1, 0, 1, 1), (2, 1)), 2),
]


@pytest.mark.parametrize(("form", "g", "whole"), DEALT)
def test_sums_of_the_last_tiles_are_dealt_out(form, g, whole):
    x, w = arrays(g)
    residual, bias = integers(g.n, g.ho, g.wo, g.co, seed=3), integers(g.co, seed=2)
    want = np.maximum(exact(x, w, g) + bias + residual, 0)
    given = {"bias": bias, "residual": residual, "activation": "relu", "out_dtype": "f32"}
    launches = prepare(bind(x, w, g), variant(form, 2, whole))
    product, last = launches[-2:]
    assert product.grid == (whole + 2 * last.grid[0],)
    assert last.grid[0] > 0
    assert "load" in str(product.compile().plan)
    for split in (whole, 0):
        assert np.array_equal(run(g, form, x, w, 2, split, **given), want)


def test_parts_are_added_in_their_order():
    g = Geometry(3, 9, 9, 48, 40, 3, 3, padding=(1, 1, 1, 1))
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(each).astype(np.float16) for each in (g.images, g.kernels))
    first, again = (run(g, "window", x, w, 3, 2, out_dtype="f32") for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, run(g, "window", x, w, out_dtype="f32"))


def test_activations_keep_nan():
    x, w = integers(1, 4, 4, 8), integers(8, 1, 1, 8)
    x[0, 0, 0, 0] = np.nan
    for activation in ("relu", "relu6", ("clamp", -1.0, 1.0)):
        assert np.isnan(conv2d(x, w, activation=activation)[0, 0, 0]).all()


def test_out_is_filled_and_returned():
    g = Geometry(2, 7, 9, 16, 24, 3, 3)
    x, w = arrays(g)
    out = np.full((2, 5, 7, 24), np.nan, np.float32)
    assert conv2d(x, w, out=out) is out
    assert np.array_equal(out, exact(x, w, g))
    with pytest.raises(ArgumentError, match="shares memory"):
        conv2d(x, integers(16, 1, 1, 16), out=x)


def test_no_images_no_launch():
    assert conv2d(integers(0, 7, 9, 16), integers(24, 3, 3, 16)).shape == (0, 5, 7, 24)


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*PACKINGS, "direct"])
@pytest.mark.parametrize(
    "g",
    [Geometry(3, 13, 15, 3, 24, 7, 5, (2, 2)), Geometry(2, 9, 12, 16, 24, 3, 3, (1, 1), (1,) * 4)],
)
def test_bytes_are_those_of_the_formula(monkeypatch, method, g):
    from tawa.kernels import conv_prepare

    made = []

    def counted(array, shape, dtype, make=conv_prepare.empty_beside):
        made.append(make(array, shape, dtype))
        return made[-1]

    x, w = arrays(g)
    y = np.zeros((g.n, g.ho, g.wo, g.co), np.float16)
    operands = bind(x, w, g, y)
    monkeypatch.setattr(conv_prepare, "empty_beside", counted)
    prepare(operands, variant(method))
    assert sum(each.nbytes for each in made) == workspace(method, g)


def test_bytes_of_the_paper():
    """N * Ho * W * Fh * C for im2win, N * Ho * Wo * Fh * Fw * C for im2col, where nothing pads."""
    g = Geometry(128, 24, 24, 96, 256, 5, 5)
    assert packing("im2win", g, 2).images.elements == 128 * 20 * 24 * 5 * 96
    assert packing("im2col", g, 2).images.elements == 128 * 20 * 20 * 5 * 5 * 96
    first = packing("im2win", Geometry(128, 227, 227, 3, 96, 11, 11, (4, 4)), 2).images
    assert (first.used, first.column, first.pitch) == (33, 34, 7720)


def test_padding_of_a_buffer_is_zero_whatever_stood_there(monkeypatch):
    from tawa.kernels import conv_prepare

    def dirty(array, shape, dtype, make=conv_prepare.empty_beside):
        found = make(array, shape, dtype)
        found[...] = np.nan
        return found

    monkeypatch.setattr(conv_prepare, "empty_beside", dirty)
    for form, g in TAKEN:
        if form in PACKINGS:
            x, w = arrays(g)
            y = np.zeros((g.n, g.ho, g.wo, g.co), np.float16)
            for launch in prepare(bind(x, w, g, y), variant(form)):
                launch()
            assert np.array_equal(y.astype(np.float64), exact(x, w, g))


# --- packed once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["im2win", "im2col"])
def test_filters_packed_once(method):
    g = Geometry(2, 9, 11, 16, 24, 3, 3, (2, 2), (1, 1, 1, 1))
    x, w = arrays(g)
    held = filters(w, method=method, stride=2)
    y = conv2d(x, held, stride=2, padding=1, method=method)
    assert np.array_equal(y.astype(np.float64), exact(x, w, g))
    with pytest.raises(ArgumentError, match="packed for"):
        conv2d(x, held, stride=1, method=method)


def test_rows_that_lie_backwards_are_packed_for_neighbours():
    """TMA steps forward alone."""
    g = Geometry(2, 8, 24, 3, 40, 3, 4)
    x, w = arrays(g)
    y = conv2d(x[:, ::-1], w, variant=variant("neighbours", CHANNELS=3))
    assert np.array_equal(y.astype(np.float64), exact(x[:, ::-1], w, g))


@pytest.mark.parametrize("method", ["im2win", "im2col"])
def test_images_of_any_strides_are_packed(method):
    g = Geometry(2, 9, 11, 16, 24, 3, 3)
    x, w = arrays(g)
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    y = conv2d(planes, w, method=method)
    assert np.array_equal(y.astype(np.float64), exact(x, w, g))


def test_the_ablation_of_the_paper():
    """No prefetch: depth 1; no vector loads: pointers; no micro-kernel: tiles of 64 x 32."""
    g = Geometry(1, 11, 13, 3, 32, 5, 3)
    x, w = arrays(g)
    whole = Variant("im2win", tawa.Config({**BOX, "BLOCK_N": 32}, depth=1))
    pointers = Variant("im2win", tawa.Config(TILE))
    for each in (whole, pointers, variant("im2win")):
        y = conv2d(x, w, method="im2win", variant=each)
        assert np.array_equal(y.astype(np.float64), exact(x, w, g))


# --- refusals -------------------------------------------------------------------------------------

REFUSED = [
    ("neighbours", Geometry(1, 8, 20, 8, 16, 3, 3), "16 bytes 1 apart"),
    ("neighbours", Geometry(1, 8, 6, 3, 16, 3, 3), "in rows of 4"),
    ("neighbours", Geometry(1, 8, 20, 3, 16, 3, 3, dilation=(1, 2)), "no runs"),
    ("neighbours", Geometry(1, 8, 20, 3, 1, 3, 3), "18 x 1 elements"),
    ("window", Geometry(1, 20, 20, 16, 16, 3, 3, (9, 1)), "at most 8"),
    ("window", Geometry(1, 400, 8, 16, 16, 3, 3, dilation=(70, 1)), "corner"),
    ("window", Geometry(1, 8, 8, 16, 16, 3, 3, groups=2), "bytes, and a step of 32"),
    ("window", Geometry(1, 8, 8, 24, 16, 3, 3, groups=2), "no step of TMA"),
    ("window", Geometry(1, 8, 8, 3, 16, 3, 3), "bytes apart"),
    ("rows", Geometry(1, 8, 8, 16, 16, 3, 3, padding=(1, 1, 1, 1)), "padding"),
    ("rows", Geometry(1, 8, 8, 16, 16, 3, 3, dilation=(2, 2)), "dilation"),
    ("rows", Geometry(1, 8, 8, 16, 16, 3, 3, groups=2), "groups"),
    ("rows", Geometry(1, 8, 8, 3, 16, 3, 3), "bytes apart"),
    ("taps", Geometry(1, 8, 8, 16, 16, 3, 3, (2, 2)), "stride"),
    ("taps", Geometry(1, 8, 8, 8, 16, 3, 3, groups=2), "bytes apart"),
    ("im2win", Geometry(1, 8, 8, 16, 16, 3, 3, (3, 3)), "im2col is no larger"),
    ("im2win", Geometry(1, 8, 8, 16, 16, 3, 3, dilation=(2, 2)), "dilation"),
    ("im2win", Geometry(1, 8, 8, 16, 16, 3, 3, groups=2), "groups"),
    ("im2col", Geometry(1, 8, 8, 16, 16, 3, 3, groups=2), "groups"),
    ("merged", Geometry(1, 8, 8, 80, 80, 3, 3, groups=2), "stand alone"),
    ("merged", Geometry(1, 400, 8, 16, 16, 3, 3, dilation=(70, 1), groups=4), "corner"),
    ("merged", Geometry(1, 8, 8, 20, 20, 3, 3, groups=5), "bytes apart"),
    ("neighbours", Geometry(8, 9, 34, 12, 1, 5, 5, padding=(1, 1, 1, 1)), "no tile's columns"),
]


@pytest.mark.parametrize(("form", "g", "reason"), REFUSED)
def test_refusals_name_the_rule(form, g, reason):
    x, w = arrays(g)
    with pytest.raises(ArgumentError, match=reason):
        run(g, form, x, w)


@settings(max_examples=300, deadline=None)
@given(
    *(st.integers(1, most) for most in (3, 40, 40, 64, 96, 7)),
    *(st.integers(0, 3), st.integers(1, 3), st.sampled_from(["f16", "f32"])),
)
def test_a_form_that_takes_a_convolution_has_tiles(n, h, w, c, co, f, padding, stride, dtype):
    assume(min(h, w) + 2 * padding >= f)
    g = Geometry(n, h, w, c, co, f, f, (stride, stride), (padding,) * 4)
    asked = bind(*(tawa.array(shape, dtype) for shape in (g.images, (co, f, f, c))), g).problem
    for form in forms_of(asked):
        assert refused(form, asked) or ranked(form, asked), form
    assert variants(asked)


@pytest.mark.parametrize(
    ("reason", "options"),
    [
        ("no method|method=", {"method": "winograd"}),
        ("layout=", {"layout": "nchw"}),
        ("stride=", {"stride": 0}),
        ("dilation=", {"dilation": (1, 2, 3)}),
        ("padding=", {"padding": "full"}),
        ("padding=", {"padding": -1}),
        ("stride 1 only", {"padding": "same", "stride": 2}),
        ("evenly", {"groups": 5}),
        ("its group", {"groups": 2}),
        ("do not fit", {"dilation": 9}),
        ("no activation", {"activation": "tanh"}),
        ("out_dtype", {"out_dtype": "i32"}),
        ("bias", {"bias": integers(5)}),
        ("scale", {"scale": integers(24)}),
        ("residual", {"residual": integers(1, 8, 8, 24)}),
        ("im2col is no larger", {"method": "im2win", "stride": 3}),
    ],
)
def test_wrong_arguments(reason, options):
    x, w = integers(1, 8, 8, 16), integers(24, 3, 3, 16)
    with pytest.raises(ArgumentError, match=reason):
        conv2d(x, w, **options)


def test_channels_apart_are_refused_unless_copied():
    g = Geometry(2, 9, 11, 16, 24, 3, 3)
    x, w = arrays(g)
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    with pytest.raises(ArgumentError, match="side by side"):
        conv2d(planes, w)
    y = conv2d(planes, w, layout="copy")
    assert np.array_equal(y.astype(np.float64), exact(x, w, g))


def test_torch_has_channels_first():
    torch = pytest.importorskip("torch")
    last = torch.channels_last
    g = Geometry(2, 9, 11, 16, 24, 3, 3, (2, 2), (1, 1, 1, 1))
    x, w = (torch.from_numpy(each.transpose(0, 3, 1, 2)) for each in arrays(g))
    assert x.is_contiguous(memory_format=last)
    for _ in range(3):
        y = conv2d(x, w, stride=2, padding=1)
        assert y.is_contiguous(memory_format=last)
        want = torch.nn.functional.conv2d(x.double(), w.double(), stride=2, padding=1)
        assert torch.equal(y.double(), want)
    with pytest.raises(ArgumentError, match="side by side"):
        conv2d(x.contiguous(), w)
    with pytest.raises(ArgumentError, match="requires a gradient"):
        conv2d(x, w.clone().requires_grad_())
    with torch.no_grad():
        conv2d(x, w.clone().requires_grad_())
    with torch.autograd.forward_ad.dual_level():
        conv2d(x, w)
        with pytest.raises(ArgumentError, match="w carries a tangent"):
            conv2d(x, torch.autograd.forward_ad.make_dual(w, w))


@pytest.mark.parametrize("padding", [0, 2, (3, 1), "same", "valid"])
def test_one_axis(padding):
    sides = {"same": (2, 2), "valid": (0, 0), 0: (0, 0), 2: (2, 2)}.get(padding, padding)
    stride = 1 if padding == "same" else 2
    g = Geometry(2, 1, 31, 16, 24, 1, 5, (1, stride), (0, 0, *sides))
    x, w = arrays(g)
    bias = integers(24, seed=2)
    want = exact(x, w, g)[:, 0] + bias
    y = conv1d(x[:, 0], w[:, 0], bias, stride=stride, padding=padding)
    assert np.array_equal(y.astype(np.float64), want)
    out = np.empty_like(y)
    assert conv1d(x[:, 0], w[:, 0], bias, stride=stride, padding=padding, out=out) is out
    assert np.array_equal(out, y)


def test_one_axis_of_torch():
    torch = pytest.importorskip("torch")
    x, w = torch.tensor(integers(2, 31, 16)).mT, torch.tensor(integers(24, 5, 16, seed=1)).mT
    y = conv1d(x, w, padding=2, dilation=2, groups=1)
    want = torch.nn.functional.conv1d(x.double(), w.double(), padding=2, dilation=2)
    assert torch.equal(y.double(), want)


# --- the choice -----------------------------------------------------------------------------------


def test_a_choice_is_remembered():
    x, w, tuner = integers(1, 8, 8, 16), integers(24, 3, 3, 16), Tuner()
    conv2d(x, w, tuner=tuner)
    (chosen,) = tuner.best.values()
    assert chosen.form in VIEWS
    conv2d(x, w, tuner=tuner, method="im2col")
    assert len(tuner.best) == 2


def test_few_tiles_are_dealt_out():
    g = Geometry(1, 7, 7, 512, 512, 3, 3)
    found = variants(problem(g))
    assert found[0].splits > 1


@pytest.mark.parametrize(
    ("tiles", "steps", "of_the_last"),
    [
        (400, 38, [(396, 9)]),
        (192, 36, [(132, 2)]),
        (264, 36, []),
        (132, 36, []),
        (250, 36, []),
        (133, 6, []),
    ],
)
def test_the_last_wave_is_shared(tiles, steps, of_the_last):
    found = list(shares(tiles, steps, 132))
    assert [each for each in found if each[0]] == of_the_last
    assert all((tiles - whole) * splits <= 2 * 132 for whole, splits in found if splits > 1)
    g = Geometry(128, 24, 24, 96, 256, 5, 5)  # 400 tiles of 128 x 256
    rows = [each for each in variants(problem(g)) if each.form == "rows"]
    assert {bool(each.whole) for each in rows} == {True, False}


def test_narrow_tiles_are_added_up_whole():
    g = Geometry(1, 9, 11, 16, 24, 3, 3)
    x, w = arrays(g)
    chosen = variant("window", 3, 1, BLOCK_N=8)
    assert np.array_equal(conv2d(x, w, variant=chosen, out_dtype="f32"), exact(x, w, g))


def test_what_stands_side_by_side_is_summed_whole():
    x, w = arrays(Geometry(1, 8, 8, 32, 64, 3, 3, groups=8))
    with pytest.raises(ArgumentError, match="merged and 2 parts of a sum"):
        conv2d(x, w, groups=8, variant=variant("merged", 2))
    x, w = arrays(Geometry(1, 8, 12, 3, 64, 3, 3))
    with pytest.raises(ArgumentError, match="neighbours and 2 parts of a sum"):
        conv2d(x, w, variant=variant("neighbours", 2, CHANNELS=3))


def test_boxes_fit_the_image():
    g = Geometry(128, 56, 56, 64, 64, 3, 3)
    first = variants(problem(g), "taps")[0]
    images, rows, columns = first.box
    count = -(-128 // images) * -(-54 // rows) * -(-54 // columns)
    assert count * images * rows * columns < 1.1 * g.pixels


@pytest.mark.parametrize("c", [3, 16])
def test_first_layers_are_specialized(c):
    """The product of every packed form and view has a producer of its own."""
    g = Geometry(2, 33, 33, c, 64, 7, 7, (2, 2))
    for form in ("window", "rows", *PACKINGS):
        if refused(form, problem(g)):
            continue
        x, w = arrays(g)
        launch = prepare(bind(x, w, g), variant(form))[-1]
        assert re.search("^ *load: ", str(launch.compile()), re.MULTILINE), form
