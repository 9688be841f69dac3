"""The mutation test of the proof: every kernel of the tests, broken in every way we know.

    python tests/mutation.py [--jobs N] [--minutes M] [--shard I/N] [--merge] [--only NAME ...]
                             [--every N]

A mutant is *killed* by a rule of the proof, or, where the proof accepts it, by the simulator under
adversarial schedules. What is left is *equivalent* for a reason that `mutants.harmless` checks on
the program, or, where there is none, *unchanged*: the simulator, an independent judge with its own
race detector, finds nothing and the same result under every schedule. A mutant that is none of
these is a *survivor*: a miss of the proof until somebody shows otherwise.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from kernel_runs import SUBJECTS
from long_runs import Part, Unit, arguments, gathered, keep, made_of, run
from mutants import Mutant, mutants
from proof_kernels import KERNELS, TASKS
from tawa.errors import TawaError
from tawa.ir import tile
from tawa.ir.types import DescType, PtrType
from tawa.simulator import simulate
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.values import dtype_of
from tawa.target import H200
from tawa.verify import Refused, check

SCHEDULES = (("random", "random", 0), ("random", "late", 1), ("random", "early", 2))
SIZES = (80, 400)
GRIDS = ((2, 2, 1), (4, 1, 1), (1, 1, 1))
# Their reason is that the proof, which sees every meeting and every place, accepts them.
_JUDGED = ("id=", "kind=", "offset+16")
PARTS = 4
"""Into which the mutants of a kernel are dealt."""


@dataclass
class Score:
    """What became of the mutants of one kernel."""

    kernel: str
    mutants: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    equivalent: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)
    contested: list[str] = field(default_factory=list)
    false_alarm: str = ""
    seconds: float = 0.0


# --- the judges -----------------------------------------------------------------------------------


def judged(kernel: tile.Kernel) -> tuple[str, str]:
    """Return what the proof says of a kernel: (fate, rule), fate "" where it accepts it."""
    try:
        check(kernel, H200)
    except Refused as found:
        return "proof", found.rule.name
    return "", ""


def arguments_for(kernel: tile.Kernel, size: int) -> dict[str, Any]:
    """Return arguments for any kernel: descriptors of two blocks and a part, small integers, and
    `size` for all that may be a length, but no long one for what bounds a loop around two others:
    their iterations multiply, and turn the rings without.
    """
    made: dict[str, Any] = {}
    around = _bound_nests(kernel)
    for name, value in zip(kernel.argument_names, kernel.body.block.args):
        match value.type:
            case DescType() as kind:
                block, window = kind.block_shape, kind.window
                shape = tuple(2 * extent + 8 * (extent > 8) for extent in block)
                if window is not None:  # images of about so many windows
                    shape = (2, *(tap + 9 for tap in window.taps), shape[-1])
                base = _numbers(shape, dtype_of(kind.element))
                strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
                made[name] = HostDescriptor(base, shape, strides, block, window=window)
            case PtrType() as kind:
                made[name] = _numbers((1 << 18,), dtype_of(kind.element))
            case kind if str(kind).startswith(("f", "b")):
                made[name] = 1.0
            case _:
                made[name] = min(size, SIZES[0]) if value in around else size
    return made


def _bound_nests(kernel: tile.Kernel) -> set[SSAValue]:
    """The values that the bounds of loops around two nested loops are computed from."""
    loops = [op for op in kernel.walk() if isinstance(op, scf.ForOp) and _depth(op) > 2]
    found: set[SSAValue] = set()
    work = [bound for loop in loops for bound in (loop.lb, loop.ub, loop.step)]
    while work:
        value = work.pop()
        if value not in found:
            found.add(value)
            work += [] if isinstance(value.owner, Block) else value.owner.operands
    return found


def _depth(operation: Operation) -> int:
    """How deep the loops of an operation are nested, itself one of them."""
    inside = [_depth(op) for region in operation.regions for b in region.blocks for op in b.ops]
    return max(inside, default=0) + isinstance(operation, (scf.ForOp, scf.WhileOp))


def _numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    low = 0 if np.issubdtype(dtype, np.integer) else -1  # integers are indices
    return np.random.default_rng(len(shape)).integers(low, 3, shape).astype(dtype)


@dataclass(frozen=True)
class Way:
    """How a kernel is run: fresh arguments, a grid, and a schedule, completions and a seed."""

    arguments: Callable[[], dict[str, Any]]
    grid: tuple[int, int, int]
    schedule: tuple[str, str, int]


def memory_after(kernel: tile.Kernel, way: Way) -> dict[str, bytes]:
    """Run a kernel in the simulator; return all arrays as they are then. Raises TawaError."""
    given = way.arguments()
    how, late, seed = way.schedule
    simulate(kernel, way.grid, given, schedule=how, late=late, seed=seed, multiprocessors=2)
    arrays = {name: getattr(value, "base", value) for name, value in given.items()}
    return {name: a.tobytes() for name, a in arrays.items() if isinstance(a, np.ndarray)}


class Simulated:
    """The original's memory after each way to run it: at a small size, and at one where loops turn
    their rings; with arguments of its own where these do not suit it.
    """

    def __init__(self, kernel: tile.Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name

    @cached_property
    def expected(self) -> dict[Way, dict[str, bytes]]:
        makers = [partial(arguments_for, self.kernel, size) for size in SIZES]
        made = {way: memory for maker in makers for way, memory in self._with(maker, GRIDS).items()}
        if not made and self.name in SUBJECTS:
            ready = SUBJECTS[self.name].at(None)
            made = self._with(ready.fresh, (ready.grid,))
        return made

    def _with(
        self, arguments: Callable[[], dict[str, Any]], grids: Iterable[tuple[int, int, int]]
    ) -> dict[Way, dict[str, bytes]]:
        for grid in grids:
            ways = [Way(arguments, grid, schedule) for schedule in SCHEDULES]
            try:
                return {way: memory_after(self.kernel, way) for way in ways}
            except (TawaError, IndexError, ValueError):
                continue
        return {}

    def judge(self, mutant: tile.Kernel) -> str:
        """Return "simulator" where it finds a fault, "unchanged", or "" where it cannot say."""
        try:
            for way, memory in self.expected.items():
                if memory_after(mutant, way) != memory:
                    return "simulator"
        except TawaError:
            return "simulator"
        return "unchanged" if self.expected else ""


# --- one kernel -----------------------------------------------------------------------------------


@cache
def _lowered(name: str) -> tuple[tile.Kernel, Simulated]:
    kernel = (KERNELS | TASKS)[name]()
    return kernel, Simulated(kernel, name)


def score(name: str, every: int = 1, offset: int = 0) -> Score:
    """Judge the mutants of a kernel, or each `every`-th of them."""
    began, result = time.perf_counter(), Score(name)
    kernel, simulated = _lowered(name)
    fate, rule = judged(kernel.clone())
    result.false_alarm = rule
    if fate:
        return result
    for number, mutant in enumerate(mutants(kernel)):
        if (number + offset) % every == 0:
            _judge(mutant, simulated, result)
    result.seconds = time.perf_counter() - began
    return result


def _judge(mutant: Mutant, simulated: Simulated, result: Score) -> None:
    result.mutants += 1
    result.kinds[_kind(mutant)] += 1
    fate, rule = judged(mutant.make())
    if fate:
        result.rules[rule] += 1
        if mutant.harmless and not mutant.kind.startswith(_JUDGED):
            result.contested.append(f"{mutant.name}: {mutant.harmless}")
    elif mutant.harmless:
        fate = "equivalent"
        result.reasons[mutant.harmless] += 1
        result.equivalent.append(mutant.name)
    else:
        fate = simulated.judge(mutant.make()) or "survivor"
        if fate == "unchanged":
            result.reasons[f"unchanged: {_kind(mutant)}"] += 1
            result.unchanged.append(mutant.name)
        else:
            result.survivors.append(f"{mutant.name} ({fate})")
    result.fates[fate] += 1


def _kind(mutant: Mutant) -> str:
    change = "".join(c for c in mutant.kind if not c.isdigit()).strip(" =")
    return f"{change} {mutant.operation.name.removeprefix('hopper.').removeprefix('scf.')}"


# --- all kernels ----------------------------------------------------------------------------------


def units(names: Iterable[str], every: int = 1) -> list[Unit]:
    """All mutants of kernels, or each `every`-th of them."""
    parts = range(PARTS) if every == 1 else (0,)
    return [Unit(name, "mutants", part, max(every, PARTS)) for name in names for part in parts]


def task(unit: Unit) -> dict[str, Any]:
    return vars(score(unit.name, unit.parts, unit.part))


def merged(parts: Iterable[Part]) -> list[Score]:
    """The scores of whole kernels."""
    found: dict[str, Score] = {}
    for part in parts:
        result = part.result
        item = found.setdefault(part.unit.name, Score(part.unit.name))
        item.mutants += result["mutants"]
        item.seconds += result["seconds"]
        item.false_alarm = item.false_alarm or result["false_alarm"]
        for name in ("kinds", "fates", "rules", "reasons"):
            getattr(item, name).update(result[name])
        for name in ("equivalent", "unchanged", "survivors", "contested"):
            getattr(item, name).extend(result[name])
    return list(found.values())


def table(scores: list[Score], sources: dict[str, int], missing: int = 0, sample: int = 1) -> str:
    """Return the scores as a page; `missing` parts of kernels were not judged; of each kernel one
    mutant in `sample` was.
    """
    fates = sum((item.fates for item in scores), Counter[str]())
    kinds = sum((item.kinds for item in scores), Counter[str]())
    rules = sum((item.rules for item in scores), Counter[str]())
    reasons = sum((item.reasons for item in scores), Counter[str]())
    alarms = [item for item in scores if item.false_alarm]
    left = [f"{item.kernel}: {text}" for item in scores for text in item.survivors]
    contested = [f"{item.kernel}: {text}" for item in scores for text in item.contested]
    total = sum(item.mutants for item in scores)
    lines = ["# Mutation test of the proof", ""]
    lines += [
        f"{len(scores)} kernels, {total} mutants; {len(alarms)} of the originals flagged.",
        *([f"A sample: each {sample}th mutant of each kernel."] * (sample > 1)),
        *([f"{missing} of the parts of kernels are missing."] * bool(missing)),
        f"Sources: {', '.join(f'{count} parts of {name}' for name, count in sources.items())}.",
        "`python tests/mutation.py` makes this page; its docstring says what the fates mean.",
        "",
        "| fate | mutants |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in fates.most_common()),
        "",
        "| broken | mutants |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in kinds.most_common()),
        "",
        "| rule that killed | mutants |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in rules.most_common()),
        "",
        "| why equivalent | mutants |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in reasons.most_common()),
        "",
        "## Survivors",
        "",
        *([f"- {text}" for text in left] or ["None."]),
        "",
        "## Refused though a reason says that they are harmless",
        "",
        *([f"- {text}" for text in contested] or ["None."]),
        "",
    ]
    return "\n".join(lines)


def _say(unit: Unit, result: dict[str, Any]) -> None:
    print(f"{unit.name:42} {dict(result['fates'])} {result['seconds']:.0f} s", flush=True)
    for text in result["survivors"] + result["contested"]:
        print(f"    {text}", flush=True)


def main() -> int:
    """Score all kernels; return 1 where a mutant survives or an original is refused."""
    parser = arguments(__doc__, "mutants")
    parser.add_argument("--every", type=int, default=1, help="judge one mutant in so many")
    chosen = parser.parse_args()
    names = [n for n in KERNELS if not chosen.only or any(part in n for part in chosen.only)]
    if not chosen.merge:
        run(units(names, chosen.every), task, chosen, _say)
    parts, missing = gathered(chosen.parts, units(names, chosen.every))
    scores = merged(parts)
    figures = {
        "of": len(names),
        "missing": len(missing),
        "sources": made_of(parts),
        "kernels": [vars(item) for item in scores],
    }
    page = table(scores, made_of(parts), len(missing), chosen.every)
    keep(chosen.out, "mutants", page, figures)
    return int(any(item.survivors or item.false_alarm for item in scores))


if __name__ == "__main__":
    raise SystemExit(main())
