"""Accesses to shared memory and whether any two of them may race.

Only accesses that a later one could still conflict with are kept: a write replaces all it covers,
since whoever is ordered after it is ordered after them; but not one that several agents do alike,
since these are not ordered after one another. An asynchronous access is known through its
completion; an access by threads is ordered before an asynchronous one only if its own thread fenced
the proxy after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xdsl.ir import Operation

from tawa.ir import line_of
from tawa.simulator.proof.expressions import Scalar
from tawa.simulator.proof.machine import Agent
from tawa.simulator.proof.rules import Row, Violation
from tawa.simulator.proof.tables import new_dict


@dataclass(eq=False, slots=True)
class Access:
    """One access to a bucket: `event` is what others must know of it. Others do an `alike` one at
    the same time, to some of the same bytes.
    """

    mask: int
    event: int
    write: bool
    asynchronous: bool
    agent: Agent
    what: str
    operation: Operation
    step: int
    turn: int = 0
    alike: bool = False


Key = tuple[int, int, bool, bool, str]
Place = tuple[int, int]
"""Which bucket of a block it is."""


@dataclass(eq=False, slots=True)
class Bucket:
    """The accesses to one piece of shared memory that still matter; `put` is what was copied here
    last: its array and number. `scalars` are those that threads have put where a mask says.

    All events of reads are among `read`, of accesses by threads and of asynchronous ones, those of
    writes among `wrote`: who knows these is ordered after all that is kept.
    """

    name: str
    reads: dict[Key, Access] = field(default_factory=new_dict)
    writes: dict[Key, Access] = field(default_factory=new_dict)
    written: int = 0
    read: int = 0
    read_later: int = 0
    wrote: int = 0
    wrote_later: int = 0
    put: tuple[int, int] | None = None
    scalars: dict[int, Scalar] = field(default_factory=new_dict)

    def see(self, agent: Agent, buffer: int, operation: Operation) -> None:
        """Check that a read sees the put it should: rule "matching trips".

        `put` is (array, number) of what was copied here last. When the agent has got more from the
        ring since this operation read it, the put must be a later one; it is never an earlier one.
        """
        if self.put is None or not agent.leader:
            return
        array, number = self.put
        gets = agent.gets.get(array, 0)
        key = (id(operation), array, buffer)
        last, had = agent.puts.get(key, (-1, 0))
        agent.puts[key] = (number, gets)
        if number < last or (number == last and gets > had):
            sentence = (
                f"{agent.label} reads put {number} of {self.name} by {operation.name}, after put "
                f"{last} and {gets} gets: it is not the tile of this trip."
            )
            raise Violation("matching trips", sentence, operation)

    def check(self, access: Access, agent: Agent) -> None:
        """Raise Violation where an earlier conflicting access is not ordered before this one of an
        agent.
        """
        # Masks are long, and most accesses are ordered after all before: that is looked at first.
        mask, known = access.mask, agent.known
        threads = agent.fenced if access.asynchronous else known  # what orders accesses by threads
        later, soon = self.wrote_later, self.wrote
        if (later and known & later != later) or (soon and threads & soon != soon):
            for before in self.writes.values():
                if not (known if before.asynchronous else threads) & before.event and (
                    before.mask & mask and not _together(before, access, agent)
                ):
                    raise self._conflict(before, access, agent)
        if not access.write:
            if self.written is not mask and self.written & mask != mask:
                sentence = f"{agent.label} reads {self.name} ({access.what}) before it is written."
                raise Violation("written first", sentence, access.operation)
            return
        later, soon = self.read_later, self.read
        if (later and known & later != later) or (soon and threads & soon != soon):
            for before in self.reads.values():
                if not (known if before.asynchronous else threads) & before.event and (
                    before.mask & mask
                ):
                    raise self._conflict(before, access, agent)

    def record(self, access: Access) -> None:
        """Keep an access that was checked."""
        agent = access.agent
        # A fence of one thread is none of the others: its accesses do not stand for theirs. Masks
        # are long to hash, and those of one place are mostly one object, which its access keeps.
        mask, asynchronous = access.mask, access.asynchronous
        key = (id(mask), agent.number, agent.single, asynchronous, access.what)
        if not access.write:
            self.reads[key] = access
            if asynchronous:
                self.read_later |= access.event
            else:
                self.read |= access.event
            return
        if self.written is not mask:
            self.written = self.written | mask if self.written else mask
        if self.scalars:
            for place in [place for place in self.scalars if place & mask]:
                del self.scalars[place]
        if not access.alike:
            if not _drop(self.reads, mask):
                self.read = self.read_later = 0
            if not _drop(self.writes, mask):
                self.wrote = self.wrote_later = 0
        self.writes[key] = access
        if asynchronous:
            self.wrote_later |= access.event
        else:
            self.wrote |= access.event

    def _conflict(self, before: Access, after: Access, agent: Agent) -> Violation:
        first, second = before.agent.label, agent.label
        rows = tuple(
            Row(item.step, who, line_of(item.operation), f"{item.what}: {self.name}")
            for item, who in ((before, first), (after, second))
        )
        verb = "overwrites" if after.write else "reads"
        if agent.known & before.event and not before.asynchronous:
            did = "wrote" if before.write else "read"
            sentence = (
                f"{second} {verb} {self.name} by {after.what}, which threads of {first} {did}: no "
                f"proxy fence of {first} orders its access before the asynchronous one."
            )
            return Violation("proxy fence", sentence, after.operation, rows)
        if before.asynchronous and not before.write:
            sentence = (
                f"{second} {verb} {self.name} by {after.what} while {before.what} of {first} may "
                "still read it: the slot is reused, or given back, before that is known to be done."
            )
            return Violation("early release", sentence, after.operation, rows)
        if before.asynchronous:
            sentence = (
                f"{second} {verb} {self.name} by {after.what} before the bytes of {before.what} of "
                f"{first} are known to have landed: no wait on their barrier stands between."
            )
            return Violation("no race", sentence, after.operation, rows)
        sentence = (
            f"{second} {verb} {self.name} by {after.what} while {before.what} of {first} may not "
            "have been done yet: no barrier orders them."
        )
        return Violation("no race", sentence, after.operation, rows)


class Memory(dict[Place, Bucket]):
    """The buckets of a block, made when they are first used."""

    def __init__(self, names: Mapping[Place, str], make: Callable[[str], Bucket]) -> None:
        super().__init__()
        self.names, self.make = names, make

    def __missing__(self, place: Place) -> Bucket:
        made = self[place] = self.make(self.names[place])
        return made

    def make_all(self) -> None:
        """Make those that were not used yet as well."""
        self.update({place: self[place] for place in self.names})


def _drop(table: dict[Key, Access], mask: int) -> bool:
    """Drop the accesses to what a mask covers; tell whether others are left."""
    if not table:
        return False
    covered: list[Key] = []
    for key, old in table.items():
        other = old.mask
        # A part of a mask is no larger number: that tells most apart.
        if other is mask or (other <= mask and other & mask == other):
            covered.append(key)
    if len(covered) == len(table):
        table.clear()
        return False
    for key in covered:
        del table[key]
    return True


def _together(before: Access, after: Access, agent: Agent) -> bool:
    """Tell whether warps that execute one store together write the same: replicated registers."""
    if after.asynchronous or not before.write or before.operation is not after.operation:
        return False
    return before.turn == after.turn and before.agent.role == agent.role
