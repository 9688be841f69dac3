"""Pointers that a pass had turned round came from anywhere: a store was said to meet the loads."""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_ptr, c_desc, bands, stride, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr, SHIFT: tl.constexpr):  # fmt: skip
    for band in range(tl.program_id(0), bands, tl.num_programs(0)):
        columns, along = tl.arange(0, BN), tl.arange(0, BK) + SHIFT
        b = tl.load(b_ptr + columns[None, :] * stride + along[:, None])
        acc = tl.dot(a_desc.load([band * BM, 0]), b)
        c_desc.store([band * BM, 0], acc)


def test_the_next_tile_is_loaded_while_this_one_is_stored() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((192, 64), "f16", (64, 64)),
            "b_ptr": Array((64, 128), "f16"),
            "c_desc": Array((192, 64), "f32", (64, 64), 0, 0),
            "bands": 3,
            "stride": 128,
        },
        constants={"BM": 64, "BN": 64, "BK": 64, "SHIFT": 4},
        grid=(2, 1, 1),
    )
    assert run_case(case).specialized
