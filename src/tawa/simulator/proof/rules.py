"""The rules of the proof, in one table: a name, what holds, and where the hardware says so.

Every finding of the proof is a `Violation` of one rule; its sentence names the values at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Operation


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `holds` is what must be true, `source` the section that demands it."""

    name: str
    holds: str
    source: str


_TABLE = (
    Rule(
        "no hang",
        "every wait is answered: an order of the roles in which nobody is left waiting exists",
        'PTX ISA, "mbarrier.try_wait", "barrier"',
    ),
    Rule(
        "no race",
        "two accesses to the same bytes, one of them a write, are ordered by synchronization",
        'PTX ISA, "Memory Consistency Model"',
    ),
    Rule(
        "proxy fence",
        "an access by a thread and an asynchronous one (TMA, wgmma) to the same bytes have a "
        "fence of the proxy between them, in the accessing thread",
        'PTX ISA, "Async proxy", "fence.proxy.async"',
    ),
    Rule(
        "early release",
        "a slot is given back only after all that reads it has finished",
        'PTX ISA, "wgmma.wait_group", "cp.async.bulk.wait_group"',
    ),
    Rule(
        "written first",
        "shared memory is read only after it has been written",
        'PTX ISA, "Shared State Space"',
    ),
    Rule(
        "one phase at a time",
        "a wait knows its phase by parity only, so the next phase may not complete before it",
        'PTX ISA, "mbarrier.test_wait", phaseParity',
    ),
    Rule(
        "arrivals of one phase",
        "an arrival, or bytes, come after the completion of the phase before",
        'PTX ISA, "Phase of the mbarrier object"',
    ),
    Rule(
        "arrival count",
        "a phase gets exactly the arrivals the barrier was initialised with",
        'PTX ISA, "mbarrier.init"',
    ),
    Rule(
        "expected bytes",
        "the bytes expected in a phase are the bytes of the copies that complete on it",
        'PTX ISA, "expect-tx operation", "complete-tx operation"',
    ),
    Rule(
        "barrier initialised",
        "a barrier is used only after its initialisation, ordered by a synchronization of the "
        "block (of the cluster, where other blocks use it)",
        'PTX ISA, "mbarrier.init"',
    ),
    Rule(
        "barrier fenced",
        "TMA and other blocks see an initialised barrier only after fence.mbarrier_init",
        'PTX ISA, "fence.mbarrier_init"',
    ),
    Rule(
        "barriers in place",
        "barriers lie in bytes of their own, aligned to 8",
        'PTX ISA, "Size and alignment of mbarrier object"',
    ),
    Rule(
        "buffers in place",
        "a buffer, its slots and the views that engines take start where their swizzle does",
        'PTX ISA, "Swizzling modes", "Matrix descriptor"; CUDA driver API, tensor map swizzle',
    ),
    Rule(
        "maps fit their views",
        "the box and the swizzle of a tensor map are those of the view it fills or empties",
        'CUDA driver API, "cuTensorMapEncodeTiled"',
    ),
    Rule(
        "nothing is left",
        "at exit no phase is open, no copy is in flight, every slot has been given back",
        'PTX ISA, "mbarrier.inval", "cp.async.bulk.wait_group"',
    ),
    Rule(
        "accumulators at rest",
        "registers of a wgmma are read, written or copied only after a wait that names them and "
        "covers its group",
        'PTX ISA, "wgmma.mma_async", "wgmma.wait_group"',
    ),
    Rule(
        "accumulators written first",
        "registers are read, by a thread or by a product that adds to them, only after something "
        "has written them",
        'PTX ISA, "wgmma.mma_async", scale-d',
    ),
    Rule(
        "wgmma fence",
        "a wgmma.fence stands between any access to registers and the wgmma that uses them",
        'PTX ISA, "wgmma.fence"',
    ),
    Rule(
        "wgmma commit",
        "a wait covers only groups that were committed",
        'PTX ISA, "wgmma.commit_group"',
    ),
    Rule(
        "whole warpgroups",
        "wgmma and setmaxnreg are executed by all warps of a warpgroup",
        'PTX ISA, "wgmma", "setmaxnreg"',
    ),
    Rule(
        "all threads of a warp",
        "barriers and collective operations are executed by all threads of their warps",
        'PTX ISA, "barrier", ".aligned"',
    ),
    Rule(
        "threads agree",
        "what decides whether or how threads of a role do something together is the same number in "
        "all of them",
        'PTX ISA, "barrier", ".aligned"; "Memory Consistency Model"',
    ),
    Rule(
        "named barrier",
        "a named barrier has one number of 1..15, one group of participants and one count",
        'PTX ISA, "barrier", "bar"',
    ),
    Rule(
        "bulk groups",
        "TMA stores are committed and waited for by the thread that started them",
        'PTX ISA, "cp.async.bulk.commit_group"',
    ),
    Rule(
        "register budget",
        "the registers of a role were granted, and all grants fit into what the block has",
        'PTX ISA, "setmaxnreg"',
    ),
    Rule(
        "matching trips",
        "the n-th get of a slot sees what the n-th put wrote",
        "the meaning of an aref: a ring is first in, first out",
    ),
    Rule(
        "peers alive",
        "a block of a cluster stays until remote arrives and multicast copies to it have landed",
        'PTX ISA, "mapa", "barrier.cluster"; CUDA Programming Guide, "Distributed Shared Memory"',
    ),
    Rule(
        "global order",
        "a load may not run ahead of a store of another role to the same memory",
        'PTX ISA, "Memory Consistency Model"; order of the program',
    ),
    Rule(
        "kernels in order",
        "a kernel that begins while those before it in the stream end waits for them, in each role "
        "above all that touches global memory",
        'PTX ISA, "griddepcontrol"; CUDA Programming Guide, "Programmatic Dependent Launch"',
    ),
    Rule(
        "one owner",
        "what an atomic gave to one thread reaches others through shared memory only",
        'PTX ISA, "atom"; one thread makes it for all that hold the element',
    ),
    Rule(
        "form",
        "the kernel has the form that hopper IR promises",
        "the operations' own definitions",
    ),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in _TABLE}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the trace: who did what, or (step 0) waits for it. `need` is "arrived/needed"."""

    step: int
    role: str
    line: int
    what: str
    phase: str = "-"
    need: str = "-"


class Violation(Exception):  # noqa: N818
    """A rule does not hold; `sentence` says with the names at hand what is wrong."""

    def __init__(
        self,
        rule: str,
        sentence: str,
        operation: Operation | None = None,
        rows: tuple[Row, ...] = (),
    ) -> None:
        self.rule = RULES[rule]
        self.sentence = sentence
        self.operation = operation
        self.rows = rows
        super().__init__(sentence)


Contested: TypeAlias = tuple[str, int, int, int]
"""What is contested: "mbarrier", block, array, slot; "named", block, number; "registers", block."""


class Contest(Violation):
    """A rule of conflict-freedom does not hold: the order of the agents may matter at `barrier`."""

    def __init__(
        self,
        rule: str,
        sentence: str,
        operation: Operation | None,
        barrier: Contested,
        rows: tuple[Row, ...] = (),
    ) -> None:
        super().__init__(rule, sentence, operation, rows)
        self.barrier = barrier


class Unproved(Exception):  # noqa: N818
    """The proof cannot say anything: an operation it does not know, a budget that is spent, or a
    `rule` of which it is not shown that it holds.
    """

    def __init__(
        self, sentence: str, operation: Operation | None = None, rule: str | None = None
    ) -> None:
        self.sentence = sentence
        self.operation = operation
        self.rule = RULES[rule] if rule is not None else None
        super().__init__(sentence)


class Idle(Unproved):
    """A slot or phase is asked for that was taken not to be (see `positions`)."""


class Endless(Unproved):
    """A loop whose condition the program computes did not come to its end."""


class Impatient(Endless):
    """A loop did not come to its end within the trips of a hasty run."""


class OutOfSteps(Unproved):
    """A run took more steps than it was given."""
