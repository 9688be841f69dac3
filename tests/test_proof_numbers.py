"""Roles whose conditions are one for numbers without end, and two in the machine: of floats that
may be NaN, of integers without a sign, of few bits. Found by a review.
"""

import math

import pytest

from ring_text import fails, kernel, loop, of, once, refused, start, turn

ZERO = '%z = tile.constant {value = #tile.real<"0.0">} : f32\n'


def below(name: str) -> str:
    return ZERO + of("%is", name, "%x", "%z", kind="f32", result="i1")


NOT_ABOVE = (
    ZERO
    + of("%c", "ge", "%x", "%z", kind="f32", result="i1")
    + "%t = tile.constant {value = #builtin.int<1>} : i1\n"
    + of("%is", "xor", "%c", "%t", kind="i1", result="i1")
)


def real(load: str, mma: str) -> str:
    text = kernel({"B": 1}, load + once("load", "B", "%is"), mma + once("mma", "B", "%is"), "x")
    return text.replace("%x : i32", "%x : f32")


def test_a_comparison_with_nan() -> None:
    text = real(below("lt"), NOT_ABOVE)
    assert refused(text)
    assert fails(text, x=math.nan)
    assert not refused(real(below("lt"), below("lt")))


UNSIGNED = (
    "%u = tile.cast %K : (i32) -> ui32\n"
    "%one = tile.constant {value = #builtin.int<1>} : ui32\n"
    + of("%less", "sub", "%u", "%one", kind="ui32", result="ui32")
    + of("%is", "lt", "%less", "%one", kind="ui32", result="i1")
)
BYTE = "%b = tile.cast %K : (i32) -> i8\n%w = tile.cast %b : (i8) -> i32\n" + of(
    "%is", "gt", "%w", "%c0", result="i1"
)


@pytest.mark.parametrize(
    ("load", "mma"),
    [
        (of("%is", "lt", "%K", "%c2", result="i1"), UNSIGNED),  # differ for 0
        (of("%is", "gt", "%K", "%c0", result="i1"), BYTE),  # for 128
    ],
    ids=["unsigned", "byte"],
)
def test_numbers_that_wrap(load: str, mma: str) -> None:
    assert refused(kernel({"B": 1}, load + once("load", "B", "%is"), mma + once("mma", "B", "%is")))
    for alike in (load, mma):
        role = [alike + once(role, "B", "%is") for role in ("load", "mma")]
        assert not refused(kernel({"B": 1}, *role))


def guarded(role: str, condition: str) -> str:
    return (
        f"scf.for %k = %c0 to %K step %c1 : i32 {{\n{condition}"
        f"scf.if %is {{\n{turn(role, 'B', '%c0', start(role), 1)}}}\nscf.yield\n}}\n"
    )


@pytest.mark.parametrize(
    "condition",
    [
        "%b = tile.cast %k : (i32) -> i8\n%w = tile.cast %b : (i8) -> i32\n"
        + of("%is", "lt", "%w", "%c0", result="i1"),  # from trip 128 on
        of("%far", "shl", "%k", "%c22") + of("%is", "lt", "%far", "%c0", result="i1"),  # trip 512
    ],
    ids=["byte", "overflow"],
)
def test_a_condition_on_trips_that_wraps_is_unproved(condition: str) -> None:
    roles = [guarded(role, condition) for role in ("load", "mma")]
    assert refused(kernel({"B": 1}, *roles, constants=(22,))) == "unproved"


def phased(role: str, pick: str) -> str:
    """A ring of one slot whose phase a trip hands on by `pick`."""
    return (
        f"%e = scf.for %k = %c0 to %K step %c1 iter_args(%p = {start(role)}) -> (i32) : i32 {{\n"
        + turn(role, "A", "%c0", "%p", 1)
        + of("%x", "xor", "%p", "%c1")
        + pick
        + "scf.yield %np : i32\n}\n"
    )


def test_a_phase_that_depends_on_a_length() -> None:
    big = of("%big", "gt", "%K", "%c64", result="i1")
    late = big + '%np = tile.elementwise "select"(%big, %p, %x) : (i1, i32, i32) -> i32\n'
    flip = of("%np", "add", "%x", "%c0")
    text = kernel({"A": 1}, phased("load", flip), phased("mma", late))
    assert refused(text)
    assert fails(text, K=80)
    assert not refused(kernel({"A": 1}, phased("load", flip), phased("mma", flip)))


def test_a_phase_of_trips_and_a_length_is_unproved() -> None:
    sums = of("%s", "add", "%k", "%K") + of("%h", "shr", "%s", "%c7")
    number = sums + of("%o", "xor", "%k", "%h") + of("%q", "and", "%o", "%c1")
    mma = loop("mma", "A", 1, "%K").replace("hopper.wait", number + "hopper.wait")
    mma = mma.replace("%A_k", "%k").replace("[%A_s], %A_p :", "[%A_s], %q :", 1)
    assert refused(kernel({"A": 1}, loop("load", "A", 1, "%K"), mma)) == "unproved"
