"""Convolutions of volumes in the simulator, against float64 in NumPy."""

import numpy as np
import pytest

import tawa
from tawa.errors import ArgumentError
from tawa.kernels.conv import conv3d
from tawa.kernels.conv_gradients import conv3d_input_gradient, conv3d_weight_gradient
from tawa.kernels.conv_variants import Variant

SIZES = {"BLOCK_I": 1, "BLOCK_H": 1, "BLOCK_W": 64, "BLOCK_N": 32, "BLOCK_K": 16}
TILE = Variant("window", tawa.Config(SIZES))


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def seen_by(pixels, taps, stride=(1, 1, 1), padding=((0, 0),) * 3, dilation=(1, 1, 1), groups=1):
    """Yield each tap and the slices of padded volumes that the output's pixels see through it."""
    extents = [extent + sum(sides) for extent, sides in zip(pixels, padding)]
    counts = [(n - (f - 1) * d - 1) // s + 1 for n, f, d, s in zip(extents, taps, dilation, stride)]
    for tap in np.ndindex(*taps):
        along = [
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, counts)
        ]
        yield tap, (slice(None), *along), counts


def grouped(groups, filters, channels):
    for group in range(groups):
        yield (
            slice(group * filters // groups, (group + 1) * filters // groups),
            slice(group * channels, (group + 1) * channels),
        )


def exact(x, w, padding=((0, 0),) * 3, groups=1, **how):
    pixels, y = x.shape[1:-1], None
    x = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
    for tap, along, counts in seen_by(pixels, w.shape[1:-1], padding=padding, **how):
        y = np.zeros((x.shape[0], *counts, w.shape[0])) if y is None else y
        for rows, within in grouped(groups, w.shape[0], w.shape[-1]):
            y[..., rows] += x[along][..., within] @ w[(rows, *tap)].astype(np.float64).T
    return y


def gradients(x, w, dy, padding=((0, 0),) * 3, groups=1, **how):
    """Return dx and dw in float64."""
    pixels, dy = x.shape[1:-1], dy.astype(np.float64)
    x = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
    dx, dw = np.zeros_like(x), np.zeros(w.shape)
    for tap, along, _ in seen_by(pixels, w.shape[1:-1], padding=padding, **how):
        for rows, within in grouped(groups, w.shape[0], w.shape[-1]):
            dx[along][..., within] += dy[..., rows] @ w[(rows, *tap)].astype(np.float64)
            dw[(rows, *tap)] = np.tensordot(
                dy[..., rows], x[along][..., within], ((0, 1, 2, 3),) * 2
            )
    inner = (slice(low, low + extent) for (low, _), extent in zip(padding, pixels))
    return dx[(slice(None), *inner)], dw


@pytest.mark.parametrize(
    ("pixels", "taps", "how"),
    [
        ((4, 5, 6), (3, 3, 3), {"padding": ((1, 1),) * 3}),
        ((6, 5, 7), (2, 3, 1), {"stride": (2, 1, 3), "padding": ((1, 0), (0, 2), (0, 0))}),
        ((5, 6, 5), (2, 2, 3), {"dilation": (2, 1, 2), "groups": 2}),
    ],
)
def test_volumes(pixels, taps, how):
    groups = how.get("groups", 1)
    x, w = integers(2, *pixels, 16 * groups), integers(48, *taps, 16, seed=1)
    assert np.array_equal(conv3d(x, w, variant=TILE, **how), exact(x, w, **how))


def test_what_follows_the_sum_and_the_model_s_tile():
    x, w = integers(1, 3, 4, 5, 32), integers(40, 2, 2, 2, 32, seed=1)
    bias, residual = integers(40, seed=2), integers(1, 2, 3, 4, 40, seed=3)
    out = np.full((1, 2, 3, 4, 40), np.nan, np.float32)
    assert conv3d(x, w, bias, residual=residual, activation="relu", out=out) is out
    assert np.array_equal(out, np.maximum(exact(x, w) + bias + residual, 0))
    split = Variant("window", tawa.Config(SIZES), 3)
    y = conv3d(x, w, bias, residual=residual, out_dtype="f32", variant=split)
    assert np.array_equal(y, exact(x, w) + bias + residual)


def test_torch_has_channels_first():
    torch = pytest.importorskip("torch")
    x, w = integers(2, 4, 5, 6, 16), integers(24, 3, 3, 3, 16, seed=1)
    first = [torch.from_numpy(each).permute(0, 4, 1, 2, 3) for each in (x, w)]
    y = conv3d(*first, padding="same", variant=TILE)
    assert y.shape == (2, 24, 4, 5, 6)
    assert y.is_contiguous(memory_format=torch.channels_last_3d)
    want = exact(x, w, padding=((1, 1),) * 3)
    assert np.array_equal(y.permute(0, 2, 3, 4, 1).numpy(), want)


GRADIENTS = [
    ((4, 5, 6), (3, 3, 3), {"padding": ((1, 1),) * 3}),
    ((4, 5, 6), (1, 1, 3), {"padding": ((0, 0), (0, 0), (2, 1))}),
    ((7, 5, 6), (2, 3, 1), {"stride": (3, 2, 1), "padding": ((1, 0), (0, 2), (0, 0)), "groups": 2}),
    ((7, 5, 8), (3, 1, 2), {"stride": (2, 1, 2), "dilation": (2, 1, 3)}),
]


@pytest.mark.parametrize(("pixels", "taps", "how"), GRADIENTS)
@pytest.mark.short("pixels0-taps0-how0", "pixels3-taps3-how3")
def test_gradients(pixels, taps, how):
    groups = how.get("groups", 1)
    x, w = integers(2, *pixels, 16 * groups), integers(32 * groups, *taps, 16, seed=1)
    dy = integers(*exact(x, w, **how).shape, seed=2)
    dx, dw = gradients(x, w, dy, **how)
    kept = {"out_dtype": "f32", **how}
    assert np.array_equal(conv3d_input_gradient(x.shape, w, dy, **kept), dx)
    assert np.array_equal(conv3d_weight_gradient(x, w.shape, dy, **kept), dw)


def test_gradients_of_torch_and_of_no_volumes():
    torch = pytest.importorskip("torch")
    x, w = integers(1, 3, 4, 5, 16), integers(24, 2, 2, 2, 16, seed=1)
    dy = integers(1, 2, 3, 4, 24, seed=2)
    first = [torch.from_numpy(each).permute(0, 4, 1, 2, 3) for each in (x, w, dy)]
    dx = conv3d_input_gradient(first[0].shape, first[1], first[2], out_dtype="f32")
    dw = conv3d_weight_gradient(first[0], first[1].shape, first[2], out_dtype="f32")
    for found, want in zip((dx, dw), gradients(x, w, dy)):
        assert found.is_contiguous(memory_format=torch.channels_last_3d)
        assert np.array_equal(found.permute(0, 2, 3, 4, 1).numpy(), want)
    assert not conv3d_weight_gradient(x[:0], w.shape, dy[:0]).any()


def test_refusals_of_gradients_name_the_rule():
    x, w, dy = integers(1, 4, 4, 4, 16), integers(8, 3, 3, 3, 16), integers(1, 2, 2, 2, 8)
    with pytest.raises(ArgumentError, match="the result has"):
        conv3d_weight_gradient(x, w.shape, dy, padding=1)
    with pytest.raises(ArgumentError, match="the result has"):
        conv3d_input_gradient(x.shape, w, dy, padding=1)
    with pytest.raises(ArgumentError, match="it has 5 axes"):
        conv3d_input_gradient(x.shape[1:], w, dy)
    with pytest.raises(ArgumentError, match="lower corner"):
        conv3d_weight_gradient(x, w.shape, integers(1, 36, 36, 36, 8), padding=17)
    wide = integers(1, 2, 2, 2, 48)
    apart = {"padding": 18, "dilation": 9}
    with pytest.raises(ArgumentError, match="upper corner"):
        conv3d_input_gradient(x.shape, w, integers(1, 22, 22, 22, 8), **apart)
    with pytest.raises(ArgumentError, match="a step of 32"):
        conv3d_input_gradient((1, 4, 4, 4, 32), integers(48, 3, 3, 3, 16), wide, groups=2)


@pytest.mark.parametrize(
    ("why", "shape", "filters", "how"),
    [
        ("multiples of 16", (1, 4, 4, 4, 3), (8, 3, 3, 3, 3), {}),
        ("at most 8", (1, 20, 4, 4, 16), (8, 3, 3, 3, 16), {"stride": (9, 1, 1)}),
        ("lower corner", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"padding": 17}),
        ("a group are 48 bytes", (1, 4, 4, 4, 48), (16, 3, 3, 3, 24), {"groups": 2}),
        ("do not fit", (1, 2, 4, 4, 16), (8, 3, 3, 3, 16), {}),
        ("3 groups of", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"groups": 3}),
        ("stride=", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"stride": (1, 2)}),
        ("padding=", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"padding": ((1, 1), (1, 1))}),
        ("size at stride 1", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"padding": "same", "stride": 2}),
        ("3D has 5 axes", (4, 4, 4, 16), (8, 3, 3, 3, 16), {}),
    ],
)
def test_refusals_name_the_rule(why, shape, filters, how):
    with pytest.raises(ArgumentError, match=why):
        conv3d(integers(*shape), integers(*filters), **how)
