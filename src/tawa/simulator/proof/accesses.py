"""Accesses by threads: to shared memory, each agent what its warps hold, and to global memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.types import LayoutAttr
from tawa.layouts.register import RegisterLayout
from tawa.layouts.transpose import given, taken
from tawa.simulator.proof.counting import carries_scalar
from tawa.simulator.proof.decode import Decoder, compute, concrete, fresh
from tawa.simulator.proof.effects import by_one
from tawa.simulator.proof.expressions import Scalar
from tawa.simulator.proof.form import role_of
from tawa.simulator.proof.machine import Action, Agent, Script
from tawa.simulator.proof.memory import Access, Bucket, Place
from tawa.simulator.proof.regions import Footprint, Moved
from tawa.simulator.proof.rules import Violation
from tawa.simulator.proof.steps import Step, both, checked

WARPGROUP = 4
"""Warps of a warpgroup."""


View: TypeAlias = tuple[Footprint, int]
"""The static part of a view, and the place of its slot number."""


def located(script: Script, view: View, op: Operation) -> tuple[Place, int]:
    """Return the bucket of a view, by its place, and by how much its masks are moved there. Raises
    Violation past the end of the buffer.
    """
    place, at = view
    slot, buffer = concrete(script, at, "slot", op), place.buffer
    if not 0 <= slot < buffer.slots:
        sentence = f"{script.label} uses slot {slot} of {buffer.label}, which has {buffer.slots}."
        raise Violation("form", sentence, op)
    return buffer.buckets[slot], buffer.shifts[slot]


Share = Callable[[Agent, int], int]
"""What an agent's warps hold of a view, as a mask that is moved by so many words: one object each
time, which is soon seen to equal itself.
"""


def _whole(script: Script, view: View, op: Operation) -> tuple[Bucket, int]:
    """Return the bucket of a view, and the mask of all of it there."""
    place, shift = located(script, view, op)
    return script.home.memory[place], view[0].mask() << shift


def are_alike(place: Footprint, layout: RegisterLayout | None, op: Operation) -> bool:
    """Tell whether two warps of a role touch the same bytes of a view."""
    warps = role_of(op).warps.data
    if layout is None:
        return warps > 1
    seen = 0
    for warp in range(warps):
        mask = place.share(layout, (warp,))
        if seen & mask:
            return True
        seen |= mask
    return False


def touch_shared(
    script: Script,
    view: View,
    share: Share,
    write: bool,
    op: Operation,
    what: str,
    alike: bool = False,
) -> Action:
    """Return the action of threads that access shared memory; of an `alike` write several agents
    touch the same bytes.
    """
    place, shift = located(script, view, op)
    number = view[0].buffer.number
    doing = what + ": {}"

    def act(agent: Agent) -> None:
        turn = agent.turn(op) if write else 0
        mask = share(agent, shift)
        if not mask:
            return
        world = agent.world
        bucket, event = agent.home.memory[place], world.event()
        world.steps += 1
        if world.steps > world.watched:
            world.watch(agent, op, doing, bucket.name)
        several = alike and not agent.single
        access = Access(mask, event, write, False, agent, what, op, world.steps, turn, several)
        bucket.check(access, agent)
        if write:
            bucket.put = None
        else:
            bucket.see(agent, number, op)
        agent.known |= event
        world.by_threads |= event
        if agent.single:
            agent.unfenced_one |= event
        else:
            agent.unfenced |= event
        bucket.record(access)

    return act


def layout_of(value: SSAValue) -> RegisterLayout | None:
    """Return the layout of a tensor over warps, None where it has none."""
    kind = value.type
    if isinstance(kind, TensorType) and isinstance(kind.encoding, LayoutAttr):
        return kind.encoding.data
    return None


def share_of(place: Footprint, layout: RegisterLayout | None) -> Share:
    """Return the function (agent, shift) -> mask of what its warps hold of a view."""
    if layout is None:
        whole = Moved(place.mask())
        return lambda agent, shift: whole.by(shift)
    base = layout
    shares: dict[tuple[int, ...], Moved] = {}

    def share(agent: Agent, shift: int) -> int:
        found = shares.get(agent.warps)
        if found is None:
            found = shares[agent.warps] = Moved(place.share(base, agent.warps))
        return found.by(shift)

    return share


def shared_store_rule(decoder: Decoder, store: hopper.SharedStore) -> Step:
    """Threads write registers to a view; a scalar's value is kept for those who read it."""
    view = decoder.view(store.view)
    place, _ = view
    layout = layout_of(store.value)
    share, alike = share_of(place, layout), are_alike(place, layout, store)
    check = decoder.touch(decoder, store)
    scalar = decoder.number(store.value) if carries_scalar(store.value) else -1

    def run(script: Script) -> Action:
        touch = touch_shared(script, view, share, True, store, "shared_store", alike)
        if scalar < 0:
            return touch
        bucket, mask = _whole(script, view, store)
        value: Scalar = script.env[scalar]

        def act(agent: Agent) -> None:
            touch(agent)
            bucket.scalars[mask] = value

        return act

    return checked(check, Step(run, by=None if scalar >= 0 else (view[1],)))


def shared_transpose_rule(decoder: Decoder, move: hopper.SharedTranspose) -> Step:
    """Each warp copies its part of one tile to another."""
    source, target = decoder.view(move.source), decoder.view(move.view)
    rows, columns = source[0].shape
    warps = role_of(move).warps.data
    have = share_of(source[0], taken((rows, columns), warps))
    layout = given((rows, columns), warps)
    made, alike = share_of(target[0], layout), are_alike(target[0], layout, move)

    def run(script: Script) -> Action:
        take = touch_shared(script, source, have, False, move, "shared_transpose")
        give = touch_shared(script, target, made, True, move, "shared_transpose", alike)

        def act(agent: Agent) -> None:
            if agent.single:
                raise by_one(agent, move)
            take(agent)
            give(agent)

        return act

    return Step(run, by=(source[1], target[1]))


def shared_load_rule(decoder: Decoder, load: hopper.SharedLoad) -> Step:
    """Threads read a view into registers."""
    view = decoder.view(load.view)
    place, _ = view
    share = share_of(place, layout_of(load.result))
    check = decoder.touch(decoder, load)
    out = decoder.number(load.result) if load.result in decoder.needed else -1
    other = fresh(load, out)

    def run(script: Script) -> Action:
        if out >= 0:
            bucket, mask = _whole(script, view, load)
            if mask in bucket.scalars:
                script.env[out] = bucket.scalars[mask]
            else:
                other.run(script)
        return touch_shared(script, view, share, False, load, "shared_load")

    late = out >= 0
    return checked(check, Step(run, late=late, by=None if late else (view[1],)))


def shared_gather_rule(decoder: Decoder, load: hopper.SharedGather) -> Step:
    """Threads read elements of a view that an index tells: any of them."""
    return _whole_views(decoder, load, (load.view,), "shared_gather")


def fma_dot_rule(decoder: Decoder, dot: hopper.FmaDot) -> Step:
    """Threads read both operands; which parts is the instruction's business: all of them."""
    return _whole_views(decoder, dot, (dot.a, dot.b), "fma_dot")


def _whole_views(decoder: Decoder, reader: Operation, views: Sequence[SSAValue], what: str) -> Step:
    """Return the step of threads that may read all of some views."""
    operands = [decoder.view(view) for view in views]
    shares = [share_of(place, None) for place, _ in operands]
    check = decoder.touch(decoder, reader)

    def run(script: Script) -> Action:
        touches = [
            touch_shared(script, view, share, False, reader, what)
            for view, share in zip(operands, shares, strict=True)
        ]

        def act(agent: Agent) -> None:
            for touch in touches:
                touch(agent)

        return act

    return checked(check, Step(run, by=tuple(place for _, place in operands)))


# --- global memory by threads ---------------------------------------------------------------------


def global_rule(decoder: Decoder, operation: Operation) -> Step | None:
    """A load, store or atomic by threads: its registers must be at rest, its result is unknown."""
    check = decoder.touch(decoder, operation)
    steps = [] if check is None else [check]
    if any(result in decoder.needed for result in operation.results):
        steps.append(compute(decoder, operation))
    if operation in decoder.followed:
        steps.append(Step(_follow(operation)))
    return reduce(both, steps) if steps else None


def _follow(operation: Operation) -> Callable[[Script], Action]:
    def run(script: Script) -> Action:
        program = script.program

        def act(agent: Agent) -> None:
            world = agent.world
            event = world.event()
            world.by_threads |= event
            agent.known |= event
            world.globals.access(agent, operation, event, None, program)

        return act

    return run
