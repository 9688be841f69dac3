"""An accumulator that is read after a product took its registers was no longer what it was."""

from collections.abc import Callable

import pytest

import tawa.language as tl
from codegen_emulator import COMPILER
from fuzz_kernels import Array, written
from fuzz_run import run_case


def straight(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    x = tl.dot(a, b)
    y = tl.dot(a, b, x)
    c_desc.store([0, 0], y * 2 - x)


def in_a_loop(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    x = tl.dot(a, b)
    y = x
    for _ in range(0, K):
        y = tl.dot(a, b, y)
    c_desc.store([0, 0], y * 2 - x)


def of_the_last_trip(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.zeros((BM, BN), tl.float32)
    y = x
    for _ in range(0, K):
        a = a_desc.load([0, 0])
        b = b_desc.load([0, 0])
        old = y
        y = tl.dot(a, b, y)
        x = y * 2 - old
    c_desc.store([0, 0], y * 2 - x)


def under_a_branch(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    x = tl.dot(a, b)
    y = x
    if K > 1:
        y = tl.dot(a, b, y)
    c_desc.store([0, 0], y * 2 - x)


def used_by_two(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    x = tl.dot(a, b)
    y = tl.dot(a, b, x)
    z = tl.dot(a, b, x)
    c_desc.store([0, 0], y * 2 - z)


def carried_by_two(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.zeros((BM, BN), tl.float32)
    y = x
    z = x
    for _ in range(0, K):
        a = a_desc.load([0, 0])
        b = b_desc.load([0, 0])
        y = tl.dot(a, b, y)
        z = tl.dot(a, b, z)
        z = z * 2
    c_desc.store([0, 0], y * 2 - z)


def exchanged(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    y = tl.zeros((BM, BN), tl.float32)
    z = y
    for _ in range(0, K):
        a = a_desc.load([0, 0])
        b = b_desc.load([0, 0])
        t = tl.dot(a, b, y)
        y = z
        z = t
    c_desc.store([0, 0], y * 2 - z)


def in_a_while(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    x = tl.dot(a, b)
    y = x
    k = 0
    while k < K:
        y = tl.dot(a, b, y)
        k += 1
    c_desc.store([0, 0], y * 2 - x)


def carried_twice(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    y = tl.zeros((BM, BN), tl.float32)
    z = y
    for _ in range(0, K):
        t = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), y)
        y = t
        z = t - z
    c_desc.store([0, 0], y * 2 - z)


def chosen(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    x = tl.dot(a, b)
    y = x
    if K == 0:
        y = x + 1
    y = tl.dot(a, b, y)
    c_desc.store([0, 0], y * 2 - x)


def round_a_loop_without_products(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]))
    y = x
    for k in range(0, K):
        y = tl.where(tl.arange(0, BM)[:, None] >= k, y, 0)
    c_desc.store([0, 0], y * 2 - x)


KERNELS = [straight, in_a_loop, of_the_last_trip, under_a_branch, used_by_two, carried_by_two]
KERNELS += [exchanged, in_a_while, carried_twice, chosen, round_a_loop_without_products]


@pytest.mark.parametrize("function", KERNELS, ids=lambda function: function.__name__)
def test_what_is_kept_keeps_its_value(function: Callable[..., None]) -> None:
    for iterations in (0, 2):
        case = written(
            function,
            {
                "a_desc": Array((128, 64), "f16", (128, 64)),
                "b_desc": Array((64, 64), "f16", (64, 64)),
                "c_desc": Array((128, 64), "f32", (128, 64), 0, 0),
                "K": iterations,
            },
            constants={"BM": 128, "BN": 64},
            grid=(1, 1, 1),
        )
        assert run_case(case, emulated=COMPILER is not None and iterations > 0).specialized
