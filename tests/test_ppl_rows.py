"""Sums over rows: joined loops, parts in a fixed order, and who computes them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tawa import ppl
from tawa.ppl.emit import gpu
from tawa.ppl.emit.llvm import emit
from tawa.ppl.emit.machine import STORED, ptx
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.chains import differentiated
from tawa.ppl.infer.execute import Executable
from tawa.ppl.infer.inspect import _evaluate
from tawa.ppl.ir import interpret
from tawa.ppl.ir.core import I32, Builder, Program, Region, Type
from tawa.ppl.math.library import library
from tawa.ppl.passes.parts import on_threads
from tawa.ppl.passes.rows import rows


class Threads:
    """Threads of one lane in lockstep where they exchange values."""

    def __init__(self, program, buffers):
        self.program, self.buffers = program, buffers
        self.values = [None] * program.threads
        self.together = threading.Barrier(program.threads)

    def run(self, arguments):
        given = zip(self.program.params, arguments, strict=True)
        values = interpret._constants(self.program.regions()) | {
            param: interpret._argument(param.type, item) for param, item in given
        }
        with ThreadPoolExecutor(self.program.threads) as pool:
            made = [_Thread(self, k) for k in range(self.program.threads)]
            for done in [pool.submit(t.region, self.program.body, dict(values)) for t in made]:
                done.result(timeout=60)
        return [thread.variables for thread in made]

    def exchange(self, thread, value, other):
        self.values[thread] = value
        self.together.wait(30)
        found = self.values[other]
        self.together.wait(30)
        return found


class _Thread(interpret._Lane):
    def __init__(self, threads, number):
        super().__init__(threads.program, threads.buffers, 0, library)
        self.threads, self.number = threads, number

    def operation(self, op, env):
        match op.code:
            case "thread":
                return (self.number,)
            case "shuffle" | "shuffle_xor":
                value, *other = (env[value] for value in op.operands)
                other = other[0] if other else self.number ^ op.attrs["mask"]
                return (self.threads.exchange(self.number, value, other),)
        return super().operation(op, env)


@ppl.model
def regression(x, y, groups):
    level = ppl.map(lambda v: ppl.sample(ppl.Normal(0.0, 1.0)), range(2))
    slope = ppl.repeat(x.shape[1], lambda: ppl.sample(ppl.Normal(0.0, 1.0)))
    own = ppl.map(lambda v: ppl.sample(ppl.Normal(0.0, 1.0)), y)
    mean = x @ slope
    for i in range(len(y)):
        ppl.observe(ppl.Normal(mean[i] + own[i] + level[groups[i]], 1.0 + own[i] ** 2), y[i])
    return slope


@ppl.model
def chosen(x, y, groups):
    """Terms in branches, and rows that count for nothing."""
    slope = ppl.sample(ppl.Normal(0.0, 1.0))
    for i in range(len(y)):
        if y[i] > 0.0:
            ppl.observe(ppl.Cauchy(slope * x[i, 0], 1.0), y[i])
    return slope


@ppl.model
def series(x, y, groups):
    slope, state = ppl.sample(ppl.Normal(0.0, 1.0)), 0.0
    for v in y:
        state = 0.5 * state + slope * v
        ppl.factor(-state * state)
    return slope


def data(count):
    rng = np.random.default_rng(4)
    return rng.normal(size=(count, 3)), rng.normal(size=count), np.arange(count) % 2


def evaluated(model, dtype, count=70):
    composed = differentiated(lower(model, data(count), dtype), "nuts")
    size = composed.program.variables["z"].size
    for name in ("point", "slope"):
        composed.buffer(dtype, size, name)
    composed.algorithm(_evaluate, results="logw")
    point = np.linspace(-1.0, 1.0, size, dtype=STORED[dtype])[:, None]
    zeros = {
        name: np.zeros((n, 1), STORED[composed.program.buffers[name]])
        for name, n in composed.rows.items()
    }
    return composed, zeros | {"point": point, "fault": np.zeros((2, 1), np.int32)}


def marked(program):
    return [op for op in program.operations() if "sums" in op.attrs]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("model", "loops"), [(regression, 2), (chosen, 1), (series, 0)])
def test_sums_over_rows_have_the_same_bits_whoever_adds(model, loops, dtype):
    """Two blocks and a part of one, in the interpreter, in vectors, on 1, 4 and 32 threads."""
    composed, buffers = evaluated(model, dtype)
    found = []
    for device in ("interpreter", "cpu"):
        executable = Executable(composed.program, device)
        copied = {name: array.copy() for name, array in buffers.items()}
        executable.run(composed.arguments(0), copied, 1)
        found.append(copied)
        assert len(marked(executable.program)) == loops
    for threads in (1, 4, 32) if loops else ():
        program = on_threads(rows(composed.program), threads)
        assert not marked(program)
        copied = {name: array.copy() for name, array in buffers.items()}
        left = Threads(program, copied).run(composed.arguments(0))
        found.append(copied)
        for variables in left:  # each thread has all that the lane has
            for name in ("g", "logw"):
                np.testing.assert_array_equal(variables[name], left[0][name])
    for other in found[1:]:
        for name in ("logw", "slope"):
            np.testing.assert_array_equal(other[name], found[0][name])


def carried(kind, count=40):
    """A loop of rows that are not independent, or whose last row is looked at; what it leaves."""
    b, body, real = Builder("f64"), Region(), Type("f64")
    program = Program("rows", "f64", (), body, buffers={"y": "f64"})
    program.variables |= {"total": real, "last": real, "other": real, "seen": real}
    program.variables |= {"many": Type("f64", (2 * count,)), "wide": Type("f64", (count + 1,))}

    def row(at):
        x = b.cast(at, real)
        b.accumulate("total", b.make("mul", x, x))
        match kind:
            case "looked at":
                b.accumulate("seen", b.get("total", real))
            case "left by the row before":
                b.accumulate("seen", b.get("last", real))
                b.set("last", x)
            case "the last row's":
                b.set("last", x)
            case "written in a branch":
                small = b.compare("lt", at, b.const(5, I32))
                with b.inside(Region()) as yes:
                    b.set("last", x)
                b.op("if", (small,), (), (yes, Region()))
                b.accumulate("seen", b.get("last", real))
            case "of another row":
                after = b.make("add", at, b.const(1, I32))
                b.storevar("many", after, b.make("add", b.loadvar("many", "f64", at), x))
            case "at two places":
                twice = b.make("mul", at, b.const(2, I32))
                b.storevar("many", twice, x)
                b.accumulate("many", at, x)
            case "more numbers than rows":
                b.accumulate("wide", b.make("mod", at, b.const(7, I32)), x)
            case "own":
                place = b.make("sub", b.const(2 * count - 1, I32), at)
                b.accumulate("many", place, x)

    def out(name, size):
        for k in range(size):
            at = (b.const(k, I32),) if size > 1 else ()
            number = b.const(places.setdefault((name, k), len(places)), I32)
            b.op("write", (number, b.loadvar(name, "f64", *at)), name="y")

    places = {}
    with b.inside(body):
        b.each((count,), row)
        for name, type_ in program.variables.items():
            out(name, type_.size)
    return program, {"y": np.zeros((len(places), 1))}


@pytest.mark.parametrize(
    ("kind", "independent"),
    [
        ("looked at", False),
        ("left by the row before", False),
        ("the last row's", False),
        ("written in a branch", False),
        ("of another row", False),
        ("at two places", False),
        ("more numbers than rows", False),
        ("own", True),
    ],
)
def test_rows_that_are_not_independent_stay_a_loop(kind, independent):
    """Sums of whole numbers are exact, so the plain loop gives what parts have to give."""
    program, buffers = carried(kind)
    plain, mine = buffers["y"].copy(), buffers["y"].copy()
    interpret.interpret(program, (), {"y": plain}, range(1), library)
    made = rows(program)
    assert bool(marked(made)) == independent
    Threads(on_threads(made, 4), {"y": mine}).run(())
    compiled = {"y": buffers["y"].copy()}
    Executable(program, "cpu").run((), compiled, 1)
    np.testing.assert_array_equal(mine, plain)
    np.testing.assert_array_equal(compiled["y"], plain)


@pytest.mark.parametrize("between", [False, True])
def test_loops_are_joined_where_rows_see_rows_alone(between):
    """A vector that is made and read row by row is a number; one that is read elsewhere is not."""
    b, body, real = Builder("f64"), Region(), Type("f64")
    program = Program("rows", "f64", (), body, buffers={"y": "f64"})
    program.variables |= {"total": real, "kept": Type("f64", (40,))}
    with b.inside(body):
        made = b.build((40,), lambda at: b.make("mul", b.cast(at, real), b.cast(at, real)))
        b.each((40,), lambda at: b.storevar("kept", at, b.load(made, at)))
        if between:  # the loop that wrote it stays before this
            b.accumulate("total", b.loadvar("kept", "f64", b.const(39, I32)))
        b.each((40,), lambda at: b.accumulate("total", b.loadvar("kept", "f64", at)))
        b.op("write", (b.const(0, I32), b.get("total", real)), name="y")
    joined = rows(program)
    loops = [op.code for op in joined.body.ops if op.code in ("for", "build")]
    assert loops == ["for"] * (1 + between)
    assert joined.variables["kept"].shape == ((40,) if between else ())
    y = np.zeros((1, 1))
    Executable(program, "cpu").run((), {"y": y}, 1)
    assert y[0, 0] == sum(k * k for k in range(40)) + between * 39 * 39


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_threads_of_a_lane_exchange_words_in_their_part_of_a_warp(dtype):
    composed, _ = evaluated(regression, dtype)
    text, _ = emit(on_threads(rows(composed.program), 8), library, gpu=True)
    made = ptx(text)
    # Segments of 8: 32 - 8 in bits 8 to 12, the last lane in bits 0 to 4.
    assert made.count("shfl.sync.bfly.b32") >= 3
    assert f", {24 << 8 | 31}, " in made
    assert "shfl.sync.idx.b32" in made


@pytest.mark.parametrize(
    ("lanes", "registers", "threads", "built"),
    [
        (4096, 105, 16, [16]),
        (4096, 131, 16, [16]),  # 15 warps a multiprocessor: nearer to 16 threads than to 8
        (4096, 204, 8, [16]),
        (32, 204, 32, [32]),
        (131_072, 105, 1, [1]),
    ],
)
def test_threads_of_a_lane_are_what_the_device_holds(lanes, registers, threads, built, monkeypatch):
    """An H100: 132 multiprocessors of 65,536 registers, given out in eights, 32 blocks."""

    class Driver:
        class CUdevice_attribute:
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 132
            CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 65536

        def cuInit(self, flags):
            started.append(flags)
            return (0,)

        def cuDeviceGet(self, number):
            assert started, "CUDA_ERROR_NOT_INITIALIZED"
            return 0, number

        def cuDevicePrimaryCtxRetain(self, device):
            return 0, device

        def cuCtxSetCurrent(self, context):
            return (0,)

        def cuDeviceGetAttribute(self, attribute, device):
            return 0, attribute

    class Kernel:
        def held(self):
            return 32 * min(32, 65536 // (32 * 8 * -(-registers // 8)))

    asked, started = [], []
    monkeypatch.setattr(gpu, "_driver", Driver)
    monkeypatch.setattr(gpu, "_primary", gpu._primary.__wrapped__)  # as in a process that begins
    monkeypatch.setattr(gpu, "kernel", lambda text: Kernel())
    held = gpu.threads_of_a_lane(lanes, lambda many: asked.append(many), shared=True)
    assert (held, asked) == (threads, built)
    # Four schedulers have a warp each.
    alone = gpu.threads_of_a_lane(lanes, lambda many: asked.append(many), shared=False)
    assert (alone, asked) == ({4096: 4, 32: 32, 131_072: 1}[lanes], built)
