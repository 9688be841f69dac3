"""The check of lowered kernels for all inputs at once (docs/design/proof.md).

    verify(kernel)      # raises UnprovedProtocol with the rule and the place

No search, no sampled input.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Operation

from tawa.collector import at_rest
from tawa.errors import Place, UnprovedProtocol
from tawa.ir import tile
from tawa.target import H200, Target
from tawa.verify.agreement import check_handing, check_threads, cluster_of
from tawa.verify.choreography import Choreography
from tawa.verify.coordinates import Program, check_coordinates, program_of
from tawa.verify.memory import check_global_order, check_memory
from tawa.verify.rings import rings_of
from tawa.verify.role_flow import check_roles
from tawa.verify.rules import Refused, Rule
from tawa.verify.static import Launch, check_known, check_static
from tawa.verify.system import read_system
from tawa.verify.values import Values


@dataclass(frozen=True, slots=True)
class Proof:
    """What was shown, in one sentence; `states`: the ways in which roles stand to one another."""

    ok: bool
    states: int
    seconds: float
    verdict: str


def verify(kernel: tile.Kernel, target: Target = H200, program: Program | None = None) -> Proof:
    """Check a kernel in hopper IR by all rules of `rules.py`, those of coordinates against the aref
    program that it was made from; without one these are not checked.

    Raises `UnprovedProtocol` where that is not shown for every input.
    """
    began = time.perf_counter()
    with _told(kernel), at_rest():
        states = check(kernel, target, program)
    seconds = time.perf_counter() - began
    verdict = f"no hang, race, early release or leftover, for every input ({1000 * seconds:.0f} ms)"
    return Proof(True, states, seconds, verdict)


def verify_registers(kernel: tile.Kernel, target: Target = H200) -> None:
    """Check a kernel again of which only the roles' registers, or the blocks on a multiprocessor,
    changed after `verify`: no rule but those of the text looks at them.

    Raises `UnprovedProtocol`.
    """
    with _told(kernel):
        check_static(kernel, target)


@contextmanager
def _told(kernel: tile.Kernel) -> Generator[None]:
    """Raise what the body refuses as an error that a user reads."""
    try:
        yield
    except Refused as found:
        error = UnprovedProtocol(
            f"{kernel.sym_name.data} is not proved: {found.sentence}",
            place=_place(found.operation),
            why=f'rule "{found.rule.name}": {found.rule.holds}.',
            remedy="compile it with specialize=False, which leaves less to prove, or split it.",
        )
        error.rule = found.rule.name
        raise error from None


def check(kernel: tile.Kernel, target: Target = H200, program: Program | None = None) -> int:
    """Do the same; return in how many ways the roles stand to one another. Raises `Refused`, which
    names the rule.
    """
    check_known(kernel)
    cluster = cluster_of(kernel)
    values = program.values_of(kernel, cluster) if program else Values(kernel, cluster)
    rings = rings_of(kernel)
    check_memory(kernel, rings, Launch.of(kernel, target).shared)
    check_threads(kernel)
    if program is not None:
        check_coordinates(kernel, values, program)
    check_global_order(kernel, values)
    check_static(kernel, target)
    numbers = check_roles(kernel, rings, values)
    check_handing(kernel, rings, values)
    system = read_system(kernel, values, numbers.leads)
    together = Choreography(system)
    together.run()
    system.check_parity(numbers)
    numbers.check_begins()
    values.check_received()
    return len(together.seen)


def _place(operation: Operation | None) -> Place | None:
    if operation is None or not isinstance(operation.location, FileLineColLoc):
        return None
    where = operation.location
    return Place(where.filename.data, where.line.data, where.column.data)


__all__ = ["Program", "Proof", "Refused", "Rule", "check", "program_of", "verify"]
