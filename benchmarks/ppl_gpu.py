"""tawa.ppl on a GPU: bits against the CPU, and leapfrogs a second beside NumPyro.

    PYTHONPATH=src:tests python benchmarks/ppl_gpu.py [--chains 4096] [--draws 1000] [--no-numpyro]
    PYTHONPATH=src:tests python benchmarks/ppl_gpu.py --group

Prints one line of JSON for each measurement. Kernel times are of CUDA events around one launch
of a kernel that has run once before; NumPyro's are of its second run, compilation not counted.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import ppl_models as models
from tawa import ppl
from tawa.ppl.emit import gpu
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.chains import collect, program_of
from tawa.ppl.infer.execute import Executable
from tawa.ppl.infer.infer import METHODS, READ_BY
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.smc import Filter

HMM = (models.EMISSIONS, models.TRANSITION, models.EMISSION)
BITS = [
    (models.schools, (models.Y, models.SIGMA), ("importance", "mh", "smc", "hmc", "nuts")),
    (models.birth_death, (2.0, 0.6, 0.3), ("importance", "mh", "smc")),
    (models.kalman, (models.SERIES,), ("smc", "nuts")),
    (models.hmm, HMM, ("smc", "mh")),
    (models.branches, (0.7,), ("nuts",)),
    (models.garch, (models.SERIES,), ("nuts",)),
    (models.process, (np.linspace(0.0, 1.0, 6), np.sin(np.arange(6.0))), ("nuts",)),
]
SIZES = {"chains": 96, "draws": 40, "warmup": 60, "particles": 1000, "stack": 400}


def say(**facts):
    print(json.dumps(facts), flush=True)


def arrays(post):
    values = post.value if isinstance(post.value, tuple) else (post.value,)
    return [np.ascontiguousarray(array) for array in (*post.draws.values(), *values)]


def compare_bits():
    """Every draw of every method: the same bits on the CPU and on the GPU."""
    for model, given, methods in BITS:
        for method in methods:
            for dtype in ("float32", "float64"):
                read = {k: n for k, n in SIZES.items() if method in READ_BY.get(k, METHODS)}
                options = {"method": method, "dtype": dtype, "seed": 5, **read}
                cpu = arrays(ppl.infer(model, *given, device="cpu", **options))
                other = arrays(ppl.infer(model, *given, device="cuda", **options))
                unlike = sum(
                    int(np.sum(a.view(np.uint8) != b.view(np.uint8)))
                    for a, b in zip(cpu, other, strict=True)
                )
                say(bits=model.name, method=method, dtype=dtype, unlike_bytes=unlike)


def timed(method: str, options: Options):
    """Return the result of a run, and the milliseconds of its kernel."""
    driver = gpu._driver()
    lowered = lower(models.schools, (models.Y, models.SIGMA), options.dtype)
    composed = program_of(lowered, options, method)
    began = time.perf_counter()
    executable = Executable(composed.program, "cuda")
    given = composed.arguments(options.seed)
    with executable.on(given, composed.rows, options.chains) as lanes:
        kernel, built = lanes.kernel, time.perf_counter() - began
        start, end = (gpu._call(driver.cuEventCreate, 0) for _ in range(2))
        best = float("inf")
        for _ in range(3):
            gpu._call(driver.cuEventRecord, start, driver.CUstream(0))
            lanes.launch()
            gpu._call(driver.cuEventRecord, end, driver.CUstream(0))
            gpu._call(driver.cuEventSynchronize, end)
            best = min(best, float(gpu._call(driver.cuEventElapsedTime, start, end)))
        buffers = {name: lanes.rows(name) for name in composed.rows}
    post = collect(models.schools, (models.Y, models.SIGMA), composed, options, buffers)
    registers, local = kernel.attribute("NUM_REGS"), kernel.attribute("LOCAL_SIZE_BYTES")
    return post, best, {"registers": registers, "local_bytes": local, "build_s": round(built, 2)}


def schools(chains: int, draws: int):
    hmc = Options(
        chains=chains, draws=draws, warmup=100, steps=12, step_size=0.35, seed=1, device="cuda"
    )
    nuts = Options(chains=chains, draws=draws // 2, warmup=500, seed=1, device="cuda")
    for method, options in (("hmc", hmc), ("nuts", nuts)):
        post, ms, facts = timed(method, options)
        leaps = int(post.statistics["leapfrogs"].astype(np.int64).sum())
        say(
            schools=method,
            chains=chains,
            draws=options.draws,
            ms=round(ms, 2),
            leapfrogs=leaps,
            leapfrogs_per_s=f"{leaps / ms * 1000:.3g}",
            mu=round(float(post["mu"].mean()), 4),
            tau=round(float(post["tau"].mean()), 4),
            theta1=round(float(post["theta"][:, :, 0].mean()), 4),
            accept=round(float(post.statistics["accept"].mean()), 3),
            divergent=post.divergences,
            **facts,
        )


def numpyro_hmc(chains: int, draws: int):
    """NumPyro's HMC with the same model, step size and number of leapfrogs."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import HMC, MCMC

    def model(y, sigma):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        with numpyro.plate("schools", 8):
            eta = numpyro.sample("eta", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mu + tau * eta, sigma), obs=y)

    kernel = HMC(
        model, step_size=0.35, num_steps=12, adapt_step_size=False, adapt_mass_matrix=False
    )
    sampler = MCMC(
        kernel,
        num_warmup=10,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    for key in (0, 1):
        began = time.perf_counter()
        sampler.run(jax.random.PRNGKey(key), models.Y, models.SIGMA)
        jax.block_until_ready(sampler.get_samples())
        seconds = time.perf_counter() - began
    leaps = chains * (draws + 10) * 12
    say(
        numpyro="hmc",
        version=numpyro.__version__,
        device=str(jax.devices()[0]),
        chains=chains,
        seconds=round(seconds, 2),
        leapfrogs_per_s=f"{leaps / seconds:.3g}",
        mu=round(float(sampler.get_samples()["mu"].mean()), 4),
    )


@ppl.model
def drift(ys):
    """A position that moves at random, seen through noise; only where it ends is kept."""

    def moved(x):
        return 0.9 * x + ppl.sample(ppl.Normal(0.0, 1.0))

    x = 0.0
    for y in ys:
        x = moved(x)
        ppl.observe(ppl.Normal(x, 0.7), y)
    return x


def evidence(ys) -> float:
    """The log evidence of `drift`, by the Kalman filter."""
    mean = variance = total = 0.0
    for y in ys:
        mean, variance = 0.9 * mean, 0.81 * variance + 1.0
        spread = variance + 0.49
        total -= 0.5 * (np.log(2 * np.pi * spread) + (y - mean) ** 2 / spread)
        gain = variance / spread
        mean, variance = mean + gain * (y - mean), variance * (1.0 - gain)
    return float(total)


def particles(count: int, length: int = 20, device: str = "cuda"):
    """A particle filter: seconds of the whole call, and how far its evidence is from the exact."""
    ys = np.sin(np.arange(length))
    ppl.infer(drift, ys, method="smc", particles=1000, device=device)
    began = time.perf_counter()
    post = ppl.infer(drift, ys, method="smc", particles=count, device=device, seed=1)
    seconds = time.perf_counter() - began
    program = Filter(drift, (ys,), Options(particles=count, device=device)).composed
    say(
        particles=count,
        observations=length,
        device=device,
        seconds=round(seconds, 3),
        particle_steps_per_s=f"{count * length / seconds:.3g}",
        rows={name: rows for name, rows in program.rows.items() if rows},
        log_evidence=post.log_evidence,
        exact=evidence(ys),
    )


def group(device: str, chains: int):
    """Few chains, and the same chains on one core: seconds of a call after a first."""
    given = (models.schools, models.Y, models.SIGMA)
    for method in ("hmc", "nuts"):
        options = {"method": method, "chains": chains, "draws": 1000, "warmup": 500, "threads": 1}
        seconds = {}
        for place in ("cpu", device):
            ppl.infer(*given, device=place, **options)
            times = []
            for seed in range(1, 4):
                began = time.perf_counter()
                ppl.infer(*given, device=place, seed=seed, **options)
                times.append(time.perf_counter() - began)
            seconds[place] = round(min(times), 4)
        ratio = round(seconds[device] / seconds["cpu"], 2)
        say(group=method, chains=chains, **seconds, ratio=ratio)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chains", type=int, default=4096)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--no-numpyro", action="store_true")
    parser.add_argument("--particles", type=int, default=0, help="only a filter of so many")
    parser.add_argument("--group", action="store_true", help="1 and 32 chains, beside one core")
    options = parser.parse_args()
    if options.group:
        for chains in (1, 32):
            group("cuda", chains)
        return
    if options.particles:
        particles(options.particles)
        return
    schools(options.chains, options.draws)
    compare_bits()
    if not options.no_numpyro:
        numpyro_hmc(options.chains, 100)


if __name__ == "__main__":
    main()
