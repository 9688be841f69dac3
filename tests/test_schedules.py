"""Every kernel of the tests and of the library under adversarial schedules: each role starved in
turn, asynchronous work at random, as late and as early as legal; trip counts from 0 to past twice
round the ring, with uneven tails. One of the trials of each kernel; `make schedules` is all.
"""

from __future__ import annotations

from random import Random

import pytest
from xdsl.ir import Operation

from kernel_runs import SUBJECTS
from proof_kernels import shortened
from schedule_runs import PARTS, Tally, Trial, page, simulated, trials, trials_at, try_kernel
from tawa.verify import check


def chosen(name: str) -> Trial:
    """One at the longest size."""
    subject = SUBJECTS[name]
    return Random(name).choice(trials_at(subject, len(list(subject.extents())) - 1, len(name)))


@pytest.mark.parametrize("name", shortened())
def test_a_kernel_is_proved_and_a_trial_gives_the_oracle(name: str) -> None:
    subject = SUBJECTS[name]
    turns_as_often_as_asked(name)  # here, where the kernel is at hand
    trial = chosen(name)
    ready = subject.at(trial.extent)
    check(ready.kernel)
    subject.same(ready.expected(), simulated(ready, trial))


@pytest.mark.long
@pytest.mark.parametrize("name", SUBJECTS)
def test_all_trials_give_the_oracle(name: str) -> None:
    tally = try_kernel(name)
    assert tally.failures == []
    assert tally.runs >= tally.extents > 0


def test_a_part_of_the_trials_of_a_kernel_give_the_oracle() -> None:
    tally = try_kernel("instances gemm depth 1", 0, PARTS)
    assert tally.failures == []
    assert tally.runs >= tally.extents > 0


def test_the_trials_cover_what_the_page_says() -> None:
    subject = SUBJECTS["plan depth 2"]
    found = [trial for group in trials(subject) for trial in group]
    assert {trial.extent for trial in found} >= {64 * iterations for iterations in range(2 * 2 + 3)}
    assert {32, 96, 352} < {trial.extent for trial in found}
    ways = {trial.schedule for trial in found}
    assert {"random", "late", "early", "starve=load+late", "starve=mma+early"} <= ways
    assert len({trial.seed for trial in found}) == len(found)
    assert {trial.blocks for trial in found} == {1, 2, 3, 5}


FIXED = {
    "shape dot without a loop": "walks over tiles: the resident blocks say how many are one's own",
    "shape updates in place": "walks over tiles as well",
    "conv filters' gradient added": "adds up the parts that the programs before it left",
    "conv im2win 2": "its sum is over a window, whose size is a constant of the kernel",
    "conv direct": "the same, over the rows of a window",
    "conv merged": "the same, over its taps",
    "conv neighbours": "the same, over the rows of a window",
    "conv input gradient merged": "the same",
    "attention packed 0": "orders tiles: its loop is over sequences",
}
"""Kernels with loops that no argument here turns more or less often, and over what they are."""


OF_PARTS = {
    "library split 0",
    "library last wave",
    "library split_once 0",
    "library few rows",
    "conv split 0",
    "conv last wave",
    "conv input gradient last wave 0",
    "conv filters' gradient rows",
    "conv filters' gradient window",
    "conv filters' gradient abreast",
}
"""Kernels that divide a sum into parts, of an iteration each at least."""


def turns_as_often_as_asked(name: str) -> None:
    """Assert that the trials go from 0 iterations, or 1, to twice round the ring and more."""
    subject = SUBJECTS[name]
    if not subject.step:
        loops = [op for op in subject.at(None).kernel.walk() if op.name in LOOPS]
        assert all(map(constant, loops)) or name in FIXED
        return
    iterations = {-(-extent // subject.step) for extent in subject.extents() if extent is not None}
    assert iterations == set(range(int(name in OF_PARTS), 2 * subject.depth + 3))


LOOPS = ("scf.for", "scf.while")


def constant(loop: Operation) -> bool:
    """Whether a loop makes as many iterations at each launch."""
    bounds = loop.operands[:3] if loop.name == "scf.for" else ()
    return bool(bounds) and all(
        isinstance(bound.owner, Operation) and bound.owner.name == "tile.constant"
        for bound in bounds
    )


def test_the_page() -> None:
    one = Tally("gemm", extents=2, runs=6, emulated=3, failures=["late: stuck"])
    one.schedules.update({"late": 4, "starve": 2})
    found = {"of": 2, "missing": 3, "sources": {"abc": 5}, "kernels": [vars(one)]}
    text = page(found)
    assert ", 1 of 2," in text
    assert "3 parts of kernels are missing" in text
    assert "| simulated runs, each with a seed of its own | 6 |" in text
    assert "| other than the oracle, or stuck | 1 |" in text
    assert "- gemm: late: stuck" in text
