"""Every draw of tawa.ppl has the same bits on the GPU as on the CPU; plates by tile kernels."""

from __future__ import annotations

import numpy as np
import pytest

import test_ppl_bits as bits
import test_ppl_closed_forms as closed
import test_ppl_lists as lists
import test_ppl_methods as methods
import test_ppl_plates as plates
import test_ppl_rows as rows
from tawa import ppl
from tawa.errors import NoDriver
from tawa.ppl.emit import gpu
from tawa.ppl.infer.infer import METHODS, READ_BY
from tawa.ppl.tiles.steps import Steps


def has_gpu() -> bool:
    try:
        gpu._context()
    except NoDriver:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_gpu(), reason="needs a GPU")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("model", "given", "method"),
    [pytest.param(m, g, k, id=f"{n}-{k}") for n, m, g, k in bits.RUNS],
)
def test_the_same_bits(model, given, method, dtype):
    for seed in range(10):
        options = {"method": method, "seed": seed, "dtype": dtype, "stack": 400}
        options |= bits.SIZES[method]
        more = {"chains": 96, "particles": 300}
        options |= {name: n for name, n in more.items() if method in READ_BY[name]}
        cpu = bits.arrays(ppl.infer(model, *given, **options))
        other = bits.arrays(ppl.infer(model, *given, device="cuda", **options))
        for a, b in zip(cpu, other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("threads", [1, 4, 32])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("model", "method"),
    [(rows.regression, "hmc"), (rows.chosen, "nuts"), (rows.chosen, "importance")],
)
def test_rows_on_threads_have_the_bits_of_the_cpu(model, method, dtype, threads, monkeypatch):
    """Lanes of several threads, also more than a warp's and not a whole number of warps."""
    monkeypatch.setattr(gpu, "threads_of_a_lane", lambda *_, **__: threads)
    options = {"method": method, "dtype": dtype, "draws": 6, "warmup": 10, "chains": 37}
    options["moments"] = threads == 4
    read = {k: v for k, v in options.items() if method in READ_BY.get(k, METHODS)}
    cpu, other = (
        ppl.infer(model, *rows.data(40), seed=3, device=device, **read)
        for device in ("cpu", "cuda")
    )
    for name in {**cpu.draws, **cpu.moments}:
        one, two = ((p.moments[name].mean if p.moments else p[name]) for p in (cpu, other))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("method", "model", "given", "options"),
    [
        (
            "pmmh",
            methods.states,
            methods.SERIES,
            {"parameters": ("a",), "chains": 3, "particles": 300, "draws": 5, "warmup": 5},
        ),
        ("tempered", closed.normal_mean, closed.DATA, {"particles": 500, "steps": 2}),
    ],
)
def test_the_same_bits_of_methods_with_groups(method, model, given, options):
    cpu, other = (
        ppl.infer(model, given, method=method, seed=4, device=device, **options)
        for device in ("cpu", "cuda")
    )
    for name in cpu.draws:
        np.testing.assert_array_equal(cpu[name], other[name])
    np.testing.assert_array_equal(cpu.value, other.value)


@pytest.mark.parametrize("name", ["logistic", "normal", "poisson"])
def test_plates_of_tiles(name):
    """Values and slopes of a plate against formulas, and the same again."""
    chains = {"chains": 300, "steps": 1, "step_size": 0.01, "device": "cuda"}
    composed, found, options = plates.prepared(name, plates.COLUMNS, **chains)
    x, models = plates.regression()
    with Steps(composed, found, options) as steps:
        (kernel,) = steps.kernels
        steps.step(fresh=1)
        results = []
        for _ in range(2):
            kernel.launch(valued=True)
            results.append({n: steps.running.rows(n) for n in ("given0", "slopes0", "value0")})
        given = results[0]["given0"][:, :300].astype(np.float64)
        value, _ = plates.exact(name, x, models[name][1], given)
        got = results[0]["value0"][:, :300].astype(np.float64).sum(0)
        np.testing.assert_allclose(got, value, rtol=1.5e-6)
        assert abs(np.mean(got / value - 1)) < 2e-7
        _, slopes = plates.exact(name, plates.rounded(x), models[name][1], given)
        scale = np.abs(slopes).max(0)
        assert np.all(np.abs(results[0]["slopes0"][:, :300] - slopes) < 5e-3 * scale + 0.05)
        for buffer, array in results[1].items():
            np.testing.assert_array_equal(array, results[0][buffer])


def test_a_run_with_plates_finds_the_posterior():
    x, models = plates.regression()
    model, y = models["logistic"]
    options = {"method": "nuts", "chains": 64, "draws": 100, "warmup": 200, "dtype": "float64"}
    tiles = ppl.infer(model, x, y, device="cuda", tiles=True, seed=1, **options)
    lanes = ppl.infer(model, x, y, device="cuda", seed=2, **options)
    deviation = lanes["beta"].std((0, 1))
    apart = (tiles["beta"].mean((0, 1)) - lanes["beta"].mean((0, 1))) / deviation
    assert np.abs(apart).max() < 0.1
    np.testing.assert_allclose(tiles["beta"].std((0, 1)), deviation, rtol=0.1)


@pytest.mark.parametrize("method", ["importance", "smc", "mh", "tempered"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lists_have_the_bits_of_the_cpu(method, dtype):
    runs = [(lists.collected, (0.5,)), (lists.filtered, (methods.SERIES,))]
    for model, given in runs:
        options = {"draws": 300, "particles": 300, "chains": 7, "warmup": 3, "steps": 2}
        read = {k: n for k, n in options.items() if method in READ_BY.get(k, METHODS)}
        cpu, other = (
            ppl.infer(model, *given, method=method, device=device, dtype=dtype, stack=400, **read)
            for device in ("cpu", "cuda")
        )
        for a, b in zip(bits.arrays(cpu), bits.arrays(other), strict=True):
            np.testing.assert_array_equal(a, b)
