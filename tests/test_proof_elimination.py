"""Numbers with which sums are not negative: those found do, and none are missed."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tawa.simulator.proof.elimination import Numbers, Rows, hold, parted

PLACES = (1, 2, 3)
BOX = range(-4, 5)
ROWS = st.lists(
    st.dictionaries(st.sampled_from((0, *PLACES)), st.integers(-5, 5), min_size=1), max_size=8
)


def numbers_of(given: list[dict[int, int]]) -> Numbers | None:
    rows = Rows.of([parted(row.items()) for row in given])
    return None if rows is None else rows.numbers()


def solves(rows: list[dict[int, int]], numbers: dict[int, int]) -> bool:
    return all(sum(many * numbers[at] for at, many in row.items()) >= 0 for row in rows)


@given(ROWS)
def test_what_is_found_does_it_and_nothing_is_missed(rows: list[dict[int, int]]) -> None:
    found = numbers_of(rows)
    if found is None:
        boxes = ({0: 1, **dict(zip(PLACES, at))} for at in product(BOX, repeat=len(PLACES)))
        assert not any(solves(rows, at) for at in boxes)
    elif found:
        assert hold((tuple([parted(row.items()) for row in rows]),), found)


def test_a_fraction_between_two_sums() -> None:
    # 3x is 1: there is no such whole number. 128 b - 128 a is 257 at least and 317 at most.
    assert numbers_of([{1: 3, 0: -1}, {1: -3, 0: 1}]) is None
    apart = {1: 128, 2: -128}
    assert numbers_of([{**apart, 0: -257}, {1: -128, 2: 128, 0: 317}]) is None
    assert numbers_of([{**apart, 0: -256}, {1: -128, 2: 128, 0: 317}])


def test_numbers_in_between_do_not_hide_it() -> None:
    # a and b are x / 128, rounded one way and the other: x is eliminated before them.
    a, b, x = PLACES
    rows = [{b: -128, x: 1, 0: 190}, {a: 128, x: -1, 0: 127}]
    assert numbers_of([*rows, {b: 128, a: -128, 0: -257}]) is None
    assert numbers_of([*rows, {b: 128, a: -128, 0: -256}])


def test_too_many_sums_say_nothing() -> None:
    many = [{1: one, 2: -one * two, 3: 7, 0: one} for one in range(1, 14) for two in range(1, 14)]
    assert numbers_of(many) == {}
