"""A masked store whose columns end within 16 bytes went by TMA, which wrote all 16."""

import pytest

import tawa
import tawa.language as tl
from fuzz_kernels import Array, written


def kernel(a_ptr, b_ptr, c_ptr, stride, BM: tl.constexpr, BN: tl.constexpr, END: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, 64)
    at = rows[:, None] * stride + columns[None, :]
    inside = columns[None, :] < END
    b = tl.load(b_ptr + inner[:, None] * stride + columns[None, :], mask=inside, other=0.0)
    for i in range(0, 3):
        a = tl.load(a_ptr + (rows[:, None] + i * BM) * 64 + inner[None, :])
        tl.store(c_ptr + at + i * BM * stride, tl.dot(a, b).to(tl.float16), mask=inside)


@pytest.mark.parametrize(("end", "mapped"), [(92, False), (88, True), (96, True)])
def test_it_goes_by_tma_where_it_may(end: int, mapped: bool) -> None:
    case = written(
        kernel,
        {
            "a_ptr": Array((192, 64), "f16"),
            "b_ptr": Array((64, 96), "f16"),
            "c_ptr": Array((192, 96), "f16", (), 0, 0),
            "stride": 96,
        },
        constants={"BM": 64, "BN": 128, "END": end},
        grid=(1, 1, 1),
    )
    made = tawa.jit(case.function()).compile(*case.given(case.data()).values(), **case.constants)
    assert ("c_ptr" in [getattr(each, "base", "") for each in made.parameters]) == mapped
