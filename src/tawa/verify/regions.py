"""Pipelined loops of all roles as one system for Lemma 2: which operation runs how many steps late.

A *region* is a loop that the roles share, with what each role has taken out of it: the operations
before its own loop that first iterations need, and those after it. In a role whose loop begins p
iterations late, after m operations of one kind on a ring, the one in the loop has shift p - m; a
guard `iteration >= k` around it adds k. The sequence of the role must be that of these steps.

A loop of which this cannot be read is not `followed`; nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType
from tawa.ir.walk import all_of
from tawa.verify.counts import Counts
from tawa.verify.order import Kind, Shifted, Site, edges
from tawa.verify.sums import Count, Holds
from tawa.verify.terms import Term
from tawa.verify.values import Span, Values


@dataclass(frozen=True, slots=True)
class _Guard:
    """In a loop: not in the first `late` iterations, nor in the last `ahead` ones."""

    late: int = 0
    ahead: int = 0
    known: bool = True


@dataclass(frozen=True, slots=True)
class _Event:
    kind: Kind
    ring: SSAValue
    """The barriers that are completed when the ring's slots are filled."""
    guard: _Guard

    @property
    def key(self) -> tuple[Kind, SSAValue]:
        """What is counted together."""
        return self.kind, self.ring


@dataclass(frozen=True, slots=True)
class _Loop:
    operation: scf.ForOp
    span: Span
    events: tuple[_Event, ...] | None
    """What stands in its body; None where that is more than operations and guards."""


@dataclass(slots=True)
class Region:
    """A loop that roles share: their bodies, the rings, how deep these are, and where it stands."""

    roles: list[list[Shifted]]
    depths: list[int]
    place: Operation
    followed: bool = True


@dataclass(slots=True)
class _Reader:
    values: Values
    counts: Counts
    partner: dict[SSAValue, SSAValue]
    """The filled barriers of each array of freed ones."""
    levels: dict[int, list[list[_Event | _Loop]]] = field(
        default_factory=dict[int, list[list[_Event | _Loop]]]
    )

    def items(
        self, block: Block, loop: scf.ForOp | None, guard: _Guard
    ) -> Iterator[_Event | _Loop]:
        """Yield the operations on rings of a block, in order, through conditions and one thread."""
        for operation in block.ops:
            match operation:
                case hopper.Wait() if operation.barriers in self.partner:
                    yield _Event("put", self.partner[operation.barriers], guard)
                case hopper.Wait():
                    yield _Event("get", operation.barriers, guard)
                case hopper.Arrive() if operation.barriers in self.partner:
                    yield _Event("free", self.partner[operation.barriers], guard)
                case hopper.Arrive() | hopper.Expect() | hopper.CopyAsyncArrive():
                    yield _Event("fill", operation.barriers, guard)
                case hopper.OneThread():
                    yield from self.items(operation.body.block, loop, guard)
                case scf.IfOp():
                    yield from self.items(
                        operation.true_region.block, loop, self._guard(operation, loop, guard)
                    )
                    # What stands under the other side happens where there is no iteration.
                case scf.ForOp():
                    inside = list(self.items(operation.body.block, operation, _Guard()))
                    if not inside:
                        continue
                    plain = [item for item in inside if isinstance(item, _Event)]
                    whole = tuple(plain) if len(plain) == len(inside) else None
                    if whole is None:
                        depth = _depth(operation)
                        self.levels.setdefault(depth, []).append(inside)
                    yield _Loop(operation, self.values.span(operation), whole)
                case scf.WhileOp():
                    inside = list(self.items(operation.after_region.block, None, _Guard()))
                    if inside:
                        self.levels.setdefault(_depth(operation), []).append(inside)
                case _:
                    continue

    def _guard(self, branch: scf.IfOp, loop: scf.ForOp | None, around: _Guard) -> _Guard:
        """Return which iterations of a loop go into a branch."""
        if loop is None:
            return around  # how often that is, counts tell
        terms, span = self.values.terms, self.values.span(loop)
        at = self.values.iteration(loop)
        x = self._positive(self.counts.condition(self.values.of(branch.cond)))
        if x is None or around != _Guard():
            return _Guard(known=False)
        first = terms.number(terms.sub(at, x))
        if first is not None:
            return _Guard(late=max(0, first + 1))
        end = terms.sub(terms.add(x, terms.mul(span.step, at)), span.length)
        times = terms.ratio(end, span.step)
        return _Guard(known=False) if times is None else _Guard(ahead=max(0, -times))

    def _positive(self, condition: Count) -> Term | None:
        """Return the x of a condition x > 0, or of one that says that 1 - x > 0 does not hold."""
        terms = self.values.terms
        match sorted(condition, key=lambda item: item[1]):
            case [(product, 1)] if len(product) == 1:
                (factor,) = product
                negated = False
            case [(product, -1), (rest, 1)] if len(product) == 1 and not rest:
                (factor,) = product
                negated = True
            case _:
                return None
        if not isinstance(factor, Holds) or factor.what != "positive":
            return None
        return terms.sub(terms.one, factor.x) if negated else factor.x


def _depth(operation: Operation) -> int:
    depth, parent = 0, operation.parent_op()
    while parent is not None:
        depth += isinstance(parent, scf.ForOp | scf.WhileOp)
        parent = parent.parent_op()
    return depth


def regions(kernel: tile.Kernel, values: Values, counts: Counts) -> list[Region]:
    """Return the regions of a kernel: its loops that several roles share."""
    partner = _partners(kernel)
    found: list[Region] = []
    by_depth: dict[int, list[list[list[_Event | _Loop]]]] = {}
    for role in all_of(kernel, hopper.Role):
        reader = _Reader(values, counts, partner)
        top = list(reader.items(role.body.block, None, _Guard()))
        reader.levels.setdefault(-1, []).append(top)
        for depth, blocks in reader.levels.items():
            by_depth.setdefault(depth, []).append(blocks)
    for roles in by_depth.values():
        found += _of_level([block for blocks in roles for block in blocks], values)
    return found


def _partners(kernel: tile.Kernel) -> dict[SSAValue, SSAValue]:
    """Return, for barriers that a role waits for before it fills a slot, those that it fills."""
    found: dict[SSAValue, SSAValue] = {}
    for role in all_of(kernel, hopper.Role):
        waited: SSAValue | None = None
        fills = {op.barriers for op in all_of(role, hopper.Expect, hopper.CopyAsyncArrive)}
        waits = {op.barriers for op in all_of(role, hopper.Wait)}
        for operation in all_of(
            role, hopper.Wait, hopper.Expect, hopper.CopyAsyncArrive, hopper.Arrive
        ):
            if isinstance(operation, hopper.Wait):
                waited = operation.barriers
            elif (
                waited is not None
                and operation.barriers not in waits
                and (operation.barriers in fills or operation.parent is not None)
            ):
                if isinstance(operation, hopper.Arrive) and not _fills(operation, waited):
                    continue
                found.setdefault(waited, operation.barriers)
                waited = None
    return found


def _fills(arrive: hopper.Arrive, waited: SSAValue) -> bool:
    """Tell whether an arrival fills a slot: another role waits for it, and frees what was waited
    for."""
    return any(
        isinstance(use.operation, hopper.Arrive) and use.operation is not arrive
        for use in waited.uses
    ) and not any(
        isinstance(use.operation, hopper.TmaLoad | hopper.CopyAsyncArrive) for use in waited.uses
    )


def _of_level(roles: Sequence[Sequence[_Event | _Loop]], values: Values) -> Iterator[Region]:
    loops = [item for role in roles for item in role if isinstance(item, _Loop) and item.events]
    families: list[list[_Loop]] = []
    for loop in loops:
        for family in families:
            if _later(values, family[0].span, loop.span) is not None:
                family.append(loop)
                break
        else:
            families.append([loop])
    owners: dict[SSAValue, set[int]] = {}
    for number, family in enumerate(families):
        for loop in family:
            for event in loop.events or ():
                owners.setdefault(event.ring, set()).add(number)
    for number, family in enumerate(families):
        rings = [ring for ring, those in owners.items() if number in those]
        region = Region([], [_slots(ring) for ring in rings], family[0].operation)
        first = min((loop.span for loop in family), key=lambda s: _least(values, family, s))
        region.followed = len(family) > 1 and all(len(owners[ring]) == 1 for ring in rings)
        takers = 0
        for role in roles:
            mine = [item for item in role if isinstance(item, _Loop) or item.ring in rings]
            at = [i for i, item in enumerate(mine) if item in family]
            if not at and not any(isinstance(item, _Event) for item in mine):
                continue
            loop = mine[at[0]] if len(at) == 1 else None
            body = None
            if isinstance(loop, _Loop) and loop.events is not None:
                late = _later(values, first, loop.span)
                body = _body(mine, at[0], loop.events, late, rings, takers)
            takers += 1
            if body is None:
                region.followed = False
            else:
                region.roles.append(body)
        try:
            edges(region.roles, region.depths)
        except ValueError:  # a role that fills a ring and takes from it, instances, a ring twice
            region.followed = False
        yield region


def _least(values: Values, family: Sequence[_Loop], span: Span) -> int:
    return max(_later(values, span, other.span) or 0 for other in family) * -1


def _later(values: Values, first: Span, span: Span) -> int | None:
    """Return how many iterations after `first` a loop begins, if they are one loop."""
    if first.step != span.step or (first.share, first.part) != (span.share, span.part):
        return None
    return values.terms.ratio(values.terms.sub(first.length, span.length), span.step)


def _body(
    items: Sequence[_Event | _Loop],
    at: int,
    inside: Sequence[_Event],
    late: int | None,
    rings: Sequence[SSAValue],
    consumer: int,
) -> list[Shifted] | None:
    """Return the sites of a role's loop with their shifts, if its sequence is that of the steps."""
    before = [item for item in items[:at] if isinstance(item, _Event)]
    after = [item for item in items[at + 1 :] if isinstance(item, _Event)]
    if late is None or len(before) + len(after) + 1 != len(items):
        return None

    def many(part: Sequence[_Event], key: tuple[Kind, SSAValue]) -> int:
        return sum(each.key == key for each in part)

    sites: list[Shifted] = []
    where: dict[tuple[Kind, SSAValue], tuple[int, int]] = {}
    totals: set[int] = set()
    for place, event in enumerate(inside):
        key, guard = event.key, event.guard
        first, last, each = many(before, key), many(after, key), many(inside, key)
        shift = late - first + guard.late
        plain = not (shift or last or guard != _Guard())
        if not guard.known or (each > 1 and not plain):
            return None
        if (guard.late and first) or (guard.ahead and last):
            return None
        totals.add(first + last - late - guard.late - guard.ahead)
        where.setdefault(key, (shift, place))
        own = consumer if event.kind in ("get", "free") else 0
        ring = rings.index(event.ring)
        sites.append(Shifted(Site(event.kind, ring, many(inside[:place], key), own), shift))
    if len(totals) > 1 or not all(e.key in where for e in (*before, *after)):
        return None
    for part in (before, after):
        steps: list[tuple[int, int]] = []
        done: dict[tuple[Kind, SSAValue], int] = {}
        for event in part:
            key = event.key
            shift, place = where[key]
            nth = done[key] = done.get(key, -1) + 1
            # Before the loop iteration nth runs; after it, the nth of the steps that are left.
            steps.append((nth + shift if part is before else nth, place))
        if steps != sorted(steps) or (part is before and any(s >= late for s, _ in steps)):
            return None
    return sites


def _slots(ring: SSAValue) -> int:
    kind = ring.type
    assert isinstance(kind, BarriersType)
    return kind.count.data


__all__ = ["Region", "regions"]
