"""What a call of the library launches, with places for its arrays: prepared once for each kind.

To check and prepare a call takes several times as long as to launch it, and what comes of it
depends on the arrays' types, shapes, strides, devices and alignment alone. So launches are prepared
for placeholders; a `Recipe` puts arrays in their places and makes anew what a call makes: its
output and workspace. The launches themselves go the ordinary way, with all its checks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, cast

from tawa.errors import ArgumentError
from tawa.kernels.arrays import BYTES, Zeros, counters_maker, maker_beside
from tawa.kernels.prepare import Launch
from tawa.runtime.arrays import Placeholder, is_array, is_tensor, look
from tawa.runtime.arrays import array as placeholder
from tawa.runtime.descriptors import TensorDescriptor
from tawa.runtime.guards import span_of

Place: TypeAlias = tuple[int, int, Callable[[Any], Any] | None]
"""Of an argument: its position, the number of its array, what makes the array's descriptor."""

_KEPT = 4096
_PLAIN = frozenset((int, float, str, bool, type(None)))


def facts(name: str, array: Any) -> Hashable:
    """Return all that a recipe depends on of an array; raises `ArgumentError` for what is none."""
    if is_tensor(array) and array.is_cuda:
        at = array.data_ptr()
        return array.dtype, array.shape, array.stride(), array.get_device(), at & 15
    if not is_array(array):
        raise ArgumentError(
            f"{name} is of the type {type(array).__name__}",
            why="it must be an array of torch, CuPy, NumPy or another library with their protocols",
        )
    view = look(array)
    found = view.dtype, view.shape, view.strides, view.device, view.address & 15
    return (cast("object", type(array)), *found)


def is_plain(value: object) -> bool:
    """Tell whether an option is a number, a text, None or a tuple of such, that never changes."""
    if type(value) is tuple:
        return all(map(is_plain, cast("tuple[object, ...]", value)))
    return type(value) in _PLAIN


@dataclass(frozen=True, slots=True)
class Step:
    """A launch; `arguments` hold None in the places of arrays."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    places: tuple[Place, ...]
    options: Mapping[str, Any]

    def run(self, arrays: Sequence[Any]) -> None:
        """Launch on `arrays`, which are those of the recipe in its order."""
        arguments = list(self.arguments)
        for position, number, describe in self.places:
            array = arrays[number]
            arguments[position] = array if describe is None else describe(array)
        self.kernel[self.grid](*arguments, **self.options)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The steps of a call. Arrays are numbered: those it is given, then those it makes.

    `makers` make an array beside the first that is given; `results` are numbers, None for None.
    """

    makers: tuple[Callable[[Any], Any], ...]
    steps: tuple[Callable[[Sequence[Any]], None], ...]
    results: tuple[int | None, ...]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Take the steps on the arrays of a call; return its results."""
        held = list(arrays)
        first = held[0]
        for make in self.makers:
            held.append(make(first))
        for step in self.steps:
            step(held)
        return _pick(held, self.results)


class Writer:
    """Writes a recipe from what is prepared for placeholders.

    `symbols` stand for the arrays that a call is given, of which `first` is the first; all others
    are made at each call. With `launch_pdl` launches begin while the kernel before them ends.
    """

    def __init__(
        self, symbols: Mapping[str, Placeholder | None], first: Any, launch_pdl: bool = False
    ) -> None:
        # By identity: equal placeholders may stand for different arrays. `_held` keeps them alive.
        self._held = list(symbols.values())
        self._numbers = {id(each): number for number, each in enumerate(self._held)}
        self._first = first
        self._options = {"launch_pdl": True} if launch_pdl else {}
        self._makers: list[Callable[[Any], Any]] = []
        self._steps: list[Callable[[Sequence[Any]], None]] = []

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
        options = {**launch.options, **self._options}
        step = Step(launch.kernel, launch.grid, tuple(arguments), tuple(places), options)
        self._steps.append(step.run)

    def work(self, function: Callable[..., None], *symbols: Placeholder | None) -> None:
        """Add a call of `function` on arrays."""
        numbers = self._all(symbols)
        self._steps.append(lambda held: function(*_pick(held, numbers)))

    def apart(self, stored: Placeholder, read: Mapping[str, Placeholder | None]) -> None:
        """Add a check that `stored`, the output, shares no memory with arrays that are read.

        Arrays that lie between one another's rows are not looked into: there the launch decides.
        """
        number, (low, high, dense) = self._number(stored), _extent(stored)
        others = [
            (name, self._number(each), *_extent(each))
            for name, each in read.items()
            if each is not None
        ]

        def check(held: Sequence[Any]) -> None:
            at = _address(held[number])
            for name, other, its_low, its_high, its_dense in others:
                there = _address(held[other])
                meets = at + low < there + its_high and there + its_low < at + high
                if meets and (at == there or (dense and its_dense)):
                    raise ArgumentError(
                        f"out shares memory with {name}",
                        why="programs of one launch store while others still read",
                        remedy=f"pass another out, or a copy of {name}",
                    )

        self._steps.append(check)

    def finish(self, *results: Placeholder | None) -> Recipe:
        """Return the recipe, whose results are these."""
        numbers = self._all(results)
        return Recipe(tuple(self._makers), tuple(self._steps), numbers)

    def _all(self, symbols: Sequence[Placeholder | None]) -> tuple[int | None, ...]:
        return tuple(None if each is None else self._number(each) for each in symbols)

    def _number(self, symbol: Placeholder) -> int:
        number = self._numbers.setdefault(id(symbol), len(self._held))
        if number == len(self._held):
            self._held.append(symbol)
            self._makers.append(self._maker(symbol))
        return number

    def _maker(self, symbol: Placeholder) -> Callable[[Any], Any]:
        if isinstance(symbol, Zeros):
            return counters_maker(self._first, symbol.shape[0])
        return maker_beside(self._first, symbol.shape, symbol.dtype)


def _extent(symbol: Placeholder) -> tuple[int, int, bool]:
    """Return the bytes from and to which an array extends, and whether it fills them."""
    span, at = span_of(symbol), look(symbol).address
    size = prod(symbol.shape) * BYTES[symbol.dtype]
    return span.start - at, span.end - at, span.end - span.start == size


def _address(array: Any) -> int:
    return array.data_ptr() if is_tensor(array) else look(array).address


def _pick(held: Sequence[Any], numbers: Sequence[int | None]) -> list[Any]:
    return [None if number is None else held[number] for number in numbers]


def _describer(symbol: TensorDescriptor) -> Callable[[Any], TensorDescriptor]:
    fixed = TensorDescriptor(None, symbol.shape, symbol.strides, symbol.block_shape, symbol.padding)
    fixed.shape, fixed.strides = tuple(symbol.shape), tuple(symbol.strides)
    fixed.block_shape = tuple(symbol.block_shape)
    return fixed.of


class Recipes:
    """Recipes by what they depend on: the facts of a call's arrays, and its options."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Recipe] = {}

    def run(
        self, arrays: Mapping[str, Any], options: tuple[Any, ...], write: Callable[[], Recipe]
    ) -> list[Any]:
        """Run the recipe of a call, kept where all options are plain; `write` makes a new one."""
        key: Hashable = (
            *[None if array is None else facts(name, array) for name, array in arrays.items()],
            options,
        )
        for value in options:
            if type(value) not in _PLAIN and not is_plain(value):
                return write().run([*arrays.values()])
        recipe = self._kept.get(key)
        if recipe is None:
            recipe = write()
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[key] = recipe
        return recipe.run([*arrays.values()])


def symbols(arrays: Mapping[str, Any]) -> dict[str, Placeholder | None]:
    """Return placeholders of types, shapes, strides and alignments; None for None."""
    return {name: None if array is None else _symbol(array) for name, array in arrays.items()}


def _symbol(array: Any) -> Placeholder:
    view = look(array)
    alignment = view.address & -view.address & 15 or 16
    return placeholder(view.shape, view.dtype, strides=view.strides, alignment=alignment)
