"""Control flow of the proof: loops, conditions, and the one thread.

A trip count or a condition that depends on unknowns is a choice; the world asks the configuration
for the outcome it wants and binds the unknowns to it.
"""

from __future__ import annotations

from functools import reduce

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.control import decisive, terminator
from tawa.simulator.proof.choices import PATIENCE
from tawa.simulator.proof.configuration import Site
from tawa.simulator.proof.counted import counted
from tawa.simulator.proof.counting import constant_of, counts, most_trips, recurrence_of
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.expressions import Scalar
from tawa.simulator.proof.machine import Agent, Script, Source
from tawa.simulator.proof.moves import moves
from tawa.simulator.proof.orbits import Group
from tawa.simulator.proof.places import Read, reader
from tawa.simulator.proof.quiet import is_quiet, quiet_steps
from tawa.simulator.proof.rules import Endless, Impatient, Unproved, Violation
from tawa.simulator.proof.scalars import Scalars, itself
from tawa.simulator.proof.sites import has_steps, nesting_of, site_of
from tawa.simulator.proof.steps import Step, both, run_steps
from tawa.simulator.proof.turns import Cycle, Turns

Bounds = tuple[int, int, int]
"""The places of the first number of a loop, of its end and of its step."""


def _is_tracked(block: Block, decoder: Decoder) -> bool:
    """Tell whether a block, its end included, touches registers that wgmma uses."""
    return any(
        value in decoder.tracked
        for inner in decoder.census.inside(block)
        for value in (*inner.operands, *inner.results)
    )


def _orbits(decoder: Decoder, loop: Operation) -> tuple[Group, ...]:
    """Return the carried scalars of a loop that must recur, in groups."""
    groups = decoder.uniform.orbits.get(loop, ())
    return tuple(
        Group.of(loop, tuple(decoder.number(value) for value in group)) for group in groups
    )


def control_roots(operation: Operation, decoder: Decoder) -> list[SSAValue]:
    """Return the scalars that decide what a control operation with effects does."""
    if is_quiet(operation, decoder):
        return []
    blocks = [region.block for region in operation.regions if region.blocks]
    if not any(has_steps(block, decoder) or _is_tracked(block, decoder) for block in blocks):
        return []
    return decisive(operation)


def for_rule(decoder: Decoder, loop: scf.ForOp) -> Step | None:
    """scf.for with the trips the configuration wants, or that its bounds give."""
    block = loop.body.block
    carried, end = tuple(block.args[1:]), terminator(block)
    start = moves(decoder, carried, tuple(loop.iter_args))
    back = moves(decoder, carried, tuple(end.operands))
    final = moves(decoder, tuple(loop.results), carried)
    effects = has_steps(block, decoder)
    if not (effects or start or final):
        return None
    body = run_steps(decoder.block(block))
    read = reader(tuple(decoder.number(value) for value in (loop.lb, loop.ub, loop.step)))
    index = decoder.number(block.args[0]) if block.args[0] in decoder.needed else -1
    site = site_of(loop, block, decoder)
    programs = decoder.persistent and _walks_programs(loop.step)
    orbits, most = _orbits(decoder, loop), most_trips(loop, decoder.polynomials)
    longer = _longer_after(loop, decoder) if most is not None else None
    kept = tuple(decoder.number(value) for value in carried if _recurs(value, decoder))
    idle = tuple(decoder.number(value) for value in carried if value in decoder.uniform.idle)

    def run(script: Script) -> Source:
        env, world = script.env, script.world
        low, high, by = read(env)
        later = None if longer is None else (longer[0], tuple([env[at] for at in longer[1]]))
        facts, surveys = script.facts, world.configuration.survey
        trips = world.trips(site, low, high, by, facts, later)
        # What is computed from the number of another trip asks for itself.
        first, step = _asked(world.scalars, low, by) if programs else (0, 0)
        if start is not None:
            start(env)
        for place in idle:
            env[place] = world.scalars.unknown("idle", place)
        turning = world.entering(orbits, env)
        if trips:
            world.entered.add((loop, 0))
        for trip in trips if isinstance(trips, range) else Turns(trips, world.turn, env, kept):
            if programs:
                script.program = first + trip * step
            if index >= 0 or surveys:
                number = _number(world.scalars, low, by, trip)
                if index >= 0:
                    env[index] = number
                if surveys:
                    script.facts = (facts, high, number)
            turning.step()
            yield body(script)
            if back is not None:
                back(env)
        if most is None or len(trips) < most:
            turning.end()
        script.facts = facts
        if final is not None:
            final(env)

    return Step(run, True)


def _asked(scalars: Scalars, low: Scalar, by: Scalar) -> tuple[int, int]:
    """Return the first number of a loop and its step, whose trips were chosen: they are asked."""
    first, step = scalars.value(low), scalars.value(by)
    assert first is not None
    assert step is not None
    scalars.answered(itself, (low,), first)
    scalars.answered(itself, (by,), step)
    return first, step


def _number(scalars: Scalars, low: Scalar, by: Scalar, trip: int) -> Scalar:
    """Return the number of a trip, as the bounds of its loop say it."""
    if isinstance(low, int) and isinstance(by, int):
        return low + trip * by
    return scalars.apply("add", low, scalars.apply("mul", by, trip)) if trip else low


def _walks_programs(step: SSAValue) -> bool:
    """Tell whether a step is that of a loop over programs: the blocks or clusters there are, or as
    many for each of the instances that take programs in turn.
    """
    match step.owner:
        case hopper.NumBlocks():
            return True
        case tile.Elementwise(function=function, inputs=(one, other)):
            match function.data:
                case "mul":
                    return _walks_programs(one) or _walks_programs(other)
                case "idiv":
                    return _walks_programs(one) and constant_of(other) is not None
                case _:
                    return False
        case _:
            return False


def _longer_after(loop: scf.ForOp, decoder: Decoder) -> tuple[Site, Bounds] | None:
    """Return the first loop of any number of trips after one of so many at most, in its block, if
    its bounds stand before both: as of a loop whose first copies are made ahead. It chooses for
    both: what the shorter one asks for, the longer one would not go beyond.
    """
    between: set[Operation] = set()
    following = loop
    while (following := following.next_op) is not None:
        between.add(following)
        if (
            not isinstance(following, scf.ForOp)
            or most_trips(following, decoder.polynomials) is not None
        ):
            continue
        site = nesting_of(following, following.body.block, decoder)
        bounds = (following.lb, following.ub, following.step)
        if site.kind == "pure":
            continue
        owners = (value.owner for value in bounds if not isinstance(value.owner, tile.Constant))
        if any(owner in between or owner is loop for owner in owners):
            return None
        low, high, by = (decoder.number(value) for value in bounds)
        return site, (low, high, by)
    return None


def _recurs(value: BlockArgument, decoder: Decoder) -> bool:
    """Tell whether a carried scalar that the proof follows does anything but count trips."""
    recurrence = recurrence_of(value)
    if recurrence is None or value not in decoder.needed:
        return False
    return not counts(value, recurrence[1])


def if_rule(decoder: Decoder, branch: scf.IfOp) -> Step | None:
    """scf.if, with or without results and else."""
    if is_quiet(branch, decoder):
        steps = quiet_steps(decoder, branch)
        return reduce(both, steps) if steps else None
    blocks = [region.block for region in branch.regions if region.blocks]
    results = tuple(branch.results)
    ends = [
        moves(decoder, results, tuple(terminator(block).operands)) if results else None
        for block in blocks
    ]
    sides = [decoder.block(block) for block in blocks]
    if not any(sides) and not any(ends):
        return None
    bodies = [run_steps(side) for side in sides]
    if len(bodies) == 1:
        bodies.append(run_steps(()))
        ends.append(None)
    condition = decoder.number(branch.cond)
    site = Site(branch, "once" if branch in decoder.uniform.once else "if")
    guarded = _guarded(branch, decoder)

    def run(script: Script) -> Source:
        env, world = script.env, script.world
        inside = None
        if guarded is not None:
            loop, read = guarded
            inside = loop, read(env)
        facts, asked = script.facts, env[condition]
        taken = 0 if world.condition(site, asked, inside, facts) else 1
        world.entered.add((branch, taken))
        script.facts = (facts, 1, asked) if taken else (facts, asked, 0)
        yield bodies[taken](script)
        script.facts = facts
        if (end := ends[taken]) is not None:
            end(env)

    return Step(run, True)


def _guarded(branch: scf.IfOp, decoder: Decoder) -> tuple[Site, Read] | None:
    """Return the first loop on the side where a condition holds whose bounds stand outside of it,
    with what reads them: as of a loop whose first trip is peeled off. What runs where another
    condition inside does not hold is no such loop: its own way leads there.
    """
    for loop in decoder.census.of(scf.ForOp, within=branch.true_region.block):
        if _on_another_side(loop, branch):
            continue
        bounds = (loop.lb, loop.ub, loop.step)
        site = nesting_of(loop, loop.body.block, decoder)
        if site.kind != "pure" and not any(_stands_in(branch, value) for value in bounds):
            return site, reader(tuple(decoder.number(value) for value in bounds))
    return None


def _on_another_side(loop: Operation, branch: scf.IfOp) -> bool:
    """Tell whether a loop stands where a condition inside `branch` does not hold."""
    region = loop.parent_region()
    while region is not None and (around := region.parent) is not branch:
        if around is None:
            return False
        if isinstance(around, scf.IfOp) and region is not around.true_region:
            return True
        region = around.parent_region()
    return False


def _stands_in(branch: scf.IfOp, value: SSAValue) -> bool:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    while block is not None:
        above = block.parent_op()
        if above is branch or above is None:
            return above is branch
        block = above.parent
    return False


def while_rule(decoder: Decoder, loop: scf.WhileOp) -> Step | None:
    """scf.while: the first region tests and passes values on, the second is the body.

    Where it counts, its bounds are chosen first, for the trips wanted of a `for` in its place.
    """
    before, after = loop.before_region.block, loop.after_region.block
    test, end = terminator(before), terminator(after)
    start = moves(decoder, tuple(before.args), tuple(loop.arguments))
    passed = moves(decoder, tuple(after.args), tuple(test.operands[1:]))
    back = moves(decoder, tuple(before.args), tuple(end.operands))
    final = moves(decoder, tuple(loop.results), tuple(test.operands[1:]))
    if not (has_steps(before, decoder) or has_steps(after, decoder) or final):
        return None
    check, body = run_steps(decoder.block(before)), run_steps(decoder.block(after))
    condition = decoder.number(test.operands[0])
    carried = tuple(decoder.number(value) for value in before.args if value in decoder.needed)
    site = site_of(loop, after, decoder)
    count = counted(loop)
    programs = decoder.persistent and hopper.PROGRAMS in loop.attributes
    low, high = (decoder.number(v) for v in (count.start, count.end)) if count else (-1, -1)
    step = count.step if count is not None else 1
    by = decoder.number(step) if isinstance(step, SSAValue) else -1
    trips = nesting_of(loop, after, decoder)
    orbits = _orbits(decoder, loop)
    chosen = loop not in decoder.uniform.fixed

    def run(script: Script) -> Source:
        env, world = script.env, script.world
        if count is not None:
            end = world.scalars.apply("add", env[high], count.more)
            step_by = env[by] if by >= 0 else count.step
            world.trips(trips, env[low], end, step_by, script.facts)
        if start is not None:
            start(env)
        turning = world.entering(orbits, env)
        world.entered.add((loop, 0))
        cycle = Cycle(world.scalars, env, carried)
        limit = min(world.limit, world.patience) if chosen else world.limit
        for trip in range(limit):
            if cycle.closes(trip):
                raise Endless("a while loop does not end: its trips repeat", loop)
            if programs:
                script.program = trip
            yield check(script)
            if not world.condition(site, env[condition], None, script.facts):
                break
            if chosen and trip >= PATIENCE:
                world.configuration.restless = trip
            if not trip:
                world.entered.add((loop, 1))
            turning.step()
            if passed is not None:
                passed(env)
            yield body(script)
            if back is not None:
                back(env)
        else:
            kind = Impatient if limit < world.limit else Endless
            raise kind(f"a while loop runs more than {limit} times", loop)
        world.configuration.restless = 0
        turning.end()
        if final is not None:
            final(env)

    return Step(run, True)


def one_thread_rule(decoder: Decoder, only: hopper.OneThread) -> Step | None:
    """The body is executed by thread 0 of the role. Where its actions are made at once, the others
    skip them; else that thread has a script of its own.
    """
    steps = decoder.block(only.body.block)
    if not steps:
        return None
    if not any(step.control or step.late for step in steps):
        body = run_steps(steps)

        def at_once(script: Script) -> None:
            if not script.alone:
                return
            actions = script.actions
            place = len(actions)
            actions.append(_set_single)
            try:
                body(script)
            except (Violation, Unproved) as found:
                script.fail(found)  # which is the business of this thread alone
            actions.append(_clear_single)
            rest = len(actions) - place - 1

            def enter(agent: Agent) -> int | None:
                if not agent.first:
                    return rest
                agent.single = True
                return None

            actions[place] = enter

        return Step(at_once)
    decoder.scripted.add(only)
    begin, end = Step(lambda script: _set_single, by=()), Step(lambda script: _clear_single, by=())
    body = run_steps((begin, *steps, end))
    return Step(lambda script: body(script) if script.alone else None, True)


def _set_single(agent: Agent) -> None:
    agent.single = True


def _clear_single(agent: Agent) -> None:
    agent.single = False
