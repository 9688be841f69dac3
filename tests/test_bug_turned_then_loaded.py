"""A role that waits for a turned tile, then loads one by itself and reads it last, gives no slot
back: the barrier of the turned tile was taken for one that does.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(
    m_desc, n_desc, counts_ptr, c_desc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    acc = tl.zeros((BM, BN), tl.int32)
    a = m_desc.load([0, 0])
    b = n_desc.load([0, 0])
    acc = tl.dot(a, b, acc)
    acc += tl.sum(a.to(tl.int32), 1)[:, None]
    w = 0
    while (w < 4) & (tl.load(counts_ptr + w, volatile=True) > 0):
        acc += tl.dot(m_desc.load([0, w * BK]), b)
        w += 1
    c_desc.store([0, 0], acc)


def test_the_kernel_is_proved() -> None:
    case = written(
        kernel,
        {
            "m_desc": Array((64, 256), "i8", (64, 64)),
            "n_desc": Array((64, 128), "i8", (64, 128)),
            "counts_ptr": Array((8,), "i32", (), 0, 3),
            "c_desc": Array((64, 128), "i32", (64, 128), 0, 0),
        },
        constants={"BM": 64, "BN": 128, "BK": 64},
        grid=(1, 1, 1),
    )
    found = run_case(case)
    assert found.verdict == "equal"
    assert found.specialized
