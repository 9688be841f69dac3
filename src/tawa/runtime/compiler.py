"""From a Python function, or tile IR, and a signature to a proved kernel: the compile driver.

The planner ranks plans; the first of at most `ATTEMPTS` that lowers within budget, is proved and
builds is taken, and each rejection is kept for `explain`. Nothing falls back in silence: when a
user pinned what a plan cannot have, or no plan is left, the first error is raised with the others
as its notes.

What a launch of a kernel must be asked: conditions that passes and the plan left behind.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from tawa.analysis.statements import name_statements
from tawa.codegen import CudaSource
from tawa.codegen.generate import generate
from tawa.collector import at_rest
from tawa.errors import (
    BuildError,
    InternalError,
    OverBudget,
    PlanError,
    ProtocolError,
    ShapeUnsupported,
    TawaError,
    UnprovedProtocol,
)
from tawa.frontend import build as build_tile
from tawa.ir import hopper, tile
from tawa.ir.walk import has
from tawa.passes import pipeline
from tawa.passes.halve import in_halves
from tawa.passes.lower.roles import share_registers
from tawa.plan.pins import Pins
from tawa.plan.plan import FULL_SPEED, Declined, Plan
from tawa.plan.planner import NO_PINS, rank_plans
from tawa.plan.resources import buffers, total
from tawa.plan.rings import with_shallow_rings
from tawa.plan.text import parse_plan
from tawa.plan.time import estimate
from tawa.plan.unhonoured import refuse_declined
from tawa.runtime import crash, cubins, nvrtc, sass
from tawa.runtime.compiled import (
    CompiledKernel,
    Demand,
    Guard,
    LaunchShape,
    Proof,
    Resources,
    RoleRegisters,
    SharedBuffer,
    Stage,
    stage_of,
    with_later,
)
from tawa.runtime.crash import Steps
from tawa.runtime.progress import tell
from tawa.runtime.replay import BEFORE_PLAN, print_steps
from tawa.runtime.request import Request
from tawa.runtime.resident import crowded_ahead, less_local, more_resident
from tawa.target import Target
from tawa.verify import program_of, verify, verify_registers

ATTEMPTS = 7
_FRAMES = 12_000
FEW = 16
"""Accesses to local memory in loops of roles that cost less than the plan that is second."""
_FAST = "fast code"
_SMALLER = "use smaller block sizes"
REJECTIONS = (OverBudget, ShapeUnsupported, PlanError, BuildError, UnprovedProtocol)
"""What makes the driver try the next plan. Of ProtocolError it is the subclass alone that says
"not proved": a violated protocol is a fault of the compiler and is never passed over."""


@dataclass(frozen=True, slots=True)
class _Build:
    """A kernel in hopper IR, its text, and what comes of it; None where no cubin is asked for."""

    work: tile.Kernel
    plan: Plan
    source: CudaSource
    building: Future[nvrtc.Cubin] | None


class Job:
    """One compilation: what is asked for, and what is known of its steps.

    Seconds are added up by phase, in the order the phases first ran; each phase is a step, and told
    as one of the kernel. `begun` are builds of the kernel at hand with registers shared out anew.
    """

    def __init__(self, request: Request, steps: Steps) -> None:
        self.request = request
        self.pins = request.pins
        self.target = request.target.within(self.pins.ceiling)
        self.name = crash.name_of(request)
        self.seconds: dict[str, float] = {}
        self.steps = steps
        self.begun: dict[Plan, _Build] = {}

    @contextmanager
    def phase(
        self, name: str, kernel: tile.Kernel | None = None, plan: Plan | None = None
    ) -> Generator[None]:
        """Time the body, which works on `kernel` under `plan`, under `name`."""
        self.steps.begin(name, kernel, plan)
        tell(f"compiling {self.name}: {name}", logging.DEBUG)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def run(
        self, passes: tuple[pipeline.Pass, ...], kernel: tile.Kernel, plan: Plan
    ) -> tuple[Declined, ...]:
        """Run passes on a kernel, each a step; return what they declined."""
        return pipeline.run(passes, kernel, plan, self.target, self.steps.begin)

    def build(self, source: CudaSource, plan: Plan) -> Future[nvrtc.Cubin] | None:
        """Begin to build a cubin, if one is asked for."""
        if not self.request.cubin:
            return None
        # The plan that takes the least is the last: a slow kernel rather than none.
        return cubins.start(source, arch=self.target.arch, strict=not plan.sharing)


def compile_kernel(request: Request) -> CompiledKernel:
    """Compile what is asked for.

    Raises the errors of `tawa.errors`, all before anything runs.
    """

    def attempt(steps: Steps) -> CompiledKernel:
        job = Job(request, steps)
        # All that was tried took its time, and not only what was taken.
        made = replace(_compile(job), timings=job.seconds)
        tell(f"compiled {made.name} in {sum(made.timings.values()):.2f} s")
        return made

    _allow_long_chains()
    try:
        with at_rest():
            return attempt(Steps())
    except UnprovedProtocol:
        raise
    except (InternalError, ProtocolError) as error:
        failure: Exception = error
    except (TawaError, MemoryError):
        raise
    except Exception as error:  # no exception of a pass reaches a user bare, whatever it is
        failure = error
    steps = _again(attempt)
    if isinstance(failure, ProtocolError):
        if (folder := crash.save(failure, request, steps)) is not None:
            failure.add_note(f"for a report: {folder}")
        raise failure
    raise crash.internal_error(failure, request, steps) from failure


def _allow_long_chains() -> None:
    """Let analyses follow chains of some two thousand operations, as unrolled loops make them.

    They recurse in Python, which takes memory and not the stack of the thread. The limit is never
    lowered: another thread may be in the middle of a compilation.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES))


def _again(attempt: Callable[[Steps], object]) -> Steps:
    """Repeat a failed compilation and return its last step with the IR that it began with."""
    steps = Steps(keep=True)
    with suppress(Exception):
        attempt(steps)
    return steps


def _compile(job: Job) -> CompiledKernel:
    """Compile by the first plan that can be carried out.

    One whose loops wait for local memory more than a `FEW` times is kept, while other plans with
    roles, or without, are tried: of kernels that all do, the one that does so least is taken.
    """
    request, pins, target = job.request, job.pins, job.target
    with job.phase("frontend"):
        if isinstance(request.function, tile.Kernel):
            written = request.function.clone()
        else:
            written = build_tile(request.function, request.signature, request.options)
        name_statements(written)

    kernel = written.clone()
    passes = pipeline.before_plan(
        descriptors=request.descriptors, by_tma=_needs_tma(pins), strict=request.strict
    )
    with job.phase("tile passes"):
        notes = job.run(passes, kernel, Plan())
    with job.phase("plan", kernel):
        first = kernel, rank_plans(kernel, target, pins, notes), notes

    @cache
    def stages() -> Mapping[str, Stage]:
        return stage_of("tile", written) | {BEFORE_PLAN: print_steps(passes, target)}

    tries = [first]
    with job.phase("plan"):
        if request.descriptors and any(n.feature == FULL_SPEED for n in first[1][0].declined):
            tries = _in_halves(target, *first)
    errors: list[TawaError] = []
    slow: list[CompiledKernel] = []
    kernel = written
    for kernel, plans, notes in tries:
        refused: list[TawaError] = []

        def attempt(
            plan: Plan,
            kernel: tile.Kernel = kernel,
            notes: tuple[Declined, ...] = notes,
            refused: list[TawaError] = refused,
        ) -> CompiledKernel | None:
            try:
                return _carry_out(job, kernel, plan, stages, notes, refused)
            except REJECTIONS as error:
                refused.append(error)
                return None

        kind: bool | None = None
        hopeless: set[Plan] = set()  # what of the plans so far makes others fare as they did
        job.begun.clear()
        for plan in _plans(job, kernel, plans, notes, refused):
            if kind not in (None, plan.specialized) or hopeless & {plan.held, plan.order}:
                continue
            made = attempt(plan)
            if made is None:
                match refused[-1]:
                    case UnprovedProtocol(rule="global order"):
                        hopeless.add(plan.order)
                    case BuildError():
                        hopeless.add(plan.held)
                    case _:
                        pass
                continue
            made = less_local(made, target, pins, partial(_share, job, made))
            if made.resources.local_in_loops <= FEW:
                return more_resident(made, kernel, target, pins, partial(_share, job, made))
            kind = made.plan.specialized
            slow.append(made)
            hopeless.add(plan.held)
            refused.append(BuildError(_waits_for_memory(made.resources)))
        errors += refused
    if slow:
        best = min(slow, key=lambda made: made.resources.local_in_loops)
        if (
            best.plan.specialized
            or not has(kernel, tile.Dot)
            or FULL_SPEED in (each.feature for each in best.plan.declined)
        ):
            return best
        note = f"it runs without roles, and with {_waits_for_memory(best.resources)}"
        return replace(best, declined=(*best.declined, Declined(FULL_SPEED, f"{note}; {_SMALLER}")))
    for number, other in enumerate(errors[1:], 2):
        errors[0].add_note(f"plan {number}: {other.what}")
    raise errors[0]


def _needs_tma(pins: Pins) -> bool:
    """Tell whether what is pinned needs tiles that TMA moves, also where threads reach memory as
    fast: stores by TMA, or roles.
    """
    plan = parse_plan(pins.plan) if isinstance(pins.plan, str) else pins.plan
    if plan is not None:
        return plan.specialized or any(store.via == "tma" for store in plan.stores)
    return bool(pins.store == "tma" or pins.specialize or pins.of_roles)


_Try = tuple[tile.Kernel, tuple[Plan, ...], tuple[Declined, ...]]
"""A kernel, the plans to try, and what is known to be declined."""


def _in_halves(
    target: Target, kernel: tile.Kernel, plans: tuple[Plan, ...], notes: tuple[Declined, ...]
) -> list[_Try]:
    """Return what to try: the faster kernel that computes its tiles in halves, of those that have a
    plan with roles, then what was given, which is what is left where halves wait for memory too.
    """
    made, reasons = in_halves(kernel)
    tried = [
        (each, name_statements(each), rank_plans(each, target, NO_PINS, notes)) for each in made
    ]
    found = [(estimate(each, plans[0], names).total, each, plans) for each, names, plans in tried]
    found = [each for each in found if each[2][0].specialized]
    if not found:
        why = Declined("a tile in two halves", reasons or "they find no room either")
        return [(kernel, plans, (*notes, why))]
    _, halved, ways = min(found, key=lambda each: each[0])
    why = Declined("a tile at once", "its sums find no room, those of halves do")
    slow = Declined("a tile in two halves", "its loops wait for local memory, or it is not built")
    return [(halved, ways, (*notes, why)), (kernel, plans, (*notes, slow))]


def _plans(
    job: Job,
    kernel: tile.Kernel,
    plans: tuple[Plan, ...],
    notes: tuple[Declined, ...],
    errors: list[TawaError],
) -> Generator[Plan]:
    """Yield those of `plans` to try; `errors` holds what became of those before.

    The planner estimates: what the first plan took beside what it counted is counted for those that
    follow. What was not proved of a persistent kernel is tried with one program a block.
    """
    refused, pins, target = plans[0], job.pins, job.target
    yield refused
    apart = pins.persistent is None and pins.plan is None
    if isinstance(errors[0], UnprovedProtocol) and refused.persistent and apart:
        once = replace(pins, persistent=False)  # The proof may choose the program of a block.
        with job.phase("plan", kernel), suppress(*REJECTIONS):
            plans = (*rank_plans(kernel, target, once, notes)[:1], *plans)
    if isinstance(errors[0], OverBudget) and (excess := errors[0].excess):
        took = target.shared_by(refused.blocks).shared_per_block + excess
        beside = took - total(buffers(refused, name_statements(kernel)))
        with job.phase("plan", kernel), suppress(*REJECTIONS):
            plans = rank_plans(kernel, replace(target, shared_beside=beside), pins, notes)
    rest = [plan for plan in plans if plan != refused][: ATTEMPTS - 1]
    if isinstance(errors[0], BuildError) and has(kernel, tile.Print, tile.Assert):
        rest = rest[-1:]  # by no plan is a product in flight across what prints
    yield from rest
    if isinstance(errors[0], UnprovedProtocol) and not pins.depth and pins.plan is None:
        yield from with_shallow_rings(refused)


def _carry_out(
    job: Job,
    kernel: tile.Kernel,
    plan: Plan,
    stages: Callable[[], Mapping[str, Stage]],
    notes: tuple[Declined, ...],
    errors: list[TawaError],
) -> CompiledKernel:
    """Carry out one plan on a copy of the kernel: lower, generate, prove, and build meanwhile.

    `stages` gives those before the plan.
    """
    work, target = kernel.clone(), job.target
    with job.phase("aref passes"):
        notes += job.run(pipeline.SEQUENCE, work, plan)
        program = program_of(work, plan.cluster)
        notes += job.run(pipeline.ROLES, work, plan)
        made = stage_of("aref", work)
    with job.phase("lowering"):
        lowered = job.run(pipeline.HOPPER, work, plan)
        refuse_declined(job.pins, plan, lowered)
        notes += lowered
    with job.phase("code generation", work, plan):
        try:
            source = generate(work)
        except InternalError:  # of IR that no code can be made of: what the check refuses is why
            verify(work, target, program)
            raise
        made["cuda"] = source.text
    build = _Build(work, plan, source, job.build(source, plan))
    if (crowded := crowded_ahead(kernel, plan, source, job.target, job.pins)) is not None:
        _begin(job, work, crowded)
    with job.phase("proof", work, plan):
        proof = verify(work, target, program)
    with job.phase("lowering", work, plan):  # here: NVRTC is at work
        made = {**stages(), **made, **stage_of("hopper", work)}
    cubin, resources, slow = _finish(job, build)
    if cubin is not None:
        made["cubin"] = cubin.data
    rejected = tuple(
        Declined(f"plan {number}", error.what) for number, error in enumerate(errors, 1)
    )
    return CompiledKernel(
        name=kernel.sym_name.data,
        entry=source.entry_name,
        signature=job.request.signature,
        plan=plan,
        asm=with_later(made, {"hopper": work}),
        launch=_launch(source, plan),
        parameters=source.parameters,
        resources=resources,
        proof=Proof(proof.ok, proof.states, proof.verdict),
        timings={},
        declined=tuple(dict.fromkeys((*notes, *slow, *rejected))),
        guards=guards_of(work, plan),
        demands=demands_of(work),
    )


def _finish(job: Job, build: _Build) -> tuple[nvrtc.Cubin | None, Resources, tuple[Declined, ...]]:
    """Wait for the cubin, where one is made; return it, what a block takes, and what is slow."""
    cubin: nvrtc.Cubin | None = None
    slow: tuple[Declined, ...] = ()
    if build.building is not None:
        with job.phase("nvrtc", build.work, build.plan):  # what is left of it
            cubin = build.building.result()
        slow = tuple(Declined(_FAST, defect) for defect in nvrtc.defects_of(cubin.log))
    target = job.target.shared_by(build.plan.blocks)
    resources = _resources(build.work, build.source, target, cubin)
    if resources.local_in_loops:
        slow += (Declined(_FAST, _waits_for_memory(resources)),)
    return cubin, resources, slow


def _begin(job: Job, work: tile.Kernel, plan: Plan) -> _Build:
    """Begin to build a lowered kernel with its registers shared out as `plan` says, or find it
    begun.

    What depends on them are numbers that ptxas is given, and nothing of the program: it is not
    lowered again, and no more proved again than the rules that look at registers.
    """
    if plan not in job.begun:
        work = work.clone()
        with job.phase("code generation", work, plan):
            share_registers(work, plan, job.target)
            source = generate(work)
        with job.phase("proof", work, plan):
            verify_registers(work, job.target)
        job.begun[plan] = _Build(work, plan, source, job.build(source, plan))
    return job.begun[plan]


def _share(job: Job, made: CompiledKernel, plan: Plan) -> Callable[[], CompiledKernel | None]:
    """Begin to build a kernel with its registers shared out as `plan` says. Who wants it calls what
    is returned, which gives None where it cannot be built.
    """
    try:
        build = _begin(job, made.asm.program("hopper"), plan)
    except REJECTIONS:
        return lambda: None

    def finished() -> CompiledKernel | None:
        try:
            cubin, resources, slow = _finish(job, build)
        except BuildError:
            return None
        work = build.work
        stages = {**made.asm.ready, **stage_of("hopper", work), "cuda": build.source.text}
        if cubin is not None:
            stages["cubin"] = cubin.data
        return replace(
            made,
            plan=plan,
            asm=with_later(stages, {"hopper": work}),
            launch=_launch(build.source, plan),
            resources=resources,
            declined=(*(note for note in made.declined if note.feature != _FAST), *slow),
        )

    return finished


def _launch(source: CudaSource, plan: Plan) -> LaunchShape:
    return LaunchShape(
        source.threads,
        source.shared_bytes,
        source.cluster,
        source.persistent,
        plan.blocks,
        source.early,
    )


def _resources(
    kernel: tile.Kernel, source: CudaSource, target: Target, cubin: nvrtc.Cubin | None
) -> Resources:
    """Collect what one block takes from the final hopper IR and from what was built."""
    roles: list[RoleRegisters] = []
    buffers: list[SharedBuffer] = []
    barriers: list[tuple[str, int]] = []
    for op in kernel.body.block.ops:
        match op:
            case hopper.Role():
                budget = op.registers.data
                roles.append(RoleRegisters(op.label.data, op.warps.data, budget))
            case hopper.Shared(result=result):
                size = result.type.bytes
                buffers.append(SharedBuffer(op.label.data, op.offset.data, size))
            case hopper.Barriers(result=result):
                barriers.append((op.label.data, result.type.count.data))
            case _:
                pass
    if len(roles) == 1 and cubin is not None:
        roles = [replace(roles[0], used=cubin.registers)]
    return Resources(
        roles=tuple(roles),
        buffers=tuple(buffers),
        barriers=tuple(barriers),
        shared=source.shared_bytes,
        shared_limit=target.shared_per_block,
        registers_at_launch=target.registers_at_launch(source.threads),
        spills=None if cubin is None else cubin.spill_bytes,
        stack=0 if cubin is None else cubin.stack,
        local_in_loops=0 if cubin is None else _local_in_loops(cubin),
    )


def _local_in_loops(cubin: nvrtc.Cubin) -> int:
    """Return how often loops of roles access local memory."""
    return sass.inspect(cubin.data).local_in_loops if cubin.stack else 0


def _waits_for_memory(resources: Resources) -> str:
    count = resources.local_in_loops
    return f"{count} {'access' if count == 1 else 'accesses'} to local memory in loops of roles"


# --- what a launch is asked -----------------------------------------------------------------------


_REASONS = {
    "guards": "pointer accesses became descriptor accesses",
    "steps": "loops with steps of the run were taken to count upwards",
    "row_ends": "TMA writes rows of a store in whole pieces of 16 bytes",
    "bounds": "numbers of elements were taken not to wrap",
    "cluster_guards": "the blocks of a cluster share loads",
}
"""Attributes of a kernel that hold conditions of its launch, and why."""


def guards_of(kernel: tile.Kernel, plan: Plan) -> tuple[Guard, ...]:
    """Return what only a launch can decide, as conditions over its arguments and grid."""
    found = [
        Guard(
            f"disjoint({first}, {stored})",
            f"{first} is accessed out of order with stores to {stored}",
        )
        for first, stored in plan.guards
    ]
    for name, reason in _REASONS.items():
        texts: Any = kernel.attributes.get(name, ())
        found += [Guard(text.data, reason) for text in texts]
    return tuple(found)


def demands_of(kernel: tile.Kernel) -> tuple[Demand, ...]:
    """Return what a launch must hold to: pairs of a condition and what is said otherwise."""
    pairs: Any = kernel.attributes.get("demands", ())
    return tuple(Demand(condition.data, refusal.data) for condition, refusal in pairs)
