"""A change of layout in which each lane wants another register goes through memory.

By shuffles it was each register of a thread times each: 2,000 for a scan along 96 columns, which
NVRTC took 13 s to build.
"""

import pytest

import tawa.language as tl
from codegen_emulator import needs_compiler
from fuzz_kernels import Array, Case, written
from fuzz_run import compile_case, run_case
from tawa.ir import hopper, parse
from tawa.ir.types import layout_of
from tawa.ir.walk import all_of
from tawa.layouts.convert import MANY, shuffles


def kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc += tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]))
    c_desc.store([0, 0], tl.cumsum(acc, 1))


def case_of(columns: int, specialize: bool) -> Case:
    return written(
        kernel,
        {
            "a_desc": Array((64, 64), "f16", (64, 32)),
            "b_desc": Array((64, columns), "f16", (32, columns)),
            "c_desc": Array((64, columns), "f32", (64, columns), 0, 0),
            "K": 64,
        },
        constants={"BM": 64, "BN": columns, "BK": 32},
        grid=(1, 1, 1),
        options={"specialize": specialize},
    )


@pytest.mark.parametrize("columns", [96, 128])
@pytest.mark.parametrize("specialize", [True, False])
@pytest.mark.short("True-128", "False-96")
def test_no_conversion_takes_more_shuffles_than_memory_would(
    columns: int, specialize: bool
) -> None:
    made = compile_case(case_of(columns, specialize))
    for op in all_of(parse(made.asm["hopper"]), hopper.ConvertLayout):
        source, target = layout_of(op.value.type), layout_of(op.result.type)
        most = MANY * (source.register_count + target.register_count)
        assert shuffles(source, target) <= most
    assert len(made.asm["cuda"]) < 60_000


@needs_compiler
def test_the_scan_is_right() -> None:
    assert run_case(case_of(96, True), seeds=1, emulated=True).verdict == "equal"
