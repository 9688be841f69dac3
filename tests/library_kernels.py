"""The launches of the library, by name, on small arrays: every form of product, of
convolution and of attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

import tawa
from lower_kernels import DTYPES, integers
from tawa.kernels import (
    attention,
    conv_gradients,
    conv_operands,
    conv_prepare,
    conv_variants,
    conv_weight_gradient,
    prepare,
    variants,
)
from tawa.kernels.attention import Variant
from tawa.kernels.conv_geometry import Geometry
from tawa.kernels.prepare import Launch

TURNS = (("arrangement", "pingpong"),)
HEADS = 2


@dataclass(frozen=True)
class Library:
    """A launch of a call of the library: which of those that `launches` makes.

    `launches` takes the length of the sum, or the number of keys, a multiple of `step`; None is a
    usual one, with an uneven tail. What divides the sum into parts takes one iteration at `least`.
    """

    launches: Callable[[int | None], list[Launch]]
    index: int = 0
    step: int = 0
    exact: bool = True
    least: int = 0


# --- products -------------------------------------------------------------------------------------


def _product(
    extent: int | None,
    form: str,
    m: int = 200,
    n: int = 272,
    dtype: str = "bf16",
    tile: tuple[int, int, int] = (128, 128, 64),
    splits: int = 1,
    whole: int = 0,
    batch: int = 0,
    turned: str = "",
    **options: Any,
) -> list[Launch]:
    k = 208 if extent is None else extent
    lead = (batch,) if batch else ()

    def operand(letter: str, rows: int, columns: int) -> np.ndarray:
        if letter not in turned:
            return integers((*lead, rows, columns), dtype)
        return integers((*lead, columns, rows), dtype).swapaxes(-1, -2)

    out = np.full((*lead, m, n), np.nan, DTYPES["bf16"])
    finish = {
        name: _vector(name, m, n) if options.pop(name) is True else None
        for name in ("bias", "scale_a", "scale_b")
        if name in options
    }
    finish |= {"activation": options.pop("activation", "")}
    operands = prepare.bind(operand("a", m, k), operand("b", k, n), out, **finish)
    sizes = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile))
    if form == "pointers":
        sizes["GROUP_M"] = 8
    config = tawa.Config(sizes, **options)
    return prepare.prepare(operands, variants.Variant(form, config, splits, whole=whole))


def _vector(name: str, m: int, n: int) -> np.ndarray:
    size = m if name == "scale_a" else n
    kind = "bf16" if name == "bias" else "f32"
    return integers((size,), kind, 1, 3)


def _products() -> Iterator[tuple[str, Library]]:
    for form in ("descriptors", "pointers"):
        yield f"library {form} 0", Library(partial(_product, form=form), 0, 64)
    # Nobody shares out an empty sum: the library launches no such form for it.
    make = partial(_product, form="split", splits=3)
    for index in range(2):
        yield f"library split {index}", Library(make, index, 0 if index else 64, least=1)
    yield "library last wave", Library(partial(make, whole=2), 0, 64, least=1)
    once = partial(_product, form="split_once", persistent=False)
    yield "library split_once 0", Library(partial(once, splits=3), 0, 64, least=1)
    by_rows = partial(once, m=24, n=200, tile=(64, 32, 128), splits=2, turned="b")
    yield "library few rows", Library(by_rows, 0, 128, least=1)
    batched = partial(_product, form="descriptors", m=136, n=136, batch=2, turned="b")
    yield "library batched", Library(batched, 0, 64)
    finished = partial(_product, form="descriptors", bias=True, activation="gelu")
    yield "library epilogue", Library(finished, 0, 64, exact=False)
    scaled = {"dtype": "f8e4m3", "tile": (128, 128, 128), "turned": "b"}
    scaled |= {"scale_a": True, "scale_b": True}
    yield "library scales", Library(partial(_product, form="descriptors", **scaled), 0, 128, False)


# --- attention ------------------------------------------------------------------------------------


def normal(*shape: int, dtype: str = "f16", seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(DTYPES[dtype])


def _attention(
    extent: int | None,
    variant: Variant,
    dim: int = 64,
    queries: int = 200,
    keys: int = 152,
    groups: int = 1,
    batch: int = 1,
    dtype: str = "f16",
    splits: int = 0,
    **options: Any,
) -> list[Launch]:
    keys = keys if extent is None else extent
    q = normal(batch, HEADS, queries, dim, dtype=dtype)
    k, v = (normal(batch, HEADS // groups, keys, dim, dtype=dtype, seed=seed) for seed in (1, 2))
    if options.pop("bias", False):
        options["bias"] = normal(1, HEADS, queries, keys, seed=5)
    if dtype == "f8e4m3":
        options["descale"] = (0.5, 2.0, 1.0)
    if page := options.pop("page", 0):
        k, v, options["block_table"] = _pages(k, v, page)
    out = np.full(q.shape, np.nan, np.float16)
    operands = attention.bind(q, k, v, out=out, lse=options.pop("lse", True), **options)
    split = mock.patch("tawa.kernels.attention_launches.splits_of", return_value=splits)
    if not splits:
        return attention.launches(operands, variant)
    with split:
        return attention.launches(operands, variant)


def _pages(k: np.ndarray, v: np.ndarray, page: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys and values in pages of a shuffled order, and the table."""
    batch, heads, keys, dim = k.shape
    count = -(-keys // page)
    table = np.random.default_rng(3).permutation(batch * count)
    table = table.reshape(batch, count).astype(np.int32)
    held = np.zeros((2, batch * count, heads, page, dim), k.dtype)
    for index, array in enumerate((k, v)):
        for b in range(batch):
            for j in range(count):
                part = array[b, :, j * page : (j + 1) * page]
                held[index, table[b, j], :, : part.shape[1]] = part
    return held[0].copy(), held[1].copy(), table


def _paged(extent: int | None, page: int) -> list[Launch]:
    """Two caches of keys in pages: filled to the length given, and to half of it."""
    length, other = (100, 41) if extent is None else (extent, extent // 2)
    keys = max(128, -(-length // 128) * 128)
    how = {"variant": Variant(8, 64), "queries": 1, "groups": 2, "batch": 2, "keys": keys}
    lengths = np.array([length, other], np.int32)
    return _attention(None, splits=1, page=page, lengths=lengths, **how)


def _packed(extent: int | None) -> list[Launch]:
    """Three sequences: the first is the longest, the second empty."""
    lengths = (100 if extent is None else extent, 0, 72)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    q, k, v = (
        np.ascontiguousarray(normal(1, HEADS, sum(lengths), 64, seed=seed)) for seed in range(3)
    )
    out = np.full(q.shape, np.nan, np.float16)
    operands = attention.bind(q, k, v, out=out, lse=True, cu_seqlens=starts, causal=True)
    return attention.launches(operands, Variant(64, 64))


def _packed_over_a_cache(extent: int | None) -> list[Launch]:
    """Queries of three sequences, one empty, over keys that begin and end in rows of their own."""
    keys = 100 if extent is None else extent
    starts = np.array([0, 9, 9, 14], np.int32)
    begin, end = (np.array(each, np.int32) for each in ((0, 3, 5), (keys, 4, 5 + keys // 2)))
    q = normal(1, 2 * HEADS, 14, 64)
    k, v = (normal(3, HEADS, keys + 8, 64, seed=seed) for seed in (1, 2))
    out = np.full(q.shape, np.nan, np.float16)
    options = {"cu_seqlens": starts, "leftpad": begin, "lengths": end}
    operands = attention.bind(q, k, v, out=out, lse=True, causal=True, **options)
    with mock.patch("tawa.kernels.attention_launches.splits_of", return_value=1):
        return attention.launches(operands, Variant(8, 64))


def _flash() -> Iterator[tuple[str, Library]]:
    for dim in (64, 128, 256):
        columns = 64 if dim == 256 else 128
        for causal in (False, True):
            for split in (False, True) if causal else (False,):
                for pins in ((), TURNS):
                    name = f"flash {dim}{' causal' * causal}{' split' * split}"
                    name += " in turns" * bool(pins)
                    variant = Variant(128, columns, split, pins)
                    how = {"variant": variant, "dim": dim, "causal": causal, "lse": False}
                    yield name, Library(partial(_attention, **how), 0, columns, False)
    three = Variant(192, 128, pins=(("consumers", 3), *TURNS))
    make = partial(_attention, variant=three, queries=392, lse=False)
    yield "flash 64 three in turns", Library(make, 0, 128, False)
    for schedule in ("fine", "coarse"):
        variant = Variant(128, 64, True, (("schedule", schedule),))
        make = partial(_attention, variant=variant, causal=True, lse=False)
        yield f"flash 64 causal split {schedule}", Library(make, 0, 64, False)


SLOPES = np.array([0.5, 0.0625], np.float32)
SINKS = np.array([1.5, -0.5], np.float32)
OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"window": 40, "causal": True},
    "window both sides": {"window": (70, 30)},
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi": SLOPES},
    "sink": {"sink": SINKS, "groups": 2},
    "bias": {"bias": True},
}


def _attentions() -> Iterator[tuple[str, Library]]:
    small = Variant(64, 64)
    for name, options in OPTIONS.items():
        make = partial(_attention, variant=small, queries=136, **options)
        yield f"attention {name}", Library(make, 0, 64, False)
    for index in range(2):
        # The first of the two kernels orders the tiles: none of its loops is over keys.
        yield f"attention packed {index}", Library(_packed, index, 64 * index, False)
    yield "attention packed over a cache", Library(_packed_over_a_cache, 1, 64, False)
    few = {"variant": Variant(64, 64), "queries": 3, "groups": 2, "causal": True}
    yield "attention few queries", Library(partial(_attention, splits=1, **few), 0, 64, False)
    few["variant"] = Variant(8, 64)
    yield "attention split keys", Library(partial(_attention, splits=2, **few), 0, 64, False)
    for name, page in (("pages", 64), ("gathered pages", 16)):
        yield f"attention {name}", Library(partial(_paged, page=page), 0, 64, False)
    narrow = {"variant": Variant(128, 96), "dim": 128, "dtype": "f8e4m3", "queries": 136}
    yield "attention e4m3", Library(partial(_attention, **narrow), 0, 96, False)


# --- convolutions ---------------------------------------------------------------------------------


def _convolution(
    extent: int | None,
    form: str,
    geometry: Geometry,
    tile: tuple[int, ...] | dict[str, int] = (1, 8, 8, 64, 64),
    splits: int = 1,
    whole: int = 0,
    **options: Any,
) -> list[Launch]:
    """A convolution of `geometry`; with `extent` channels, and windows of one pixel, if given."""
    g = geometry
    if extent is not None:
        g = replace(g, c=extent * g.groups, fh=1, fw=1)
    x, w = integers((g.n, g.h, g.w, g.c), "f16"), integers((g.co, g.fh, g.fw, g.channels), "f16")
    out = np.full((g.n, g.ho, g.wo, g.co), np.nan, np.float16)
    finish: dict[str, Any] = {}
    if options.pop("finish", False):
        finish = {"bias": integers((g.co,), "f16", 1, 3), "activation": "relu"}
        finish |= {"residual": integers(out.shape, "f16"), "scale": _vector("scale_b", 1, g.co)}
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
    if len(tile) == 5:
        names = ("BLOCK_I", "BLOCK_H", "BLOCK_W", "BLOCK_N", "BLOCK_K")
    sizes = tile if isinstance(tile, dict) else dict(zip(names, tile))
    config = tawa.Config(sizes, **options)
    operands = conv_operands.bind(x, w, g, out, **finish)
    return conv_prepare.prepare(operands, conv_variants.Variant(form, config, splits, whole))


def _convolutions() -> Iterator[tuple[str, Library]]:
    plain = Geometry(2, 10, 12, 48, 72, 3, 3)
    around = replace(plain, padding=(1, 2, 0, 1))
    flat = (1, 1, 64, 64, 64)
    make = partial(_convolution, form="window", geometry=replace(around, stride=(1, 2)), tile=flat)
    yield "conv window", Library(make, 0, 64)
    for form, g in (
        ("rows", plain),
        ("taps", replace(around, dilation=(2, 1))),
    ):
        yield f"conv {form}", Library(partial(_convolution, form=form, geometry=g), 0, 64)
    grouped = replace(around, c=96, groups=2, co=144)
    make = partial(_convolution, form="taps", geometry=grouped)
    yield "conv groups", Library(make, 0, 64)
    make = partial(_convolution, form="taps", geometry=around, finish=True)
    yield "conv finished", Library(make, 0, 64)
    make = partial(_convolution, form="taps", geometry=around, splits=3)
    for index in range(2):
        yield f"conv split {index}", Library(make, index, 0 if index else 64, least=1)
    yield "conv last wave", Library(partial(make, whole=2, finish=True), 0, 64, least=1)
    few = replace(around, c=64, co=128, groups=8)
    make = partial(_convolution, form="merged", geometry=few, tile=flat)
    yield "conv merged", Library(make, 1)
    first = Geometry(2, 15, 17, 3, 72, 5, 5, (2, 2))
    line = {"BLOCK_I": 1, "BLOCK_H": 64, "BLOCK_W": 1, "BLOCK_N": 96, "BLOCK_K": 64, "BESIDE": 4}
    line["CHANNELS"] = 3
    make = partial(_convolution, form="neighbours", geometry=first, tile=line, finish=True)
    yield "conv neighbours", Library(make, 2)
    for index in range(3):
        # Of the three launches the first two pack: none of their loops is over channels.
        make = partial(_convolution, form="im2win", geometry=first)
        yield f"conv im2win {index}", Library(make, index)
    thin = replace(around, stride=(1, 2), c=40, co=40, groups=40)
    strips = {"BLOCK_R": 8, "BLOCK_C": 32, "STRIP": 3}
    make = partial(_convolution, form="direct", geometry=thin, tile=strips, specialize=False)
    yield "conv direct", Library(make, 1)
    odd = replace(around, c=10, co=26, groups=2)
    make = partial(_convolution, form="pointers", geometry=odd, tile=(64, 32, 32))
    yield "conv pointers", Library(make, 0, 32)


def _gradient(
    extent: int | None, geometry: Geometry, of: str, parts: int = 1, **how: Any
) -> list[Launch]:
    """A gradient: of the input, summed over `extent` filters, or of the filters, over images."""
    g = geometry
    if extent is not None:
        change = {"co": extent, "fh": 1, "fw": 1} if of == "input" else {"n": extent}
        g = replace(g, **change)
    dy = integers((g.n, g.ho, g.wo, g.co), "f16")
    if of == "input":
        dx = np.full((g.n, g.h, g.w, g.c), np.nan, np.float16)
        w = integers((g.co, g.fh, g.fw, g.channels), "f16")
        names = ("BLOCK_I", "BLOCK_H", "BLOCK_W", "BLOCK_N", "BLOCK_K")
        config = tawa.Config(dict(zip(names, (1, 1, 128, 64, 64))))
        variant = conv_variants.Variant(how.pop("form", "window"), config, parts, **how)
        return conv_gradients.input_launches(g, dy, w, dx, variant)
    abreast, form = how.pop("abreast", 1), how.pop("form", "products")
    pins: dict[str, Any] = {"store": "registers"} if abreast > 1 else {}
    sizes = {"BLOCK_M": 128, "BLOCK_N": 64, "ABREAST": abreast}
    variant = conv_variants.Variant(form, tawa.Config(sizes, **pins), parts)
    dw = np.full((g.co, g.fh, g.fw, g.channels), np.nan, np.float16)
    x = integers((g.n, g.h, g.w, g.c), "f16")
    return conv_weight_gradient.weight_launches(g, x, dy, dw, variant)


def _gradients() -> Iterator[tuple[str, Library]]:
    strided = Geometry(2, 9, 11, 40, 72, 3, 3, (2, 2), (1, 1, 1, 1))
    make = partial(_gradient, geometry=strided, of="input")
    yield "conv input gradient", Library(make, 0, 64)
    few = replace(strided, c=64, co=64, groups=8)
    make = partial(_gradient, geometry=few, of="input", form="merged")
    yield "conv input gradient merged", Library(make, 1)
    make = partial(_gradient, geometry=strided, of="input", parts=2, whole=2)
    for index in range(2):
        extent = 0 if index else 64
        yield f"conv input gradient last wave {index}", Library(make, index, extent, least=1)
    around = Geometry(5, 4, 8, 40, 72, 3, 3, padding=(1, 1, 1, 1))
    for name, g in (("rows", Geometry(5, 6, 10, 40, 72, 3, 3)), ("window", around)):
        make = partial(_gradient, geometry=g, of="filters")
        yield f"conv filters' gradient {name}", Library(make, 0, 2, least=1)
    make = partial(_gradient, geometry=around, of="filters", abreast=3)
    yield "conv filters' gradient abreast", Library(make, 0, 2, least=1)
    make = partial(_gradient, geometry=around, of="filters", parts=2)
    yield "conv filters' gradient added", Library(make, 1)


def _all() -> Iterator[tuple[str, Library]]:
    yield from _products()
    yield from _gradients()
    yield from _convolutions()
    yield from _flash()
    yield from _attentions()


LIBRARY: dict[str, Library] = dict(_all())
