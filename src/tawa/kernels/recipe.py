"""What a call of the library launches, with places for its arrays: prepared once for each kind.

To check and prepare a call takes several times as long as to launch it, and what comes of it
depends on the arrays' types, shapes, strides, devices and alignment alone. So launches are prepared
for placeholders; a `Recipe` puts arrays in their places and makes anew what a call makes: its
output and workspace. The launches themselves go the ordinary way, with all its checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from tawa.errors import ArgumentError
from tawa.kernels.arrays import BYTES, Zeros, counters_maker, maker_beside
from tawa.kernels.prepare import Launch
from tawa.runtime.arrays import Placeholder, is_tensor, look
from tawa.runtime.descriptors import TensorDescriptor, copy_of, like
from tawa.runtime.guards import span_of

Place: TypeAlias = tuple[int, int, Callable[[Any], Any] | None]
"""Of an argument: its position, the number of its array, what makes the array's descriptor."""

_KEPT = 4096
_PLAIN = frozenset((int, float, str, bool, type(None)))


@dataclass(frozen=True, slots=True)
class Step:
    """A launch; `arguments` hold None in the places of arrays."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    places: tuple[Place, ...]
    options: Mapping[str, Any]

    def __call__(self, arrays: Sequence[Any]) -> None:
        """Launch on `arrays`, which are those of the recipe in its order."""
        self.kernel[self.grid](*self.arguments_on(arrays), **self.options)

    def arguments_on(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the arguments with arrays in their places."""
        arguments = list(self.arguments)
        for position, number, describe in self.places:
            array = arrays[number]
            arguments[position] = array if describe is None else describe(array)
        return arguments


@dataclass(frozen=True, slots=True)
class Work:
    """A call of `function` on the arrays of these numbers."""

    function: Callable[..., None]
    numbers: tuple[int | None, ...]

    def __call__(self, arrays: Sequence[Any]) -> None:
        """Make the call."""
        self.function(*pick(arrays, self.numbers))


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes from `low` to before `high` of its address that an array reaches over; `dense`:
    it fills them.
    """

    number: int
    name: str
    low: int
    high: int
    dense: bool


@dataclass(frozen=True, slots=True)
class Apart:
    """A check that the output shares no memory with arrays that are read.

    Arrays that lie between one another's rows are not looked into: there the launch decides.
    """

    stored: Extent
    read: tuple[Extent, ...]

    def __call__(self, arrays: Sequence[Any]) -> None:
        """Raise `ArgumentError` where memory is shared."""
        stored = self.stored
        at = _address(arrays[stored.number])
        for other in self.read:
            there = _address(arrays[other.number])
            meets = at + stored.low < there + other.high and there + other.low < at + stored.high
            if meets and (at == there or (stored.dense and other.dense)):
                raise ArgumentError(
                    f"{stored.name} shares memory with {other.name}",
                    why="programs of one launch store while others still read",
                    remedy=f"pass another {stored.name}, or a copy of {other.name}",
                )


@dataclass(frozen=True, slots=True)
class Recipe:
    """The steps of a call. Arrays are numbered: those it is given, then those it makes.

    `makers` make an array beside the first that is given; `results` are numbers, None for None.
    """

    makers: tuple[Callable[[Any], Any], ...]
    steps: tuple[Step | Work | Apart, ...]
    results: tuple[int | None, ...]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Take the steps on the arrays of a call; return its results."""
        return self.take(self.hold(arrays))

    def take(self, held: Sequence[Any]) -> list[Any]:
        """Take the steps on what `hold` returned; return the results."""
        for step in self.steps:
            step(held)
        return pick(held, self.results)

    def hold(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the arrays of a call and those that it makes."""
        return [*arrays, *(make(arrays[0]) for make in self.makers)]


class Writer:
    """Writes a recipe from what is prepared for placeholders.

    `symbols` stand for the arrays that a call is given, of which `first` is the first; all others
    are made at each call. Launches behind a call's first begin while the kernel before them ends;
    with `launch_pdl` the first does too.
    """

    def __init__(
        self, symbols: Mapping[str, Placeholder | None], first: Any, launch_pdl: bool = False
    ) -> None:
        # By identity: equal placeholders may stand for different arrays. They are kept alive.
        self._views: list[Placeholder] = []
        self._held = list(symbols.values())
        self._numbers = {id(each): number for number, each in enumerate(self._held)}
        self._first = first
        self._early = launch_pdl
        self._makers: list[Callable[[Any], Any]] = []
        self._steps: list[Step | Work | Apart] = []

    def view(self, view: Placeholder, of: Placeholder) -> None:
        """Let `view` stand for the memory of another, from its first element on."""
        self._numbers[id(view)] = self._number(of)
        self._views.append(view)

    def launch(self, launch: Launch) -> None:
        """Add a launch."""
        arguments: list[Any] = list(launch.arguments)
        places: list[Place] = []
        for position, value in enumerate(arguments):
            match value:
                case Placeholder():
                    places.append((position, self._number(value), None))
                case TensorDescriptor(base=Placeholder() as base):
                    places.append((position, self._number(base), _describer(value)))
                case _:
                    continue
            arguments[position] = None
        options = (launch.early() if self._early else launch).options
        self._early = True
        step = Step(launch.kernel, launch.grid, tuple(arguments), tuple(places), options)
        self._steps.append(step)

    def work(self, function: Callable[..., None], *symbols: Placeholder | None) -> None:
        """Add a call of `function` on arrays."""
        self._steps.append(Work(function, self._all(symbols)))

    def apart(
        self, stored: Placeholder, read: Mapping[str, Placeholder | None], name: str = "out"
    ) -> None:
        """Add a check that `stored`, the output `name`, shares no memory with other arrays."""
        others = [self._extent(other, each) for other, each in read.items() if each is not None]
        self._steps.append(Apart(self._extent(name, stored), tuple(others)))

    def finish(self, *results: Placeholder | None) -> Recipe:
        """Return the recipe, whose results are these."""
        numbers = self._all(results)
        return Recipe(tuple(self._makers), tuple(self._steps), numbers)

    def _all(self, symbols: Sequence[Placeholder | None]) -> tuple[int | None, ...]:
        return tuple(None if each is None else self._number(each) for each in symbols)

    def _extent(self, name: str, symbol: Placeholder) -> Extent:
        span, at = span_of(symbol), look(symbol).address
        low, high = span.start - at, span.stop - at
        dense = high - low == prod(symbol.shape) * BYTES[symbol.dtype]
        return Extent(self._number(symbol), name, low, high, dense)

    def _number(self, symbol: Placeholder) -> int:
        number = self._numbers.setdefault(id(symbol), len(self._held))
        if number == len(self._held):
            self._held.append(symbol)
            self._makers.append(self._maker(symbol))
        return number

    def _maker(self, symbol: Placeholder) -> Callable[[Any], Any]:
        if isinstance(symbol, Zeros):
            return counters_maker(self._first, symbol.shape[0])
        return maker_beside(self._first, symbol.shape, symbol.dtype, symbol.strides)


def _address(array: Any) -> int:
    return array.data_ptr() if is_tensor(array) else look(array).address


def pick(held: Sequence[Any], numbers: Sequence[int | None]) -> list[Any]:
    """Return the arrays of these numbers."""
    return [None if number is None else held[number] for number in numbers]


def _describer(symbol: TensorDescriptor) -> Callable[[Any], TensorDescriptor]:
    return copy_of(symbol).of


def symbols(arrays: Mapping[str, Any]) -> dict[str, Placeholder | None]:
    """Return placeholders of types, shapes, strides and alignments; None for None."""
    return {name: None if array is None else like(array) for name, array in arrays.items()}
