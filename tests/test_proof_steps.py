"""What the agents of a role do is made once for all slots and phases that it goes by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proof_kernels import text
from proof_orders import draw
from proof_orders import text as drawn
from ring_text import following, kernel, of, refused, start, turn
from tawa.ir import parse
from tawa.simulator.proof import prove
from tawa.simulator.proof.machine import Action, Agent, Script
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.rules import Violation
from tawa.simulator.proof.scalars import Scalars, itself
from tawa.simulator.proof.steps import Step, run_steps, silent
from tawa.target import H200

SLOT, OTHER = 0, 1


def script(*env: object, traced: bool = False) -> Any:
    world = SimpleNamespace(trace=[] if traced else None)
    return SimpleNamespace(env=list(env), actions=[], world=world)


class Count:
    """A step that acts by the number at a place, and says how often its action was made."""

    def __init__(self, *by: int, prepares: Any = None) -> None:
        self.made = 0
        self.step = Step(self.run, by=by, prepares=prepares)
        self.prepares = prepares

    def run(self, script: Script) -> Action:
        if self.prepares is not None:
            self.prepares(script)
        self.made += 1

        def act(agent: Agent) -> None: ...

        return act


def test_an_action_is_made_once_for_each_number() -> None:
    count = Count(SLOT)
    make = run_steps([count.step])
    first, again, other = script(3, 0), script(3, 7), script(4, 0)
    for each in (first, again, other):
        make(each)
    assert count.made == 2
    assert first.actions == again.actions != other.actions


def test_what_a_step_prepares_is_done_each_time() -> None:
    seen: list[object] = []
    count = Count(SLOT, prepares=lambda script: seen.append(script.env[OTHER]))
    make = run_steps([silent(lambda script: seen.append("before")), count.step])
    for other in (1, 2, 3):
        make(script(0, other))
    assert seen == ["before", 1, "before", 2, "before", 3]
    assert count.made == 1


@pytest.mark.parametrize("where", [script(0, traced=True), script("an expression")])
def test_what_is_traced_or_open_is_made_anew(where: Any) -> None:
    count = Count(SLOT)
    make = run_steps([count.step])
    for _ in range(2):
        make(where)
    assert count.made == 2


def test_an_action_that_differs_each_time_parts_those_that_do_not() -> None:
    before, anew, after = Count(SLOT), Count(SLOT), Count(SLOT)
    make = run_steps([before.step, Step(anew.run), after.step])
    for _ in range(3):
        make(script(0))
    assert (before.made, anew.made, after.made) == (1, 3, 1)


def test_what_stands_before_a_failure_is_done_before_it() -> None:
    """A check of the script that fails is said where the agents come to it, after what is before:
    the first time, and when all actions were kept.
    """
    before, after = Count(SLOT), Count(SLOT)

    def check(where: Script) -> None:
        if where.env[OTHER]:
            raise Violation("form", "It fails.", None)

    make = run_steps([before.step, silent(check), after.step])
    for fails in (True, False, True):
        where = script(0, fails)
        if fails:
            with pytest.raises(Violation):
                make(where)
        else:
            make(where)
        assert len(where.actions) == (1 if fails else 2)
    assert (before.made, after.made) == (2, 1)


def turned_by_what_it_computes(role: str, by: str) -> str:
    """A loop that computes in its body where it is in a ring, and turns it there."""
    return (
        f"%e:3 = scf.for %i = %c0 to %K step %c1 iter_args(%x = %c0, %s = %c0, %p = {start(role)}) "
        "-> (i32, i32, i32) : i32 {\n"
        + of("%s1", "add", "%s", "%x")
        + of("%p1", "xor", "%p", "%x")
        + turn(role, "r", "%s1", "%p1", 2)
        + following("%s1", "%p1", 2, ("%s2", "%p2"))
        + f"scf.yield {by}, %s2, %p2 : i32, i32, i32\n}}\n"
    )


@pytest.mark.parametrize("by", ["%c0", "%c1"])
def test_a_slot_that_is_computed_beside_its_use_is_the_one_of_this_trip(by: str) -> None:
    """The phase goes wrong from the second trip on where it is taken from another one."""
    both = [turned_by_what_it_computes("load", "%c0"), turned_by_what_it_computes("mma", by)]
    assert bool(refused(kernel({"r": 2}, *both))) is (by == "%c1")


def test_steps_are_cut_where_one_writes_what_another_goes_by() -> None:
    role = turned_by_what_it_computes("load", "%c0")
    model = read_kernel(
        parse(kernel({"r": 2}, role, turned_by_what_it_computes("mma", "%c0"))), H200
    )
    loop = next(op for op in model.roles[0].operation.walk() if op.name == "scf.for")
    steps = model.decoder.block(loop.regions[0].block)
    assert [step.cut for step in steps if step.by].index(True) == 0
    steady = read_kernel(parse(text("sample gemm")), H200)
    loops = [op for op in steady.roles[1].operation.walk() if op.name == "scf.for"]
    assert not any(step.cut for step in steady.decoder.block(loops[0].regions[0].block))


def rounds(role: str, anew: bool) -> str:
    """A loop that makes five trips and then one, each at the slot after that which it carries: from
    where the ring is, or `anew` from its beginning.
    """
    phase = "%c0" if role == "load" else "%c1"
    begin = ("%c1", phase) if anew else ("%o_s", "%o_p")
    inner = (
        f"%e:2 = scf.for %k = %c0 to %n step %c1 iter_args(%s = {begin[0]}, %p = {begin[1]}) "
        "-> (i32, i32) : i32 {\n"
        + following("%s", "%p", 2, ("%t", "%q"))
        + turn(role, "r", "%t", "%q", 2)
        + "scf.yield %t, %q : i32, i32\n}\n"
    )
    return (
        f"%o:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%o_s = %c1, %o_p = {phase}) "
        "-> (i32, i32) : i32 {\n"
        + of("%first", "eq", "%i", "%c0", result="i1")
        + '%n = tile.elementwise "select"(%first, %c5, %c1) : (i1, i32, i32) -> i32\n'
        + inner
        + "scf.yield %e#0, %e#1 : i32, i32\n}\n"
    )


@pytest.mark.parametrize(("load", "mma"), [(False, False), (False, True), (True, True)])
def test_no_action_is_that_of_a_slot_before(load: bool, mma: bool) -> None:
    """A ring that begins anew after no whole turn has each slot after another one than before: an
    action that was kept by the slot of the trip before would be right by luck no longer.
    """
    text = kernel({"r": 2}, rounds("load", load), rounds("mma", mma))
    assert bool(refused(text)) is (load or mma)


def test_orders_tell_states_apart_by_what_is_there_from_the_beginning() -> None:
    proof = prove(parse(drawn(draw(100_658))), H200)
    assert "(143 states)" in proof.verdict
    assert proof.states == 504


def test_the_first_number_is_asked_of_loops_over_programs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: set[object] = set()
    answered = Scalars.answered

    def note(self: Scalars, outcome: Any, scalars: Any, *rest: Any) -> None:
        if outcome is itself:
            asked.update(item.function for item in scalars if not isinstance(item, int))
        answered(self, outcome, scalars, *rest)

    monkeypatch.setattr(Scalars, "answered", note)
    prove(parse(text("sample gemm_persistent")), H200)
    assert {"block_id", "num_blocks"} <= asked
    asked.clear()
    prove(parse(text("attention window")), H200)
    assert not asked  # where the keys of a window begin, for one
