"""The arrays of an attention problem, checked against one another, and what a choice depends on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from numbers import Integral
from typing import Any, TypeAlias

from tawa.errors import ArgumentError
from tawa.kernels.arrays import View, empty_beside, fits_tma, look
from tawa.kernels.descale import check_descale, check_factor

TYPES = ("f16", "bf16", "f8e4m3")
OUT_TYPES = {"f16": ("f16",), "bf16": ("bf16",), "f8e4m3": ("bf16", "f16")}
"""Element types of the output, by those of the operands; the first is what is made."""
BIAS_TYPES = ("f16", "bf16", "f32")
MOST_HEAD_DIM = 256

Window: TypeAlias = "int | tuple[int | None, int | None] | None"


@dataclass(frozen=True, slots=True)
class Options:
    """Which options a problem has; what they hold is in `Operands`.

    `left` and `right` tell whether a row's keys end that many before and after its position, the
    latter other than by a causal mask; `page` is the rows of a page of keys, 0 without pages.
    """

    left: bool = False
    right: bool = False
    softcap: bool = False
    alibi: bool = False
    bias: bool = False
    sink: bool = False
    packed: bool = False
    dropout: bool = False
    lengths: bool = False
    leftpad: bool = False
    page: int = 0

    @property
    def cached(self) -> bool:
        """Whether k and v are a cache: batches of their own, of which some rows are keys."""
        return self.lengths or self.leftpad or self.page > 0


@dataclass(frozen=True, slots=True)
class Problem:
    """What a choice depends on; `heads` are those of the queries, `groups` share a head of keys.

    `queries` and `keys` are the most of a sequence, of packed sequences the sum of all, but for the
    keys of a cache, which has `batch` sequences; `head_dim` is the width of q and k, `value_dim`
    that of v and the output.
    """

    dtype: str
    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    causal: bool
    options: Options = Options()

    @property
    def mean_queries(self) -> int:
        """The queries of a batch; of packed ones the mean, rounded up."""
        packed = self.options.packed and self.options.cached
        return -(-self.queries // max(1, self.batch)) if packed else self.queries

    @property
    def flops(self) -> float:
        """2 * batch * heads * queries * keys * (head_dim + value_dim), half under a causal mask."""
        width = self.head_dim + self.value_dim
        whole = 2.0 * self.batch * self.heads * self.mean_queries * self.keys * width
        return whole / 2 if self.causal else whole


@dataclass(frozen=True, slots=True)
class Extras:
    """The arrays and numbers of the options; a window's unbounded side is 0 and not looked at.

    `bias_strides` are those of batch, head and query, in elements, 0 where it is repeated. `rng`,
    `limit` and `kept_scale` are those of dropout, as the kernels take them.
    """

    left: int = 0
    right: int = 0
    softcap: float = 0.0
    alibi: Any = None
    slopes_step: int = 0
    sink: Any = None
    bias: Any = None
    bias_strides: tuple[int, int, int] = (0, 0, 0)
    starts: tuple[Any, Any] = (None, None)
    table: Any = None
    lengths: Any = None
    leftpad: Any = None
    rng: Any = None
    limit: int = 0
    kept_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of one problem, checked against one another.

    `scale` contains the scales of 8-bit q and k, `value_scale` is that of v.
    """

    problem: Problem
    q: Any
    k: Any
    v: Any
    out: Any
    lse: Any
    scale: float
    extras: Extras = field(default_factory=Extras)
    value_scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        problem = self.problem
        batch = 1 if problem.options.packed else problem.batch
        return (batch, problem.heads, problem.queries, problem.value_dim)


def bind(
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
    cu_seqlens_k: Any = None,
    block_table: Any = None,
    lengths: Any = None,
    leftpad: Any = None,
    dropout: float = 0.0,
    rng: Any = None,
    descale: tuple[float, float, float] | None = None,
    out: Any = None,
    lse: bool = False,
) -> Operands:
    """Check arrays against one another, make what is missing; raises `ArgumentError`."""
    views = {"q": look(q), "k": look(k), "v": look(v)}
    for name, view in views.items():
        _check_rank(name, view)
    batch, heads, queries, dim = views["q"].shape
    places, shared, keys, _ = views["k"].shape
    page = keys if block_table is not None else 0
    width = views["v"].shape[3]
    starts = _starts(cu_seqlens, cu_seqlens_k, batch)
    cached = any(each is not None for each in (block_table, lengths, leftpad))
    count = batch if starts[0] is None else look(starts[0]).shape[0] - 1
    sequences = count if cached else batch
    wanted = (places if page else sequences, shared, keys)
    _check_shape("k", views["k"], (*wanted, dim))
    _check_shape("v", views["v"], (*wanted, width))
    _check_heads(heads, shared, dim, width)
    dtype = views["q"].dtype
    _check_types(views)
    if out is None:
        out = empty_beside(q, (batch, heads, queries, width), OUT_TYPES[dtype][0])
    views["out"] = look(out)
    _check_shape("out", views["out"], (batch, heads, queries, width))
    if views["out"].dtype not in OUT_TYPES[dtype]:
        allowed = " or ".join(OUT_TYPES[dtype])
        raise ArgumentError(
            f"out holds {views['out'].dtype}", why=f"q holds {dtype}, so out holds {allowed}"
        )
    for name, view in views.items():
        _check_strides(name, view)
    steps = tuple(zip(views["out"].shape, views["out"].strides))
    repeats = any(extent > 1 and step == 0 for extent, step in steps)
    if repeats and 0 not in views["out"].shape:  # an array of nothing has any strides
        raise ArgumentError(
            f"out has strides {tuple(views['out'].strides)}",
            why="each element is stored in its own place",
            remedy="pass a dense array",
        )
    if page:
        keys = page * _pages(block_table, sequences, page)
    left, right = _window(window, causal)
    extras = Extras(
        left=left or 0,
        right=right or 0,
        softcap=_softcap(softcap),
        alibi=alibi,
        slopes_step=_slopes_step(alibi, count, heads),
        sink=_vector("sink", sink, heads, "f32"),
        bias=bias,
        bias_strides=_bias_strides(bias, (batch, heads, queries, keys)),
        starts=starts,
        table=block_table,
        lengths=_vector("lengths", lengths, sequences, "i32", "i64"),
        leftpad=_vector("leftpad", leftpad, sequences, "i32", "i64"),
        rng=_rng(dropout, rng),
        **_chances(dropout),
    )
    options = Options(
        left=left is not None,
        right=right is not None and right > 0,
        softcap=extras.softcap > 0,
        alibi=alibi is not None,
        bias=bias is not None,
        sink=sink is not None,
        packed=cu_seqlens is not None,
        dropout=dropout > 0,
        lengths=lengths is not None,
        leftpad=leftpad is not None,
        page=page,
    )
    _check_together(options)
    if cached and cu_seqlens_k is not None:
        raise ArgumentError(
            "cu_seqlens of keys beside block_table, lengths or leftpad",
            why="the keys of a cache do not lie one after the other",
            remedy="pass cu_seqlens of the queries alone, and lengths, the keys of each sequence",
        )
    if leftpad is not None and page < keys and page:
        raise ArgumentError(
            "leftpad beside a block_table of several pages",
            why="tiles of keys, which begin at the first, would lie in two pages",
            remedy="put what is not to be seen into pages that the table does not name",
        )
    if page % 64 and page < keys and dim != width:
        raise ArgumentError(
            f"pages of {page} rows with head dims {dim} of keys and {width} of values",
            why="rows of such pages are gathered, keys and values at the same places",
            remedy="use pages of a multiple of 64 rows",
        )
    given = [name for name, on in asdict(options).items() if on]
    of_q, of_k, of_v = check_descale(descale, dtype, given)
    groups = heads // max(1, shared)
    sizes = (sequences, heads, groups, queries, keys, dim, width)
    problem = Problem(dtype, *sizes, right == 0, options)
    sums = empty_beside(q, (batch, heads, queries), "f32") if lse else None
    factor = 1 / math.sqrt(dim) if scale is None and dim else scale
    factor = float(factor or 0.0) * of_q * of_k
    if dim:
        check_factor(factor)
    return Operands(problem, q, k, v, out, sums, factor, extras, of_v)


# --- the arrays every problem has ---------------------------------------------------------------


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


def _check_heads(heads: int, shared: int, dim: int, width: int) -> None:
    if heads and (shared == 0 or heads % shared):
        raise ArgumentError(
            f"q has {heads} heads, k and v have {shared}",
            why="a head of keys serves a whole number of query heads",
        )
    if dim == 0 < width:
        raise ArgumentError(f"head_dim is 0, and v has {width} columns")
    if max(dim, width) > MOST_HEAD_DIM:
        raise ArgumentError(
            f"head_dim is {max(dim, width)}",
            why=f"tiles of more than {MOST_HEAD_DIM} columns do not fit registers",
        )


def _check_types(views: dict[str, View]) -> None:
    kinds = {name: view.dtype for name, view in views.items()}
    if len(set(kinds.values())) > 1 or kinds["q"] not in TYPES:
        listed = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise ArgumentError(f"element types {listed}", why=f"all must be one of {', '.join(TYPES)}")


def settled(view: View) -> tuple[int, ...]:
    """Return the strides with those of single indices, which libraries give any value, made fit."""
    strides = list(view.strides)
    size = max(1, 16 // view.itemsize)
    behind = 1
    for axis in reversed(range(len(strides))):
        if view.shape[axis] == 1:
            last = axis == len(strides) - 1
            strides[axis] = 1 if last else -(-behind // size) * size
        behind = strides[axis] * view.shape[axis]
    return tuple(strides)


def _check_strides(name: str, view: View) -> None:
    if 0 in view.shape:
        return
    strides = settled(view)
    if strides[-1] != 1 or not fits_tma(view, strides):
        raise ArgumentError(
            f"{name} has strides {tuple(view.strides)}, {view.address % 16} bytes past a multiple"
            " of 16",
            why="TMA takes contiguous rows whose bases and strides, none negative, are multiples of"
            " 16 bytes",
            remedy=f"pass {name}.contiguous(), or a head_dim that is a multiple of 8",
        )


# --- options ------------------------------------------------------------------------------------


def _window(window: Window, causal: bool) -> tuple[int | None, int | None]:
    """Return how many keys before and after its position a query sees; None: all of them."""
    match window:
        case None:
            left, right = None, None
        case (left, right):
            pass
        case _:
            left = right = window - 1
    for side in (left, right):
        if side is not None and not (isinstance(side, Integral) and side >= 0):
            raise ArgumentError(
                f"window is {window}",
                why="a window of n keys has n >= 1, one of (left, right) no negative side, and they"
                " are whole numbers",
            )
    if causal:
        right = 0
    return left, right


def _softcap(softcap: float | None) -> float:
    if softcap is not None and not softcap > 0:
        raise ArgumentError(
            f"softcap is {softcap}",
            why="scores become softcap * tanh(scores / softcap)",
            remedy="pass a positive number, or None",
        )
    return float(softcap or 0.0)


def _check_array(name: str, view: View, shape: tuple[int, ...], *dtypes: str) -> None:
    """Check a dense array of an option."""
    if view.dtype not in dtypes or tuple(view.shape) != shape:
        said = f"{name} is {view.dtype} {tuple(view.shape)}"
        raise ArgumentError(said, why=f"it must be {' or '.join(dtypes)} {shape}")
    if view.strides and view.strides[-1] != 1 and view.shape[-1] > 1:
        raise ArgumentError(
            f"{name} has strides {tuple(view.strides)}",
            why="its last axis must be contiguous",
            remedy=f"pass {name}.contiguous()",
        )


def _vector(name: str, array: Any, extent: int, *dtypes: str) -> Any:
    if array is not None:
        _check_array(name, look(array), (extent,), *dtypes)
    return array


def _slopes_step(alibi: Any, sequences: int, heads: int) -> int:
    """Return from where to where the slopes of a batch lie, 0 where all have the same."""
    if alibi is None:
        return 0
    view = look(alibi)
    if len(view.shape) != 2:
        _check_array("alibi", view, (heads,), "f32")
        return 0
    _check_array("alibi", view, (sequences, heads), "f32")
    return view.strides[0]


def _rng(dropout: float, rng: Any) -> Any:
    """Return the seed and offset of dropout, None where nothing is dropped."""
    if not 0 <= dropout <= 1:
        raise ArgumentError(f"dropout is {dropout}", why="it is a probability, from 0 to 1")
    if not dropout:
        return None
    if rng is None:
        raise ArgumentError(
            f"dropout {dropout} without rng",
            why="what is dropped depends on a seed and an offset alone",
            remedy="pass rng, int64 [2]",
        )
    _check_array("rng", look(rng), (2,), "i64")
    return rng


def _chances(dropout: float) -> dict[str, Any]:
    """Return below which int32 a draw keeps its weight, and what weights that are left are
    multiplied by (where none is, any number).
    """
    limit = min(round((1 - dropout) * 2**32), 2**32 - 1) - 2**31
    return {"limit": limit, "kept_scale": 1 / (1 - dropout) if dropout < 1 else 1.0}


def _pages(block_table: Any, batch: int, page: int) -> int:
    """Return how many pages a batch has at most."""
    view = look(block_table)
    if len(view.shape) != 2:
        raise ArgumentError(
            f"block_table has shape {tuple(view.shape)}", why="it is [batch, pages of a sequence]"
        )
    _check_array("block_table", view, (batch, view.shape[1]), "i32", "i64")
    if page % 64 and page not in (16, 32) and view.shape[1] > 1:
        raise ArgumentError(
            f"a page has {page} rows",
            why="tiles of keys lie in one page: 16, 32 or a multiple of 64 rows; only pages that"
            " hold a batch each have any number",
        )
    return view.shape[1]


def _starts(of_queries: Any, of_keys: Any, batch: int) -> tuple[Any, Any]:
    """Return the arrays of where sequences of queries and of keys start."""
    if of_queries is None:
        return None, None
    both = (of_queries, of_queries if of_keys is None else of_keys)
    if batch != 1:
        raise ArgumentError(
            f"cu_seqlens beside a batch of {batch}",
            why="sequences lie one after the other along the third axis of q, k and v, of batch 1; "
            "cu_seqlens is one array, or one for queries and one for keys",
        )
    count = look(both[0]).shape
    for name, each in zip(("cu_seqlens", "cu_seqlens of the keys"), both):
        view = look(each)
        if len(view.shape) != 1 or view.shape[0] < 1:
            raise ArgumentError(
                f"{name} has shape {tuple(view.shape)}", why="it is [sequences + 1], from 0 on"
            )
        _check_array(name, view, count, "i32")
    return both


def _bias_strides(bias: Any, wanted: tuple[int, int, int, int]) -> tuple[int, int, int]:
    """Return the strides of batch, head and query, 0 along what is repeated."""
    if bias is None:
        return (0, 0, 0)
    view = look(bias)
    shape, strides = tuple(view.shape), tuple(view.strides)
    fits = len(shape) == 4 and all(a in (1, b) for a, b in zip(shape[:3], wanted[:3]))
    if not fits or shape[3] != wanted[3]:
        raise ArgumentError(
            f"bias has shape {shape}",
            why=f"it is added to scores of shape {wanted}; all but the last may be 1",
        )
    if view.dtype not in BIAS_TYPES:
        raise ArgumentError(f"bias holds {view.dtype}", why=f"one of {', '.join(BIAS_TYPES)}")
    if strides[3] != 1 and shape[3] > 1:
        raise ArgumentError(
            f"bias has strides {strides}",
            why="its rows must be contiguous",
            remedy="pass bias.contiguous()",
        )
    batch, head, line = (0 if extent == 1 else step for extent, step in zip(shape[:3], strides[:3]))
    return batch, head, line


def _check_together(options: Options) -> None:
    """Raise ArgumentError for options that no kernel here has at once."""
    if options.bias and (options.packed or options.cached):
        raise ArgumentError(
            "bias beside cu_seqlens, block_table, lengths or leftpad",
            why="its rows and columns are those of one dense batch",
            remedy="use alibi, a window or a soft cap, or one call for each sequence",
        )
    if options.dropout and options.cached:
        raise ArgumentError(
            "dropout beside block_table, lengths or leftpad",
            why="caches of keys are for inference",
            remedy="pass dropout=0",
        )
