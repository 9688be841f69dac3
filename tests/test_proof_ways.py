"""Loops on the other side of a condition get every trip count, also behind several comparisons of
one number; and what ended a loop in a new way is gone on from.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tawa
import tawa.language as tl
from fuzz_gpu import launched
from fuzz_kernels import Array, written
from fuzz_run import keywords, run_case
from tawa.runtime import nvrtc
from tawa.simulator.proof.run import Run


def ladder(a_desc, b_desc, c_desc, flag, K, L, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    if flag == 3:
        for k in range(0, K):
            acc = tl.dot(a_desc.load([0, k * 64]), b_desc.load([k * 64, 0]), acc)
    elif flag == 7:
        for k in range(0, L):
            acc = tl.dot(a_desc.load([0, k * 64]), b_desc.load([k * 64, 0]), acc)
            acc = tl.clamp(acc, -2.0, 2.0)
    else:
        for k in range(0, K):
            acc += tl.sum(a_desc.load([0, k * 64]).to(tl.float32), 1)[:, None]
    c_desc.store([0, 0], acc)


@tawa.jit
def part(acc, a_desc, b_desc, flag, K):
    if flag > 0:
        acc = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), acc)
    else:
        for k in range(0, K):
            acc = tl.dot(a_desc.load([0, k * 64]), b_desc.load([k * 64, 0]), acc)
    return acc


def twice(a_desc, b_desc, c_desc, flag, other, K, L, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    acc = part(part(acc, a_desc, b_desc, flag, K), a_desc, b_desc, other, L)
    c_desc.store([0, 0], acc)


def shared_out(a_desc, b_desc, c_desc, bands, BM: tl.constexpr, BN: tl.constexpr):
    for band in range(tl.program_id(0), bands, tl.num_programs(0)):
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for part in range(tl.program_id(0), 3, 2):
            acc = tl.dot(a_desc.load([band * BM, part * 64]), b_desc.load([part * 64, 0]), acc)
        c_desc.store([band * BM, 0], acc)


ARRAYS = {
    "a_desc": Array((192, 256), "f16", (64, 64)),
    "b_desc": Array((256, 64), "f16", (64, 64)),
    "c_desc": Array((192, 64), "f32", (64, 64), 0, 0),
}
CONSTANTS = {"BM": 64, "BN": 64}


def test_every_side_makes_every_trip_count(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[object, set[int]] = {}
    asked = Run.trips

    def trips(run, site, low, high, by, *rest):
        given = asked(run, site, low, high, by, *rest)
        if site.kind == "inner":
            found.setdefault(site.operation, set()).add(len(given))
        return given

    monkeypatch.setattr(Run, "trips", trips)
    case = written(
        ladder,
        {**ARRAYS, "flag": 7, "K": 3, "L": 3},
        constants=CONSTANTS,
        options={"depth": 3},
        grid=(1, 1, 1),
    )
    assert run_case(case, seeds=1).specialized
    assert len(found) >= 6  # in both roles
    assert all({0, 1, 2, 3, 4} <= counts for counts in found.values())  # D + 1, of any ring


def test_tiles_of_another_block_turn_the_ring_otherwise() -> None:
    case = written(
        shared_out,
        {**ARRAYS, "bands": 3},
        constants=CONSTANTS,
        options={"depth": 8},
        grid=(2, 1, 1),
    )
    assert run_case(case, seeds=1).specialized


def test_conditions_of_a_function_called_twice_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    counts: dict[tuple[int, ...], list[int]] = {}
    released = Run.release

    def release(run) -> None:
        outcomes = run.configuration.outcomes
        sides = [trips[0] for site, trips in outcomes.items() if site.kind == "once" and trips]
        trips = [each[0] for site, each in outcomes.items() if site.kind == "inner" and each]
        counts.setdefault(tuple(sides), []).extend(trips)
        released(run)

    monkeypatch.setattr(Run, "release", release)
    shapes = ((192, 256), np.float16), ((256, 64), np.float16), ((192, 64), np.float32)
    arrays = [np.zeros(shape, dtype) for shape, dtype in shapes]
    given = [tawa.TensorDescriptor.from_tensor(array, [64, 64]) for array in arrays]
    tawa.jit(twice).compile(*given, 2, 2, 3, 3, grid=(1,), depth=3, **CONSTANTS)
    assert {(0, 0), (0, 1), (1, 0), (1, 1)} <= set(counts)
    for sides in ((0, 1), (1, 0)):
        assert {0, 1, 2, 3, 4} <= set(counts[sides])


@pytest.mark.parametrize("number", [3_000_214, 3_000_379, 3_000_383])
def test_kernels_that_were_not_proved(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A loop of two trips at most that ends a ring anew; a program that is neither 0 nor 1; tiles
    # that turn a ring now and then, on a grid of so many.
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    case = launched(number, False)
    given = case.given(case.data())
    made = tawa.jit(case.function()).compile(*given.values(), **keywords(case))
    assert made.plan.specialized
    assert not [one for one in made.declined if "not proved" in one.reason]
