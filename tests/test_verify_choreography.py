"""All roles run together: random pipelined roles against runs of them at each trip count, and what
breaks slots, phases, turns and the hold of slots.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from tawa import ir
from tawa.ir import hopper
from tawa.ir.walk import all_of
from tawa.verify import Refused
from tawa.verify.agreement import cluster_of
from tawa.verify.choreography import Choreography
from tawa.verify.rings import slots_of
from tawa.verify.system import read_system
from tawa.verify.values import Values


def run(kernel: ir.tile.Kernel) -> int:
    """Check what roles do together, and nothing else; return how many states that took. All slots
    are free at the start."""
    leads = {
        each.result: slots_of(each.result) if each.label.data.endswith("freed") else 0
        for each in all_of(kernel, hopper.Barriers)
    }
    together = Choreography(read_system(kernel, Values(kernel, cluster_of(kernel)), leads))
    together.run()
    return len(together.seen)


# --- random systems -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """A put, get or free of a ring in the body of a loop, so many iterations late."""

    kind: str
    ring: int
    late: int = 0


Body = list[Event]


def drawn(rng: random.Random) -> tuple[list[Body], list[int]]:
    """Two or three roles with one or two puts of each ring in an iteration, in any order."""
    depths = [rng.choice((1, 1, 2, 2, 3)) for _ in range(rng.choice((1, 2, 3)))]
    roles: list[Body] = [[] for _ in range(rng.choice((2, 2, 3)))]
    for ring in range(len(depths)):
        giver, taker = rng.sample(range(len(roles)), 2)
        for _ in range(rng.choice((1, 1, 2))):
            get = rng.choice((0, 0, 1, 2))
            roles[giver].append(Event("put", ring, rng.choice((0, 0, 1))))
            roles[taker] += [
                Event("get", ring, get),
                Event("free", ring, get + rng.choice((0, 0, 1))),
            ]
    for body in roles:
        if rng.random() < 0.5:
            rng.shuffle(body)
    return [body for body in roles if body], depths


def is_wrong(roles: list[Body], depths: list[int], iterations: int) -> bool:
    """Run the roles, each as far as it can; tell whether they hang."""
    programs = [
        [
            event
            for step in range(iterations + max((each.late for each in body), default=0))
            for event in body
            if 0 <= step - event.late < iterations
        ]
        for body in roles
    ]
    return hangs(programs, depths)


def hangs(programs: list[Body], depths: list[int]) -> bool:
    """Run programs, each as far as it can; tell whether they hang. That only what was got is freed
    is a matter of each role alone."""
    at = [0] * len(programs)
    filled, used = ([0] * len(depths) for _ in range(2))
    moved = True
    while moved:
        moved = False
        for who, program in enumerate(programs):
            while at[who] < len(program):
                kind, ring = program[at[who]].kind, program[at[who]].ring
                if kind == "put":
                    if used[ring] == depths[ring]:
                        break
                    used[ring] += 1
                    filled[ring] += 1
                elif kind == "get":
                    if not filled[ring]:
                        break
                    filled[ring] -= 1
                else:
                    used[ring] -= 1
                at[who] += 1
                moved = True
    return any(place < len(program) for place, program in zip(at, programs, strict=True))


Nest = list["Event | Nest"]
"""The body of a loop; a loop in it makes as many iterations as the number of its own."""
Names = dict[tuple[str, int], tuple[str, str]]
"""Slot and phase of each kind of event of a ring."""


def flat(body: Nest) -> Body:
    """All events of a body."""
    return [event for part in body for event in ([part] if isinstance(part, Event) else flat(part))]


def unrolled(body: Nest, iterations: int) -> Body:
    """The events of a loop, one after the other."""
    found: Body = []
    for number in range(iterations):
        for part in body:
            found += [part] if isinstance(part, Event) else unrolled(part, number)
    return found


class Writer:
    """Writes a role: each kind of event of a ring has a slot and a phase of its own."""

    def __init__(self, role: str, body: Body, depths: list[int]) -> None:
        self.role, self.body, self.depths = role, body, depths
        self.lines: list[str] = []
        self.number = 0

    def name(self) -> str:
        self.number += 1
        return f"%r{self.role}_{self.number}"

    def put(self, function: str, *inputs: str, result: str = "i32") -> str:
        name = self.name()
        kinds = ", ".join("i1" if each.startswith("%b") else "i32" for each in inputs)
        if function == "and":
            kinds = "i1, i1"
        if function == "select":
            kinds = "i1, i32, i32"
        line = (
            f'{name} = tile.elementwise "{function}"({", ".join(inputs)}) : ({kinds}) -> {result}'
        )
        self.lines.append(line)
        return name

    def event(self, event: Event, slot: str, phase: str) -> tuple[str, str]:
        ring, depth = event.ring, self.depths[event.ring]
        kind = f"!hopper.barriers<#builtin.int<{depth}>>"
        if event.kind in ("put", "get"):
            barriers = "freed" if event.kind == "put" else "filled"
            self.lines.append(f"hopper.wait %{barriers}{ring}[{slot}], {phase} : {kind}, i32, i32")
        if event.kind in ("put", "free"):
            barriers = "filled" if event.kind == "put" else "freed"
            self.lines.append(
                f'hopper.arrive %{barriers}{ring}[{slot}] {{by = "all"}} : {kind}, i32'
            )
        more = self.put("add", slot, "%one")
        wraps = self.put("eq", more, f"%c{depth}", result="i1")
        turned = self.put("xor", phase, "%one")
        return self.put("select", wraps, "%zero", more), self.put("select", wraps, turned, phase)

    def text(self) -> str:
        keys = list(dict.fromkeys((each.kind, each.ring) for each in self.body))
        names = {key: (self.name(), self.name()) for key in keys}
        started = ", ".join(
            f"{slot} = %zero, {phase} = {'%one' if key[0] == 'put' else '%zero'}"
            for key, (slot, phase) in names.items()
        )
        types = ", ".join(["i32"] * 2 * len(keys))
        most = max((each.late for each in self.body), default=0)
        end = self.put("add", "%n", f"%c{most}") if most else "%n"
        at = self.name()
        self.lines.append(
            f"{self.name()}:{2 * len(keys)} = scf.for {at} = %zero to {end} step %one "
            f"iter_args({started}) -> ({types}) : i32 {{"
        )
        for event in self.body:
            slot, phase = names[event.kind, event.ring]
            if not most:
                names[event.kind, event.ring] = self.event(event, slot, phase)
                continue
            last = self.put("add", "%n", f"%c{event.late}")
            goes = self.put("lt", at, last, result="i1")
            if event.late:
                begun = self.put("gt", at, f"%c{event.late - 1}", result="i1")
                goes = self.put("and", begun, goes, result="i1")
            first, second = self.name(), self.name()
            self.lines.append(f"{first}, {second} = scf.if {goes} -> (i32, i32) {{")
            inner = self.event(event, slot, phase)
            self.lines.append(f"scf.yield {', '.join(inner)} : i32, i32\n}} else {{")
            self.lines.append(f"scf.yield {slot}, {phase} : i32, i32\n}}")
            names[event.kind, event.ring] = first, second
        values = ", ".join(each for key in keys for each in names[key])
        self.lines.append(f"scf.yield {values} : {types}\n}}")
        return "\n".join(self.lines)

    def loop(self, end: str, body: Nest, names: Names) -> None:
        """Write a loop, and those in it."""
        keys = list(dict.fromkeys((each.kind, each.ring) for each in flat(body)))
        own = {key: (self.name(), self.name()) for key in keys}
        pairs = [pair for key in keys for pair in zip(own[key], names[key], strict=True)]
        started = ", ".join(f"{new} = {old}" for new, old in pairs)
        types, at = ", ".join(["i32"] * len(pairs)), self.name()
        ends = {key: (self.name(), self.name()) for key in keys}
        results = ", ".join(each for key in keys for each in ends[key])
        self.lines.append(
            f"{results} = scf.for {at} = %zero to {end} step %one "
            f"iter_args({started}) -> ({types}) : i32 {{"
        )
        for part in body:
            if isinstance(part, Event):
                own[part.kind, part.ring] = self.event(part, *own[part.kind, part.ring])
            else:
                self.loop(at, part, own)
        values = ", ".join(each for key in keys for each in own[key])
        self.lines.append(f"scf.yield {values} : {types}\n}}")
        names |= ends


def kernel_of(roles: list[Body], depths: list[int]) -> ir.tile.Kernel:
    return of_texts([Writer(str(n), body, depths).text() for n, body in enumerate(roles)], depths)


def of_texts(
    roles: list[str], depths: list[int], arguments: str = "%n: i32", before: str = ""
) -> ir.tile.Kernel:
    lines = ['"tile.kernel"() ({', f"^bb0({arguments}):"]
    lines += [f"%c{n} = tile.constant {{value = #builtin.int<{n}>}} : i32" for n in range(6)]
    for name, n in (("zero", 0), ("one", 1)):
        lines.append(f"%{name} = tile.constant {{value = #builtin.int<{n}>}} : i32")
    for ring, depth in enumerate(depths):
        for place, name in enumerate(("filled", "freed")):
            offset = 128 * ring + 64 * place
            lines.append(
                f'%{name}{ring} = hopper.barriers "{ring} {name}" '
                f"{{offset = #builtin.int<{offset}>, arrivals = #builtin.int<128>}} "
                f": !hopper.barriers<#builtin.int<{depth}>>"
            )
    lines.append(before)
    for number, text in enumerate(roles):
        lines.append('"hopper.role"() ({')
        lines.append(text)
        lines.append(
            f'}}) {{label = "r{number}", first_warp = #builtin.int<{4 * number}>, '
            "warps = #builtin.int<4>, registers = #builtin.int<64>} : () -> ()"
        )
    named = ", ".join(f'{{name = "{part[1:-5]}"}}' for part in arguments.split(", "))
    lines.append(f'}}) {{sym_name = "drawn", arguments = [{named}], options = {{}}}} : () -> ()')
    return ir.parse("\n".join(lines))


def compared(seed: int, systems: int) -> tuple[int, int, int]:
    """(accepted, accepted though wrong, refused though right) of systems drawn at random."""
    rng = random.Random(seed)
    accepted = wrong = missed = 0
    for _ in range(systems):
        roles, depths = drawn(rng)
        hanging = any(is_wrong(roles, depths, iterations) for iterations in range(20))
        try:
            run(kernel_of(roles, depths))
        except Refused:
            missed += not hanging
        else:
            accepted += 1
            wrong += hanging
    return accepted, wrong, missed


def test_exactly_the_systems_that_end_are_accepted() -> None:
    accepted, wrong, missed = compared(1, 40)
    assert accepted > 10
    assert (wrong, missed) == (0, 0)


@pytest.mark.long
def test_exactly_the_systems_that_end_are_accepted_of_many() -> None:
    accepted, wrong, missed = compared(2, 3000)
    assert accepted > 500
    assert (wrong, missed) == (0, 0)


@pytest.mark.parametrize("systems", [12, pytest.param(500, marks=pytest.mark.long)])
def test_exactly_the_systems_of_a_number_of_iterations_that_end_are_accepted(systems: int) -> None:
    """As many as are met exactly, and more: loops of unlike lengths, and guards, end together."""
    rng = random.Random(78)
    accepted = 0
    for _ in range(systems):
        roles, depths = drawn(rng)
        iterations = rng.choice((0, 1, 2, 3, 4, 5, 6, 8, 11, 20))
        before = f"%k = tile.constant {{value = #builtin.int<{iterations}>}} : i32"
        texts = [Writer(str(n), body, depths).text() for n, body in enumerate(roles)]
        texts = [t.replace("%n step", "%k step").replace("(%n,", "(%k,") for t in texts]
        kernel = of_texts(texts, depths, before=before)
        if is_wrong(roles, depths, iterations):
            with pytest.raises(Refused):
                run(kernel)
        else:
            run(kernel)
            accepted += 1
    assert accepted > systems // 4


def nested(rng: random.Random) -> tuple[list[list[Nest]], list[int]]:
    """Two roles of a loop and, after it, one with a loop in it. Of each ring one role puts and the
    other one takes, in any order."""
    depths = [rng.choice((1, 1, 2, 3)) for _ in range(3)]
    roles: list[list[Nest]] = [[], []]
    parts: list[tuple[Body, Body]] = []
    for ring in range(3):
        sides: list[Body] = [[Event("put", ring)], [Event("get", ring), Event("free", ring)]]
        parts.append((sides[0], sides[1]))
    for role in (0, 1):
        second: Nest = [*parts[2][role]]
        second.insert(rng.randrange(len(second) + 1), [*parts[1][role]])
        roles[role] += [[*parts[0][role]], second]
    if rng.random() < 0.7:  # who puts is asked first, and far ahead
        roles.reverse()
    return roles, depths


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
def test_loops_in_loops_of_as_many_iterations_as_the_one_around_them(seed: int) -> None:
    """A role may be iterations of the outer loop behind another, and meets the inner loops as these
    were then: random kernel 3000214."""
    rng = random.Random(seed)
    accepted = wrong = missed = 0
    for _ in range(5 if seed == 3 else 100):
        roles, depths = nested(rng)
        hanging = any(
            hangs([unrolled(first, m) + unrolled(second, n) for first, second in roles], depths)
            for m in (0, 1, 2, 7)
            for n in range(8)
        )
        texts: list[str] = []
        for role, loops in enumerate(roles):
            writer = Writer(str(role), [], depths)
            names: Names = {
                (event.kind, event.ring): ("%zero", "%one" if event.kind == "put" else "%zero")
                for each in loops
                for event in flat(each)
            }
            for end, each in zip(("%m", "%n"), loops, strict=True):
                writer.loop(end, each, names)
            texts.append("\n".join(writer.lines))
        try:
            run(of_texts(texts, depths, "%m: i32, %n: i32"))
        except Refused:
            missed += not hanging
        else:
            accepted += 1
            wrong += hanging
    assert accepted > 1
    assert (wrong, missed) == (0, 0)


# --- what is forgotten, and what is met exactly ---------------------------------------------------


def in_sequence(loops: int) -> ir.tile.Kernel:
    """Two roles with as many loops, one after the other, of min(n, 5) iterations each."""
    depths = [2] * loops
    roles = ["", ""]
    for ring in range(loops):
        bodies = [Event("put", ring)], [Event("get", ring), Event("free", ring)]
        for role, body in enumerate(bodies):
            text = Writer(f"{role}_{ring}", body, depths).text()
            roles[role] += text.replace("to %n step", f"to %m{ring} step") + "\n"
    capped = [
        f'%m{n} = tile.elementwise "min"(%n{n}, %c5) : (i32, i32) -> i32' for n in range(loops)
    ]
    arguments = ", ".join(f"%n{n}: i32" for n in range(loops))
    return of_texts(roles, depths, arguments, "\n".join(capped))


def test_states_of_loops_that_follow_one_another_do_not_multiply() -> None:
    """How a loop ended, and whether it began, is forgotten when nobody asks again: of twice the
    loops there are pairs of neighbours, four times as many, and not the square."""
    assert run(in_sequence(4)) <= 4 * run(in_sequence(2))


PEELED = """
hopper.wait %filled0[%zero], %zero : !hopper.barriers<#builtin.int<1>>, i32, i32
hopper.arrive %freed0[%zero] {by = "all"} : !hopper.barriers<#builtin.int<1>>, i32
%last = scf.for %j = %one to %BOUND step %one iter_args(%p = %one) -> (i32) : i32 {
  hopper.wait %filled0[%zero], %p : !hopper.barriers<#builtin.int<1>>, i32, i32
  hopper.arrive %freed0[%zero] {by = "all"} : !hopper.barriers<#builtin.int<1>>, i32
  %q = tile.elementwise "xor"(%p, %one) : (i32, i32) -> i32
  scf.yield %q : i32
}
"""


@pytest.mark.parametrize("iterations", [1, 3, 4, 100])
def test_loops_of_numbers_of_iterations_agree_where_one_is_peeled(iterations: int) -> None:
    """Of so many iterations, more or fewer than there are slots, one is peeled off in the other
    role; with one more, or one less, they hang."""
    for other in (iterations - 1, iterations, iterations + 1):
        writer = Writer("0", [Event("put", 0)], [1])
        roles = [writer.text().replace("to %n step", "to %most step")]
        roles.append(PEELED.replace("BOUND", "other"))
        before = "\n".join(
            f"%{name} = tile.constant {{value = #builtin.int<{number}>}} : i32"
            for name, number in (("most", iterations), ("other", other))
        )
        kernel = of_texts(roles, [1], before=before)
        if max(other, 1) == iterations:
            run(kernel)
        else:
            with pytest.raises(Refused):
                run(kernel)


def test_nobody_waits_where_nobody_arrives() -> None:
    """A wait that the phase before the first one answers hangs nobody, and is for no phase."""
    kind = "!hopper.barriers<#builtin.int<1>>, i32, i32"
    with pytest.raises(Refused, match="nobody arrives"):
        run(of_texts([f"hopper.wait %freed0[%zero], %one : {kind}"], [1]))


ASKED = """
%low = tile.constant {value = #builtin.int<-20>} : i32
%high = tile.constant {value = #builtin.int<-4>} : i32
%many = tile.constant {value = #builtin.int<60>} : i32
%is_low = tile.elementwise "gt"(%n, %low) : (i32, i32) -> i1
%is_high = tile.elementwise "gt"(%n, %high) : (i32, i32) -> i1
"""


def asks_before_a_loop(role: int, *conditions: str) -> str:
    """A put (role 0) or take where n > -20, a loop of 60, one under conditions, a loop to n."""
    writer, phase = Writer(str(role), [], [1] * 4), "%zero" if role else "%one"

    def events(ring: int) -> Nest:
        return [Event(kind, ring) for kind in (("get", "free") if role else ("put",))]

    for ring, under in ((0, ("%is_low",)), (2, conditions)):
        writer.lines += [f"scf.if {each} {{" for each in under]
        for event in flat(events(ring)):
            writer.event(event, "%zero", phase)
        writer.lines += ["}"] * len(under)
        names: Names = {(event.kind, ring + 1): ("%zero", phase) for event in flat(events(ring))}
        writer.loop("%n" if ring else "%many", events(ring + 1), names)
    return "\n".join(writer.lines).replace("to %n step %one", "to %n step %c4")


def test_what_is_known_of_a_negative_number_says_nothing_of_greater_ones() -> None:
    """n > -20 is known, all come to iterations of a loop that are not counted, and n > -4 is asked
    by one role alone: n = -10 hangs."""
    takes = asks_before_a_loop(1, "%is_low")
    run(of_texts([asks_before_a_loop(0, "%is_low"), takes], [1] * 4, before=ASKED))
    puts = asks_before_a_loop(0, "%is_low", "%is_high")
    with pytest.raises(Refused, match="2 filled"):
        run(of_texts([puts, takes], [1] * 4, before=ASKED))
