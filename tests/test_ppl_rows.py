"""Sums over rows: joined loops, parts in a fixed order, and who computes them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from tawa import ppl
from tawa.ppl.emit.llvm import emit
from tawa.ppl.emit.machine import STORED, ptx
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.chains import differentiated
from tawa.ppl.infer.execute import Executable
from tawa.ppl.infer.inspect import _evaluate
from tawa.ppl.ir import interpret
from tawa.ppl.ir.core import I32, Builder, Program, Region, Type, Value
from tawa.ppl.ir.operations import PARTS
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


def evaluated(model, dtype, count=70):
    rng = np.random.default_rng(4)
    given = (rng.normal(size=(count, 3)), rng.normal(size=count), np.arange(count) % 2)
    composed = differentiated(lower(model, given, dtype), "nuts")
    size = composed.program.variables["z"].size
    for name in ("point", "slope"):
        composed.buffer(dtype, size, name)
    composed.algorithm(_evaluate, results="logw")
    point = np.linspace(-1.0, 1.0, size, dtype=STORED[dtype])[:, None]
    zeros = {name: np.zeros((n, 1), STORED[composed.program.buffers[name]])
             for name, n in composed.rows.items()}
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
