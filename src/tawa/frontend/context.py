"""The state of reading one function: where code goes, and what its names stand for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType

from xdsl.ir import Attribute, Operation, SSAValue

from tawa.errors import Place
from tawa.frontend.liveness import Liveness, analyse
from tawa.frontend.names import Builtin, Helper
from tawa.frontend.source import Source, made_by, read_source
from tawa.ir import tile
from tawa.ir.build.builder import Context as Operations
from tawa.ir.build.builder import Elements
from tawa.ir.build.values import Const, Tensor, Value, leaves, name_value
from tawa.ir.types import shape_of


@dataclass(frozen=True, slots=True)
class Binding:
    """What a variable stands for, and where it was assigned."""

    value: Value
    place: Place


@dataclass(slots=True)
class Frame:
    """One call of a function: its variables now.

    `gone` says of a variable that was assigned somewhere why it has no value here, `ended` of what
    type it was if it is the index of a loop. `loop` is the place of the run-time loop around the
    current statement.
    """

    source: Source
    live: Liveness
    names: dict[str, Binding] = field(default_factory=dict[str, Binding])
    gone: dict[str, str] = field(default_factory=dict[str, str])
    ended: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    loop: Place | None = None

    @property
    def made(self) -> str:
        """The name of the aggregate that a constructor makes; "" in other functions."""
        return made_by(self.source.tree)


@dataclass(slots=True)
class Context(Operations):
    """Everything that reading a statement needs: emit, look up, call a helper.

    `stack` are the functions being compiled, outermost first, and what is said of the arguments of
    each; `inline` compiles a call of a helper (it stands here because reductions call it and it
    needs the statements). `read` are the helpers whose source was read before.
    """

    frame: Frame
    stack: tuple[tuple[FunctionType, Sequence[str]], ...]
    inline: Callable[[Context, FunctionType, Sequence[Value], Mapping[str, Value]], Value]
    read: dict[FunctionType, tuple[Source, Liveness]] = field(
        default_factory=dict[FunctionType, tuple[Source, Liveness]]
    )

    def enter(self, function: FunctionType, said: Sequence[str]) -> Context:
        """Return the context of a call of `function`, with arguments of which `said` tells."""
        if (known := self.read.get(function)) is None:
            source = read_source(function)
            known = self.read[function] = source, analyse(source.tree)
        return replace(self, frame=Frame(*known), stack=(*self.stack, (function, said)))

    def bind(self, name: str, value: Value, node: ast.AST) -> None:
        """Make a variable stand for a value from here on."""
        self.frame.names[name] = Binding(value, self.frame.source.place(node))
        self.frame.gone.pop(name, None)
        self.frame.ended.pop(name, None)

    def means_to_wrap(self) -> bool:
        """Tell whether the current function is of the language: as those of random numbers."""
        return self.stack[-1][0].__module__.startswith("tawa.language")

    def in_loop(self) -> bool:
        """Tell whether the current statement is in a loop of its function."""
        return self.frame.loop is not None

    def replace(self, value: Tensor, other: Tensor) -> None:
        """Let the variables that stand for `value` stand for `other` from here on."""
        for variable, binding in self.frame.names.items():
            if binding.value == value:
                self.frame.names[variable] = replace(binding, value=other)

    def function_of(self, value: Value) -> str | Elements | None:
        """Return the function that a value is: a helper is compiled where it is called."""
        match value:
            case Const(value=Builtin(name=name)):
                return name
            case Const(value=Helper(function=helper)):
                return lambda elements: self.inline(self, helper, elements, {})
            case _:
                return None

    def finish_statement(self, name: str = "", value: Value | None = None) -> None:
        """Name the values that the current statement made, so that a plan can speak of them.

        The assigned value, and a load that only passes through casts and views on its way, are
        called as the variable; dots inside the expression too; other loads as their address.
        """
        for leaf in leaves(value) if value is not None else ():
            _name_chain(leaf, name, self.builder.fresh)
        for operation in self.builder.fresh:
            match operation:
                case tile.Dot() | tile.Reduce() | tile.Scan() | tile.Atomic() if name:
                    _name_all(operation.results, name)
                case tile.Load() | tile.DescLoad():
                    _name_all(operation.results, _address_name(operation.operands[0]))
                case _:
                    pass
        self.builder.fresh.clear()


def _name_all(values: Sequence[SSAValue], name: str) -> None:
    for value in values:
        name_value(value, name)


_TRANSPARENT = (
    tile.Cast,
    tile.Bitcast,
    tile.Transpose,
    tile.Reshape,
    tile.ExpandDims,
    tile.Broadcast,
)


def _name_chain(value: SSAValue, name: str, fresh: set[Operation]) -> None:
    """Name a value, and the values it was cast, transposed or reshaped from."""
    if isinstance(value.owner, tile.Constant) and not shape_of(value.type):
        # Scalar constants are shared by several variables.
        return
    while value.name_hint is None and value.owner in fresh:
        name_value(value, name)
        if not isinstance(value.owner, _TRANSPARENT):
            return
        value = value.owner.operands[0]


def _address_name(address: SSAValue) -> str:
    """Return the name of the pointer or descriptor that an address is computed from."""
    while address.name_hint is None and isinstance(address.owner, Operation):
        if not address.owner.operands:
            return ""
        address = address.owner.operands[0]
    return address.name_hint or ""
