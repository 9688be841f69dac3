"""The programs of `proof_inputs` as hopper IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from proof_inputs import COMPARE, JOIN, Expr, For, If, Program, Statement, Turn, turned
from proof_orders import BYTES, SHARED, TILE, VIEW, i


class Writer:
    """Writes a role as hopper IR. `state` has the slot and phase of each ring that it turns."""

    def __init__(self, program: Program, role: int) -> None:
        self.program, self.role = program, role
        self.lines: list[str] = []
        self.names = count()
        self.numbers: dict[int, str] = {}
        self.state: dict[int, tuple[str, str]] = {}
        for ring in sorted(turned(program.roles[role])):
            puts = program.rings[ring].producer == role
            self.state[ring] = (self.number(0), self.number(int(puts)))

    def text(self, given: Mapping[str, int]) -> str:
        body = self.program.roles[self.role]
        names = {name: f"%{name}" for name in self.program.arguments}
        names |= {name: self.number(number) for name, number in given.items()}
        self.write(body, names)
        constants = "".join(
            f"{name} = tile.constant {{value = {i(number)}}} : i32\n"
            for number, name in self.numbers.items()
        )
        tile = f"%tile = tile.constant {{value = {i(0)}}} : {TILE}\n"
        return constants + tile + "\n".join(self.lines) + "\n"

    def number(self, number: int) -> str:
        return self.numbers.setdefault(number, f"%n{number}".replace("-", "m"))

    def fresh(self) -> str:
        return f"%v{next(self.names)}"

    def line(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def function(self, name: str, *parts: str, kind: str = "i32", result: str = "i32") -> str:
        kinds = ", ".join([kind] * len(parts))
        if name == "select":
            kinds = f"i1, {result}, {result}"
        return self.line(f'tile.elementwise "{name}"({", ".join(parts)}) : ({kinds}) -> {result}')

    def value(self, expr: Expr, names: Mapping[str, str]) -> str:
        """Write an expression, and return its name."""
        match expr:
            case int():
                return self.number(expr)
            case str():
                return names[expr]
            case (name, *parts):
                found = [self.value(part, names) for part in parts]
                if name in JOIN:
                    return self.function(name, *found, kind="i1", result="i1")
                return self.function(name, *found, result="i1" if name in COMPARE else "i32")
        raise AssertionError(expr)

    def write(self, body: Sequence[Statement], names: Mapping[str, str]) -> None:
        for item in body:
            match item:
                case Turn():
                    self.turn(item, names)
                case For():
                    self.loop(item, names)
                case If():
                    self.branch(item, names)

    def turn(self, item: Turn, names: Mapping[str, str]) -> None:
        ring = self.program.rings[item.ring]
        slot, phase = at, parity = self.state[item.ring]
        when = self.value(item.when, names) if item.fault else ""
        if item.fault == "slot":
            other = self.number(ring.depth - 1)
            first = self.function("eq", slot, self.number(0), result="i1")
            moved = self.function("select", first, other, self.number(0))
            at = self.function("select", when, moved, slot)
        if item.fault == "phase":
            flipped = self.function("xor", phase, self.number(1))
            parity = self.function("select", when, flipped, phase)
        puts = ring.producer == self.role
        waits, arrives = ("freed", "filled") if puts else ("filled", "freed")
        kind = f"!hopper.barriers<{i(ring.depth)}>"
        wait = f"hopper.wait %{waits}{item.ring}[{at}], {parity} : {kind}, i32, i32"
        arrive = f'hopper.arrive %{arrives}{item.ring}[{at}] {{by = "warp"}} : {kind}, i32'
        self.unless(wait, when if item.fault == "wait" else "")
        if ring.data:
            buffer = f"!hopper.buffer<{i(ring.depth)}, bf16, {SHARED}>"
            view = self.line(f"hopper.slot %cell{item.ring}[{at}] : ({buffer}, i32) -> {VIEW}")
            if puts:
                self.lines.append(f'hopper.shared_store "stmatrix" %tile, {view} : {TILE}, {VIEW}')
            else:
                self.line(f'hopper.shared_load "ldmatrix" {view} : ({VIEW}) -> {TILE}')
            self.lines.append("hopper.proxy_fence")
        self.unless(arrive, when if item.fault == "arrive" else "")
        following = self.function("add", slot, self.number(1))
        wraps = self.function("eq", following, self.number(ring.depth), result="i1")
        turned = self.function("xor", phase, self.number(1))
        self.state[item.ring] = (
            self.function("select", wraps, self.number(0), following),
            self.function("select", wraps, turned, phase),
        )

    def unless(self, line: str, when: str) -> None:
        if when:
            self.lines += [f"scf.if {when} {{", "} else {", line, "}"]
        else:
            self.lines.append(line)

    def loop(self, item: For, names: Mapping[str, str]) -> None:
        bounds = [self.value(each, names) for each in (item.start, item.end, item.step)]
        rings = sorted(turned(item.body))
        first = [part for ring in rings for part in self.state[ring]]
        first += [self.value(item.first, names)] if item.carried else []
        inside, trip, results = [self.fresh() for _ in first], self.fresh(), self.fresh()
        self.take(rings, inside)
        pairs = ", ".join(f"{a} = {b}" for a, b in zip(inside, first))
        kinds = ", ".join(["i32"] * len(first))
        low, high, by = bounds
        self.lines.append(
            f"{results}:{len(first)} = scf.for {trip} = {low} to {high} step {by} "
            f"iter_args({pairs}) -> ({kinds}) : i32 {{"
        )
        names = {**names, item.trip: trip}
        if item.carried:
            names[item.carried] = inside[-1]
        self.write(item.body, names)
        last = [part for ring in rings for part in self.state[ring]]
        last += [self.value(item.then, names)] if item.carried else []
        self.lines += [f"scf.yield {', '.join(last)} : {kinds}", "}"]
        self.take(rings, [f"{results}#{place}" for place in range(len(first))])

    def branch(self, item: If, names: Mapping[str, str]) -> None:
        condition, rings = self.value(item.condition, names), sorted(turned((item,)))
        before, results = dict(self.state), self.fresh()
        kinds = ", ".join(["i32"] * 2 * len(rings))
        self.lines.append(f"{results}:{2 * len(rings)} = scf.if {condition} -> ({kinds}) {{")
        for side, ending in ((item.yes, "} else {"), (item.no, "}")):
            self.state = dict(before)
            self.write(side, names)
            last = [part for ring in rings for part in self.state[ring]]
            self.lines += [f"scf.yield {', '.join(last)} : {kinds}", ending]
        self.take(rings, [f"{results}#{place}" for place in range(2 * len(rings))])

    def take(self, rings: Sequence[int], values: Sequence[str]) -> None:
        """Have the slots and phases of rings in values, one after the other."""
        for place, ring in enumerate(rings):
            self.state[ring] = (values[2 * place], values[2 * place + 1])


def text(program: Program, given: Mapping[str, int] | None = None) -> str:
    """Return a program as hopper IR; what is `given` is a constant there."""
    lines: list[str] = []
    offset = 0
    for number, ring in enumerate(program.rings):
        buffer = f"!hopper.buffer<{i(ring.depth)}, bf16, {SHARED}>"
        if ring.data:
            place = f"{{offset = {i(offset)}}}"
            lines.append(f'%cell{number} = hopper.shared "c{number}" {place} : {buffer}')
            offset += ring.depth * BYTES
    for number, ring in enumerate(program.rings):
        kind = f"!hopper.barriers<{i(ring.depth)}>"
        for end, arrivals in (("filled", 1), ("freed", len(ring.consumers))):
            place = f"offset = {i(offset)}, arrivals = {i(arrivals)}"
            lines.append(f'%{end}{number} = hopper.barriers "{end}{number}" {{{place}}} : {kind}')
            offset += 8 * ring.depth
    for number, ring in enumerate(program.rings):
        kind = f"!hopper.barriers<{i(ring.depth)}>"
        lines += [f"hopper.init_barriers %{end}{number} : {kind}" for end in ("filled", "freed")]
    lines += ["hopper.fence_barrier_init", "hopper.block_sync"]
    for role in range(len(program.roles)):
        body = Writer(program, role).text(given or {})
        warp = f'label = "role{role}", first_warp = {i(role)}, warps = {i(1)}'
        lines.append(f'"hopper.role"() ({{\n{body}}}) {{{warp}, registers = {i(24)}}} : () -> ()')
    launch = (
        f"launch = {{threads = {i(32 * len(program.roles))}, registers = {i(248)}, "
        f"shared = {i(offset)}}}"
    )
    names = ", ".join(f'{{name = "{name}"}}' for name in program.arguments)
    inputs = ", ".join(f"%{name}: i32" for name in program.arguments)
    inside = "\n".join(lines)
    return (
        f'"tile.kernel"() ({{\n^bb0({inputs}):\n{inside}\n}}) {{sym_name = "inputs", '
        f"arguments = [{names}], options = {{}}, {launch}}} : () -> ()\n"
    )
