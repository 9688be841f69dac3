"""The passes of a compilation, run once more on what they began with: what each of them changed.

A compiled kernel keeps its first IR, its plan, and which passes ran before there was a plan. The
passes are deterministic, so running them again gives every text between the stages; the stages
themselves are compared with those that were kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING

from tawa.errors import ArgumentError, InternalError
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

if TYPE_CHECKING:
    from tawa.passes.pipeline import Pass
    from tawa.runtime.compiled import CompiledKernel

BEFORE_PLAN = "passes before the plan"
"""The name of what an `Assembly` keeps of a compilation besides its stages."""


@dataclass(frozen=True, slots=True)
class Step:
    """One pass: its name (of a second run ``simplify#2``), the IR before and after it as text,
    in which values keep their names, what it declined, and its seconds.
    """

    name: str
    before: str
    after: str
    declined: tuple[Declined, ...]
    seconds: float

    def diff(self) -> str:
        """Return what the pass changed, as a unified diff; empty where it changed nothing."""
        before, after = self.before.splitlines(), self.after.splitlines()
        lines = list(unified_diff(before, after, n=1, lineterm=""))[2:]
        return "\n".join(lines)

    def __str__(self) -> str:
        changed = self.diff()
        lines = changed.splitlines()
        added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        what = f"-{removed} +{added} lines" if changed else "changes nothing"
        declined = [f"  declined {note.feature}: {note.reason}" for note in self.declined]
        head = f"// {self.name}: {what}, {self.seconds * 1e3:.1f} ms"
        return "\n".join([head, *declined, *lines])


def print_steps(passes: Sequence[Pass], target: Target) -> str:
    """Return as text which passes run before there is a plan, and for which machine."""
    return json.dumps({"passes": [one.__name__ for one in passes], "target": asdict(target)})


def replay(kernel: CompiledKernel) -> Iterator[Step]:
    """Yield each pass of the compilation of `kernel`, in order.

    Raises InternalError where a stage comes out otherwise than it was compiled.
    """
    from tawa.ir.text import SteadyText
    from tawa.passes import pipeline

    kept = json.loads(kernel.asm.text(BEFORE_PLAN))
    target = Target(**kept["target"])
    work = kernel.asm.program("tile").clone()
    steady = SteadyText()
    before = steady.of(work)
    ran: dict[str, int] = {}
    parts = (
        ("", tuple(pipeline.PASSES[name] for name in kept["passes"]), Plan()),
        ("aref", pipeline.AREF, kernel.plan),
        ("hopper", pipeline.HOPPER, kernel.plan),
    )
    for level, passes, plan in parts:
        for name, one in pipeline.bound(passes, work, plan, target):
            ran[name] = ran.get(name, 0) + 1
            start = time.perf_counter()
            declined = one()
            seconds = time.perf_counter() - start
            after = steady.of(work)
            label = name if ran[name] == 1 else f"{name}#{ran[name]}"
            yield Step(label, before, after, declined, seconds)
            before = after
        if level and not work.is_structurally_equivalent(kernel.asm.program(level)):
            raise InternalError(
                f"the passes of {kernel.name} made another {level} IR than when it was compiled",
                why="passes are deterministic: the same IR and plan give the same result",
                remedy="please report it with the kernel",
            )


def after_pass(kernel: CompiledKernel, name: str) -> str:
    """Return the IR that a pass left; ArgumentError names the passes where there is no such."""
    from tawa.passes.pipeline import FORMER

    names: list[str] = []
    name = FORMER.get(name, name)
    for step in replay(kernel):
        if step.name == name:
            return step.after
        names.append(step.name)
    raise ArgumentError(
        f"no pass {name!r} ran on {kernel.name}",
        why="these ran, in this order: " + ", ".join(names),
        remedy="name one of them; NAME#2 is its second run",
    )
