"""Small programs of two or three roles whose synchronization depends on arguments, by brute force
over the arguments.

All roles of a program follow one skeleton of loops, conditions and turns of rings, each those of
its rings; in a faulty program one role says something in it otherwise. A program is written out as
hopper IR for the proof (`proof_inputs_text`), and run here for each input of a box with the
hardware's own rules. Nothing is shared with the proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, islice, product
from random import Random
from typing import Any, TypeAlias

Expr: TypeAlias = "int | str | tuple[Any, ...]"
"""A number, the name of an argument, trip or carried number, or a function of expressions."""

COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
JOIN = ("and", "or", "xor")
INFIX = {"add": "+", "sub": "-", "mul": "*"} | dict(
    zip(COMPARE, ("<", "<=", ">", ">=", "==", "!="))
)
MOST = 400
"""Turns of a role, and four times as many trips: longer runs are not made."""


@dataclass(frozen=True)
class Turn:
    """One turn of a ring: its slot is awaited, written or read, and passed on. Where `when` holds
    (a fault), it is done without "wait" or "arrive", at another "slot" or in another "phase".
    """

    ring: int
    fault: str = ""
    when: Expr = 0


@dataclass(frozen=True)
class For:
    """A loop; `carried` is a number that starts as `first` and becomes `then` with each trip."""

    trip: str
    start: Expr
    end: Expr
    step: Expr
    body: tuple[Statement, ...]
    carried: str = ""
    first: Expr = 0
    then: Expr = 0


@dataclass(frozen=True)
class If:
    condition: Expr
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...] = ()


Statement: TypeAlias = "Turn | For | If"


@dataclass(frozen=True)
class Ring:
    """A ring: who puts, who gets; `data` has its slots written and read."""

    depth: int
    producer: int
    consumers: tuple[int, ...]
    data: bool

    def parties(self) -> tuple[int, ...]:
        return (self.producer, *self.consumers)


@dataclass(frozen=True)
class Program:
    arguments: tuple[str, ...]
    rings: tuple[Ring, ...]
    roles: tuple[tuple[Statement, ...], ...]


def kept(body: Sequence[Statement], rings: set[int]) -> tuple[Statement, ...]:
    """Return what of a skeleton a role of some rings does."""
    found: list[Statement] = []
    for item in body:
        match item:
            case Turn():
                found += [item] * (item.ring in rings)
            case For():
                inside = kept(item.body, rings)
                if inside:
                    found.append(replace(item, body=inside))
            case If():
                yes, no = kept(item.yes, rings), kept(item.no, rings)
                if yes or no:
                    found.append(If(item.condition, yes, no))
    return tuple(found)


def turned(body: Sequence[Statement]) -> set[int]:
    """Return the rings that statements turn."""
    found: set[int] = set()
    for item in body:
        match item:
            case Turn():
                found.add(item.ring)
            case For():
                found |= turned(item.body)
            case If():
                found |= turned(item.yes) | turned(item.no)
    return found


# --- by brute force -------------------------------------------------------------------------------


class Long(Exception):
    pass


def quotient(a: int, b: int) -> int:
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def remainder(a: int, b: int) -> int:
    return a - quotient(a, b) * b


def python(expr: Expr) -> str:
    """Return an expression as Python."""
    match expr:
        case int() | str():
            return str(expr)
        case ("select", condition, a, b):
            return f"({python(a)} if {python(condition)} else {python(b)})"
        case (name, a, b) if name in INFIX:
            return f"({python(a)} {INFIX[name]} {python(b)})"
        case (name, a, b) if name in JOIN:
            return f"({python(a)} {dict(zip(JOIN, '&|^'))[name]} {python(b)})"
        case (name, *parts):
            names = {"idiv": "quotient", "irem": "remainder"}
            return f"{names.get(name, name)}({', '.join(map(python, parts))})"
    raise AssertionError(expr)


def _lines(body: Sequence[Statement], places: Iterator[int], indent: str = " ") -> Iterator[str]:
    """Yield the lines of a Python function; turns of rings have numbers."""
    for item in body:
        match item:
            case Turn():
                given = f"{next(places)}, {item.ring}, {item.fault!r}, {python(item.when)}"
                yield f"{indent}turn({given})"
            case For():
                if item.carried:
                    yield f"{indent}{item.carried} = {python(item.first)}"
                bounds = ", ".join(python(each) for each in (item.start, item.end, item.step))
                yield f"{indent}for {item.trip} in range({bounds}):"
                yield f"{indent} trip()"
                yield from _lines(item.body, places, indent + " ")
                if item.carried:
                    yield f"{indent} {item.carried} = {python(item.then)}"
            case If():
                yield f"{indent}if {python(item.condition)}:"
                yield f"{indent} pass"
                yield from _lines(item.yes, places, indent + " ")
                yield f"{indent}else:"
                yield f"{indent} pass"
                yield from _lines(item.no, places, indent + " ")


Action: TypeAlias = "tuple[str, tuple[int, int, int], int]"
"""(what, which, number): "wait" for parity `number` of a barrier, "arrive" at one, "write" and
"read" a cell. Which is (ring, slot, whether it is the barrier that tells of given back slots).
"""


class Tracer:
    """Notes what a role does for one input."""

    def __init__(self, rings: Sequence[Ring], role: int) -> None:
        self.rings, self.role = rings, role
        self.done: list[Action] = []
        self.states = [(0, int(role == ring.producer)) for ring in rings]
        self.trips = 0
        self.reached = set[int]()

    def trip(self) -> None:
        self.trips += 1
        if self.trips > 4 * MOST:
            raise Long

    def turn(self, place: int, number: int, fault: str, when: bool) -> None:
        self.reached.add(place)
        ring, (slot, phase) = self.rings[number], self.states[number]
        puts = self.role == ring.producer
        following = slot + 1
        self.states[number] = (following, phase) if following < ring.depth else (0, phase ^ 1)
        if len(self.done) > 3 * MOST:
            raise Long
        if when and fault == "slot":
            slot = 0 if slot else ring.depth - 1
        if when and fault == "phase":
            phase ^= 1
        if not (when and fault == "wait"):
            self.done.append(("wait", (number, slot, int(puts)), phase))
        if ring.data:
            self.done.append(("write" if puts else "read", (number, slot, 0), 0))
        if not (when and fault == "arrive"):
            self.done.append(("arrive", (number, slot, int(not puts)), 0))


class Concrete:
    """A program to be run for one input after the other; `missing` are the turns of each role that
    no input has reached.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.known: dict[object, str] = {}
        self.roles: list[Any] = []
        given = ", ".join(program.arguments)
        self.missing: list[set[int]] = []
        for body in program.roles:
            places = count()
            lines = "\n".join(_lines(body, places))
            self.missing.append(set(range(next(places))))
            names: dict[str, Any] = {"quotient": quotient, "remainder": remainder}
            exec(f"def role(turn, trip, {given}):\n pass\n{lines}", names)
            self.roles.append(names["role"])

    def actions(self, given: Sequence[int]) -> tuple[tuple[Action, ...], ...]:
        """Return what each role does. Raises Long."""
        found: list[tuple[Action, ...]] = []
        for number, role in enumerate(self.roles):
            tracer = Tracer(self.program.rings, number)
            role(tracer.turn, tracer.trip, *given)
            found.append(tuple(tracer.done))
            self.missing[number] -= tracer.reached
        return tuple(found)

    def fault(self, given: Sequence[int]) -> str:
        """Return what goes wrong for an input, or nothing; "?" where slots are left full, which
        does no harm by itself. Raises Long.
        """
        actions = self.actions(given)
        found = self.known.get(actions)
        if found is None:
            orders = list(range(len(actions)))
            rings = self.program.rings
            found = next(filter(None, (run(rings, actions, o) for o in (orders, orders[::-1]))), "")
            if not found and any(_counts(actions, n, r) for n, r in enumerate(rings)):
                found = "?"
            self.known[actions] = found
        return found


def _counts(actions: Sequence[Sequence[Action]], number: int, ring: Ring) -> bool:
    """Tell whether the parties of a ring turn it unlike times."""
    return len({_turns(actions[role], number) for role in ring.parties()}) > 1


def _turns(actions: Sequence[Action], number: int) -> int:
    return sum(1 for what, which, _ in actions if what == "arrive" and which[0] == number)


def run(rings: Sequence[Ring], actions: Sequence[Sequence[Action]], order: Sequence[int]) -> str:
    """Run what roles do, in turn as far as they come, and return what goes wrong.

    `clocks` have what each role knows of the others: how far they are.
    """
    places = [0] * len(actions)
    clocks = [[0] * len(actions) for _ in actions]
    barriers: dict[tuple[int, int, int], tuple[int, int, list[int], list[int]]] = {}
    cells: dict[tuple[int, int, int], tuple[tuple[int, int] | None, dict[int, int]]] = {}
    nobody = [0] * len(actions)
    moved = True
    while moved:
        moved = False
        for role in order:
            clock = clocks[role]
            for what, which, number in actions[role][places[role] :]:
                pending, done, here, passed = barriers.get(which, (0, 0, nobody, nobody))
                if what == "wait":
                    if done & 1 == number:
                        break
                    clock[:] = map(max, clock, passed)
                elif what == "arrive":
                    here, pending = list(map(max, here, clock)), pending + 1
                    if pending == (len(rings[which[0]].consumers) if which[2] else 1):
                        barriers[which] = (0, done + 1, nobody, here)
                    else:
                        barriers[which] = (pending, done, here, passed)
                else:
                    last, readers = cells.get(which, (None, {}))
                    if last is None and what == "read":
                        return "an empty slot is read"
                    if last is not None and clock[last[0]] < last[1]:
                        return "a race with a write"
                    if what == "write":
                        if any(clock[who] < at for who, at in readers.items()):
                            return "a race with a read"
                        cells[which] = ((role, places[role] + 1), {})
                    else:
                        cells[which] = (last, {**readers, role: places[role] + 1})
                places[role] += 1
                clock[role] = places[role]
                moved = True
    if any(place < len(actions[role]) for role, place in enumerate(places)):
        return "a hang"
    if any(pending for pending, _, _, _ in barriers.values()):
        return "an open phase"
    return ""


def box(program: Program) -> Iterator[tuple[int, ...]]:
    """Yield inputs: small ones, those about the program's constants and beyond, large ones nearly
    alike, and some of all these at random.
    """
    arguments, random = len(program.arguments), Random(0)
    sizes = {number for body in program.roles for number in _numbers(body)}
    about = {base + more for base in sizes for more in (-1, 0, 1)}
    tried = sorted({*range(-3, 13), *about, *(-item for item in about), 16, 20, 31, 32, 33, 64, 65})
    if arguments == 2:
        small = sorted({*range(-3, 9), *about})
        yield from sorted(product(small, small), key=lambda point: sum(map(abs, point)))
    for _ in range(150 * arguments):
        yield tuple([random.choice(tried) for _ in range(arguments)])
    for _ in range(40 * arguments):
        first = random.randrange(-10, 40)
        yield tuple([first + random.randrange(-2, 3) for _ in range(arguments)])


def _numbers(item: object) -> Iterator[int]:
    """Yield the constants of a program."""
    match item:
        case int():
            yield item
        case tuple():
            for part in item:
                yield from _numbers(part)
        case For():
            yield from _numbers((item.start, item.end, item.step, item.first, item.then, item.body))
        case If():
            yield from _numbers((item.condition, item.yes, item.no))
        case Turn():
            yield from _numbers(item.when)
        case _:
            pass


def is_reached(program: Program, inputs: int = 400) -> bool:
    """Tell whether each turn of a program is reached by some of the first inputs of its box."""
    concrete = Concrete(program)
    for given in islice(box(program), inputs):
        with suppress(Long):
            concrete.actions(given)
        if not any(concrete.missing):
            return True
    return False


def faults(program: Program) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield inputs for which a program goes wrong, and how."""
    concrete = Concrete(program)
    for given in box(program):
        try:
            found = concrete.fault(given)
        except Long:
            continue
        if found:
            yield given, found
