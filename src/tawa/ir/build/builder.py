"""Emits tile IR at the current place of the user's source.

The emitter that the frontend and `KernelBuilder` share. It knows nothing about Python or Triton: it
appends operations to the current block, gives each its location, keeps one copy of each scalar
constant per block, and raises errors that point at the expression being compiled.

What an operation of the language is given besides its arguments: the builder, the options.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from os.path import dirname, join
from typing import TypeAlias, TypeVar, cast

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tawa.errors import Place, TawaError, TypeMismatch, UnsupportedSyntax
from tawa.ir import at_line, tile
from tawa.ir.build.values import Const, Descriptor, Tensor, Value, ir_type
from tawa.ir.functions import FUNCTIONS
from tawa.ir.operation import TawaOperation
from tawa.ir.types import Real, i1, i32, i64, int_array, with_shape
from tawa.language import dtypes
from tawa.language.dtypes import dtype

Number = bool | int | float
_LANGUAGE = join(dirname(dtypes.__file__), "")
E = TypeVar("E", bound=TawaError)


@dataclass(slots=True)
class Builder:
    """Where operations go and where in the source they come from.

    `fresh` lists the operations of the statement being compiled, so that the variable it defines
    can name them; `calls` are the places of the helper calls around the current one, inmost first.
    `isolated`: the block is the body of a reduction, which combines values and has no effects.
    `around` are the blocks whose values can be used here, the current one last.
    """

    block: Block
    place: Place
    calls: tuple[Place, ...] = ()
    isolated: bool = False
    fresh: set[Operation] = field(default_factory=set[Operation])
    around: tuple[Block, ...] = ()
    _missing: list[tuple[Operation, TawaError]] = field(
        default_factory=list[tuple[Operation, TawaError]]
    )
    _constants: list[dict[tuple[object, ...], SSAValue]] = field(
        default_factory=lambda: [dict[tuple[object, ...], SSAValue]()]
    )

    def __post_init__(self) -> None:
        self.around = (self.block,)

    def error(self, kind: type[E], what: str, *, why: str = "", remedy: str = "") -> E:
        """Make an error that points at the current expression; the caller raises it.

        Inside of a function of the language that is written in it, at the user's call of that.
        """
        places = (self.place, *self.calls)
        theirs = [place for place in places if not place.file.startswith(_LANGUAGE)]
        place, *calls = theirs or places
        return kind(what, place=place, calls=tuple(calls), why=why, remedy=remedy)

    def mismatch(self, what: str, *, why: str = "", remedy: str = "") -> TypeMismatch:
        """Make a TypeMismatch error, as `error`."""
        return self.error(TypeMismatch, what, why=why, remedy=remedy)

    @contextmanager
    def at(self, place: Place) -> Generator[None]:
        """Compile the body at another place of the source.

        After an error the place is left where it was, so that an outer handler can still point.
        """
        before = self.place
        self.place = place
        yield
        self.place = before

    @contextmanager
    def into(self, block: Block, isolated: bool = False) -> Generator[None]:
        """Emit the body into `block`; `isolated` blocks repeat the constants they use."""
        before = self.block, self._constants, self.isolated, self.around
        self.block, self.isolated = block, self.isolated or isolated
        self._constants = [{}] if isolated else [*self._constants, {}]
        self.around = (block,) if isolated else (*self.around, block)
        yield
        self.block, self._constants, self.isolated, self.around = before

    def emit(self, operation: Operation) -> Operation:
        """Append an operation at the current place."""
        at_line(operation, self.place.file, self.place.line, self.place.column)
        self.block.add_op(operation)
        self.fresh.add(operation)
        return operation

    def make(self, operation: Operation) -> Tensor:
        """Append an operation and return its only result."""
        return Tensor(self.emit(operation).results[0])

    def op(
        self,
        kind: type[TawaOperation],
        operands: Sequence[Tensor | Sequence[Tensor] | None],
        result: Attribute,
        **told: Attribute | int | str | None,
    ) -> Tensor:
        """Append an operation of class `kind` with one result of type `result`."""
        return self.make(kind.make(*_ssa(operands), results=[result], attributes=told))

    def effect(
        self,
        kind: type[TawaOperation],
        operands: Sequence[Tensor | Sequence[Tensor] | None],
        **told: Attribute | int | str | None,
    ) -> None:
        """Append an operation of class `kind` without result."""
        self.emit(kind.make(*_ssa(operands), attributes=told))

    def missing(self, kind: Attribute, error: TawaError) -> Tensor:
        """Stand for a scalar that has no value: `error` is raised if anything comes of it.

        What only dead code reads needs none, and the last index of a loop is read there.
        """
        made = self.make(tile.ProgramId.make(results=[i32], axis=0))
        if kind != i32:
            made = self.op(tile.Cast, [made], kind)
        self._missing.append((made.ssa.owner, error))  # pyright: ignore[reportArgumentType]
        return made

    def check_missing(self, kernel: Operation) -> None:
        """Raise the first error of `missing` whose scalar `kernel`, without dead values, reads."""
        for operation, error in self._missing:
            if operation.get_toplevel_object() is kernel:
                raise error

    def constant(self, value: Number, element: dtype, shape: Sequence[int] = ()) -> Tensor:
        """Return a constant; equal scalars are one value where it is visible."""
        kind = ir_type(element, shape)
        number = Real(float(value)) if element.is_floating() else IntAttr(int(value))
        if shape:
            # A shared tensor would stay in registers from its first use to its last.
            return self.op(tile.Constant, [], kind, value=number)
        # str tells 0.0 from -0.0 and makes NaN equal to itself.
        key = (str(number), kind)
        for frame in reversed(self._constants):
            if (known := frame.get(key)) is not None:
                return Tensor(known)
        made = self.op(tile.Constant, [], kind, value=number)
        self._constants[-1][key] = made.ssa
        return made

    def elementwise(self, function: str, *inputs: Tensor) -> Tensor:
        """Apply a row of the function table; operands have one shape and fitting types."""
        match FUNCTIONS[function].result:
            case "same":
                result = inputs[0].type
            case "bool":
                result = with_shape(inputs[0].shape, i1)
            case "select":
                result = inputs[1].type
        return self.op(tile.Elementwise, [list(inputs)], result, function=function)

    def line(self, extent: int) -> Tensor:
        """Return 0, 1 .. `extent` - 1 (int32)."""
        return self.op(tile.Arange, [], with_shape((extent,), i32), start=0)

    def splat(self, value: Tensor, shape: Sequence[int]) -> Tensor:
        """Fill a tensor with a scalar; a constant becomes a constant tensor."""
        if not shape:
            return value
        kind = ir_type(value.dtype, shape)
        if isinstance(owner := value.ssa.owner, tile.Constant):
            return self._constant_like(owner, kind)
        return self.op(tile.Splat, [value], kind)

    def _constant_like(self, owner: tile.Constant, kind: Attribute) -> Tensor:
        return self.op(tile.Constant, [], kind, value=owner.value)

    def reshape(self, value: Tensor, shape: Sequence[int]) -> Tensor:
        """Give a tensor another shape with as many elements; none for a scalar."""
        if tuple(shape) == value.shape:
            return value
        if not value.is_block:
            return self.splat(value, shape)
        if not shape:
            return self._only(self.reshape(value, (1,)))
        return self.op(tile.Reshape, [value], ir_type(value.dtype, shape))

    def _only(self, value: Tensor) -> Tensor:
        """Take the element of a vector of one: reduced, it is that element."""
        kind = ir_type(value.dtype)
        body = Block(arg_types=[kind, kind])
        body.add_op(tile.Yield.make([body.args[0]]))
        return self.make(
            tile.Reduce.make([value.ssa], results=[[kind]], regions=[Region(body)], axis=0)
        )

    def transpose(self, value: Tensor, permutation: Sequence[int]) -> Tensor:
        """Permute the dimensions of a tensor."""
        if list(permutation) == sorted(permutation):
            return value
        shape = [value.shape[axis] for axis in permutation]
        kind = ir_type(value.dtype, shape)
        return self.op(tile.Transpose, [value], kind, permutation=int_array(permutation))

    def expand_dims(self, value: Tensor, axis: int) -> Tensor:
        """Insert a dimension of extent 1 at `axis`; a scalar becomes a tensor of one element."""
        shape = [*value.shape[:axis], 1, *value.shape[axis:]]
        if not value.is_block:
            return self.splat(value, shape)
        kind = ir_type(value.dtype, shape)
        return self.op(tile.ExpandDims, [value], kind, axis=axis)

    def extents(self, desc: Descriptor) -> tuple[Const | Tensor, ...]:
        """Return a descriptor's extents (int32), those it was made from where they are known."""
        return desc.extents or self._ask(desc, "extent", desc.type.rank, i32)

    def strides(self, desc: Descriptor) -> tuple[Const | Tensor, ...]:
        """Return a descriptor's strides in elements (int64), as `extents`."""
        return desc.strides or self._ask(desc, "stride", desc.type.rank, i64)

    def counts(self, desc: Descriptor) -> tuple[Tensor, ...]:
        """Return how many windows an image has (int32), by spatial axis."""
        window = desc.type.window
        return self._ask(desc, "count", 0 if window is None else window.axes, i32)

    def _ask(self, desc: Descriptor, what: str, axes: int, kind: Attribute) -> tuple[Tensor, ...]:
        ask = partial(self.op, tile.DescExtent, [Tensor(desc.ssa)], kind, what=what)
        return tuple(ask(axis=axis) for axis in range(axes))

    def broadcast(self, value: Tensor, shape: Sequence[int]) -> Tensor:
        """Repeat a tensor along its dimensions of extent 1; the ranks are equal."""
        if value.shape == tuple(shape):
            return value
        return self.op(tile.Broadcast, [value], ir_type(value.dtype, shape))


def _ssa(
    operands: Sequence[Tensor | Sequence[Tensor] | None],
) -> list[SSAValue | list[SSAValue]]:
    """Return operands as operations take them; there may be none for None."""
    return [
        operand.ssa if isinstance(operand, Tensor) else [part.ssa for part in operand or ()]
        for operand in operands
    ]


# --- what operations are given --------------------------------------------------------------------


Elements: TypeAlias = Callable[[Sequence[Value]], Value]
"""A function of elements, as reductions take: of the left ones, then of the right ones."""


@dataclass(slots=True)
class Context:
    """Where operations go, and the options that change what some of them are.

    The frontend's knows the names and functions of the source besides (`tawa.frontend.context`).
    """

    builder: Builder
    options: Mapping[str, object]

    def unsupported(self, what: str, *, why: str = "", remedy: str = "") -> UnsupportedSyntax:
        """Make an UnsupportedSyntax error at the current expression."""
        return self.builder.error(UnsupportedSyntax, what, why=why, remedy=remedy)

    def means_to_wrap(self) -> bool:
        """Tell whether the integers of the current function are meant to wrap."""
        return False

    def in_loop(self) -> bool:
        """Tell whether the current place is in a loop of the run."""
        return False

    def replace(self, value: Tensor, other: Tensor) -> None:
        """Let what is written from here on mean `other` where it says `value`."""

    def function_of(self, value: Value) -> str | Elements | None:
        """Return the function that a value is: one of the language by name; None for none."""
        match value:
            case Const(value=str() as name):
                return name
            case Const(value=function) if callable(function):
                elements = cast("Callable[..., Value]", function)
                return lambda given: elements(*given)
            case _:
                return None
