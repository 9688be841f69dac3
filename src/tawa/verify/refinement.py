"""Lemma 4 within hopper IR: an operation on a ring does what the aref operation means.

One pass over each role, forward, with what holds on every path (`held.py`):

- a put fills the slot that the role has waited for and not published yet: the barrier that is
  completed, the view and the one expect before the copies have the same slot, and the copies bring
  exactly the bytes that were expected;
- a reader, by threads, TMA or wgmma, reads the slot it was told of and has not given back;
- each role that reads a ring gives every slot back, and what is told apart is told by all: each
  thread for its own cp.async, one thread for TMA;
- between an access by threads and one by the async proxy, in either order, stands a fence of the
  proxy in the threads: before they tell the other role, or, after a cp.async of others, in the
  reader;
- with multicast the parts of all blocks of the cluster are the box once, from the same place, and
  every reader gives the slot back in every block.

The numbers of puts and gets, that is which slot the wait itself is for, are Lemma 3's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, ViewType, i32
from tawa.ir.walk import all_of
from tawa.verify.cluster import blocks_of, check_cluster, check_multicast
from tawa.verify.control import Events
from tawa.verify.counts import Count, Counts
from tawa.verify.events import arrivals_of
from tawa.verify.footprints import words_of
from tawa.verify.held import Held
from tawa.verify.rings import Access, Ring, slot_of
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import Term
from tawa.verify.values import Values

_TOLD = (
    *(scf.ForOp, scf.IfOp, scf.WhileOp, hopper.OneThread, hopper.Wait, hopper.Arrive),
    *(hopper.Expect, hopper.TmaLoad, hopper.CopyAsyncArrive, hopper.ProxyFence),
)


@dataclass(frozen=True, slots=True)
class _Owed:
    """Bytes that were expected and for which no copy was started yet."""

    slot: SSAValue
    bytes: int


@dataclass(slots=True)
class _State:
    """What holds at a place of a role, on every path there."""

    held: dict[SSAValue, Held]
    owed: dict[SSAValue, _Owed] = field(default_factory=dict[SSAValue, _Owed])
    touched: frozenset[tuple[SSAValue, bool]] = frozenset()
    """Buffers that threads have accessed since their last fence of the proxy, and whether they
    wrote."""
    put: dict[tuple[SSAValue, Term], int] = field(default_factory=dict[tuple[SSAValue, Term], int])
    """By buffer and slot: the words that were put there and are not yet published."""

    def copy(self) -> _State:
        return _State(dict(self.held), dict(self.owed), self.touched, dict(self.put))


@dataclass(slots=True)
class _Cases:
    """What holds on every path, and what holds besides where a condition was true, or was not."""

    state: _State
    known: dict[tuple[Count, bool], _State] = field(
        default_factory=dict[tuple[Count, bool], _State]
    )

    def where(self, condition: Count, holds: bool) -> _State:
        return self.known.get((condition, holds), self.state)

    def each(self, change: Callable[[_State], _State]) -> _Cases:
        return _Cases(change(self.state), {c: change(state) for c, state in self.known.items()})


def check_refinement(
    kernel: tile.Kernel,
    rings: dict[SSAValue, Ring],
    values: Values,
    counts: Counts,
    roles: Events,
) -> None:
    """Raise Refused where an operation on a ring is not shown to do what it is there for."""
    by_filled: dict[SSAValue, list[Ring]] = {}
    by_freed: dict[SSAValue, list[Ring]] = {}
    for ring in rings.values():
        if ring.filled is not None:
            by_filled.setdefault(ring.filled, []).append(ring)
        if ring.freed is not None:
            by_freed.setdefault(ring.freed, []).append(ring)
    for role in roles:
        _Role(role, values, counts, rings, by_filled, by_freed).check()
    for ring in rings.values():
        _check_readers(ring, counts, roles)
        if ring.filled is not None:
            check_multicast(ring, by_filled[ring.filled], values)
    check_cluster(kernel, values)


@dataclass(slots=True)
class _Role:
    role: hopper.Role
    values: Values
    counts: Counts
    rings: dict[SSAValue, Ring]
    by_filled: dict[SSAValue, list[Ring]]
    by_freed: dict[SSAValue, list[Ring]]
    accesses: dict[Operation, list[Access]] = field(default_factory=dict[Operation, list[Access]])
    told: dict[Block, list[Operation]] = field(default_factory=dict[Block, list[Operation]])

    def check(self) -> None:
        for ring in self.rings.values():
            for access in ring.accesses:
                self.accesses.setdefault(access.operation, []).append(access)
        held: dict[SSAValue, Held] = {}
        for wait in all_of(self.role, hopper.Wait):
            slots = _slots(wait.barriers)
            held[wait.barriers] = Held(slots, -1 % slots, {})
        end = self._block(self.role.body.block, _State(held), alone=False)
        self._paid(end.state, self.role)

    # --- control ----------------------------------------------------------------------------------

    def _block(self, block: Block, state: _State, alone: bool) -> _Cases:
        """Return what holds after a block: on every path, and where a condition was true."""
        cases = _Cases(state)
        if block not in self.told:
            self.told[block] = [each for each in block.ops if self._tells(each)]
        for operation in self.told[block]:
            cases = self._step(operation, cases, alone)
        return cases

    def _tells(self, operation: Operation) -> bool:
        """Tell whether anything is to be known from an operation."""
        if isinstance(operation, tile.Elementwise):
            return operation.result.type == i32
        return operation in self.accesses or isinstance(operation, _TOLD)

    def _step(self, operation: Operation, cases: _Cases, alone: bool) -> _Cases:
        match operation:
            case scf.IfOp() if operation.regions:
                return self._branch(operation, cases, alone)
            case scf.ForOp():
                entered = self.counts.positive(self._left(operation, operation.lb))
                none, entry = cases.where(entered, False), cases.where(entered, True)
                return _Cases(
                    self._loop(operation, none, entry, alone),
                    {
                        case: self._loop(operation, state, state, alone)
                        for case, state in cases.known.items()
                        if case[0] != entered
                    },
                )
            case scf.WhileOp():
                return cases.each(lambda state: self._while(operation, state, alone))
            case hopper.OneThread():
                body = operation.body.block
                return cases.each(lambda state: self._block(body, state, alone=True).state)
            case _:
                return cases.each(lambda state: self._operation(operation, state, alone))

    def _left(self, loop: scf.ForOp, at: SSAValue) -> Term:
        """Return what is left of a loop from a number on: it goes on while that is above 0."""
        return self.values.terms.sub(self.values.of(loop.ub), self.values.of(at))

    def _loop(self, loop: scf.ForOp, none: _State, entry: _State, alone: bool) -> _State:
        """Return what holds after a loop: `none` if it makes no iteration, `entry` before it if it
        makes one.
        """
        self._paid(none, loop)
        block, inits = loop.body.block, list(loop.iter_args)
        arguments = list(block.args[1:])
        last = block.last_op
        assert last is not None
        next_one = self.values.terms.sub(self._left(loop, block.args[0]), self.values.of(loop.step))
        goes_on = self.counts.positive(next_one)
        head = _renamed(entry, inits, arguments)
        while True:
            end = self._block(block, head.copy(), alone)
            self._paid(end.state, last)
            given = list(last.operands)
            around = _joined(head, _renamed(end.where(goes_on, True), given, arguments))
            if _same(around, head):
                break
            head = around
        results = list(loop.results)
        return _joined(
            _renamed(none, inits, results), _renamed(end.where(goes_on, False), given, results)
        )

    def _while(self, loop: scf.WhileOp, entry: _State, alone: bool) -> _State:
        before, after = loop.before_region.block, loop.after_region.block
        condition, last = before.last_op, after.last_op
        assert last is not None
        assert condition is not None
        self._paid(entry, loop)
        given = list(condition.operands[1:])
        head = _renamed(entry, list(loop.operands), list(before.args))
        while True:
            asked = self._block(before, head.copy(), alone).state
            inside = _renamed(asked, given, list(after.args))
            back = self._block(after, inside, alone).state
            self._paid(back, last)
            around = _joined(head, _renamed(back, list(last.operands), list(before.args)))
            if _same(around, head):
                return _renamed(asked, given, list(loop.results))
            head = around

    def _branch(self, branch: scf.IfOp, cases: _Cases, alone: bool) -> _Cases:
        """Both sides; where one of them waits, what holds if the condition was true is kept."""
        condition = self.counts.condition(self.values.of(branch.cond))
        sides = branch.true_region, branch.false_region
        one = self._side(branch, sides[0], cases.where(condition, True), alone)
        other = self._side(branch, sides[1], cases.where(condition, False), alone)
        made = _Cases(_joined(one, other))
        for case, state in cases.known.items():
            if case[0] != condition:
                ends = [self._side(branch, region, state, alone) for region in sides]
                made.known[case] = _joined(*ends)
        if one.held != other.held:
            made.known |= {(condition, True): one, (condition, False): other}
        if one.owed != other.owed:
            raise Refused(
                rule("one put"),
                "the bytes of a put are expected, or its copies started, on one side of a "
                "condition only",
                branch,
            )
        return made

    def _side(self, branch: scf.IfOp, region: Region, state: _State, alone: bool) -> _State:
        if not region.blocks or region.block.last_op is None:
            return state.copy()
        end = self._block(region.block, state.copy(), alone).state
        return _renamed(end, list(region.block.last_op.operands), list(branch.results))

    def _paid(self, state: _State, where: Operation) -> None:
        for at, owed in state.owed.items():
            raise Refused(
                rule("one put"),
                f"{_name(at)} expects {owed.bytes} bytes for which no copy stands beside it",
                where,
            )

    # --- operations -------------------------------------------------------------------------------

    def _operation(self, operation: Operation, state: _State, alone: bool) -> _State:
        for access in self.accesses.get(operation, ()):
            self._access(access, state)
        match operation:
            case hopper.Wait(barriers=at):
                state.held[at] = state.held[at].waited(operation.slot)
                for ring in self.by_filled.get(at, ()):
                    if ring.copied:  # generic writes of other threads, which a fence here covers
                        state.touched |= {(ring.buffer.result, True)}
            case hopper.Expect(barriers=at):
                self._expect(operation, state)
            case hopper.TmaLoad():
                self._load(operation, state, alone)
            case hopper.Arrive(barriers=at) | hopper.CopyAsyncArrive(barriers=at):
                self._arrive(operation, at, state)
            case hopper.ProxyFence() if not alone:
                state.touched = frozenset()
            case tile.Elementwise():
                for at, held in state.held.items():
                    state.held[at] = held.named(operation.result, held.computed(operation))
            case _:
                pass
        return state

    def _access(self, access: Access, state: _State) -> None:
        slot = slot_of(access.view)
        ring, operation = self.rings[slot.buffer], access.operation
        self._fenced(access, ring, state)
        if not access.engine:
            state.touched |= {(slot.buffer, access.writes)}
        if ring.filled is None:
            return
        if ring.is_put(access):
            if ring.freed is not None and not state.held[ring.freed].holds(slot.index):
                raise Refused(
                    rule("slots"),
                    f"{operation.name} fills a slot of {ring.name} that {self._label} has not "
                    f"waited for at {_name(ring.freed)}, or has published already",
                    operation,
                )
            self._put(access, ring, state)
            return
        if access.writes and len(ring.readers()) > 1:
            raise Refused(
                rule("slots"),
                f"{operation.name} writes into a slot of {ring.name}, which other roles read",
                operation,
            )
        own = ring.freed if self.role is ring.producer and ring.freed in state.held else None
        at = own if ring.filled not in state.held else ring.filled
        if at is None or not state.held[at].holds(slot.index):
            raise Refused(
                rule("slots"),
                f"{operation.name} uses a slot of {ring.name} that {self._label} is not shown to "
                f"have: it has not waited for it at {_name(ring.filled)}, or has given it back",
                operation,
            )

    def _put(self, access: Access, ring: Ring, state: _State) -> None:
        """Note which words of a slot are put; copies of one put have words of their own."""
        at = ring.buffer.result, self.values.of(slot_of(access.view).index)
        words, before = words_of(access.view, access.operation), state.put.get(at, 0)
        if words & before and isinstance(access.operation, hopper.TmaLoad):
            raise Refused(
                rule("one put"),
                f"two copies of one put go to the same bytes of {ring.name}",
                access.operation,
            )
        state.put[at] = words | before

    def _is_whole(
        self, at: SSAValue, slot: SSAValue, operation: Operation, state: _State, by_engine: bool
    ) -> None:
        """A slot is published when all that is read of it was put there."""
        rings = [each for each in self.by_filled.get(at, ()) if each.producer is self.role]
        alike = [ring for ring in rings if ring.by_engine == by_engine]
        for ring in alike or rings:
            key = ring.buffer.result, self.values.of(slot)
            if ring.words_read & ~state.put.pop(key, 0):
                raise Refused(
                    rule("one put"),
                    f"{operation.name} publishes a slot of {ring.name}, and what is read of it was "
                    "not all put there on every path",
                    operation,
                )

    def _fenced(self, access: Access, ring: Ring, state: _State) -> None:
        """Before the async proxy comes to a buffer, threads have fenced what they did there."""
        # Of a ring that a role fills for itself threads use what they have at `filled` alone, and
        # fence before they give it back: `_told`.
        own = ring.freed is not None and self.role in ring.readers() and ring.is_put(access)
        if not access.engine or own:
            return
        wrote = (ring.buffer.result, True) in state.touched
        read = access.writes and (ring.buffer.result, False) in state.touched
        if wrote or read:
            raise Refused(
                rule("proxy"),
                f"threads of {self._label} access {ring.name} and do not fence the proxy before "
                f"{access.operation.name}",
                access.operation,
            )

    def _expect(self, expect: hopper.Expect, state: _State) -> None:
        at = expect.barriers
        if at in state.owed:
            raise Refused(rule("one put"), f"{_name(at)} expects bytes twice for one put", expect)
        for ring in self.by_filled.get(at, ()):
            self._has(ring, expect, expect.slot, state)
        state.owed[at] = _Owed(expect.slot, expect.bytes.data)

    def _load(self, load: hopper.TmaLoad, state: _State, alone: bool) -> None:
        at, slot = load.barriers, slot_of(load.view)
        owed = state.owed.get(at)
        if not alone:
            raise Refused(rule("one put"), "a copy by TMA is started by more than one thread", load)
        if owed is None:
            raise Refused(
                rule("one put"),
                f"a copy completes on {_name(at)}, which expects no bytes before it",
                load,
            )
        numbers = [self.values.of(each) for each in (owed.slot, load.slot, slot.index)]
        if len(set(numbers)) > 1:
            expected, told, filled = map(self.values.terms.text, numbers)
            raise Refused(
                rule("slots"),
                f"a copy fills slot {filled} of {self.rings[slot.buffer].name} and completes on "
                f"slot {told} of {_name(at)}, whose bytes are expected for slot {expected}",
                load,
            )
        kind = load.view.type
        assert isinstance(kind, ViewType)
        left = owed.bytes - kind.layout.data.bytes
        if left < 0:
            raise Refused(
                rule("one put"), f"copies bring more bytes than {_name(at)} expects", load
            )
        if left:
            state.owed[at] = replace(owed, bytes=left)
            return
        del state.owed[at]
        if at in state.held:  # a role that copies for itself: the slot has something else now
            state.held[at] = state.held[at].given(slot.index)
        self._is_whole(at, owed.slot, load, state, by_engine=True)
        self._publish(at, owed.slot, state)

    def _arrive(
        self, arrive: hopper.Arrive | hopper.CopyAsyncArrive, at: SSAValue, state: _State
    ) -> None:
        for ring in self.by_filled.get(at, ()):
            if self.role is ring.producer and not ring.by_engine:
                self._has(ring, arrive, arrive.slot, state)
                waits_for_copies = isinstance(arrive, hopper.CopyAsyncArrive)
                if ring.copied and not waits_for_copies:
                    raise Refused(
                        rule("one put"),
                        f"threads arrive at {_name(at)} before their copies into {ring.name} are "
                        "done",
                        arrive,
                    )
                if not waits_for_copies:
                    self._told(ring, arrive, {True}, state)
        self._is_whole(at, arrive.slot, arrive, state, by_engine=False)
        self._publish(at, arrive.slot, state)
        for ring in self.by_freed.get(at, ()):
            assert ring.filled is not None
            if ring.filled in state.held:
                state.held[ring.filled] = state.held[ring.filled].given(arrive.slot)
            if ring.by_engine:
                self._told(ring, arrive, {True, False}, state)

    def _told(self, ring: Ring, arrive: Operation, kinds: set[bool], state: _State) -> None:
        """Before another role uses the async proxy on a slot, or this one fills it again, threads
        fence what they did there.
        """
        others = any(
            each.engine and (each.role is not self.role or ring.is_put(each))
            for each in ring.accesses
        )
        if others and any((ring.buffer.result, kind) in state.touched for kind in kinds):
            raise Refused(
                rule("proxy"),
                f"threads of {self._label} access {ring.name} and do not fence the proxy before "
                f"they arrive at {_name(arrive.operands[0])}",
                arrive,
            )

    def _has(self, ring: Ring, operation: Operation, slot: SSAValue, state: _State) -> None:
        freed = ring.freed if self.role is ring.producer else None
        if freed is not None and not state.held[freed].holds(slot):
            raise Refused(
                rule("slots"),
                f"{self._label} publishes a slot of {ring.name} that it has not waited for at "
                f"{_name(freed)}, or has published already",
                operation,
            )

    def _publish(self, at: SSAValue, slot: SSAValue, state: _State) -> None:
        """A slot that was put is no longer the producer's."""
        for freed in dict.fromkeys(ring.freed for ring in self.by_filled.get(at, ())):
            if freed is not None and freed in state.held:
                state.held[freed] = state.held[freed].given(slot)

    @property
    def _label(self) -> str:
        return self.role.label.data


# --- all readers, all blocks ----------------------------------------------------------------------


def _check_readers(ring: Ring, counts: Counts, roles: Events) -> None:
    """Each role that reads a ring gives back every slot that it gets, by as many each time."""
    if ring.filled is None or ring.freed is None:
        return
    none = counts.constant(0)
    for role in ring.readers():
        arrivals = {
            arrivals_of(each.by.data, role, alone=_is_alone(each))
            for each in all_of(role, hopper.Arrive)
            if each.barriers is ring.freed
        }
        gets = roles[role].get(("wait", ring.filled), none)
        given = roles[role].get(("arrive", ring.freed), none)
        each = arrivals.pop() if len(arrivals) == 1 else 0
        cluster = blocks_of(ring.freed, role)
        if not each or not counts.same(given, counts.sum([(gets, each * cluster)])):
            raise Refused(
                rule("given back"),
                f"{role.label.data} gets {counts.text(gets)} slots of {ring.name} and arrives "
                f"{counts.text(given)} times at {_name(ring.freed)}",
                ring.buffer,
            )


def _is_alone(operation: Operation) -> bool:
    parent = operation.parent_op()
    while parent is not None and not isinstance(parent, hopper.OneThread):
        parent = parent.parent_op()
    return parent is not None


# --- states ---------------------------------------------------------------------------------------


def _renamed(state: _State, given: Sequence[SSAValue], names: Sequence[SSAValue]) -> _State:
    """Return a state in which `names` are what `given` are."""
    made = state.copy()
    for at, held in state.held.items():
        for value, name in zip(given, names, strict=True):
            held = held.named(name, state.held[at].place(value))
        made.held[at] = held
    return made


def _joined(one: _State, other: _State) -> _State:
    held = {at: each.join(other.held[at]) for at, each in one.held.items()}
    put = {at: words & other.put[at] for at, words in one.put.items() if at in other.put}
    return _State(held, dict(one.owed), one.touched | other.touched, put)


def _same(one: _State, other: _State) -> bool:
    return (one.held, one.touched, one.put) == (other.held, other.touched, other.put)


def _slots(barriers: SSAValue) -> int:
    kind = barriers.type
    assert isinstance(kind, BarriersType)
    return kind.count.data


def _name(barriers: SSAValue) -> str:
    owner = barriers.owner
    return owner.label.data if isinstance(owner, hopper.Barriers) else "a barrier"


__all__ = ["check_refinement"]
