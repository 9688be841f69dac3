"""Convolutions of volumes in the simulator, against float64 in NumPy."""

import numpy as np
import pytest

import tawa
from tawa.errors import ArgumentError
from tawa.kernels.conv_variants import Variant
from tawa.kernels.conv_volumes import conv3d

SIZES = {"BLOCK_I": 1, "BLOCK_H": 1, "BLOCK_W": 64, "BLOCK_N": 32, "BLOCK_K": 16}
TILE = Variant("window", tawa.Config(SIZES))


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def exact(x, w, stride=(1, 1, 1), padding=((0, 0),) * 3, dilation=(1, 1, 1), groups=1):
    x = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
    counts = [
        (n - (f - 1) * d - 1) // s + 1
        for n, f, d, s in zip(x.shape[1:-1], w.shape[1:-1], dilation, stride)
    ]
    y = np.zeros((x.shape[0], *counts, w.shape[0]))
    channels, filters = w.shape[-1], w.shape[0] // groups
    for tap in np.ndindex(*w.shape[1:-1]):
        along = [
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, counts)
        ]
        seen = x[(slice(None), *along)]
        for group in range(groups):
            rows = slice(group * filters, (group + 1) * filters)
            part = seen[..., group * channels : (group + 1) * channels]
            y[..., rows] += part @ w[(rows, *tap)].astype(np.float64).T
    return y


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


@pytest.mark.parametrize(
    ("why", "shape", "filters", "how"),
    [
        ("multiples of 16", (1, 4, 4, 4, 3), (8, 3, 3, 3, 3), {}),
        ("at most 8", (1, 20, 4, 4, 16), (8, 3, 3, 3, 16), {"stride": (9, 1, 1)}),
        ("lower corner", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"padding": 17}),
        ("stored by TMA", (1, 4, 4, 4, 16), (7, 3, 3, 3, 16), {}),
        ("a group are 48 bytes", (1, 4, 4, 4, 48), (16, 3, 3, 3, 24), {"groups": 2}),
        ("do not fit", (1, 2, 4, 4, 16), (8, 3, 3, 3, 16), {}),
        ("in 3 groups", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"groups": 3}),
        ("stride=", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"stride": (1, 2)}),
        ("padding=", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"padding": ((1, 1), (1, 1))}),
        ("size at stride 1", (1, 4, 4, 4, 16), (8, 3, 3, 3, 16), {"padding": "same", "stride": 2}),
        ("3D has 5 axes", (4, 4, 4, 16), (8, 3, 3, 3, 16), {}),
    ],
)
def test_refusals_name_the_rule(why, shape, filters, how):
    with pytest.raises(ArgumentError, match=why):
        conv3d(integers(*shape), integers(*filters), **how)
