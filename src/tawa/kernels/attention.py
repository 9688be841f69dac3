"""`attention`: softmax(scale * Q K^T) V of arrays of shape (batch, heads, sequence, head_dim).

On a GPU the variants of a kind of problem are timed once and the fastest is remembered; in the
simulator, where time means nothing, the first that compiles is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tawa
from tawa.errors import ArgumentError, TawaError, TuningError
from tawa.kernels.arrays import BYTES, View, empty_beside, fits_tma, look
from tawa.kernels.flash import attention_forward
from tawa.kernels.prepare import Launch

TYPES = ("f16", "bf16")
MOST_HEAD_DIM = 256
# Heads walked side by side under a causal mask keep their keys and values in this share of L2.
_L2_SHARE = 0.5
_L2_BYTES = 50 << 20
_LONG = 2048


@dataclass(frozen=True, slots=True)
class Problem:
    """What a choice depends on; `heads` are those of the queries, `groups` share a head of keys."""

    dtype: str
    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    head_dim: int
    causal: bool

    @property
    def flops(self) -> float:
        """4 * batch * heads * queries * keys * head_dim, half of it under a causal mask."""
        whole = 4.0 * self.batch * self.heads * self.queries * self.keys * self.head_dim
        return whole / 2 if self.causal else whole


@dataclass(frozen=True, slots=True)
class Variant:
    """A tile of `rows` queries by `columns` keys, and the plan's pins.

    `split` gives the tiles that need a mask a loop of their own.
    """

    rows: int
    columns: int
    split: bool = False
    pins: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """Return tile, loops and pins in one line."""
        named = [f"{name}={value}" for name, value in self.pins]
        return " ".join([f"{self.rows}x{self.columns}", *(["split"] if self.split else []), *named])


# Tiles by the head's width, the likely best first: queries, keys, turns of the warpgroups.
_TILES: dict[int, tuple[tuple[int, int, str], ...]] = {
    64: (
        (192, 128, "pingpong"),
        (192, 128, ""),
        (128, 128, "pingpong"),
        (128, 128, ""),
        (128, 192, "pingpong"),
        (128, 192, ""),
    ),
    128: (
        (128, 128, "pingpong"),
        (128, 128, ""),
        (128, 176, "pingpong"),
        (128, 176, ""),
    ),
    256: ((128, 64, "pingpong"), (128, 64, "")),
}


def variants(problem: Problem) -> Iterator[Variant]:
    """Return the variants worth timing, the likely best first."""
    width = padded(problem.head_dim)
    tiles = _TILES[64 if width <= 64 else 128 if width <= 128 else 256]
    for rows, columns, turns in tiles:
        pins = (("arrangement", turns),) if turns else ()
        ragged = problem.causal or problem.keys % columns
        for split in (False, True) if ragged else (False,):
            yield Variant(rows, columns, split, pins)
        if problem.causal:
            # The hardware gives the next program to whoever is free first.
            yield Variant(rows, columns, False, (*pins, ("persistent", False)))
    if problem.queries <= 64:
        yield Variant(64, tiles[0][1])


def padded(head_dim: int) -> int:
    """Return the width of the tiles for a head: whole swizzled panels of 64 columns.

    Copies give zeros for columns past the head's end and drop those written there.
    """
    return -(-head_dim // 64) * 64


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Any = None,
    return_lse: bool = False,
    variant: Variant | None = None,
    tuner: Tuner | None = None,
) -> Any:
    """Return softmax(scale * q k^T) v, for torch, CuPy or NumPy arrays.

    Args:
        q: [batch, heads, queries, head_dim], f16 or bf16, any strides with contiguous rows.
        k: [batch, kv_heads, keys, head_dim]; kv_heads divides heads (grouped queries).
        v: like `k`.
        causal: query i sees keys up to i + keys - queries; a row that sees none becomes zero.
        scale: of the scores, by default 1 / sqrt(head_dim).
        out: like `q`, made here if not given.
        return_lse: return (out, lse) with the natural logarithm of each row's sum of exponentials,
            float32 [batch, heads, queries], -inf for rows that see no key.
        variant: the tile and pins to use instead of tuning.
        tuner: remembers what was fastest; by default one for the whole process.

    Raises:
        ArgumentError: shapes, types or strides do not fit together.
        TuningError: no variant could be built; the message lists why.

    Arrays on a GPU are worked on there, on the current stream; NumPy arrays in the simulator.
    """
    operands = bind(q, k, v, causal=causal, scale=scale, out=out, lse=return_lse)
    problem = operands.problem
    if 0 not in operands.shape:
        if problem.keys == 0:
            operands.out[...] = 0
            if return_lse:
                operands.lse[...] = -math.inf
        else:
            if variant is None:
                time = _time if look(q).device.kind == "cuda" else None
                variant = (_TUNER if tuner is None else tuner).choose(operands, time)
            prepare(operands, variant)()
    return (operands.out, operands.lse) if return_lse else operands.out


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of one problem, checked against one another."""

    problem: Problem
    q: Any
    k: Any
    v: Any
    out: Any
    lse: Any
    scale: float

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        problem = self.problem
        return (problem.batch, problem.heads, problem.queries, problem.head_dim)


def bind(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Any = None,
    lse: bool = False,
) -> Operands:
    """Check arrays against one another, make what is missing; raises `ArgumentError`."""
    views = {"q": look(q), "k": look(k), "v": look(v)}
    for name, view in views.items():
        _check_rank(name, view)
    batch, heads, queries, dim = views["q"].shape
    shared = views["k"].shape[1]
    keys = views["k"].shape[2]
    for name in ("k", "v"):
        _check_shape(name, views[name], (batch, shared, keys, dim))
    _check_heads(heads, shared, dim)
    dtype = views["q"].dtype
    _check_types(views)
    if out is None:
        out = empty_beside(q, (batch, heads, queries, dim), dtype)
    views["out"] = look(out)
    _check_shape("out", views["out"], (batch, heads, queries, dim))
    if views["out"].dtype != dtype:
        raise ArgumentError(f"out holds {views['out'].dtype}", why=f"q holds {dtype}")
    for name, view in views.items():
        _check_strides(name, view)
    problem = Problem(dtype, batch, heads, heads // max(1, shared), queries, keys, dim, causal)
    sums = empty_beside(q, (batch, heads, queries), "f32") if lse else None
    factor = 1 / math.sqrt(dim) if scale is None and dim else scale
    return Operands(problem, q, k, v, out, sums, float(factor or 0.0))


def _check_rank(name: str, view: View) -> None:
    if len(view.shape) != 4:
        raise ArgumentError(
            f"{name} has shape {tuple(view.shape)}",
            why="attention takes arrays of shape (batch, heads, sequence, head_dim)",
        )


def _check_shape(name: str, view: View, wanted: tuple[int, ...]) -> None:
    if tuple(view.shape) != wanted:
        raise ArgumentError(
            f"{name} has shape {tuple(view.shape)}",
            why=f"beside the other arrays it must have {wanted}",
        )


def _check_heads(heads: int, shared: int, dim: int) -> None:
    if heads and (shared == 0 or heads % shared):
        raise ArgumentError(
            f"q has {heads} heads, k and v have {shared}",
            why="a head of keys serves a whole number of query heads",
        )
    if dim > MOST_HEAD_DIM:
        raise ArgumentError(
            f"head_dim is {dim}",
            why=f"tiles of more than {MOST_HEAD_DIM} columns do not fit registers",
        )


def _check_types(views: dict[str, View]) -> None:
    kinds = {name: view.dtype for name, view in views.items()}
    if len(set(kinds.values())) > 1 or kinds["q"] not in TYPES:
        listed = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise ArgumentError(f"element types {listed}", why=f"all must be one of {', '.join(TYPES)}")


def _check_strides(name: str, view: View) -> None:
    if 0 in view.shape:
        return
    if (view.strides[-1] != 1 and view.shape[-1] != 1) or not fits_tma(view, view.strides):
        raise ArgumentError(
            f"{name} has strides {tuple(view.strides)} at address {view.address:#x}",
            why="TMA takes contiguous rows whose bases and strides are multiples of 16 bytes",
            remedy=f"pass {name}.contiguous(), or a head_dim that is a multiple of 8",
        )


def prepare(operands: Operands, variant: Variant) -> Launch:
    """Return the launch that computes a problem by `variant`."""
    problem = operands.problem
    width = padded(problem.head_dim)

    def describe(array: Any, rows: int) -> Any:
        return tawa.TensorDescriptor.from_tensor(array, [1, 1, rows, width])

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
        side_by_side(problem, persistent=dict(variant.pins).get("persistent", True)),
        operands.scale,
    )
    options = {
        "GROUP": problem.groups,
        "BLOCK_M": variant.rows,
        "BLOCK_N": variant.columns,
        "HEAD_DIM": width,
        "CAUSAL": problem.causal,
        "TAIL": problem.keys % variant.columns != 0,
        "SPLIT": variant.split,
        "LSE": operands.lse is not None,
    }
    grid = (blocks * problem.batch * problem.heads,)
    return Launch(attention_forward, grid, arguments, options | dict(variant.pins))


def side_by_side(problem: Problem, *, persistent: bool = True) -> int:
    """Return how many heads are walked together: all programs that are long start early then.

    Under a causal mask as many as leave their keys and values in L2; else one after the other.
    A persistent kernel deals tiles out in fixed rounds, so it needs many rounds of falling length
    to come out even: it walks more heads together, all of them where each is long.
    """
    if not problem.causal:
        return 1
    each = 2 * problem.keys * problem.head_dim * BYTES[problem.dtype] / problem.groups
    pairs = problem.batch * problem.heads
    if persistent and problem.keys >= _LONG:
        return pairs
    most = max(1, int(_L2_SHARE * _L2_BYTES * (4 if persistent else 1) / max(1.0, each)))
    return max(n for n in range(1, min(most, pairs) + 1) if pairs % n == 0)


class Tuner:
    """Remembers the fastest variant of each problem it has timed."""

    def __init__(self) -> None:
        self.best: dict[Problem, Variant] = {}

    def choose(
        self, operands: Operands, time: Callable[[Callable[[], Any]], float] | None
    ) -> Variant:
        """Return the variant to use: the fastest by `time` (a call's ms), or the first that builds.

        Raises `TuningError` with every reason when none can be built.
        """
        problem = operands.problem
        if (known := self.best.get(problem)) is not None:
            return known
        reasons: list[str] = []
        timed: list[tuple[float, int, Variant]] = []
        for index, variant in enumerate(variants(problem)):
            launch = prepare(operands, variant)
            try:
                launch.compile()
            except TawaError as error:
                reasons.append(f"{variant}: {error.what}")
                continue
            timed.append((0.0 if time is None else time(launch), index, variant))
            if time is None:
                break
        if not timed:
            raise TuningError(
                f"no variant of attention can be built for {problem}", why="\n".join(reasons)
            )
        self.best[problem] = min(timed)[2]
        return self.best[problem]


def _time(call: Callable[[], Any]) -> float:
    """Return a call's median time on the GPU in milliseconds."""
    found = tawa.testing.do_bench(call)
    assert isinstance(found, float), "no quantiles were asked for"
    return found


_TUNER = Tuner()
