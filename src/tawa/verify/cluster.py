"""Each reader of a ring gives back what it gets, in all blocks that share its loads.

What blocks of a cluster do for one another: the parts of all are the box once, from one place, and
slots are given back in every block; when they meet is a rule of the text (`static.py`).
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from tawa.analysis.neighbours import Neighbours
from tawa.ir import hopper, tile
from tawa.ir.control import decisive
from tawa.ir.walk import all_of
from tawa.verify.control import Events
from tawa.verify.counts import Counts
from tawa.verify.events import arrivals_of
from tawa.verify.rings import Buffer, Rings, is_alone, label_of
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import RANK
from tawa.verify.values import Values


def check_handing(
    kernel: tile.Kernel, rings: Rings, values: Values, counts: Counts, roles: Events
) -> None:
    """Raise Refused where a slot is not given back as often as it is got, or blocks of a cluster do
    not do alike.
    """
    for buffer in rings.buffers.values():
        if buffer.filled is not None:
            _check_readers(buffer, counts, roles)
            _check_multicast(buffer, rings.of_filled(buffer.filled), values)
    _check_cluster(kernel, values)


def _check_readers(ring: Buffer, counts: Counts, roles: Events) -> None:
    """Each role that reads a ring gives back every slot that it gets, by as many each time."""
    if ring.filled is None or ring.freed is None:
        return
    none = counts.constant(0)
    for role in ring.readers():
        arrivals = {
            arrivals_of(each.by.data, role, alone=is_alone(each))
            for each in all_of(role, hopper.Arrive)
            if each.barriers is ring.freed
        }
        gets = roles[role].get(("wait", ring.filled), none)
        given = roles[role].get(("arrive", ring.freed), none)
        each = arrivals.pop() if len(arrivals) == 1 else 0
        cluster = _blocks_of(ring.freed, role)
        if not each or not counts.same(given, counts.sum([(gets, each * cluster)])):
            raise Refused(
                rule("given back"),
                f"{role.label.data} gets {counts.text(gets)} slots of {ring.label} and arrives "
                f"{counts.text(given)} times at {label_of(ring.freed)}",
                ring.made,
            )


def _blocks_of(freed: SSAValue, role: hopper.Role) -> int:
    """Return to how many blocks a role's arrivals go; 0 where that differs."""
    found = {
        1 if each.cluster is None else each.cluster.data
        for each in all_of(role, hopper.Arrive)
        if each.barriers is freed
    }
    return found.pop() if len(found) == 1 else 0


def _check_multicast(ring: Buffer, siblings: list[Buffer], values: Values) -> None:
    """The parts of all blocks are the box once; each reader gives back in every block."""
    loads = [each.operation for each in ring.accesses if isinstance(each.operation, hopper.TmaLoad)]
    shared = [load for load in loads if load.multicast is not None]
    apart = {each: values.of(each) for load in shared for each in (*load.offsets, load.slot)}
    apart = {each for each, term in apart.items() if RANK in values.terms.support(term)}
    if apart:
        apart &= _differing(values.kernel, values.cluster)
    for load in shared:
        for offset in (*load.offsets, load.slot):
            if offset in apart:
                raise Refused(
                    rule("multicast"),
                    f"blocks of a cluster send parts of different boxes to {ring.label}: an offset "
                    "depends on the block's rank",
                    load,
                )
    if not shared:
        return
    freed = {each.freed for each in siblings}
    if None in freed:
        raise Refused(
            rule("multicast"),
            f"other blocks fill {ring.label} and nobody tells them that it is free",
            ring.made,
        )
    readers = dict.fromkeys(role for each in siblings for role in each.readers())
    for role in readers:
        if any(at is not None and _blocks_of(at, role) != values.cluster for at in freed):
            raise Refused(
                rule("multicast"),
                f"{role.label.data} reads {ring.label}, which other blocks fill, and does not give "
                f"it back in all {values.cluster} blocks",
                ring.made,
            )


def _differing(kernel: tile.Kernel, blocks: int) -> set[SSAValue]:
    """Return the scalars that differ between the blocks of a cluster, with what a launch checks."""
    guards = kernel.attributes.get("cluster_guards")
    asked: set[str] = set()
    if isa(guards, ArrayAttr[StringAttr]):
        asked = {each.data for each in guards}
    neighbours = Neighbours(kernel, blocks, assume=bool(asked))
    if not asked.issuperset(neighbours.conditions(kernel)):
        neighbours = Neighbours(kernel, blocks)
    return neighbours.differing


def _check_cluster(kernel: tile.Kernel, values: Values) -> None:
    """What blocks of a cluster send to one another they all send."""
    remote = [
        each
        for each in all_of(kernel, hopper.Arrive, hopper.TmaLoad)
        if (each.cluster if isinstance(each, hopper.Arrive) else each.multicast) is not None
    ]
    for each in remote:
        _check_alike(each, values)


def _check_alike(remote: Operation, values: Values) -> None:
    """What a block does for others stands under nothing that its rank decides."""
    parent = remote.parent_op()
    while parent is not None and not isinstance(parent, hopper.Role):
        if isinstance(parent, scf.IfOp | scf.ForOp | scf.WhileOp):
            told = [v for v in decisive(parent) if RANK in values.terms.support(values.of(v))]
            if told and not _differing(values.kernel, values.cluster).isdisjoint(told):
                raise Refused(
                    rule("multicast"),
                    f"whether a block of a cluster comes to {remote.name}, by which it reaches "
                    "other blocks, depends on its rank",
                    remote,
                )
        parent = parent.parent_op()


__all__ = ["check_handing"]
