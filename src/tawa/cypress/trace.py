"""Tracing: an inner variant runs once, its loops yield once, and what it launches is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from tawa.cypress.place import here, names_at
from tawa.cypress.size import Int, Size, cdiv, combine, is_extent, leaves
from tawa.cypress.size import index as index_named
from tawa.cypress.size import number as number_of
from tawa.cypress.tensor import Tensor
from tawa.errors import MappingError, Place
from tawa.language.dtypes import dtype, int1, int32


@dataclass(frozen=True, slots=True, eq=False)
class Make:
    """A tensor that a variant makes; nothing is in it."""

    tensor: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Iota:
    """A tensor of where the elements of a part lie along a dimension, or whether they exist."""

    tensor: Tensor
    of: Tensor
    axis: int
    bounded: bool


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A task with its arguments."""

    task: str
    arguments: tuple[Tensor, ...]
    place: Place


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop over a box of indices: in order ("srange"), or in any ("prange").

    One in order counts its iterations: `bounds` are the start, stop and step of what it is written
    for.
    """

    kind: Literal["srange", "prange"]
    indices: tuple[Size, ...]
    extents: tuple[Int, ...]
    body: tuple[Statement, ...]
    place: Place
    bounds: tuple[Int, Int, int]

    def __str__(self) -> str:
        """Return the loop as errors name it."""
        return f"{self.kind} over {', '.join(map(str, self.indices))}"


Statement = Make | Iota | Launch | Loop


def walk(
    body: Sequence[Statement], loops: tuple[Loop, ...] = ()
) -> Iterator[tuple[Statement, tuple[Loop, ...]]]:
    """Return the statements of a body, with those in loops, each with the loops it stands in."""
    for statement in body:
        yield statement, loops
        if isinstance(statement, Loop):
            yield from walk(statement.body, (*loops, statement))


@dataclass(slots=True)
class _Tracer:
    unique: Iterator[int]
    equal: list[tuple[Int, Int]]
    bodies: list[list[Statement]] = field(default_factory=lambda: [[]])
    left: Place | None = None


_CURRENT: ContextVar[_Tracer] = ContextVar("tracer")


def traced(
    variant: str,
    run: Callable[[], Any],
    unique: Iterator[int],
    equal: list[tuple[Int, Int]],
) -> tuple[Statement, ...]:
    """Return the statements of a variant, of which `run` is the body; its `cy.same` go to `equal`.

    Raises MappingError.
    """
    tracer = _Tracer(unique, equal)
    token = _CURRENT.set(tracer)
    try:
        run()
    finally:
        _CURRENT.reset(token)
    if tracer.left is not None or len(tracer.bodies) != 1:
        raise MappingError(
            f"{variant} leaves a loop early",
            place=tracer.left,
            why="a loop of a variant stands for all of its iterations: break and return end none",
        )
    return tuple(tracer.bodies[0])


def _tracer(what: str) -> _Tracer:
    tracer = _CURRENT.get(None)
    if tracer is None:
        raise MappingError(
            f"cy.{what} outside of an inner variant",
            place=here(),
            why="variants are traced when a program is made; to run it, call the program",
        )
    return tracer


def prange(*extents: Int) -> Iterator[Any]:
    """Loop over a box whose iterations are independent: the mapping says what runs them."""
    return _loop("prange", extents, (0, 0, 1), here())


def srange(start: Int, stop: Int | None = None, step: int = 1) -> Iterator[Any]:
    """Loop in order from `start` by `step` to before `stop`; with one argument from 0 to it."""
    first, last = (0, start) if stop is None else (start, stop)
    return _loop("srange", (cdiv(last - first, step),), (first, last, step), here())


def _loop(
    kind: Literal["srange", "prange"],
    extents: Sequence[Int],
    bounds: tuple[Int, Int, int],
    place: Place,
) -> Iterator[Any]:
    tracer, (start, _, step) = _tracer(kind), bounds
    if not extents:
        raise MappingError(f"{kind} without an extent", place=place)
    names = names_at(place, len(extents), "i")
    indices = tuple(index_named(name, next(tracer.unique)) for name in names)
    body: list[Statement] = []
    tracer.bodies.append(body)
    done = False
    try:
        yield indices if len(extents) > 1 else start + indices[0] * step
        done = True
    finally:
        if not done:
            tracer.left = place
        tracer.bodies.pop()
    whole = tuple(combine("+", extent, 0) for extent in extents)
    if not any(isinstance(extent, int) and extent < 1 for extent in whole):
        tracer.bodies[-1].append(Loop(kind, indices, whole, tuple(body), place, bounds))


def launch(task: str, *tensors: Any) -> None:
    """Launch a task on tensors: parameters, made tensors, parts. The mapping says which variant."""
    tracer, place = _tracer("launch"), here()
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise MappingError(
                f"argument {number} of the launch of {task!r} is no tensor: {tensor!r}",
                place=place,
                remedy="pass a tensor or a part of a partition; numbers are tunables",
            )
    tracer.bodies[-1].append(Launch(task, tuple(tensors), place))


def index(tensor: Tensor, axis: int) -> Tensor:
    """Make an int32 vector: where each element of a part lies along `axis` in the whole tensor."""
    return _iota(tensor, axis, int32, False)


def inside(tensor: Tensor, axis: int) -> Tensor:
    """Make a vector of bools: which elements of a part lie inside of the whole tensor along `axis`.

    A leaf masks by it what would show past the end: ``tl.where(inside[None, :], S, -inf)``.
    """
    return _iota(tensor, axis, int1, True)


def _iota(tensor: Tensor, axis: int, element: dtype, bounded: bool) -> Tensor:
    tracer, place = _tracer("inside" if bounded else "index"), here()
    extent = tensor.shape[axis] if 0 <= axis < len(tensor.shape) else None
    at = tensor.root.shape[tensor.dims[axis]] if extent is not None else 0
    if not isinstance(extent, int) or not isinstance(at, Size):
        raise MappingError(
            f"dimension {axis} of {tensor} has no places in a tensor of the program",
            place=place,
            why=f"its shape is {tensor.shape}; what a block makes lies nowhere, and the part has a "
            "known extent",
            remedy="ask of the part of the program's tensor that the elements come from",
        )
    (name,) = names_at(place, 1, "inside" if bounded else "index")
    made = Tensor(name, element, (extent,), place=place)
    tracer.bodies[-1].append(Iota(made, tensor, axis, bounded))
    return made


def size(number: Tensor) -> Int:
    """Return an integer that the call gives the program, to compute and to loop with."""
    place = here()
    if number.root.shape or number.root.place is not None or not number.element.is_int():
        raise MappingError(
            f"{number} is no integer of the call",
            place=place,
            remedy="declare it at HOST: K: cy.Tensor[tl.int32, 0]",
        )
    return number_of(number.root.name)


def same(one: Int, other: Int) -> None:
    """Say that two extents of the program's tensors are equal: a call with others is refused."""
    tracer, place = _tracer("same"), here()
    for each in (one, other):
        if not all(map(is_extent, leaves(each))):
            raise MappingError(
                f"cy.same of {each}",
                place=place,
                why="a call compares extents of its tensors, and nothing that a loop counts",
            )
    tracer.equal.append((one, other))


def make_tensor(element: dtype, shape: Sequence[Int]) -> Tensor:
    """Make a tensor of this variant; nothing is in it before a task writes it."""
    tracer, place = _tracer("make_tensor"), here()
    if not all(type(extent) is int and extent > 0 for extent in shape):
        raise MappingError(
            f"make_tensor of the shape {tuple(shape)}",
            place=place,
            why="what a variant makes has a size that is known when it is compiled",
        )
    (name,) = names_at(place, 1, "made")
    tensor = Tensor(name, element, tuple(shape), place=place)
    tracer.bodies[-1].append(Make(tensor))
    return tensor
