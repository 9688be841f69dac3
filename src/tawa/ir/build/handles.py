"""Values and descriptors in the hands of who builds a kernel: they compute by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast

from tawa.ir.build.builder import Number
from tawa.ir.build.values import Descriptor, Tensor, describe
from tawa.language.dtypes import dtype


class Maker(Protocol):
    """What values ask of the builder that made them: to apply a function or an operator."""

    def call(self, function: str, *arguments: Any, name: str = "", **named: Any) -> Any:
        """Apply a function of the language by name."""
        ...

    def operator(self, symbol: str, one: Any, other: Any) -> Value:
        """Apply a binary operator of Python."""
        ...

    def unary(self, symbol: str, value: Value) -> Value:
        """Apply ``-`` or ``~``."""
        ...

    def index(self, value: Value, marks: Sequence[Any]) -> Value:
        """Insert dimensions."""
        ...

    def described(self, desc: Desc, what: str) -> tuple[Any, ...]:
        """Return the extents, strides or counts of a descriptor."""
        ...

    def name(self, value: Value, name: str) -> Value:
        """Name a value."""
        ...


def _left(symbol: str) -> Callable[[Value, Operand], Value]:
    """Return the operator of a value and what stands on its right."""

    def operator(self: Value, other: Operand) -> Value:
        return self.maker.operator(symbol, self, other)

    return operator


def _right(symbol: str) -> Callable[[Value, Number], Value]:
    """Return the operator of a value and a number on its left."""

    def operator(self: Value, other: Number) -> Value:
        return self.maker.operator(symbol, other, self)

    return operator


@dataclass(frozen=True, slots=True, eq=False)
class Value(Tensor):
    """A scalar, a pointer or a tensor of a kernel that is being built.

    Operators, methods and their rules of types and broadcasting are those of the language:
    ``x == y`` is a tensor of truth values.
    """

    maker: Maker = field(repr=False)
    __array_ufunc__ = None  # a number of NumPy's on the left leaves the operator to the value

    def __repr__(self) -> str:
        return f"<{describe(self)} {self.ssa.name_hint or 'value'}>"

    __add__, __radd__ = _left("+"), _right("+")
    __sub__, __rsub__ = _left("-"), _right("-")
    __mul__, __rmul__ = _left("*"), _right("*")
    __truediv__, __rtruediv__ = _left("/"), _right("/")
    __floordiv__, __rfloordiv__ = _left("//"), _right("//")
    __mod__, __rmod__ = _left("%"), _right("%")
    __and__, __rand__ = _left("&"), _right("&")
    __or__, __ror__ = _left("|"), _right("|")
    __xor__, __rxor__ = _left("^"), _right("^")
    __lshift__, __rlshift__ = _left("<<"), _right("<<")
    __rshift__, __rrshift__ = _left(">>"), _right(">>")
    __lt__, __le__ = _left("<"), _left("<=")
    __gt__, __ge__ = _left(">"), _left(">=")

    def __eq__(self, other: Operand) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.maker.operator("==", self, other)

    def __ne__(self, other: Operand) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.maker.operator("!=", self, other)

    def __hash__(self) -> int:
        return hash(self.ssa)

    def __neg__(self) -> Value:
        return self.maker.unary("-", self)

    def __invert__(self) -> Value:
        return self.maker.unary("~", self)

    def __bool__(self) -> bool:
        """Raise DefinitionError: what a value is, only the run knows."""
        return bool(self.maker.unary("bool", self))

    def __getitem__(self, index: Any) -> Value:
        """Insert dimensions of extent 1 at None, as in ``x[:, None]``."""
        many = isinstance(index, tuple)
        return self.maker.index(self, cast("tuple[Any, ...]", index) if many else (index,))

    def to(self, element: dtype | str, bitcast: bool = False) -> Value:
        """Convert elements to a type, or read their bits as one."""
        return self.maker.call("cast", self, element, bitcast=bitcast)

    @property
    def T(self) -> Value:  # noqa: N802
        """The transposed matrix."""
        return self.maker.call("trans", self)

    def permute(self, *dims: int) -> Value:
        """Reorder dimensions: dimension i of the result is `dims[i]` of this."""
        return self.maker.call("permute", self, *dims)

    def reshape(self, *shape: int) -> Value:
        """Give the same elements, in row-major order, another shape."""
        return self.maker.call("reshape", self, *shape)

    def broadcast_to(self, *shape: int) -> Value:
        """Repeat along dimensions of extent 1."""
        return self.maker.call("broadcast_to", self, *shape)

    def expand_dims(self, axis: int) -> Value:
        """Insert a dimension of extent 1."""
        return self.maker.call("expand_dims", self, axis)

    def sum(self, axis: int | None = None, *, name: str = "") -> Value:
        """Add up along an axis, or all."""
        return self.maker.call("sum", self, axis, name=name)

    def max(self, axis: int | None = None, *, name: str = "") -> Value:
        """Take the largest along an axis, or of all."""
        return self.maker.call("max", self, axis, name=name)

    def min(self, axis: int | None = None, *, name: str = "") -> Value:
        """Take the smallest along an axis, or of all."""
        return self.maker.call("min", self, axis, name=name)

    def named(self, name: str) -> Value:
        """Call this value so in the text of the IR and of the CUDA code; returns it."""
        return self.maker.name(self, name)


@dataclass(frozen=True, slots=True)
class Desc(Descriptor):
    """A tensor in global memory that a kernel accesses in tiles of `block_shape`."""

    maker: Maker = field(kw_only=True, compare=False, repr=False)

    def load(
        self, offsets: Sequence[Operand], tap: Sequence[Operand] | None = None, *, name: str = ""
    ) -> Value:
        """Load the tile at `offsets` (elements); what lies outside reads as the padding.

        Of windows: [windows, channels] from `offsets` on, as they see at the place `tap`.
        """
        return self.maker.call("descriptor.load", self, offsets, tap, name=name)

    def store(self, offsets: Sequence[Operand], value: Operand, *, name: str = "") -> None:
        """Store a tile at `offsets`, converted to the descriptor's type."""
        self.maker.call("descriptor.store", self, offsets, value, name=name)

    def atomic(
        self, function: str, offsets: Sequence[Operand], value: Operand, *, name: str = ""
    ) -> None:
        """Combine a tile into memory by add, max, min, and, or, xor; nothing is returned."""
        self.maker.call(f"descriptor.atomic_{function}", self, offsets, value, name=name)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The extents of the tensor: values (int32), or numbers where it was made from them."""
        return self.maker.described(self, "shape")

    @property
    def counts(self) -> tuple[Any, ...]:
        """How many windows an image has (int32), by spatial axis; of windows only."""
        return self.maker.described(self, "counts")

    @property
    def pitches(self) -> tuple[Any, ...]:
        """The strides of the tensor in elements (int64), as `shape`."""
        return self.maker.described(self, "strides")


Operand: TypeAlias = Value | Number
