"""`operand NAME a=registers|shared` of a plan, on kernels without a mapping."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.analysis.statements import name_statements
from tawa.errors import OverBudget, PlanError
from tawa.plan.resources import buffers
from tawa.plan.text import parse_plan
from tawa.runtime.descriptors import TensorDescriptor


@tawa.jit
def multiply(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.dot(a * 2.0, b)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)


def compiled(m: int, n: int, place: str = ""):
    arrays = [np.zeros(s, np.float16) for s in ((m, 64), (64, n))]
    arrays.append(np.zeros((m, n), np.float32))
    pins = {}
    if place:
        plan = str(multiply.compile(*arrays, m, n, 64, grid=(1,)).plan)
        pins = {"plan": f"{plan}operand c@22 a={place}\n"}
    return multiply.compile(*arrays, m, n, 64, grid=(1,), **pins)


def test_a_computed_operand_is_taken_from_where_the_plan_says():
    assert "_registers_" in compiled(64, 64).asm["cuda"]
    assert "_registers_" not in compiled(64, 64, "shared").asm["cuda"]
    assert "_registers_" in compiled(64, 64, "registers").asm["cuda"]


@tawa.jit
def scaled(a_desc, b_desc, c_desc, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, K, B):
        acc = tl.dot(a_desc.load([0, k]) * 2.0, b_desc.load([k, 0]), acc)
    c_desc.store([0, 0], acc.to(tl.float16))


@pytest.mark.parametrize("place", ["registers", "shared"])
def test_rings_leave_room_for_operands_that_are_stored(place):
    sizes, blocks = ((128, 256), (256, 256), (128, 256)), ((128, 64), (64, 256), (128, 256))
    given = [
        TensorDescriptor.from_tensor(np.zeros(shape, np.float16), block)
        for shape, block in zip(sizes, blocks, strict=True)
    ]
    made = scaled.compile(*given, 256, 128, 256, 64, grid=(1,), operands={"acc": place})
    needed = buffers(made.plan, name_statements(made.asm.program("tile")))
    stored = [each.bytes for each in needed if each.label.startswith("A of acc")]
    assert stored == [128 * 64 * 2] * (place == "shared")
    assert sum(each.bytes for each in needed) == made.resources.shared


@pytest.mark.parametrize("roles", [None, False])
def test_a_block_takes_no_more_than_a_ceiling(roles):
    given = [
        TensorDescriptor.from_tensor(np.zeros((256, 256), np.float16), block)
        for block in ((128, 64), (64, 256), (128, 256))
    ]

    def made(ceiling):
        pins = {"ceiling": ceiling, "specialize": roles}
        return scaled.compile(*given, 256, 128, 256, 64, grid=(1,), **pins)

    wide, narrow = made(None).resources, made(150_000).resources
    assert narrow.shared <= 150_000
    assert (wide.shared > 150_000) == (roles is None)
    with pytest.raises(OverBudget):
        made(20_000)


def test_a_product_that_wgmma_does_not_take_has_no_choice():
    with pytest.raises(PlanError, match="operand c@22 a=shared") as error:
        compiled(16, 16, "shared")
    assert "M = 16 is not a multiple of 64" in str(error.value)


@tawa.jit
def turned(a_desc, b_desc, c_desc, K, B: tl.constexpr):
    b = b_desc.load([0, 0])
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        score = tl.dot(a_desc.load([k, 0]), b.T)
        acc = tl.dot(score.to(tl.float16).T, b, acc)
    c_desc.store([0, 0], acc.to(tl.float16))


def test_what_a_product_gave_is_read_in_shared_memory_turned_round():
    """Its rows are in other threads: fetched back from there it would hold registers."""
    arrays = [np.zeros((rows, 64), np.float16) for rows in (256, 64, 64)]
    descs = [tawa.TensorDescriptor.from_tensor(each, [64, 64]) for each in arrays]
    kernel = turned.compile(*descs, 256, 64, grid=(1,))
    (line,) = (line for line in str(kernel.plan).splitlines() if line.startswith("operand"))
    assert line.startswith("operand acc@")
    assert "_registers_" not in kernel.asm["cuda"]
    without = str(kernel.plan).replace(f"{line}\n", "")
    assert "_registers_" in turned.compile(*descs, 256, 64, grid=(1,), plan=without).asm["cuda"]
    draw = np.random.default_rng(0).standard_normal
    a, b = (draw(each.shape).astype(np.float16) for each in arrays[:2])
    arrays[0][:], arrays[1][:] = a, b
    turned[(1,)](*descs, 256, B=64)
    scores = (a.astype(np.float32) @ b.T.astype(np.float32)).astype(np.float16)
    expected = sum(scores[k : k + 64].T.astype(np.float64) @ b for k in range(0, 256, 64))
    np.testing.assert_allclose(arrays[2], expected, rtol=2e-2, atol=2e-1)


def test_a_plan_keeps_sums_in_shared_memory_and_loads_into_registers():
    a, b = (np.random.default_rng(n).integers(-2, 3, (64, 64)).astype(np.float16) for n in (1, 2))
    c = np.zeros((64, 64), np.float16)
    descs = [tawa.TensorDescriptor.from_tensor(each, [64, 64]) for each in (a, b, c)]
    plan = str(turned.compile(*descs, 64, 64, grid=(1,), specialize=False).plan)
    line = int(plan.partition("c_desc@")[2].split()[0])
    loop, load = f"for k@{line - 3}", f"b@{line - 5}"
    for more in (f"loop {loop} shared=acc", f"loop {loop} shared=acc\nload {load} via=registers"):
        turned[(1,)](*descs, 64, B=64, plan=f"{plan}{more}\n")
        expected = (a.astype(int) @ b.T).T @ b.astype(int)
        np.testing.assert_array_equal(c, expected.astype(np.float16))
        c[:] = 0
    pinned = {"shared": "acc", "direct": "b", "operands": {"acc": "registers"}}
    pins = turned.compile(*descs, 64, 64, grid=(1,), specialize=False, **pinned).plan
    lines = f"loop {loop} shared=acc\nload {load} via=registers\n"
    assert pins == parse_plan(f"{plan}{lines}operand acc@{line - 1} a=registers\n")
    turned[(1,)](*descs, 64, B=64, specialize=False, **pinned)
    np.testing.assert_array_equal(c, expected.astype(np.float16))
    wrong = f"{plan}load score@{line - 2} via=registers\n"
    with pytest.raises(PlanError, match="load score@"):
        turned.compile(*descs, 64, 64, grid=(1,), plan=wrong)


@tawa.jit
def two_sums(a_desc, b_desc, c_desc, d_desc, K, B: tl.constexpr):
    acc = (tl.zeros((B, B), tl.float32), tl.zeros((B, B), tl.float32))
    for k in range(0, K, B):
        acc = (acc[0] + tl.dot(a_desc.load([k, 0]), b_desc.load([0, 0])), acc[1] + acc[0])
    c_desc.store([0, 0], acc[0].to(tl.float16))
    d_desc.store([0, 0], acc[1].to(tl.float16))


def test_items_of_a_tuple_have_a_place_each_in_shared_memory():
    a, b = (np.random.default_rng(n).integers(-1, 2, (64, 64)).astype(np.float16) for n in (1, 2))
    c, d = np.zeros_like(a), np.zeros_like(a)
    descs = [tawa.TensorDescriptor.from_tensor(each, [64, 64]) for each in (a, b, c, d)]
    a_twice = tawa.TensorDescriptor.from_tensor(np.concatenate([a, a]), [64, 64])
    given = (a_twice, *descs[1:], 128, 64)
    plan = str(two_sums.compile(*given, grid=(1,), specialize=False).plan)
    line = int(plan.partition("c_desc@")[2].split()[0])
    two_sums[(1,)](*given, plan=f"{plan}loop for k@{line - 2} shared=acc\n")
    product = a.astype(int) @ b.astype(int)
    np.testing.assert_array_equal(c, 2 * product)
    np.testing.assert_array_equal(d, product)
