"""Roles that disagree for some inputs, though not for the ones that a role's own question asks for.

Who asks first had the number bound that is as round, or as small, as may be; the other role agreed
there: a loop of ``K / 8`` trips and one of ``(K + 7) / 8``. Found by a review.
"""

import pytest

from ring_text import fails, kernel, loop, of, once, refused, turn
from tawa.simulator.proof.cells import cells
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.rules import Unproved
from tawa.simulator.proof.scalars import Scalars, truth


def parts(more: int) -> str:
    return of("%sum", "add", "%K", f"%c{more}") + of("%n", "idiv", "%sum", "%c8")


def looped(role: str, bound: str) -> str:
    return bound + loop(role, "A", 2, "%n")


def asked(role: str, condition: str, ring: str = "B") -> str:
    return condition.replace("%is", f"%is_{ring}") + once(role, ring, f"%is_{ring}")


def compared(name: str, number: int) -> str:
    return of("%is", name, "%K", f"%c{number}", result="i1")


ODD = of("%x", "and", "%K", "%c1") + of("%is", "ne", "%x", "%c0", result="i1")
THIRD = of("%x", "irem", "%K", "%c3") + of("%is", "eq", "%x", "%c1", result="i1")
PART = of("%x", "idiv", "%K", "%c8") + of("%is", "ge", "%x", "%c0", result="i1")

LOOPS = {
    "down and up": (parts(0), parts(7), 1),
    "up and down": (parts(7), parts(0), 1),
    "one less": (parts(6), parts(7), 1),
    "one more": (parts(7), parts(6), 1),
    "absolute": (of("%n", "abs", "%K"), of("%n", "max", "%K", "%c0"), -3),
}


@pytest.mark.parametrize("name", LOOPS)
def test_unlike_trips_are_found(name: str) -> None:
    load, mma, at = LOOPS[name]
    text = kernel({"A": 2}, looped("load", load), looped("mma", mma))
    assert "nothing is left" in (found := refused(text)) or "nobody can go on" in found
    assert fails(text, K=at) or "never given back" in found
    assert not refused(kernel({"A": 2}, looped("load", load), looped("mma", load)))


@pytest.mark.parametrize(
    ("load", "mma"),
    [
        (compared("gt", 5), compared("gt", 4)),
        (compared("gt", 4), compared("gt", 5)),
        (compared("lt", 6), compared("lt", 5)),
        (compared("ge", 5), compared("ne", 0)),
        (ODD, THIRD),
        (THIRD, ODD),
        (compared("ge", 0), PART),
    ],
)
def test_unlike_conditions_are_found(load: str, mma: str) -> None:
    assert refused(kernel({"B": 1}, asked("load", load), asked("mma", mma)))
    assert not refused(kernel({"B": 1}, asked("load", mma), asked("mma", mma)))


@pytest.mark.parametrize(("first", "second"), [(4, 5), (5, 4)])
def test_conditions_that_change_places_are_found(first: int, second: int) -> None:
    rings = {"B": 1, "D": 1}
    load = asked("load", compared("gt", first)) + asked("load", compared("gt", second), "D")
    mma = asked("mma", compared("gt", second)) + asked("mma", compared("gt", first), "D")
    assert refused(kernel(rings, load, mma))


def test_other_ways_to_say_the_same_are_accepted() -> None:
    more = asked("load", compared("gt", 4))
    same = asked("mma", compared("ge", 5))
    assert not refused(kernel({"B": 1}, more, same))


def test_one_number_of_each_cell() -> None:
    scalars = Scalars(Configuration({}, survey=True))
    length = scalars.unknown("argument", 0)
    below = scalars.apply("lt", length, 10), scalars.apply("lt", length, 13)
    scalars.settle((below[0],), truth, 1, False)
    (name,) = scalars.names()
    questions = [(truth, (item,)) for item in below]
    found = list(cells(scalars, questions, 2, (), questions))
    numbers = [given[name] for given in found]
    assert [(n < 10, n < 13) for n in numbers] == [(False, True), (False, False)]
    assert not list(cells(scalars, questions, 2, found, questions))
    assert not list(cells(scalars, questions[:1], 2, (), questions))
    assert not list(cells(scalars, questions, 2, (), ()))


def test_a_number_of_more_cells_than_are_run_is_unproved() -> None:
    scalars = Scalars(Configuration({}, survey=True))
    length = scalars.unknown("argument", 0)
    below = [scalars.apply("lt", length, 10 * bound) for bound in range(1, 70)]
    scalars.settle((below[0],), truth, 1, False)
    questions = [(truth, (item,)) for item in below]
    assert len(list(cells(scalars, questions[:60], 2, (), questions))) == 60
    with pytest.raises(Unproved, match="more than 64 outcomes"):
        list(cells(scalars, questions, 2, (), questions))


def ladder(role: str, unlike: int) -> str:
    """A ring for each third number that K is at least, or (`unlike`) more than."""
    text = ""
    for step in range(1, 30):
        name = "gt" if step == unlike else "ge"
        text += f"%q{step} = tile.constant {{value = #builtin.int<{3 * step}>}} : i32\n"
        text += of(f"%is{step}", name, "%K", f"%q{step}", result="i1")
        text += once(role, f"R{step}", f"%is{step}")
    return text


@pytest.mark.parametrize("unlike", [0, 1, 20, 29])
def test_all_of_many_cells_are_run(unlike: int) -> None:
    rings = {f"R{step}": 1 for step in range(1, 30)}
    assert bool(refused(kernel(rings, ladder("load", 0), ladder("mma", unlike)))) == (unlike > 0)


def inside(role: str, bound: str) -> str:
    """A loop that runs where a first condition holds and a second, inside, does not."""
    return (
        f"{of('%f', 'gt', '%F', '%c0', result='i1')}scf.if %f {{\n"
        f"{of('%g', 'gt', '%G', '%c0', result='i1')}scf.if %g {{\n{once(role, 'B', '%f')}}} else {{"
        f"\n{looped(role, bound)}}}\n}}\n"
    )


@pytest.mark.parametrize("more", [0, 7])
def test_unlike_trips_are_found_on_the_way_to_a_loop(more: int) -> None:
    roles = inside("load", parts(more)), inside("mma", parts(7))
    text = kernel({"A": 2, "B": 1}, *roles, arguments=("K", "F", "G"))
    assert bool(refused(text)) == (more != 7) == fails(text, K=1, F=1, G=0)


@pytest.mark.parametrize("twin", ["%c3", "%c2"])
def test_each_slot_that_an_input_names_is_run(twin: str) -> None:
    """Roles use slot K of four, but where K is two the one asks for another slot than the other."""
    asked_for = of("%is", "lt", "%K", "%c4", result="i1") + of("%s", "max", "%K", "%c0")
    same = of("%two", "eq", "%s", "%c2", result="i1") + "%more = tile.cast %two : (i1) -> i32\n"
    same += of("%far", "sub", twin, "%c2") + of("%add", "mul", "%more", "%far")
    same += of("%r", "add", "%s", "%add")
    load = f"{asked_for}scf.if %is {{\n{turn('load', 'A', '%s', '%c1', 4)}}}\n"
    mma = f"{asked_for}{same}scf.if %is {{\n{turn('mma', 'A', '%r', '%c0', 4)}}}\n"
    text = kernel({"A": 4}, load, mma)
    assert bool(refused(text)) == fails(text, K=2) == (twin == "%c3")
