"""Shared memory in a role: what is read, written, handed over and given back when (Lemma 5).

Of a buffer that one role has alone, two accesses of which one writes are ordered by barriers of the
threads that make them, and by fences of the proxy where an engine makes the second. A slot of a
ring is accessed only while it is *held*: after a wait for it, and before the arrival that hands it
on; and that arrival comes after all accesses to it are over, by threads whose warps know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.types import BarriersType
from tawa.ir.walk import all_of
from tawa.verify.footprints import WARPGROUP, Shares, meeting_distance
from tawa.verify.role_rings import Access, Buffer, Rings, is_alone, is_repeated, is_slot, warps_of
from tawa.verify.role_state import OVER, Fact, Key, Lattice, State, Status
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import Term

_FLYING = Status(0, 0, 2)
_BY_THREADS = Status(OVER, 0, -1)
_BY_COPIES = Status(0, 0, -1)


@dataclass(slots=True)
class Memory:
    """The accesses of one role."""

    role: hopper.Role
    rings: Rings
    lattice: Lattice
    most: int = 0
    """Beyond this age all groups of TMA stores are alike."""
    found: dict[tuple[Operation, SSAValue, int], Access] = field(
        default_factory=dict[tuple[Operation, SSAValue, int], Access]
    )

    def __post_init__(self) -> None:
        waits = all_of(self.role, hopper.BulkWait)
        self.most = 1 + max((wait.pending.data for wait in waits), default=0)

    # --- accesses ---------------------------------------------------------------------------------

    def access(self, state: State, operation: Operation) -> None:
        """Check and note what an operation reads and writes."""
        for access in self.rings.of.get(operation, ()):
            number = state.values[access.place.index]
            self._held(state, access, number)
            for key, status in list(state.may.items()):
                if key.kind == "access":
                    self._ordered(key, status, access, number)
        for access in self.rings.of.get(operation, ()):
            self._note(state, access, state.values[access.place.index])
            self._fill(state, access, state.values[access.place.index])

    def _fill(self, state: State, access: Access, number: Term) -> None:
        """Scratch memory is read where this slot was written on every path; of a ring puts say so.
        That the buffers of other tiles lie in the same bytes does not make it written.
        """
        buffer, place = self.rings.buffers[access.place.buffer], access.place
        terms = self.lattice.terms

        def same(fact: Fact) -> bool:
            apart = terms.number(terms.sub(fact.number, number))
            return apart is not None and apart % place.slots == 0

        if buffer.shared:
            return
        if access.write:
            state.must.add(Fact("written", place.buffer, False, number))
            return
        facts = (fact for fact in state.must if fact.kind == "written")
        if not any(fact.thing is place.buffer and same(fact) for fact in facts):
            raise self._refused(
                "memory written first",
                f"reads {buffer.label} by {access.operation.name}: shared memory that not every "
                "path has written",
                access.operation,
            )

    def _note(self, state: State, access: Access, number: Term) -> None:
        buffer = self.rings.buffers[access.place.buffer]
        if buffer.shared and access.by == "tma load":
            return  # it completes on the barrier of its slot, for whoever waits there
        who = -1
        match access.by:
            case "threads":
                status = _BY_THREADS
            case "cp.async":
                status = _BY_COPIES
            case "tma store":
                status = _FLYING
                who = next(warp for warp, mask in enumerate(access.shares) if mask)
            case _:
                status = _FLYING
        at = access.operation, access.view, who
        self.found[at] = access
        state.may[Key("access", *at, number)] = status
        if access.by == "tma store":
            # Of whichever slot: nothing comes before what waits for all of them.
            state.may[Key("written", *at, self.lattice.terms.zero)] = _FLYING

    def _held(self, state: State, access: Access, number: Term) -> None:
        """A slot of a ring is accessed between the wait for it and the arrival after it."""
        buffer = self.rings.buffers[access.place.buffer]
        operation, label = access.operation, buffer.label
        if not buffer.shared:
            if not is_slot(access.place.index, access.place.slots, set()):
                raise self._refused(
                    "in place",
                    f"uses a slot of {label} by {operation.name} that is not shown to be one of "
                    f"its {access.place.slots}",
                    operation,
                )
            return
        writes = access.write if buffer.own else buffer.producer is self.role
        array = buffer.filled
        if writes and array is not None:
            array = self.rings.partner.get(array)
        if array is None and writes and not is_repeated(operation):
            return  # filled once, before anything is read
        kinds = "fenced" if self._is_copied(access) else "held"
        alone = is_alone(operation)
        if array is not None:
            held = {Fact(kinds, array, False, number)}
            if alone and kinds == "held":
                held.add(Fact(kinds, array, True, number))
            if held & state.must:
                return
        what = "writes" if access.write else "reads"
        if kinds == "fenced" and Fact("held", array, False, number) in state.must:
            raise self._refused(
                "proxy fence",
                f"reads {label} by {operation.name}, which cp.async of another role has written, "
                "with no proxy fence after the wait for it",
                operation,
            )
        raise self._refused(
            "no race" if access.write or not access.asynchronous else "early release",
            f"{what} a slot of {label} by {operation.name} that it does not hold on every path: "
            "either no wait for this slot stands before it, or it has been handed on since",
            operation,
        )

    def _is_copied(self, access: Access) -> bool:
        """Tell whether an engine reads what cp.async of another role has written."""
        buffer = self.rings.buffers[access.place.buffer]
        beside = None if buffer.own else self.role
        return access.asynchronous and not access.write and buffer.has("cp.async", beside=beside)

    def _ordered(self, key: Key, status: Status, after: Access, number: Term) -> None:
        """Raise Refused where an access may come before an earlier one is over."""
        before = self._of(key)
        if not (before.write or after.write) or not self._meet(before, key.number, after, number):
            return
        same = before.place.buffer is after.place.buffer
        buffer = self.rings.buffers[after.place.buffer]
        if same and self._is_handed(buffer) and before.write != after.write:
            return  # the slot of one is held, and so is that of the other: at unlike barriers
        distance = meeting_distance(before.shares, after.shares) if same else 2
        if distance < 0:
            return
        label = self.rings.buffers[after.place.buffer].label
        verb = "overwrites" if after.write else "reads"
        does = f"{verb} {label} by {after.operation.name}"
        did = f"{before.operation.name} {'writes' if before.write else 'reads'} it"
        if status.age < OVER:
            raise self._refused(
                "no race" if before.write else "early release",
                f"{does} while {did}: nothing waits for that to be over",
                after.operation,
            )
        if status.level < distance:
            others = ("", "other warps of the warpgroup", "other warps")[distance]
            raise self._refused(
                "no race",
                f"{does} before it is known that {did} in {others}: no barrier of these threads "
                "stands between them",
                after.operation,
            )
        if after.asynchronous and not before.asynchronous and status.fenced < distance:
            raise self._refused(
                "proxy fence",
                f"{does}, and no proxy fence of the threads by which {did} stands between them",
                after.operation,
            )

    def _is_handed(self, buffer: Buffer) -> bool:
        """Tell whether a role hands slots to itself, at barriers, and back at others."""
        return buffer.own and buffer.filled in self.rings.partner

    def _meet(self, before: Access, earlier: Term, after: Access, number: Term) -> bool:
        """Tell whether two accesses may be to the same bytes."""
        first, second = before.place.buffer, after.place.buffer
        if first is not second:
            return second in self.rings.overlapping(first)
        return not self._apart(earlier, number, before.place.slots)

    def _apart(self, one: Term, other: Term, slots: int) -> bool:
        """Tell whether two numbers are surely of different slots."""
        apart = self.lattice.terms.number(self.lattice.terms.sub(one, other))
        return apart is not None and apart % slots != 0

    def _of(self, key: Key) -> Access:
        return self.found[key.operation, key.view, key.who]

    # --- waits and barriers -----------------------------------------------------------------------

    def wait(self, state: State, wait: hopper.Wait) -> None:
        """A wait for a slot: it is held, and what this role has copied there has landed."""
        number, alone = state.values[wait.slot], is_alone(wait)
        state.must.add(Fact("held", wait.barriers, alone, number))

        def landed(access: Access) -> bool:
            operation = access.operation
            return isinstance(operation, hopper.TmaLoad) and operation.barriers is wait.barriers

        for key, status in list(state.may.items()):
            if key.kind == "access" and status.age < OVER and key.number == number:
                if not landed(self._of(key)):
                    continue
                if alone:
                    state.may[key] = Status(OVER, 0, 2)
                else:
                    del state.may[key]

    def meet(self, state: State, barrier: hopper.NamedBarrier) -> None:
        """Threads meet: what is over in one of them is known to all."""
        if barrier.kind.data != "sync":
            return
        small = self.role.warps.data <= WARPGROUP
        level = 1 if barrier.scope.data == "warpgroup" and not small else 2

        def known(key: Key, status: Status) -> Status:
            fenced = max(level, status.fenced) if status.fenced >= 0 else status.fenced
            return status._replace(level=max(level, status.level), fenced=fenced)

        self._set(state, known, over=True)
        if level == 2:
            for fact in [fact for fact in state.must if fact.alone]:
                state.must.add(fact._replace(alone=False))

    def fence(self, state: State, fence: hopper.ProxyFence) -> None:
        """Threads fence their accesses, and the copies of others that they have waited for."""
        alone = is_alone(fence)

        def fenced(key: Key, status: Status) -> Status:
            mine = is_alone(key.operation) or not alone
            return status._replace(fenced=max(0, status.fenced)) if mine else status

        self._set(state, fenced, over=True)
        if not alone:
            for fact in [fact for fact in state.must if fact.kind == "held" and not fact.alone]:
                state.must.add(fact._replace(kind="fenced"))

    def _set(
        self, state: State, change: Callable[[Key, Status], Status], over: bool = False
    ) -> None:
        """Change how far accesses are, and leave out those that no other can meet any more."""
        for key, status in list(state.may.items()):
            if key.kind != "access" or (over and status.age < OVER):
                continue
            status = change(key, status)
            if (
                status.age == OVER
                and status.level == 2
                and (status.fenced == 2 or self._plain(key))
            ):
                del state.may[key]
            else:
                state.may[key] = status

    def _plain(self, key: Key) -> bool:
        """Tell whether threads alone access what an access touches."""
        own = self._of(key).place.buffer
        return not any(
            self.rings.buffers[each].has("tma load", "tma store", "wgmma")
            for each in self.rings.overlapping(own)
        )

    # --- groups -----------------------------------------------------------------------------------

    def commit_products(self, state: State, older: Callable[[int], int]) -> None:
        """Close the group of the products that were started."""
        self._set(
            state,
            lambda key, s: s._replace(age=older(s.age)) if self._of(key).by == "wgmma" else s,
        )

    def wait_products(self, state: State, pending: int) -> None:
        """All but the newest groups of products have read what they read, in all warps of the
        warpgroup.
        """
        small = self.role.warps.data <= WARPGROUP

        def over(key: Key, status: Status) -> Status:
            if self._of(key).by == "wgmma" and pending < status.age < OVER:
                return Status(OVER, 2 if small else 1, 2)
            return status

        self._set(state, over)

    def commit_stores(self, state: State, commit: hopper.BulkCommit) -> None:
        """Close the groups of TMA stores of some threads."""
        for key, status in self._stores(state, commit.by.data):
            if status.age < OVER:
                state.may[key] = status._replace(age=min(status.age + 1, self.most))

    def wait_stores(self, state: State, wait: hopper.BulkWait) -> None:
        """All but the newest groups of some threads have been read, or written as well."""
        for key, status in self._stores(state, wait.by.data):
            if not wait.pending.data < status.age < OVER:
                continue
            if key.kind == "access":
                state.may[key] = Status(OVER, 0, 2)
            elif not wait.read.value.data:
                del state.may[key]

    def _stores(self, state: State, by: str) -> list[tuple[Key, Status]]:
        """Return the TMA stores that some threads have started."""
        who = warps_of(by, self.role)
        return [
            (key, status)
            for key, status in state.may.items()
            if key.who in who and self._of(key).by == "tma store"
        ]

    # --- handing over -----------------------------------------------------------------------------

    def arrive(self, state: State, arrive: hopper.Arrive | hopper.CopyAsyncArrive) -> None:
        """An arrival hands a slot on: what this role does there is over, and known to who arrives.

        Of cp.async the arrival itself waits for the copies of its thread.
        """
        number, array = state.values[arrive.slot], arrive.barriers
        copies = isinstance(arrive, hopper.CopyAsyncArrive)
        by = "all" if isinstance(arrive, hopper.CopyAsyncArrive) else arrive.by.data
        alone = is_alone(arrive)
        threads = range(1) if alone else warps_of(by, self.role)
        handed = self.rings.released_at(array)
        for key, status in list(state.may.items()):
            if key.kind != "access":
                continue
            access = self._of(key)
            if copies and access.by == "cp.async" and status.age < OVER:
                if not access.place.buffer or self.rings.buffers[access.place.buffer].shared:
                    del state.may[key]  # handed over, whoever waits for them
                continue
            place = access.place
            if place.buffer not in handed:
                continue
            buffer = self.rings.buffers[place.buffer]
            if self._is_handed(buffer) and access.write != (array is buffer.filled):
                continue  # what is written goes to who takes it, what is read to who fills it
            ring = buffer.shared
            if ring and self._apart(key.number, number, place.slots):
                continue
            self._given(arrive, access, status, threads, alone)
            if ring and key.number == number:
                del state.may[key]
        partner = self.rings.partner.get(array)
        kind = array.type
        assert isinstance(kind, BarriersType)
        state.must = {
            fact
            for fact in state.must
            if fact.thing is not partner
            or partner is None
            or self._apart(fact.number, number, kind.count.data)
        }

    def _given(
        self,
        arrive: Operation,
        access: Access,
        status: Status,
        threads: Iterable[int],
        alone: bool,
    ) -> None:
        label = self.rings.buffers[access.place.buffer].label
        did = f"{access.operation.name} {'writes' if access.write else 'reads'} it"
        hands = f"hands a slot of {label} on"
        if status.age < OVER:
            raise self._refused(
                "early release", f"{hands} while {did}: nothing waits for that to be over", arrive
            )
        own = alone and not is_alone(access.operation)

        def known(level: int) -> bool:
            return _known(access.shares, set(threads), -1 if own and level == 0 else level)

        if not known(status.level):
            raise self._refused(
                "early release" if not access.write else "no race",
                f"{hands} by threads that do not know whether {did} in other warps: no barrier "
                "stands between",
                arrive,
            )
        buffer = self.rings.buffers[access.place.buffer]
        beside = None if buffer.own else self.role
        engines = buffer.has("tma load", "tma store", "wgmma", beside=beside)
        if engines and not access.asynchronous and not known(status.fenced):
            raise self._refused(
                "proxy fence",
                f"{hands} to an engine, and no proxy fence stands between the access by which "
                f"{did} and the arrival",
                arrive,
            )

    def end(self, state: State) -> None:
        """Raise Refused where copies are in flight when the role ends."""
        for key, status in state.may.items():
            access = self._of(key)
            if key.kind == "written" or (status.age < OVER and access.by != "wgmma"):
                what = access.operation.name
                raise self._refused(
                    "bulk groups" if access.by == "tma store" else "nothing is left",
                    f"ends before {what} is known to be done",
                    access.operation,
                )

    def _refused(self, name: str, what: str, operation: Operation) -> Refused:
        return Refused(rule(name), f"{self.role.label.data} {what}", operation)


def _known(shares: Shares, arriving: set[int], level: int) -> bool:
    """Tell whether for each warp that accesses something a thread arrives that knows of it."""
    for warp, mask in enumerate(shares):
        if not mask:
            continue
        if level == 2:
            known = bool(arriving)
        elif level == 1:
            known = any(each // WARPGROUP == warp // WARPGROUP for each in arriving)
        else:
            known = level == 0 and warp in arriving
        if not known:
            return False
    return True


__all__ = ["Memory"]
