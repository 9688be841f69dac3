"""The compile driver tries the next plan where one is not proved, and keeps why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.dialects.builtin import IntAttr

from lower_kernels import CASES
from tawa.codegen.generate import generate
from tawa.errors import BuildError, ProtocolError, UnprovedProtocol
from tawa.ir import aref
from tawa.ir.text import text_of
from tawa.ir.walk import all_of
from tawa.passes import pipeline
from tawa.plan.resources import moved_to_helpers
from tawa.runtime import compiler, nvrtc, resident
from tawa.runtime.crash import Steps
from tawa.runtime.request import Request
from tawa.target import H200


def refusing(error, count):
    """A proof that raises `error` for the first `count` kernels."""
    verify, calls = compiler.verify, []

    def refuse(kernel, target, program):
        calls.append(kernel)
        if len(calls) <= count:
            raise error(f"refusal {len(calls)}")
        return verify(kernel, target, program)

    return refuse, calls


def request(name):
    case = CASES[name]
    return Request(case.function, "", case.signature, {}, case.pins, H200)


def build(name="matmul 64x128"):
    return compiler.compile_kernel(request(name))


def test_the_plan_after_an_unproved_one_is_taken(monkeypatch):
    first = build().plan
    refuse, calls = refusing(UnprovedProtocol, 1)
    monkeypatch.setattr(compiler, "verify", refuse)
    kernel = build()
    assert len(calls) == 2
    assert kernel.proof.ok
    assert kernel.plan != first
    assert ("plan 1", "refusal 1") in [(item.feature, item.reason) for item in kernel.declined]
    assert "refusal 1" in str(kernel)


def test_the_first_of_several_refusals_is_raised(monkeypatch):
    refuse, calls = refusing(UnprovedProtocol, 9)
    monkeypatch.setattr(compiler, "verify", refuse)
    with pytest.raises(UnprovedProtocol, match="refusal 1") as caught:
        build()
    assert len(calls) > 1
    assert "plan 2: refusal 2" in caught.value.__notes__


def test_what_is_not_proved_is_tried_with_few_slots_last(monkeypatch):
    first = build().plan
    refuse, calls = refusing(UnprovedProtocol, 99)
    with monkeypatch.context() as never:
        never.setattr(compiler, "verify", refuse)
        with pytest.raises(UnprovedProtocol):
            build()
    refuse, _ = refusing(UnprovedProtocol, len(calls) - 1)
    monkeypatch.setattr(compiler, "verify", refuse)
    kernel = build()
    assert {ring.depth for ring in first.arefs} != {2}
    assert {ring.depth for ring in kernel.plan.arefs} == {2}
    assert kernel.plan.roles == first.roles


def test_a_violated_protocol_is_never_passed_over(monkeypatch):
    refuse, calls = refusing(ProtocolError, 1)
    monkeypatch.setattr(compiler, "verify", refuse)
    with pytest.raises(ProtocolError, match="refusal 1"):
        build()
    assert len(calls) == 2  # once more for the report, and no other plan
    plans = {str(kernel) for kernel in calls}
    assert len(plans) == 1


def test_the_last_plan_is_taken_slow_and_says_so(monkeypatch):
    log = "ptxas info : wgmma.mma_async instructions are serialized due to something"

    def built(text, name, *, arch, strict):
        if strict:
            raise BuildError("compiles badly")
        return nvrtc.Cubin(b"", log, 128, 0, 0.0)

    monkeypatch.setattr(compiler.nvrtc, "is_available", lambda: True)
    monkeypatch.setattr(compiler.cubins, "build", built)
    kernel = build()
    assert kernel.plan.sharing
    assert ("fast code", "wgmma is serialised") in [(d.feature, d.reason) for d in kernel.declined]


def with_local_memory(monkeypatch, accesses, of_helpers=1):
    """Builds whose loops access local memory so often, plan by plan; those of helpers do."""
    counts = iter(accesses)
    cubin = nvrtc.Cubin(b"", "", 128, 16, 0.0, stack=8)
    monkeypatch.setattr(compiler.nvrtc, "is_available", lambda: True)
    monkeypatch.setattr(compiler.cubins, "build", lambda *_, **__: cubin)
    monkeypatch.setattr(compiler, "_local_in_loops", lambda _: next(counts))
    monkeypatch.setattr(resident, "_local_of_helpers", lambda _: of_helpers)


def test_loops_that_wait_for_local_memory_make_the_driver_try_another_plan(monkeypatch):
    with_local_memory(monkeypatch, [0])
    first = build().plan
    with_local_memory(monkeypatch, [compiler.FEW + 4, compiler.FEW + 5, 0])
    kernel = build()
    assert kernel.plan != first
    assert kernel.plan.specialized
    assert ("plan 1", "20 accesses to local memory in loops of roles") in [
        (item.feature, item.reason) for item in kernel.declined
    ]
    assert "stack: 8 bytes a thread, no access in loops of roles" in str(kernel)


def test_of_plans_that_all_wait_for_local_memory_the_best_is_taken_and_says_so(monkeypatch):
    with_local_memory(monkeypatch, [0])
    first = build().plan
    with_local_memory(monkeypatch, [compiler.FEW + 4] * 2 * compiler.ATTEMPTS)
    kernel = build()
    assert kernel.plan == first, "an ordinary kernel is no way out"
    assert "fast code: 20 accesses to local memory in loops of roles" in str(kernel)
    assert "stack: 8 bytes a thread, 20 accesses in loops of roles" in str(kernel)


def carried_out(monkeypatch):
    """The plans that are lowered from here on."""
    plans, carry_out = [], compiler._carry_out

    def noted(job, kernel, plan, *more):
        plans.append(plan)
        return carry_out(job, kernel, plan, *more)

    monkeypatch.setattr(compiler, "_carry_out", noted)
    return plans


def test_a_plan_that_differs_in_depths_alone_fares_no_better(monkeypatch):
    with_local_memory(monkeypatch, [compiler.FEW + 4] * 2 * compiler.ATTEMPTS)
    plans = carried_out(monkeypatch)
    build()
    assert len({plan.held for plan in plans}) == len(plans) > 1
    refuse, _ = refusing(UnprovedProtocol, 99)
    monkeypatch.setattr(compiler, "verify", refuse)
    plans.clear()
    with pytest.raises(UnprovedProtocol):
        build()
    assert len({plan.order for plan in plans}) < len(plans), "a ring's depth may be the reason"
    monkeypatch.setattr(UnprovedProtocol, "rule", "global order")
    plans.clear()
    with pytest.raises(UnprovedProtocol):
        build()
    assert len({plan.order for plan in plans}) == len(plans) > 1


def test_registers_stay_where_only_products_wait_for_local_memory(monkeypatch):
    counts = [compiler.FEW + 4] * compiler.ATTEMPTS
    with_local_memory(monkeypatch, counts, of_helpers=0)
    plans = carried_out(monkeypatch)
    monkeypatch.setattr(resident, "moved_to_helpers", lambda plan, target: plan)
    monkeypatch.setattr(compiler, "_begin", None)  # nothing is shared out anew
    build()
    assert len(plans) > 1


@pytest.mark.parametrize("name", ["matmul 128x256", "attention", "matmul 2 warps"])
def test_registers_shared_out_anew_are_those_of_lowering(name):
    """The text is that of lowering by the plan, and the rules of registers are checked."""
    asked = replace(request(name), cubin=False)
    kernel, job = compiler.compile_kernel(asked), compiler.Job(asked, Steps())
    moved = moved_to_helpers(kernel.plan, H200)
    assert moved is not None
    shared = compiler._share(job, kernel, moved)()
    assert shared is not None
    lowered = kernel.asm.program("aref").clone()
    for role in all_of(lowered, aref.Role):
        planned = moved.role_of(role.label.data)
        assert planned is not None
        role.attributes["registers"] = IntAttr(planned.registers)
    pipeline.run(pipeline.HOPPER, lowered, moved, H200)
    assert shared.asm.text("hopper") == text_of(lowered)
    assert shared.asm.text("cuda") == generate(lowered).text


def test_registers_that_the_block_does_not_have_are_refused_when_shared_out():
    asked = replace(request("matmul 64x128"), cubin=False)
    kernel, job = compiler.compile_kernel(asked), compiler.Job(asked, Steps())
    roles = tuple(replace(role, registers=H200.registers_max) for role in kernel.plan.roles)
    plan = replace(kernel.plan, roles=roles)
    assert compiler._share(job, kernel, plan)() is None
    with pytest.raises(UnprovedProtocol, match="register budget"):
        compiler._begin(job, kernel.asm.program("hopper"), plan)


def test_a_few_accesses_are_reported_alone(monkeypatch):
    with_local_memory(monkeypatch, [0])
    first = build().plan
    with_local_memory(monkeypatch, [1, 1])
    kernel = build()
    assert kernel.plan == first
    assert "fast code: 1 access to local memory in loops of roles" in str(kernel)


def test_registers_move_to_the_role_that_serves_where_that_helps(monkeypatch):
    with_local_memory(monkeypatch, [0])
    before = {role.label: role.registers for role in build().plan.roles}
    with_local_memory(monkeypatch, [3, 0])
    kernel = build()
    after = {role.label: role.registers for role in kernel.plan.roles}
    assert after["mma"] == before["mma"] - 8
    assert after["load"] > before["load"]
    assert kernel.resources.local_in_loops == 0
    sizes = {role.label: role.warps * role.instances for role in kernel.plan.roles}
    assert sum(after[name] * sizes[name] for name in sizes) <= sum(
        before[name] * sizes[name] for name in sizes
    )


def test_what_is_not_proved_of_many_programs_is_tried_with_one(monkeypatch):
    first = build().plan
    refuse, calls = refusing(UnprovedProtocol, 1)
    monkeypatch.setattr(compiler, "verify", refuse)
    kernel = build()
    assert first.persistent
    assert not kernel.plan.persistent
    assert kernel.plan.specialized
    assert len(calls) == 2
