"""The lowering on kernels: hopper IR computes what tile IR means, is proved, and builds."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr

from lower_kernels import CASES, fresh, lowered, tile_kernel
from tawa.codegen.generate import generate
from tawa.errors import ProtocolError
from tawa.ir import hopper, verify
from tawa.runtime import nvrtc
from tawa.simulator import simulate
from tawa.target import H200
from tawa.verify import verify as prove


def run(kernel, case, **how):
    arrays, arguments = fresh(case)
    simulate(kernel, case.grid, arguments, **how)
    return arrays


# `test_schedules` proves the same kernels and runs each under a schedule of its own.
FEW = pytest.mark.short("matmul 16x128", "batched", "row sums", "attention", "pointers", "counter")


@FEW
@pytest.mark.parametrize("name", CASES)
def test_hopper_run_equals_the_oracle(name: str) -> None:
    case = CASES[name]
    kernel, _, _ = lowered(name)
    verify(kernel)
    expected = run(tile_kernel(case), case, level="tile")
    for seed, late in ((0, "late"), (1, "random")):
        actual = run(kernel, case, seed=seed, late=late, multiprocessors=2)
        for array in expected:
            want, got = (np.asarray(x[array], np.float64) for x in (expected, actual))
            if case.exact:
                assert np.array_equal(want, got, equal_nan=True), array
            else:
                assert np.linalg.norm(want - got) <= 1e-3 * np.linalg.norm(want), array


@FEW
@pytest.mark.parametrize("name", CASES)
def test_protocol_is_proved(name: str) -> None:
    assert prove(lowered(name)[0], H200).ok


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")
@pytest.mark.parametrize(
    "name",
    [
        "matmul 128x256",
        "matmul in 4 parts",
        "matmul in 3 unequal parts",
        "matmul 16x128",
        "matmul fp8 nn",
        "matmul fp8 runs of 32",
        "matmul tf32 tn",
        "matmul ieee",
        "computed operands",
        "row sums",
        "attention",
        "both axes",
        "running sum",
        "counter",
    ],
)
@pytest.mark.short(
    "matmul in 4 parts",
    "matmul fp8 runs of 32",
    "matmul tf32 tn",
    "matmul ieee",
    "computed operands",
    "row sums",
    "attention",
    "counter",
)
def test_generated_text_builds_without_spills(name: str) -> None:
    source = generate(lowered(name)[0])
    assert nvrtc.build(source, source.entry_name).spill_bytes == 0


@pytest.mark.parametrize(
    ("name", "pending"),
    [("matmul in 3 unequal parts", [0, 0, 0]), ("matmul in 3 unequal parts, 2 places", [0, 1])],
)
def test_parts_of_unlike_layouts_in_one_place_need_every_wait(
    name: str, pending: list[int]
) -> None:
    kernel = lowered(name)[0]
    stages = [op for op in kernel.walk() if isinstance(op, hopper.Shared) and "stage" in str(op)]
    assert len({stage.offset for stage in stages}) == len(stages) - 1
    waits = [op for op in kernel.walk() if isinstance(op, hopper.BulkWait)]
    assert [wait.pending.data for wait in waits] == [*pending, 0]
    for index in range(len(pending)):
        mutant = kernel.clone()
        wait = [op for op in mutant.walk() if isinstance(op, hopper.BulkWait)][index]
        wait.attributes["pending"] = IntAttr(wait.pending.data + 1)
        with pytest.raises(ProtocolError):
            prove(mutant, H200)
    kinds = (hopper.BulkWait, hopper.ProxyFence, hopper.NamedBarrier)
    count = sum(isinstance(op, kinds) for op in kernel.walk())
    for index in range(count):
        mutant = kernel.clone()
        op = [op for op in mutant.walk() if isinstance(op, kinds)][index]
        op.detach()
        op.erase()
        with pytest.raises(ProtocolError):
            prove(mutant, H200)
