"""`breakpoint()` in a kernel stops the oracle at the user's line, with the values of variables."""

import subprocess
import sys

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def halve(x):
    half = x / 2
    breakpoint()
    return half


@tawa.jit
def sums(x_ptr, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    last = 0
    for k in range(0, n, B):
        x = tl.load(x_ptr + k + i)
        total += x
        if k == B:
            breakpoint()
        last = k  # noqa: F841 - nothing reads it: it has no value at the top of an iteration, or later
    if tl.program_id(0) == 1:
        pair = (total, n)
        breakpoint()
        total += pair[1]
    tl.store(out + tl.program_id(0) * B + i, halve(total))


@pytest.fixture
def stops(monkeypatch):
    """Where the debugger was asked for, and what it would see."""
    found = []

    def hook():
        frame = sys._getframe(1)
        place = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        found.append((place, frame.f_globals["program"], dict(frame.f_locals)))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    return found


def test_the_oracle_stops_with_the_variables_as_they_are(stops):
    x, out = np.arange(24, dtype=np.float32), np.zeros(16, np.float32)
    tawa.simulate(sums, x, out, 24, grid=(2,), level="tile", B=8)
    first = sums.fn.__code__.co_firstlineno
    lines = [(place[1] - first, place[2], program[0]) for place, program, _ in stops]
    inner = halve.fn.__code__.co_firstlineno + 3 - first
    once = [(9, "sums", 0), (inner, "halve", 0)]
    assert lines == [*once, (9, "sums", 1), (13, "sums", 1), (inner, "halve", 1)]
    assert {place[0] for place, _, _ in stops} == {__file__}
    seen = stops[0][2]
    assert (seen["k"], seen["n"], seen["B"]) == (8, 24, 8)
    np.testing.assert_array_equal(seen["x"], x[8:16])
    np.testing.assert_array_equal(seen["total"], x[:8] + x[8:16])
    assert all("last" not in values for _, _, values in stops)
    total, n = stops[3][2]["pair"]
    np.testing.assert_array_equal(total, x.reshape(3, 8).sum(0))
    assert n == 24
    np.testing.assert_array_equal(stops[1][2]["half"] * 2, stops[1][2]["x"])
    np.testing.assert_array_equal(out[8:], (x.reshape(3, 8).sum(0) + 24) / 2)


def test_what_is_compiled_does_not_stop_and_says_so(stops):
    out = np.zeros(16, np.float32)
    kernel = tawa.jit(sums.fn)
    compiled = kernel.compile(out, out, 24, B=8)
    assert "the oracle alone" in str(compiled)
    assert "breakpoint" in compiled.asm["tile"]
    assert "breakpoint" not in compiled.asm["hopper"]
    with pytest.warns(
        RuntimeWarning, match=r"sums: breakpoint\(\) in line \d+: it stops the oracle"
    ):
        kernel[1,](np.arange(24, dtype=np.float32), out, 24, B=8)
    assert not stops
    assert out.any()


PROGRAM = """import numpy as np, tawa, tawa.language as tl
@tawa.jit
def twice(x, N: tl.constexpr):
    y = tl.load(x + tl.arange(0, N)) * 2
    breakpoint()
    tl.store(x + tl.arange(0, N), y)
x = np.arange(8)
tawa.simulate(twice, x, grid=(1,), level="tile", N=8)
print("end", x.sum())
"""


def test_pdb_shows_the_users_line(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        input="p y.sum(), N\nc\n",
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), "TAWA_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert f"{path}(5)twice()" in ran.stdout
    assert "-> breakpoint()" in ran.stdout
    assert "56" in ran.stdout
    assert "end 56" in ran.stdout
