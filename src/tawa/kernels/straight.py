"""Recipes kept by what they depend on, and run as straight-line code once they ran.

A call of the library costs more than its launch: its arguments are looked at, its recipe is found,
and a launch looks at its arguments again. So two functions are generated for calls on torch's
tensors. One for each list of the arguments' classes reads the facts of the arrays in line and finds
the recipe; one for each recipe makes what a call makes and enters the launchers at once, which the
recipe's facts determine. What they do not cover goes the recipe's ordinary way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias, cast

from tawa.errors import ArgumentError
from tawa.kernels.recipe import Apart, Recipe, Step, Work
from tawa.runtime.arrays import is_array, is_tensor, look
from tawa.runtime.dispatch import current_stream, is_capturing
from tawa.runtime.forms import changed, launch_names
from tawa.runtime.jit import JitFunction
from tawa.runtime.tensors import (
    DYNAMO,
    check_storage,
    keep_out,
    opaque,
    probes,
    refuse_lost,
    undisturbed,
    written,
)

_KEPT = 4096
_PLAIN = frozenset((int, float, str, bool, type(None)))

Arrays: TypeAlias = tuple[Any, ...]
Write: TypeAlias = Callable[[], Recipe]
Call: TypeAlias = Callable[..., Sequence[Any]]


def facts(name: str, array: Any) -> Hashable:
    """Return all that a recipe depends on of an array; raises `ArgumentError` for what is none."""
    if not is_array(array):
        raise ArgumentError(
            f"{name} is of the type {type(array).__name__}",
            why="it must be an array of torch, CuPy, NumPy or another library with their protocols",
        )
    view = look(array)
    found = view.dtype, view.shape, view.strides, view.device, view.address & 15
    return (cast("object", type(array)), *found)


def is_plain(value: object) -> bool:
    """Tell whether an option is a number, a text, None, or a tuple or frozen dataclass of such,
    that never changes.
    """
    if type(value) is tuple:
        return all(map(is_plain, cast("tuple[object, ...]", value)))
    facts = getattr(type(value), "__dataclass_params__", None)
    if facts is not None and facts.frozen:
        return all(is_plain(getattr(value, field.name)) for field in fields(cast("Any", value)))
    return type(value) in _PLAIN


class Recipes:
    """The recipes of a function: by the facts of a call's arrays, and its options.

    `names` are those of the arrays, in the order in which calls give them; a call writes to the one
    called `written`, and reads the others.
    """

    def __init__(self, names: Sequence[str], written: str = "out") -> None:
        self._names = tuple(names)
        self._told = False
        self._out = self._names.index(written) if written in self._names else None
        self._kept: dict[Hashable, Recipe] = {}
        self._readers: dict[tuple[type, ...], Call] = {}

    @opaque
    def run(self, arrays: Arrays, options: tuple[Any, ...], write: Write) -> Sequence[Any]:
        """Run the recipe of a call, kept where all options are plain; `write` makes a new one."""
        if not self._told and DYNAMO in sys.modules:
            keep_out()
            self._told = True
        kinds = tuple(map(type, arrays + options))
        read = self._readers.get(kinds)
        if read is not None:
            found = read(arrays, options, write)
        else:
            tensors = all(array is None or is_tensor(array) for array in arrays)
            if any(map(is_tensor, arrays)):
                refuse_lost(self._names, arrays)
            found = self._meet(arrays, options, write)
            if tensors:
                self._readers[kinds] = self._reader(arrays, options)
        if self._out is not None and (out := arrays[self._out]) is not None and is_tensor(out):
            written(out)
        return found

    @undisturbed
    def _meet(self, arrays: Arrays, options: tuple[Any, ...], write: Write) -> Sequence[Any]:
        """Run a recipe the ordinary way."""
        return self._find(arrays, options, write)[0].run(arrays)

    def _find(self, arrays: Arrays, options: tuple[Any, ...], write: Write) -> tuple[Recipe, bool]:
        """Return the recipe of a call, and whether it is kept from an earlier one."""
        named = zip(self._names, arrays, strict=True)
        held = tuple(None if array is None else facts(name, array) for name, array in named)
        if not all(map(is_plain, options)):
            return write(), False
        kinds = tuple(map(type, options))  # 1, 1.0 and True are equal, and not the same
        if (recipe := self._kept.get((held, kinds, options))) is not None:
            return recipe, True
        recipe = write()
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[held, kinds, options] = recipe
        return recipe, False

    def _reader(self, arrays: Arrays, options: tuple[Any, ...]) -> Call:
        """Generate the function for calls whose arguments have the classes of these."""
        given = [number for number, array in enumerate(arrays) if array is not None]
        tests = [f"x{number}.is_cuda" for number in given]
        tests += [
            f"__plain(__options[{place}])"
            for place, value in enumerate(options)
            if type(value) not in _PLAIN
        ]
        every = "".join(
            f"x{n}.dtype, x{n}.shape, x{n}.stride(), x{n}.get_device(), p{n} & 15, " for n in given
        )
        asking = " or ".join(f"x{number}.requires_grad" for number in given)
        lines = [
            "def read(__arrays, __options, __write):",
            f"    {''.join(f'x{number}, ' for number in range(len(arrays)))} = __arrays",
            "    if __modes() or __levels() is not None or __dual()"
            f" or __recording() and ({asking}):",
            "        __refuse(__names, __arrays)",
            f"    if not ({' and '.join(tests)}):",
            "        return __meet(__arrays, __options, __write)",
            "    try:",
            *(f"        p{number} = x{number}.data_ptr()" for number in given),
            "    except RuntimeError:  # it has no memory of its own: the ordinary way says so",
            "        return __meet(__arrays, __options, __write)",
            f"    if not ({' and '.join(f'p{number}' for number in given)}):",
            "        return __meet(__arrays, __options, __write)",
            f"    __key = (__options, {every})",
            "    __run = __straight.get(__key)",
            "    if __run is None:",
            "        return __learn(__straight, __key, __arrays, __options, __write)",
            f"    return __run(__arrays, {_list(given)})",
        ]
        namespace: dict[str, Any] = {
            **probes(),
            "__refuse": refuse_lost,
            "__names": self._names,
            "__plain": is_plain,
            "__meet": self._meet,
            "__learn": self._learn,
            "__straight": {},
        }
        return _define("read", lines, namespace)

    @undisturbed
    def _learn(
        self,
        straight: dict[Hashable, Call],
        key: Hashable,
        arrays: Arrays,
        options: tuple[Any, ...],
        write: Write,
    ) -> Sequence[Any]:
        """Run a recipe the ordinary way; where it ran before, keep it as straight-line code."""
        recipe, ran = self._find(arrays, options, write)
        held = recipe.hold(arrays)
        found = recipe.take(held)
        if ran and (made := straighten(recipe, arrays, held)) is not None:
            if len(straight) >= _KEPT:
                straight.clear()
            straight[key] = made
        return found


def straighten(recipe: Recipe, arrays: Arrays, held: Sequence[Any]) -> Call | None:
    """Generate the code of a recipe for tensors of torch, with the facts of `arrays`; `held` are
    these and those that were made at a call that ran.

    It is called with the arrays, then those that are not None, then the addresses of these. None
    where a launch cannot be entered, and where the current stream is being captured.
    """
    device = look(arrays[0]).device
    if is_capturing(current_stream({"first": arrays[0]})(device.ordinal), device.ordinal):
        return None
    text = _Text(arrays, {"__ordinary": recipe.run})
    text.namespace["__check"] = check_storage
    for number, array in enumerate(arrays):
        # What .imag of a conjugate gives; all other types have no such views.
        if array is not None and look(array).dtype == "f32":
            text.before.append(f"if x{number}.is_neg(): __check(x{number})")
    for number, make in enumerate(recipe.makers, len(arrays)):
        if look(held[number]).address & 15:
            return None
        text.make(number, make)
    for step in recipe.steps:
        match step:
            case Step():
                if not text.launch(step, held):
                    return None
            case Apart():
                text.check(step)
            case Work():
                text.work(step)
    results = "".join("None, " if each is None else f"x{each}, " for each in recipe.results)
    given = [number for number, array in enumerate(arrays) if array is not None]
    head = f"def run(__arrays, {_list(given)}):"
    lines = [head, *(f"    {line}" for line in text.lines()), f"    return ({results})"]
    return _define("run", lines, text.namespace)


@dataclass(slots=True)
class _Text:
    """The statements of a recipe's code and what they name: array `n` is ``xn`` at ``pn``."""

    arrays: Arrays
    namespace: dict[str, Any]
    before: list[str] = field(default_factory=list[str])
    checks: list[str] = field(default_factory=list[str])
    makers: list[str] = field(default_factory=list[str])
    made: list[int] = field(default_factory=list[int])
    launches: list[str] = field(default_factory=list[str])

    def lines(self) -> Iterator[str]:
        """Yield all: the ordinary way is taken before anything was launched."""
        yield from self.before
        if self.checks:
            yield f"if {' or '.join(self.checks)}:"
            yield "    return __ordinary(__arrays)"
        yield from self.makers
        if self.made:
            yield f"if ({' | '.join(f'p{number}' for number in self.made)}) & 15:"
            yield "    return __ordinary(__arrays)"
        yield from self.launches

    def make(self, number: int, make: Callable[[Any], Any]) -> None:
        """Add an array that is made beside the first."""
        self.namespace[f"__make{number}"] = make
        self.makers += [f"x{number} = __make{number}(x0)", f"p{number} = x{number}.data_ptr()"]
        self.made.append(number)

    def check(self, step: Apart) -> None:
        """Add a check; the ordinary way says what it finds."""
        out = step.stored
        for other in step.read:
            low, high = other.low - out.high, other.high - out.low
            meets = f"{low} < p{out.number} - p{other.number} < {high}"
            both = out.dense and other.dense
            self.checks.append(meets if both else f"p{out.number} == p{other.number}")

    def work(self, step: Work) -> None:
        """Add a call."""
        name = f"__work{len(self.launches)}"
        self.namespace[name] = step.function
        given = ", ".join("None" if each is None else f"x{each}" for each in step.numbers)
        self.launches.append(f"{name}({given})")

    def launch(self, step: Step, held: Sequence[Any]) -> bool:
        """Add a launch; returns whether it can be entered."""
        kernel = step.kernel
        if not isinstance(kernel, JitFunction):
            return False
        entry = kernel.enter(step.arguments_on(held), step.options)
        if entry is None:
            return False
        numbers = {kernel.arg_names[place]: number for place, number, _ in step.places}
        index = len(self.launches)
        named = self.namespace
        named[f"__kernel{index}"] = kernel
        self.checks.append(f"__kernel{index}.pre_run_hooks")
        if rebound := changed(entry.bindings, named, f"{index}_"):
            self.checks.append(rebound)
        known = set(kernel.arg_names)
        named[f"__enter{index}"], named[f"__grid{index}"] = entry.launcher, step.grid
        named[f"__options{index}"] = {n: v for n, v in step.options.items() if n not in known}
        values: list[str] = []
        for name, value in entry.likes.items():
            # In a descriptor's place stands its array: what it describes is told beside it.
            text = f"x{numbers[name]}" if name in numbers else f"__v{index}_{name}"
            if name not in numbers:
                named[text] = value
            values.append(text)
        for name in launch_names(entry.likes)[len(values) :]:
            argument, _, fact = name.rpartition("__")
            if fact == "at":
                values.append(f"p{numbers[argument]}")
                continue
            named[f"__v{index}_{name}"] = tuple(getattr(entry.likes[argument], fact))
            values.append(f"__v{index}_{name}")
        self.launches.append(
            f"__enter{index}(__grid{index}, __options{index}, {', '.join(values)})"
        )
        return True


def _list(given: Sequence[int]) -> str:
    """Spell the arrays of these numbers, then their addresses."""
    return ", ".join([*(f"x{n}" for n in given), *(f"p{n}" for n in given)])


def _define(name: str, lines: Sequence[str], namespace: Mapping[str, Any]) -> Call:
    scope = dict(namespace)
    exec(_compiled("\n".join(lines) + "\n"), scope)
    return scope[name]


@lru_cache(256)
def _compiled(text: str) -> CodeType:
    return compile(text, "<tawa library call>", "exec")
