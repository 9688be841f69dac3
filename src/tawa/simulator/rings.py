"""What an aref is while it runs: slots, how often each was filled, and by whom it was freed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tawa.simulator.clocks import Clock
from tawa.simulator.scheduler import Task


@dataclass(eq=False, slots=True)
class Slot:
    """One slot: its values, how often it was filled, and by whom each filling was freed."""

    values: list[Any] = field(default_factory=list[Any])
    fills: int = 0
    frees: dict[str, int] = field(default_factory=dict[str, int])
    filled: Clock = field(default_factory=lambda: np.zeros(0, np.int32))
    filled_time: float = 0.0
    freed_time: float = 0.0
    freed: list[Clock] = field(default_factory=list[Clock])


@dataclass(eq=False, slots=True)
class Ring:
    """An aref of one program: D slots, one producer, and every role that gets from it."""

    label: str
    depth: int
    consumers: tuple[str, ...]
    slots: list[Slot]
    puts: int = 0
    published: int = 0
    gets: dict[str, int] = field(default_factory=dict[str, int])
    exits: dict[str, int] = field(default_factory=dict[str, int])
    passed: dict[str, int] = field(default_factory=dict[str, int])
    """By consumer: the number from which on it has only passed over fillings, whether or not there
    are so many."""
    queue: list[Task] = field(default_factory=list[Task])

    def is_free(self, nth: int) -> bool:
        """Tell whether the slot of the producer's `nth`-th put has been freed by all."""
        slot, before = self.slots[nth % self.depth], nth // self.depth
        return all(slot.frees.get(consumer, 0) >= before for consumer in self.consumers)

    def is_filled(self, nth: int) -> bool:
        """Tell whether the slot of a consumer's `nth`-th get has been published."""
        return self.slots[nth % self.depth].fills > nth // self.depth

    def owed(self) -> str:
        """Return what is left over at the end, or the empty string."""
        if self.published < self.puts:
            return f"{self.puts - self.published} slots entered and never published"
        for consumer in self.consumers:
            got, freed = self.gets.get(consumer, 0), self.exits.get(consumer, 0)
            if not self.passed.get(consumer, got) <= self.published <= got:
                return f"{self.published} slots published, {got} taken by {consumer}"
            if freed != got:
                return f"{got - freed} slots taken by {consumer} and never freed"
        return ""
