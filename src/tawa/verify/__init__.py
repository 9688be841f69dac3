"""The check of lowered kernels for all inputs at once (docs/design/verify.md).

    verify(kernel)      # raises UnprovedProtocol with the rule and the place

No search, no sampled input: what is decided is that two expressions are one.
"""

from __future__ import annotations

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Operation

from tawa.errors import Place, UnprovedProtocol
from tawa.ir import tile
from tawa.target import H200, Target
from tawa.verify.choreography import Choreography
from tawa.verify.control import check_control, cluster_of
from tawa.verify.counts import Counts
from tawa.verify.cursors import Cursors
from tawa.verify.events import Reader
from tawa.verify.ring_steps import Rings
from tawa.verify.role_flow import check_roles
from tawa.verify.rules import Refused, Rule
from tawa.verify.static import check_static
from tawa.verify.system import read_system
from tawa.verify.values import Values


def verify(kernel: tile.Kernel, target: Target = H200) -> None:
    """Check a kernel in hopper IR: its text, each role by itself, and that all have one control.

    Raises `UnprovedProtocol` where that is not shown for every input.
    """
    try:
        check(kernel, target)
    except Refused as found:
        raise UnprovedProtocol(
            f"{kernel.sym_name.data} is not proved: {found.sentence}",
            place=_place(found.operation),
            why=f'rule "{found.rule.name}": {found.rule.holds}.',
            remedy="compile it with specialize=False, which leaves less to prove, or split it.",
        ) from None


def check(kernel: tile.Kernel, target: Target = H200) -> None:
    """Do the same. Raises `Refused`, which names the rule."""
    check_static(kernel, target)
    check_roles(kernel)
    values = Values(kernel, cluster_of(kernel))
    counts = Counts(values.terms)
    reader = Reader(values, counts)
    roles = check_control(kernel, values, counts, reader)
    system = read_system(kernel, values, counts, roles, reader)
    Choreography(system, Rings(system, Cursors(system.depths, values.terms))).run()
    system.check_parity()


def _place(operation: Operation | None) -> Place | None:
    if operation is None or not isinstance(operation.location, FileLineColLoc):
        return None
    where = operation.location
    return Place(where.filename.data, where.line.data, where.column.data)


__all__ = ["Refused", "Rule", "check", "verify"]
