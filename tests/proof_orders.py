"""Small programs of several roles, whose order may matter, by brute force over all interleavings.

A program is a list of actions for each role, a role being one warp. It is written out as hopper IR
for the proof, and explored here with the hardware's own rules: a wait looks at a parity, arrivals
and bytes count for the phase they find, copies land at any time. Nothing is shared with the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

Action = tuple[str, int, int]
"""(what, barrier or cell, number): "wait" for the barrier's parity `number`, "arrive", "expect" the
bytes of one copy; "copy" to cell `number`, signalling the barrier; "read" and "write" a cell;
"meet" and "pass" at named barrier 1 + it, of `number` warps: with and without waiting.
"""

BYTES = 16 * 64 * 2


@dataclass(frozen=True)
class Program:
    arrivals: tuple[int, ...]
    cells: int
    roles: tuple[tuple[Action, ...], ...]

    @property
    def copies(self) -> bool:
        return any(what == "copy" for role in self.roles for what, _, _ in role)


class Bad(Exception):
    pass


@dataclass(frozen=True)
class State:
    """`barriers`: arrivals pending, bytes due, phases done; `meetings`: arrived, needed, done;
    `met`: the meeting a role has come to, -1 for none; `flying`: (role, place) of copies on their
    way; `holds`: (role, place) of what each cell holds."""

    places: tuple[int, ...]
    barriers: tuple[tuple[int, int, int], ...]
    meetings: tuple[tuple[int, int, int], ...]
    met: tuple[int, ...]
    flying: frozenset[tuple[int, int]]
    holds: tuple[tuple[int, int] | None, ...]


NAMED = 2


class Explorer:
    """Explores a program. `states` counts them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sources: dict[tuple[int, int], tuple[int, int] | None] = {}
        self.states = 0

    def explore(self, limit: int = 30_000) -> str:
        """Return what can go wrong in some order, or nothing. Raises OverflowError."""
        program = self.program
        start = State(
            (0,) * len(program.roles),
            tuple((count, 0, 0) for count in program.arrivals),
            ((0, 0, 0),) * NAMED,
            (-1,) * len(program.roles),
            frozenset(),
            (None,) * program.cells,
        )
        seen, work = {start}, [start]
        try:
            while work:
                state = work.pop()
                self.check_races(state)
                following = list(self.steps(state))
                if not following:
                    self.check_end(state)
                for item in following:
                    if item not in seen:
                        seen.add(item)
                        work.append(item)
                if len(seen) > limit:
                    raise OverflowError
        except Bad as found:
            return str(found)
        finally:
            self.states = len(seen)
        return ""

    def action(self, state: State, role: int) -> Action | None:
        place = state.places[role]
        actions = self.program.roles[role]
        return actions[place] if place < len(actions) else None

    def check_races(self, state: State) -> None:
        """Two accesses of one cell that may come next, or go on, one of them a write."""
        found: list[tuple[int, bool]] = []
        for role in range(len(self.program.roles)):
            match self.action(state, role):
                case ("read", cell, _):
                    found.append((cell, False))
                case ("write", cell, _) | ("copy", _, cell):
                    found.append((cell, True))
                case _:
                    pass
        for role, place in state.flying:
            found.append((self.program.roles[role][place][2], True))
        for place, (cell, write) in enumerate(found):
            for other, writes in found[:place]:
                if cell == other and (write or writes):
                    raise Bad("a race")

    def check_end(self, state: State) -> None:
        if any(self.action(state, role) for role in range(len(self.program.roles))):
            raise Bad("a hang")
        for (pending, due, _), arrivals in zip(state.barriers, self.program.arrivals):
            if pending != arrivals or due:
                raise Bad("an open phase")
        if any(arrived for arrived, _, _ in state.meetings):
            raise Bad("an open meeting")

    def steps(self, state: State) -> Iterator[State]:
        for role in range(len(self.program.roles)):
            action = self.action(state, role)
            if action is not None and (moved := self.step(state, role, action)) is not None:
                yield moved
        for role, place in state.flying:
            _, barrier, _ = self.program.roles[role][place]
            pending, due, done = state.barriers[barrier]
            yield replace(
                state,
                barriers=self.settled(state.barriers, barrier, (pending, due - BYTES, done)),
                flying=state.flying - {(role, place)},
            )

    def step(self, state: State, role: int, action: Action) -> State | None:
        what, which, number = action
        place = state.places[role]
        on = (*state.places[:role], place + 1, *state.places[role + 1 :])
        moved = replace(state, places=on)
        match what:
            case "wait":
                return moved if state.barriers[which][2] & 1 != number else None
            case "arrive" | "expect":
                pending, due, done = state.barriers[which]
                due += BYTES if what == "expect" else 0
                now = self.settled(state.barriers, which, (pending - 1, due, done))
                return replace(moved, barriers=now)
            case "copy":
                flying = state.flying | {(role, place)}
                return replace(moved, flying=flying, holds=put(state.holds, number, (role, place)))
            case "write":
                return replace(moved, holds=put(state.holds, which, (role, place)))
            case "read":
                source = state.holds[which]
                if source is None:
                    raise Bad("an empty cell is read")
                if self.sources.setdefault((role, place), source) != source:
                    raise Bad("a read sees one write or another")
                return moved
            case "pass":
                return replace(moved, meetings=self.come(state, which, number))
            case _:
                return self.meet(state, moved, role, which, number)

    def meet(self, state: State, moved: State, role: int, which: int, number: int) -> State | None:
        if state.met[role] < 0:
            mine = put(state.met, role, state.meetings[which][2])
            return replace(state, meetings=self.come(state, which, number), met=mine)
        if state.meetings[which][2] <= state.met[role]:
            return None
        return replace(moved, met=put(state.met, role, -1))

    def come(self, state: State, which: int, number: int) -> tuple[tuple[int, int, int], ...]:
        arrived, needed, done = state.meetings[which]
        if arrived and needed != number:
            raise Bad("a meeting of two sizes")
        arrived += 1
        now = (0, 0, done + 1) if arrived == number else (arrived, number, done)
        return put(state.meetings, which, now)

    def settled(
        self, barriers: tuple[tuple[int, int, int], ...], which: int, now: tuple[int, int, int]
    ) -> tuple[tuple[int, int, int], ...]:
        pending, due, done = now
        if pending < 0:
            raise Bad("more arrivals than the barrier counts")
        if not pending and not due:
            now = self.program.arrivals[which], 0, done + 1
        return put(barriers, which, now)


def put(items: tuple[Any, ...], place: int, item: object) -> tuple[Any, ...]:
    return (*items[:place], item, *items[place + 1 :])


def replace(state: State, **fields: object) -> State:
    values = {name: getattr(state, name) for name in State.__dataclass_fields__}
    return State(**{**values, **fields})


# --- programs -------------------------------------------------------------------------------------


def draw(seed: int) -> Program:
    """Return a random program: waits look for the next phase mostly, what is awaited is sent."""
    random = Random(seed)
    roles, barriers, cells = random.randint(2, 4), random.randint(1, 3), random.randint(1, 2)
    named = random.random() < 0.25
    copies = random.random() < 0.3
    lists: list[list[Action]] = [[] for _ in range(roles)]
    waited: dict[tuple[int, int], int] = {}
    sent = [0] * barriers
    for _ in range(random.randint(3, 4 * roles)):
        role, barrier = random.randrange(roles), random.randrange(barriers)
        cell = random.randrange(cells)
        kinds = ["wait", "arrive", "arrive", "arrive", "read", "write"]
        kinds += ["copy"] * (2 * copies) + ["meet", "meet", "pass"] * named
        match random.choice(kinds):
            case "wait":
                turn = waited.get((role, barrier), 0)
                waited[role, barrier] = turn + 1
                lists[role].append(("wait", barrier, (turn ^ (random.random() < 0.1)) & 1))
            case "arrive":
                lists[role].append(("arrive", barrier, 0))
                sent[barrier] += 1
            case "copy":
                lists[role] += [("expect", barrier, 0), ("copy", barrier, cell)]
                sent[barrier] += 1
            case "meet" | "pass" as kind:
                which, number = random.randrange(NAMED), 2
                others = [other for other in range(roles) if other != role]
                lists[role].append((kind, which, number))
                lists[random.choice(others)].append(("meet", which, number))
            case kind:
                lists[role].append((kind, cell, 0))
    arrivals = tuple(
        random.choice([n for n in range(1, max(1, count) + 1) if count % n == 0 or count == 0])
        for count in sent
    )
    return Program(arrivals, cells, tuple(tuple(actions) for actions in lists))


# --- hopper IR ------------------------------------------------------------------------------------

SHARED = '#hopper.shared_layout<"16x64 order(0,1) 16b swizzle128">'
VIEW = f"!hopper.view<bf16, {SHARED}, {SHARED}>"
BUFFER = f"!hopper.buffer<#builtin.int<1>, bf16, {SHARED}>"
TILE = (
    'tensor<16x64xbf16, #hopper.layout<"16x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[]">>'
)
MAP = "!hopper.tensor_map<bf16, [#builtin.int<16>, #builtin.int<64>]>"
DESC = "!tile.desc<tensor<16x64xbf16>>"
BARRIERS = "!hopper.barriers<#builtin.int<1>>"


def i(number: int) -> str:
    return f"#builtin.int<{number}>"


def text(program: Program) -> str:
    """Return the program as hopper IR."""
    return _text(program, "BODY")


def loop(program: Program, trips: int | None) -> str:
    """Return the program as hopper IR, each role in a loop of so many trips, None: an argument."""
    end = "%K" if trips is None else f"%n{trips}"
    number = "" if trips is None else f"{end} = tile.constant {{value = {i(trips)}}} : i32\n"
    return _text(program, f"{number}scf.for %k = %n0 to {end} step %n1 : i32 {{\nBODY\n}}")


def _text(program: Program, around: str) -> str:
    lines: list[str] = []
    for cell in range(program.cells):
        lines.append(
            f'%cell{cell} = hopper.shared "c{cell}" {{offset = {i(cell * BYTES)}}} : {BUFFER}'
        )
    base = program.cells * BYTES
    for number, arrivals in enumerate(program.arrivals):
        place = f"offset = {i(base + 8 * number)}, arrivals = {i(arrivals)}"
        lines.append(f'%b{number} = hopper.barriers "b{number}" {{{place}}} : {BARRIERS}')
    lines += [
        f"hopper.init_barriers %b{number} : {BARRIERS}" for number in range(len(program.arrivals))
    ]
    lines += ["hopper.fence_barrier_init", "hopper.block_sync"]
    for number, actions in enumerate(program.roles):
        body = "\n".join(_action(one, f"{number}_{place}") for place, one in enumerate(actions))
        warp = f'label = "role{number}", first_warp = {i(number)}, warps = {i(1)}'
        lines.append(f"""
  "hopper.role"() ({{
    %n0 = tile.constant {{value = #builtin.int<0>}} : i32
    %n1 = tile.constant {{value = #builtin.int<1>}} : i32
    %tile = tile.constant {{value = #builtin.int<0>}} : {TILE}
    {around.replace("BODY", body)}
  }}) {{{warp}, registers = {i(24)}}} : () -> ()""")
    shared = i(base + 8 * len(program.arrivals))
    threads = i(32 * len(program.roles))
    launch = f"launch = {{threads = {threads}, registers = {i(248)}, shared = {shared}}}"
    arguments = 'arguments = [{name = "d"}, {name = "K"}]'
    inside = "\n".join(lines)
    return f"""
"tile.kernel"() ({{
^bb0(%d: {DESC}, %K: i32):
  %m = hopper.tensor_map %d {{swizzle = #builtin.int<128>}} : ({DESC}) -> {MAP}
  {inside}
}}) {{sym_name = "orders", {arguments}, options = {{}}, {launch}}} : () -> ()
"""


def _action(action: Action, name: str) -> str:
    what, which, number = action
    view = f"%v{name} = hopper.slot %cell{{}}[%n0] : ({BUFFER}, i32) -> {VIEW}\n"
    match what:
        case "wait":
            return f"hopper.wait %b{which}[%n0], %n{number} : {BARRIERS}, i32, i32"
        case "arrive":
            return f'hopper.arrive %b{which}[%n0] {{by = "warp"}} : {BARRIERS}, i32'
        case "expect":
            expect = f"hopper.expect %b{which}[%n0] {{bytes = {i(BYTES)}}} : {BARRIERS}, i32"
            return f'"hopper.one_thread"() ({{\n{expect}\n}}) : () -> ()'
        case "copy":
            types = f"{MAP}, i32, i32, {VIEW}, {BARRIERS}, i32"
            load = f"hopper.tma_load %m[%n0, %n0], %v{name}, %b{which}[%n0] : {types}"
            return f'"hopper.one_thread"() ({{\n{view.format(number)}{load}\n}}) : () -> ()'
        case "write":
            store = f'hopper.shared_store "stmatrix" %tile, %v{name} : {TILE}, {VIEW}'
            return f"{view.format(which)}{store}\nhopper.proxy_fence"
        case "read":
            load = f'%r{name} = hopper.shared_load "ldmatrix" %v{name} : ({VIEW}) -> {TILE}'
            return f"{view.format(which)}{load}\nhopper.proxy_fence"
        case _:
            kind = "sync" if what == "meet" else "arrive"
            named = f'id = {i(1 + which)}, scope = "roles", threads = {i(32 * number)}'
            return f'hopper.named_barrier "{kind}" {{{named}}}'
