"""H4 and H5: what lies where in shared memory, and what orders accesses to global memory.

Buffers and barriers lie in bytes of their own, inside of what the launch asks for, where swizzles
and the hardware take them. Two buffers may share bytes where one role alone uses them, by threads
and engines that its own order separates (`role_flow.py`): scratch memory used one after the other.

Accesses to global memory that may meet are ordered, or apart. Threads of one role keep the order of
the program between their own. What is looked at are accesses through one argument, one of them a
write, of different roles or by TMA; different arguments are different memory (a launch guard). One
pass over each role, forward, with the accesses that may still be under way on some path:

- a load by TMA is over when all threads have waited for its barrier, at its slot;
- a store by TMA is over when the threads that started and committed it have waited until all their
  groups are written, and the threads of the role have met after that;
- a load by threads is over when they have met after it. What threads have written, TMA is never
  shown to see: no fence of the proxy is one of global memory.

A load of another role is under way from the start of each program; the wait for its number ends it,
where the puts of its ring and the waits for them happen once a program each. Programs of a
persistent kernel are independent: its loop over programs begins anew. Boxes of TMA are apart where
their offsets differ by a number, in a dimension in which neither depends on an iteration; those of
unlike iterations of one store where each iteration moves the box by its width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.memory import Box, disjoint_in_other_iterations, roots_of
from tawa.analysis.polynomial import polynomial
from tawa.analysis.statements import WRITES
from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, BufferType, DescType, TensorMapType, ViewType, bit_width
from tawa.ir.walk import all_of, walk
from tawa.target import Target
from tawa.verify.footprints import place_of
from tawa.verify.forwarded import is_unconditional, launch_of, loops_around, role_of
from tawa.verify.rings import Rings, warps_of
from tawa.verify.rules import Refused, rule
from tawa.verify.values import Values

COUNT_MOST = (1 << 20) - 1
"""Arrivals and bytes one phase of an mbarrier can count (PTX ISA, "mbarrier object")."""

_PLAIN_ALIGNMENT = 16
_BARRIER_BYTES = 8


def check_buffer(operation: hopper.Shared) -> None:
    """A buffer and its slots start where its swizzle does."""
    kind = operation.result.type
    assert isinstance(kind, BufferType)
    layout, offset, label = kind.layout.data, operation.offset.data, operation.label.data
    engine = any(_engines(operation.result))
    unit = layout.alignment if layout.swizzle or engine else _PLAIN_ALIGNMENT
    for what, number in (("starts at byte", offset), ("has slots of bytes", kind.slot_bytes)):
        if number % unit:
            raise Refused(
                rule("buffers in place"),
                f"buffer {label} {what} {number}; a {layout.swizzle}-byte swizzle and the engines "
                f"that read it need a multiple of {unit}",
                operation,
            )


def _engines(value: SSAValue) -> Iterator[Operation]:
    """Yield the operations by which TMA or wgmma touches a buffer."""
    for use in value.uses:
        operation = use.operation
        if isinstance(operation, hopper.TmaLoad | hopper.TmaStore | hopper.Wgmma):
            yield operation
        for result in operation.results:
            if isinstance(result.type, ViewType):
                yield from _engines(result)


def check_barriers(operation: hopper.Barriers) -> None:
    """An array of barriers counts what an mbarrier can."""
    kind = operation.result.type
    assert isinstance(kind, BarriersType)
    label = operation.label.data
    if kind.count.data < 1:
        raise Refused(rule("form"), f"{label} has no barrier", operation)
    check_count("arrivals", f"arrivals at {label}", operation.arrivals.data, operation)


def check_count(which: str, what: str, number: int, operation: Operation) -> None:
    """A phase of an mbarrier counts `number` arrivals or bytes."""
    if not 0 < number <= COUNT_MOST:
        raise Refused(
            rule(which),
            f"{number} {what} in a phase; an mbarrier counts 1 to {COUNT_MOST}",
            operation,
        )


def check_map(operation: hopper.TensorMap, target: Target) -> None:
    """A tensor map is one that TMA takes."""
    kind = operation.result.type
    assert isinstance(kind, TensorMapType)
    box, swizzle = kind.box_shape, operation.swizzle.data
    inner = box[-1] * bit_width(kind.element) // 8
    why = ""
    if len(box) > target.tma_rank:
        why = f"has {len(box)} dimensions, TMA takes {target.tma_rank}"
    elif not all(1 <= extent <= target.tma_box_extent for extent in box):
        why = f"has an extent beyond {target.tma_box_extent}"
    elif inner % target.tma_alignment:
        why = f"has rows of {inner} bytes, no multiple of {target.tma_alignment}"
    elif swizzle and inner > swizzle:
        why = f"has rows of {inner} bytes, wider than its swizzle of {swizzle}"
    elif swizzle not in (0, 32, 64, 128):
        why = f"has a swizzle of {swizzle} bytes"
    if why:
        text = "x".join(map(str, box))
        raise Refused(
            rule("maps fit their views"), f"the box {text} of a tensor map {why}", operation
        )


def check_copy(
    operation: hopper.TmaLoad | hopper.TmaStore, origin: SSAValue, view: SSAValue, shares: int
) -> None:
    """The boxes of a tensor map are those of the view, of which each box is in one of `shares`."""
    kind, placed, owner = origin.type, view.type, origin.owner
    assert isinstance(kind, TensorMapType)
    assert isinstance(placed, ViewType)
    if not isinstance(owner, hopper.TensorMap):
        raise Refused(rule("form"), f"{operation.name} has no tensor map", operation)
    layout, box, panel = placed.layout.data, kind.box_shape, placed.within.data.panel
    rows, width = prod(layout.stored_shape[:-1]), layout.stored_shape[-1]
    why = ""
    if kind.element != placed.element:
        why = "elements of another type"
    elif owner.swizzle.data != layout.swizzle:
        why = f"a swizzle of {owner.swizzle.data} bytes, the view one of {layout.swizzle}"
    elif layout.order != tuple(range(len(layout.order))):
        why = "rows that the view does not store one after the other"
    elif min(panel, width) % box[-1] or width % box[-1]:
        why = f"a box {box[-1]} wide, the view panels of {min(panel, width)}"
    elif rows != prod(box[:-1]) * shares:
        why = f"a box of {prod(box[:-1])} rows, the view {rows} in {shares} shares"
    elif not _lies_together(box, layout.shape, min(panel, width)):
        text = "x".join(map(str, box))
        why = f"boxes {text}, which do not lie together in a tile placed as {layout}"
    if why:
        raise Refused(
            rule("maps fit their views"),
            f"{operation.name} moves boxes of a tensor map that has {why}",
            operation,
        )
    check_start(operation, view)


def _lies_together(box: tuple[int, ...], shape: tuple[int, ...], width: int) -> bool:
    """Tell whether a box fills memory without gaps: where one of its extents is less than the
    tile's (or panel's), all slower ones are 1. A share of a tile is cut off its slowest extent.
    """
    padded = (*(1 for _ in range(len(box) - len(shape))), *shape[:-1], width)
    whole = True
    for part, extent in zip(reversed(box), reversed(padded)):
        if not whole and part != 1:
            return False
        whole = whole and part == extent
    return True


def check_start(operation: Operation, view: SSAValue) -> None:
    """A view that an engine takes starts where the swizzle's pattern does."""
    kind = view.type
    assert isinstance(kind, ViewType)
    first, unit = place_of(view, operation).first_byte, kind.layout.data.alignment
    if first % unit:
        raise Refused(
            rule("buffers in place"),
            f"{operation.name} takes a view that starts {first} bytes into its slot; its swizzle "
            f"repeats every {unit}",
            operation,
        )


def check_memory(kernel: tile.Kernel, rings: Rings, most: int) -> None:
    """Raise Refused where something lies over something else, or beyond the `most` bytes that the
    launch asks for.
    """
    spans: list[tuple[int, int, hopper.Shared | hopper.Barriers]] = []
    for operation in all_of(kernel, hopper.Shared, hopper.Barriers):
        kind, first = operation.result.type, operation.offset.data
        if isinstance(operation, hopper.Barriers):
            assert isinstance(kind, BarriersType)
            size = _BARRIER_BYTES * kind.count.data
            if first % _BARRIER_BYTES:
                raise Refused(
                    rule("in place"),
                    f"barriers {operation.label.data} start at byte {first}, no multiple of 8",
                    operation,
                )
        else:
            assert isinstance(kind, BufferType)
            size = kind.bytes
        spans.append((first, first + size, operation))
    for first, end, operation in spans:
        if first < 0 or end > most:
            raise Refused(
                rule("in place"),
                f"{operation.label.data} ends at byte {end}; the launch asks for {most}",
                operation,
            )
    for (first, end, one), (start, stop, other) in combinations(spans, 2):
        if first < stop and start < end and not _is_scratch(rings, one, other):
            raise Refused(
                rule("in place"),
                f"{one.label.data} and {other.label.data} share the bytes from "
                f"{max(first, start)} to {min(end, stop)}",
                other,
            )


def _is_scratch(rings: Rings, *both: hopper.Shared | hopper.Barriers) -> bool:
    """Tell whether one role alone uses two buffers, which nobody hands on."""
    roles: set[hopper.Role] = set()
    for each in both:
        ring = rings.buffers.get(each.result)
        if ring is None or ring.filled is not None:
            return False
        roles |= ring.roles
    return len(roles) <= 1


# --- global memory --------------------------------------------------------------------------------


Roots = frozenset[int] | None
_TMA = (hopper.TmaLoad, hopper.TmaStore)
_ACCESSES = (tile.Load, tile.Store, tile.Atomic, tile.CompareExchange, hopper.CopyAsync, *_TMA)


@dataclass(frozen=True, slots=True)
class _Way:
    """An access that may be under way; `told`: its own thread knows that it is over. A store by TMA
    is `committed` before its thread can wait for it.
    """

    operation: Operation
    told: bool = False
    committed: bool = False


_State = frozenset[_Way]


def check_global_order(kernel: tile.Kernel, values: Values) -> None:
    """Raise Refused where two accesses to global memory may meet and nothing orders them."""
    roots = {each: _roots(each) for each in all_of(kernel, *_ACCESSES)}
    roots = {each: those for each, those in roots.items() if those is None or those}
    writes = [each for each in roots if _is_write(each)]
    pairs = [
        (one, write)
        for write in writes
        for one in roots
        if one is not write
        and _meet(roots[one], roots[write])
        and not _in_order(one, write, values)
    ]
    # The launcher reads the same: whether blocks take program after program.
    persistent = bool(launch_of(kernel).get("persistent"))
    again = {
        each
        for each in writes
        if isinstance(each, hopper.TmaStore) and _meets_itself(each, persistent)
    }
    followed = again.union(*pairs)
    if followed:
        for role in all_of(kernel, hopper.Role):
            those: dict[Operation, Roots] = {each: roots[each] for each in followed}
            _Role(role, those, again, values, persistent).check()


def _meets_itself(store: hopper.TmaStore, persistent: bool) -> bool:
    """Tell whether iterations of a store, each under way while the next begins, may share memory;
    those of a sum commute.
    """
    loops = loops_around(store)
    loops = loops[: len(loops) - int(persistent)]
    offsets, extents = zip(*_box(store), strict=True)
    box = Box(tuple(map(polynomial, offsets)), extents)
    return store.reduce is None and not disjoint_in_other_iterations(box, box, loops)


def _roots(operation: Operation) -> Roots:
    if not isinstance(operation, _TMA):
        return roots_of(operation.operands[0])
    owner = operation.map.owner
    return roots_of(owner.desc) if isinstance(owner, hopper.TensorMap) else None


def _is_write(operation: Operation) -> bool:
    return isinstance(operation, (*WRITES, hopper.TmaStore))


def _meet(one: Roots, other: Roots) -> bool:
    return one is None or other is None or bool(one & other)


def _in_order(one: Operation, write: Operation, values: Values) -> bool:
    """Tell whether the order of the program is enough, or none is needed: threads of one role keep
    it, sums of one kind commute.
    """
    if role_of(one) is role_of(write) and not isinstance(one, _TMA) | isinstance(write, _TMA):
        return True
    if _of_unlike_programs(one, write, values):
        return True
    match one, write:
        case hopper.TmaStore(), hopper.TmaStore():
            return one.reduce is not None and one.reduce == write.reduce
        case ((tile.Atomic() | tile.CompareExchange()), (tile.Atomic() | tile.CompareExchange())):
            return True
        case _:
            return False


def _of_unlike_programs(one: Operation, other: Operation, values: Values) -> bool:
    """Tell whether two instances of a role access memory, which never have the same program."""
    spans = [
        values.span(loop)
        for each in (one, other)
        for loop in loops_around(each)[-1:]
        if isinstance(loop, scf.ForOp)
    ]
    if len(spans) < 2 or spans[0].share == 1:
        return False
    return spans[0] != spans[1] and replace(spans[0], part=spans[1].part) == spans[1]


@dataclass(slots=True)
class _Role:
    role: hopper.Role
    followed: dict[Operation, Roots]
    again: Collection[Operation]
    values: Values
    persistent: bool

    def check(self) -> None:
        loops = [each for each in all_of(self.role, scf.ForOp, scf.WhileOp) if self._is_outer(each)]
        others = self._others()
        start = frozenset[_Way]() if self.persistent and loops else others
        self._block(self.role.body.block, start, False)

    def _others(self) -> _State:
        """What other roles do in the same program, at any time until they say that it is over."""
        return frozenset(_Way(each) for each in self.followed if role_of(each) is not self.role)

    def _is_outer(self, loop: Operation) -> bool:
        return self.persistent and not loops_around(loop)

    def _block(self, block: Block, state: _State, alone: bool) -> _State:
        for operation in block.ops:
            match operation:
                case hopper.OneThread():
                    state = self._block(operation.body.block, state, True)
                case scf.IfOp():
                    ends = [
                        self._block(region.block, state, alone) if region.blocks else state
                        for region in operation.regions
                    ]
                    state = frozenset[_Way]().union(*ends)
                case scf.ForOp() | scf.WhileOp():
                    state = self._loop(operation, state, alone)
                case _:
                    state = self._operation(operation, state, alone)
        return state

    def _loop(self, loop: scf.ForOp | scf.WhileOp, state: _State, alone: bool) -> _State:
        outer = self._is_outer(loop)
        head = state | self._others() if outer else state
        while True:
            end = head
            for region in loop.regions:
                end = self._block(region.block, end, alone)
            if outer or end <= head:
                return head | end
            head |= end

    def _operation(self, operation: Operation, state: _State, alone: bool) -> _State:
        if operation in self.followed:
            for way in state:
                self._conflict(way.operation, operation)
            return state | {_Way(operation, not isinstance(operation, _TMA))}
        match operation:
            case hopper.Wait() if not alone:
                return frozenset(way for way in state if not self._is_told(way, operation))
            case hopper.BulkCommit():
                return frozenset(
                    replace(way, committed=True) if self._is_by(way, operation) else way
                    for way in state
                )
            case hopper.BulkWait() if not operation.pending.data and not bool(operation.read):
                return frozenset(
                    replace(way, told=way.told or (way.committed and self._is_by(way, operation)))
                    for way in state
                )
            case hopper.NamedBarrier() if operation.kind.data == "sync" and not alone:
                everybody = operation.scope.data == "role" or (
                    operation.scope.data == "warpgroup" and self.role.warps.data <= 4
                )
                return frozenset(way for way in state if not (everybody and self._is_over(way)))
            case _:
                return state

    def _is_over(self, way: _Way) -> bool:
        """What threads wrote stays: TMA sees it only by a fence that is not there."""
        by_threads = not isinstance(way.operation, _TMA) and _is_write(way.operation)
        return way.told and not by_threads

    def _is_by(self, way: _Way, group: hopper.BulkCommit | hopper.BulkWait) -> bool:
        """Tell whether all threads that started a store by TMA execute an operation on groups."""
        store = way.operation
        if not isinstance(store, hopper.TmaStore) or role_of(store) is not self.role:
            return False
        return {*warps_of(store.by.data, self.role)} <= {*warps_of(group.by.data, self.role)}

    def _is_told(self, way: _Way, wait: hopper.Wait) -> bool:
        load = way.operation
        if not isinstance(load, hopper.TmaLoad) or load.barriers is not wait.barriers:
            return False
        if role_of(load) is self.role:
            return self.values.of(load.slot) == self.values.of(wait.slot)
        other = role_of(load)
        assert isinstance(other, hopper.Role)
        puts = [each for each in all_of(other, hopper.Expect) if each.barriers is load.barriers]
        waits = [each for each in all_of(self.role, hopper.Wait) if each.barriers is load.barriers]
        if len(puts) != len(waits) or not all(map(self._is_once, (load, *puts, *waits))):
            return False
        # Each role makes these once a program, in the order of the ring's numbers.
        began = [each for each in walk(other) if each is load or each in puts]
        return waits.index(wait) == began.index(load) - 1

    def _is_once(self, operation: Operation) -> bool:
        return len(loops_around(operation)) == int(self.persistent) and is_unconditional(operation)

    def _conflict(self, before: Operation, after: Operation) -> None:
        if not (_is_write(before) or _is_write(after)):
            return
        if before is after and before not in self.again:
            return
        if not _meet(self.followed[before], self.followed[after]):
            return
        first, second = (before, after) if _is_write(after) else (after, before)
        if _in_order(first, second, self.values):
            return
        loads = isinstance(before, hopper.TmaLoad), isinstance(after, hopper.TmaLoad)
        if role_of(before) is not role_of(after) and loads == (False, True):
            return  # the other role, which waits for the load, is asked
        engines = isinstance(before, _TMA), isinstance(after, _TMA)
        if all(engines) and self._are_apart(before, after):
            return
        by = role_of(before)
        name = by.label.data if isinstance(by, hopper.Role) else "a role"
        raise Refused(
            rule("global order"),
            f"{self.role.label.data} comes to global memory by {after.name} where {before.name} of "
            f"{name} may be under way: nothing orders them",
            after,
        )

    def _are_apart(self, one: Operation, other: Operation) -> bool:
        assert isinstance(one, hopper.TmaLoad | hopper.TmaStore)
        assert isinstance(other, hopper.TmaLoad | hopper.TmaStore)
        terms = self.values.terms
        maps = one.map.owner, other.map.owner
        if not all(isinstance(each, hopper.TensorMap) for each in maps):
            return False
        first, second = (each.desc for each in maps if isinstance(each, hopper.TensorMap))
        if self.values.of(first) != self.values.of(second) or _has_windows(first):
            return False
        for (a, extent), (b, size) in zip(_box(one), _box(other), strict=False):
            first, second = self.values.of(a), self.values.of(b)
            inner = {
                leaf
                for leaf, depth in terms.support_of((first, second))
                if leaf == "self" or (leaf == "iteration" and depth >= int(self.persistent))
            }
            # Of two stores, those of unlike iterations are in the order that the author gave them.
            loose = inner and not (_is_write(one) and _is_write(other))
            distance = terms.number(terms.sub(second, first))
            if distance is not None and not loose and (distance >= extent or -distance >= size):
                return True
        return False


def _box(copy: hopper.TmaLoad | hopper.TmaStore) -> Iterable[tuple[SSAValue, int]]:
    kind = copy.view.type
    assert isinstance(kind, ViewType)
    rank = len(copy.offsets)
    extents = (*(1 for _ in range(rank - len(kind.shape))), *kind.shape)[-rank:]
    return zip(copy.offsets, extents, strict=True)


def _has_windows(desc: SSAValue) -> bool:
    """Tell whether boxes are of windows, which overlap where their offsets differ."""
    kind = desc.type
    assert isinstance(kind, DescType)
    return kind.window is not None
