"""The last touches: who arrives and how often, elected threads, dead code, launch attributes.

Purpose: settle everything that depends on the whole lowered program.
Before -> after: ``arrivals = 1`` -> counts from the roles that fill and free; a role that only
copies becomes one `hopper.one_thread`; scalar code shared and dead code dropped; ``launch`` set.
Requires: all else lowered. Ensures: the kernel is complete hopper IR.
Declines when: never. Too few registers or too much shared memory raises.

Whether the warps of a warpgroup meet between the wait for a slot and its release.

The threads of a role pass a wait one by one. One of them may free the slot for its warpgroup only
when none can still be before the wait, two phases behind: a wgmma or a barrier in between, on every
path, sees to that.

Kernels that begin while the one before them in the stream ends: where each role waits for it.

Purpose: what touches no global memory is done meanwhile.
Before -> after, in a kernel with Triton's option `launch_pdl`:
    hopper.one_thread {                 hopper.one_thread {
      %m = ...                            %m = ...
                                ->        hopper.grid_wait
                                          hopper.launch_dependents
      scf.for %k { .. tma_load .. }       scf.for %k { .. tma_load .. }
Requires: roles complete, threads elected. Ensures: in every role a wait stands above all that reads
or writes global memory; the first role lets the next kernel begin.
Declines when: never.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import (
    BoolAttr,
    DictionaryAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    UnitAttr,
)
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.statements import has_effect
from tawa.errors import OverBudget
from tawa.ir import hopper, tile
from tawa.ir.types import ViewType, is_tensor, layout_of
from tawa.ir.walk import (
    all_of,
    is_terminator,
    marked_pure,
    move_before,
    operations_of,
    walk,
)
from tawa.passes.dead import sweep
from tawa.passes.lower.context import Lowering, Ring
from tawa.passes.lower.emit import Emitter, erase, new_region
from tawa.passes.lower.puts import arrivals_of_put
from tawa.passes.lower.shared import place_buffers
from tawa.passes.lower.views import root_slot, via_of, view_kind

_WARPGROUP = 4


# --- arrivals -----------------------------------------------------------------------------------


def count_arrivals(lowering: Lowering) -> None:
    """Settle who frees each slot, and give both barrier arrays of every ring their counts."""
    for ring in {id(ring): ring for ring in lowering.rings.values()}.values():
        filled = sum(arrivals_of_put(role, ring) for role in lowering.roles)
        # A slot belongs to one instance of a role: it alone frees it.
        counts = {
            lowering.plan.role_of(role.label.data): _settle_release(role, ring)
            for role in lowering.roles
        }
        freed = sum(counts.values())
        for role in lowering.roles:
            _fence_copies(role, ring)
        ring.filled.attributes["arrivals"] = IntAttr(max(1, filled))
        ring.freed.attributes["arrivals"] = IntAttr(max(1, freed))


def _settle_release(role: hopper.Role, ring: Ring) -> int:
    """Choose the threads of `role` that free slots of `ring`; return their number.

    wgmma alone reads it: one thread of each warpgroup, after its wait. Threads read it: one of each
    warp (the others may still be reading), and where TMA fills the slot anew each thread fences the
    proxy before, after its last read. One of each warp, too, where no wgmma has brought the
    warpgroup together since the wait for the slot: the elected warp must not let the phase pass
    that another still waits for.
    """
    arrives = [op for op in all_of(role, hopper.Arrive) if op.barriers is ring.freed.result]
    if not arrives:
        return 0
    groups = role.warps.data // _WARPGROUP
    by_threads = _read_by_threads(role, ring)
    if not by_threads and role.warps.data % _WARPGROUP == 0 and is_together(role, ring):
        return groups
    for arrive in arrives:
        arrive.attributes["by"] = StringAttr("warp")
        if by_threads and _is_filled_by(ring, hopper.TmaLoad):
            Emitter.before(arrive).put(hopper.ProxyFence())
    return role.warps.data


def _is_filled_by(ring: Ring, kind: type[Operation]) -> bool:
    """Tell whether operations of a kind tell consumers that a slot of `ring` is filled."""
    return any(isinstance(use.operation, kind) for use in ring.filled.result.uses)


def _read_by_threads(role: hopper.Role, ring: Ring) -> bool:
    """Tell whether threads of `role` read slots of `ring`, rather than wgmma alone."""
    buffers = {buffer.result for buffer in ring.buffers}
    others = (hopper.TransposeView, hopper.SliceView, hopper.ReshapeView, hopper.CopyAsync)
    return any(
        root_slot(operand).buffer in buffers
        for operation in walk(role)
        if type(operation) not in (hopper.Wgmma, *others)
        for operand in operation.operands
        if type(operand.type) is ViewType
    )


def _fence_copies(role: hopper.Role, ring: Ring) -> None:
    """Fence the proxy after each wait for what cp.async has brought, where wgmma or TMA reads it.

    Copies write through the generic proxy, and who started them does not wait for them: the threads
    that have seen the barrier order them before what they start (PTX ISA, "Causality order": the
    fence stands on the way from one access to the other).
    """
    if not _is_filled_by(ring, hopper.CopyAsyncArrive):
        return
    buffers = {buffer.result for buffer in ring.buffers}
    read = any(
        root_slot(operand).buffer in buffers
        for operation in walk(role)
        if isinstance(operation, (hopper.Wgmma, hopper.TmaStore))
        for operand in operation.operands
        if isinstance(operand.type, ViewType)
    )
    for wait in [use.operation for use in ring.filled.result.uses] if read else ():
        if isinstance(wait, hopper.Wait) and role.is_ancestor(wait):
            Emitter.after(wait).put(hopper.ProxyFence())


# --- elected threads ----------------------------------------------------------------------------


def elect_threads(lowering: Lowering) -> None:
    """Let one thread run the roles that only start copies."""
    for role in lowering.single:
        for inner in all_of(role, hopper.OneThread):
            _inline(inner)
        body = role.body.block
        moved = [op for op in body.ops if not isinstance(op, hopper.SetRegisters)]
        for operation in moved:
            operation.detach()
        Emitter.at_end(body).put(hopper.OneThread.make(regions=[new_region(*moved)]))


def _inline(one: hopper.OneThread) -> None:
    for operation in list(one.body.block.ops):
        move_before(operation, one)
    erase(one)


# --- how registers and shared memory meet ---------------------------------------------------------


def settle_moves(role: hopper.Role) -> None:
    """Choose the instruction of each move between registers and shared memory."""
    for operation in all_of(role, hopper.SharedLoad, hopper.SharedStore):
        match operation:
            case hopper.SharedLoad():
                value, matrix = operation.result, "ldmatrix"
            case hopper.SharedStore():
                value, matrix = operation.value, "stmatrix"
        if is_tensor(value):
            placed = view_kind(operation.view).within.data
            via = via_of(layout_of(value.type), placed, matrix)
            operation.attributes["via"] = StringAttr(via)


# --- tidying ------------------------------------------------------------------------------------


def tidy(role: hopper.Role) -> None:
    """Drop dead operations, share equal pure ones, and name constants once a role."""
    drop_unneeded(role)
    _hoist_constants(role)
    _share(role.body.block, {})


def drop_unneeded(role: hopper.Role) -> None:
    """Drop dead operations."""
    sweep(role.body.block, _is_needed)


def _hoist_constants(role: hopper.Role) -> None:
    """Move scalar constants to the start of the role, where equal ones meet."""
    constants = [op for op in all_of(role, tile.Constant) if not is_tensor(op.result)]
    statements = (op for op in role.body.block.ops if not isinstance(op, hopper.SetRegisters))
    first = next(statements, None)
    for constant in constants:
        assert first is not None, "a constant stands in a statement"
        if constant is first:
            continue
        constant.detach()
        Emitter.before(first).put(constant)


def _is_needed(operation: Operation) -> bool:
    """Tell whether an operation must stay though nothing uses its results."""
    return has_effect(operation) and not isinstance(
        operation, (hopper.SharedLoad, hopper.SharedGather)
    )


def _share(block: Block, known: dict[object, list[SSAValue]]) -> None:
    """Replace a pure scalar operation by an equal one that dominates it."""
    scope = dict(known)
    for operation in operations_of(block):
        if _may_be_shared(operation):
            key = (
                type(operation),
                tuple([id(operand) for operand in operation.operands]),
                frozenset(operation.attributes.items()),
                tuple(operation.result_types),
            )
            if (equal := scope.get(key)) is not None:
                for old, new in zip(operation.results, equal):
                    old.replace_all_uses_with(new)
                erase(operation)
                continue
            scope[key] = list(operation.results)
        for region in operation.regions:
            for inner in region.blocks:
                _share(inner, scope)


def _may_be_shared(operation: Operation) -> bool:
    """Tell whether an operation is pure and scalar: accumulators are written in place, so that a
    tensor constant is never shared.
    """
    if operation.regions or not operation.results or not marked_pure(operation):
        return False
    if type(operation) is hopper.TensorMap:
        return False
    return not any(map(is_tensor, operation.results))


# --- set-up and launch --------------------------------------------------------------------------


def initialise_barriers(lowering: Lowering) -> None:
    """Initialise all mbarriers before the roles, visibly to all threads and to TMA; fetch maps."""
    block = lowering.kernel.body.block
    first = lowering.roles[0]
    arrays = [op for op in block.ops if isinstance(op, hopper.Barriers)]
    emitter = Emitter.before(first)
    for op in list(block.ops):
        if isinstance(op, hopper.TensorMap):
            emitter.put(hopper.PrefetchMap.make(op.result))
    for barriers in arrays:
        emitter.put(hopper.InitBarriers.make(barriers.result))
    if arrays:
        emitter.put(hopper.FenceBarrierInit())
    if lowering.plan.cluster > 1:
        # No block may signal or copy into one that has not started, or has already gone.
        emitter.put(hopper.ClusterSync.make(relaxed=UnitAttr()))
        Emitter.at_end(block).put(hopper.ClusterSync())
    elif arrays:
        emitter.put(hopper.BlockSync())


def set_launch(lowering: Lowering) -> None:
    """Place shared memory and record what the launcher needs. Raises `OverBudget`."""
    shared = place_buffers(lowering)
    threads = 32 * sum(role.warps.data for role in lowering.roles)
    if threads > 1024:
        raise OverBudget(
            f"{lowering.kernel.sym_name.data}: {threads} threads.",
            why="a block has at most 1,024.",
            remedy="use fewer warps or consumers.",
        )
    if lowering.next_barrier > lowering.target.named_barriers:
        raise OverBudget(
            f"{lowering.kernel.sym_name.data}: {lowering.next_barrier} named barriers.",
            why=f"a block has {lowering.target.named_barriers}, number 0 is the block's own.",
            remedy="use fewer consumer warpgroups.",
        )
    lowering.kernel.attributes["launch"] = DictionaryAttr(
        {
            "threads": IntAttr(threads),
            "registers": IntAttr(lowering.target.registers_at_launch(threads)),
            "shared": IntAttr(shared),
            "cluster": IntAttr(lowering.plan.cluster),
            "persistent": BoolAttr.from_bool(lowering.plan.persistent),
            **({"blocks": IntAttr(lowering.plan.blocks)} if lowering.plan.blocks > 1 else {}),
            **({"early": IntAttr(1)} if starts_early(lowering.kernel) else {}),
        }
    )


# --- whether the warps of a warpgroup meet --------------------------------------------------------


def is_together(role: hopper.Role, ring: Ring) -> bool:
    """Tell whether warpgroups meet between each wait for a slot of `ring` and its release."""
    waits = [op for op in all_of(role, hopper.Wait) if op.barriers is ring.filled.result]
    return all(_meets_from(wait.next_op, wait, ring, set()) for wait in waits)


def _meets_from(
    operation: Operation | None, last: Operation, ring: Ring, seen: set[Operation]
) -> bool:
    """Tell whether all paths from `operation` meet before they release; `last` stood before it."""
    while operation is not None and operation not in seen:
        seen.add(operation)
        last = operation
        match operation:
            case hopper.Wgmma() | hopper.NamedBarrier():
                return True
            case hopper.Arrive() if operation.barriers is ring.freed.result:
                return False
            case scf.ForOp() | scf.IfOp() | scf.WhileOp() if _releases(operation, ring):
                firsts = [r.block.first_op for r in operation.regions if r.blocks]
                if not all(_meets_from(first, operation, ring, seen) for first in firsts if first):
                    return False
                if isinstance(operation, scf.IfOp) and len(firsts) == len(operation.regions):
                    return True  # both paths go on to what follows and were judged by then
            case _:
                pass
        operation = operation.next_op
    if operation is not None:
        return True  # a path walked before
    match last.parent_op():
        case scf.IfOp() as branch:
            return _meets_from(branch.next_op, branch, ring, seen)
        case scf.ForOp() as loop:
            again = _meets_from(loop.body.block.first_op, loop, ring, seen)
            return again and _meets_from(loop.next_op, loop, ring, seen)
        case hopper.Role() | None:
            return True
        case _:
            return False


def _releases(operation: Operation, ring: Ring) -> bool:
    return any(inner.barriers is ring.freed.result for inner in all_of(operation, hopper.Arrive))


# --- kernels that begin early ---------------------------------------------------------------------


def starts_early(kernel: tile.Kernel) -> bool:
    """Tell whether a kernel begins while those before it in the stream end: Triton's option."""
    hint = kernel.options.data.get("launch_pdl")
    return isinstance(hint, IntegerAttr) and bool(hint.value.data)


def wait_for_kernels(lowering: Lowering) -> None:
    """Let each role of an early kernel wait before its first effect."""
    if not starts_early(lowering.kernel):
        return
    for index, role in enumerate(lowering.roles):
        emitter = _above_effects(role.body.block)
        emitter.put(hopper.GridWait())
        if index == 0:
            emitter.put(hopper.LaunchDependents())


def _above_effects(block: Block) -> Emitter:
    """Return a place above all that is not pure in a role, or in the program of its one thread."""
    found = [
        op
        for op in block.ops
        if not (marked_pure(op) or is_terminator(op) or isinstance(op, hopper.SetRegisters))
    ]
    match found:
        case [hopper.OneThread() as one]:
            return _above_effects(one.body.block)
        case [first, *_]:
            return Emitter.before(first)
        case _:
            return Emitter.at_end(block)
