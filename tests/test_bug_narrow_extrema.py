"""Extrema of bytes and a number compile on the host, as they do on the device."""

import tawa.language as tl
from codegen_emulator import needs_compiler
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.minimum(tl.maximum(x, 1), 2).to(tl.int32))


@needs_compiler
def test_it_is_emulated() -> None:
    arguments = {"x_ptr": Array((128,), "u8", (), 0, 9), "out_ptr": Array((128,), "i32", (), 0, 0)}
    case = written(kernel, arguments, constants={"N": 128}, grid=(1, 1, 1))
    assert run_case(case, seeds=1, emulated=True).verdict == "equal"
