"""Many tiles that are never needed at once did not fit shared memory together."""

import tawa
import tawa.language as tl
from codegen_emulator import COMPILER
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, d_desc, c_desc, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    acc = d_desc.load([0, 0])
    for i in tl.static_range(4):
        acc = tl.dot(a_desc.load([0, i * BK]), b_desc.load([i * BK, 0]), acc)
    c_desc.store([0, 0], acc)


def test_they_take_the_same_memory() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 1024), "f16", (64, 256)),
            "b_desc": Array((1024, 128), "f16", (256, 128)),
            "d_desc": Array((64, 128), "f32", (64, 128)),
            "c_desc": Array((64, 128), "f32", (64, 128), 0, 0),
        },
        constants={"BM": 64, "BN": 128, "BK": 256},
        grid=(1, 1, 1),
        options={"specialize": False},
    )
    assert run_case(case, emulated=COMPILER is not None).verdict == "equal"
    given = case.given(case.data())
    made = tawa.jit(case.function()).compile(*given.values(), **case.constants, **case.options)
    assert made.plan.sharing
    labels = [buffer.label for buffer in made.resources.buffers]
    assert not any(label.startswith("d_desc") for label in labels)
    assert sum(label.startswith("b_desc") for label in labels) < 4
