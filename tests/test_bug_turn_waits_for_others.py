"""A turn at the tensor cores must not wait for the warpgroups that wait for it.

One kernel needs a second slot of a ring of one in a turn, which the other warpgroup still has; the
other meets it at a barrier to exchange elements. Both hung, as the proof said.
"""

import pytest

import fuzz_library as lib
import tawa.language as tl
from fuzz_kernels import Array, Case, case_of, written
from fuzz_run import run_case


def one_slot(
    a_desc, b_desc, v_desc, c_desc, T, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    for j in range(0, T):
        acc = lib.clamped(acc - tl.sum(acc, 1)[:, None], -2.0, 2.0)
        v = v_desc.load([j * BN, 0])
        acc = tl.dot(acc.to(tl.bfloat16), v, acc)
        acc = tl.dot(a, b, acc)
        acc = lib.clamped(acc - tl.max(acc, 1)[:, None], -2.0, 2.0)
        acc = tl.dot(acc.to(tl.bfloat16), v, acc)
        acc = tl.dot(a, b, acc)
    c_desc.store([0, 0], acc)


def exchanged(
    a_desc, b_desc, v_desc, c_desc, T, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    for j in range(0, T):
        acc = lib.clamped(acc - tl.max(acc, 0)[None, :], -2.0, 2.0)
        acc = tl.dot(acc.to(tl.bfloat16), v_desc.load([j * BN, 0]), acc)
        acc = lib.clamped(acc - tl.max(acc, 0)[None, :], -2.0, 2.0)
        acc = lib.clamped(acc - tl.max(acc, 1)[:, None], -2.0, 2.0)
        acc = tl.dot(a, b, acc)
    c_desc.store([0, 0], acc)


def pinned(kernel, **options) -> Case:
    return written(
        kernel,
        {
            "a_desc": Array((128, 16), "bf16", (128, 16)),
            "b_desc": Array((16, 64), "bf16", (16, 64)),
            "v_desc": Array((192, 64), "bf16", (64, 64)),
            "c_desc": Array((128, 64), "f32", (128, 64), 0, 0),
            "T": 3,
        },
        constants={"BM": 128, "BN": 64, "BK": 16},
        grid=(1, 1, 1),
        options={"arrangement": "pingpong", **options},
    )


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kernel", [one_slot, exchanged])
def test_it_is_proved_and_right(kernel, depth) -> None:
    done = run_case(pinned(kernel, depth=depth), seeds=2)
    assert (done.verdict, done.refused) == ("equal", "")


def test_copies_that_lag_take_slots_too() -> None:
    """A gather's producer hands a slot over when it has the next: all three were held or waited."""
    done = run_case(case_of(20514), seeds=1)
    assert (done.verdict, done.refused) == ("equal", "")
