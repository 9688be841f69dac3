"""Stores whose stages do not fit shared memory together leave from registers."""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(c_desc, d_desc, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.arange(0, BM)[:, None] + tl.arange(0, BN)[None, :]
    c_desc.store([0, 0], x.to(tl.float32))
    d_desc.store([0, 0], (x * 2).to(tl.float32))


def test_it_compiles() -> None:
    stored = Array((128, 256), "f32", (128, 256), 0, 0)
    case = written(
        kernel,
        {"c_desc": stored, "d_desc": stored},
        constants={"BM": 128, "BN": 256},
        grid=(1, 1, 1),
    )
    assert run_case(case).verdict == "equal"
