"""Pointer loads from columns that are no multiples of 16 bytes became TMA, which faults on them."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case
from tawa.errors import LaunchError


def kernel(a_ptr, b_desc, c_desc, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           SHIFT: tl.constexpr):  # fmt: skip
    rows = tl.arange(0, BM)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        columns = k + SHIFT + tl.arange(0, BK)
        inside = columns[None, :] < K
        a = tl.load(a_ptr + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)
        acc = tl.dot(a, b_desc.load([k, 0]), acc)
    c_desc.store([0, 0], acc)


@pytest.mark.parametrize(("shift", "via"), [(0, "tma"), (8, "tma"), (1, "copy"), (4, "copy")])
def test_pointers(shift, via) -> None:
    case = written(
        kernel,
        {
            "a_ptr": Array((64, 192), "f16"),
            "b_desc": Array((192, 64), "f16", (64, 64)),
            "c_desc": Array((64, 64), "f32", (64, 64), 0, 0),
            "K": 192,
            "stride": 192,
        },
        constants={"BM": 64, "BN": 64, "BK": 64, "SHIFT": shift},
        grid=(1, 1, 1),
    )
    run_case(case)
    compiled = tawa.jit(case.function()).compile(
        *case.given(case.data()).values(), **case.constants
    )
    mapped = [getattr(parameter, "base", "") for parameter in compiled.parameters]
    assert ("a_ptr" in mapped) == (via == "tma")


@tawa.jit
def shifted(x_desc, y_desc, n, SHIFT: tl.constexpr):
    for i in range(0, n):
        y_desc.store([i * 16, 0], x_desc.load([i * 16, SHIFT]))


def test_a_descriptor_in_the_simulator() -> None:
    x, y = np.ones((32, 64), np.float16), np.zeros((32, 64), np.float16)
    described = [tawa.TensorDescriptor.from_tensor(each, [16, 32]) for each in (x, y)]
    tawa.simulate(shifted, *described, 2, grid=(1,), SHIFT=8)
    with pytest.raises(LaunchError, match="column 4 of 2 bytes each"):
        tawa.simulate(shifted, *described, 2, grid=(1,), SHIFT=4)
