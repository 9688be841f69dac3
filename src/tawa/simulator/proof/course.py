"""The course of a scalar over the trips of loops: when a function of trip numbers settles.

A course is a function of the numbers of trips that in each loop, after `settled` trips, takes on
`gain` with every `period` trips. Trip numbers are such, and so are sums, multiples, quotients and
remainders by constants, comparisons, and any function of courses that gain nothing: their values
repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import gcd, lcm, prod
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerType
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from tawa.analysis.remember import remembered
from tawa.ir import tile
from tawa.ir.control import terminator
from tawa.simulator.proof.counting import Loop, constant_of, counts, recurrence_of
from tawa.simulator.proof.functions import FUNCTIONS, NARROW, cast_name, name_of, spelled, wrapped

LATEST = 512
"""The latest trip at which synchronization may change: it is run, so it must be near."""

_TRIPS = 1 << 16  # after so many a number may overflow
_VALUES = 1 << 12  # of a course that are looked at, at most
_COMPARE = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})

At: TypeAlias = Callable[[Mapping[Loop, int]], int]


@dataclass(frozen=True, slots=True)
class Turn:
    """How a course goes on in one loop."""

    settled: int = 0
    period: int = 1
    gain: int = 0

    def longer(self, times: int, gain: int) -> Turn:
        """The same over `times` as many trips, with another gain."""
        return Turn(self.settled, self.period * times, gain)


@dataclass(frozen=True, slots=True)
class Course:
    """A function of the numbers of trips; `turns` of the loops it depends on."""

    at: At
    turns: Mapping[Loop, Turn]

    @property
    def growing(self) -> dict[Loop, Turn]:
        """The loops in which it does not repeat."""
        return {loop: turn for loop, turn in self.turns.items() if turn.gain}

    def least(self, sign: int) -> int | None:
        """Return its least value times `sign`; None where it gains by the other sign somewhere."""
        if any(turn.gain * sign < 0 for turn in self.turns.values()):
            return None
        spans = [range(turn.settled + turn.period) for turn in self.turns.values()]
        if prod(map(len, spans)) > _VALUES:
            return None
        return min(sign * self.at(dict(zip(self.turns, trips))) for trips in product(*spans))

    def signed(self, least: int) -> dict[Loop, int] | None:
        """Return after how many trips of each growing loop it keeps its sign and is `least` away
        from zero at least; None where it need not.
        """
        growing = self.growing
        if not growing:
            return {}
        sign = 1 if all(turn.gain > 0 for turn in growing.values()) else -1
        low = self.least(sign)
        if low is None:
            return None
        missing = max(0, least - low)
        return {
            loop: turn.settled + turn.period * -(-missing // abs(turn.gain))
            for loop, turn in growing.items()
        }


_Known: TypeAlias = dict[SSAValue, Course | None]


def course_of(value: SSAValue) -> Course | None:
    """Return the course of an integer, None where it is no function of trip numbers alone."""
    return _course(value, {})


def stays(control: Operation) -> bool:
    """Tell whether a condition has the same outcome in each trip of the loops that it counts."""
    course = course_of(control.cond) if isinstance(control, scf.IfOp) else None
    if course is None or course.growing:
        return False
    least, negative = course.least(1), course.least(-1)
    return least is not None and negative is not None and least == -negative


@remembered
def _course(value: SSAValue, known: _Known) -> Course | None:
    integer: Attribute = value.type
    if not isinstance(value.type, IntegerType):
        return None
    if isinstance(value, BlockArgument):
        return _count(value)
    match value.owner:
        case tile.Constant(value=IntAttr(data=number)):
            return _constant(number)
        case tile.Cast(value=inner) | tile.Bitcast(value=inner):
            return None if cast_name(inner.type, integer) else _course(inner, known)
        case tile.Elementwise(function=function, inputs=inputs):
            courses = [_course(item, known) for item in inputs]
            all_known = [course for course in courses if course is not None]
            if len(all_known) < len(courses):
                return None
            found = _function(name_of(function.data, inputs[0].type), all_known)
            return None if found is None or _overflows(found, value) else found
        case scf.ForOp() as loop:
            place = list(loop.results).index(value)  # pyright: ignore[reportArgumentType]
            return _count(loop.body.block.args[place + 1])
        case _:
            return None


def _overflows(course: Course, value: SSAValue) -> bool:
    """Tell whether 32 bits may not hold a course for as many trips as a kernel makes."""
    growing = course.growing.values() if spelled(value.type) == "i32" else ()
    return any(abs(turn.gain) * _TRIPS > turn.period << 31 for turn in growing)


def _constant(number: int) -> Course:
    return Course(lambda _: number, {})


def _count(value: BlockArgument) -> Course | None:
    """Return the course of what a loop counts; the test of a while loop may have passed it on."""
    loop = value.owner.parent_op()
    if isinstance(loop, scf.WhileOp) and value.owner is loop.after_region.block:
        return course_of(terminator(loop.before_region.block).operands[value.index + 1])
    if isinstance(loop, scf.ForOp) and value.index == 0:
        first, by = loop.lb, constant_of(loop.step)
    elif isinstance(loop, (scf.ForOp, scf.WhileOp)):
        recurrence = recurrence_of(value)
        if recurrence is None:
            return None
        first, by = recurrence[0], counts(value, recurrence[1])
    else:
        return None
    start = course_of(first)
    if not by or start is None:
        return None
    step = by
    at: At = lambda trips: start.at(trips) + step * trips[loop]  # noqa: E731
    if (kind := spelled(value.type)) not in NARROW:
        return Course(at, {**start.turns, loop: Turn(gain=by)})
    bits = NARROW[kind]
    if start.turns or bits > 16:
        return None
    # A counter that wraps repeats.
    signed = kind.startswith("i")
    period = (1 << bits) // gcd(by, 1 << bits)
    return Course(lambda trips: wrapped(at(trips), bits, signed), {loop: Turn(period=period)})


def _function(name: str, inputs: list[Course]) -> Course | None:
    if name == "not":
        return _function("xor", [*inputs, _constant(1)])
    if name not in FUNCTIONS:
        return None
    constant = inputs[-1].at({}) if len(inputs) == 2 and not inputs[1].turns else None
    match name:
        case "add":
            return _sum(inputs, (1, 1))
        case "sub":
            return _sum(inputs, (1, -1))
        case "neg":
            return _sum(inputs, (-1,))
        case "mul" if constant is not None:
            return _sum(inputs[:1], (constant,))
        case "mul" if not inputs[0].turns:
            return _sum(inputs[1:], (inputs[0].at({}),))
        case "shl" if constant is not None and 0 <= constant < 32:
            return _sum(inputs[:1], (1 << constant,))
        case "idiv" | "irem" if constant:
            return _by(name, inputs, abs(constant), constant if name == "idiv" else 0)
        case "shr" if constant is not None and 0 <= constant < 32:
            return _by(name, inputs, 1 << constant, 1 << constant)
        case "and" if constant is not None and constant >= 0:
            return _by(name, inputs, 1 << constant.bit_length(), 0)
        case _ if name in _COMPARE:
            return _compared(name, inputs)
        case _:
            return _repeating(name, inputs)


def _applied(name: str, inputs: list[Course]) -> At:
    function = FUNCTIONS[name]
    return lambda trips: function(*(item.at(trips) for item in inputs))


def _sum(inputs: list[Course], factors: tuple[int, ...]) -> Course:
    """Return the sum of courses, each times a factor."""
    terms = list(zip(inputs, factors, strict=True))
    turns: dict[Loop, Turn] = {}
    for loop in dict.fromkeys(loop for item in inputs for loop in item.turns):
        parts = [(item.turns.get(loop, Turn()), factor) for item, factor in terms]
        period = lcm(*(turn.period for turn, _ in parts))
        gain = sum(turn.gain * factor * period // turn.period for turn, factor in parts)
        turns[loop] = Turn(max(turn.settled for turn, _ in parts), period, gain)
    return Course(lambda trips: sum(item.at(trips) * by for item, by in terms), turns)


def _by(name: str, inputs: list[Course], modulus: int, divisor: int) -> Course | None:
    """Return a quotient by `divisor`, or (0) what depends on the rest by `modulus` alone.

    Quotients and rests that round to zero repeat as long as the sign stays.
    """
    course = inputs[0]
    settled = course.signed(0) if name in ("idiv", "irem") else {}
    if settled is None:
        return None
    turns: dict[Loop, Turn] = {}
    for loop, turn in course.turns.items():
        times = modulus // gcd(turn.gain, modulus)
        gain = turn.gain * times // divisor if divisor else 0
        after = Turn(settled.get(loop, turn.settled), turn.period, turn.gain)
        turns[loop] = after.longer(times, gain)
    return Course(_applied(name, inputs), turns)


def _compared(name: str, inputs: list[Course]) -> Course | None:
    """Return a comparison: it is constant from where the difference keeps its sign."""
    apart = _sum(inputs, (1, -1))
    settled = apart.signed(1)
    if settled is None:
        return None
    turns = {
        loop: Turn(settled[loop]) if loop in settled else turn for loop, turn in apart.turns.items()
    }
    return Course(_applied(name, inputs), turns)


def _repeating(name: str, inputs: list[Course]) -> Course | None:
    """Return any function of courses that repeat."""
    if any(item.growing for item in inputs):
        return None
    return Course(_applied(name, inputs), _sum(inputs, (1,) * len(inputs)).turns)
