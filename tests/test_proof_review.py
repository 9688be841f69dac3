"""Faults that a hostile reading of the proof found to be accepted: each with the right program."""

from __future__ import annotations

import pytest

from proof_oracle import ACC, i
from ring_text import following, loop, of, once, refused, turn
from ring_text import kernel as rings
from role_text import (
    POINTERS,
    arrive,
    barriers,
    finish,
    gather,
    kernel,
    load,
    one,
    product,
    role,
    store,
    view,
    wait,
)

MORE = of("%is", "gt", "%K", "%c3", result="i1")


def registers(way: str, count: int) -> str:
    return f'hopper.set_registers "{way}" {{count = {i(count)}}}\n'


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        (registers("inc", 232), ""),
        (f"{MORE}scf.if %is {{\n{registers('inc', 232)}}}\n", "under a condition"),
        (f"scf.for %k = %c0 to %K step %c1 : i32 {{\n{registers('inc', 232)}}}\n", "in a loop"),
        (one(registers("inc", 232)), "by one thread of mma only"),
    ],
    ids=["at once", "condition", "loop", "one thread"],
)
def test_registers_are_taken_in_any_case(taken: str, why: str) -> None:
    roles = [role("load", 0, registers("dec", 40), 40), role("mma", 4, taken, 232)]
    found = refused(kernel(roles, {}))
    assert why in found if why else not found


PAIR = "%e:2 = scf.for %k = %c0 to %c2 step %c1 iter_args(%s = %c0, %h = %c0) -> (i32, i32) : i32 {"
AGAIN = (
    f"{PAIR}\n{view('%v', '%s')}{load('%v', 'filled', 2, '%s')}"
    f"{following('%s', '%h', 2, ('%t', '%q'))}scf.yield %t, %q : i32, i32\n}}\n"
)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_store_comes_after_all_loads_of_its_tile(order: tuple[int, int]) -> None:
    """One tile is loaded twice, to two slots: whoever saw one land may not write it yet."""
    first, second = (wait("filled", 2, f"%c{slot}", "%c0") for slot in order)
    taken = first + view("%w", f"%c{order[0]}")
    for body, right in ((second + store("%w"), True), (store("%w") + second, False)):
        found = refused(
            kernel([role("load", 0, one(AGAIN)), role("mma", 4, taken + body)], {"filled": (2, 1)})
        )
        assert not found if right else "may still read" in found


FREED = {"filled": (2, 128), "freed": (2, 1)}
GATHERED = {"p": "!tile.ptr<bf16>", "K": "i32"}
PUT = f"%where = tile.splat %p : (!tile.ptr<bf16>) -> {POINTERS}\n" + "".join(
    wait("freed", 2, slot, "%c1") + view(f"%v{n}", slot) + gather(f"%v{n}", "filled", 2, slot)
    for n, slot in enumerate(("%c0", "%c1"))
)
ZERO = f"%acc0 = tile.constant {{value = {i(0)}}} : {ACC}\n"


def gathered(mma: str) -> str:
    return refused(kernel([role("load", 0, PUT), role("mma", 4, ZERO + mma)], FREED, 2, GATHERED))


def released(slot: str) -> str:
    return arrive("freed", 2, slot, "warpgroup")


def test_the_last_tile_of_cp_async_is_given_back_when_it_was_read() -> None:
    def got(n: int, after: bool) -> str:
        slot = f"%c{n}"
        rest = [finish(f"%acc{2 * n + 2}", f"%acc{2 * n + 1}"), released(slot)]
        return (
            f"{wait('filled', 2, slot, '%c0')}hopper.proxy_fence\n{view(f'%w{n}', slot)}"
            f"{product(f'%w{n}', f'%acc{2 * n}', f'%acc{2 * n + 1}')}"
            + "".join(rest if after else rest[::-1])
        )

    assert not gathered(got(0, True) + got(1, True))
    assert "which gives it back, may come first" in gathered(got(0, True) + got(1, False))
    assert "never waited for" in gathered(got(0, True))


@pytest.mark.parametrize(("read", "why"), [("%s", ""), ("%c0", "not the tile of this trip")])
def test_each_get_of_cp_async_reads_its_tile(read: str, why: str) -> None:
    trips = (
        "%e:3 = scf.for %k = %c0 to %c2 step %c1 iter_args(%s = %c0, %h = %c0, %acc1 = %acc0) -> "
        f"(i32, i32, {ACC}) : i32 {{\n{wait('filled', 2, '%s', '%h')}hopper.proxy_fence\n"
        f"{view('%w', read)}{product('%w', '%acc1', '%acc2')}{finish('%acc3', '%acc2')}"
        f"{following('%s', '%h', 2, ('%t', '%q'))}scf.yield %t, %q, %acc3 : i32, i32, {ACC}\n}}\n"
    )
    found = gathered(trips + released("%c0") + released("%c1"))
    assert why in found if why else not found


ONE = 'tensor<1xi32, #hopper.layout<"1 r[] l[32:(0)] w[4:(0)]">>'
PLACE = '#hopper.shared_layout<"1 order(0) 32b swizzle0">'
PLACES = '#hopper.shared_layout<"2 order(0) 32b swizzle0">'
BOX = f"!hopper.buffer<{i(1)}, i32, {PLACES}>"
NUMBERS = f"!hopper.view<i32, {PLACES}, {PLACES}>"
NUMBER = f"!hopper.view<i32, {PLACE}, {PLACES}>"


def place(name: str, at: int) -> str:
    return f'{name} = "hopper.slice_view"(%v) {{start = [{i(at)}]}} : ({NUMBERS}) -> {NUMBER}\n'


def kept(name: str, value: str, at: int) -> str:
    return (
        f"{place(name, at)}{name}_t = tile.splat {value} : (i32) -> {ONE}\n"
        f'hopper.shared_store "plain" {name}_t, {name} : {ONE}, {NUMBER}\n'
    )


@pytest.mark.parametrize(("end", "at", "right"), [("%K", 0, True), ("%c8", 0, False)])
def test_numbers_in_one_slot_are_told_apart(end: str, at: int, right: bool) -> None:
    """A role tells another K and 8, side by side; the other's loop ends at the one or the other."""
    whole = f"%v = hopper.slot %box[%c0] : ({BOX}, i32) -> {NUMBERS}\n"
    told = whole + kept("%x", "%K", 0) + kept("%y", "%c8", 1) + arrive("S", 1, "%c0", "all")
    heard = (
        f"{wait('S', 1, '%c0', '%c0')}{whole}{place('%x', at)}"
        f'%xs = hopper.shared_load "plain" %x : ({NUMBER}) -> {ONE}\n'
        f'%n = "tile.reduce"(%xs) ({{\n^bb0(%a: i32, %b: i32):\ntile.yield %a : i32\n}}) '
        f"{{axis = {i(0)}}} : ({ONE}) -> i32\n"
    )
    roles = [
        role("load", 0, told + loop("load", "A", 2, end)),
        role("mma", 4, heard + loop("mma", "A", 2, "%n")),
    ]
    arrays = {"A_filled": (2, 128), "A_freed": (2, 128), "S": (1, 128)}
    box = f'%box = hopper.shared "box" {{offset = {i(0)}}} : {BOX}\n'
    text = kernel(roles, arrays, 0, {"K": "i32"}, box, 128)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("%ring"))
    assert bool(refused(text)) != right


def counted(kind: str, last: str) -> str:
    """A loop that turns a ring and counts in a type; where the count is < 0, `last` is done."""
    return (
        f"%z = tile.constant {{value = {i(0)}}} : {kind}\n%o = tile.constant {{value = {i(1)}}} : "
        f"{kind}\n%e:3 = scf.for %k = %c0 to %K step %c1 iter_args(%s = %c0, %h = %c1, %x = %z) -> "
        f"(i32, i32, {kind}) : i32 {{\n{turn('load', 'A', '%s', '%h', 2)}"
        f"{following('%s', '%h', 2, ('%t', '%q'))}%wide = tile.cast %x : ({kind}) -> i32\n"
        f"{of('%is', 'lt', '%wide', '%c0', result='i1')}scf.if %is {{\n{last}}}\n"
        f'%y = tile.elementwise "add"(%x, %o) : ({kind}, {kind}) -> {kind}\n'
        f"scf.yield %t, %q, %y : i32, i32, {kind}\n}}\n"
    )


@pytest.mark.parametrize(
    ("kind", "why"), [("i8", "more than its 128 arrivals"), ("i16", "unproved"), ("i32", "")]
)
def test_narrow_counters_wrap(kind: str, why: str) -> None:
    """A count of eight bits is below zero after 128 trips."""
    extra = f'hopper.arrive %B_filled[%c0] {{by = "all"}} : {barriers(1)}, i32\n'
    text = rings({"A": 2, "B": 1}, counted(kind, extra), loop("mma", "A", 2, "%K"))
    found = refused(text)
    assert why in found if why else not found


COUNTS = (
    "%cnt = scf.for %i = %c0 to %K step %c1 iter_args(%c = %c0) -> (i32) : i32 {\n"
    + of("%cn", "add", "%c", "%c1")
    + "scf.yield %cn : i32\n}\n"
)
FEW = COUNTS + of("%is", "gt", "%cnt", "%c1", result="i1")
NOT_MANY = (
    COUNTS
    + of("%few", "gt", "%cnt", "%c1", result="i1")
    + of("%less", "lt", "%cnt", "%c64", result="i1")
    + of("%is", "and", "%few", "%less", kind="i1", result="i1")
)
MANY = COUNTS + of("%is", "gt", "%cnt", "%c64", result="i1")


@pytest.mark.parametrize(
    ("load", "mma", "right"),
    [(FEW, FEW, True), (FEW, "", False), (MANY, "", False), (FEW, NOT_MANY, False)],
    ids=["alike", "few", "many", "not many"],
)
def test_what_a_loop_without_synchronization_counts_is_an_input(
    load: str, mma: str, right: bool
) -> None:
    """What roles do after more trips of a loop that only counts than are run is not known."""
    text = rings(
        {"A": 1}, load + once("load", "A", "%is"), mma + once("mma", "A", "%is") if mma else ""
    )
    assert bool(refused(text)) != right
