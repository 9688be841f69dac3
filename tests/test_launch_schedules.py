"""What stands in for the simulator in the launches of tests (launch_schedules.py)."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import needs_compiler
from launch_schedules import Schedules
from tawa.runtime import dispatch
from tawa.simulator.scheduler import adversarial


@tawa.jit
def total(x_desc, out, rows, COUNT: tl.constexpr, B: tl.constexpr):
    """The sum of some rows, added to what is there, and the second half a copy of the first."""
    at = tl.arange(0, B)
    acc = tl.load(out + at)
    for row in range(0, rows, COUNT):
        acc += tl.sum(x_desc.load([row, 0]).to(tl.float32), 0)
    tl.store(out + at, acc)
    tl.store(out + B + at, acc)


@tawa.jit
def counted(out):
    tl.atomic_add(out, tl.program_id(0))


def given():
    x = np.arange(64 * 64).reshape(64, 64).astype(np.float16) % 5
    out = np.ones(128, np.float32)
    return x, out, tawa.TensorDescriptor.from_tensor(x, [16, 64])


def test_a_launch_is_under_a_schedule_of_the_test(schedules):
    x, out, desc = given()
    kernel = total[(1,)](desc, out, 64, 16, 64)
    ways = adversarial(kernel.asm.program("hopper"))
    assert schedules.ran
    assert set(schedules.ran) <= set(ways)
    np.testing.assert_array_equal(out, np.tile(1 + x.astype(np.float32).sum(0), 2))


@needs_compiler
@pytest.mark.parametrize("test", ["one", "another"])
def test_all_schedules_begin_with_the_same_memory(monkeypatch, test):
    found = Schedules(dispatch.simulate_stage.stage, test, all_of_them=True)
    monkeypatch.setattr(dispatch, "simulate_stage", found)
    x, out, desc = given()
    kernel = total[(1,)](desc, out, 64, 16, 64)
    assert sorted(found.ran[:-1]) == sorted(adversarial(kernel.asm.program("hopper")))
    assert len(found.ran) >= 10
    assert found.ran[-1] == "emulated"
    np.testing.assert_array_equal(out, np.tile(1 + x.astype(np.float32).sum(0), 2))


def test_a_schedule_that_differs_is_told(monkeypatch):
    def stage(program, arguments, grid, level, *, schedule, seed):
        arguments["out"][0] = len(schedule)

    monkeypatch.setattr(dispatch, "simulate_stage", Schedules(stage, "", all_of_them=True))
    _, out, desc = given()
    with pytest.raises(AssertionError, match="schedules that differ"):
        total[(1,)](desc, out, 64, 16, 64)
    sums = np.zeros(1, np.int32)
    counted[(2,)](sums)  # sums of programs depend on their order


def test_who_says_how_is_left_alone(schedules):
    _, out, desc = given()
    for how in ({"schedule": "late"}, {"seed": 3}, {"level": "aref"}):
        tawa.simulate(total, desc, out, 64, 16, 64, grid=(1,), **how)
    assert schedules.ran == []
    tawa.simulate(total, desc, out, 64, 16, 64, grid=(1,))
    assert len(schedules.ran) > 0
