# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""`attention_backward`: the gradients of `attention` by q, k, v and bias, the same at every run or
not.

Three launches: what is needed of each row, dq (a sum over keys), dk and dv (sums over queries). Or,
where the order of dq's sum may change, one for all three, which adds to dq in float32, and one that
rounds it. Where that of the bias is asked for, one more. Tiles are chosen as those of `attention`
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Literal, TypeAlias, cast

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import tuner as tuning
from tawa.kernels.arrays import empty_beside, fits_tma, look
from tawa.kernels.attention_launches import (
    Variant,
    describe,
    factors,
    list_packed,
    widest,
    widths,
)
from tawa.kernels.attention_operands import Operands, Problem, Window, bind, settled
from tawa.kernels.flash_backward import (
    backward_bias,
    backward_keys,
    backward_queries,
    backward_round,
    backward_rows,
)
from tawa.kernels.prepare import Launch
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.runtime.arrays import row_major
from tawa.runtime.guards import span_of
from tawa.runtime.store import DiskStore
from tawa.runtime.tensors import opaque

Part: TypeAlias = Literal["queries", "keys", "dk", "dv", "all", "bias"]
"""A sum: dq over keys ("queries"), over queries dk and dv ("keys"), one of these alone, or both
and dq in no order ("all"); the gradient of the bias over the scores that share an element."""
Task: TypeAlias = tuple[Part, Problem]
"""What a choice depends on: which sum, and the problem of the forward pass."""

ARRAYS = (
    *("grad", "q", "k", "v", "out", "lse", "grad_lse"),
    *("alibi", "bias", "cu_seqlens", "cu_seqlens_k", "rng"),
    *("dq", "dk", "dv"),
)
_OPTIONAL = ARRAYS[7:-3]
TYPES = ("f16", "bf16")
# Rows of the first kernel; the rows that are kept are a multiple, and so of every tile.
_ROWS = 128
# Elements that a program of the last kernel rounds.
_AT_ONCE = 8192

_TOGETHER = (("arrangement", "cooperative"), ("blocks", 1))
_TURNS = (("arrangement", "pingpong"), ("blocks", 1))
# A constant of the kernels beside the pins: which product they start first.
_AHEAD = (*_TOGETHER, ("AHEAD", True))
# So many columns of dk and dv are summed by one program: 64 rows of them are all the registers of a
# consumer that are left beside the scores.
_TOGETHER_COLUMNS = 256
# Queries by keys, the likely best first, by which sum and a head's width. Sums and scores must fit
# the registers of two consumers: 64 queries for dk and dv, whose sums take twice as many.
_TILES: dict[tuple[Part, int], tuple[Variant, ...]] = {
    ("queries", 64): (
        Variant(128, 128, pins=_TOGETHER),
        Variant(128, 128, pins=_TURNS),
        Variant(128, 64, pins=_TURNS),
        Variant(64, 128),
    ),
    ("queries", 128): (
        Variant(128, 128, pins=_AHEAD),
        Variant(128, 64, pins=_TURNS),
        Variant(128, 64, pins=_TOGETHER),
        Variant(64, 64),
    ),
    ("keys", 64): (
        Variant(64, 128, pins=_TURNS),
        Variant(64, 128, pins=_TOGETHER),
        Variant(64, 64),
    ),
    # Packed sequences, which are not timed, take the first: the next spills with their masks.
    ("keys", 128): (
        Variant(32, 128, pins=_TOGETHER),
        Variant(64, 128, pins=_AHEAD),
        Variant(64, 128, pins=_TURNS),
        Variant(64, 64),
    ),
    ("all", 64): (
        Variant(64, 64, pins=(("blocks", 2), ("AHEAD", True))),
        Variant(64, 128, pins=_AHEAD),
        Variant(64, 64),
    ),
    # dk and dv leave through the slots of k and v: stages would leave room for one tile of queries.
    ("all", 128): (
        Variant(64, 128, pins=(*_AHEAD, ("store", "slot"))),
        Variant(64, 128, pins=_AHEAD),
        Variant(64, 64),
    ),
    ("queries", 256): (
        Variant(128, 32, pins=_TOGETHER),
        Variant(128, 64, pins=_TOGETHER),
        Variant(64, 64),
    ),
    ("dk", 256): (
        Variant(32, 128, pins=_TOGETHER),
        Variant(64, 128, pins=_TOGETHER),
        Variant(64, 64),
    ),
    ("dv", 256): (
        Variant(64, 128, pins=_TOGETHER),
        Variant(64, 128, pins=_TURNS),
        Variant(64, 64),
    ),
    # Sums, scores and the weights' gradients are all as large as the tile.
    ("bias", 64): (Variant(128, 64, pins=_TOGETHER), Variant(64, 64)),
    ("bias", 128): (Variant(128, 64, pins=_TOGETHER), Variant(64, 64)),
    ("bias", 256): (Variant(64, 64),),
}


@dataclass(frozen=True, slots=True)
class Gradients:
    """The arrays of one problem: those of the forward pass, and ours.

    `line` and `delta` are the workspace, float32 [batch, heads, queries rounded up]; `dq_sum` is
    float32 of q's shape where dq is summed in no order, else None; `dbias` is None where nobody
    asks for it.
    """

    forward: Operands
    lse: Any
    grad: Any
    grad_lse: Any
    dq: Any
    dk: Any
    dv: Any
    line: Any
    delta: Any
    dq_sum: Any
    dbias: Any = None

    @property
    def padded_queries(self) -> int:
        """The rows of the workspace: a tile that begins at any row of any sequence is within."""
        problem = self.forward.problem
        whole = -(-problem.queries // _ROWS) * _ROWS
        return whole + _ROWS if problem.options.packed else whole


class Tuner(tuning.Tuner[Task, Variant]):
    """Remembers the fastest tiles of each sum it has timed, in memory and on disk."""

    def __init__(self, *, store: DiskStore | None = None, keep: bool = True) -> None:
        super().__init__("attention_backward", ARRAYS, written="", store=store, keep=keep)

    def choose(self, part: Part, arrays: Gradients) -> Variant:
        """Return the variant of a sum: the fastest, or in the simulator the first that builds.

        Raises `TuningError` with every reason when none can be built.
        """

        def candidates() -> list[tuning.Candidate[Variant]]:
            def ready(tile: Variant) -> tuning.Call:
                return tuning.ready(prepare(part, arrays, tile), early=True)  # behind `rows`

            return [
                tuning.Candidate(each, partial(ready, each))
                for each in variants(part, arrays.forward.problem)
            ]

        problem = arrays.forward.problem
        packed = problem.options.packed  # their lengths change from call to call
        return self.settle(kind(part, problem), candidates, arrays.dq, timed=not packed)

    def known(self, part: Part, problem: Problem) -> Variant | None:
        """Return what was chosen for a sum before, None if nothing was."""
        return self.best.get(kind(part, problem))


def kind(part: Part, problem: Problem) -> Task:
    """Return the sum under whose name a choice is kept."""
    if problem.options.packed:
        problem = replace(problem, queries=128, keys=128)
    return part, problem


def parts(problem: Problem, deterministic: bool = True) -> tuple[Part, ...]:
    """Return the sums of a problem: those over queries together where both fit the registers, and
    not `deterministic` dq beside them there.
    """
    together = sum(widths(problem).values()) <= _TOGETHER_COLUMNS
    if together and not deterministic:
        return ("all",)
    return ("queries", "keys") if together else ("queries", "dk", "dv")


def variants(part: Part, problem: Problem) -> Iterator[Variant]:
    """Yield the tiles worth timing for a sum, the likely best first."""
    width = widest(problem)
    if width > 128:
        width = 128 if part in ("keys", "all") else 256
    tiles = _TILES[part, width]
    # A tile of a bias takes registers as scores do: by the largest, loops may wait for memory.
    large = [each for each in tiles if problem.options.bias and each.rows * each.columns > 128 * 64]
    yield from (*(each for each in tiles if each not in large), *large)


@opaque
def attention_backward(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: Window = None,
    softcap: float | None = None,
    alibi: Any = None,
    bias: Any = None,
    cu_seqlens: Any = None,
    dropout: float = 0.0,
    rng: Any = None,
    grad_lse: Any = None,
    deterministic: bool = True,
    bias_gradient: bool = False,
    into: tuple[Any, Any, Any] = (None, None, None),
    variants: tuple[Variant, ...] | None = None,
    tuner: Tuner | None = None,
) -> tuple[Any, ...]:
    """Return (dq, dk, dv), the gradients of a loss by the arguments of `attention`, and with
    `bias_gradient` dbias behind them.

    Args:
        grad: the gradient by `out`, of its shape and type.
        q, k, v: as `attention` was given them; f16 or bf16.
        out, lse: what `attention(..., return_lse=True)` returned. With a sink its `lse` has it, so
            that these gradients are right; the sink's own is -sum(exp(sink - lse) * delta).
        causal, scale, window, softcap, alibi, bias, cu_seqlens, dropout, rng: as `attention` was
            given them.
        grad_lse: the gradient by `lse`, float32 of its shape, where the loss depends on it.
        deterministic: the same result at every run. Otherwise dk and dv still are, but dq is added
            up in the order in which programs come, by atomic operations in float32: scores are
            computed once, not twice, for float32 [batch, heads, queries, head_dim] of workspace.
            Heads of more than 256 columns of keys and values together have one way, the former.
        bias_gradient: of the bias's shape and type, summed over what shares an element of it in
            float32, the same at every run; scores are computed once more for it.
        into: dense arrays for dq, dk and dv, of their shapes and types, with contiguous rows, of
            packed sequences row-major; by default new row-major ones.
        variants: the tiles of each of `parts`, then those of the bias, instead of tuning.
        tuner: remembers what was fastest; by default one for the whole process, and the disk.

    Raises:
        ArgumentError: shapes, types or strides do not fit together; the gradient of no bias.
        TuningError: no variant could be built; the message lists why.

    Sums are in float32, of products of weights and their gradients rounded to the operands' type.
    Of heads that share keys the gradients are summed before they are rounded.
    """
    best = _TUNER if tuner is None else tuner
    both = isinstance(cu_seqlens, tuple | list)
    starts, starts_k = cast("Any", cu_seqlens) if both else (cu_seqlens, None)
    given = grad, q, k, v, out, lse, grad_lse, alibi, bias, starts, starts_k, rng, *into
    options = {
        "causal": causal,
        "scale": scale,
        "window": window,
        "softcap": softcap,
        "dropout": dropout,
        "deterministic": deterministic,
        "bias_gradient": bias_gradient,
    }

    def write() -> Recipe:
        arrays: dict[str, Any] = dict(zip(ARRAYS, given))
        held = symbols(arrays)
        found = bind_gradients(held, options)
        writer = Writer(held, grad)
        results = [found.dq, found.dk, found.dv, *([found.dbias] if bias_gradient else [])]
        problem = found.forward.problem
        if 0 in (*found.forward.shape, problem.keys, problem.head_dim):
            for each in results:
                writer.work(_clear, each)
            return writer.finish(*results)
        sums = parts(problem, deterministic)
        if sums != ("all",):
            found = replace(found, dq_sum=None)
        if bias_gradient:
            sums = (*sums, "bias")
        writer.launch(prepare_rows(found))
        for place, part in enumerate(sums):
            chosen = variants[place] if variants else best.known(part, problem)
            if chosen is None:
                chosen = best.choose(part, bind_gradients(arrays, options))
            for launch in prepare(part, found, chosen):
                writer.launch(launch)
        return writer.finish(*results)

    return tuple(best.recipes.run(given, (*options.values(), variants), write))


def _clear(array: Any) -> None:
    array[...] = 0


def bind_gradients(arrays: dict[str, Any], options: dict[str, Any]) -> Gradients:
    """Check the arrays of a call against one another, make what is missing; `options` are those of
    `attention`, `deterministic` and `bias_gradient`. Raises `ArgumentError`.
    """
    options = dict(options)
    deterministic = options.pop("deterministic", True)
    bias, bias_gradient = arrays["bias"], options.pop("bias_gradient", False)
    q, k, v, out, lse = (arrays[name] for name in ("q", "k", "v", "out", "lse"))
    named = {name: arrays[name] for name in _OPTIONAL}
    forward = bind(q, k, v, out=out, **named, **options)
    problem = forward.problem
    if problem.dtype not in TYPES:
        raise ArgumentError(
            f"no gradient of attention for {problem.dtype}", why=f"one of {', '.join(TYPES)}"
        )
    if bias_gradient and bias is None:
        raise ArgumentError("the gradient of a bias, and no bias", remedy="pass bias=")
    bind(q, k, v, out=arrays["grad"])  # `grad` lies as an output does
    rows = (problem.batch, problem.heads, problem.queries)
    for name in ("lse", "grad_lse"):
        if (array := arrays[name]) is not None:
            _check_rows(name, array, rows)
    dq, dk, dv = (
        empty_beside(q, tuple(look(arrays[name[1:]]).shape), problem.dtype)
        if arrays[name] is None
        else _check_result(name, arrays[name], arrays[name[1:]], problem)
        for name in ("dq", "dk", "dv")
    )
    # In dq's order: the last launch rounds element by element of memory.
    view = look(dq)
    dq_sum = None if deterministic else empty_beside(q, tuple(view.shape), "f32", view.strides)
    given = lse, arrays["grad"], arrays["grad_lse"]
    found = Gradients(forward, *given, dq, dk, dv, None, None, dq_sum)
    if bias_gradient:
        view = look(bias)
        found = replace(found, dbias=empty_beside(q, tuple(view.shape), view.dtype))
    kept = (*rows[:2], found.padded_queries)
    line, delta = (empty_beside(q, kept, "f32") for _ in range(2))
    return replace(found, line=line, delta=delta)


def _check_rows(name: str, array: Any, shape: Sequence[int]) -> None:
    view = look(array)
    steps = zip(view.shape, view.strides, row_major(view.shape))
    dense = all(extent == 1 or step == wanted for extent, step, wanted in steps)
    if view.dtype != "f32" or view.shape != tuple(shape) or not dense:
        raise ArgumentError(
            f"{name} is {view.dtype} {view.shape} with strides {view.strides}",
            why=f"it must be dense f32 {tuple(shape)}",
        )


def _check_result(name: str, array: Any, of: Any, problem: Problem) -> Any:
    """Return an array for a gradient by `of`, checked."""
    view, shape = look(array), tuple(look(of).shape)
    strides = row_major(shape) if problem.options.packed else settled(view)
    lies = replace(view, strides=strides)
    whole = len(span_of(array)) == prod(shape) * view.itemsize
    rows = strides[-1] == 1 and fits_tma(lies, strides) and settled(view) == settled(lies)
    if view.dtype != problem.dtype or tuple(view.shape) != shape or not (whole and rows):
        raise ArgumentError(
            f"{name} is {view.dtype} {view.shape} with strides {view.strides},"
            f" {view.address % 16} bytes past a multiple of 16",
            why=f"it must be dense {problem.dtype} {shape} with contiguous rows, row-major for"
            " packed sequences",
        )
    return array


def prepare_rows(arrays: Gradients) -> Launch:
    """Return the launch that computes what the sums need of each row."""
    problem = arrays.forward.problem
    arguments = (
        describe(arrays.forward.out, _ROWS),
        describe(arrays.grad, _ROWS),
        arrays.lse,
        arrays.grad_lse,
        arrays.line,
        arrays.delta,
        None if arrays.dq_sum is None else describe(arrays.dq_sum, _ROWS),
        problem.queries,
        problem.heads,
        arrays.padded_queries,
        1 / arrays.forward.extras.kept_scale,
    )
    options = {
        "BLOCK": _ROWS,
        **widths(problem),
        "DLSE": arrays.grad_lse is not None,
        "DQ": arrays.dq_sum is not None,
        "DROPOUT": problem.options.dropout,
    }
    grid = (arrays.padded_queries // _ROWS, problem.heads, problem.batch)
    return Launch(backward_rows, grid, arguments, options)


def prepare(part: Part, arrays: Gradients, variant: Variant) -> list[Launch]:
    """Return the launches that compute a sum by `variant`."""
    forward = arrays.forward
    problem, extras, packed = forward.problem, forward.extras, forward.problem.options.packed
    m, n = variant.rows, variant.columns
    bounded = problem.options.right or problem.causal
    # Under a causal mask the rows that exist see no key past the end.
    ragged = (packed or problem.keys % n != 0) and not problem.causal
    options: dict[str, Any] = {
        "GROUP": problem.groups,
        "BLOCK_M": m,
        "BLOCK_N": n,
        **widths(problem),
        "LEFT": problem.options.left,
        "RIGHT": bounded,
        "CAP": problem.options.softcap,
        "SLOPES": problem.options.alibi,
        "DROPOUT": problem.options.dropout,
        "TAIL": ragged and part in ("queries", "all", "bias"),
    }
    operands = (
        describe(forward.q, m),
        describe(forward.k, n),
        describe(forward.v, n),
        describe(arrays.grad, m),
    )
    scores = *factors(forward), extras.left, extras.right, extras.slopes_step
    scores = *scores, extras.limit, *extras.bias_strides
    extents = problem.queries, problem.keys, problem.heads, arrays.padded_queries
    if part == "bias":
        given = extras.alibi, extras.bias, arrays.dbias, extras.rng
        batches, heads, lines, _ = look(arrays.dbias).shape
        tiles = -(-problem.queries // m)
        whole = (problem.batch // batches, problem.heads // heads, m if lines > 1 else tiles * m)
        arguments = (*operands, arrays.line, arrays.delta, *given, *extents, extras.kept_scale)
        arguments = (*arguments, *scores, heads, *whole)
        grid = (-(-problem.keys // n), tiles if lines > 1 else 1, batches * heads)
        constants = options | {"LINES": lines > 1} | dict(variant.pins)
        return [Launch(backward_bias, grid, arguments, constants)]
    sums = {
        "queries": (arrays.dq,),
        "keys": (arrays.dk, arrays.dv),
        "dk": (arrays.dk, None),
        "dv": (None, arrays.dv),
        "all": (arrays.dk, arrays.dv),
    }[part]
    size, rows = (m, problem.queries) if part == "queries" else (n, problem.keys)
    tiles, table, before = -(-rows // size), None, list[Launch]()
    if packed:
        starts = extras.starts if part == "queries" else extras.starts[::-1]
        listed = list_packed(forward.q, starts, rows, size, bounded and part == "queries")
        before.append(listed)
        _, _, table, _, tiles = listed.arguments
    of_rows: tuple[Any, ...] = arrays.line, arrays.delta
    if part != "queries":
        dq_desc = describe(arrays.dq_sum, m) if part == "all" else None
        of_rows = *(each if packed else _describe_rows(each, m) for each in of_rows), dq_desc
    arguments = (
        *operands,
        *(None if packed or each is None else describe(each, size) for each in sums),
        *(each if packed else None for each in sums),
        *of_rows,
        *(extras.alibi, extras.bias),
        *(table, *extras.starts, extras.rng),
        *extents,
        problem.head_dim,
        *(() if part == "queries" else (problem.value_dim, extras.kept_scale)),
        *(forward.scale * extras.kept_scale, *scores),
    )
    options |= {"AHEAD": False, "BIAS": problem.options.bias, "PACKED": packed}
    options |= dict(variant.pins)
    if part == "queries":
        grid = (tiles, problem.heads, problem.batch)
        return [*before, Launch(backward_queries, grid, arguments, options)]
    options |= {"DK": part != "dv", "DV": part != "dk", "DQ": part == "all"}
    grid = (tiles, problem.heads // problem.groups, problem.batch)
    sums_of_tiles = [*before, Launch(backward_keys, grid, arguments, options)]
    if part != "all":
        return sums_of_tiles
    count = prod(look(arrays.dq).shape)
    rounded = (arrays.dq_sum, arrays.dq, count, forward.scale * extras.kept_scale)
    grid = (-(-count // _AT_ONCE),)
    return [*sums_of_tiles, Launch(backward_round, grid, rounded, {"BLOCK": _AT_ONCE})]


def _describe_rows(array: Any, rows: int) -> tawa.TensorDescriptor:
    """Return a descriptor of (batch, heads, padded) by tiles of `rows`."""
    shape = look(array).shape
    return tawa.TensorDescriptor(array, shape, row_major(shape), [1, 1, rows])


_TUNER = Tuner()
