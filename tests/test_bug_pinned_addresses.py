"""A pipelined loop pinned the addresses and the mask of a store: they went through shared memory,
the proof knew no longer whose addresses they were, and code generation pinned no mask.
"""

import pytest

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, v_desc, rows_ptr, K, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    a = a_desc.load([0, 0])
    for k in range(0, K):
        row = k * BM + tl.arange(0, BM)
        tl.store(rows_ptr + row, tl.max(acc, 1), mask=row < 2 * BM)
        acc = tl.clamp(acc - tl.sum(acc, 1)[:, None], -2.0, 2.0)
        p = tl.clamp(tl.dot(a, b_desc.load([k * BN, 0]).T), -2.0, 2.0).to(tl.float16)
        acc = tl.dot(p, v_desc.load([k * BN, 0]), acc)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_addresses_are_computed_where_they_are_used(iterations: int) -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 64), "f16", (64, 64)),
            "b_desc": Array((256, 64), "f16", (64, 64)),
            "v_desc": Array((256, 64), "f16", (64, 64)),
            "rows_ptr": Array((256,), "f32", (), 0, 0),
            "K": iterations,
        },
        constants={"BM": 64, "BN": 64},
        grid=(1, 1, 1),
    )
    # In the only iteration of a loop nobody reads the product: nothing is left to share out.
    assert run_case(case).specialized == (iterations != 1)
