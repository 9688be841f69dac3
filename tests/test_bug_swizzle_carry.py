"""Offsets of a thread and of its registers carried into the row bits of a swizzled tile."""

import tawa.language as tl
from codegen_emulator import needs_compiler
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]))
    c_desc.store([0, 0], acc.to(tl.bfloat16))


@needs_compiler
def test_three_registers_a_thread() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((128, 16), "f16", (128, 16)),
            "b_desc": Array((16, 96), "f16", (16, 96)),
            "c_desc": Array((128, 96), "bf16", (128, 96), 0, 0),
        },
        constants={"BM": 128, "BN": 96},
        grid=(1, 1, 1),
        options={"specialize": False, "num_warps": 16},
    )
    assert run_case(case, seeds=0, emulated=True).verdict == "equal"
