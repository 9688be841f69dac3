"""Kernels whose control flow depends on memory that may change between two reads, and the mutants
in which each thread reads for itself what one reads for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

import tawa.language as tl
from frontend_kernels import of
from tawa.frontend.signature import DescriptorArg
from tawa.ir import hopper, tile

Change = Callable[[Operation], None]


def spins(x, flag, out, N: tl.constexpr):
    """Sums of all threads, as many as another program asks for meanwhile."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    s, n = 0.0, 0
    while n < tl.load(flag, volatile=True):
        s += tl.sum(v)
        v = v + s
        n += 1
    tl.store(out + i, v)


def chooses(a_desc, b_desc, c_desc, flag, K, B: tl.constexpr):
    """What the lanes of a row find together, in some iterations of a pipelined loop."""
    acc = tl.zeros((B, B), dtype=tl.float32)
    for k in range(0, K, B):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
        if tl.load(flag, volatile=True) != 0:
            acc = acc - tl.max(acc, 1)[:, None]
    c_desc.store([0, 0], acc)


def counts(x, flag, out, N: tl.constexpr):
    """Iterations from words that each warp reads for itself."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    s = 0.0
    for _ in range(tl.sum(tl.load(flag + tl.arange(0, 8), volatile=True))):
        s += tl.sum(v)
        v = v + s
    tl.store(out + i, v)


def writes(x, flag, out, N: tl.constexpr):
    """Iterations from words that this program, and others, write later: both are told at once."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    n = tl.load(flag)
    m = tl.load(flag + 1 + n // 64)  # a word that another one leads to is told after it
    s = 0.0
    for _ in range(n + tl.load(flag + 9) + m):
        s += tl.sum(v)
        v = v + s
    tl.store(out + i, v)
    tl.store(flag, n + 1)


_POINTERS = of(x="f32*/16", flag="i32*/16", out="f32*/16", N=256)
_TILE = DescriptorArg("f16", (64, 64))
_TILES = of(a_desc=_TILE, b_desc=_TILE, flag="i32*/16", K="i32/16", B=64)
TOLD = {
    "told spins": (spins, _POINTERS),
    "told chooses": (chooses, {**_TILES, "c_desc": DescriptorArg("f32", (64, 64))}),
    "told words": (counts, _POINTERS),
    "told writes": (writes, _POINTERS),
}
"""By name: each kernel and its signature."""


def untold(kernel: tile.Kernel) -> Iterator[tuple[int, Operation, str, Change]]:
    """Yield where an operation of one thread stands in the walk that tells others what it has read
    or found, itself, and the change by which each thread takes its own.
    """
    for index, operation in enumerate(kernel.walk()):
        if isinstance(operation, hopper.OneThread) and _is_told(operation):
            yield index, operation, "reads for itself", _each_for_itself


def _is_told(one: hopper.OneThread) -> bool:
    kinds = (tile.Load, tile.Cast, tile.Splat, hopper.SharedStore)
    inside = list(one.body.block.ops)
    return all(isinstance(op, kinds) for op in inside) and any(map(list, map(_takers, inside)))


def _takers(store: Operation) -> Iterator[tile.Reduce]:
    """Yield what gives all threads the number that one has stored."""
    if not isinstance(store, hopper.SharedStore):
        return
    for load in [use.operation for use in store.view.uses]:
        users = load.result.uses if isinstance(load, hopper.SharedLoad) else ()
        yield from (use.operation for use in users if isinstance(use.operation, tile.Reduce))


def _each_for_itself(one: Operation) -> None:
    assert isinstance(one, hopper.OneThread)
    own: dict[SSAValue, SSAValue] = {}
    for operation in one.body.block.ops:
        if isinstance(operation, (tile.Load, tile.Cast)):
            copy = operation.clone(own)
            Rewriter.insert_op(copy, InsertPoint.before(one))
            own[operation.results[0]] = copy.results[0]
        for taker in list(_takers(operation)):
            held = operation.value.owner.value
            taker.results[0].replace_all_uses_with(own.get(held, held))
