"""A condition asked again under its own negation left statements that no input reaches."""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, flag, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), tl.float32)
    if flag > 0 or tl.program_id(1) > 0:
        acc += 1
    else:
        for k in range(0, 3):
            if flag > 0:
                acc = tl.dot(a_desc.load([0, k * 64]), b_desc.load([0, 0]), acc)
            else:
                acc = tl.dot(a_desc.load([0, 0]), b_desc.load([k * 64, 0]), acc)
    c_desc.store([0, 0], acc)


def test_what_no_input_reaches_is_gone() -> None:
    for flag in (0, 1):
        case = written(
            kernel,
            {
                "a_desc": Array((64, 192), "f16", (64, 64)),
                "b_desc": Array((192, 64), "f16", (64, 64)),
                "c_desc": Array((64, 64), "f32", (64, 64), 0, 0),
                "flag": flag,
            },
            constants={"BM": 64, "BN": 64},
            grid=(1, 1, 1),
        )
        assert run_case(case).verdict == "equal"
