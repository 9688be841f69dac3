"""Conditions under which registers are computed alone are no choice: both sides are looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from xdsl.dialects import scf
from xdsl.ir import Operation

from proof_kernels import KERNELS
from proof_oracle import ACC, VIEW, i
from ring_text import of, refused
from role_text import arrive, finish, load, one, role, view, wait
from role_text import kernel as role_kernel
from tawa.errors import ProtocolError
from tawa.ir import hopper, parse, tile
from tawa.simulator.proof import prove
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.quiet import is_quiet
from tawa.simulator.proof.read import read_kernel
from tawa.target import H200

NAMES = ("flash 64 causal split coarse", "attention window")


def quiet(kernel: tile.Kernel) -> list[scf.IfOp]:
    """Return the quiet conditions of a kernel that touch registers of products."""
    decoder = read_kernel(kernel, H200).decoder
    return [
        each
        for each in kernel.walk()
        if isinstance(each, scf.IfOp)
        and is_quiet(each, decoder)
        and any(value in decoder.tracked for value in each.results)
    ]


def of_name(name: str) -> tile.Kernel:
    return parse(str(KERNELS[name]()))


@pytest.mark.parametrize("name", NAMES)
def test_they_are_asked_nothing(name: str) -> None:
    kernel = of_name(name)
    found = quiet(kernel)
    assert found
    exploration = Exploration(read_kernel(kernel, H200))
    exploration.explore()
    asked = {site.operation for one in exploration.seen for site in one.outcomes}
    assert asked.isdisjoint(found)


def test_what_synchronizes_under_a_condition_is_a_choice() -> None:
    kernel = of_name(NAMES[0])
    decoder = read_kernel(kernel, H200).decoder
    for branch in kernel.walk():
        if isinstance(branch, scf.IfOp) and any(
            isinstance(inner, (hopper.Wait, hopper.Arrive, hopper.Wgmma, scf.ForOp))
            for inner in branch.walk()
        ):
            assert not is_quiet(branch, decoder)


def readings(branch: scf.IfOp, side: int) -> Iterator[tuple[Operation, int, hopper.WgmmaWait]]:
    """Yield what reads a tensor that was waited for on one side of a condition."""
    for inner in branch.regions[side].walk():
        for place, operand in enumerate(inner.operands):
            if isinstance(operand.owner, hopper.WgmmaWait):
                yield inner, place, operand.owner


def refusal(kernel: tile.Kernel) -> str:
    """Return what the proof says against a kernel, or nothing."""
    try:
        prove(kernel, H200)
    except ProtocolError as found:
        return str(found)
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_registers_that_may_be_in_flight_make_it_a_choice(name: str) -> None:
    broken, refused = 0, 0
    for number in range(len(quiet(of_name(name)))):
        for side in (0, 1):
            kernel = of_name(name)
            branch = quiet(kernel)[number]
            reading = next(readings(branch, side), None)
            if reading is None:
                continue
            inner, place, wait = reading
            # The name of the tensor from before the wait.
            inner.operands[place] = wait.values[list(wait.res).index(inner.operands[place])]
            assert not is_quiet(branch, read_kernel(kernel, H200).decoder)
            broken += 1
            refused += "accumulators at rest" in refusal(kernel)
    assert refused >= broken // 2 > 0  # some of these sides no input takes


# --- accumulators that go through a condition -----------------------------------------------------


def product(acc: str, out: str) -> str:
    """A product of the tile with itself, in flight."""
    kinds = f"{VIEW}, {VIEW}, {ACC}"
    return (
        f"hopper.wgmma_fence\n{out} = hopper.wgmma %w, %w, {acc} : ({kinds}) -> {ACC}\n"
        "hopper.wgmma_commit\n"
    )


def times(out: str, value: str) -> str:
    return f'{out} = tile.elementwise "mul"({value}, %ones) : ({ACC}, {ACC}) -> {ACC}\n'


def chosen(condition: str, yes: str, no: str, before: str = "") -> str:
    """The tensor `%r`, one where a condition on the trip holds and another where it does not."""
    return (
        condition
        + f"%r = scf.if %go -> ({ACC}) {{\n{before}scf.yield {yes} : {ACC}\n}} else {{\n"
        + f"scf.yield {no} : {ACC}\n}}\n"
    )


def chain(body: str, begin: str = "%zero") -> str:
    """A loop of products of one tile that was copied before it, waited for at its end."""
    copy = wait("freed", 1, "%c0", "%c1") + view("%v", "%c0", 1) + load("%v", "filled", 1, "%c0")
    mma = (
        f"%zero = tile.constant {{value = {i(0)}}} : {ACC}\n"
        f"%ones = tile.constant {{value = {i(1)}}} : {ACC}\n"
        f"%none = hopper.uninitialized : {ACC}\n"
        + wait("filled", 1, "%c0", "%c0")
        + view("%w", "%c0", 1)
        + f"%e = scf.for %k = %c0 to %K step %c1 iter_args(%acc = {begin}) -> ({ACC}) : i32 {{\n"
        + f"{body}scf.yield %new : {ACC}\n}}\n"
        + finish("%end", "%e")
        + arrive("freed", 1, "%c0", "warpgroup")
    )
    roles = [role("load", 0, one(copy)), role("mma", 4, mma, 168)]
    return role_kernel(roles, {"filled": (1, 1), "freed": (1, 1)}, slots=1)


NOW_AND_THEN = of("%h", "irem", "%k", "%c3") + of("%go", "eq", "%h", "%c2", result="i1")
FIRST = of("%go", "eq", "%k", "%c0", result="i1")
NEVER = of("%go", "lt", "%k", "%c0", result="i1")
AT_REST = product("%r", "%n") + finish("%new", "%n")


@pytest.mark.parametrize("begun", ["", "%zero", "%s"])
def test_threads_write_no_accumulator_in_flight(begun: str) -> None:
    given = chosen(NOW_AND_THEN, begun or "%acc", "%acc", times("%s", "%ones"))
    found = refused(chain(given + product("%r", "%new")))
    assert bool(found) is bool(begun)
    assert not begun or "which no wait has covered since" in found


@pytest.mark.parametrize(
    "text",
    [
        chain(chosen(NOW_AND_THEN, "%zero", "%acc") + AT_REST),
        chain(chosen(FIRST, "%zero", "%acc") + AT_REST, "%none"),
        chain(chosen(FIRST, "%s", "%acc", times("%s", "%acc")) + product("%r", "%new")),
        chain(chosen(NEVER, "%s", "%acc", times("%s", "%acc")) + product("%r", "%new")),
    ],
    ids=["at rest", "none before the first", "the first alone", "never"],
)
def test_what_a_side_does_counts_where_it_is_taken(text: str) -> None:
    assert not refused(text)
