"""What a compile does once: the work of its analyses grows with the kernel, not faster."""

from __future__ import annotations

import pytest

import tawa.language as tl
from frontend_kernels import of
from tawa.analysis import contiguity
from tawa.analysis.contiguity import Contiguity
from tawa.analysis.ranges import Known, range_of
from tawa.frontend import build, context
from tawa.frontend.liveness import analyse, reads, writes
from tawa.ir import hopper, parse, tile
from tawa.ir.text import text_of
from tawa.ir.walk import all_of, operations_of


def half(x):
    return x * 0.5


def halved(x_ptr, N: tl.constexpr):
    at = x_ptr + tl.arange(0, 32)
    for step in tl.static_range(N):
        tl.store(at + 32 * step, half(tl.load(at)))


def test_the_source_of_a_helper_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(
        context, "read_source", lambda f, known=context.read_source: read.append(f) or known(f)
    )
    kernel = build(halved, of(x_ptr="f32*", N=8), {})
    assert len(all_of(kernel, tile.Store)) == 8
    assert read == [half]


def test_what_a_function_reads_and_writes_is_found_once() -> None:
    build(halved, of(x_ptr="f32*", N=2), {})
    asked = analyse, reads, writes
    before = [each.cache_info().misses for each in asked]
    build(halved, of(x_ptr="f16*", N=3), {})
    assert [each.cache_info().misses for each in asked] == before


def divided(x_ptr, n, N: tl.constexpr):
    at = tl.arange(0, 32) + n
    for _ in tl.static_range(N):
        at = at // 2 + at % 3
    tl.store(x_ptr + at, 1.0)


def test_ranges_are_found_once_for_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[Known | None] = []

    def ask(value, known=None):
        tables.append(known)
        return range_of(value, known)

    monkeypatch.setattr(contiguity, "range_of", ask)
    kernel = build(divided, of(x_ptr="f32*", n="i32", N=6), {})
    (store,) = all_of(kernel, tile.Store)
    Contiguity().of(store.pointer)
    assert len(tables) == 12
    assert tables[0] is not None
    assert len({id(table) for table in tables}) == 1


def test_operands_and_results_are_read_by_name() -> None:
    kernel = build(halved, of(x_ptr="f32*", N=2), {})
    again = parse(text_of(kernel))
    for one in (kernel, again):
        for op in all_of(one, tile.Elementwise):
            assert tuple(op.inputs) == tuple(op.operands)
            assert op.inputs.types == tuple(value.type for value in op.operands)
            assert op.result is op.results[0]
        for op in all_of(one, tile.Store):
            assert [op.pointer, op.value] == list(op.operands)[:2]
        assert operations_of(one.body.block) == list(one.body.block.ops)
    assert isinstance(all_of(kernel, tile.Load)[0], tile.Load)
    assert not all_of(kernel, hopper.Role)
