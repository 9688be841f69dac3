"""A reduction across warps gave results in its own spelling of the layout that users know.

Two operands of one layout then seemed to lie in different threads, and code generation failed.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(x_desc, table_ptr, where_ptr, sums_ptr):
    x = x_desc.load([0, 0])
    taken = tl.load(table_ptr + (tl.sort(x, descending=True) > 0).to(tl.int32))
    where = tl.argmax(taken, 0).to(tl.int32)
    tl.store(where_ptr + tl.arange(0, 64), tl.where(where > 7, where - 8, where))
    tl.store(sums_ptr + tl.arange(0, 1024), tl.cumsum(x.to(tl.float32), 1).reshape(1024))


def test_it_compiles() -> None:
    case = written(
        kernel,
        {
            "x_desc": Array((16, 64), "f8e5m2", (16, 64)),
            "table_ptr": Array((64,), "f32"),
            "where_ptr": Array((64,), "i32", (), 0, 0),
            "sums_ptr": Array((1024,), "f32", (), 0, 0),
        },
        constants={},
        grid=(1, 1, 1),
    )
    assert run_case(case).verdict == "equal"
