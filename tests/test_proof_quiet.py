"""Conditions under which registers are computed alone are no choice: both sides are looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from xdsl.dialects import scf
from xdsl.ir import Operation

from proof_kernels import KERNELS
from tawa.errors import ProtocolError, UnprovedProtocol
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


@pytest.mark.parametrize("name", NAMES)
def test_registers_in_flight_are_seen_on_either_side(name: str) -> None:
    broken = 0
    for number in range(len(quiet(of_name(name)))):
        for side in (0, 1):
            kernel = of_name(name)
            branch = quiet(kernel)[number]
            for inner, place, wait in [*readings(branch, side)]:
                index = list(wait.res).index(inner.operands[place])
                inner.operands[place] = wait.values[index]  # its name from before the wait
                broken += 1
                break
            else:
                continue
            with pytest.raises(ProtocolError, match="accumulators at rest") as caught:
                prove(kernel, H200)
            assert not isinstance(caught.value, UnprovedProtocol)
    assert broken
