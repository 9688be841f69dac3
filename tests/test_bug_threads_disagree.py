"""Threads that read a word for themselves, which changes between two reads, made other iterations
round barriers than their neighbours: the proof had one value for a role and accepted it.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from frontend_kernels import of
from proof_kernels import KERNELS, lower, text
from tawa.codegen import CudaSource
from tawa.codegen.generate import generate
from tawa.errors import ProtocolError, UnprovedProtocol
from tawa.frontend import build
from tawa.ir import hopper, parse, tile
from tawa.plan.pins import Pins
from tawa.target import H200
from tawa.verify import verify
from told_kernels import TOLD, untold


def of_kind(kernel: tile.Kernel, kind: type[Operation]) -> list[Operation]:
    return [operation for operation in kernel.walk() if isinstance(operation, kind)]


def broken(name: str) -> tile.Kernel:
    """The kernel whose threads each read for themselves, as code generation once made it."""
    kernel = KERNELS[name]()
    changes = list(untold(kernel))
    assert len(changes) == (2 if name == "told writes" else 1)
    for _, operation, _, change in changes[-1:]:
        change(operation)
    return kernel


def lowered(function, **arguments: object) -> tile.Kernel:
    return lower(build(function, of(**arguments), {}), Pins())


# --- the proof ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOLD)
def test_one_thread_reads_for_all(name: str) -> None:
    assert verify(parse(text(name)), H200).ok


@pytest.mark.parametrize("name", TOLD)
def test_what_each_reads_for_itself_decides_no_barrier(name: str) -> None:
    with pytest.raises(UnprovedProtocol) as caught:
        verify(broken(name), H200)
    message = str(caught.value)
    assert re.search(r"is decided by tile\.load on line \d+, in which its threads may", message)
    assert 'rule "threads agree"' in message
    assert caught.value.place is not None


def once_before(kernel: tile.Kernel, loop: scf.ForOp, inside: hopper.OneThread) -> SSAValue:
    """Repeat before `loop` how a word is told in it; return the word as all threads have it."""
    block, mapped = inside.parent, dict[SSAValue, SSAValue]()
    assert block is not None
    steps = list(block.ops)
    start = steps.index(inside)
    for step in steps[start - 1 : start + 4]:
        copy = step.clone(mapped)
        Rewriter.insert_op(copy, InsertPoint.before(loop))
        mapped.update(zip(step.results, copy.results))
    (taken,) = (new for old, new in mapped.items() if isinstance(old.owner, tile.Reduce))
    return taken


def test_roles_that_read_one_word_each_for_itself_are_seen_to_disagree() -> None:
    """Each role tells its own threads; nothing says that the two have read the same."""
    kernel = parse(text("told chooses"))
    ours = next(op for op in of_kind(kernel, hopper.OneThread) if list(of_kind(op, tile.Load)))
    theirs, mine = of_kind(kernel, scf.ForOp)
    assert isinstance(ours, hopper.OneThread)
    assert isinstance(mine, scf.ForOp)
    word = of_kind(ours, tile.Load)[0].clone()
    Rewriter.insert_op(word, InsertPoint.before(theirs))
    iterations = once_before(kernel, mine, ours)
    mine.operands[1] = iterations
    theirs.operands[1] = word.results[0]
    with pytest.raises(ProtocolError, match='rule "left"'):
        verify(kernel, H200)


# --- what is told, and what is not ----------------------------------------------------------------


def tells(kernel: tile.Kernel) -> int:
    assert verify(kernel, H200).ok
    return len(list(untold(kernel)))


def data_only(x, flag, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) * tl.load(flag, volatile=True))


def waits(x, flag, out, N: tl.constexpr):
    """Each thread waits for itself; then they meet."""
    i = tl.arange(0, N)
    while tl.load(flag, volatile=True) != 0:
        pass
    tl.store(out + i, tl.load(x + i) + tl.sum(tl.load(x + i)))


def fetches_again(x, flag, out, N: tl.constexpr):
    i = tl.arange(0, N)
    s = 0.0
    for _ in range(tl.load(flag, cache_modifier=".cv")):
        s += tl.sum(tl.load(x + i) + s)
    tl.store(out + i, s)


def reads_what_nobody_writes(x, flag, out, N: tl.constexpr):
    i = tl.arange(0, N)
    s = 0.0
    for _ in range(tl.load(flag)):
        s += tl.sum(tl.load(x + i) + s)
    tl.store(out + i, s)


def by_way_of_a_choice(x, flag, out, N: tl.constexpr):
    """A condition with nothing but numbers inside decides the iterations later."""
    i = tl.arange(0, N)
    n = 3
    if tl.load(flag, volatile=True) > 0:
        n = 5
    s = 0.0
    for _ in range(n):
        s += tl.sum(tl.load(x + i) + s)
    tl.store(out + i, s)


def where_the_word_tells(x, flag, out, N: tl.constexpr):
    """Memory that nobody writes, at an address that changes."""
    i = tl.arange(0, N)
    s = 0.0
    for _ in range(tl.load(x + tl.load(flag, volatile=True)).to(tl.int32)):
        s += tl.sum(tl.load(x + i) + s)
    tl.store(out + i, s)


def under_another_word(x, flag, out, N: tl.constexpr):
    """The barrier that tells the inner word stands under a condition: that is told as well."""
    i = tl.arange(0, N)
    n = 0
    if tl.load(flag, volatile=True) > 0:
        n = tl.load(flag + 1, volatile=True)
    s = 0.0
    for _ in range(n):
        s += tl.sum(tl.load(x + i) + s)
    tl.store(out + i, s)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (data_only, 0),
        (waits, 0),
        (fetches_again, 1),
        (reads_what_nobody_writes, 0),
        (by_way_of_a_choice, 1),
        (where_the_word_tells, 1),
        (under_another_word, 2),
    ],
)
def test_words_are_told_where_they_decide(function, count: int) -> None:
    assert tells(lowered(function, x="f32*/16", flag="i32*/16", out="f32*/16", N=256)) == count


# --- the text, run --------------------------------------------------------------------------------


def changing(kernel: tile.Kernel, number: str) -> CudaSource:
    """The text in which each volatile read of a word gives the next of some numbers."""
    source = generate(kernel)
    word = f"([] {{ static int reads = 0; const int t = reads++; return {number}; }}())"
    made, count = re.subn(r"= global_load_int_volatile\([^;]*\);", f"= {word};", source.text)
    assert count
    return replace(source, text=made)


def sums(v: np.ndarray, iterations: int) -> np.ndarray:
    s = np.float32(0)
    for _ in range(iterations):
        s += v.sum(dtype=np.float32)
        v = v + s
    return v


@needs_compiler
@pytest.mark.parametrize("seed", range(3))
def test_a_word_that_changes_ends_the_loop_of_all_threads(seed: int) -> None:
    x, out = np.zeros(256, np.float32), np.empty(256, np.float32)
    x[7] = 1
    held = {"x": x, "flag": np.zeros(1, np.int32), "out": out}
    emulate(changing(parse(text("told spins")), "t < 3 ? 9 : 0"), held, (1, 1, 1), seed=seed)
    assert np.array_equal(out, sums(x, 3))


@needs_compiler
@pytest.mark.parametrize("seed", range(3))
def test_a_word_that_changes_is_one_in_each_trip(seed: int) -> None:
    data = np.random.default_rng(seed)
    a, b = (data.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 256), (256, 64)))
    c = np.empty((64, 64), np.float32)
    held = {"a_desc": a, "b_desc": b, "c_desc": c, "flag": np.zeros(1, np.int32), "K": 256}
    emulate(changing(parse(text("told chooses")), "t & 1"), held, (1, 1, 1), seed=seed)
    expected = np.zeros((64, 64), np.float32)
    for iteration in range(4):
        part = slice(64 * iteration, 64 * iteration + 64)
        expected += a[:, part].astype(np.float32) @ b[part].astype(np.float32)
        expected -= expected.max(1, keepdims=True) * (iteration & 1)
    assert np.array_equal(c, expected)


@needs_compiler
def test_words_that_each_warp_reads_make_one_number_of_trips() -> None:
    x, out = np.zeros(256, np.float32), np.empty(256, np.float32)
    x[7] = 1
    held = {"x": x, "flag": np.zeros(8, np.int32), "out": out}
    source = changing(parse(text("told words")), "t % 7 == 0")
    emulate(source, held, (1, 1, 1))
    assert any(np.array_equal(out, sums(x, iterations)) for iterations in range(9))


@needs_compiler
def test_words_told_together_are_each_its_own() -> None:
    kernel = parse(text("told writes"))
    loads = [len(of_kind(one, tile.Load)) for one in of_kind(kernel, hopper.OneThread)]
    assert loads == [1, 2]
    x, out = np.zeros(256, np.float32), np.empty(256, np.float32)
    x[7] = 1
    flag = np.zeros(16, np.int32)
    flag[[0, 9]] = 1, 2
    emulate(kernel, {"x": x, "flag": flag, "out": out}, (1, 1, 1))
    assert np.array_equal(out, sums(x, 3))
    assert flag[0] == 2


@needs_compiler
@pytest.mark.parametrize(
    ("name", "number"),
    [("told spins", "t < 3 ? 9 : 0"), ("told words", "t % 7 == 0"), ("told chooses", "t % 3 == 0")],
)
def test_threads_that_read_for_themselves_part(name: str, number: str) -> None:
    """What the proof refuses does hang, or mixes up what lanes give one another."""
    x = np.zeros(256, np.float32)
    matrix = np.zeros((256, 256), np.float16)
    held = {"x": x, "out": x.copy(), "flag": np.zeros(8, np.int32), "K": 256, "a_desc": matrix}
    held |= {"b_desc": matrix, "c_desc": np.zeros((64, 64), np.float32)}
    names = parse(text(name)).argument_names
    given = {key: value for key, value in held.items() if key in names}
    with pytest.raises(AssertionError, match="no thread can go on"):
        emulate(changing(broken(name), number), given, (1, 1, 1))
