"""What every statement of a kernel that is being built goes through.

Arguments are checked for where they can be used and turned into values of operations, results into
values in hand; the statement gets its place and its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from keyword import iskeyword
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Block, Operation

import tawa.language as tl
from tawa.errors import DefinitionError, Place, TypeMismatch
from tawa.ir import LABEL, line_of, tile
from tawa.ir.build import arithmetic
from tawa.ir.build.binding import bind, suggest
from tawa.ir.build.builder import Builder, Context
from tawa.ir.build.control import Branch
from tawa.ir.build.handles import Desc, Operand, Value
from tawa.ir.build.operations import OPERATIONS
from tawa.ir.build.operations.shapes import new_axes
from tawa.ir.build.values import (
    BlockPointer,
    Const,
    Descriptor,
    Tensor,
    Tuple,
    caller,
    describe,
    dtype_of,
    ir_scalar,
    leaves,
    name_value,
)
from tawa.ir.build.values import Value as AnyValue
from tawa.ir.types import SCALARS
from tawa.language.dtypes import dtype

Emit: TypeAlias = Callable[[Context, Sequence[AnyValue], Mapping[str, AnyValue]], AnyValue]
_NAME = re.compile(r"(for |while )?[A-Za-z_][A-Za-z0-9_.]*(@\d+)?(#\d+)?")
_STATEMENTS = (
    tile.Load,
    tile.Store,
    tile.Atomic,
    tile.CompareExchange,
    tile.DescLoad,
    tile.DescStore,
    tile.DescAtomic,
    tile.Dot,
)
"""What plans speak of, besides loops."""
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_TYPES = {name: dtype_ for name in tl.__all__ if isinstance(dtype_ := getattr(tl, name), dtype)}


@dataclass(slots=True)
class _Context(Context):
    """Operations of a builder: `loops` are those that are open."""

    loops: int = 0

    def in_loop(self) -> bool:
        """Tell whether the current place is in a loop."""
        return self.loops > 0


@dataclass(slots=True)
class _State:
    """What a builder has made: facts on arguments, names, branches that miss a side."""

    facts: list[DictionaryAttr] = field(default_factory=list[DictionaryAttr])
    names: dict[str, Place] = field(default_factory=dict[str, Place])
    lone: list[Branch] = field(default_factory=list[Branch])
    kernel: tile.Kernel | None = None


class Statements:
    """The statements of one kernel, in order; see `KernelBuilder`."""

    def __init__(self, name: str, options: Mapping[str, object] | None = None) -> None:
        if not is_name(name):
            raise DefinitionError(
                f"{name!r} cannot name a kernel", place=caller(), remedy="use an identifier"
            )
        self._name = name
        self._options = dict(options or {})
        self._builder = Builder(Block(), caller())
        self._context = _Context(self._builder, self._options)
        self._state = _State()

    def call(self, function: str, *arguments: Any, name: str = "", **named: Any) -> Any:
        """Apply a function of the language (`docs/reference/language.md`), by its name.

        Arguments are values, numbers, types, tuples, as its page says. Returns a value, a
        descriptor, a tuple of them, or None. `name` is what plans call the statement.
        """
        operation, stub = self._operation(function, caller())
        path = f"tl.{function}"

        def emit(
            c: Context, given: Sequence[AnyValue], keywords: Mapping[str, AnyValue]
        ) -> AnyValue:
            return operation(c, *bind(c.builder, path, stub, given, keywords, self._lift).values())

        return self.apply(emit, *arguments, name=name, **named)

    def apply(self, emit: Emit, *arguments: Any, name: str = "", **named: Any) -> Any:
        """Add what `emit` emits, which is given the arguments as operations take them.

        This is how other readers of kernels build into this one: `tawa.inline` reads a function.
        """
        self._begin(name)
        given = [self._lift(argument) for argument in arguments]
        keywords = {key: self._lift(value) for key, value in named.items()}
        made = emit(self._context, given, keywords)
        self._name_statements(made, name)
        return self._handle(made)

    def operator(self, symbol: str, one: Operand, other: Operand) -> Value:
        """Apply a binary operator of Python: what `one + other` and the like are."""
        self._begin()
        left, right = self._lift(one), self._lift(other)
        if symbol in _COMPARISONS:
            return self._value(arithmetic.compare(self._builder, symbol, left, right))
        return self._value(arithmetic.checked(self._context, symbol, left, right))

    def unary(self, symbol: str, value: Value) -> Value:
        """Apply ``-`` or ``~``."""
        place = self._begin()
        tensor = self._tensor(value)
        if symbol == "bool":
            raise DefinitionError(
                f"{describe(tensor)} has no truth value while the kernel is built",
                place=place,
                why="only the run knows it",
                remedy="use `with kernel.if_(condition)`, or where(condition, one, other)",
            )
        if symbol == "-":
            return self._value(arithmetic.checked_negate(self._context, tensor))
        return self._value(arithmetic.invert(self._builder, tensor))

    def index(self, value: Value, marks: Sequence[Any]) -> Value:
        """Insert dimensions of extent 1: what ``x[:, None]`` is."""
        self._begin()
        return self._value(new_axes(self._context, self._tensor(value), marks))

    def described(self, desc: Desc, what: str) -> tuple[Any, ...]:
        """Return the extents ("shape"), strides, or windows ("counts") of a descriptor."""
        self._begin()
        self._lift(desc)
        b = self._builder
        ask = {"shape": b.extents, "strides": b.strides, "counts": b.counts}[what]
        return self._handle(Tuple(ask(desc)))

    def name(self, value: Value, name: str) -> Value:
        """Call a value so in the text of the IR and of the CUDA code; returns it."""
        self._begin()
        name_value(self._tensor(value).ssa, name)
        return value

    def name_product(self, values: Sequence[Value], given: Sequence[Value], name: str) -> None:
        """Give the product that `values` come from, computed from `given`, a name for plans.

        Raises DefinitionError where there is none, or another statement has the name.
        """
        place = self._begin(name)
        pending, ends = [value.ssa for value in values], {value.ssa for value in given}
        while pending:
            owner = pending.pop().owner
            if isinstance(owner, tile.Dot):
                owner.attributes[LABEL] = StringAttr(name)
                return
            if isinstance(owner, Operation):
                pending += [value for value in owner.operands if value not in ends]
        raise DefinitionError(
            f"no product to be named {name}",
            place=place,
            why="the values are not made of a product of the values that are given",
        )

    def _short(self, element: dtype | str) -> str:
        """Return the spelling of an element type in IR; raises TypeMismatch."""
        found = self._dtype(element)
        kind = None if found is None else ir_scalar(found)
        for short, scalar in SCALARS.items():
            if scalar == kind:
                return short
        raise TypeMismatch(
            f"{element!r} is not an element type",
            place=caller(),
            remedy=f"use one of {', '.join(SCALARS)}, or a type of tawa.language",
        )

    @staticmethod
    def _dtype(element: dtype | str) -> dtype | None:
        """Return a type given as that of the language (or its name) or as IR spells it."""
        if isinstance(element, dtype):
            return element
        if element in SCALARS:
            return dtype_of(SCALARS[element])
        return _TYPES.get(element)

    # --- values -----------------------------------------------------------------------------

    def _begin(self, name: str = "") -> Place:
        """Begin a statement at the caller's place; returns it."""
        place = caller()
        if self._state.kernel is not None:
            raise DefinitionError(
                f"{self._name} is finished, and gets another statement",
                place=place,
                remedy="build all statements before `finish`",
            )
        self._builder.place = place
        self._builder.fresh.clear()
        if name:
            self._check_name(name, place)
        return place

    def _check_name(self, name: str, place: Place) -> None:
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f"{name!r} cannot name a statement",
                place=place,
                why="plans, IR and CUDA text have the name: it is an identifier, with @number or "
                "#number behind it if need be",
            )
        if (known := self._state.names.get(name)) is not None:
            raise DefinitionError(
                f"two statements are named {name}",
                place=place,
                why=f"the other stands at line {known.line}; plans speak of statements by name",
                remedy="give them different names",
            )
        self._state.names[name] = place

    def _name_statements(self, made: AnyValue, name: str) -> None:
        """Give the statement of a call its name, and its value the variable's."""
        if not name:
            return
        fresh = self._builder.fresh
        named = [
            op for op in self._builder.block.ops if op in fresh and isinstance(op, _STATEMENTS)
        ]
        for number, operation in enumerate(named, 1):
            label = name if number == 1 else f"{name}#{number}"
            operation.attributes[LABEL] = StringAttr(label)
            for result in operation.results:
                name_value(result, hint(name))
        for leaf in leaves(made):
            if leaf.owner in fresh:
                name_value(leaf, hint(name))

    def _operation(
        self, function: str, place: Place
    ) -> tuple[Callable[..., AnyValue], Callable[..., object]]:
        """Return an operation and the signature it is documented with."""
        owner: Any = tl.tensor_descriptor if function.startswith("descriptor.") else tl
        word = function.removeprefix("descriptor.")
        for home in (owner, tl.extra.libdevice, tl.extra.cuda):
            if function in OPERATIONS and callable(stub := getattr(home, word, None)):
                return OPERATIONS[function], stub
        raise DefinitionError(
            f"{function!r} is no operation of the language",
            place=place,
            why="some functions of tl are written in the language itself"
            if hasattr(tl, word)
            else "",
            remedy=suggest(function, OPERATIONS, "docs/reference/language.md has all there are"),
        )

    def _lift(self, given: Any) -> AnyValue:
        """Return an argument as operations take it; values must be visible here."""
        match given:
            case Value():
                self._check_visible(given)
                return Tensor(given.ssa)
            case Desc():
                self._check_visible(given)
                return Descriptor(given.ssa, given.extents, given.strides, given.padding)
            case tuple() | list():
                return Tuple(tuple(self._lift(item) for item in cast(Sequence[Any], given)))
            case str() if (found := self._dtype(given)) is not None:
                return Const(found)
            case None | bool() | int() | float() | str() | dtype() | Enum():
                return Const(given)
            case Tensor() | Descriptor():
                raise self._foreign(describe(given))
            case _ if callable(given):
                return Const(self._elements(given))
            case _ if getattr(given, "shape", None) == () and callable(
                getattr(given, "item", None)
            ):
                return Const(given.item())  # a number of NumPy's
            case BlockPointer():
                for leaf in leaves(given):
                    self._check_visible(Value(leaf, self))
                return given
            case _:
                raise self._builder.mismatch(
                    f"a {type(given).__qualname__} cannot stand in a kernel",
                    why="operations take values of the builder, numbers, types, and tuples of them",
                    remedy="pass what the run knows as an argument of the kernel",
                )

    def _check_visible(self, value: Value | Desc) -> None:
        if value.maker is not self:
            raise self._foreign(describe(value))
        owner = value.ssa.owner
        block = owner if isinstance(owner, Block) else owner.parent
        if any(block is around for around in self._builder.around):
            return
        if self._builder.isolated:
            raise self._builder.error(
                DefinitionError,
                f"{describe(value)} is used in a function of elements and was made outside",
                why="a reduction combines two elements, and nothing else, in any order",
                remedy="apply it before the reduction or after it",
            )
        line = _line_of(block)
        raise self._builder.error(
            DefinitionError,
            f"{describe(value)} is used outside of its region",
            why="it was made inside the region that ended before"
            + (f", at line {line}" if line else ""),
            remedy="yield it there, and use the result of the loop or branch",
        )

    def _foreign(self, what: str) -> DefinitionError:
        return self._builder.error(
            DefinitionError,
            f"{what} belongs to another kernel than {self._name}",
            why="values are those of the builder that made them",
        )

    def _elements(self, function: Callable[..., Any]) -> Callable[..., AnyValue]:
        """Return a function of elements, as reductions take, of one of values in hand."""

        def combine(*elements: AnyValue) -> AnyValue:
            made = function(*(self._handle(element) for element in elements))
            return self._lift(made)

        return combine

    def _tensor(self, value: Any) -> Tensor:
        lifted = self._lift(value)
        if not isinstance(lifted, Tensor):
            raise self._builder.mismatch(f"a value is needed, this is {describe(lifted)}")
        return lifted

    def _value(self, made: Tensor) -> Value:
        return Value(made.ssa, self)

    def _handle(self, made: AnyValue) -> Any:
        """Return a result as the caller gets it."""
        match made:
            case Tensor():
                return self._value(made)
            case Descriptor():
                return Desc(made.ssa, made.extents, made.strides, made.padding, maker=self)
            case Tuple():
                return tuple(self._handle(item) for item in made.items)
            case Const():
                return made.value
            case _:
                return made


def is_name(name: str) -> bool:
    """Tell whether a kernel or an argument can be called so: as a parameter in Python can."""
    return name.isidentifier() and not iskeyword(name) and not name.startswith("__tawa_")


def hint(name: str) -> str:
    """Return the variable in the name of a statement: ``k`` of ``for k@27``."""
    return name.split("@")[0].split("#")[0].removeprefix("for ").removeprefix("while ")


def _line_of(block: Block | None) -> int:
    """Return the line of the operation whose region a block is, 0 where there is none."""
    parent = None if block is None else block.parent_op()
    return 0 if parent is None else line_of(parent)
