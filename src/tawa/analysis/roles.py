"""The partition: which loads the producer can take, what they share, and why others must stay.

A walk back from each asynchronous-capable load finds what it needs: iteration statements (indices,
bounds, conditions), which each role computes for itself, never tile statements. A load leaves the
program order of the consumer, so it must read memory that nothing earlier, loop-carried order
included, may write; see `tawa.analysis.memory`. Tawa (arXiv:2510.14719) section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Attribute, Operation

from tawa.analysis.hardware import Run, block_objection, copy_run, is_host_made
from tawa.analysis.liveness import needed_by
from tawa.analysis.memory import (
    Meeting,
    meetings,
    roots_of,
    stored_apart,
    stored_in_loops,
    synchronizers,
    writers,
)
from tawa.analysis.statements import (
    ATOMICS,
    CONTROL,
    READS,
    VIEWS,
    WRITES,
    accessed,
    enclosing_loops,
    is_volatile,
    name_of,
    readers,
)
from tawa.ir import tile
from tawa.ir.inline_asm import counts_threads
from tawa.ir.types import shape_of
from tawa.ir.walk import home_of, is_terminator, reach, walk


@dataclass(frozen=True, slots=True)
class Payload:
    """Loads that fill one slot together: of one block, for the same products."""

    loads: tuple[Operation, ...]

    @property
    def types(self) -> tuple[Attribute, ...]:
        """Types of the tiles."""
        return tuple(load.results[0].type for load in self.loads)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the loads as in a plan."""
        return tuple(name_of(load) for load in self.loads)

    @property
    def by_threads(self) -> bool:
        """Whether the producer's threads copy the tiles (cp.async); else TMA does."""
        return isinstance(self.loads[0], tile.Load)


@dataclass(frozen=True, slots=True)
class Partition:
    """What the producer can do.

    `payloads` in program order; `sent` the scalars it finds out once and sends (an atomic counter);
    `guards` pairs of argument indices whose memory must not overlap at launch (loads run ahead of
    stores, and asynchronous stores past one another); `declined` the loads
    that stay with the consumer: what was not done, and the reason.
    """

    payloads: tuple[Payload, ...] = ()
    sent: tuple[Operation, ...] = ()
    guards: frozenset[tuple[int, int]] = frozenset()
    declined: tuple[tuple[str, str], ...] = ()

    @property
    def loads(self) -> list[Operation]:
        """The loads of all payloads, in order."""
        return [load for payload in self.payloads for load in payload.loads]


@dataclass(slots=True)
class _Facts:
    """What is computed once for all loads of a kernel."""

    writers: list[Operation]
    accesses: list[Operation]
    synchronizes: bool
    order: dict[Operation, int]


@dataclass(slots=True)
class _Verdict:
    """What is found out about one load: a reason to stay, or what its leaving needs."""

    reason: str = ""
    guards: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    sent: set[Operation] = field(default_factory=set[Operation])
    pinned_in_place: bool = False


def partition(kernel: tile.Kernel) -> Partition:
    """Find the loads that can be the producer's, grouped into payloads."""
    order = {operation: index for index, operation in enumerate(walk(kernel))}
    accesses: list[Operation] = [op for op in order if isinstance(op, (*READS, *WRITES))]
    facts = _Facts(writers(kernel), accesses, bool(synchronizers(kernel)), order)
    taken: dict[Operation, _Verdict] = {}
    declined: list[tuple[str, str]] = []
    together = _runs_together(order)
    for load in (op for op in accesses if isinstance(op, READS) and _is_tile(op)):
        verdict = _Verdict(reason=together) if together else _judge(load, facts)
        if verdict.reason:
            declined.append((f"asynchronous load {name_of(load)}", verdict.reason))
        else:
            taken[load] = verdict
    _settle_atomics(taken, declined, facts)
    guards = frozenset(pair for verdict in taken.values() for pair in verdict.guards)
    if taken:
        known = guards | {(b, a) for a, b in guards}
        guards |= (stored_apart(facts.writers) | stored_in_loops(kernel)) - known
    sent = {operation for verdict in taken.values() for operation in verdict.sent}
    return Partition(
        tuple(_group(taken, order)),
        tuple(sorted(sent, key=order.__getitem__)),
        guards,
        tuple(declined),
    )


def _runs_together(operations: Iterable[Operation]) -> str:
    """Return why all threads of the block must run the kernel, if they must."""
    for operation in operations:
        match operation:
            case tile.Asm() | tile.AsmEffect() if counts_threads(operation.text.data):
                return "inline PTX waits for all threads of the block, asks which it is, or ends"
            case _:
                pass
    return ""


def _is_tile(operation: Operation) -> bool:
    return bool(_shape(operation))


def _shape(operation: Operation) -> tuple[int, ...]:
    return shape_of(operation.results[0].type)


def _settle_atomics(
    taken: dict[Operation, _Verdict], declined: list[tuple[str, str]], facts: _Facts
) -> None:
    """Atomics on one counter stay in one role: all are sent, or none."""
    sent = {operation for verdict in taken.values() for operation in verdict.sent}
    for load, verdict in list(taken.items()):
        for atomic in verdict.sent:
            stray = [op for op in facts.accesses if _share(op, atomic) and op not in sent]
            if load in taken and stray:
                reason = (
                    f"its address depends on the atomic {name_of(atomic)}, "
                    f"whose memory {name_of(stray[0])} uses as well"
                )
                declined.append((f"asynchronous load {name_of(load)}", reason))
                del taken[load]


def _share(a: Operation, b: Operation) -> bool:
    """Tell whether two accesses may go through one argument."""
    first, second = roots_of(accessed(a)), roots_of(accessed(b))
    return first is None or second is None or bool(first & second)


# --- one load -----------------------------------------------------------------------------------


def _judge(load: Operation, facts: _Facts) -> _Verdict:
    verdict = _Verdict()
    verdict.reason = (
        _judge_mechanism(load)
        or _judge_memory(load, facts, verdict)
        or _judge_uses(load)
        or _judge_needs(load, facts, verdict)
    )
    return verdict


def _judge_mechanism(load: Operation) -> str:
    if isinstance(load, tile.Load):
        run = _judge_copy(load)
        return "" if isinstance(run, Run) else f"no descriptor describes its pointers, and {run}"
    if not isinstance(load, tile.DescLoad):
        return f"{load.name} is not a load of a tile"
    if not is_host_made(load.desc):
        return "its descriptor is made from values of the running program, not of the arguments"
    if reason := block_objection(load.desc.type):
        return f"TMA does not take it: {reason}"
    return ""


def _judge_copy(load: tile.Load) -> Run | str:
    """Return how the producer's threads copy a tile, or why they do not."""
    if len(_shape(load)) != 2:
        return "its tile is not a matrix"
    if not fed_dots(load):
        return "its tile goes into no product"
    return copy_run(load)


def _judge_memory(load: Operation, facts: _Facts, verdict: _Verdict) -> str:
    meeting = meetings(load, facts.writers)
    if meeting.unknown:
        return f"it may read what {name_of(meeting.writers[0])} stores: an address is not known"
    verdict.guards |= meeting.guards
    verdict.pinned_in_place = bool(meeting.writers)
    if meeting.writers and facts.synchronizes:
        return "it reads memory the kernel writes, and atomics order it after other programs"
    for writer in meeting.writers:
        if _may_precede(writer, load, facts):
            return f"it may read what {name_of(writer)} stores"
        if _is_overtaken(load, writer):
            return f"its first use stands after {name_of(writer)}, which may overwrite it"
    return ""


def _may_precede(writer: Operation, load: Operation, facts: _Facts) -> bool:
    """Tell whether a writer may run before a load, in program order with loops unrolled."""
    around = enclosing_loops(writer)
    if any(loop in around for loop in enclosing_loops(load)):
        return True
    return facts.order[writer] < facts.order[load]


def _is_overtaken(load: Operation, writer: Operation) -> bool:
    """Tell whether a later writer stands before the point where the consumer has the tile."""
    block = home_of(load)
    place = block.find_ancestor_op_in_block(writer)
    first = first_use(load)
    return place is not None and first is not place and place.is_before_in_block(first)


def _judge_uses(load: Operation) -> str:
    for user in tile_uses(load):
        if is_terminator(user):
            return "its tile is handed on to another iteration or out of a branch"
    return ""


def _judge_needs(load: Operation, facts: _Facts, verdict: _Verdict) -> str:
    for needed in sorted(needed_by(load), key=facts.order.__getitem__):
        if needed is load:
            continue
        match needed:
            case _ if isinstance(needed, ATOMICS):
                reason = _judge_sent(needed)
                verdict.sent.add(needed)
            case tile.Load() if not _is_tile(needed):
                reason = _judge_scalar_load(needed, facts, verdict)
            case tile.Load() if isinstance(load, tile.Load) and len(_shape(needed)) == 1:
                reason = _judge_scalar_load(needed, facts, verdict)  # a vector of indices
            case tile.Reduce() | tile.Scan() if _combines(needed):
                # Threads of the producer would meet to compute it, and the proof could not tell
                # that both roles find the same.
                reason = f"whether or where it loads depends on the reduction {name_of(needed)}"
            case tile.Gather() | tile.Histogram():
                reason = f"its address depends on {name_of(needed)}, made by all threads"
            case _ if isinstance(needed, (*READS, tile.Dot)):
                reason = f"its address depends on the tile {name_of(needed)}"
            case _:
                reason = ""
        if reason:
            return reason
    return ""


def _combines(reduction: tile.Reduce | tile.Scan) -> bool:
    """Tell whether there is more than one element to combine."""
    return any(prod(shape_of(value.type)) > 1 for value in reduction.inputs)


def _judge_scalar_load(load: Operation, facts: _Facts, verdict: _Verdict) -> str:
    """A scalar, or an index, both roles read for themselves must be the same each time."""
    if is_volatile(load):
        return f"its address depends on the volatile load {name_of(load)}"
    meeting: Meeting = meetings(load, facts.writers)
    if meeting.writers:
        writer = name_of(meeting.writers[0])
        return f"its address depends on {name_of(load)}, which {writer} may change"
    verdict.guards |= meeting.guards
    return ""


def _judge_sent(atomic: Operation) -> str:
    """An atomic is done once, by the producer, ahead of what the consumer does before it."""
    assert isinstance(atomic, ATOMICS), "only atomics are sent"
    if atomic.order.data != "relaxed":
        return (
            f"its address depends on the atomic {name_of(atomic)} of order {atomic.order.data}, "
            'which may not overtake earlier stores; sem="relaxed" would allow it'
        )
    if _is_tile(atomic):
        return f"its address depends on the tile {name_of(atomic)}"
    return ""


# --- uses of a tile -----------------------------------------------------------------------------


def tile_uses(load: Operation) -> list[Operation]:
    """Return the statements that read a loaded tile, through views of it too."""
    return [user for user in readers(load.results[0]) if not isinstance(user, VIEWS)]


def places(load: Operation) -> list[Operation]:
    """Return the statements of the load's own block in which the tile is named, in order."""
    block = home_of(load)
    found = set(map(block.find_ancestor_op_in_block, readers(load.results[0])))
    return sorted(filter(None, found), key=block.get_operation_index)


def first_use(load: Operation) -> Operation:
    """Return the first statement of the load's block that names the tile; the load if none does."""
    return next(iter(places(load)), load)


def fed_dots(load: Operation) -> set[Operation]:
    """Return the products the tile goes into, itself or after arithmetic, not through a product."""

    def computed(operation: Operation) -> list[Operation]:
        if isinstance(operation, tile.Dot):
            return []
        users = [use.operation for result in operation.results for use in result.uses]
        return [u for u in users if not (is_terminator(u) or isinstance(u, CONTROL))]

    return {op for op in reach([load], computed) if isinstance(op, tile.Dot)}


# --- payloads -----------------------------------------------------------------------------------


def _group(taken: dict[Operation, _Verdict], order: dict[Operation, int]) -> Iterator[Payload]:
    """Put loads of one block that feed a common product, or a common statement, together."""
    groups: list[list[Operation]] = []
    for load in sorted(taken, key=order.__getitem__):
        fitting = [group for group in groups if _belongs(load, group, taken)]
        for group in fitting:
            groups.remove(group)
        merged = [member for group in fitting for member in group] + [load]
        if fitting and not _can_meet(merged):
            groups.extend([*fitting, [load]])
        else:
            groups.append(merged)
    groups.sort(key=lambda group: order[group[0]])
    yield from (Payload(tuple(group)) for group in groups)


def _belongs(load: Operation, group: list[Operation], taken: dict[Operation, _Verdict]) -> bool:
    if any(taken[member].pinned_in_place for member in (load, *group)):
        return False
    if load.parent is not group[0].parent or type(load) is not type(group[0]):
        return False
    if dots := fed_dots(load):
        return any(dots & fed_dots(member) for member in group)
    return any(first_use(load) is first_use(member) for member in group)


def _can_meet(loads: list[Operation]) -> bool:
    """Tell whether all loads can be done where the last stands: before any tile is used."""
    last = loads[-1]
    return all(last.is_before_in_block(first_use(load)) for load in loads)
