"""Each reader of a ring gives back what it gets, in all blocks that share its loads.

What blocks of a cluster do for one another: the parts of all are the box once, from one place, and
slots are given back in every block; when they meet is a rule of the text (`static.py`).
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntAttr, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from tawa.analysis.cluster import Neighbours
from tawa.ir import hopper, tile
from tawa.ir.walk import all_of, decisive
from tawa.verify.agents import SYNCHRONIZES
from tawa.verify.rings import Buffer, Rings, label_of
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import RANK
from tawa.verify.values import Values


def check_handing(kernel: tile.Kernel, rings: Rings, values: Values) -> None:
    """Raise Refused where a reader gives no slots back, or blocks of a cluster do unlike things."""
    for buffer in rings.buffers.values():
        if buffer.filled is not None:
            _check_readers(buffer)
            _check_multicast(buffer, rings.of_filled(buffer.filled), values)
    _check_cluster(kernel, values)


def _check_readers(ring: Buffer) -> None:
    """Each role that reads a ring gives slots back: by as many arrivals each time (`system.py`), in
    as many blocks."""
    if ring.freed is None:
        return
    for role in ring.readers():
        if not _blocks_of(ring.freed, role):
            raise Refused(
                rule("given back"),
                f"{role.label.data} reads {ring.label} and arrives nowhere, or not always in as "
                f"many blocks, at {label_of(ring.freed)}",
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
    """What blocks of a cluster do for one another goes to all of them, and whether a block comes to
    what synchronizes does not depend on its rank."""
    remote = False
    for each in all_of(kernel, hopper.Arrive, hopper.TmaLoad):
        to = each.cluster if isinstance(each, hopper.Arrive) else each.multicast
        if to is not None and to.data != values.cluster:
            raise Refused(
                rule("multicast"),
                f"{each.name} goes to {to.data} blocks of a cluster of {values.cluster}",
                each,
            )
        remote = remote or to is not None
    if remote:
        alike = set[Operation]()
        for role in all_of(kernel, hopper.Role):
            for each in all_of(role, *SYNCHRONIZES):
                _check_alike(each, values, alike)


def _check_alike(operation: Operation, values: Values, alike: set[Operation]) -> None:
    """Raise Refused where an operation stands under what the block's rank decides; `alike` is what
    was found to be decided alike."""
    parent = operation.parent_op()
    while parent is not None and not isinstance(parent, hopper.Role) and parent not in alike:
        told = [v for v in decisive(parent) if RANK in values.terms.support(values.of(v))]
        if told and not _differing(values.kernel, values.cluster).isdisjoint(told):
            raise Refused(
                rule("multicast"),
                f"whether a block of a cluster comes to {operation.name} depends on its rank, and "
                "blocks that wait for one another are to come to the same",
                operation,
            )
        alike.add(parent)
        parent = parent.parent_op()


def cluster_of(kernel: tile.Kernel) -> int:
    """Return how many blocks of a launch make a cluster."""
    match kernel.launch:
        case DictionaryAttr(data=launch):
            match launch.get("cluster"):
                case IntAttr(data=blocks):
                    return blocks
                case _:
                    return 1
        case _:
            return 1
