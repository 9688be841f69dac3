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
