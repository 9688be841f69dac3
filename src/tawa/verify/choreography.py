"""Lemmas 1 to 3: all roles run together once, for every launch at the same time.

Synchronization leaves no choice: what an agent waits for is not taken from it by another. So if one
order of the agents ends, every order does (R. Keller, "A fundamental theorem of asynchronous parallel
computation", 1975), and one is looked at: the last agent that can go on goes on. What decides loops
and conditions is asked of `Decisions`, which leaves out no launch; numbers of rings are counted from
the least that an agent has still to do with. Places where runs meet again are found to be known, so
that all trip counts are looked at in finitely many steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.walk import all_of
from tawa.verify.agents import (
    Access,
    Agent,
    Arrive,
    Branch,
    Choose,
    Compiler,
    Compute,
    Copy,
    Done,
    End,
    Enter,
    Head,
    Jump,
    Leave,
    Meet,
    Move,
    Moves,
    Next,
    Step,
    Token,
    Turn,
    Wait,
    relevant_scalars,
    slots_of,
)
from tawa.verify.control import Events
from tawa.verify.counts import Count, Counts
from tawa.verify.cursors import NOTHING, Cursors, Fact, Facts, Operand
from tawa.verify.decisions import EXACT, Decisions, Known, Label, Labels, Place, answered
from tawa.verify.parity import Parity
from tawa.verify.rules import Refused, rule
from tawa.verify.sums import Ramp
from tawa.verify.terms import Term
from tawa.verify.values import Values

Env = dict[SSAValue, Facts]


@dataclass(slots=True)
class State:
    """Where all agents are. Numbers of a ring are counted from where the run last set its origin."""

    at: list[int]
    labels: list[Labels]
    waits: list[int]
    """By (agent, ring) that waits."""
    units: list[int]
    """By (agent, ring) that arrives: single arrivals."""
    ahead: list[int]
    """By pair of a wait and an arrival of one agent: waits done less numbers arrived."""
    safe: list[int]
    """The same, of waits that all threads of the agent have behind them."""
    owed: list[int]
    """By arriver: bytes that are expected and not yet copied."""
    exact: list[bool]
    """By ring: whether its origin is still the beginning."""
    known: Known
    env: list[Env]
    parked: list[dict[int, Env]]
    """What instances that are not at work know, counted from the beginning of the tile."""
    active: list[int]
    announced: frozenset[int] = frozenset()
    """Named barriers that have been announced and not yet taken."""
    token: list[int] = field(default_factory=list[int])
    """By agent of instances: 1 the tile may begin, 2 it has been handed on, 0 neither."""

    def copy(self) -> State:
        return State(
            list(self.at),
            list(self.labels),
            list(self.waits),
            list(self.units),
            list(self.ahead),
            list(self.safe),
            list(self.owed),
            list(self.exact),
            self.known,
            [dict(each) for each in self.env],
            [{who: dict(env) for who, env in each.items()} for each in self.parked],
            list(self.active),
            self.announced,
            list(self.token),
        )


@dataclass(frozen=True, slots=True)
class _Tables:
    """What is counted: who waits and arrives where, and which counts are compared."""

    waiters: tuple[tuple[int, int], ...]
    arrivers: tuple[tuple[int, int], ...]
    needs: tuple[int, ...]
    """By arriver: its arrivals of one number."""
    pairs: tuple[tuple[int, int], ...]
    """(waiter, arriver) of one agent that wait and arrive equally often."""


@dataclass(slots=True)
class Choreography:
    """All roles of a kernel, run together."""

    kernel: tile.Kernel
    values: Values
    counts: Counts
    roles: Events
    rings: list[hopper.Barriers] = field(default_factory=list[hopper.Barriers])
    depths: tuple[int, ...] = ()
    agents: list[Agent] = field(default_factory=list[Agent])
    waiter: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    arriver: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    needs: list[int] = field(default_factory=list[int])
    pairs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    pair: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    leads: dict[int, int] = field(default_factory=dict[int, int])
    least: list[int | None] = field(default_factory=list[int | None])
    shared: dict[SSAValue, set[tuple[int, int]]] = field(
        default_factory=dict[SSAValue, set[tuple[int, int]]]
    )
    """By buffer that agents share: the rings (filled, freed) that keep them apart, by number; freed
    is -1 where the one who takes from it fills it itself."""
    states: int = 0
