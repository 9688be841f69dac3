"""Hopper IR of two roles that meet at rings of barriers alone, as text.

The role "load" waits for a slot to be free and arrives where it is filled, the role "mma" the other
way round; all 128 threads of either arrive. What stands between is for the test to say: constants
are `%c0` to `%c9`, `%c16` and `%c64`, the arguments i32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tawa.errors import ProtocolError, UnprovedProtocol
from tawa.ir import parse
from tawa.simulator import simulate
from tawa.simulator.proof import prove
from tawa.target import H200

_CONSTANTS = (*range(10), 16, 64)


def of(out: str, name: str, *inputs: str, kind: str = "i32", result: str = "i32") -> str:
    """The text of ``out = name(inputs)``."""
    kinds = ", ".join([kind] * len(inputs))
    return f'{out} = tile.elementwise "{name}"({", ".join(inputs)}) : ({kinds}) -> {result}\n'


def turn(role: str, ring: str, slot: str, phase: str, depth: int) -> str:
    """One wait and one arrival of a role at a ring."""
    waits, arrives = ("freed", "filled") if role == "load" else ("filled", "freed")
    barriers = f"!hopper.barriers<#builtin.int<{depth}>>"
    return (
        f"hopper.wait %{ring}_{waits}[{slot}], {phase} : {barriers}, i32, i32\n"
        f'hopper.arrive %{ring}_{arrives}[{slot}] {{by = "all"}} : {barriers}, i32\n'
    )


def following(slot: str, phase: str, depth: int, to: tuple[str, str]) -> str:
    """The next slot and phase, as `to`."""
    there, turned = to
    return (
        of(f"{there}_n", "add", slot, "%c1")
        + of(f"{there}_w", "eq", f"{there}_n", f"%c{depth}", result="i1")
        + f'{there} = tile.elementwise "select"({there}_w, %c0, {there}_n)'
        " : (i1, i32, i32) -> i32\n"
        + of(f"{turned}_x", "xor", phase, "%c1")
        + f'{turned} = tile.elementwise "select"({there}_w, {turned}_x, {phase})'
        " : (i1, i32, i32) -> i32\n"
    )


def start(role: str) -> str:
    """The phase a role starts with."""
    return "%c1" if role == "load" else "%c0"


def loop(role: str, ring: str, depth: int, end: str) -> str:
    """A loop to `end` that turns a ring in each trip."""
    return (
        f"%{ring}_e:2 = scf.for %{ring}_k = %c0 to {end} step %c1 "
        f"iter_args(%{ring}_s = %c0, %{ring}_p = {start(role)}) -> (i32, i32) : i32 {{\n"
        + turn(role, ring, f"%{ring}_s", f"%{ring}_p", depth)
        + following(f"%{ring}_s", f"%{ring}_p", depth, (f"%{ring}_t", f"%{ring}_q"))
        + f"scf.yield %{ring}_t, %{ring}_q : i32, i32\n}}\n"
    )


def once(role: str, ring: str, condition: str) -> str:
    """A ring of one slot that is turned once, where a condition holds."""
    return f"scf.if {condition} {{\n{turn(role, ring, '%c0', start(role), 1)}}}\n"


def kernel(
    rings: Mapping[str, int],
    load: str,
    mma: str,
    arguments: Sequence[str] = ("K",),
    constants: Sequence[int] = (),
) -> str:
    """The kernel of two roles, with rings of so many slots."""
    declared, initialised, offset = "", "", 0
    for ring, depth in rings.items():
        for end in ("filled", "freed"):
            kind = f"!hopper.barriers<#builtin.int<{depth}>>"
            declared += (
                f'%{ring}_{end} = hopper.barriers "{ring} {end}" {{offset = #builtin.int<{offset}>'
                f", arrivals = #builtin.int<128>}} : {kind}\n"
            )
            initialised += f"hopper.init_barriers %{ring}_{end} : {kind}\n"
            offset += 8 * depth
    roles = "".join(
        _role(name, first, body, (*_CONSTANTS, *constants))
        for name, first, body in (("load", 0, load), ("mma", 4, mma))
    )
    names = ", ".join(f'{{name = "{name}"}}' for name in arguments)
    return (
        f'"tile.kernel"() ({{\n^bb0({", ".join(f"%{name} : i32" for name in arguments)}):\n'
        f"{declared}{initialised}hopper.fence_barrier_init\nhopper.block_sync\n{roles}"
        f'}}) {{sym_name = "rings", arguments = [{names}], options = {{}}, '
        "launch = {threads = #builtin.int<256>, registers = #builtin.int<248>, "
        f"shared = #builtin.int<{offset}>, cluster = #builtin.int<1>}}}} : () -> ()\n"
    )


def _role(label: str, first: int, body: str, constants: Sequence[int]) -> str:
    numbers = "".join(
        f"%c{n} = tile.constant {{value = #builtin.int<{n}>}} : i32\n" for n in constants
    )
    return (
        f'"hopper.role"() ({{\n{numbers}{body}}}) {{label = "{label}", first_warp = '
        f"#builtin.int<{first}>, warps = #builtin.int<4>, registers = #builtin.int<24>}}"
        " : () -> ()\n"
    )


def refused(text: str) -> str:
    """What the proof says against a kernel: its sentence, "unproved", or nothing."""
    try:
        prove(parse(text), H200)
    except UnprovedProtocol:
        return "unproved"
    except ProtocolError as error:
        return str(error)
    return ""


def fails(text: str, **given: Any) -> bool:
    """Tell whether the simulator finds a fault with these arguments."""
    try:
        simulate(parse(text), (1, 1, 1), given, schedule="random", late="random", seed=1)
    except ProtocolError:
        return True
    return False
