"""Blocks of a cluster share the loads they have in common.

Purpose: each block loads its part of a tile that all of the cluster need, and sends it to all.
Before -> after, in a cluster of 2:
    hopper.tma_load %b_map[%n, %k], %b, ..      hopper.tma_load .. {multicast = 2}, half the box
    hopper.arrive %freed[%slot]             ->  hopper.arrive %freed[%slot] {cluster = 2}
    %freed {arrivals = 2}                       %freed {arrivals = 4}
Requires: arrivals counted, all blocks of a cluster in step (the planner's licence). Ensures: a slot
is refilled only when every block has freed it, since a block writes its neighbours' slots too.
Declines when, by ring: threads read its slots (their release would need a fence of the cluster,
which costs more than the load saves); by load: its place depends on the block, or its rows do not
split. Raises `PlanError` when no load is left to share.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from tawa.analysis.cluster import Neighbours
from tawa.errors import PlanError
from tawa.ir import hopper
from tawa.passes.lower.context import Lowering, Ring
from tawa.passes.lower.emit import ask_launch, erase
from tawa.passes.lower.maps import tensor_map

# What TMA's destinations are aligned to. A part need not start where the swizzle's pattern does:
# that follows the address (CUDA programming guide, "Tensor memory access", swizzle modes).
_DESTINATION = 128


def share_loads(lowering: Lowering) -> None:
    """Multicast the loads whose place is the same in all blocks of the cluster."""
    kernel, blocks = lowering.kernel, lowering.plan.cluster
    if blocks == 1:
        return
    neighbours = _neighbours(lowering, blocks)
    differing = neighbours.differing
    shared = [_share_ring(lowering, ring, differing) for ring in lowering.rings.values()]
    if neighbours.assumed:
        ask_launch(kernel, "cluster_guards", neighbours.conditions(kernel))
    if not any(shared):
        raise PlanError(
            f"cluster={blocks}: no load is the same in all blocks of a cluster.",
            why="; ".join(f"{note.feature}: {note.reason}" for note in lowering.notes),
            remedy="leave cluster unset.",
        )


def _neighbours(lowering: Lowering, blocks: int) -> Neighbours:
    """Return what differs between neighbours.

    Only if nothing were shared otherwise are sizes assumed to be even; the launcher checks them.
    """
    strict = Neighbours(lowering.kernel, blocks)
    if any(_common(ring, strict.differing) for ring in lowering.rings.values()):
        return strict
    return Neighbours(lowering.kernel, blocks, assume=True)


def _common(ring: Ring, differing: set[SSAValue]) -> list[hopper.TmaLoad]:
    """Return the loads of a ring whose place is the same in all blocks of a cluster."""
    loads = [use.operation for use in ring.filled.result.uses]
    found = [op for op in loads if isinstance(op, hopper.TmaLoad)]
    return [op for op in found if not any(offset in differing for offset in op.offsets)]


def _share_ring(lowering: Lowering, ring: Ring, differing: set[SSAValue]) -> bool:
    """Share the loads of one ring; tell whether there were any."""
    blocks = lowering.plan.cluster
    arrives = [use.operation for use in ring.freed.result.uses]
    arrives = [op for op in arrives if isinstance(op, hopper.Arrive)]
    feature = f"multicast of {ring.label}"
    if any(op.by.data != "warpgroup" for op in arrives):
        lowering.note(feature, "threads read its slots")
        return False
    chosen = _common(ring, differing)
    if not chosen:
        lowering.note(feature, "its loads differ between the blocks of a cluster")
        return False
    chosen = [op for op in chosen if _splits(op, blocks)]
    if not chosen:
        reason = f"its rows do not split into {blocks} parts of a multiple of {_DESTINATION} bytes"
        lowering.note(feature, reason)
        return False
    for load in chosen:
        _multicast(lowering, load, blocks)
    for arrive in arrives:
        arrive.attributes["cluster"] = IntAttr(blocks)
    ring.freed.attributes["arrivals"] = IntAttr(ring.freed.arrivals.data * blocks)
    return True


def _rows(load: hopper.TmaLoad) -> int:
    """Return the rows a load can be split by; 0 when its leading dimensions are in the way."""
    kind = load.view.type
    if len(kind.shape) < 2 or any(extent != 1 for extent in kind.shape[:-2]):
        return 0
    return kind.shape[-2]


def _splits(load: hopper.TmaLoad, blocks: int) -> bool:
    """Tell whether every block can load the same number of rows to an aligned place."""
    kind, rows = load.view.type, _rows(load)
    layout = kind.within.data
    line = layout.panel * layout.bits // 8
    return rows > 0 and rows % blocks == 0 and rows // blocks * line % _DESTINATION == 0


def _multicast(lowering: Lowering, load: hopper.TmaLoad, blocks: int) -> None:
    kind, old = load.view.type, load.map.owner
    assert isinstance(old, hopper.TensorMap)
    layout = kind.within.data
    new = tensor_map(lowering, old.desc, layout, rows=_rows(load) // blocks)
    load.operands[0] = new.result
    load.attributes["multicast"] = IntAttr(blocks)
    if not old.result.first_use:
        erase(old)
