"""Shared memory in a role: what is read, written, handed over and given back when (Lemmas 4, 5).

Of a buffer that one role has alone, two accesses of which one writes are ordered by barriers of the
threads that make them, and by fences of the proxy where an engine makes the second. A slot of a
ring is accessed only while it is *held*: after a wait for it, and before the arrival that hands it
on. That arrival hands on what is held, comes after all accesses to it are over, by threads whose
warps know of the wait and of them, and where it says that a slot is filled, all that is read of the
slot was put there. Of TMA the last copy hands it on: the copies of a put have the slot whose bytes
are expected, and bring as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.walk import all_of, walk
from tawa.verify.cursors import Cursors
from tawa.verify.footprints import WARPGROUP, Place, are_known, bytes_of, meeting_distance
from tawa.verify.rings import Access, Buffer, By, Rings, label_of, slots_of, warps_of
from tawa.verify.role_state import OVER, Fact, Key, Lattice, State, Status
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import Term

_FLYING = Status(0, 0, 2)
_BY_THREADS = Status(OVER, 0, -1)
_BY_COPIES = Status(0, 0, -1)
_WAITED = Status(OVER, 0, 2)
AT_RINGS = (hopper.Wait, hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive)


@dataclass(slots=True)
class Memory:
    """The accesses of one role."""

    role: hopper.Role
    rings: Rings
    lattice: Lattice
    cursors: Cursors
    most: int = 0
    """Beyond this age all groups of TMA stores are alike."""
    alone: set[Operation] = field(default_factory=set[Operation])
    """What one thread does."""
    followed: set[SSAValue] = field(default_factory=set[SSAValue])
    """Arrays of barriers at which who arrives has to know of the waits of others."""

    def __post_init__(self) -> None:
        self.alone = {op for part in all_of(self.role, hopper.OneThread) for op in walk(part)}
        waits = all_of(self.role, hopper.BulkWait)
        self.most = 1 + max((wait.pending.data for wait in waits), default=0)
        for each in all_of(self.role, *AT_RINGS):
            if not isinstance(each, hopper.Wait):
                self.followed |= self._waited(each.barriers)

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
        buffer, operation = self.rings.buffers[access.place.buffer], access.operation
        if buffer.filled is not None and buffer.is_put(access):
            if access.by == "tma load" and access.words & self._put(state, access.place, number):
                raise self._refused(
                    "one put",
                    f"copies two boxes of one put to the same bytes of {buffer.label}",
                    operation,
                )
            state.must.add(Fact("put", access, False, number))
        if buffer.handed:
            return
        if access.write:
            state.must.add(Fact("written", access.place.buffer, False, number))
        elif not any(
            fact.kind == "written"
            and fact.thing is access.place.buffer
            and self._apart(fact.number, number, access.place.slots) is False
            for fact in state.must
        ):
            raise self._refused(
                "memory written first",
                f"reads {buffer.label} by {operation.name}: shared memory that not every path has "
                "written",
                operation,
            )

    def _put(self, state: State, place: Place, number: Term) -> int:
        """Return the words of a slot that were put there and are not yet published."""
        found = 0
        for fact in state.must:
            if isinstance(put := fact.thing, Access) and fact.number == number:
                found |= put.words if put.place.buffer is place.buffer else 0
        return found

    def _note(self, state: State, access: Access, number: Term) -> None:
        buffer = self.rings.buffers[access.place.buffer]
        if buffer.handed and access.by == "tma load":
            return  # it completes on the barrier of its slot, for whoever waits there
        match access.by:
            case "threads":
                status = _BY_THREADS
            case "cp.async":
                status = _BY_COPIES
            case _:
                status = _FLYING
        state.may[Key("access", access, number)] = status
        if access.by == "tma store":
            # Of whichever slot: nothing comes before what waits for all of them.
            state.may[Key("written", access, self.lattice.terms.zero)] = _FLYING

    def _held(self, state: State, access: Access, number: Term) -> None:
        """A slot of a ring is accessed between the wait for it and the arrival after it."""
        buffer, slots = self.rings.buffers[access.place.buffer], access.place.slots
        operation, label = access.operation, buffer.label
        if not self.cursors.is_slot(access.place.index, slots):
            raise self._refused(
                "slots" if buffer.handed else "in place",
                f"uses a slot of {label} by {operation.name} that is not shown to be one of its "
                f"{slots}",
                operation,
            )
        if not buffer.handed:
            return
        is_mine = not access.write or buffer.is_put(access)
        if not is_mine and len({*map(self.cursors.numbers.agent, buffer.readers())}) > 1:
            raise self._refused(
                "slots",
                f"writes into a slot of {label} by {operation.name}, which other roles read",
                operation,
            )
        writes = access.write if buffer.own else buffer.producer is self.role
        array = buffer.freed if writes else buffer.filled
        kind = "fenced" if self._is_copied(access) else "held"
        alone = access.alone and kind == "held"
        if array is not None and self._has(state, kind, array, number, alone):
            return
        if kind == "fenced" and array is not None and self._has(state, "held", array, number):
            raise self._refused(
                "proxy fence",
                f"reads {label} by {operation.name}, which cp.async of another role has written, "
                "with no proxy fence after the wait for it",
                operation,
            )
        raise self._refused(
            "slots",
            f"{'writes' if access.write else 'reads'} a slot of {label} by {operation.name} that "
            "it does not hold on every path: either no wait for this slot stands before it, or it "
            "has been handed on since",
            operation,
        )

    def _has(
        self, state: State, kind: str, array: SSAValue, number: Term, alone: bool = False
    ) -> bool:
        """Tell whether a slot is held, by all threads, or (`alone`) by one."""
        facts = (Fact(kind, array, each, number) for each in (False, True)[: 1 + alone])
        return any(fact in state.must for fact in facts)

    def _is_copied(self, access: Access) -> bool:
        """Tell whether an engine reads what cp.async of another role has written."""
        buffer = self.rings.buffers[access.place.buffer]
        beside = None if buffer.own else self.role
        return access.asynchronous and not access.write and buffer.has("cp.async", beside=beside)

    def _ordered(self, key: Key, status: Status, after: Access, number: Term) -> None:
        """Raise Refused where an access may come before an earlier one is over."""
        before = key.thing
        assert isinstance(before, Access)
        if not (before.write or after.write) or not self._meet(before, key.number, after, number):
            return
        same = before.place.buffer is after.place.buffer
        buffer = self.rings.buffers[after.place.buffer]
        if same and self._is_lent(buffer) and before.write != after.write:
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

    def _is_lent(self, buffer: Buffer) -> bool:
        """Tell whether a role hands slots to itself, at barriers, and back at others."""
        return buffer.own and buffer.freed is not None

    def _meet(self, before: Access, earlier: Term, after: Access, number: Term) -> bool:
        """Tell whether two accesses may be to the same bytes."""
        first, second = before.place.buffer, after.place.buffer
        if first is not second:
            return second in self.rings.overlapping(first)
        return not self._apart(earlier, number, before.place.slots)

    def _apart(self, one: Term, other: Term, slots: int) -> bool | None:
        """Tell whether two numbers are of different slots, None where either may be."""
        apart = self.lattice.terms.number(self.lattice.terms.sub(one, other))
        return None if apart is None else apart % slots != 0

    # --- waits and barriers -----------------------------------------------------------------------

    def wait(self, state: State, wait: hopper.Wait) -> None:
        """A wait for a slot: it is held, and what this role has copied there has landed."""
        number, alone = state.values[wait.slot], wait in self.alone
        state.must.add(Fact("held", wait.barriers, alone, number))
        if wait.barriers in self.followed:
            state.may[Key("wait", wait, number)] = _WAITED
        for key, status in list(state.may.items()):
            if isinstance(key.thing, Access) and status.age < OVER and key.number == number:
                load = key.thing.operation
                if not isinstance(load, hopper.TmaLoad) or load.barriers is not wait.barriers:
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
        alone = fence in self.alone

        def fenced(key: Key, status: Status) -> Status:
            by = key.thing.operation if isinstance(key.thing, Access) else key.thing
            mine = not alone or by in self.alone
            return status._replace(fenced=max(0, status.fenced)) if mine else status

        self._set(state, fenced, over=True)
        if not alone:
            for fact in [each for each in state.must if each.kind == "held" and not each.alone]:
                state.must.add(fact._replace(kind="fenced"))

    def _set(
        self, state: State, change: Callable[[Key, Status], Status], over: bool = False
    ) -> None:
        """Change how far accesses are, and leave out those that no other can meet any more."""
        for key, status in list(state.may.items()):
            if key.kind == "written" or (over and status.age < OVER):
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
        if not isinstance(key.thing, Access):
            return True
        own = key.thing.place.buffer
        return not any(
            self.rings.buffers[each].has("tma load", "tma store", "wgmma")
            for each in self.rings.overlapping(own)
        )

    # --- groups -----------------------------------------------------------------------------------

    def commit_products(self, state: State, older: Callable[[int], int]) -> None:
        """Close the group of the products that were started."""
        self._set(state, lambda key, s: s._replace(age=older(s.age)) if self._product(key) else s)

    def wait_products(self, state: State, pending: int) -> None:
        """All but the newest groups of products have read what they read, in all warps of the
        warpgroup: these came to the products, and so from the waits for what they read.
        """
        level = 2 if self.role.warps.data <= WARPGROUP else 1
        read: set[tuple[SSAValue | None, Term]] = set()
        for key, status in state.may.items():
            if (product := self._product(key)) and pending < status.age < OVER:
                buffer = self.rings.buffers[product.place.buffer]
                read |= {(array, key.number) for array in (buffer.filled, buffer.freed)}

        def over(key: Key, status: Status) -> Status:
            wait = key.thing
            if isinstance(wait, hopper.Wait):
                told = wait not in self.alone and (wait.barriers, key.number) in read
                return status._replace(level=max(level, status.level)) if told else status
            if self._product(key) and pending < status.age < OVER:
                return Status(OVER, level, 2)
            return status

        self._set(state, over)

    def _product(self, key: Key) -> Access | None:
        access = key.thing
        return access if isinstance(access, Access) and access.by == "wgmma" else None

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
            if isinstance(store := key.thing, Access)
            and store.by == "tma store"
            and store.leader in who
        ]

    # --- handing over -----------------------------------------------------------------------------

    def arrive(self, state: State, arrive: hopper.Arrive | hopper.CopyAsyncArrive) -> None:
        """An arrival hands a slot on: what this role does there is over, and known to who arrives.

        Of cp.async the arrival itself waits for the copies of its thread.
        """
        number, array = state.values[arrive.slot], arrive.barriers
        copies = isinstance(arrive, hopper.CopyAsyncArrive)
        by = "all" if isinstance(arrive, hopper.CopyAsyncArrive) else arrive.by.data
        alone = arrive in self.alone
        threads = range(1) if alone else warps_of(by, self.role)
        self._hands(state, arrive, threads)
        handed = self.rings.handed_at(array)
        for key, status in list(state.may.items()):
            access = key.thing
            if key.kind != "access" or not isinstance(access, Access):
                continue
            if copies and access.by == "cp.async" and status.age < OVER:
                if self.rings.buffers[access.place.buffer].handed:
                    del state.may[key]  # handed over, whoever waits for them
                continue
            place = access.place
            if place.buffer not in handed:
                continue
            buffer = self.rings.buffers[place.buffer]
            if self._is_lent(buffer) and access.write != (array is buffer.filled):
                continue  # what is written goes to who takes it, what is read to who fills it
            if buffer.handed and self._apart(key.number, number, place.slots):
                continue
            self._given(arrive, access, status, threads, alone)
            if buffer.handed and key.number == number:
                del state.may[key]
        self._publish(state, arrive, array, number, by_engine=False)

    def _hands(
        self,
        state: State,
        operation: hopper.Arrive | hopper.Expect | hopper.CopyAsyncArrive,
        threads: Iterable[int],
    ) -> None:
        """Who hands a slot on holds it, and knows of each warp that it has waited for the slot."""
        number, at = state.values[operation.slot], operation.barriers
        alone, here = operation in self.alone, self._waited(at)
        for array in self.rings.partners(at):
            if not self._has(state, "held", array, number, alone):
                raise self._refused(
                    "slots",
                    f"hands a slot on at {label_of(at)} that it does not hold on every path: it "
                    f"has not waited for it at {label_of(array)}, or has handed it on already",
                    operation,
                )
        for key, status in list(state.may.items()):
            wait = key.thing
            if not isinstance(wait, hopper.Wait) or wait.barriers not in here:
                continue
            apart = self._apart(key.number, number, slots_of(at))
            waited = (1,) * (1 if wait in self.alone else self.role.warps.data)
            if not apart and not are_known(waited, set(threads), status.level):
                raise self._refused(
                    "early release",
                    f"hands a slot on at {label_of(at)} by threads that do not know whether other "
                    f"warps have waited for it at {label_of(wait.barriers)}: no barrier and no "
                    "wait for products that read the slot stands between",
                    operation,
                )
            if apart is False:
                del state.may[key]

    def _waited(self, at: SSAValue) -> set[SSAValue]:
        """Return the arrays at which slots come that are handed on at another: itself, where who
        fills a ring takes from it and nobody says that a slot is free.
        """
        return set(self.rings.partners(at)) or {at}

    def _publish(
        self, state: State, operation: Operation, array: SSAValue, number: Term, by_engine: bool
    ) -> None:
        """A slot is handed on: all that others read of it was put there, and it is not held."""
        filled = [e for e in self.rings.of_filled(array) if e.producer is self.role]
        for buffer in [e for e in filled if e.has("tma load") == by_engine] or filled:
            place = next(access.place for access in buffer.accesses)
            if buffer.words_read & ~self._put(state, place, number):
                raise self._refused(
                    "one put",
                    f"publishes a slot of {buffer.label} by {operation.name}, and what is read of "
                    "it was not all put there on every path",
                    operation,
                )
        depth, waited = slots_of(array), self._waited(array)
        mine = [e.made.result for e in filled]

        def is_given(fact: Fact) -> bool:
            thing = fact.thing
            if isinstance(thing, Access):
                given = thing.place.buffer in mine
            else:
                given = fact.kind in ("held", "fenced") and thing in waited
            return given and not self._apart(fact.number, number, depth)

        state.must = {fact for fact in state.must if not is_given(fact)}

    # --- copies by TMA ----------------------------------------------------------------------------

    def expect(self, state: State, expect: hopper.Expect) -> None:
        """A put begins: so many bytes are to come to a slot that is held."""
        at = expect.barriers
        if at in state.owed:
            raise self._refused("one put", f"expects bytes at {label_of(at)} twice", expect)
        self._hands(state, expect, range(1))
        state.owed[at] = state.values[expect.slot], expect.bytes.data

    def load(self, state: State, load: hopper.TmaLoad) -> None:
        """A copy is a part of the put whose bytes are expected; the last one hands the slot on."""
        at = load.barriers
        number, owed = state.owed.get(at, (None, 0))
        if number is None:
            raise self._refused(
                "one put", f"copies to {label_of(at)}, which expects no bytes before it", load
            )
        (access,) = self.rings.of[load]
        slots = {number, state.values[load.slot], state.values[access.place.index]}
        if len(slots) > 1 or not self.cursors.is_slot(load.slot, slots_of(at)):
            raise self._refused(
                "slots",
                f"copies to a slot of {self.rings.buffers[access.place.buffer].label} that is not "
                f"shown to be the one for which {label_of(at)} expects bytes and completes",
                load,
            )
        left = owed - bytes_of(load.view)
        if left < 0:
            raise self._refused("one put", f"copies more bytes than {label_of(at)} expects", load)
        state.owed[at] = number, left
        if not left:
            del state.owed[at]
            self._publish(state, load, at, number, by_engine=True)

    def paid(self, state: State, where: Operation) -> None:
        """Raise Refused where bytes are expected for which no copy stands beside it."""
        for at, (_, left) in state.owed.items():
            raise self._refused(
                "one put",
                f"expects {left} bytes at {label_of(at)} for which no copy stands beside it",
                where,
            )

    # --- over -------------------------------------------------------------------------------------

    def _given(
        self, arrive: Operation, access: Access, status: Status, threads: Iterable[int], alone: bool
    ) -> None:
        label = self.rings.buffers[access.place.buffer].label
        did = f"{access.operation.name} {'writes' if access.write else 'reads'} it"
        hands = f"hands a slot of {label} on"
        if status.age < OVER:
            raise self._refused(
                "early release", f"{hands} while {did}: nothing waits for that to be over", arrive
            )
        own = alone and not access.alone

        def known(level: int) -> bool:
            return are_known(access.shares, set(threads), -1 if own and level == 0 else level)

        if not known(status.level):
            raise self._refused(
                "early release" if not access.write else "no race",
                f"{hands} by threads that do not know whether {did} in other warps: no barrier "
                "stands between",
                arrive,
            )
        buffer = self.rings.buffers[access.place.buffer]
        beside = None if buffer.own else self.role
        # Engines that write meet what is read here; those that read as well meet what is written.
        kinds: tuple[By, ...] = ("tma load", "tma store", "wgmma")[: 3 if access.write else 1]
        engines = buffer.has(*kinds, beside=beside)
        if engines and not access.asynchronous and not known(status.fenced):
            raise self._refused(
                "proxy fence",
                f"{hands} to an engine, and no proxy fence stands between the access by which "
                f"{did} and the arrival",
                arrive,
            )

    def end(self, state: State) -> None:
        """Raise Refused where copies are in flight when the role ends."""
        self.paid(state, self.role)
        for key, status in state.may.items():
            access = key.thing
            if not isinstance(access, Access):
                continue
            if key.kind == "written" or (status.age < OVER and access.by != "wgmma"):
                what = access.operation.name
                raise self._refused(
                    "bulk groups" if access.by == "tma store" else "nothing is left",
                    f"ends before {what} is known to be done",
                    access.operation,
                )

    def _refused(self, name: str, what: str, operation: Operation) -> Refused:
        return Refused(rule(name), f"{self.role.label.data} {what}", operation)
