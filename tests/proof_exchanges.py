"""Random roles whose warps hand data to one another, and which of their accesses race.

A role stores and loads parts of a few buffers, which may overlap, in layouts that give several
warps the same rows, or other rows than the access before; between them all warps meet, or some
arrive at a barrier that all wait for. `races` follows what each warp knows, by happens-before and
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from proof_oracle import i
from role_text import arrive, kernel, role, wait

ROWS, STEP = 64, 16
"""Rows of a buffer, and those that the lanes of a warp hold at once."""


@dataclass(frozen=True)
class Touch:
    """All warps store or load `rows` of a slot from row `first` on: bit n of a warp's number moves
    it by `warps[n]` rows (0: both have the same), and its registers hold those `registers` further.
    """

    write: bool
    buffer: int
    slot: int
    first: int
    rows: int
    warps: tuple[int, ...]
    registers: tuple[int, ...]

    def layout(self) -> str:
        """The type of the tensor."""
        registers = "".join(f" 2:({rows},0)" for rows in self.registers)
        warps = " ".join(f"2:({rows},0)" for rows in self.warps)
        layout = f"{self.rows}x8 r[4:(0,2){registers}] l[2:(0,1) 16:(1,0)] w[{warps}]"
        return f'tensor<{self.rows}x8xf32, #hopper.layout<"{layout}">>'


@dataclass(frozen=True)
class Meet:
    """All warps meet."""


@dataclass(frozen=True)
class Arrive:
    """All warps arrive at a barrier of their own, or the first of each warpgroup for all."""

    barrier: int
    by: str


@dataclass(frozen=True)
class Wait:
    """All warps wait for a barrier."""

    barrier: int


Step: TypeAlias = Touch | Meet | Arrive | Wait


@dataclass(frozen=True)
class Exchange:
    """A role of so many warps: where each buffer begins, in rows, its slots, and what is done."""

    warps: int
    begins: tuple[int, ...]
    slots: tuple[int, ...]
    steps: tuple[Step, ...]


def draw(seed: int, warps: int) -> Exchange:
    """Return a random role."""
    random, bits = Random(seed), warps.bit_length() - 1
    slots = tuple(random.choice((1, 1, 2)) for _ in range(random.choice((1, 1, 2))))
    begins = (0, *(STEP * random.randrange(9) for _ in slots[1:]))
    steps: list[Step] = []
    waited = arrived = 0
    for _ in range(random.randrange(2, 8)):
        match random.random():
            case chance if chance < 0.3:
                steps.append(Meet())
            case chance if chance < 0.38:
                steps.append(Arrive(arrived, random.choice(("warp", "warpgroup"))))
                arrived += 1
            case chance if chance < 0.46 and waited < arrived:
                steps.append(Wait(waited))
                waited += 1
            case _:
                steps.append(_touch(random, bits, slots))
    return Exchange(warps, begins, slots, (*steps, *map(Wait, range(waited, arrived))))


def _touch(random: Random, bits: int, slots: tuple[int, ...]) -> Touch:
    rows, buffer = random.choice((16, 32, 64, 64)), random.randrange(len(slots))
    warps, registers = [0] * bits, list[int]()
    for moved in (each for each in (16, 32) if each < rows):
        left = [bit for bit in range(bits) if not warps[bit]]
        if left and random.random() < 0.7:
            warps[random.choice(left)] = moved
        else:
            registers.append(moved)
    first = STEP * random.randrange((ROWS - rows) // STEP + 1)
    slot = random.randrange(slots[buffer])
    write = random.random() < 2 / 3
    return Touch(write, buffer, slot, first, rows, tuple(warps), tuple(registers))


# --- as hopper IR ---------------------------------------------------------------------------------


def _shared(rows: int) -> str:
    return f'#hopper.shared_layout<"{rows}x8 order(0,1) 32b swizzle0">'


def _view(rows: int) -> str:
    return f"!hopper.view<f32, {_shared(rows)}, {_shared(ROWS)}>"


def _buffer(slots: int) -> str:
    return f"!hopper.buffer<{i(slots)}, f32, {_shared(ROWS)}>"


def text(exchange: Exchange) -> str:
    """The role as a kernel, which writes all of its memory first."""
    warps, threads = exchange.warps, 32 * exchange.warps
    bits = warps.bit_length() - 1
    everything = (16, 32, *(0,) * (bits - 2))
    begun: list[Step] = []
    for buffer, slots in enumerate(exchange.slots):
        for slot in range(slots):
            begun += [Touch(True, buffer, slot, 0, ROWS, everything, ()), Meet()]
    body = "".join(_lines(exchange, [*begun, *exchange.steps]))
    boxes = "".join(
        f'%box{number} = hopper.shared "box{number}" {{offset = {i(32 * begin)}}} : '
        f"{_buffer(slots)}\n"
        for number, (begin, slots) in enumerate(zip(exchange.begins, exchange.slots))
    )
    arrays = {
        f"m{step.barrier}": (1, warps if step.by == "warp" else warps // 4)
        for step in exchange.steps
        if isinstance(step, Arrive)
    }
    end = max(32 * (b + ROWS * s) for b, s in zip(exchange.begins, exchange.slots))
    found = kernel([role("main", 0, body)], arrays, 0, {"K": "i32"}, boxes, end)
    found = "\n".join(line for line in found.splitlines() if not line.startswith("%ring"))
    found = found.replace(f"warps = {i(4)}", f"warps = {i(warps)}")
    return found.replace(f"threads = {i(128)}, registers", f"threads = {i(threads)}, registers")


def _lines(exchange: Exchange, steps: list[Step]) -> Iterator[str]:
    threads = i(32 * exchange.warps)
    for place, step in enumerate(steps):
        match step:
            case Meet():
                yield (
                    f'hopper.named_barrier "sync" {{id = {i(1)}, scope = "role", '
                    f"threads = {threads}}}\n"
                )
            case Arrive(barrier, by):
                yield arrive(f"m{barrier}", 1, "%c0", by)
            case Wait(barrier):
                yield wait(f"m{barrier}", 1, "%c0", "%c0")
            case Touch():
                yield from _access(step, place, exchange.slots[step.buffer])


def _access(touch: Touch, place: int, slots: int) -> Iterator[str]:
    kind, view = touch.layout(), f"%v{place}"
    yield (
        f"%s{place} = hopper.slot %box{touch.buffer}[%c{touch.slot}] : ({_buffer(slots)}, i32) -> "
        f"{_view(ROWS)}\n"
        f'{view} = "hopper.slice_view"(%s{place}) {{start = [{i(touch.first)}, {i(0)}]}} : '
        f"({_view(ROWS)}) -> {_view(touch.rows)}\n"
    )
    if touch.write:
        yield (
            f"%z{place} = tile.constant {{value = 0.0 : f32}} : f32\n"
            f"%x{place} = tile.splat %z{place} : (f32) -> {kind}\n"
            f'hopper.shared_store "plain" %x{place}, {view} : {kind}, {_view(touch.rows)}\n'
        )
    else:
        yield f'%r{place} = hopper.shared_load "plain" {view} : ({_view(touch.rows)}) -> {kind}\n'


# --- what races -----------------------------------------------------------------------------------


def rows_of(exchange: Exchange, touch: Touch, warp: int) -> set[int]:
    """Return the rows of the block's memory that a warp touches."""
    begin = exchange.begins[touch.buffer] + ROWS * touch.slot + touch.first
    begin += sum(rows for bit, rows in enumerate(touch.warps) if warp >> bit & 1)
    starts = [begin]
    for further in touch.registers:
        starts += [start + further for start in starts]
    return {start + row for start in starts for row in range(STEP)}


def races(exchange: Exchange) -> bool:
    """Tell whether some warp touches what another has touched, one of them writing, and no barrier
    lies between. What one store writes alike is no race.
    """
    warps = range(exchange.warps)
    known: list[set[tuple[int, int]]] = [set() for _ in warps]
    told: dict[int, set[tuple[int, int]]] = {}
    done: list[tuple[int, Touch]] = []
    for place, step in enumerate(exchange.steps):
        match step:
            case Meet():
                everything = set[tuple[int, int]]().union(*known)
                known = [everything.copy() for _ in warps]
            case Arrive(barrier, by):
                who = warps if by == "warp" else warps[::4]
                told[barrier] = set[tuple[int, int]]().union(*(known[warp] for warp in who))
            case Wait(barrier):
                known = [each | told[barrier] for each in known]
            case Touch():
                for before, other in done:
                    if (step.write or other.write) and any(
                        one != warp
                        and (before, one) not in known[warp]
                        and rows_of(exchange, other, one) & rows_of(exchange, step, warp)
                        for one in warps
                        for warp in warps
                    ):
                        return True
                done.append((place, step))
                for warp in warps:
                    known[warp].add((place, warp))
    return False
