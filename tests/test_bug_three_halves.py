"""Three 16-bit elements of a thread are two words: the second element was left out of the first.

Found on an H200 and by the emulation, where a gather had three elements a thread.
"""

import pytest

import tawa.language as tl
from codegen_emulator import needs_compiler
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(x_ptr, rows_ptr, out_ptr, N: tl.constexpr):
    k = tl.arange(0, 16)[:, None]
    n = tl.arange(0, N)
    rows = tl.load(rows_ptr + n)
    x = tl.load(x_ptr + rows[None, :] * 16 + k, mask=rows[None, :] >= 0, other=0)
    tl.store(out_ptr + n[None, :] * 16 + k, (x * 2).to(x.dtype))


@needs_compiler
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e5m2", "i8"])
@pytest.mark.parametrize("warps", [16, 8])
def test_odd_counts(dtype, warps) -> None:
    case = written(
        kernel,
        {
            "x_ptr": Array((96, 16), dtype),
            "rows_ptr": Array((96,), "i32", (), 0, 95),
            "out_ptr": Array((96, 16), dtype, (), 0, 0),
        },
        constants={"N": 96},
        grid=(1, 1, 1),
        options={"num_warps": warps},
    )
    assert run_case(case, seeds=1, emulated=True).verdict == "equal"
