"""tawa.ppl's big plates on a GPU: logistic regressions, beside the same arithmetic in torch.

    PYTHONPATH=src:tests:benchmarks python benchmarks/ppl_plates.py [--rows N] [--chains N]
        [--no-torch] [--posterior]

Prints one line of JSON for each measurement. A leapfrog of hmc is one launch of the lanes, one of
the kernel of slopes and its sums; the value is asked once a trajectory. Times are of `REPEATS`
in a row between two waits for the device, the best of three. torch computes slopes of the same
regression from a product, its sigmoid and a product: in float32 by TF32, and in bfloat16, each also
with `torch.compile`.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from tawa import ppl
from tawa.ppl.emit import gpu
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.chains import program_of
from tawa.ppl.infer.options import Options
from tawa.ppl.tiles.steps import Steps

COLUMNS, REPEATS = 54, 20


@ppl.model
def logistic(x, y):
    beta = ppl.repeat(len(x[0]), lambda: ppl.sample(ppl.Normal(0.0, 1.0)))
    ppl.map(lambda row, v: ppl.observe(ppl.BernoulliLogit(row @ beta), v), x, y)
    return beta


def say(**facts):
    print(json.dumps(facts), flush=True)


def data(rows: int):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((rows, COLUMNS)).astype(np.float32)
    x[:, 0] = 1.0
    beta = rng.standard_normal(COLUMNS) / 6
    return x, rng.random(rows) < 1 / (1 + np.exp(-(x @ beta))), beta


def timed(work) -> float:
    """Return milliseconds of one call."""
    best = float("inf")
    for _ in range(3):
        gpu._call(gpu._driver().cuCtxSynchronize)
        began = time.perf_counter()
        for _ in range(REPEATS):
            work()
        gpu._call(gpu._driver().cuCtxSynchronize)
        best = min(best, (time.perf_counter() - began) / REPEATS * 1000)
    return best


def plates(rows: int, chains: int):
    x, y, _ = data(rows)
    options = Options(
        chains=chains,
        draws=10,
        thin=1000,
        warmup=0,
        steps=10,
        step_size=0.001,
        seed=1,
        device="cuda",
        dtype="f64",
        tiles=True,
    )
    found = []
    began = time.perf_counter()
    composed = program_of(lower(logistic, (x, y), options.dtype), options, "hmc", found)
    with Steps(composed, found, options) as steps:
        (kernel,) = steps.kernels
        say(
            rows=rows,
            chains=chains,
            parts=kernel.split.parts,
            built_s=round(time.perf_counter() - began, 1),
            gigabytes=round(steps.running.bytes / 1e9, 3),
            logits_gigabytes=round(rows * chains * 4 / 1e9, 2),
        )
        steps.step(fresh=1)
        kernel.launch(valued=True)
        agreement(steps, kernel, x, y)
        lanes = timed(lambda: steps.step(fresh=0))
        slopes = timed(lambda: kernel.launch(valued=False))
        value = timed(lambda: kernel.launch(valued=True))

        def leapfrog():
            kernel.launch(valued=False)
            steps.step(fresh=0)

        both = timed(leapfrog)
        flops = 2 * rows * 64 * chains
        say(
            rows=rows,
            chains=chains,
            lanes_ms=round(lanes, 4),
            slopes_ms=round(slopes, 4),
            value_ms=round(value, 4),
            leapfrog_ms=round(both, 4),
            slopes_tflops=round(3 * flops / slopes / 1e9, 1),
        )


def agreement(steps, kernel, x, y):
    """The kernel's value and slopes of some chains against float64."""
    buffers = {name: steps.running.rows(name) for name in ("given0", "slopes0", "value0")}
    wide, chosen = x.astype(np.float64), np.arange(0, steps.lanes, steps.lanes // 8)
    beta = buffers["given0"][:COLUMNS, chosen].astype(np.float64)
    logits = wide @ beta
    value = np.where(y[:, None], -np.logaddexp(0, -logits), -np.logaddexp(0, logits)).sum(0)
    slopes = wide.T @ (y[:, None] - 1 / (1 + np.exp(-logits)))
    got = buffers["value0"][:, chosen].astype(np.float64).sum(0)
    error = np.abs(buffers["slopes0"][:COLUMNS, chosen] - slopes)
    say(
        value=float(value[0]),
        value_error=float(np.abs(got - value).max()),
        slope_size=float(np.abs(slopes).max()),
        slope_error=float(error.max()),
    )


def torch_peer(rows: int, chains: int):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    x, y, _ = data(rows)

    def slopes(beta, x, y):
        return (y - torch.sigmoid(beta @ x.T)) @ x

    compiled = torch.compile(slopes)
    for kind in (torch.float32, torch.bfloat16):
        there = torch.tensor(x, device="cuda", dtype=kind)
        seen = torch.tensor(y, device="cuda", dtype=kind)
        beta = torch.randn(chains, COLUMNS, device="cuda", dtype=kind)
        for name, function in (("eager", slopes), ("compiled", compiled)):
            torch.cuda.reset_peak_memory_stats()
            try:
                function(beta, there, seen)
                ms = timed(lambda f=function, b=beta, t=there, s=seen: f(b, t, s))
            except Exception as error:
                say(torch=name, dtype=str(kind), rows=rows, chains=chains, failed=str(error)[:200])
                continue
            say(
                torch=name,
                dtype=str(kind),
                rows=rows,
                chains=chains,
                slopes_ms=round(ms, 4),
                gigabytes=round(torch.cuda.max_memory_allocated() / 1e9, 2),
            )
        del there, seen, beta
        torch.cuda.empty_cache()


def posterior(rows: int, chains: int, method: str):
    """A whole run: where it ends, and how long it takes."""
    x, y, beta = data(rows)
    began = time.perf_counter()
    post = ppl.infer(
        logistic,
        x,
        y,
        method=method,
        chains=chains,
        draws=20,
        warmup=150,
        seed=1,
        device="cuda",
        dtype="float64",
        tiles=True,
        **({"depth": 6} if method == "nuts" else {"steps": 8}),
    )
    seconds = time.perf_counter() - began
    mean, deviation = post["beta"].mean((0, 1)), post["beta"].std((0, 1))
    say(
        run=method,
        rows=rows,
        chains=chains,
        seconds=round(seconds, 2),
        leapfrogs=int(post.statistics["leapfrogs"].sum()),
        accept=round(float(post.statistics["accept"].mean()), 3),
        divergent=post.divergences,
        from_truth=round(float(np.sqrt(np.mean(((mean - beta) / deviation) ** 2))), 3),
        r_hat=round(post.rhat(), 4),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=131_072)
    parser.add_argument("--chains", type=int, default=4096)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--posterior", default="", help="hmc or nuts: a whole run")
    given = parser.parse_args()
    if given.posterior:
        posterior(given.rows, given.chains, given.posterior)
        return
    plates(given.rows, given.chains)
    if not given.no_torch:
        torch_peer(given.rows, given.chains)


if __name__ == "__main__":
    main()
