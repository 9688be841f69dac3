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
        Rule(
            "one control",
            "what decides how often roles synchronize is one function of the launch in all of "
            "them: each barrier gets as many arrivals as the roles that wait for it ask for, for "
            "every input",
        ),
        Rule("arrivals", "an arrival is counted for the threads that the barrier expects"),
        Rule(
            "bytes",
            "the bytes that a barrier expects are those of the copies that complete on it, for "
            "every input",
        ),
        Rule(
            "meetings",
            "turns are taken as often as they are passed on, and all blocks' roles meet alike",
        ),
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
            "order",
            "around every cycle of waits time passes: what a role waits for never waits for the "
            "role itself, for every trip count",
        ),
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
            "proxy",
            "between an access by threads and one by the async proxy (TMA, wgmma) to the same "
            "buffer the threads fence the proxy",
        ),
        Rule(
            "in place",
            "buffers and barriers lie in bytes of their own, where swizzles and engines need them; "
            "scratch memory of one role alone may share bytes",
        ),
        Rule(
            "maps",
            "the box and the swizzle of a tensor map are those of the view that it moves",
        ),
        Rule(
            "coordinates",
            "each copy by TMA moves a part of a box that the aref program asks for, of that "
            "iteration, into the buffer of that tile; the parts are the box",
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
        Rule(
            "cluster",
            "barriers are published to the cluster before other blocks use them, and its blocks "
            "meet after the last of what they do for one another",
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
