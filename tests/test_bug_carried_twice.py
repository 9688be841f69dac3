"""A tensor carried round a loop, which another carried tensor becomes: loading an iteration ahead
makes that of offsets that walk. The other one stayed where the loop began, and all iterations
stored there.
"""

import pytest

import tawa.language as tl
from codegen_emulator import needs_compiler
from fuzz_kernels import Array, written
from fuzz_run import run_case


def recurrence(x, o, steps, D: tl.constexpr):
    place = tl.program_id(0) * D + tl.arange(0, D)
    state = tl.zeros((D,), tl.float32)
    for _ in range(steps):
        state = 0.5 * state + tl.load(x + place)
        tl.store(o + place, state)
        place += 2 * D


@needs_compiler
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_each_trip_stores_in_its_own_place(steps: int) -> None:
    case = written(
        recurrence,
        {
            "x": Array((14, 64), "f32"),
            "o": Array((14, 64), "f32", (), 0, 0),
            "steps": steps,
        },
        constants={"D": 64},
        grid=(2, 1, 1),
    )
    done = run_case(case)
    assert (done.verdict, done.refused) == ("equal", "")
