"""Gradients of the library's convolutions in the simulator, against float64 in NumPy."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import conv_windows
from tawa.kernels.conv_geometry import Geometry
from tawa.kernels.conv_gradients import (
    conv2d_input_gradient,
    conv2d_weight_gradient,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    input_launches,
    input_variants,
)
from tawa.kernels.conv_operands import bind
from tawa.kernels.conv_variants import Variant, variants
from tawa.kernels.conv_weight_gradient import weight_launches, weight_variants
from tawa.runtime.arrays import array
from test_kernels_conv import exact, integers


def taps(x, g):
    """Yield (row, column, what the output's pixels see of x through that tap), in float64."""
    top, bottom, left, right = g.padding
    x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    for row in range(g.fh):
        for column in range(g.fw):
            down, across = row * g.dilation[0], column * g.dilation[1]
            rows = slice(down, down + g.stride[0] * (g.ho - 1) + 1, g.stride[0])
            columns = slice(across, across + g.stride[1] * (g.wo - 1) + 1, g.stride[1])
            yield row, column, x, (slice(None), rows, columns)


def weight_gradient(x, dy, g):
    dw = np.zeros((g.co, g.fh, g.fw, g.channels))
    for row, column, padded, seen in taps(x, g):
        for group in range(g.groups):
            out = slice(group * g.filters, (group + 1) * g.filters)
            within = slice(group * g.channels, (group + 1) * g.channels)
            left = dy[..., out].reshape(-1, g.filters).astype(np.float64)
            dw[out, row, column] = left.T @ padded[seen][..., within].reshape(-1, g.channels)
    return dw


def input_gradient(w, dy, g):
    total = 0
    for row, column, padded, seen in taps(np.zeros((g.n, g.h, g.w, g.c)), g):
        padded = padded.copy()
        for group in range(g.groups):
            out = slice(group * g.filters, (group + 1) * g.filters)
            within = slice(group * g.channels, (group + 1) * g.channels)
            one = dy[..., out].astype(np.float64) @ w[out, row, column].astype(np.float64)
            padded[seen][..., within] += one
        total = total + padded
    top, _, left, _ = g.padding
    return total[:, top : top + g.h, left : left + g.w]


def options(g):
    return {
        "stride": g.stride,
        "padding": ((g.padding[0], g.padding[1]), (g.padding[2], g.padding[3])),
        "dilation": g.dilation,
        "groups": g.groups,
        "out_dtype": "f32",
    }


def window(rows, columns, depth, **how):
    """A variant of the view "window"."""
    sizes = {"BLOCK_I": 1, "BLOCK_H": 1, "BLOCK_W": rows, "BLOCK_N": columns, "BLOCK_K": depth}
    return Variant("window", tawa.Config(sizes), **how)


def products(rows, columns, parts=1, abreast=1):
    """A variant of the filters' gradient."""
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "ABREAST": abreast}
    return Variant("products", tawa.Config(sizes), parts)


def arrays(g):
    x = integers(g.n, g.h, g.w, g.c)
    w = integers(g.co, g.fh, g.fw, g.channels, seed=1)
    return x, w, integers(g.n, g.ho, g.wo, g.co, seed=2)


@st.composite
def geometries(draw):
    groups = draw(st.sampled_from((1, 1, 2)))
    dilation = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (2, 3))))
    stride = (draw(st.integers(1, 4)), draw(st.integers(1, 3)))
    fh, fw = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    least = ((fh - 1) * dilation[0] + 1, (fw - 1) * dilation[1] + 1)
    plain = dilation == (1, 1)
    return Geometry(
        draw(st.integers(0, 3)),
        draw(st.integers(least[0], 13)),
        draw(st.integers(least[1], 14)),
        groups * draw(st.sampled_from((3, 8, 16, 40) if plain or groups > 1 else (8, 16, 40))),
        groups * draw(st.sampled_from((1, 8, 24) if groups > 1 else (8, 24, 72))),
        fh,
        fw,
        stride,
        tuple(draw(st.integers(0, 2)) for _ in range(4)),
        dilation,
        groups,
    )


@given(geometries())
def _random_gradients(g):
    x, w, dy = arrays(g)
    dx = conv2d_input_gradient(x.shape, w, dy, **options(g))
    assert np.array_equal(dx, input_gradient(w, dy, g) if g.n else np.zeros(x.shape))
    dw = conv2d_weight_gradient(x, w.shape, dy, **options(g))
    assert np.array_equal(dw, weight_gradient(x, dy, g))


LENIENT = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def test_random_gradients():
    how = {"derandomize": True, "phases": [Phase.generate]}
    settings(max_examples=3, **how, **LENIENT)(_random_gradients)()


@pytest.mark.long
def test_many_random_gradients():
    settings(max_examples=600, **LENIENT)(_random_gradients)()


SHAPES = [
    Geometry(2, 9, 11, 16, 24, 3, 3),  # rows of windows, with overhang
    Geometry(2, 9, 11, 16, 24, 3, 3, (2, 2), (1, 1, 1, 1)),  # windows that TMA counts
    Geometry(3, 7, 5, 32, 80, 3, 2, padding=(1, 1, 1, 0), groups=2),  # dy in boxes
    Geometry(1, 4, 262, 16, 16, 1, 3, dilation=(1, 130)),  # both in boxes: far corners
    Geometry(1, 7, 5, 64, 64, 3, 2, (2, 1), (1, 0, 2, 1), (1, 2), 16),  # groups side by side
]


NARROW = Geometry(1, 7, 5, 6, 12, 3, 2, (2, 1), (1, 0, 2, 1), (1, 2), 3)
"""Groups of 2 to 4 channels, whose strips of pixels overhang a row."""


@pytest.mark.parametrize("g", [*SHAPES, NARROW])
def test_an_inf_in_x_spoils_only_the_taps_that_see_it(g):
    x, w, dy = arrays(g)
    dy = np.where(dy == 0, dy.dtype.type(1), dy)
    clean = weight_gradient(x, dy, g)
    for row in (0, g.h - 1):
        for column in (0, g.w - 1):
            spoilt, marked = x.copy(), np.zeros_like(x)
            spoilt[-1, row, column, 3], marked[-1, row, column, 3] = np.inf, 1
            reached = weight_gradient(marked, np.abs(dy), g) != 0
            dw = conv2d_weight_gradient(spoilt, w.shape, dy, **options(g))
            assert np.array_equal(dw[~reached], clean[~reached])
            assert not np.isfinite(dw[reached]).any()


@pytest.mark.parametrize("g", [*SHAPES, NARROW])
def test_a_nan_in_dy_spoils_only_the_pixels_that_it_saw(g):
    x, w, dy = arrays(g)
    w = np.where(w == 0, w.dtype.type(1), w)
    clean = input_gradient(w, dy, g)
    for place in (0, -1):
        spoilt, marked = dy.copy(), np.zeros_like(dy)
        spoilt[-1, place, place, 5], marked[-1, place, place, 5] = np.nan, 1
        reached = input_gradient(np.abs(w), marked, g) != 0
        dx = conv2d_input_gradient(x.shape, w, spoilt, **options(g))
        assert np.array_equal(dx[~reached], clean[~reached])
        assert np.isnan(dx[reached]).all()


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_types(dtype):
    g = Geometry(2, 9, 11, 16, 24, 3, 3, (2, 2), (1, 1, 1, 1))
    x, w, dy = (each.astype(integers(1, dtype=dtype).dtype) for each in arrays(g))
    assert np.array_equal(
        conv2d_input_gradient(x.shape, w, dy, **options(g)), input_gradient(w, dy, g)
    )
    assert np.array_equal(
        conv2d_weight_gradient(x, w.shape, dy, **options(g)), weight_gradient(x, dy, g)
    )


@pytest.mark.parametrize("g", SHAPES)
def test_products_are_specialized(g):
    x, w, dy = arrays(g)
    back = conv_windows.conv_windows
    launches = input_launches(g, dy, w, np.empty_like(x))
    products = [launch for launch in launches if launch.kernel is back]
    products += weight_launches(g, x, dy, np.empty_like(w))[-2:-1]
    for launch in products:
        assert re.search("^ *load: ", str(launch.compile()), re.MULTILINE)


@pytest.mark.parametrize(
    ("taps", "parts"),
    [((1, 3), 1), ((3, 3), 1), ((3, 3), 2), ((4, 4), 4)],
)
def test_a_sum_that_few_tiles_have_is_dealt_out(taps, parts):
    """And one of one part and one parity is stored by TMA."""
    g = Geometry(2, 7, 9, 16, 24, *taps, padding=(1, 1, 1, 1))
    x, w, dy = arrays(g)
    variant = window(64, 32, 16, splits=parts)
    launches = input_launches(g, dy, w, dx := np.full_like(x, np.nan), variant)
    found = launches[0].options
    assert (found["VIEW"], found.get("PARTS", 1)) == ("window", parts)
    assert len(launches) == 1 + (parts > 1)
    for launch in launches:
        launch()
    assert np.array_equal(dx, input_gradient(w, dy, g).astype(np.float16))


def test_more_tiles_than_one_are_tried():
    """Where a sum's tiles do not fill a GPU, parts do; no tile is tried twice."""
    g = Geometry(8, 14, 14, 256, 256, 3, 3, padding=(1, 1, 1, 1))
    _, w, dy = arrays(g)
    found = input_variants(g, dy, w)
    assert len({str(each) for each in found}) == len(found) == 12
    assert {each.form for each in found} == {"window", "taps"}
    assert any(each.splits > 1 for each in found)


def test_groups_of_few_channels_are_tried_side_by_side():
    """ResNeXt's: as many as 64 channels hold, in every kernel; a group of 64 stands alone."""
    for groups, beside in ((64, 16), (32, 8), (16, 4), (4, 1)):
        g = Geometry(8, 28, 28, 256, 256, 3, 3, padding=(1, 1, 1, 1), groups=groups)
        x, w, dy = (array(shape, "f16") for shape in (g.images, g.kernels, g.results))
        merged = any(each.form == "merged" for each in weight_variants(g, x, dy))
        assert merged == (beside > 1)
        assert ("merged" in {each.form for each in input_variants(g, dy, w)}) == (beside > 1)
        forms = {each.form for each in variants(bind(x, w, g).problem)}
        assert ("merged" in forms) == (beside > 1)


@pytest.mark.parametrize("size", [(64, 64), (128, 256), (256, 128)])
@pytest.mark.parametrize("parts", [1, 3])
def test_every_tile_computes_the_filters_gradient(size, parts):
    """Also where parts are no multiple of those that are read at once; one part is dw itself."""
    g = Geometry(2, 9, 11, 256, 256, 1, 1)
    x, w, dy = arrays(g)
    launches = weight_launches(
        g, x, dy, dw := np.full(w.shape, np.nan, np.float32), products(*size, parts)
    )
    assert len(launches) == min(parts, 2)
    if parts == 3:
        assert (launches[-1].options["PARTS"], launches[-1].options["WIDE"]) == (3, 4)
    for launch in launches:
        launch()
    assert np.array_equal(dw, weight_gradient(x, dy, g))


@pytest.mark.parametrize("size", [(128, 192), (256, 96), (64, 32)])
@pytest.mark.short("size0", "size1")
def test_every_tile_can_be_built(size):
    g = Geometry(8, 14, 14, 256, 256, 3, 3, padding=(1, 1, 1, 1))
    x, w, dy = (
        array(shape, "f16") for shape in ((8, 14, 14, 256), (256, 3, 3, 256), (8, 14, 14, 256))
    )
    back = input_launches(g, dy, w, x, window(*size, 64))
    for launch in (*back, *weight_launches(g, x, dy, w, products(*size))):
        assert re.search("^ *load: ", str(launch.compile()), re.MULTILINE)


def test_a_small_filter_of_many_pixels_fills_the_chip():
    x = array((8, 56, 56, 64), "f16")
    g = Geometry(8, 56, 56, 64, 256, 1, 1)
    best = weight_variants(g, x, array(g.results, "f16"))[0]
    sizes = best.config.kwargs
    programs = (256 // sizes["BLOCK_M"]) * (64 // sizes["BLOCK_N"]) * best.splits
    assert 66 <= programs <= 132


def test_parts_are_added_in_one_order():
    g = Geometry(4, 16, 16, 16, 24, 3, 3)
    x = np.random.default_rng(0).standard_normal((4, 16, 16, 16)).astype(np.float16)
    dy = np.random.default_rng(1).standard_normal((4, 14, 14, 24)).astype(np.float16)
    assert weight_launches(g, x, dy, np.empty((24, 3, 3, 16), np.float16))[-1].options["PARTS"] > 1
    first, second = (conv2d_weight_gradient(x, (24, 3, 3, 16), dy) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    "g",
    [
        Geometry(2, 15, 17, 3, 24, 7, 5, (2, 2), (3, 3, 2, 2)),
        Geometry(1, 5, 6, 3, 8, 1, 1),  # dx is one product, which TMA cannot store
    ],
)
def test_channels_filled_up_have_gradients(g):
    x, w, dy = arrays(g)
    dw = conv2d_weight_gradient(x, w.shape, dy, **options(g))
    assert np.array_equal(dw, weight_gradient(x, dy, g))
    dx = conv2d_input_gradient(x.shape, w, dy, **options(g))
    assert np.array_equal(dx, input_gradient(w, dy, g))


@pytest.mark.parametrize(("g", "abreast"), [(SHAPES[1], 3), (SHAPES[2], 2)])
@pytest.mark.short("g0-3")
def test_taps_abreast(g, abreast):
    x, w, dy = arrays(g)
    tile = products(64, 64, 2, abreast)
    launches = weight_launches(g, x, dy, dw := np.full(w.shape, np.nan, np.float32), tile)
    assert re.search("^ *load: ", str(launches[0].compile()), re.MULTILINE)
    for launch in launches:
        launch()
    assert np.array_equal(dw, weight_gradient(x, dy, g))


@pytest.mark.parametrize(
    "g", [Geometry(2, 3, 4, 8, 8, 3, 3, padding=(1, 1, 1, 1), groups=8), NARROW]
)
def test_groups_of_few_channels_have_gradients(g):
    x, w, dy = arrays(g)
    dx, dw = (np.full(each.shape, np.nan, np.float32) for each in (x, w))
    strips = tawa.Config({"BLOCK_R": 4, "BLOCK_C": 32, "STRIP": 4}, specialize=False)
    launches = input_launches(g, dy, w, dx, Variant("direct", strips))
    launches += weight_launches(g, x, dy, dw, Variant("direct", strips, 2))
    for launch in launches:
        launch()
    assert np.array_equal(dx, input_gradient(w, dy, g))
    assert np.array_equal(dw, weight_gradient(x, dy, g))


def test_no_images_have_gradients_of_few_channels():
    g = replace(NARROW, n=0)
    x, w, dy = arrays(g)
    assert not conv2d_weight_gradient(x, w.shape, dy, **options(g)).any()


def test_transposed():
    torch = pytest.importorskip("torch")
    last = torch.channels_last
    for stride, more, groups in ((1, 0, 1), (2, 1, 1), ((3, 2), (1, 0), 2)):
        x, w = torch.tensor(integers(1, 16, 5, 6)), torch.tensor(integers(16, 8, 3, 4, seed=1))
        x, w = x.to(memory_format=last), w.to(memory_format=last)
        how = {"stride": stride, "padding": 1, "output_padding": more, "groups": groups}
        want = torch.nn.functional.conv_transpose2d(x.double(), w.double(), **how)
        y = conv_transpose2d(x, w, out_dtype="f32", **how)
        assert torch.equal(y.double(), want)
        assert y.is_contiguous(memory_format=last)


@pytest.mark.parametrize("axes", [1, 3])
def test_transposed_signals_and_volumes(axes):
    torch = pytest.importorskip("torch")
    ours = {1: conv_transpose1d, 3: conv_transpose3d}[axes]
    size, groups = (5, 4, 6)[-axes:], 2 if axes == 1 else 1
    x, w = integers(2, 16, *size), integers(16, 8, *(3, 2, 3)[-axes:], seed=1)
    how = {"stride": 2, "padding": 1, "output_padding": 1, "groups": groups}
    given = torch.tensor(x).double(), torch.tensor(w).double()
    want = getattr(torch.nn.functional, f"conv_transpose{axes}d")(*given, **how)
    last = [np.ascontiguousarray(np.moveaxis(each, 1, -1)) for each in (x, w)]
    assert np.array_equal(np.moveaxis(ours(*last, out_dtype="f32", **how), -1, 1), want.numpy())


def test_refusals_name_the_rule():
    g = Geometry(1, 9, 9, 3, 16, 3, 3, (2, 2), dilation=(2, 2))
    x, w, dy = arrays(g)
    with pytest.raises(ArgumentError, match="neither dilation nor"):
        conv2d_weight_gradient(x, w.shape, dy, **options(g))
    g = Geometry(1, 9, 9, 16, 3, 3, 3)
    x, w, dy = arrays(g)
    with pytest.raises(ArgumentError, match="rows lie 42 bytes apart"):
        conv2d_input_gradient(x.shape, w, dy)
    rows = Variant("rows", window(64, 32, 16).config)
    with pytest.raises(ArgumentError, match="sum over taps"):
        input_launches(g, array(dy.shape, "f16"), array(w.shape, "f16"), x, rows)
    g = Geometry(1, 9, 9, 3, 16, 3, 3)
    x, w, dy = arrays(g)
    with pytest.raises(ArgumentError, match="the result has"):
        conv2d_weight_gradient(x, w.shape, dy, padding=1)
    with pytest.raises(ArgumentError, match="one type"):
        conv2d_weight_gradient(x, w.shape, dy.astype(np.float32))
    with pytest.raises(ArgumentError, match="below the stride"):
        conv_transpose2d(integers(1, 4, 4, 16), integers(16, 3, 3, 16), output_padding=1)


def test_the_two_gradients_belong_to_the_convolution():
    """<conv(x, w), dy> = <x, dx> = <w, dw>."""
    g = Geometry(2, 9, 11, 16, 24, 3, 3, (2, 2), (1, 1, 1, 1))
    x, w, dy = arrays(g)
    whole = float((exact(x, w, g) * dy).sum())
    dx = conv2d_input_gradient(x.shape, w, dy, **options(g))
    dw = conv2d_weight_gradient(x, w.shape, dy, **options(g))
    assert float((x.astype(np.float64) * dx).sum()) == whole
    assert float((w.astype(np.float64) * dw).sum()) == whole


def test_signals_are_images_one_pixel_high():
    x, w, dy = integers(2, 15, 16), integers(8, 3, 16, seed=1), integers(2, 8, 8, seed=2)
    high = {"stride": (1, 2), "padding": (0, 1)}
    dx = conv2d_input_gradient(x.shape, w, dy, stride=2, padding=1)
    assert np.array_equal(
        dx, conv2d_input_gradient((2, 1, 15, 16), w[:, None], dy[:, None], **high)[:, 0]
    )
    dw = conv2d_weight_gradient(x, w.shape, dy, stride=2, padding=(1, 1))
    assert np.array_equal(
        dw, conv2d_weight_gradient(x[:, None], (8, 1, 3, 16), dy[:, None], **high)[:, 0]
    )


def test_a_refused_gradient_tells_of_the_address_what_matters():
    x, dy = integers(1, 4, 4, 3), integers(1, 3, 3, 3)
    with pytest.raises(
        ArgumentError, match=r"dy has 3 channels a group at address \d+ mod 16"
    ) as e:
        conv2d_weight_gradient(x, (3, 2, 2, 3), dy)
    (address,) = re.findall(r"address (\d+)", str(e.value))
    assert int(address) < 16
