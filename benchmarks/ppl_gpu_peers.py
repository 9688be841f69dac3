"""tawa.ppl beside NumPyro on one GPU: thousands of chains of small models, all at once.

    PYTHONPATH=src:tests python benchmarks/ppl_gpu_peers.py [--budget 240] [NAME ...]

Both sample in float32, 4,096 chains. `nuts` rows give effective draws a second of the best of three
calls after the first (one, where it takes longer than SHORT), warm-up and the copy to the host
counted, compiling not; the effective size is NumPyro's estimate on everyone's draws, the smallest
of all parameters' elements. `hmc` rows give leapfrogs a second with equal steps (12 of one size,
nothing adapted). NumPyro's kernels run in one compiled loop over draws (`ppl_peers.py`). `fused` is
a peer for eight schools: the same HMC in JAX over a log density and a gradient written by hand, all
draws in one compiled loop; once with all draws copied to the host, once with their moments alone.

Each model is a process of its own: all compile and call once side by side, and then get the GPU
one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ppl import CASES
from ppl_peers import Call, Draws, Sizes, numpyro_call, numpyro_model, over_chains
from tawa import ppl

NAMES = ("schools", "logmesquite", "logvolume", "arma", "garch", "logistic", "pair", "rate")
STEPS, STEP_SIZE = 12, 0.05
HMC_DRAWS = 100
SHORT = 0.2  # seconds: what the host does meanwhile counts in such a call
READY = 0.6
"""The part of the budget after which a model that has not made its first calls is left out."""


def numpyro_hmc(name: str, given: tuple[Any, ...], chains: int, draws: int) -> Call:
    """HMC of NumPyro with equal steps, its chains abreast, its draws in one compiled loop."""
    import jax
    from numpyro.infer import HMC

    fixed = {"adapt_step_size": False, "adapt_mass_matrix": False}
    kernel = HMC(numpyro_model(name), step_size=STEP_SIZE, num_steps=STEPS, **fixed)

    def chain(key: Any, *args: Any) -> Any:
        state = kernel.init(key, 1, None, args, {})

        def draw(state: Any, _: Any) -> Any:
            state = kernel.sample(state, args, {})
            return state, kernel.postprocess_fn(args, {})(state.z)

        return jax.lax.scan(draw, state, length=draws)[1]

    return over_chains("vectorized", chain, given, chains)


def fused_hmc(y: Any, sigma: Any, chains: int, draws: int, *, moments: bool) -> Call:
    """HMC of eight schools over a density and a gradient by hand: what JAX can do at its best.

    Its draws, or where `moments` are asked only mean and variance of each chain's.
    """
    import jax
    import jax.numpy as jnp

    y, weight = jnp.asarray(y, jnp.float32)[:, None], 1.0 / jnp.asarray(sigma)[:, None] ** 2

    def look(z: Any) -> tuple[Any, Any]:
        mu, log_tau, eta = z[0], z[1], z[2:]
        tau = jnp.exp(log_tau)
        off = y - mu - tau * eta
        pull = off * weight
        value = -(mu**2) / 50 - jnp.log1p(tau**2 / 25) + log_tau
        value -= 0.5 * (eta**2 + off * pull).sum(0)
        of_mu = pull.sum(0) - mu / 25
        of_tau = (pull * eta).sum(0) * tau - 2 * tau**2 / (25 + tau**2) + 1
        return value, jnp.concatenate([of_mu[None], of_tau[None], tau * pull - eta])

    def draw(state: tuple[Any, Any, Any], key: Any) -> Any:
        z, value, slope = state
        first, second = jax.random.split(key)
        p = jax.random.normal(first, z.shape, jnp.float32)

        def leap(_: Any, at: Any) -> Any:
            z, p, _, slope = at
            p = p + 0.5 * STEP_SIZE * slope
            z = z + STEP_SIZE * p
            value, slope = look(z)
            return z, p + 0.5 * STEP_SIZE * slope, value, slope

        new = jax.lax.fori_loop(0, STEPS, leap, (z, p, value, slope), unroll=True)
        gain = new[2] - value + 0.5 * ((p**2).sum(0) - (new[1] ** 2).sum(0))
        taken = jnp.log(jax.random.uniform(second, gain.shape)) < gain
        state = (
            jnp.where(taken, new[0], z),
            jnp.where(taken, new[2], value),
            jnp.where(taken, new[3], slope),
        )
        return state, state[0]

    @jax.jit
    def run(key: Any) -> Any:
        z = 0.1 * jax.random.normal(key, (10, chains), jnp.float32)
        made = jax.lax.scan(draw, (z, *look(z)), jax.random.split(key, draws))[1]
        return jnp.stack([made.mean(0), made.var(0)]) if moments else made

    return lambda seed: {"z": np.asarray(run(jax.random.PRNGKey(seed)))}


def seconds(call: Call, seed: int) -> tuple[float, Draws]:
    """Return how long a call takes, and its draws."""
    began = time.perf_counter()
    draws = call(seed)
    return time.perf_counter() - began, draws


def best(call: Call, seed: int) -> tuple[float, Draws]:
    """Return how long the best of three calls takes, or a long one, and its draws."""
    spent, draws = seconds(call, seed)
    if spent < SHORT:
        spent = min(spent, *(seconds(call, seed)[0] for _ in range(2)))
    return spent, draws


def least(draws: Draws) -> float:
    """Return the smallest effective sample size of an element."""
    from numpyro.diagnostics import effective_sample_size

    if "eta" in draws:
        theta = draws["mu"][..., None] + draws["tau"][..., None] * draws["eta"]
        draws = {"mu": draws["mu"], "tau": draws["tau"], "theta": theta}
    return min(float(np.min(effective_sample_size(np.asarray(x)))) for x in draws.values())


def work(name: str, sizes: Sizes, device: str) -> None:
    """Compile, wait for a line, measure and say `ran`; then print a line of JSON."""
    import numpyro

    model, given = CASES[name]
    posts: dict[str, Any] = {}

    def ours(method: str, **options: Any) -> Call:
        def call(seed: int) -> Draws:
            how = {"chains": sizes.chains, "device": device, "seed": seed, **options}
            posts[method] = ppl.infer(model, *given, method=method, **how)
            return dict(posts[method].draws)

        return call

    equal = {"draws": HMC_DRAWS, "warmup": 0, "steps": STEPS, "step_size": STEP_SIZE}
    calls: dict[str, Callable[[], Call]] = {
        "tawa nuts": lambda: ours("nuts", draws=sizes.draws, warmup=sizes.warmup),
        "tawa hmc": lambda: ours("hmc", **equal),
        "numpyro hmc": lambda: numpyro_hmc(name, given, sizes.chains, HMC_DRAWS),
        "numpyro nuts": lambda: numpyro_call("vectorized")(name, given, sizes),
    }
    if name == "schools":
        many = equal | {"draws": 10 * HMC_DRAWS}
        for kept, moments in (("long", False), ("long moments", True)):
            calls[f"fused hmc {kept}"] = lambda m=moments: fused_hmc(
                *given, sizes.chains, 10 * HMC_DRAWS, moments=m
            )
            calls[f"tawa hmc {kept}"] = lambda m=moments: ours("hmc", moments=m, **many)
    made = {title: make() for title, make in calls.items()}
    numpyro.enable_x64(False)  # what `numpyro_model` turns on
    firsts = {title: seconds(call, 1)[0] for title, call in made.items()}
    print("ready", flush=True)
    sys.stdin.readline()
    facts: dict[str, Any] = {"model": name, "chains": sizes.chains, "numpyro": numpyro.__version__}
    rates: dict[str, float] = {}
    kept: dict[str, tuple[float, Draws]] = {}
    for title, call in made.items():
        spent, draws = best(call, 2)
        facts[title] = {"s": round(spent, 4), "first_s": round(firsts[title], 2)}
        if "nuts" in title:
            kept[title] = spent, draws
        else:
            count = sizes.chains * STEPS * HMC_DRAWS * (10 if "long" in title else 1)
            rates[title] = count / spent
            facts[title]["leapfrogs_per_s"] = f"{rates[title]:.3g}"
    print("ran", flush=True)
    for title, (spent, draws) in kept.items():
        size = least(draws)
        rates[title] = size / spent
        facts[title] |= {"ess": round(size), "ess_per_s": f"{rates[title]:.3g}"}
        facts[title]["means"] = [float(f"{x.mean():.4g}") for x in list(draws.values())[:2]]
    facts["nuts ratio"] = f"{rates['tawa nuts'] / rates['numpyro nuts']:.4g}"
    facts["hmc ratio"] = f"{rates['tawa hmc'] / rates['numpyro hmc']:.4g}"
    for title in rates:
        if title.startswith("fused"):
            ratio = rates[title.replace("fused", "tawa")] / rates[title]
            facts[f"over {title}"] = f"{ratio:.3g}"
    print(json.dumps(facts), flush=True)


def main() -> None:
    """Start a process for each model, and let them measure in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--chains", type=int, default=4096)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--budget", type=float, default=240.0)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="ours")
    parser.add_argument("--one", default="")
    options = parser.parse_args()
    sizes = Sizes(options.chains, options.draws, options.warmup)
    if options.one:
        work(options.one, sizes, options.device)
        return
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, __file__, f"--device={options.device}"]
    command += [*(f"--{k}={v}" for k, v in sizes._asdict().items())]
    pipe = subprocess.PIPE
    began = time.monotonic()
    workers = {
        name: subprocess.Popen(
            [*command, "--one", name], stdin=pipe, stdout=pipe, text=True, env=environment
        )
        for name in options.names
    }

    def heard(name: str, word: str) -> bool:
        """Wait for a word of a process; one that says nothing in time, or ends, is stopped."""
        end = began + options.budget * (READY if word == "ready" else 1.0)
        stdout, left = workers[name].stdout, max(0.0, end - time.monotonic())
        if select.select([stdout], [], [], left)[0] and stdout.readline().strip() == word:
            return True
        print(f"{name}: not {word} in time, or failed", flush=True)
        workers.pop(name).kill()
        return False

    for name in options.names:
        heard(name, "ready")
    for name, process in list(workers.items()):
        process.stdin.write("go\n")
        process.stdin.flush()
        heard(name, "ran")
    for process in workers.values():
        print(process.stdout.read().strip(), flush=True)


if __name__ == "__main__":
    main()
