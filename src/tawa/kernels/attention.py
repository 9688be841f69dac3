# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""`attention`: softmax(scale * Q K^T) V of arrays of shape (batch, heads, sequence, head_dim).

On a GPU the variants of a kind of problem are timed once and the fastest is remembered, in the
process and on disk; in the simulator, where time means nothing, the first that compiles is taken.
So it is for packed sequences and for few queries, whose lengths change from call to call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, cast

from tawa.kernels import attention_launches
from tawa.kernels import tuner as tuning
from tawa.kernels.arrays import BYTES, look
from tawa.kernels.attention_launches import (
    CHOSEN,
    Variant,
    describe,
    form,
    widest,
    widths,
)
from tawa.kernels.attention_operands import Operands, Problem, Window, bind
from tawa.kernels.attention_order import side_by_side
from tawa.kernels.attention_values import check_values
from tawa.kernels.flash import attention_forward
from tawa.kernels.prepare import Launch
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.runtime.arrays import CPU
from tawa.runtime.store import DiskStore
from tawa.runtime.tensors import cast_automatically, casts, opaque

Pins = tuple[tuple[str, Any], ...]
_PINGPONG: Pins = (("arrangement", "pingpong"),)
# One slot of queries and three of keys, which 80 columns leave room for.
_DEEP: Pins = (("depth", (("q", 1), ("k", 3), ("v", 3))),)
# Tiles by the head's width, the likely best first: queries, keys, pins. With heads of 128,
# 192 queries are 4 % ahead at 16k keys, level at 4k, behind at 1k.
_TILES: dict[int, tuple[tuple[int, int, Pins], ...]] = {
    64: (
        (192, 128, _PINGPONG),
        (192, 128, ()),
        (128, 128, _PINGPONG),
        (128, 128, ()),
    ),
    128: (
        (128, 128, _PINGPONG),
        (128, 128, ()),
        (192, 80, _DEEP),
        (192, 80, (*_PINGPONG, *_DEEP)),
    ),
    256: ((128, 64, _PINGPONG), (128, 64, ())),
}
# The same for 8-bit operands: products take half the time, so that longer tiles pay.
_TILES_8: dict[int, tuple[tuple[int, int, Pins], ...]] = {
    64: ((192, 128, _PINGPONG), (192, 128, ()), (128, 192, _PINGPONG), (128, 128, _PINGPONG)),
    128: (
        (128, 192, _PINGPONG),
        (128, 224, _PINGPONG),
        (128, 160, _PINGPONG),
        (128, 128, _PINGPONG),
        (128, 192, ()),
        (128, 128, ()),
    ),
    256: ((128, 96, ()), (128, 96, _PINGPONG), (128, 64, _PINGPONG), (128, 64, ())),
}
ARRAYS = (
    *("q", "k", "v", "out", "bias", "alibi", "sink"),
    *("cu_seqlens", "cu_seqlens_k", "block_table", "lengths", "leftpad", "rng"),
)
OPTIONS = ("causal", "scale", "window", "softcap", "dropout", "descale", "lse")
# Weights are 2 ** LIFT times their value in 8 bits: e4m3 holds numbers from 2 ** -9 to 448.
_LIFT = 8


def variants(problem: Problem) -> Iterator[Variant]:
    """Return the variants worth timing, the likely best first."""
    if form(problem) != "plain":
        yield from attention_launches.variants(problem)
        return
    width = widest(problem)
    narrow = BYTES[problem.dtype] == 1
    tiles = (_TILES_8 if narrow else _TILES)[64 if width <= 64 else 128 if width <= 128 else 256]
    for place, (rows, columns, pins) in enumerate(tiles):
        apart = bool(problem.keys % columns) and not problem.causal
        if place == 0 or not apart:
            yield Variant(rows, columns, False, pins)
        if apart:
            yield Variant(rows, columns, True, pins)
    if problem.queries <= 64:
        yield Variant(64, tiles[0][1])


@opaque
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: Window = None,
    softcap: float | None = None,
    bias: Any = None,
    alibi: Any = None,
    sink: Any = None,
    cu_seqlens: Any = None,
    block_table: Any = None,
    lengths: Any = None,
    leftpad: Any = None,
    dropout: float = 0.0,
    rng: Any = None,
    descale: tuple[float, float, float] | None = None,
    out: Any = None,
    return_lse: bool = False,
    launch_pdl: bool = False,
    variant: Variant | None = None,
    tuner: Tuner | None = None,
) -> Any:
    """Return softmax(scale * q k^T) v, for torch, CuPy or NumPy arrays.

    Query i of a sequence stands at the position i + keys - queries of its keys: the last query at
    the last key. A row that sees no key becomes zero.

    Args:
        q: [batch, heads, queries, head_dim], f16, bf16 or f8e4m3, any strides with contiguous rows.
        k: [batch, kv_heads, keys, head_dim]; kv_heads divides heads (grouped queries).
        v: like `k`; its head_dim, which the output has, may be another.
        causal: a query sees no key after its position.
        scale: of the products, by default 1 / sqrt(head_dim).
        window: the keys a query sees: n, those less than n away, or (left, right), at most so many
            before and after its position, None for all on that side.
        softcap: scores become softcap * tanh(scores / softcap).
        bias: is added to the scores: f16, bf16 or f32 [batch, heads, queries, keys], 1 where it is
            the same for all of the first three; -inf hides a key.
        alibi: f32 [heads], or [batch, heads], of packed sequences [sequences, heads]; minus this
            slope times the distance is added to the scores.
        sink: f32 [heads], the logit of one more key, which has no value.
        cu_seqlens: int32 [sequences + 1], where each sequence starts along the third axis of q, k
            and v, whose batch is 1, and the end; or such an array for q and one for k and v. Beside
            `block_table`, `lengths` or `leftpad` of q alone: k and v have a batch per sequence.
        block_table: int32 or int64 [batch, pages of a sequence]: k and v are pages, [pages,
            kv_heads, rows of a page, head_dim], and row j of a batch is row j % rows of page
            table[batch, j // rows]. What pages hold past the length must be finite numbers. A page
            that is not there is refused on the CPU; on a GPU the rows that see it become NaN. A
            table of one page a batch is where in k and v each batch lies.
        lengths: int32 or int64 [batch], the row where the keys of a batch end, where not at the
            last (a cache). More than there are is refused on the CPU; on a GPU all there are count.
        leftpad: int32 or int64 [batch], the row where the keys of a batch begin, 0 if not given;
            refused with several pages a batch.
        dropout: the probability that a weight becomes zero; the others are divided by 1 - dropout.
        rng: int64 [2] beside `dropout`, a seed and an offset (of which the low 32 bits count): the
            same are dropped wherever both are the same. `flash_scores.kept` says which.
        descale: what the elements of 8-bit q, k and v are multiplied by, one number each.
        out: like `q` with the head_dim of `v`, made here if not given; bf16 or f16 where q is
            f8e4m3.
        return_lse: return (out, lse) with the natural logarithm of each row's sum of exponentials,
            the sink's included, float32 [batch, heads, queries], -inf for rows that see no key.
        launch_pdl: let the kernels begin while the one before them in the stream ends.
        variant: the tile and pins to use instead of tuning.
        tuner: remembers what was fastest; by default one for the whole process, and the disk.

    Raises:
        ArgumentError: shapes, types or strides do not fit together; a gradient is asked for
            (`tawa.torch` has it); a tensor has no memory of its own (FakeTensor, vmap, sparse).
        TuningError: no variant could be built; the message lists why.

    Arrays on a GPU are worked on there, on the current stream; NumPy arrays in the simulator.

    >>> import numpy as np
    >>> q, k, v = (np.ones((1, 2, 8, 64), np.float16) for _ in range(3))
    >>> float(attention(q, k, v, causal=True, window=4)[0, 0, 7, 0])
    1.0
    """
    if out is None and casts():
        q, k, v = cast_automatically(q, k, v)
    best = _TUNER if tuner is None else tuner
    both = isinstance(cu_seqlens, tuple | list)
    starts, starts_k = cast("Any", cu_seqlens) if both else (cu_seqlens, None)
    cache = block_table, lengths, leftpad
    given = q, k, v, out, bias, alibi, sink, starts, starts_k, *cache, rng
    asked = causal, scale, window, softcap, dropout, descale, return_lse

    def write() -> Recipe:
        arrays: dict[str, Any] = dict(zip(ARRAYS, given))
        options: dict[str, Any] = dict(zip(OPTIONS, asked))
        held = symbols(arrays)
        operands = bind(**held, **options)
        writer = Writer(held, q, launch_pdl)
        if operands.problem.options.cached and look(q).device == CPU:
            page, places = operands.problem.options.page, look(operands.k).shape[0]
            extras = operands.extras
            writer.work(
                partial(check_values, operands.problem.keys, page, places),
                *(extras.lengths, extras.table, extras.leftpad),
            )
        if 0 in operands.shape:
            return writer.finish(operands.out, operands.lse)
        if operands.problem.keys == 0:
            writer.work(_without_keys, operands.out, operands.lse, operands.extras.sink)
            return writer.finish(operands.out, operands.lse)
        chosen = variant or best.known(operands.problem) or best.choose(bind(**arrays, **options))
        if out is not None:
            writer.apart(operands.out, {name: held[name] for name in held if name != "out"})
        for launch in launches(operands, chosen):
            writer.launch(launch)
        return writer.finish(operands.out, operands.lse)

    made, sums = best.recipes.run(given, (*asked, launch_pdl, variant), write)
    return (made, sums) if return_lse else made


def _without_keys(out: Any, lse: Any, sink: Any) -> None:
    out[...] = 0
    if lse is not None:
        lse[...] = -math.inf if sink is None else sink[:, None]


def launches(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that compute a problem by `variant`, in order."""
    if form(operands.problem) == "plain":
        return [prepare(operands, variant)]
    return attention_launches.prepare(operands, variant)


def prepare(operands: Operands, variant: Variant) -> Launch:
    """Return the launch that computes a problem without options by `variant`."""
    problem = operands.problem
    blocks = -(-problem.queries // variant.rows)
    arguments = (
        describe(operands.q, variant.rows),
        describe(operands.k, variant.columns),
        describe(operands.v, variant.columns),
        describe(operands.out, variant.rows),
        operands.lse,
        problem.queries,
        problem.keys,
        problem.heads,
        side_by_side(problem, dict(variant.pins).get("walk", "")),
        operands.scale,
        operands.value_scale,
    )
    options = {
        "GROUP": problem.groups,
        "BLOCK_M": variant.rows,
        "BLOCK_N": variant.columns,
        **widths(problem),
        "CAUSAL": problem.causal,
        "TAIL": problem.keys % variant.columns != 0,
        "SPLIT": variant.split,
        "LSE": operands.lse is not None,
        "LIFT": _LIFT if BYTES[problem.dtype] == 1 else 0,
    }
    grid = (blocks, problem.heads, problem.batch)
    if problem.causal:
        grid = (prod(grid),)
    return Launch(attention_forward, grid, arguments, options | CHOSEN | dict(variant.pins))


class Tuner(tuning.Tuner[Problem, Variant]):
    """Remembers the fastest variant of each problem it has timed, in memory and on disk."""

    def __init__(self, *, store: DiskStore | None = None, keep: bool = True) -> None:
        super().__init__("attention", ARRAYS, store=store, keep=keep)

    def choose(self, operands: Operands) -> Variant:
        """Return the variant to use: the fastest, or in the simulator the first that builds.

        Raises `TuningError` with every reason when none can be built.
        """
        problem = operands.problem

        def candidates() -> list[tuning.Candidate[Variant]]:
            return [
                tuning.Candidate(each, lambda each=each: tuning.ready(launches(operands, each)))
                for each in variants(problem)
            ]

        return self.settle(_kind(problem), candidates, operands.q, timed=not _varies(problem))

    def known(self, problem: Problem) -> Variant | None:
        """Return what was chosen for a problem before, None if nothing was."""
        return self.best.get(_kind(problem))


def _varies(problem: Problem) -> bool:
    """Tell whether lengths change from call to call; the tiles then do not depend on them."""
    return problem.options.packed or form(problem) == "decode"


def _kind(problem: Problem) -> Problem:
    """Return the problem under whose name a choice is kept."""
    if not _varies(problem):
        return problem
    return replace(problem, queries=min(problem.mean_queries, 128), keys=128)


_TUNER = Tuner()
