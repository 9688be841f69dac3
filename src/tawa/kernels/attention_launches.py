# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""From an attention problem with options to its launches, in order.

Three kernels stand beside the plain one of `flash`: with options (`flash_options`), and for few
queries or paged keys the split one and its combination (`flash_decode`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tawa
from tawa.kernels.arrays import counters_beside, empty_beside, look
from tawa.kernels.attention_operands import Operands, Options, Problem, settled
from tawa.kernels.attention_order import packed_side_by_side, side_by_side
from tawa.kernels.flash_decode import attention_split
from tawa.kernels.flash_options import attention_options, list_tiles
from tawa.kernels.prepare import Launch
from tawa.target import H200

LOG2_E = math.log2(math.e)
# A tile of packed rows: the most; up to these fewer, products are computed turned.
ROWS = 64
_FLAT = (8, 16)
# So few queries that their rows are packed, whatever the heads that share keys.
FEW = 16
MOST_SPLITS = 128
# In tiles of keys: what a program costs beside its own, also where it gathers them; what to combine
# parts costs, and each of them; what a program costs that may find nothing to do.
_PROLOGUE, _GATHERING = 1.0, 2.5
_COMBINATION, _PART = 1.5, 1 / 16
_VISIT = 0.75
# How much more sequences of one length count than those that differ.
_ALIKE = 2.0
# Elements of parts that are put together at a time: 64 registers a thread.
_AT_ONCE = 8192
# Elements of a tile of keys that is short: 16 KiB.
_SHORT = 64 * 128
# Tiles were chosen with deep rings, for blocks that have a multiprocessor to themselves, and turns
# where they were faster.
CHOSEN = {"blocks": 1, "arrangement": "cooperative"}


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


def padded(head_dim: int) -> int:
    """Return the width of the tiles for a head: whole swizzled panels of 64 columns.

    Copies give zeros for columns past the head's end and drop those written there.
    """
    return -(-head_dim // 64) * 64


def widths(problem: Problem) -> dict[str, int]:
    """Return the widths of the tiles of keys and of values, by their names in the kernels."""
    return {"HEAD_DIM": padded(problem.head_dim), "VALUE_DIM": padded(problem.value_dim)}


def widest(problem: Problem) -> int:
    """Return the width of the wider tiles, by which tiles are chosen."""
    return max(widths(problem).values())


def form(problem: Problem) -> str:
    """Return which kernel computes a problem: "plain", "options" or "decode"."""
    options = problem.options
    if options.cached:
        return "decode"
    if problem.dtype.startswith("f8"):
        return "plain"
    few = problem.queries * problem.groups <= ROWS or problem.queries <= FEW
    if (
        few
        and problem.keys > problem.queries
        and not (options.packed or options.bias or options.dropout)
    ):
        return "decode"
    return "plain" if options == Options() else "options"


def variants(problem: Problem) -> Iterator[Variant]:
    """Return the tiles of a problem with options, or of few queries, the likely best first."""
    wide = widest(problem) > 128
    if form(problem) == "decode":
        most = 64 if wide else 128
        page = problem.options.page
        columns = next((n for n in (128, 64) if n <= most and page % n == 0), most)
        # A tile of queries is small beside those of keys, whose rings get its second slot. Memory
        # sets the pace, and blocks of one part each start as fast as they can.
        once = (("depth", (("q", 1),)), ("persistent", False))
        rows = _rows(problem)
        if _share(problem, rows, columns):
            once = (*once, ("blocks", 2))
        yield Variant(rows, columns, pins=once)
        yield Variant(rows, columns, pins=(*once, ("schedule", "fine")))
        return
    options = problem.options
    masked = problem.causal or options.left or options.right
    turns = (("arrangement", "pingpong"),)
    if options.packed:
        if widest(problem) <= 64 and not options.dropout:  # drawn for powers of two
            yield Variant(192, 128, pins=turns)
        most = 64 if wide else 128
        yield Variant(128, most, pins=turns)
        yield Variant(128, 64)
        yield Variant(64, 64)
        return
    rows, columns = (128, 64) if wide or options.bias else (128, 128)
    if problem.queries <= 64:
        yield Variant(64, columns, bool(masked))
    yield Variant(rows, columns, bool(masked), turns)
    yield Variant(rows, columns, bool(masked))
    yield Variant(rows, 64)
    yield Variant(64, 64)


def prepare(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that compute a problem by `variant`, in order."""
    return (_decode if form(operands.problem) == "decode" else _options)(operands, variant)


def describe(array: Any, rows: int) -> Any:
    """Return a descriptor of (batch, heads, sequence, dim) by tiles of `rows` whole rows."""
    view = look(array)
    block = [1, 1, rows, padded(view.shape[3])]
    return tawa.TensorDescriptor(array, view.shape, settled(view), block)


def list_packed(
    beside: Any, starts: tuple[Any, Any], total: int, rows: int, bounded: bool
) -> Launch:
    """Return the launch that lists the tiles of `rows` of packed sequences, `total` rows in all.

    Its last arguments are the table, int32 [tiles, 2], how many sequences there are, and the most
    tiles. `bounded`: rows end at a mask on the right, and those that see the most come first.
    """
    count = look(starts[0]).shape[0] - 1
    tiles = total // rows + count
    table = empty_beside(beside, (tiles, 2), "i32")
    every = 1 << count.bit_length()
    sizes = {
        "BLOCK_M": rows,
        "RIGHT": bounded,
        "ALL": every,
        "CHUNK": max(1, min(128, _AT_ONCE // every)),
    }
    return Launch(list_tiles, (count + 1,), (*starts, table, count, tiles), sizes)


def factors(operands: Operands) -> tuple[float, float]:
    """Return `factor` and `cap` of the kernels: scores in base two, the exponent of tanh."""
    cap, scale = operands.extras.softcap, operands.scale
    if not cap:
        return scale * LOG2_E, 0.0
    return 2 * scale * LOG2_E / cap, cap * LOG2_E


# --- options ------------------------------------------------------------------------------------


def _options(operands: Operands, variant: Variant) -> list[Launch]:
    problem, extras, options = operands.problem, operands.extras, operands.problem.options
    tiles = -(-problem.queries // variant.rows)
    together = side_by_side(problem)
    before: list[Launch] = []
    table = None
    if options.packed:
        bounded = problem.causal or options.right
        listed = list_packed(operands.q, extras.starts, problem.queries, variant.rows, bounded)
        before.append(listed)
        _, _, table, count, tiles = listed.arguments
        together = packed_side_by_side(problem, variant.rows, count)
    _, o_head, o_step = settled(look(operands.out))[:3]
    arguments = (
        describe(operands.q, variant.rows),
        describe(operands.k, variant.columns),
        describe(operands.v, variant.columns),
        None if options.packed else describe(operands.out, variant.rows),
        operands.out if options.packed else None,
        operands.lse,
        extras.sink,
        extras.alibi,
        extras.bias,
        table,
        *extras.starts,
        extras.rng,
        problem.queries,
        problem.keys,
        problem.heads,
        tiles,
        together,
        *factors(operands),
        extras.left,
        extras.right,
        extras.slopes_step,
        extras.limit,
        extras.kept_scale,
        *extras.bias_strides,
        *(o_head, o_step, problem.queries, problem.value_dim),
    )
    bounded = problem.causal or options.right
    # Under a causal mask the rows that exist see no key past the end.
    ragged = options.packed or problem.keys % variant.columns != 0
    constants = {
        "GROUP": problem.groups,
        "BLOCK_M": variant.rows,
        "BLOCK_N": variant.columns,
        **widths(problem),
        "SPLIT": variant.split,
        "LEFT": options.left,
        "RIGHT": bounded,
        "TAIL": ragged and not problem.causal,
        "CAP": options.softcap,
        "SLOPES": options.alibi,
        "BIAS": options.bias,
        "SINK": options.sink,
        "DROPOUT": options.dropout,
        "PACKED": options.packed,
        "LSE": operands.lse is not None,
    }
    grid = (tiles * problem.heads * problem.batch,)
    main = Launch(attention_options, grid, arguments, constants | CHOSEN | dict(variant.pins))
    return [*before, main]


# --- few queries, pages -------------------------------------------------------------------------


def splits_of(
    problem: Problem, rows: int, columns: int, processors: int = H200.multiprocessors
) -> int:
    """Return over how many programs to split the keys of a block of rows.

    The model: programs run in waves of one a multiprocessor, each as long as its tiles of keys and
    a prologue; parts must be combined, unless there is one. Sequences with lengths of their own,
    which the host does not know, may be alike or differ: in the latter case there is half the work,
    and at its end a part of the longest is waited for.
    """
    programs = problem.batch * problem.heads // problem.groups * _packed(problem, rows)[1]
    tiles = -(-problem.keys // columns)
    prologue = _GATHERING if _gathers(problem, columns) else _PROLOGUE

    def even(splits: int) -> float:
        waves = -(-programs * splits // processors)
        parts = _COMBINATION + splits * _PART if splits > 1 else 0
        return waves * (-(-tiles // splits) + prologue) + parts

    def uneven(splits: int) -> float:
        if programs * splits <= processors:
            return tiles / splits + prologue
        return programs * (tiles / 2 + splits * _VISIT) / processors + tiles / splits / 2

    def cost(splits: int) -> float:
        differ = problem.options.lengths and problem.batch > 1
        return _ALIKE * even(splits) + (uneven(splits) if differ else 0)

    return min(range(1, max(1, min(tiles, MOST_SPLITS)) + 1), key=cost)


def _rows(problem: Problem) -> int:
    """Return the rows of a tile of queries: few where there are few.

    The keys then are the 64 rows that tensor cores take at least, and nobody computes weights for
    rows that are not there.
    """
    there = problem.mean_queries << (problem.groups - 1).bit_length()
    return next((rows for rows in _FLAT if there <= rows), ROWS)


def _share(problem: Problem, rows: int, columns: int) -> bool:
    """Tell whether two blocks share a multiprocessor, where one block's consumer has little to do.

    One starts while the other ends: worth it where there are more than one each. And one computes
    while the warps of the other meet, which takes as long for a short tile as for a long one.
    Producers whose threads copy need the registers of both.
    """
    if rows == ROWS or _gathers(problem, columns):
        return False
    programs = problem.batch * problem.heads // problem.groups * _packed(problem, rows)[1]
    many = programs * splits_of(problem, rows, columns) > H200.multiprocessors
    return many or columns * widest(problem) <= _SHORT


def _gathers(problem: Problem, columns: int) -> bool:
    """Tell whether a tile of keys has rows of several pages."""
    return problem.options.page % columns != 0 and problem.keys > problem.options.page


def _packed(problem: Problem, rows: int) -> tuple[int, int]:
    """Return how many heads are side by side in a tile of rows, and how many tiles a batch has."""
    pack = min(rows, 1 << (problem.groups - 1).bit_length())
    return pack, -(-problem.mean_queries // (rows // pack)) * -(-problem.groups // pack)


def _heads_inside(problem: Problem, array: Any, rows: int, pack: int) -> Any:
    """Return the descriptor of rows as (batch, kv_heads, queries, heads of those, dim).

    A tile has `rows` rows, `pack` of a query.
    """
    view = look(array)
    batch, head, row, unit = settled(view)
    dim = view.shape[3]
    shape = (
        view.shape[0],
        problem.heads // problem.groups,
        problem.queries,
        problem.groups,
        dim,
    )
    inside = (batch, head * problem.groups, row, head, unit)
    block = [1, 1, rows // pack, pack, padded(dim)]
    return tawa.TensorDescriptor(array, shape, inside, block)


def _decode(operands: Operands, variant: Variant) -> list[Launch]:
    problem, extras, options = operands.problem, operands.extras, operands.problem.options
    width = padded(problem.value_dim)
    shared = problem.heads // problem.groups
    splits = splits_of(problem, variant.rows, variant.columns)
    pack, blocks = _packed(problem, variant.rows)
    pairs, most = shared * problem.batch, problem.queries
    before: list[Launch] = []
    table = None
    if options.packed:
        # Sequences come by their queries: what keys they have is not known before.
        lines, bounded = variant.rows // pack, problem.causal or options.right
        starts = (extras.starts[0], extras.starts[0])
        listed = list_packed(operands.q, starts, problem.queries, lines, bounded)
        before.append(listed)
        _, _, table, _, tiles = listed.arguments
        pairs, blocks, most = shared, tiles * -(-problem.groups // pack), lines
    workspace: tuple[Any, Any, Any] = (None, None, None)
    rows = 0
    if splits > 1:
        rows = 1 << (pack * min(most, variant.rows // pack) - 1).bit_length()
        tiles = pairs * blocks
        workspace = (
            empty_beside(operands.q, (tiles * splits * rows * width,), "f32"),
            empty_beside(operands.q, (tiles * splits * rows,), "f32"),
            counters_beside(operands.q, tiles),
        )
    # A tile of keys lies in one page, or its rows are gathered.
    gathered = _gathers(problem, variant.columns)
    held = [operands.k, operands.v]
    if not gathered:
        held = [describe(each, variant.columns) for each in held]
    pointed = bool(rows) or options.packed
    o_strides = settled(look(operands.out))
    arguments = (
        _heads_inside(problem, operands.q, variant.rows, pack),
        *held,
        None if pointed else _heads_inside(problem, operands.out, variant.rows, pack),
        operands.out if pointed else None,
        operands.lse,
        *workspace,
        extras.sink,
        extras.alibi,
        extras.table,
        extras.lengths,
        extras.leftpad,
        table,
        extras.starts[0],
        problem.queries,
        problem.keys,
        shared,
        splits,
        *factors(operands),
        extras.left,
        extras.right,
        extras.slopes_step,
        look(extras.table).strides[0] if options.page else 0,
        *o_strides[:3],
        *settled(look(operands.k))[:3],
        *settled(look(operands.v))[:3],
        problem.value_dim,
        look(operands.k).shape[0],
    )
    constants = {
        "GROUP": problem.groups,
        "PACK": pack,
        "BLOCK_M": variant.rows,
        "BLOCK_N": variant.columns,
        **widths(problem),
        "PAGE": options.page,
        "GATHER": gathered,
        "LENGTHS": options.lengths,
        "PADS": options.leftpad,
        "PACKED": options.packed,
        "LEFT": options.left,
        "RIGHT": problem.causal or options.right,
        "CAP": options.softcap,
        "SLOPES": options.alibi,
        "SINK": options.sink,
        "LSE": operands.lse is not None,
        "ROWS": rows,
        "CHUNK": _together(rows * width) if rows else 0,
    }
    main = Launch(
        attention_split,
        (splits, pairs, blocks),
        arguments,
        constants | CHOSEN | dict(variant.pins),
    )
    return [*before, main]


def _together(elements: int) -> int:
    """Return how many parts of so many elements are put together at a time, a power of two."""
    return 1 << max(0, (_AT_ONCE // elements).bit_length() - 1)
