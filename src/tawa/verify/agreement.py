"""Threads of a role, and blocks of a cluster, agree on what they do together.

A scalar is a number in each thread of a role. Threads that compute from the same numbers agree.
Threads that each read memory which may change between two reads need not, nor do lanes that combine
what they have in different orders, nor those that did not make an atomic themselves. Such a value
may decide nothing that threads do together: no loop or condition around it, no slot, phase or scale
of a product. What they read in shared memory agrees again: its stores and loads are ordered.

Differences spread from where they begin, through scalars, tiles of which several threads hold an
element, and control flow, until nothing changes: a finite set that only grows. A rule beside it:
what an atomic gave is one thread's, and reaches others through shared memory.

Each reader of a ring gives back what it gets, in all blocks that share its loads: the parts of all
are the box once, from one place. When they meet is a rule of the text (`static.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, StringAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from tawa.analysis.cluster import Neighbours
from tawa.analysis.memory import roots_of
from tawa.analysis.statements import CONTROL, is_volatile
from tawa.ir import hopper, line_of, tile
from tawa.ir.walk import all_of, decisive, passed_on
from tawa.layouts.convert import is_replicated
from tawa.verify.agents import SYNCHRONIZES
from tawa.verify.footprints import register_layout
from tawa.verify.forwarded import around, launch_of, written_arguments
from tawa.verify.rings import Buffer, Rings, label_of
from tawa.verify.rules import Refused, rule
from tawa.verify.static import blocks_of
from tawa.verify.terms import RANK
from tawa.verify.values import Values

_BY_ONE = (tile.Atomic, tile.CompareExchange, tile.AsmEffect, hopper.NextProgram)
_SYMMETRIC = frozenset(
    {"add", "mul", "and", "or", "xor", "eq", "ne", "min", "max", "min_nan", "max_nan"}
)
"""Functions that give two lanes the same, whichever of the two numbers comes first."""

_ALONE = frozenset(
    (
        *(*CONTROL, scf.YieldOp, scf.ConditionOp, tile.Yield, tile.Constant, tile.ProgramId),
        *(tile.NumPrograms, tile.DescExtent, tile.Arange, tile.Splat, tile.ExpandDims),
        *(tile.Broadcast, tile.Reshape, tile.Transpose, tile.Split, tile.Join, tile.Elementwise),
        *(tile.Cast, tile.Bitcast, tile.PtrAdd, tile.Asm, tile.AsmEffect, tile.Load, tile.Store),
        *(tile.Atomic, tile.CompareExchange, tile.Assume, tile.Print, tile.Assert),
        *(hopper.Columns, hopper.Uninitialized, hopper.Pin, hopper.BlockId, hopper.NumBlocks),
        *(hopper.GridExtent, hopper.ClusterRank, hopper.Counter),
    )
)
"""What a thread does without the others: it may stand where they do not come."""

_TOGETHER = (
    *(hopper.Wait, hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive, hopper.Slot),
    *(hopper.Wgmma, hopper.SharedTranspose),
)


def check_threads(kernel: tile.Kernel) -> None:
    """Raise Refused where threads that may differ in a value do together what it decides."""
    _check_owners(kernel)
    written = written_arguments(kernel)
    for role in all_of(kernel, hopper.Role):
        if any(_begins(each, written) for each in all_of(role, tile.Load, tile.Reduce, *_BY_ONE)):
            _Agreement(role, written).check()


def _begins(operation: Operation, written: frozenset[int] | None) -> bool:
    """Tell whether threads that agree in all operands may differ in what they get."""
    match operation:
        case tile.Load():
            roots = roots_of(operation.pointer)
            if is_volatile(operation) or roots is None or written is None:
                return True
            return bool(roots & written)
        case tile.Reduce():
            return _crosses_lanes(operation) and not _is_symmetric(operation)
        case _:
            return isinstance(operation, _BY_ONE)


class _Agreement:
    """The values of a role that may differ among its threads, and where each difference begins."""

    def __init__(self, role: hopper.Role, written: frozenset[int] | None) -> None:
        self._role = role
        self._written = written
        self._apart: dict[SSAValue, Operation] = {}

    def check(self) -> None:
        before = -1
        while len(self._apart) != before:
            before = len(self._apart)
            for operation in _all_threads(self._role):
                self._spread(operation)
        for operation in _all_threads(self._role):
            if isinstance(operation, CONTROL):
                origin = self._origin(decisive(operation))
                inside = (each for each in _all_threads(operation) if type(each) not in _ALONE)
                if origin is not None and (first := next(inside, None)) is not None:
                    self._refuse(f"whether threads come to {_told(first)}", origin, operation)
            elif isinstance(operation, _TOGETHER):
                scalars = [e for e in operation.operands if not isinstance(e.type, TensorType)]
                if (origin := self._origin(scalars)) is not None:
                    self._refuse(
                        f"with which numbers threads do {_told(operation)}", origin, operation
                    )

    def _refuse(self, what: str, origin: Operation, operation: Operation) -> None:
        raise Refused(
            rule("threads agree"),
            f"in {self._role.label.data}, {what} is decided by {_told(origin)}, in which its "
            f"threads may differ: {_why(origin)}",
            operation,
        )

    def _origin(self, values: Iterable[SSAValue]) -> Operation | None:
        return next((self._apart[value] for value in values if value in self._apart), None)

    def _spread(self, operation: Operation) -> None:
        """Carry differences to what an operation gives, and to what is carried inside of it."""
        if isinstance(operation, hopper.OneThread):
            return  # one thread agrees with itself, and gives no values
        if not isinstance(operation, CONTROL):
            begins = bool(operation.results) and _begins(operation, self._written)
            for result in operation.results:
                if begins:
                    self._put(result, operation)
                self._mark(result, *operation.operands)
            return
        if isinstance(operation, scf.ForOp):
            self._mark(operation.body.block.args[0], operation.lb, operation.step)
        for argument in (each for r in operation.regions for b in r.blocks for each in b.args):
            self._mark(argument, *passed_on(argument))
        for result in operation.results:
            self._mark(result, *passed_on(result), *decisive(operation))

    def _mark(self, value: SSAValue, *sources: SSAValue) -> None:
        """Note that a value may differ where one of its sources may."""
        if (origin := self._origin(sources)) is not None:
            self._put(value, origin)

    def _put(self, value: SSAValue, origin: Operation) -> None:
        layout = register_layout(value)
        threads = 32 * self._role.warps.data
        if layout is None or threads * layout.register_count != prod(layout.shape):
            self._apart.setdefault(value, origin)


def _all_threads(around: Operation) -> list[Operation]:
    """Return what stands in an operation, but for what one thread executes."""
    found: list[Operation] = []
    for region in around.regions:
        for block in region.blocks:
            for operation in block.ops:
                found.append(operation)
                if not isinstance(operation, hopper.OneThread):
                    found += _all_threads(operation)
    return found


def _check_owners(kernel: tile.Kernel) -> None:
    """Only who has what an atomic gave uses it: others read it from shared memory."""
    for role in all_of(kernel, hopper.Role):
        for operation in _all_threads(role):
            if not isinstance(operation, tile.Atomic | tile.CompareExchange | hopper.NextProgram):
                continue
            users = [use.operation for use in operation.result.uses]
            layout = register_layout(operation.result)
            owned = layout is not None and (
                not is_replicated(layout, role.warps.data)
                or all(isinstance(u, hopper.SharedStore) and bool(u.owners) for u in users)
            )
            if users and not owned:
                raise Refused(
                    rule("one owner"),
                    f"all threads of {role.label.data} use what {operation.name} gave to one of "
                    "them",
                    operation,
                )


def _told(operation: Operation) -> str:
    line = line_of(operation)
    return f"{operation.name} on line {line}" if line else operation.name


def _why(origin: Operation) -> str:
    if isinstance(origin, tile.Reduce):
        return "lanes combine in different orders"
    if isinstance(origin, _BY_ONE):
        return "it is not done by one of them and told to the others"
    return "each reads for itself what may change meanwhile"


def _crosses_lanes(reduce: tile.Reduce) -> bool:
    layout, axis = register_layout(reduce.inputs[0]), reduce.axis.data
    if layout is None:
        return True
    return any(lanes.step[axis] and lanes.extent > 1 for lanes in layout.lanes)


def _is_symmetric(reduce: tile.Reduce) -> bool:
    first = reduce.body.block.first_op
    if not isinstance(first, tile.Elementwise) or not isinstance(first.next_op, tile.Yield):
        return False
    return first.function.data in _SYMMETRIC


# --- blocks of a cluster --------------------------------------------------------------------------


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
    arrivals = [each for each in all_of(role, hopper.Arrive) if each.barriers is freed]
    found = {blocks_of(each) or 1 for each in arrivals}
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
    remote = [each for each in all_of(kernel, hopper.Arrive, hopper.TmaLoad) if blocks_of(each)]
    for each in remote:
        if (blocks := blocks_of(each)) != values.cluster:
            what = f"{each.name} goes to {blocks} blocks of a cluster of {values.cluster}"
            raise Refused(rule("multicast"), what, each)
    if remote:
        alike = set[Operation]()
        for role in all_of(kernel, hopper.Role):
            for each in all_of(role, *SYNCHRONIZES):
                _check_alike(each, values, alike)


def _check_alike(operation: Operation, values: Values, alike: set[Operation]) -> None:
    """Raise Refused where an operation stands under what the block's rank decides; `alike` is what
    was found to be decided alike."""
    for _, parent in around(operation):
        if parent in alike:
            return
        told = [v for v in decisive(parent) if RANK in values.terms.support(values.of(v))]
        if told and not _differing(values.kernel, values.cluster).isdisjoint(told):
            raise Refused(
                rule("multicast"),
                f"whether a block of a cluster comes to {operation.name} depends on its rank, and "
                "blocks that wait for one another are to come to the same",
                operation,
            )
        alike.add(parent)


def cluster_of(kernel: tile.Kernel) -> int:
    """Return how many blocks of a launch make a cluster."""
    return launch_of(kernel).get("cluster", 1)
