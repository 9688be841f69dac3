"""Numbers with which sums are not negative: those found do, and none are missed."""

from collections.abc import Sequence
from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tawa.simulator.proof.elimination import Fits, Numbers, Row, Rows, hold, parted

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


def row_of(random: Random) -> Row:
    """A sum of three numbers and a constant."""
    factors = [random.choice((0, 0, 1, -1, 2, -2, 3, -4)) for _ in range(3)]
    return parted([(0, random.randint(-4, 4)), *enumerate(factors, 1)])


def rows_in(fits: Fits, sums: Sequence[Row]) -> Rows | None:
    """The sums as rows of a table, None where one of them is always negative."""
    rows = Rows(fits.table)
    return rows if all(rows.keep(*each) for each in sums) else None


def is_not_negative(row: Row, numbers: Sequence[int]) -> bool:
    factors, constant = row
    return constant + sum(by * numbers[place - 1] for place, by in factors) >= 0


def test_what_was_found_before_changes_no_answer() -> None:
    """Much the same is asked of one table: it says what a new one says, and never no where numbers
    of a box do it.
    """
    box = [*product(range(-3, 4), repeat=3)]
    refused = 0
    for seed in range(60):
        random, kept = Random(seed), Fits()
        pool = [row_of(random) for _ in range(5)]
        splits = tuple(
            tuple(tuple(row_of(random) for _ in range(random.choice((1, 2)))) for _ in range(2))
            for _ in range(random.choice((0, 1, 2)))
        )
        for _ in range(12):
            some = random.sample(pool, random.randint(1, 4))
            sums = [(factors, by + random.choice((-2, -1, 0, 1))) for factors, by in some]
            new = Fits()
            rows, alone = rows_in(kept, sums), rows_in(new, sums)
            if rows is None or alone is None:
                continue
            answer = kept.fit(rows, splits)
            assert answer == new.fit(alone, splits)
            if not answer:
                refused += 1
                assert not any(
                    all(is_not_negative(each, numbers) for each in sums)
                    and all(
                        any(all(is_not_negative(one, numbers) for one in case) for case in split)
                        for split in splits
                    )
                    for numbers in box
                )
    assert refused > 30
