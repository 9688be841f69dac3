"""Warps that hold the same element write the same value: the simulator called it a race.

With 192 rows three warpgroups work on a tile of B that each of them keeps whole.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_ptr, rows_ptr, c_desc, stride, K, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    rows = tl.load(rows_ptr + tl.arange(0, BN))
    along = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        b = tl.load(b_ptr + rows[None, :] * stride + (k + along)[:, None])
        acc = tl.dot(a_desc.load([0, k]), b, acc)
    c_desc.store([0, 0], acc)


def case(**options):
    return written(
        kernel,
        {
            "a_desc": Array((192, 128), "f16", (192, 64)),
            "b_ptr": Array((64, 128), "f16"),
            "rows_ptr": Array((64,), "i32", (), 0, 63),
            "c_desc": Array((192, 64), "f32", (192, 64), 0, 0),
            "stride": 128,
            "K": 128,
        },
        constants={"BM": 192, "BN": 64, "BK": 64},
        grid=(1, 1, 1),
        options=options,
    )


def test_as_an_ordinary_kernel() -> None:
    assert not run_case(case(specialize=False)).specialized


def test_as_a_specialized_kernel() -> None:
    assert run_case(case()).specialized
