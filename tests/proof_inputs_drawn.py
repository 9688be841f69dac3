"""Random programs for `proof_inputs`, most of whose roles agree; in some, one is made to differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from proof_inputs import (
    COMPARE,
    Expr,
    For,
    If,
    Program,
    Ring,
    Statement,
    Turn,
    is_reached,
    kept,
    turned,
)

_NEXT = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ge", "ne": "gt"}
_SAME = {"lt": ("le", -1), "le": ("lt", 1), "gt": ("ge", 1), "ge": ("gt", -1)}
_TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


@dataclass
class Scope:
    """The names that an expression may have: arguments, numbers of trips, carried numbers."""

    arguments: tuple[str, ...]
    trips: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    loops: int = 0
    conditions: int = 0


@dataclass
class Drawer:
    """Draws a program: each of its choices is one of `random`."""

    random: Random
    names: int = 0
    rings: list[Ring] = field(default_factory=list[Ring])

    def program(self) -> Program:
        """Return a program whose roles agree."""
        random = self.random
        roles = random.choice((2, 2, 2, 3))
        for _ in range(random.choice((1, 1, 2))):
            producer, *others = random.sample(range(roles), roles)
            consumers = tuple(sorted(others[: random.choice((1, 1, 2))]))
            data = random.random() < 0.4
            self.rings.append(Ring(random.choice((1, 2, 2, 3)), producer, consumers, data))
        arguments = ("K", "F", "L")[: random.choice((2, 2, 2, 3))]
        body: tuple[Statement, ...] = ()
        while not body or turned(body) != set(range(len(self.rings))):
            body = self.body(Scope(arguments), random.choice((1, 1, 2, 2, 3)))
        used = [kept(body, self.of(role)) for role in range(roles)]
        return Program(arguments, tuple(self.rings), tuple(used))

    def of(self, role: int) -> set[int]:
        return {number for number, ring in enumerate(self.rings) if role in ring.parties()}

    # --- statements -------------------------------------------------------------------------------

    def body(self, scope: Scope, length: int) -> tuple[Statement, ...]:
        return tuple([self.statement(scope) for _ in range(length)])

    def statement(self, scope: Scope) -> Statement:
        random = self.random
        kinds = ["turn"] * (1 if scope.loops + scope.conditions == 0 else 4)
        kinds += ["for"] * (4, 2, 1, 0)[scope.loops] + ["if"] * (3, 2, 1, 0)[scope.conditions]
        match random.choice(kinds):
            case "for":
                return self.loop(scope)
            case "if":
                return self.branch(scope)
            case _:
                return Turn(random.randrange(len(self.rings)))

    def loop(self, scope: Scope) -> For:
        random = self.random
        self.names += 1
        trip = f"t{self.names}"
        carried = f"b{self.names}" if random.random() < 0.12 else ""
        inside = replace(scope, trips=(*scope.trips, trip), loops=scope.loops + 1)
        if carried:
            inside.carried = (*scope.carried, carried)
        start = (
            random.choice((0, 0, 0, 0, 1, 2)) if random.random() < 0.85 else self.number(scope, 1)
        )
        step = random.choice((1, 1, 1, 1, 1, 2, 3, 4, 8))
        end = self.bound(scope)
        body = self.body(inside, random.choice((1, 1, 1, 2)))
        first = self.number(scope, 1) if carried else 0
        then: Expr = 0
        if carried:
            more: Expr = random.choice((1, 1, -1, 2, trip))
            then = ("add", carried, more)
            if random.random() < 0.4:
                then = (random.choice(("min", "max")), then, random.choice(scope.arguments))
        return For(trip, start, end, step, body, carried, first, then)

    def branch(self, scope: Scope) -> If:
        inside = replace(scope, conditions=scope.conditions + 1)
        condition = self.condition(scope, 2)
        yes = self.body(inside, self.random.choice((1, 1, 2)))
        no = self.body(inside, 1) if self.random.random() < 0.4 else ()
        return If(condition, yes, no)

    # --- expressions ------------------------------------------------------------------------------

    def bound(self, scope: Scope) -> Expr:
        random = self.random
        number: Expr = random.choice(scope.arguments)
        if scope.trips + scope.carried and random.random() < 0.25:
            number = random.choice(scope.trips + scope.carried)
        match random.randrange(9):
            case 0 | 1:
                return number
            case 2:
                return ("idiv", ("add", number, random.choice((0, 1, 2, 3, 7))), self.size())
            case 3:
                return ("min", number, random.choice((1, 2, 3, 4, *scope.arguments)))
            case 4:
                other = random.choice(scope.arguments)
                return ("sub", number, random.choice((1, 2, other, ("idiv", other, 2))))
            case 5:
                size = self.size()
                rest = ("sub", number, ("mul", random.choice(scope.arguments), size))
                return ("max", 0, ("min", size, rest))
            case 6:
                return ("irem", number, self.size())
            case 7:
                return self.choice(scope, 1)
            case _:
                return self.number(scope, 2)

    def size(self) -> int:
        return self.random.choice((2, 2, 3, 4, 4, 5, 8))

    def number(self, scope: Scope, deep: int) -> Expr:
        random = self.random
        if not deep or random.random() < 0.3:
            names = scope.arguments * 3 + scope.trips * 2 + scope.carried * 3
            return random.choice((*names, *range(random.choice((3, 9)))))
        a = self.number(scope, deep - 1)
        match random.randrange(8):
            case 0:
                return ("add", a, self.number(scope, deep - 1))
            case 1:
                return ("sub", a, self.number(scope, deep - 1))
            case 2:
                return ("mul", a, random.choice((2, 2, 3, -1)))
            case 3:
                return ("idiv", a, self.size())
            case 4:
                return ("irem", a, self.size())
            case 5:
                return ("min", a, self.number(scope, deep - 1))
            case 6:
                return ("max", a, self.number(scope, deep - 1))
            case _:
                return self.choice(scope, deep)

    def choice(self, scope: Scope, deep: int) -> Expr:
        condition = self.condition(scope, deep - 1)
        return ("select", condition, self.number(scope, deep - 1), self.number(scope, deep - 1))

    def condition(self, scope: Scope, deep: int) -> Expr:
        random = self.random
        if deep and random.random() < 0.25:
            two = self.condition(scope, deep - 1), self.condition(scope, deep - 1)
            return (random.choice(("and", "and", "or", "or", "xor")), *two)
        a = self.number(scope, max(1, deep) if random.random() < 0.6 else 0)
        if isinstance(a, int):
            a = random.choice(scope.arguments)
        b = self.number(scope, 1) if random.random() < 0.4 else random.randrange(9)
        return (random.choice(COMPARE), a, b)

    # --- another way to say something, and something else -----------------------------------------

    def respelled(self, expr: Expr) -> Expr:
        """Return an expression that is the same for all numbers."""
        match expr:
            case (name, a, b) if (
                name in _SAME and isinstance(b, int) and self.random.random() < 0.5
            ):
                other, more = _SAME[name]
                return (other, a, b + more)
            case (name, a, b) if name in COMPARE:
                return (_TURNED[name], b, a)
            case ("add" | "mul" | "min" | "max" | "and" | "or" | "xor" as name, a, b):
                return (name, b, a)
            case ("sub", a, int(b)):
                return ("add", a, -b)
            case ("select", condition, a, b):
                never = ("xor", condition, ("eq", 0, 0))
                return ("select", never, b, a)
            case _:
                return expr

    def unlike(self, expr: Expr, scope: Scope, condition: bool) -> Expr:
        """Return an expression that differs from one a little, or in a corner only."""
        random = self.random
        if random.random() < 0.45:
            corner = self.corner(scope)
            if condition:
                return (random.choice(("xor", "or", "xor")), expr, corner)
            return ("select", corner, ("add", expr, random.choice((1, 1, -1, 2))), expr)
        match expr:
            case int():
                return expr + random.choice((1, -1))
            case str():
                others = [name for name in scope.arguments + scope.trips if name != expr]
                more: Expr = ("add", expr, random.choice((1, -1)))
                return random.choice((more, random.choice(others) if others else more))
            case (name, a, b) if name in COMPARE and random.random() < 0.6:
                return (_NEXT[name], a, b)
            case ("min" | "max" as name, a, b) if random.random() < 0.3:
                return ("max" if name == "min" else "min", a, b)
            case ("and" | "or" as name, a, b) if random.random() < 0.3:
                return ("or" if name == "and" else "and", a, b)
            case ("idiv", a, int(b)) if random.random() < 0.5:
                return ("idiv", ("add", a, random.choice((1, b - 1, -1))), b)
            case ("irem" | "idiv", a, int(b)):
                return (expr[0], self.unlike(a, scope, False), b)
            case ("mul", a, int(b)):
                return ("mul", self.unlike(a, scope, False), b)
            case (name, *parts):
                place = random.randrange(len(parts))
                conditions = name in ("and", "or", "xor") or (name == "select" and place == 0)
                parts[place] = self.unlike(parts[place], scope, conditions)
                return (name, *parts)
        raise AssertionError(expr)

    def corner(self, scope: Scope) -> Expr:
        """Return a condition that holds seldom."""
        random = self.random
        a, b = random.sample(scope.arguments, 2)
        number = random.randrange(20)
        trip = random.choice(scope.trips) if scope.trips else a
        return random.choice(
            (
                ("eq", a, ("sub", b, random.choice((1, 0, 2)))),
                ("gt", a, random.choice((5, 7, 12, 16))),
                ("eq", a, number),
                ("and", ("eq", a, number), ("gt", b, number // 2)),
                ("and", ("gt", a, number // 2), ("lt", b, random.randrange(5))),
                ("eq", ("irem", a, random.choice((5, 7))), 3),
                ("eq", ("add", a, b), number),
                ("eq", ("sub", ("mul", a, 2), b), 3),
                ("eq", trip, number // 3),
                ("eq", trip, ("sub", a, 1)),
                ("and", ("eq", trip, number // 3), ("eq", a, number // 2)),
                ("lt", ("add", a, b), random.randrange(4)),
                ("gt", ("irem", a, 4), ("irem", b, 4)),
                ("and", ("ne", a, 0), ("eq", ("irem", a, 8), 0)),
            )
        )

    def differing(self, program: Program, fault: bool) -> Program:
        """Return a program of which one role says one thing in another way: something else where
        `fault`, the same where not.
        """
        role = self.random.randrange(len(program.roles))
        body = program.roles[role]
        places = _places(body)
        if not places:
            return program
        chosen = self.random.randrange(places)
        changed = _Change(self, chosen, fault).of(body, Scope(program.arguments))
        roles = (*program.roles[:role], changed, *program.roles[role + 1 :])
        return replace(program, roles=roles)


def _places(body: Sequence[Statement]) -> int:
    found = 0
    for item in body:
        match item:
            case Turn():
                found += 1
            case For():
                found += 2 + 2 * bool(item.carried) + _places(item.body)
            case If():
                found += 1 + _places(item.yes) + _places(item.no)
    return found


@dataclass
class _Change:
    """Changes one expression of a role."""

    drawer: Drawer
    left: int
    fault: bool

    def of(self, body: Sequence[Statement], scope: Scope) -> tuple[Statement, ...]:
        return tuple([self.statement(item, scope) for item in body])

    def expr(self, expr: Expr, scope: Scope, condition: bool = False) -> Expr:
        self.left -= 1
        if self.left != -1:
            return expr
        if self.fault:
            return self.drawer.unlike(expr, scope, condition)
        return self.drawer.respelled(expr)

    def statement(self, item: Statement, scope: Scope) -> Statement:
        match item:
            case Turn():
                when = self.expr(("eq", 0, 1), scope, True)
                if when == ("eq", 0, 1) or not self.fault:
                    return item
                fault = self.drawer.random.choice(("wait", "arrive", "slot", "phase"))
                return Turn(item.ring, fault, self.drawer.corner(scope))
            case For():
                fields: dict[str, Any] = {}
                fields["end"] = self.expr(item.end, scope)
                fields["start"] = self.expr(item.start, scope)
                inside = replace(scope, trips=(*scope.trips, item.trip))
                if item.carried:
                    fields["first"] = self.expr(item.first, scope)
                    inside.carried = (*scope.carried, item.carried)
                    fields["then"] = self.expr(item.then, inside)
                return replace(item, **fields, body=self.of(item.body, inside))
            case If():
                condition = self.expr(item.condition, scope, True)
                return If(condition, self.of(item.yes, scope), self.of(item.no, scope))
        raise AssertionError(item)


def draw(seed: int) -> Program:
    """Return the program of a number: most of them reach all that they have."""
    random = Random(seed)
    some = [Drawer(random).program() for _ in range(8)]
    program = next(filter(is_reached, some), some[0])
    drawer = Drawer(random, rings=list(program.rings))
    for _ in range(random.choice((0, 0, 1, 2))):
        program = drawer.differing(program, False)
    if random.random() < 0.6:
        program = drawer.differing(program, True)
    return program
