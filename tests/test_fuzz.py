"""Random kernels: oracle, simulated hopper IR and the generated text on the host give equal bits.

`make fuzz` looks further, and writes what it saw to benchmarks/results/.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings

import fuzz_gpu
import tawa.language as tl
from codegen_emulator import needs_compiler
from fuzz_kernels import Array, Case, case_of, cases, written
from fuzz_reduce import reduce
from fuzz_run import Counterexample, compile_case, run_case
from tawa.errors import LaunchError

CUBINS = True

SHORT = settings(suppress_health_check=list(HealthCheck))
# The wider kernels take seconds each, the emulated ones most; `make fuzz` runs many.
FEW = settings(SHORT, max_examples=settings.default.max_examples // 2)


@FEW
@given(cases())
def test_the_simulated_program_equals_the_oracle(case: Case) -> None:
    run_case(case, seeds=2)


@needs_compiler
@settings(SHORT, max_examples=2)
@given(cases())
def test_the_emulated_text_equals_the_oracle(case: Case) -> None:
    run_case(case, seeds=0, emulated=True)


def kernel(a_desc, c_desc, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, 2):
        acc += a_desc.load([0, k * BN]).to(tl.float32)
        if k > 0:
            acc += 1
    c_desc.store([0, 0], acc)


def small() -> Case:
    arguments = {
        "a_desc": Array((16, 64), "f16", (16, 32)),
        "c_desc": Array((16, 32), "f32", (16, 32), 0, 0),
    }
    shape = {"BM": 16, "BN": 32}
    return written(kernel, arguments, constants=shape, grid=(1, 1, 1), options={"num_stages": 2})


def test_a_box_of_every_iteration_may_be_copied_after_the_loop() -> None:
    """Its last copy stands behind the loop; another ring's role is behind it in two loops."""
    with mock.patch("tawa.runtime.nvrtc.is_available", return_value=False):
        assert compile_case(case_of(3000214)).plan.specialized


@pytest.mark.parametrize(
    ("number", "specialized"),
    [
        (91000018, True),  # offsets of the last iteration, as a loop leaves them and as bounds say
        (91000158, False),  # a rest of a sum that no slot is made of
        (91000164, True),  # a sum that a product adds to, read again transposed
    ],
)
def test_no_plan_of_a_random_kernel_is_refused(number: int, specialized: bool) -> None:
    with mock.patch("tawa.runtime.nvrtc.is_available", return_value=False):
        made = compile_case(case_of(number))
    assert made.plan.specialized == specialized
    assert not [each for each in made.declined if "is not proved" in each.reason]


def test_data_are_equal_at_every_call_and_results_start_as_nan() -> None:
    one, two = small().data(), small().data()
    assert (one["a_desc"] == two["a_desc"]).all()
    assert (one["c_desc"] != one["c_desc"]).all()


def test_a_wrong_result_is_a_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    import fuzz_run

    real = fuzz_run.simulate_stage

    def wrong(program, arguments, grid, level, **how):
        real(program, arguments, grid, level, **how)
        if level == "hopper":
            arguments["c_desc"].base[3, 4] += 1

    monkeypatch.setattr(fuzz_run, "simulate_stage", wrong)
    with pytest.raises(Counterexample, match=r"c_desc\[3, 4\] is .*; 1 of 512 differ"):
        run_case(small(), seeds=1)


def test_a_failure_of_the_compiler_is_a_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("tawa.runtime.compiler.rank_plans", broken)
    with pytest.raises(Counterexample, match="lost"):
        run_case(small())


def test_reduction_leaves_what_fails() -> None:
    found = reduce(small(), lambda case: "acc += 1" in case.source)
    assert found.source.splitlines()[1:] == ["    acc += 1"]
    assert found.arguments == {}
    assert found.options == {}


def test_what_cannot_be_left_out_is_tried_once_a_round() -> None:
    spare, needed = ([f"    {stem}{i} = {i}" for i in range(10)] for stem in ("spare", "needed"))
    case = replace(small(), source="\n".join(["def kernel():", *spare, *needed, ""]), options={})
    found = reduce(case, lambda one: all(line in one.source for line in needed), attempts=45)
    assert found.source.splitlines()[1:] == needed


@pytest.mark.parametrize("number", [10_002_590, 10_004_064])
def test_every_tile_taken_by_a_ticket_has_words(number: int, tmp_path: Path) -> None:
    assert fuzz_gpu.compiled(number, tmp_path)["verdict"] == "compiled"
    assert case_of(number).arguments["bands"] == 9


def test_a_case_that_the_oracle_refuses_does_not_end_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*arguments: object) -> None:
        raise LaunchError("outside", why="element 8 of 8")

    monkeypatch.setattr(fuzz_gpu, "launched", lambda number, pinned: small())
    monkeypatch.setattr(fuzz_gpu, "simulate_stage", refused)
    found = fuzz_gpu.compiled(1, tmp_path)
    assert found["kernel"] == 1
    assert found["verdict"] == "fault"
    assert "the oracle: LaunchError: outside" in found["reason"]
