"""One load may read two arrays, element by element; the simulator's watch of races could not."""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    chosen = tl.load(tl.where(tl.load(x_ptr + at) > 0, x_ptr, y_ptr) + at)
    tl.store(tl.where(chosen > 0, out_ptr, y_ptr) + at, chosen + 1)


def test_it_is_simulated() -> None:
    case = written(
        kernel,
        {
            "x_ptr": Array((16, 16), "f32"),
            "y_ptr": Array((16, 16), "f32"),
            "out_ptr": Array((16, 16), "f32", (), 0, 0),
        },
        constants={"N": 16},
        grid=(1, 1, 1),
    )
    assert run_case(case, seeds=2).verdict == "equal"
