"""All interleavings of a small ring, by brute force: what the proof must agree with.

A program is two lists of actions, one of a load role (one thread) and one of a multiplying role
(one warpgroup: its first warp, which arrives, and the other three). It is written out as hopper IR
for the proof, and explored here state by state with the hardware's own rules: parities, counts,
bytes that land and products that finish at any time. Nothing is shared with the proof.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES = 64 * 64 * 2
Action = tuple[str, int, int]
"""(what, slot, number): "take" waits for freed[slot] of parity `number`, "expect" and "copy" fill;
"get" waits for filled[slot], "multiply" reads it, "commit", "finish" waits for all but `number`
groups, "release" arrives at freed[slot].
"""


@dataclass(frozen=True)
class Program:
    depth: int
    freed_arrivals: int
    load: tuple[Action, ...]
    mma: tuple[Action, ...]


def ring(depth: int, trips: int, pending: int) -> Program:
    """A right program: `pending` products stay in flight when a slot is released."""
    load: list[Action] = []
    mma: list[Action] = []
    for trip in range(trips):
        slot, turn = trip % depth, trip // depth & 1
        load += [("take", slot, turn ^ 1), ("expect", slot, 0), ("copy", slot, 0)]
        mma += [("get", slot, turn), ("multiply", slot, 0), ("commit", 0, 0)]
        mma += [("finish", 0, pending)]
        if trip >= pending:
            mma.append(("release", (trip - pending) % depth, 0))
    mma.append(("finish", 0, 0))
    for trip in range(max(0, trips - pending), trips):
        mma.append(("release", trip % depth, 0))
    return Program(depth, 1, tuple(load), tuple(mma))


# --- exploration ----------------------------------------------------------------------------------

Barrier = tuple[int, int, int]  # pending arrivals, bytes due, completed phases


@dataclass(frozen=True)
class State:
    load: int
    first: int
    others: int
    filled: tuple[Barrier, ...]
    freed: tuple[Barrier, ...]
    flying: frozenset[int]  # copies that have not landed, by their place in the load list
    finished: int  # products that are done
    holds: tuple[int, ...]  # the copy each slot was last filled by, -1 none
    given: int = 0  # the slots that were given back since they were filled, as bits


class Bad(Exception):
    pass


def bad(program: Program, limit: int = 60_000) -> str:
    """Return what can go wrong in some order, or nothing. Raises OverflowError past `limit`."""
    return Explorer(program).explore(limit)


class Explorer:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.products = [i for i, a in enumerate(program.mma) if a[0] == "multiply"]
        self.covered = self._cover()
        self.seen_by: dict[tuple[int, int], set[int]] = {}
        self.paired = self._pairs()

    def _pairs(self) -> bool:
        """Whether each slot is waited for right before it is filled: what frees it is known."""
        waited, found = -1, True
        for what, slot, _ in self.program.load:
            if what == "take":
                waited = slot
            elif what == "expect":
                found, waited = found and waited == slot, -1
        return found

    def _cover(self) -> dict[int, int]:
        """For each "finish": how many products it waits for."""
        covered: dict[int, int] = {}
        groups: list[int] = []
        issued = 0
        for place, (what, _, number) in enumerate(self.program.mma):
            if what == "multiply":
                issued += 1
            elif what == "commit":
                groups.append(issued)
            elif what == "finish":
                done = len(groups) - number
                covered[place] = groups[done - 1] if done > 0 else 0
        return covered

    def explore(self, limit: int) -> str:
        depth = self.program.depth
        start = State(
            0,
            0,
            0,
            ((1, 0, 0),) * depth,
            ((self.program.freed_arrivals, 0, 0),) * depth,
            frozenset(),
            0,
            (-1,) * depth,
        )
        seen, work = {start}, [start]
        try:
            while work:
                state = work.pop()
                following = self.steps(state)
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
        if any(len(tags) > 1 for tags in self.seen_by.values()):
            return "a product reads one tile or another"
        return ""

    def check_end(self, state: State) -> None:
        program = self.program
        if state.load < len(program.load) or min(state.first, state.others) < len(program.mma):
            raise Bad("hang")
        if state.flying:
            raise Bad("a copy in flight at the end")
        waited = max((n for n in self.covered.values()), default=0)
        if waited < len(self.products):
            raise Bad("a product nobody waited for")
        for barriers, arrivals in ((state.filled, 1), (state.freed, program.freed_arrivals)):
            if any(pending != arrivals or due for pending, due, _ in barriers):
                raise Bad("an open phase")
        self.count_waits(state.filled, program.mma, "get")
        self.count_waits(state.freed, program.load, "take")

    def count_waits(
        self, barriers: tuple[Barrier, ...], actions: tuple[Action, ...], kind: str
    ) -> None:
        """Every slot that was filled was got, every slot that was taken was given back.

        A slot is free at first: the load role may spare the first wait, for one slot or for all.
        """
        waits = [a for a in actions if a[0] == kind]
        if not waits:
            return
        parities = [[n for _, where, n in waits if where == slot] for slot in range(len(barriers))]
        credit = kind == "take" and any(found[:1] == [1] for found in parities)
        for found, (_, _, done) in zip(parities, barriers, strict=True):
            count = sum(1 for i, p in enumerate(found) if i == 0 or p != found[i - 1])
            count += int(credit and found[:1] == [0])
            spared = kind == "take" and not credit and count > 0
            if count != done and not (spared and count + 1 == done):
                raise Bad("slots taken and given back do not match")

    # --- one step of each agent and engine --------------------------------------------------------

    def steps(self, state: State) -> list[State]:
        found = [self.load(state), self.first(state), self.others(state), self.product(state)]
        found += [self.land(state, place) for place in state.flying]
        return [item for item in found if item is not None]

    def load(self, state: State) -> State | None:
        if state.load == len(self.program.load):
            return None
        what, slot, number = self.program.load[state.load]
        moved = replace(state, load=state.load + 1)
        if what == "take":
            return moved if state.freed[slot][2] & 1 != number else None
        if what == "expect":
            pending, due, done = state.filled[slot]
            return replace(
                moved, filled=put(state.filled, slot, (pending - 1, due + BYTES, done), 1)
            )
        if self.reading(state, slot):
            raise Bad("a copy over a tile that is being read")
        if any(self.program.load[place][1] == slot for place in state.flying):
            raise Bad("two copies into one slot")
        return replace(
            moved,
            flying=state.flying | {state.load},
            given=state.given & ~(1 << slot),
            holds=(*state.holds[:slot], state.load, *state.holds[slot + 1 :]),
        )

    def land(self, state: State, place: int) -> State:
        slot = self.program.load[place][1]
        pending, due, done = state.filled[slot]
        filled = put(state.filled, slot, (pending, due - BYTES, done), 1)
        return replace(state, filled=filled, flying=state.flying - {place})

    def reading(self, state: State, slot: int) -> bool:
        issued = self.products[state.finished :]
        started = [p for p in issued if p < max(state.first, state.others)]
        return any(self.program.mma[p][1] == slot for p in started)

    def mma(self, state: State, place: int, who: int) -> bool:
        """Whether an agent of the multiplying role may do its next action; checks what it reads."""
        what, slot, number = self.program.mma[place]
        if what == "get":
            return state.filled[slot][2] & 1 != number
        if what == "finish":
            return state.finished >= self.covered[place]
        if what == "multiply":
            if state.holds[slot] < 0:
                raise Bad("an empty slot is read")
            if any(self.program.load[copy][1] == slot for copy in state.flying):
                raise Bad("a slot is read before its bytes have landed")
            if self.paired and state.given >> slot & 1:
                raise Bad("a slot is read after it was given back")
            self.seen_by.setdefault((place, who), set()).add(state.holds[slot])
        return True

    def first(self, state: State) -> State | None:
        place = state.first
        if place == len(self.program.mma) or not self.mma(state, place, 0):
            return None
        what, slot, _ = self.program.mma[place]
        moved = replace(state, first=place + 1)
        if what != "release":
            return moved
        pending, due, done = state.freed[slot]
        arrivals = self.program.freed_arrivals
        freed = put(state.freed, slot, (pending - 1, due, done), arrivals)
        if freed[slot][2] == done:
            return replace(moved, freed=freed)
        if self.paired and self.reading(state, slot):
            raise Bad("a slot is given back while it is read")
        return replace(moved, freed=freed, given=state.given | 1 << slot)

    def others(self, state: State) -> State | None:
        place = state.others
        if place == len(self.program.mma) or not self.mma(state, place, 1):
            return None
        return replace(state, others=place + 1)

    def product(self, state: State) -> State | None:
        """The oldest product finishes, once all warps have started it."""
        if state.finished == len(self.products):
            return None
        place = self.products[state.finished]
        if min(state.first, state.others) <= place:
            return None
        return replace(state, finished=state.finished + 1)


def put(
    barriers: tuple[Barrier, ...], slot: int, barrier: Barrier, arrivals: int
) -> tuple[Barrier, ...]:
    pending, due, done = barrier
    if pending < 0:
        raise Bad("more arrivals than the barrier counts")
    if not pending and not due:
        pending, done = arrivals, done + 1
    return (*barriers[:slot], (pending, due, done), *barriers[slot + 1 :])


def replace(state: State, **fields: object) -> State:
    values = {name: getattr(state, name) for name in State.__dataclass_fields__}
    return State(**{**values, **fields})


# --- hopper IR ------------------------------------------------------------------------------------

SHARED = '#hopper.shared_layout<"64x64 order(0,1) 16b swizzle128">'
VIEW = f"!hopper.view<bf16, {SHARED}, {SHARED}>"
ACC = (
    'tensor<64x64xf32, #hopper.layout<"64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] '
    'w[4:(16,0)]">>'
)
MAP = "!hopper.tensor_map<bf16, [#builtin.int<64>, #builtin.int<64>]>"
DESC = "!tile.desc<tensor<64x64xbf16>>"


def i(number: int) -> str:
    return f"#builtin.int<{number}>"


def text(program: Program) -> str:
    """Return the program as hopper IR, all trips written out."""
    depth = program.depth
    barriers = f"!hopper.barriers<#builtin.int<{depth}>>"
    buffer = f"!hopper.buffer<#builtin.int<{depth}>, bf16, {SHARED}>"
    base = depth * BYTES
    numbers = "\n".join(
        f"%n{n} = tile.constant {{value = #builtin.int<{n}>}} : i32" for n in range(max(2, depth))
    )
    load = "\n".join(_load(a, place, barriers, buffer) for place, a in enumerate(program.load))
    mma = "\n".join(_mma(program, place, barriers, buffer) for place in range(len(program.mma)))
    filled = f"offset = {i(base)}, arrivals = {i(1)}"
    freed = f"offset = {i(base + 8 * depth)}, arrivals = {i(program.freed_arrivals)}"
    shared = i(base + 16 * depth)
    launch = f"launch = {{threads = {i(256)}, registers = {i(248)}, shared = {shared}}}"
    return f"""
"tile.kernel"() ({{
^bb0(%d: {DESC}):
  %m = hopper.tensor_map %d {{swizzle = #builtin.int<128>}} : ({DESC}) -> {MAP}
  %ring = hopper.shared "a" {{offset = #builtin.int<0>}} : {buffer}
  %filled = hopper.barriers "filled" {{{filled}}} : {barriers}
  %freed = hopper.barriers "freed" {{{freed}}} : {barriers}
  hopper.init_barriers %filled : {barriers}
  hopper.init_barriers %freed : {barriers}
  hopper.fence_barrier_init
  hopper.block_sync
  "hopper.role"() ({{
    "hopper.one_thread"() ({{
      {numbers}
      {load}
    }}) : () -> ()
  }}) {{label = "load", first_warp = {i(0)}, warps = {i(4)}, registers = {i(24)}}} : () -> ()
  "hopper.role"() ({{
    {numbers}
    %acc0 = tile.constant {{value = #builtin.int<0>}} : {ACC}
    {mma}
  }}) {{label = "mma", first_warp = {i(4)}, warps = {i(4)}, registers = {i(24)}}} : () -> ()
}}) {{sym_name = "ring", arguments = [{{name = "d"}}], options = {{}}, {launch}}} : () -> ()
"""


def _load(action: Action, place: int, barriers: str, buffer: str) -> str:
    what, slot, number = action
    if what == "take":
        return f"hopper.wait %freed[%n{slot}], %n{number} : {barriers}, i32, i32"
    if what == "expect":
        return (
            f"hopper.expect %filled[%n{slot}] {{bytes = #builtin.int<{BYTES}>}} : {barriers}, i32"
        )
    return (
        f"%v{place} = hopper.slot %ring[%n{slot}] : ({buffer}, i32) -> {VIEW}\n"
        f"hopper.tma_load %m[%n0, %n0], %v{place}, %filled[%n{slot}] : {MAP}, i32, i32, {VIEW}, "
        f"{barriers}, i32"
    )


def _mma(program: Program, place: int, barriers: str, buffer: str) -> str:
    what, slot, number = program.mma[place]
    if what == "get":
        return f"hopper.wait %filled[%n{slot}], %n{number} : {barriers}, i32, i32"
    if what == "commit":
        return "hopper.wgmma_commit"
    if what == "finish":
        return f"hopper.wgmma_wait {{pending = #builtin.int<{number}>}}"
    if what == "release":
        return f'hopper.arrive %freed[%n{slot}] {{by = "warpgroup"}} : {barriers}, i32'
    count = sum(1 for a in program.mma[:place] if a[0] == "multiply")
    return (
        f"%w{place} = hopper.slot %ring[%n{slot}] : ({buffer}, i32) -> {VIEW}\n"
        "hopper.wgmma_fence\n"
        f"%acc{count + 1} = hopper.wgmma %w{place}, %w{place}, %acc{count} : "
        f"({VIEW}, {VIEW}, {ACC}) -> {ACC}"
    )
