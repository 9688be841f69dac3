"""The course of a scalar over trips, against its values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Block, Region, SSAValue

from tawa.ir import tile
from tawa.ir.types import i32
from tawa.simulator.proof.course import Course, course_of
from tawa.simulator.proof.scalars import FUNCTIONS

TRIPS = 60
STEPS = ["add", "sub", "mul", "idiv", "irem", "shr", "shl", "and", "lt", "eq", "ge", "min", "xor"]


def number(value: int) -> SSAValue:
    return tile.Constant(attributes={"value": IntAttr(value)}, result_types=[i32]).result


def trip_of(first: SSAValue, step: int) -> SSAValue:
    """The index of a loop without a body."""
    block = Block([scf.YieldOp()], arg_types=[i32])
    return scf.ForOp(first, number(1 << 20), number(step), [], Region(block)).body.block.args[0]


def applied(name: str, *inputs: SSAValue) -> SSAValue:
    return tile.Elementwise(
        operands=[list(inputs)], attributes={"function": StringAttr(name)}, result_types=[i32]
    ).result


@st.composite
def scalars(draw: st.DrawFn) -> SSAValue:
    """Functions of the trips of one loop, or of two."""
    steps = st.sampled_from([1, 2, 3, 16, -1])
    outer = trip_of(number(draw(st.integers(-20, 20))), draw(steps))
    inner = trip_of(draw(st.sampled_from([number(0), outer])), draw(steps))
    made = [outer, inner]
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(STEPS))
        second = draw(st.one_of(st.integers(-20, 20).map(number), st.sampled_from(made)))
        made.append(applied(name, draw(st.sampled_from(made)), second))
    return made[-1]


def value_of(value: SSAValue, trips: dict[object, int]) -> int:
    """What the definitions of the operations give."""
    owner = value.owner
    match owner:
        case tile.Constant(value=IntAttr(data=known)):
            return known
        case tile.Elementwise(function=name, inputs=inputs):
            return FUNCTIONS[name.data](*(value_of(item, trips) for item in inputs))
        case Block():
            loop = owner.parent_op()
            assert isinstance(loop, scf.ForOp)
            first, step = value_of(loop.lb, trips), value_of(loop.step, trips)
            return first + step * trips[loop]
        case _:
            raise AssertionError(owner)


def check(value: SSAValue, course: Course) -> None:
    loops = list(course.turns)
    for which, loop in enumerate(loops):
        turn = course.turns[loop]
        for other in (0, 1, 7) if len(loops) > 1 else (0,):
            for trip in range(turn.settled, turn.settled + 2 * turn.period):
                at = {item: trip if item is loop else other for item in loops}
                later = {**at, loop: trip + turn.period}
                found = value_of(value, at)
                assert course.at(at) == found
                assert value_of(value, later) == found + turn.gain, (which, trip, turn)


@given(scalars())
def test_a_course_is_what_it_says(value: SSAValue) -> None:
    course = course_of(value)
    if course is not None and all(turn.settled < 4096 for turn in course.turns.values()):
        check(value, course)


def test_quotients_and_remainders_of_trips_are_seen() -> None:
    trip = trip_of(number(0), 16)
    even = applied("eq", applied("irem", applied("idiv", trip, number(16)), number(2)), number(0))
    near = applied("lt", applied("idiv", trip, number(16)), number(4))
    low = applied("and", applied("shr", trip, number(5)), number(3))
    for value, settled, period in ((even, 0, 2), (near, 5, 1), (low, 0, 8)):
        course = course_of(value)
        assert course is not None
        (turn,) = course.turns.values()
        assert (turn.settled, turn.period, turn.gain) == (settled, period, 0)


def test_a_difference_of_two_trips_need_not_settle() -> None:
    one, other = trip_of(number(0), 1), trip_of(number(0), 1)
    assert course_of(applied("lt", one, other)) is None
    assert course_of(applied("irem", applied("sub", one, other), number(2))) is None
    assert course_of(applied("mul", one, one)) is None
