"""The rules of the check, each with its sentence, and what a refusal names."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `holds` is what must be true."""

    name: str
    holds: str


_RULES = {
    item.name: item
    for item in (
        Rule("form", "synchronization stands in roles, loops and conditions"),
        Rule("arrivals", "an arrival is counted for the threads that the barrier expects"),
        Rule(
            "bytes",
            "the bytes that a barrier expects are those of the copies that complete on it, for "
            "every input",
        ),
        Rule("meetings", "each turn that is passed on is taken, in turn"),
        Rule(
            "received",
            "a number that a role takes from a ring is the one put in the same iteration: the "
            "ring's barrier completes once an iteration",
        ),
        Rule(
            "cursor",
            "each operation on a ring names the slot and the phase of its number, in every "
            "iteration",
        ),
        Rule(
            "held",
            "a slot of a buffer that roles share is used by a role only between its wait for the "
            "slot and its arrival that gives it on",
        ),
        Rule(
            "phase",
            "a wait that knows its phase by parity does not take one for another: the next but one "
            "needs what its own thread does after it",
        ),
        Rule("left", "in the end all phases are complete, and each has been waited for"),
        Rule(
            "order",
            "around every cycle of waits time passes: what a role waits for never waits for the "
            "role itself, for every trip count",
        ),
        Rule(
            "no race",
            "two accesses to the same bytes, one of them a write, are ordered: by a barrier of the "
            "threads that make them, or by the ring's waits and arrivals",
        ),
        Rule("early release", "a slot is handed on only after all that reads it has finished"),
        Rule(
            "proxy fence",
            "an access by a thread and a later one by TMA or wgmma to the same bytes have a fence "
            "of the proxy between them, in the accessing thread",
        ),
        Rule(
            "accumulators at rest",
            "registers of a wgmma are read, written or copied only after a wait that names them "
            "and covers its group",
        ),
        Rule(
            "accumulators written first",
            "registers are read, by a thread or by a product that adds to them, only after "
            "something has written them",
        ),
        Rule(
            "memory written first",
            "shared memory that one role has alone is read only after the role has written there",
        ),
        Rule(
            "wgmma fence",
            "a wgmma.fence stands between any access to registers and the wgmma that uses them",
        ),
        Rule("wgmma commit", "a wait covers only groups that were committed"),
        Rule(
            "bulk groups", "TMA stores are committed and waited for by the thread that started them"
        ),
        Rule(
            "register budget",
            "the registers of a role were granted, all grants fit into what the block has, and "
            "registers are given back before anything that is waited for",
        ),
        Rule("whole warpgroups", "wgmma and setmaxnreg are executed by all warps of a warpgroup"),
        Rule(
            "all threads of a warp",
            "barriers and collective operations are executed by all threads of their warps, and "
            "what one thread is to do by one",
        ),
        Rule(
            "named barrier",
            "a named barrier has one number of 1..15, one group of participants and one count",
        ),
        Rule(
            "barrier initialised",
            "a barrier is initialised once, and the threads that use it (of the cluster, where "
            "other blocks do) meet after that",
        ),
        Rule(
            "barrier fenced",
            "TMA and other blocks see an initialised barrier only after fence_barrier_init",
        ),
        Rule(
            "buffers in place",
            "a buffer, its slots and the views that engines take start where their swizzle does",
        ),
        Rule(
            "maps fit their views",
            "the box and the swizzle of a tensor map are those of the view it fills or empties",
        ),
        Rule(
            "peers alive",
            "a block of a cluster stays until remote arrivals and multicast copies to it have "
            "landed",
        ),
        Rule(
            "kernels in order",
            "a kernel that begins while those before it in the stream end waits for them, in each "
            "role above all that touches global memory",
        ),
        Rule("nothing is left", "when a role ends, none of its products and copies is in flight"),
        Rule(
            "slots",
            "a slot of a ring is written by who has waited for it, read by who was told of it, and "
            "neither after it was given away; view and barrier of an operation have one slot",
        ),
        Rule(
            "one put",
            "one thread expects the bytes of a put, all of them and before its copies, which "
            "stand beside it; threads tell of their own copies when these are done",
        ),
        Rule(
            "given back",
            "each role that reads a ring gives back every slot that it gets, by as many arrivals "
            "each time",
        ),
        Rule(
            "in place",
            "buffers and barriers lie in bytes of their own; scratch memory of one role alone may "
            "share bytes",
        ),
        Rule(
            "coordinates",
            "each copy by TMA moves a part of a box that the aref program asks for, of that "
            "iteration, into the buffer of that tile; the parts are the box",
        ),
        Rule(
            "effects",
            "what the aref program writes, copies and multiplies, the kernel does as often, and "
            "under the same conditions",
        ),
        Rule(
            "threads agree",
            "what decides whether or how threads of a role do something together is one number in "
            "all of them",
        ),
        Rule(
            "global order",
            "accesses to global memory that may meet, of different roles or by TMA, are ordered by "
            "waits and barriers, or their boxes are apart",
        ),
        Rule(
            "one owner",
            "what an atomic gave to one thread reaches others through shared memory only",
        ),
        Rule(
            "multicast",
            "blocks of a cluster that share a load send parts of one box, and every reader gives "
            "the slot back in every block",
        ),
    )
}


def rule(name: str) -> Rule:
    """Return the rule of a name."""
    return _RULES[name]


class Refused(Exception):  # noqa: N818
    """A kernel of which a rule is not shown to hold, and where."""

    def __init__(self, which: Rule, sentence: str, operation: Operation | None = None) -> None:
        super().__init__(f"{which.name}: {sentence}")
        self.rule = which
        self.sentence = sentence
        self.operation = operation
