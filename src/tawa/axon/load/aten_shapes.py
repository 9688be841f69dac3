"""The operators of ATen that make and move arrays, and what all operators need of a graph."""
# ruff: noqa: D102 - torch's manual says what each computes
# pyright: basic, reportArgumentType=false

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any

import numpy as np

from tawa.axon.load import operators as shared
from tawa.axon.load.graph import Builder
from tawa.axon.run.values import NAMES
from tawa.axon.syntax.tree import Tree


class Parts:
    """A tuple of values by number, each computed where it is taken: a shape, what `chunk` gives."""

    def __init__(self, item: Callable[[int], Any], of: Any = None) -> None:
        self.item = item
        self.of = of  # whose shape it is


class Shapes:
    """Calls of operators, which `_build` collects."""

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._known: dict[int, tuple[str, int]] = {}  # by identity, of values that a graph keeps
        self._made: str | None = None

    def know(self, value: Any, element: str, rank: int) -> None:
        """Note the element type and the rank of a value, where the graph says them."""
        self._known[id(value)] = element, rank

    def _element(self, value: Any) -> str | None:
        if isinstance(value, np.ndarray):
            return NAMES.get(value.dtype.name)
        return self._known.get(id(value), (None, None))[0]

    def _rank(self, value: Any) -> int | None:
        known = isinstance(value, np.ndarray)
        return value.ndim if known else self._known.get(id(value), (0, None))[1]

    def rank_for(self, what: str, x: Any) -> int:
        """Return the rank of a value; refuses where it is not known."""
        rank = self._rank(x)
        if rank is None:
            raise self._build.refuse(
                f"{what} of an array of unknown rank is not supported",
                "load what `torch.export` makes of the module: it says ranks",
            )
        return rank

    def axis_of(self, what: str, x: Any, axis: Any) -> Any:
        """Return an axis counted from the first."""
        return axis if axis >= 0 else axis + self.rank_for(what, x)

    def _need(self, condition: Any, what: str) -> None:
        if not condition:
            raise self._build.refuse(f"{what} is not supported")

    def _binary(self, sign: str, a: Any, b: Any, alpha: float = 1) -> Any:
        if alpha != 1:
            b = self._binary("*", b, alpha)
        if isinstance(a, int | float) and isinstance(b, int | float):
            return _PYTHON[sign](a, b)
        if self._made == "bool" and sign in _OF_TRUTH:
            return self._build.call(_OF_TRUTH[sign], a, b)
        return self._build.binary(sign, a, b)

    add = iadd = partialmethod(_binary, "+")
    sub = isub = partialmethod(_binary, "-")
    mul = imul = multiply = partialmethod(_binary, "*")
    floordiv = floor_divide = partialmethod(_binary, "//")
    mod = remainder = partialmethod(_binary, "%")
    truediv = partialmethod(_binary, "/")

    # Element types.

    def to(self, x: Any, *to: Any, **options: Any) -> Any:
        wanted = [str(each) for each in (*to, options.get("dtype")) if is_dtype(each)]
        like = [each for each in (*to, options.get("other")) if isinstance(each, Tree | np.ndarray)]
        if like:
            return self._build.call("cast_like", like[0], x)
        return self._cast(wanted[0].removeprefix("torch."), x) if wanted else self._same(x)

    to_copy = to

    def _same(self, x: Any) -> Any:
        return self._build.call("identity", x)

    def _cast(self, name: str, x: Any, **options: Any) -> Any:
        self._need(name in NAMES, f"a cast to {name}")
        return self._build.cast(x, NAMES[name])

    float = partialmethod(_cast, "float32")
    double = partialmethod(_cast, "float64")
    half = partialmethod(_cast, "float16")
    bfloat16 = partialmethod(_cast, "bfloat16")
    bool = partialmethod(_cast, "bool")
    long = partialmethod(_cast, "int64")
    int = partialmethod(_cast, "int32")
    short = partialmethod(_cast, "int16")
    char = partialmethod(_cast, "int8")
    byte = partialmethod(_cast, "uint8")

    def type_as(self, x: Any, other: Any) -> Any:
        return self._build.call("cast_like", other, x)

    # Shapes.

    def size(self, x: Any, dim: int | None = None) -> Any:
        if dim is not None:
            return self._build.call("dim", dim, x)
        return Parts(lambda axis: self._build.call("dim", axis, x), of=x)

    sym_size = size

    def numel(self, x: Any) -> Any:
        return self._build.call("size", x)

    def getattr(self, x: Any, name: str) -> Any:
        match name:
            case "shape":
                return self.size(x)
            case "T":
                return self._build.call("transpose", self._build.sized(x, ["_", "_"]))
            case "mT":
                return self._build.call("transpose", x)
            case "values" | "indices" if isinstance(x, Parts):
                return x.item(("values", "indices").index(name))
            case "device" | "dtype":
                return None
            case _:
                raise self._build.refuse(f"the attribute {name} is not supported")

    def view(self, x: Any, *sizes: Any) -> Any:
        self._need(not any(map(is_dtype, sizes)), "a view in another type")
        return self._build.call("reshape", x, listed(sizes))

    reshape = unsafe_view = view

    def flatten(self, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
        start = self.axis_of("flatten", x, start_dim)
        if end_dim == -1:
            return self._build.call("flatten", x, axis=start)
        count = self.axis_of("flatten", x, end_dim) - start + 1
        return self._build.call("merge", x, axis=start, count=count)

    def unflatten(self, x: Any, dim: Any, sizes: Any) -> Any:
        return self._build.call("unmerge", x, list(sizes), axis=dim)

    def view_as(self, x: Any, other: Any) -> Any:
        return self._build.call("reshape", x, self._build.call("shape", other))

    reshape_as = view_as

    def permute(self, x: Any, *order: Any) -> Any:
        return self._build.call("permute", x, listed(order))

    def transpose(self, x: Any, a: int, b: int) -> Any:
        first, second = sorted((a, b), key=lambda axis: (axis < 0, axis))
        return self._build.call("swap", x, first=first, second=second)

    swapaxes = swapdims = transpose

    def movedim(self, x: Any, source: Any, destination: Any) -> Any:
        rank = self.rank_for("movedim", x)
        moved = dict(zip(*([axis % rank for axis in listed([to])] for to in (destination, source))))
        others = iter([axis for axis in range(rank) if axis not in moved.values()])
        return self.permute(x, [moved[i] if i in moved else next(others) for i in range(rank)])

    moveaxis = movedim

    def diagonal(self, x: Any, offset: Any = 0, dim1: Any = 0, dim2: Any = 1) -> Any:
        rank = self._rank(x)
        last = rank is not None and sorted(axis % rank for axis in (dim1, dim2)) == [
            rank - 2,
            rank - 1,
        ]
        self._need(offset == 0 and ((dim1, dim2) == (-2, -1) or last), "this diagonal")
        return self._build.call("diagonal", x)

    def _triangle(self, name: str, x: Any, diagonal: Any = 0) -> Any:
        return self._build.call(name, x, diagonal=diagonal)

    tril = partialmethod(_triangle, "tril")
    triu = partialmethod(_triangle, "triu")

    def unfold(self, x: Any, dimension: Any, size: Any, step: Any) -> Any:
        rank = self._rank(x)
        self._need(dimension in (-1, rank and rank - 1), "unfold of another axis than the last")
        return self._build.call("unfold", x, size=size, stride=step)

    def unsqueeze(self, x: Any, dim: int) -> Any:
        return self._build.call("unsqueeze", x, axis=dim)

    def squeeze(self, x: Any, dim: Any) -> Any:
        # Each is taken out where it moves none that is left: from the last, below 0 from the first.
        for axis in sorted(listed([dim]), key=lambda axis: (axis < 0, axis if axis < 0 else -axis)):
            x = self._build.call("squeeze", x, axis=axis)
        return x

    def expand(self, x: Any, *sizes: Any) -> Any:
        wanted = listed(sizes)
        if len(wanted) == 1 and isinstance(wanted[0], Parts):
            return self.expand_as(x, wanted[0].of)
        return shared.expanded(self._build, x, wanted)

    def expand_as(self, x: Any, other: Any) -> Any:
        return self._build.call("expand", x, self._build.call("shape", other))

    def cat(self, items: Any, dim: int = 0) -> Any:
        return self._build.call("concat", list(items), dim)

    concat = cat

    def stack(self, items: Any, dim: int = 0) -> Any:
        return self._build.call("stack", list(items), dim)

    def select(self, x: Any, dim: int, index: int) -> Any:
        return self._build.call("select", x, axis=dim, index=index)

    def meshgrid(self, *items: Any, indexing: str = "ij") -> Any:
        vectors = listed(items)
        self._need(indexing in ("ij", "xy"), f"a grid indexed by {indexing}")
        order = [*range(len(vectors))]
        order[:2] = order[:2] if indexing == "ij" else order[1::-1]
        sizes = [self._build.call("dim", 0, vectors[i]) for i in order]

        def item(i: int) -> Any:
            after = [*range(order.index(i) - len(vectors) + 1, 0)]
            own = self._build.call("insert", vectors[i], axes=after) if after else vectors[i]
            return self._build.call("expand", own, sizes)

        return Parts(item)

    def unbind(self, x: Any, dim: int = 0) -> Any:
        return Parts(lambda i: self.select(x, dim, i))

    def narrow(self, x: Any, dim: int, start: Any, length: Any) -> Any:
        end = self._binary("+", start, length)
        return self.slice(x, dim, start, None if isinstance(end, int) and end == 0 > start else end)

    def slice(self, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
        return shared.sliced(self._build, x, dim, start, end, 1 if step is None else step)

    def chunk(self, x: Any, chunks: int, dim: int = 0) -> Any:
        more = self._binary("+", self._build.call("dim", dim, x), chunks - 1)
        return self.split(x, self._binary("//", more, chunks), dim)

    def split(self, x: Any, size: Any, dim: int = 0) -> Any:
        if isinstance(size, Sequence):
            return Parts(lambda i: shared.parted(self._build, x, dim, size, i))
        starts = lambda i: self._binary("*", size, i)  # noqa: E731
        return Parts(lambda i: self.slice(x, dim, starts(i), starts(i + 1)))

    split_with_sizes = split

    def getitem(self, x: Any, index: Any) -> Any:
        """Return an item of a tuple, or of an array by integers, slices, None and `...`."""
        if isinstance(x, Parts):
            self._need(isinstance(index, int), "a part of a shape or a tuple")
            return x.item(index)
        if isinstance(x, list):
            self._need(isinstance(index, int) and index < len(x), f"result {index}")
            return x[index]
        items = index if isinstance(index, tuple) else (index,)
        arrays = [None if _is_plain(item) else item for item in items]
        if sum(each is not None for each in arrays) > 1:
            others = all(item == slice(None) for item in items if _is_plain(item))
            self._need(others, "an index of several arrays beside others")
            given = [np.array(item) if isinstance(item, list) else item for item in arrays]
            return self.index(x, given)
        dots = [place for place, item in enumerate(items) if item is Ellipsis]
        first, later = (items[: dots[0]], items[dots[0] + 1 :]) if dots else (items, ())
        done = 0
        for item in first:
            x, more = self._item(x, done, item)
            done += more
        done = 0
        for item in reversed(later):  # counted from the end
            x, more = self._item(x, -1 - done, item)
            done += more
        return x

    def _item(self, x: Any, axis: Any, item: Any) -> Any:
        """Return x indexed along an axis, and how many axes come of it."""
        match item:
            case None:
                return self.unsqueeze(x, axis), 1
            case slice(start=start, stop=stop, step=step):
                return self.slice(x, axis, start, stop, step), 1
            case list():
                return self.index_select(x, axis, np.array(item)), 1
            case bool():
                raise self._build.refuse("an index that is a truth value is not supported")
            case int():
                return self.select(x, axis, item), 0
            case _:
                return self._gathered(x, axis, item)

    def _gathered(self, x: Any, axis: Any, item: Any) -> Any:
        rank = self.rank_for("a computed index", item)
        if self._element(item) == "bool":
            self._need(axis == 0, "an index by truth values of another axis than the first")
            return self._build.call("masked", item, x), 1
        self._need_whole(item)
        return self._build.call("gather", x, item, axis=axis), rank

    def _need_whole(self, index: Any) -> None:
        element = self._element(index)
        whole = str(element).startswith(("i", "u"))
        self._need(whole, f"an index of {element or 'a type that is not known'}")

    def index(self, x: Any, items: Any) -> Any:
        kept = [place for place, item in enumerate(items) if item is not None]
        build, first = self._build, kept[0]
        if len(kept) == 1:
            return self._gathered(x, first, items[first])[0]
        self._need(kept == [*range(first, first + len(kept))], "an index of arrays apart")
        place: Any = None
        for axis in kept:  # they count the items of all their axes in one
            self._need_whole(items[axis])
            size = build.cast(build.call("dim", axis, x), "i64")
            item = build.binary("%", build.cast(items[axis], "i64"), size)
            place = (
                item if place is None else build.binary("+", build.binary("*", place, size), item)
            )
        x = build.call("merge", x, axis=first, count=len(kept))
        return build.call("gather", x, place, axis=first)

    def gather(self, x: Any, dim: Any, index: Any, sparse_grad: Any = False) -> Any:
        return self._build.call("take_along", x, index, axis=dim)

    def take_along_dim(self, x: Any, index: Any, dim: Any) -> Any:
        return self.gather(x, dim, index)

    def sort(self, x: Any, dim: Any = -1, descending: Any = False, stable: Any = None) -> Any:
        build = self._build
        if not descending:
            return Parts(lambda i: build.call("argsort" if i else "sort", x, axis=dim))

        def turned(x: Any) -> Any:  # numbers have no opposite that is sure to be one of their type
            return build.call("flip", x, axis=dim)

        def places() -> Any:
            last = build.cast(build.binary("-", build.call("dim", dim, x), 1), "i64")
            return build.binary("-", last, turned(build.call("argsort", turned(x), axis=dim)))

        return Parts(lambda i: places() if i else turned(build.call("sort", x, axis=dim)))

    def argsort(self, x: Any, dim: Any = -1, descending: Any = False, stable: Any = None) -> Any:
        return self.sort(x, dim, descending).item(1)

    def topk(self, x: Any, k: Any, dim: Any = -1, largest: Any = True, sorted: Any = True) -> Any:
        found = self.sort(x, dim, largest)
        return Parts(lambda i: self.slice(found.item(i), dim, 0, k))

    def nms(self, dets: Any, scores: Any, iou_threshold: Any) -> Any:  # of torchvision
        iou = float(iou_threshold) if isinstance(iou_threshold, int) else iou_threshold
        return self._build.call("nms", dets, scores, iou=iou)

    def one_hot(self, index: Any, classes: Any = -1) -> Any:
        self._need(classes != -1, "one_hot without a number of classes")
        return self._build.cast(self._build.call("one_hot", index, classes=classes), "i64")

    def repeat(self, x: Any, *counts: Any) -> Any:
        wanted, rank = listed(counts), self._rank(x)
        x = x if rank is not None else self._build.sized(x, ["_"] * len(wanted))
        for _ in range(len(wanted) - (len(wanted) if rank is None else rank)):
            x = self.unsqueeze(x, 0)
        for axis, count in enumerate(wanted, -len(wanted)):
            if not (isinstance(count, int) and count == 1):
                x = self._build.call("tile", x, axis=axis, count=count)
        return x

    def tile(self, x: Any, *counts: Any) -> Any:
        wanted, rank = listed(counts), self.rank_for("tile", x)
        return self.repeat(x, [1] * (rank - len(wanted)) + wanted)

    def repeat_interleave(
        self, x: Any, count: Any, dim: Any = None, output_size: Any = None
    ) -> Any:
        self._need(isinstance(count, int), "repeat_interleave by several numbers")
        x, dim = (self._build.call("ravel", x), 0) if dim is None else (x, dim)
        return self._build.call("repeat", x, axis=dim, count=count)

    def index_select(self, x: Any, dim: int, index: Any) -> Any:
        return self._build.call("gather", x, index, axis=dim)

    def embedding(self, ids: Any, weight: Any, *rest: Any, **options: Any) -> Any:
        self._need(options.get("max_norm") is None, "an embedding that changes its table")
        return self._build.call("embedding", weight, ids)

    def aten_embedding(self, weight: Any, ids: Any, *rest: Any) -> Any:
        return self._build.call("embedding", weight, ids)

    def flip(self, x: Any, *dims: Any) -> Any:
        for axis in listed(dims):
            x = self._build.call("flip", x, axis=axis)
        return x

    def numpy_T(self, x: Any) -> Any:  # noqa: N802 - torch's name
        order = [*reversed(range(self.rank_for("T", x)))]
        return self._build.call("permute", x, order)

    def diff(
        self, x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
    ) -> Any:
        given = [each for each in (prepend, x, append) if each is not None]
        x = self.cat(given, dim) if len(given) > 1 else x
        for _ in range(n):
            ends = (self._build.call(f"drop_{end}", x, axis=dim) for end in ("first", "last"))
            x = self._binary("-", *ends)
        return x

    def roll(self, x: Any, shifts: Any, dims: Any = ()) -> Any:
        if not listed([dims]):
            (by,) = listed([shifts])
            flat = self._build.call("roll", self._build.call("ravel", x), axis=0, by=by)
            return self._build.call("reshape", flat, self._build.call("shape", x))
        for by, axis in zip(listed([shifts]), listed([dims]), strict=True):
            x = self._build.call("roll", x, axis=axis, by=by)
        return x

    def pad(self, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
        self._need(mode == "constant" or mode in shared.PADDINGS, f"padding by {mode}")
        axes = [(-1 - i, pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]
        return shared.padded(self._build, x, axes, value or 0, shared.PADDINGS.get(mode, ""))

    def constant_pad_nd(self, x: Any, pad: Any, value: Any = 0) -> Any:
        return self.pad(x, pad, value=value)

    reflection_pad1d = reflection_pad2d = reflection_pad3d = partialmethod(pad, mode="reflect")
    replication_pad1d = replication_pad2d = partialmethod(pad, mode="replicate")
    replication_pad3d = replication_pad2d

    def arange(self, *ends: Any, dtype: Any = None, **options: Any) -> Any:
        start, end, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
        whole = not any(isinstance(n, float_) for n in (start, end, step))
        self._need(whole and step == 1, "a range in other steps than 1")
        made = self._build.call("iota", self._binary("-", end, start) if start else end)
        made = self._build.cast(made, _element_of(dtype, "i64"))
        return self._binary("+", made, start) if start else made

    def _filled(self, value: Any, *sizes: Any, dtype: Any = None, **options: Any) -> Any:
        kind = _element_of(dtype, self._made or "f32")
        return self._build.cast(self._build.call("full", value, listed(sizes)), kind)

    zeros = partialmethod(_filled, 0)
    ones = partialmethod(_filled, 1)

    def full(self, sizes: Any, value: Any, dtype: Any = None, **options: Any) -> Any:
        known = dtype is not None or self._made or isinstance(value, float_)
        self._need(known, "an array of whole numbers without a type")
        return self._filled(value, list(sizes), dtype=dtype)

    def full_like(self, x: Any, value: Any, dtype: Any = None, **options: Any) -> Any:
        made = self._build.call("full", value, self._build.call("shape", x))
        if dtype is not None:
            return self.to(made, dtype)
        return self._build.call("cast_like", x, made)

    zeros_like = partialmethod(full_like, value=0)
    ones_like = partialmethod(full_like, value=1)

    def new_full(self, x: Any, sizes: Any, value: Any, dtype: Any = None, **options: Any) -> Any:
        made = self._build.call("full", value, listed([sizes]))
        return self.to(made, dtype) if dtype else self._build.call("cast_like", x, made)

    def new_zeros(self, x: Any, *sizes: Any, **options: Any) -> Any:
        return self.new_full(x, listed(sizes), 0, **options)

    def new_ones(self, x: Any, *sizes: Any, **options: Any) -> Any:
        return self.new_full(x, listed(sizes), 1, **options)


float_ = float
_OF_TRUTH = {"*": "logical_and", "+": "logical_or"}
_PYTHON: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


def _element_of(dtype: Any, otherwise: str) -> str:
    return otherwise if dtype is None else NAMES[str(dtype).removeprefix("torch.")]


def is_dtype(given: Any) -> bool:
    """Tell whether a value is an element type of torch."""
    return type(given).__name__ == "dtype"


def listed(given: Sequence[Any]) -> list[Any]:
    """Return numbers that were given one by one, or as one list."""
    first = given[0] if len(given) == 1 else None
    return list(first) if isinstance(first, list | tuple) else list(given)


def _is_plain(item: Any) -> bool:
    """Tell whether an item of an index is no array."""
    return item is None or item is Ellipsis or isinstance(item, slice | int)
