"""A reshape whose result others asked for in a layout that its operand cannot follow.

The parts of a scan over twelve warps, put together again in rows of which each warp shall hold
eight, stay where the scan left them and are converted after that; code generation failed:
`case_of(2101155)` of the fuzz tests.
"""

import fuzz_library as lib
import tawa.language as tl
from fuzz_case import Array, written
from fuzz_run import run_case


def running(a_desc, b_desc, c_desc, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    acc = tl.zeros((M, N), dtype=tl.float32)
    for k in range(2):
        acc = tl.dot(a_desc.load([0, k * K]), b_desc.load([k * K, 0]), acc, input_precision="ieee")
        acc = tl.associative_scan(acc, 0, lib.larger)
    c_desc.store([0, 0], acc)


def test_the_parts_of_a_scan_are_put_together_and_moved() -> None:
    arguments = {
        "a_desc": Array((192, 64), "f32", (192, 32)),
        "b_desc": Array((64, 16), "f32", (32, 16)),
        "c_desc": Array((192, 16), "f32", (192, 16), low=0, limit=0),
    }
    constants = {"M": 192, "N": 16, "K": 32}
    case = written(
        running, arguments, constants=constants, grid=(1, 1, 1), options={"consumers": 3}
    )
    outcome = run_case(case, seeds=1, emulated=True)
    assert (outcome.verdict, outcome.refused) == ("equal", "")
