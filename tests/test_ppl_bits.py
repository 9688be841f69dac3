"""A run has the same bits in the interpreter and compiled, for any threads and any x86."""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np
import pytest

import ppl_models as models
from tawa import ppl
from tawa.ppl.emit.machine import Machine, ptx
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer import execute
from tawa.ppl.infer.chains import program_of
from tawa.ppl.infer.execute import Executable, machine
from tawa.ppl.infer.options import Options
from tawa.ppl.ir.core import I32, Builder, Program, Region, Type, walk
from tawa.ppl.ir.interpret import fma
from tawa.ppl.ir.operations import FUNCTIONS

REFERENCE = {
    "exp": math.exp,
    "log": math.log,
    "log1p": math.log1p,
    "expm1": math.expm1,
    "sinturn": lambda x: math.sin(2 * math.pi * x),
    "costurn": lambda x: math.cos(2 * math.pi * x),
    "lgamma": math.lgamma,
    "digamma": lambda x: (math.lgamma(x + 1e-5) - math.lgamma(x - 1e-5)) / 2e-5,
    "erf": math.erf,
}


def evaluate(name, kind, points, device, cpu=""):
    b, body = Builder(kind), Region()
    program = Program(name, kind, (), body, buffers={"x": kind, "y": kind})
    with b.inside(body):
        zero = b.const(0, I32)
        x = b.op("read", (zero,), (Type(kind),), name="x").result
        b.op("write", (zero, b.make(name, x)), name="y")
    dtype = np.float32 if kind == "f32" else np.float64
    xs = np.asarray(points, dtype)[None]
    ys = np.zeros_like(xs)
    Executable(program, device, cpu).run((), {"x": xs, "y": ys}, xs.shape[1])
    return xs[0], ys[0]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_right_and_equal(name, kind):
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 1.0, 2.0]
    points = np.concatenate([np.linspace(0.011, 9.0, 40), -np.linspace(0.1, 3.0, 12), special])
    xs, compiled = evaluate(name, kind, points, "cpu")
    _, plain = evaluate(name, kind, points, "cpu", "x86-64")
    _, defined = evaluate(name, kind, points, "interpreter")
    np.testing.assert_array_equal(compiled, defined)
    np.testing.assert_array_equal(compiled, plain)
    bound = 1e-6 if kind == "f32" else 2e-13
    bound = 1e-5 if name == "digamma" else bound
    for x, y in zip(xs[:40], compiled[:40], strict=True):
        want = REFERENCE[name](float(x))
        assert abs(float(y) - want) <= bound * max(1.0, abs(want)), (name, x)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_log1p_is_right_from_the_smallest_to_the_largest(kind):
    end = 37 if kind == "f32" else 300
    size = 10.0 ** np.linspace(-end, end, 500)
    small = size[size < 0.9]
    xs, ys = evaluate("log1p", kind, np.concatenate([size, -small]), "cpu")
    want = np.log1p(xs.astype(np.longdouble))
    assert np.max(np.abs(ys / want - 1)) < 2 * np.finfo(xs.dtype).eps
    _, ends = evaluate("log1p", kind, [3e38, -1.0, -2.0, np.inf], "cpu")
    np.testing.assert_allclose(ends, [np.log(3e38), -np.inf, np.nan, np.inf], rtol=1e-6)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_expm1_is_right_from_the_smallest_to_the_largest(kind):
    least, most = (1e-37, 88.7) if kind == "f32" else (1e-300, 709.7)
    size = np.concatenate([np.geomspace(least, 1.0, 300), np.linspace(1.0, most, 300)])
    xs, ys = evaluate("expm1", kind, np.concatenate([size, -size]), "cpu")
    want = np.expm1(xs.astype(np.longdouble))
    assert np.max(np.abs(ys / want - 1)) < 3 * np.finfo(xs.dtype).eps


@ppl.model
def counts(rows, widths):
    rate = ppl.sample(ppl.Gamma(2.5, 0.5))
    for i in range(len(rows)):
        for k in rows[i]:
            ppl.observe(ppl.Poisson(rate * widths[i]), k)
        ppl.observe(ppl.Normal(rate, widths[i]), 1.0)
    return rate


COUNTED = (np.array([[0, 3], [2, 7]]), np.array([0.4, 2.0]))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_depends_on_data_alone_is_computed_before_the_run(device):
    """Of a Poisson rate's logarithms of gamma and those of widths and literals, none is left."""
    options = Options(dtype="f64", chains=2, draws=2, warmup=2)
    program = program_of(lower(counts, COUNTED, options.dtype), options, "nuts").program
    codes = [op.code for op in walk(program.procedures["gradient"])]
    assert codes.count("lgamma") >= 2
    executable = Executable(program, device)
    codes = [op.code for op in walk(executable.program.procedures["gradient"])]
    assert codes.count("lgamma") == 0
    made = executable.program.params[len(program.params) :]
    assert {(2,), (2, 2), (1,)} == {value.type.shape for value in made}


def test_fma_rounds_once():
    """A product that is a tie of two floats, and a little more or less: a double would lose it."""
    a, little = np.float32(1 + 2**-12), np.float32(2**-60)
    assert fma("f32", a, a, -little) == np.float32(1 + 2**-11)
    assert fma("f32", a, a, little) == np.float32(1 + 2**-11 + 2**-23)
    b = np.float64(1 + 2**-30)
    assert fma("f64", b, b, np.float64(-1 - 2**-29)) == 2.0**-60


CASES = [
    (
        "schools",
        models.schools,
        (models.Y, models.SIGMA),
        ("importance", "mh", "smc", "hmc", "nuts"),
    ),
    ("birth_death", models.birth_death, (2.0, 0.6, 0.3), ("importance", "mh", "smc")),
    ("kalman", models.kalman, (models.SERIES,), ("importance", "mh", "smc", "nuts")),
    (
        "hmm",
        models.hmm,
        (models.EMISSIONS, models.TRANSITION, models.EMISSION),
        ("importance", "mh", "smc"),
    ),
    ("shares", models.shares, (np.array([0, 2, 2, 1]),), ("mh", "nuts")),
    ("branches", models.branches, (0.7,), ("hmc",)),
    ("garch", models.garch, (models.SERIES,), ("nuts",)),
    # Functions of data, of literals, of a matrix's elements: all computed before the run.
    ("counts", counts, COUNTED, ("hmc",)),
]
SIZES = {
    "importance": {"draws": 12},
    "mh": {"chains": 2, "draws": 6, "warmup": 3, "thin": 2},
    "smc": {"particles": 12},
    "hmc": {"chains": 2, "draws": 2, "warmup": 5, "steps": 3},
    "nuts": {"chains": 2, "draws": 2, "warmup": 5, "depth": 3},
}


def arrays(post):
    values = post.value if isinstance(post.value, tuple) else (post.value,)
    return [np.ascontiguousarray(each) for each in (*post.draws.values(), *values)]


@lru_cache
def unoptimised(text, cpu=""):
    """Machine code of LLVM's least level where a CPU is named: other code, sooner made."""
    return Machine(text, cpu, 0) if cpu else machine(text)


RUNS = [(n, m, g, k) for n, m, g, kinds in CASES for k in kinds]


@pytest.mark.parametrize(
    ("model", "given", "method", "dtype"),
    [
        pytest.param(
            m,
            g,
            k,
            dtype,
            id=f"{n}-{k}-{dtype}",
            marks=[pytest.mark.long] if (dtype == "float64") != (number % 3 == 1) else [],
        )
        for number, (n, m, g, k) in enumerate(RUNS)
        for dtype in ("float32", "float64")
    ],
)
@pytest.mark.short(
    "schools-importance-float32",
    "schools-hmc-float32",
    "birth_death-smc-float64",
    "kalman-nuts-float32",
    "hmm-mh-float64",
    "shares-mh-float32",
    "branches-hmc-float32",
    "counts-hmc-float64",
)
def test_a_run_has_the_same_bits_everywhere(model, given, method, dtype, request, monkeypatch):
    if not request.node.get_closest_marker("long"):
        monkeypatch.setattr(execute, "machine", unoptimised)
    options = {"method": method, "seed": 3, "dtype": dtype, "stack": 400, **SIZES[method]}
    defined = ppl.infer(model, *given, device="interpreter", **options)
    compiled = ppl.infer(model, *given, threads=2, **options)
    one = ppl.infer(model, *given, threads=1, cpu="x86-64", **options)
    for a, b, c in zip(arrays(defined), arrays(compiled), arrays(one), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    np.testing.assert_equal(defined.log_evidence, compiled.log_evidence)


def test_a_dense_mass_matrix_has_the_same_bits(monkeypatch):
    """With a window of the warm-up that ends: its Cholesky factor is in use."""
    monkeypatch.setattr(execute, "machine", unoptimised)
    options = {"metric": "dense", "chains": 2, "draws": 2, "warmup": 14, "depth": 2, "seed": 2}
    runs = [
        ppl.infer(models.line, models.SERIES[:3], models.SERIES[3:6], **options, **where)
        for where in ({"device": "interpreter"}, {"threads": 2}, {"threads": 1, "cpu": "x86-64"})
    ]
    for other in runs[1:]:
        for a, b in zip(arrays(runs[0]), arrays(other), strict=True):
            np.testing.assert_array_equal(a, b)


def test_philox_words_are_the_published_ones():
    """The known answers of Salmon et al. for philox4x32-10."""
    from tawa.ppl.ir.interpret import interpret
    from tawa.ppl.math.library import library

    answers = [
        ((0,) * 6, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((-1,) * 6, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ]
    for given, words in answers:
        b, body = Builder("f32"), Region()
        program = Program("words", "f32", (), body, buffers={"out": "i32"})
        with b.inside(body):
            args = tuple(b.const(k, I32) for k in given)
            for k, value in enumerate(b.op("philox", args, (I32,) * 4).results):
                b.op("write", (b.const(k, I32), value), name="out")
        out = np.zeros((4, 1), np.int32)
        interpret(program, (), {"out": out}, range(1), library)
        assert tuple(int(w) & 0xFFFFFFFF for w in out[:, 0]) == words


def test_words_of_eight_bytes_are_stored_whole_on_a_gpu():
    """A double that is kept as a word: of halves, ptxas 13.0 made the lower one an integer."""
    options = Options(dtype="f64", draws=2, warmup=0, chains=2, steps=3)
    program = program_of(lower(counts, COUNTED, "f64"), options, "hmc").program
    made = ptx(Executable(program, "cuda").kernel(1))
    assert "st.global.b64" in made
    assert not re.search(r"st\.global\.b32\s+\[.*\], %(rd|fd)", made)
