"""A graph under construction: operations become declarations, weights become parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tawa.axon.library import DIRECTED, composed, signatures
from tawa.axon.module import Function, Guard, of_declarations
from tawa.axon.run.values import NAMES, others
from tawa.axon.shapes.words import Span
from tawa.axon.syntax.parser import parse_type
from tawa.axon.syntax.tree import (
    Annotated,
    Binary,
    Call,
    Fun,
    Group,
    Let,
    Literal,
    Name,
    Number,
    Pattern,
    Record,
    Size,
    Tree,
    TypeNode,
    Val,
)
from tawa.axon.types.kinds import Product, Tensor
from tawa.axon.types.show import Names
from tawa.errors import AxonError

Value: TypeAlias = "Tree | np.ndarray[Any, Any] | int | float | str | Sequence[Value]"


def sizes_of(dims: Mapping[str, str] | None, inputs: Iterable[str]) -> dict[str, str]:
    """Return what `dims` says of inputs; raises AxonError for a name that none of them has."""
    given, known = dict(dims or {}), list(inputs)
    if unknown := [name for name in given if name not in known]:
        raise AxonError(
            f"dims= names {unknown[0]}, which is no input",
            why=f"the inputs are {', '.join(known) or 'none'}",
        )
    return given


@dataclass
class Builder:
    """Collects operations; a line of `lines` says where in the other system each comes from.

    Operands may be arrays of NumPy, which become weights.
    """

    file: str
    lines: list[str] = field(default_factory=list[str])
    inputs: list[Pattern] = field(default_factory=list[Pattern])
    weights: list[Pattern] = field(default_factory=list[Pattern])
    arrays: list[Any] = field(default_factory=list[Any])
    values: list[Val] = field(default_factory=list[Val])
    place: Span = field(default_factory=lambda: Span(1, 1, 2))
    _taken: set[str] = field(default_factory=set[str])
    _known: dict[int, Name] = field(default_factory=dict[int, Name])

    def line(self, text: str, note: str = "") -> None:
        """Begin an operation of the other system; `note` says where its source has it."""
        self.place = Span(len(self.lines) + 1, 1, len(text) + 1)
        self.lines.append(f"{text}  # {note}" if note else text)

    def refuse(self, what: str, remedy: str = "") -> AxonError:
        """Return the error for what cannot be imported."""
        text = self.lines[-1] if self.lines else ""
        number = max(1, len(self.lines))
        return AxonError(f"{self.file}:{number}: {what}\n{number:>4} | {text}", remedy=remedy)

    def input(self, name: str, dims: str | None, element: str) -> Name:
        """Add an input; `dims` names its sizes, as in `n 3 h w`."""
        self.line(f"{name} : {dims or '?'}")
        name = self._free(name)
        kind = None
        if dims is not None:
            kind = self._type(f"{element}[{', '.join(dims.split())}]", f"the dims of {name}")
        self.inputs.append(Pattern(self.place, name, type=kind))
        return Name(name, self.place)

    def _type(self, text: str, file: str = "type") -> TypeNode:
        node = parse_type(text, file)
        return TypeNode(node.kind, self.place, node.name, sizes=node.sizes)

    def _free(self, wanted: str) -> str:
        """Return a name that nothing has; one that an operator has gets `_` at its end."""
        own = any(wanted in each for each in (signatures(), composed(), DIRECTED))
        wanted = f"{wanted}_" if own else wanted
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def weight(self, array: Any) -> Name:
        """Add an array that is part of the graph."""
        if id(array) in self._known:
            return self._known[id(array)]
        name = self._free(f"weight{len(self.weights)}")
        element = NAMES.get(str(array.dtype).removeprefix("torch."))
        if element is None:
            raise self.refuse(f"a weight of {array.dtype} is not supported")
        sizes: tuple[Size, ...] = tuple([Number(int(n), self.place) for n in array.shape])
        kind = TypeNode("tensor", self.place, element, sizes=sizes)
        self.weights.append(Pattern(self.place, name, type=kind))
        self.arrays.append(array)  # kept, so that no other takes its identity
        return self._known.setdefault(id(array), Name(name, self.place))

    def sized(self, value: Value, sizes: Sequence[str]) -> Tree:
        """Return a value that is said to have sizes: numbers, `_` for any, `..` for any more."""
        kind = self._type(f"'e{len(self.values)}[{', '.join(sizes)}]")
        return Annotated(self.tree(value), kind, self.place)

    def tree(self, value: Value) -> Tree:
        """Return a value as an expression."""
        match value:
            case np.ndarray() if value.ndim == 0 and value.dtype.kind != "b":
                return self.tree(value.item())
            case np.ndarray():
                return self.weight(value)
            case bool():
                return Literal(int(value), self.place)
            case int() | float() | str():
                return Literal(value, self.place)
            case list() | tuple():
                items = tuple([self.tree(item) for item in value])
                return Group(items, self.place, is_list=True)
            case _ if hasattr(value, "dtype"):  # of torch: NumPy has no arrays of bf16
                return self.weight(value)
            case _:
                return value  # pyright: ignore[reportReturnType]

    def call(self, operator: str, *arguments: Value, **options: Value) -> Tree:
        """Return an operator of the library applied to arguments."""
        found: Tree = Name(operator, self.place)
        if options:
            fields = tuple([(name, self.tree(value)) for name, value in options.items()])
            found = Call(found, Record(fields, self.place), self.place)
        for argument in arguments:
            found = Call(found, self.tree(argument), self.place)
        return found

    def cast(self, value: Value, element: str) -> Value:
        """Return a value as an array of an element type."""
        kind = self._type(f"{element}[..]")
        return Annotated(self.call("cast", value), kind, self.place)

    def binary(self, operator: str, left: Value, right: Value) -> Tree:
        """Return an operator between values, which may be sizes or arrays."""
        return Binary(operator, self.tree(left), self.tree(right), self.place, self.place)

    def let(self, name: str, value: Tree) -> Name:
        """Bind a value to a name, or one like it that is free."""
        name = self._free(name)
        self.values.append(Val(Pattern(self.place, name), value, self.place))
        return Name(name, self.place)

    def _weights(self) -> Pattern:
        """Return the parameter that is a tuple of all weights; of one, no tuple is written."""
        parts = (*self.weights, *([Pattern(self.place, "_")] if len(self.weights) == 1 else []))
        self.arrays.extend([0] * (len(parts) - len(self.weights)))
        return Pattern(self.place, parts=parts)

    def finish(self, result: Value) -> Graph:
        """Check the graph and return it; raises AxonError where shapes cannot fit."""
        body = Let(tuple(self.values), self.tree(result), self.place)
        weights = Pattern(self.place, "_") if not self.weights else self._weights()
        fun = Fun("graph", (*self.inputs, weights), body, Span(1, 1, 2))
        module = of_declarations([fun], self.lines, self.file)
        return Graph(module.graph, tuple(self.arrays), len(self.inputs))


@dataclass(frozen=True, slots=True)
class Graph:
    """An imported graph: call it with arrays; `guards` are conditions on their sizes."""

    function: Function
    weights: tuple[Any, ...]
    inputs: int
    _moved: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @property
    def guards(self) -> list[Guard]:
        """The conditions on the sizes of inputs."""
        return self.function.guards

    def __repr__(self) -> str:
        """Name the guards, of inputs and weights the numbers."""
        guards = ", ".join(map(str, self.guards)) or "nothing"
        count = f"{self.inputs} inputs and {len(self.weights)} weights"
        return f"graph of {count}, requires {guards}"

    def __call__(self, *inputs: Any) -> Any:
        """Check the guards and run: with NumPy, or by torch where inputs are its tensors.

        Weights are copied to their device once.
        """
        return self.function(*self.near(inputs))

    def near(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return inputs and the weights beside them."""
        if not others(inputs):
            return *inputs, self.weights
        from tawa.axon.run import tensors

        device = tensors.device_of(tuple(inputs))
        if device is not None and device not in self._moved:
            moved = tensors.wrapped(self.weights, device)
            # Of threads at once the first one's stay: plans know weights by what they are.
            self._moved.setdefault(device, tensors.unwrapped(moved, device))
        return *inputs, self._moved.get(device, self.weights)

    @property
    def shapes(self) -> Mapping[str, str]:
        """The shape of every intermediate array, in the symbols of the inputs."""
        assert self.function.scheme  # names the variables
        names: Names = self.function.names
        kinds = self.function.inferred.locals
        shown = self.function.known(Product(tuple(kinds.values())))
        assert isinstance(shown, Product)
        return {
            name: names.word(kind.word, brackets=False)
            for name, kind in zip(kinds, shown.items)
            if isinstance(kind, Tensor)
        }

    def shape(self, name: str) -> str:
        """Return the shape of an intermediate array as text."""
        return self.shapes[name]
