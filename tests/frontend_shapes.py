"""Shapes of programs: what control flow and data flow the compiler must take."""

from __future__ import annotations

import tawa.language as tl
from frontend_kernels import of
from tawa.frontend.signature import DescriptorArg

TILE = DescriptorArg("f16", (16, 16))


def two_dots(a, b, d, out, K):
    one = tl.zeros((16, 16), tl.float32)
    two = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, 16):
        x = a.load([0, k])
        one = tl.dot(x, b.load([k, 0]), one)
        two = tl.dot(x, d.load([k, 0]), two)
    out.store([0, 0], (one + two).to(tl.float16))


def load_for_dot_and_arithmetic(a, b, out, K):
    acc = tl.zeros((16, 16), tl.float32)
    largest = tl.zeros((16,), tl.float32)
    for k in range(0, K, 16):
        x = a.load([0, k])
        acc = tl.dot(x, b.load([k, 0]), acc)
        largest = tl.maximum(largest, tl.max(x, 1))
    out.store([0, 0], (acc * largest[:, None]).to(tl.float16))


def invariant_load(a, b, out, K):
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, 16):
        x = a.load([0, 0])
        acc = tl.dot(x, b.load([k, 0]), acc)
    out.store([0, 0], acc.to(tl.float16))


def two_loops(a, b, out, K):
    x = a.load([0, 0])
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, 16):
        y = b.load([k, 0])
        acc = tl.dot(x, y, acc)
    for k in range(0, K, 16):
        y = b.load([k, 16]).to(tl.float32)
        acc += y
    out.store([0, 0], acc.to(tl.float16))


def three_nested(a, b, out, I, J, K):
    acc = tl.zeros((16, 16), tl.float32)
    for i in range(I):
        for j in range(J):
            for k in range(0, K, 16):
                acc = tl.dot(a.load([i * 16, k]), b.load([k, j * 16]), acc)
            acc = acc * 0.5
    out.store([0, 0], acc.to(tl.float16))


def load_under_if(a, b, out, K, flag):
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, 16):
        x = a.load([0, k])
        if k < flag:
            y = b.load([k, 0])
            acc = tl.dot(x, y, acc)
        else:
            acc += x.to(tl.float32)
    out.store([0, 0], acc.to(tl.float16))


def trips_from_memory(a, out, counts):
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(tl.load(counts), tl.load(counts + 1)):
        acc += a.load([0, k * 16]).to(tl.float32)
    out.store([0, 0], acc.to(tl.float16))


def operand_in_registers(a, b, out, K):
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, 16):
        x = a.load([0, k]) * 2
        acc = tl.dot(x, b.load([k, 0]), acc)
    out.store([0, 0], acc.to(tl.float16))


def no_dot(x_ptr, out_ptr, n, B: tl.constexpr):
    acc = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        offsets = start + tl.arange(0, B)
        acc += tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    tl.store(out_ptr, tl.sum(acc, 0))


def no_loop(a, b, out):
    out.store([0, 0], tl.dot(a.load([0, 0]), b.load([0, 0])).to(tl.float16))


def no_load(out):
    i = tl.arange(0, 16)
    out.store([0, 0], (i[:, None] * 16 + i[None, :]).to(tl.float16))


def store_then_load(a, K):
    for k in range(0, K, 16):
        x = a.load([0, k])
        a.store([0, k + 16], x + 1)


def early_return(x_ptr, n, limit):
    i = tl.program_id(0)
    if i >= n:
        return
    value = tl.load(x_ptr + i)
    if value < limit:
        tl.store(x_ptr + i, 0)
        return
    tl.store(x_ptr + i, value - 1)


def while_loop(x_ptr, n):
    i = 0
    total = 0.0
    while i < n and tl.load(x_ptr + i) > 0:
        total += tl.load(x_ptr + i)
        i += 1
    tl.store(x_ptr, total)
    tl.atomic_add(x_ptr + 1, i.to(tl.float32), sem="relaxed")


CASES = {
    "two_dots": (two_dots, of(a=TILE, b=TILE, d=TILE, out=TILE, K="i32")),
    "load_for_dot_and_arithmetic": (
        load_for_dot_and_arithmetic,
        of(a=TILE, b=TILE, out=TILE, K="i32"),
    ),
    "invariant_load": (invariant_load, of(a=TILE, b=TILE, out=TILE, K="i32")),
    "two_loops": (two_loops, of(a=TILE, b=TILE, out=TILE, K="i32")),
    "three_nested": (three_nested, of(a=TILE, b=TILE, out=TILE, I="i32", J="i32", K="i32")),
    "load_under_if": (load_under_if, of(a=TILE, b=TILE, out=TILE, K="i32", flag="i32")),
    "trips_from_memory": (trips_from_memory, of(a=TILE, out=TILE, counts="i32*")),
    "operand_in_registers": (operand_in_registers, of(a=TILE, b=TILE, out=TILE, K="i32")),
    "no_dot": (no_dot, of(x_ptr="f32*", out_ptr="f32*", n="i32", B=16)),
    "no_loop": (no_loop, of(a=TILE, b=TILE, out=TILE)),
    "no_load": (no_load, of(out=TILE)),
    "store_then_load": (store_then_load, of(a=TILE, K="i32")),
    "early_return": (early_return, of(x_ptr="f32*", n="i32", limit="f32")),
    "while_loop": (while_loop, of(x_ptr="f32*", n="i32")),
}
