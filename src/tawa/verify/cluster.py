"""What blocks of a cluster do for one another: parts of a box, slots given back in all blocks.

Barriers are published before other blocks use them, and the blocks meet after the last of it.
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
from tawa.verify.rings import Ring
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import RANK
from tawa.verify.values import Values


def blocks_of(freed: SSAValue, role: hopper.Role) -> int:
    """Return to how many blocks a role's arrivals go; 0 where that differs."""
    found = {
        1 if each.cluster is None else each.cluster.data
        for each in all_of(role, hopper.Arrive)
        if each.barriers is freed
    }
    return found.pop() if len(found) == 1 else 0


def check_multicast(ring: Ring, siblings: list[Ring], values: Values) -> None:
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
                    f"blocks of a cluster send parts of different boxes to {ring.name}: an offset "
                    "depends on the block's rank",
                    load,
                )
    if not shared:
        return
    freed = {each.freed for each in siblings}
    if None in freed:
        raise Refused(
            rule("multicast"),
            f"other blocks fill {ring.name} and nobody tells them that it is free",
            ring.buffer,
        )
    readers = dict.fromkeys(role for each in siblings for role in each.readers())
    for role in readers:
        if any(at is not None and blocks_of(at, role) != values.cluster for at in freed):
            raise Refused(
                rule("multicast"),
                f"{role.label.data} reads {ring.name}, which other blocks fill, and does not give "
                f"it back in all {values.cluster} blocks",
                ring.buffer,
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


def check_cluster(kernel: tile.Kernel, values: Values) -> None:
    """Barriers are published to the cluster before other blocks use them, no block ends before all
    others have sent what they send, and what blocks send they all send.
    """
    remote = [
        each
        for each in all_of(kernel, hopper.Arrive, hopper.TmaLoad)
        if (each.cluster if isinstance(each, hopper.Arrive) else each.multicast) is not None
    ]
    if not remote:
        return
    for each in remote:
        _check_alike(each, values)
    top = list(kernel.body.block.ops)
    places = {kind: _places(top, kind) for kind in _SET_UP}
    first, last = places[hopper.Role][0], places[hopper.Role][-1]
    made = places[hopper.InitBarriers][-1] if places[hopper.InitBarriers] else -1
    fences = [place for place in places[hopper.FenceBarrierInit] if place > made]
    before = any(fences and fences[0] < place < first for place in places[hopper.ClusterSync])
    after = any(
        place > last and isinstance(sync := top[place], hopper.ClusterSync) and not sync.relaxed
        for place in places[hopper.ClusterSync]
    )
    if not before:
        raise Refused(
            rule("cluster"),
            "other blocks of the cluster may use barriers before they are initialised: no meeting "
            "of the cluster stands after the fence of the barriers",
            remote[0],
        )
    if not after:
        raise Refused(
            rule("cluster"),
            "a block may end before other blocks of its cluster have sent what they send to it: "
            "no meeting of the cluster that publishes memory stands after the roles",
            remote[0],
        )


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


_SET_UP = (hopper.Role, hopper.InitBarriers, hopper.FenceBarrierInit, hopper.ClusterSync)


def _places(operations: list[Operation], kind: type[Operation]) -> list[int]:
    return [place for place, each in enumerate(operations) if isinstance(each, kind)]


__all__ = ["blocks_of", "check_cluster", "check_multicast"]
