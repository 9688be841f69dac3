"""tawa.ppl beside NumPyro on this CPU: effective draws a second of NUTS over twelve models.

    PYTHONPATH=src:tests python benchmarks/ppl.py [--chains 4] [--draws 1000] [NAME ...]

Both run the same warm-up and draws on the same cores in float64; a row's time is that of the second
call, warm-up counted, compiling not: the first call less the second is shown apart. The effective
sample size is the smallest of all sites' elements, by `tawa.ppl.infer.diagnostics` for both.
Without NumPyro its columns are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import numpy as np

import posteriordb_models as db
import ppl_models as models
import test_ppl_closed_forms as closed
from tawa import ppl
from tawa.ppl.infer.chains import collect, program_of
from tawa.ppl.infer.diagnostics import ess, over
from tawa.ppl.infer.options import Options

RNG = np.random.default_rng(1)
X = RNG.normal(size=(200, 4))
LABELS = RNG.random(200) < 1 / (1 + np.exp(-(X @ [1.0, -0.5, 0.3, 0.0])))
PAIR = np.concatenate([RNG.normal(-1.0, 0.7, 60), RNG.normal(1.5, 0.7, 40)])


@ppl.model
def logistic(x, y):
    beta = ppl.repeat(x.shape[1], lambda: ppl.sample(ppl.Normal(0.0, 2.0)))
    ppl.map(lambda m, v: ppl.observe(ppl.BernoulliLogit(m), v), x @ beta, y)
    return beta


@ppl.model
def pair(y):
    weight = ppl.sample(ppl.Beta(2.0, 2.0))
    low = ppl.sample(ppl.Normal(-1.0, 0.3))
    high = ppl.sample(ppl.Normal(1.5, 0.3))
    scale = ppl.sample(ppl.HalfNormal(1.0))

    def term(share, v, at):
        return ppl.log(share / scale) - 0.5 * ((v - at) / scale) ** 2

    for v in y:
        ppl.factor(db.log_add(term(weight, v, low), term(1.0 - weight, v, high)))
    return low, high


def peers() -> dict[str, Callable[..., None]]:
    """The same models in NumPyro."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as d
    from jax.scipy.special import logsumexp

    numpyro.enable_x64()
    s = numpyro.sample

    def schools(y, sigma):
        mu, tau = s("mu", d.Normal(0, 5)), s("tau", d.HalfCauchy(5))
        eta = s("eta", d.Normal(0, 1).expand([8]))
        s("o", d.Normal(mu + tau * eta, sigma), obs=y)

    def regression(x, y):
        beta = s("beta", d.ImproperUniform(d.constraints.real, (), (x.shape[1],)))
        sigma = s("sigma", d.ImproperUniform(d.constraints.positive, (), ()))
        s("o", d.Normal(x @ beta, sigma), obs=y)

    def kilpisjarvi(x, y, a, b, c, e):
        alpha, beta = s("alpha", d.Normal(a, b)), s("beta", d.Normal(c, e))
        sigma = s("sigma", d.ImproperUniform(d.constraints.positive, (), ()))
        s("o", d.Normal(alpha + beta * x, sigma), obs=y)

    def arma(y):
        mu, phi = s("mu", d.Normal(0, 10)), s("phi", d.Normal(0, 2))
        theta, sigma = s("theta", d.Normal(0, 2)), s("sigma", d.HalfCauchy(2.5))

        def step(carry, v):
            error = v - (mu + phi * carry[0] + theta * carry[1])
            return (v, error), error

        _, errors = jax.lax.scan(step, (mu, 0.0 * mu), y)
        s("o", d.Normal(0, sigma), obs=errors)

    def garch(y, first):
        mu = s("mu", d.ImproperUniform(d.constraints.real, (), ()))
        alpha0 = s("alpha0", d.ImproperUniform(d.constraints.positive, (), ()))
        alpha1 = s("alpha1", d.Uniform(0, 1))
        beta1 = s("beta1", d.Uniform(0, 1 - alpha1))
        numpyro.factor("f", jnp.log(1 - alpha1))

        def step(variance, v):
            return alpha0 + alpha1 * (v - mu) ** 2 + beta1 * variance, jnp.sqrt(variance)

        _, scales = jax.lax.scan(step, first * first + 0 * mu, y)
        s("o", d.Normal(mu, scales), obs=y)

    def process(x, y):
        rho, alpha = s("rho", d.Gamma(25, 4)), s("alpha", d.HalfNormal(2))
        sigma = s("sigma", d.HalfNormal(1))
        smooth = alpha**2 * jnp.exp(-0.5 * ((x[:, None] - x) / rho) ** 2)
        s("o", d.MultivariateNormal(0.0, smooth + sigma * jnp.eye(len(x))), obs=y)

    def labels(x, y):
        beta = s("beta", d.Normal(0, 2).expand([x.shape[1]]))
        s("o", d.Bernoulli(logits=x @ beta), obs=y.astype(float))

    def mixture(y):
        weight, low = s("weight", d.Beta(2, 2)), s("low", d.Normal(-1, 0.3))
        high, scale = s("high", d.Normal(1.5, 0.3)), s("scale", d.HalfNormal(1))
        terms = [
            jnp.log(w / scale) - 0.5 * ((y - m) / scale) ** 2
            for w, m in ((weight, low), (1 - weight, high))
        ]
        numpyro.factor("f", logsumexp(jnp.stack(terms), axis=0).sum())

    def mean(y):
        s("o", d.Normal(s("x", d.Normal(0.5, 2)), 1.5), obs=y)

    def rate(y):
        s("o", d.Poisson(s("x", d.Gamma(2, 0.5))), obs=y)

    return {
        "schools": schools,
        **dict.fromkeys(("mesquite", "logmesquite", "logvolume"), regression),
        "kilpisjarvi": kilpisjarvi,
        "arma": arma,
        "garch": garch,
        "process": process,
        "logistic": labels,
        "pair": mixture,
        "mean": mean,
        "rate": rate,
    }


def stored(name: str) -> tuple[Any, tuple[Any, ...]]:
    case = db.POSTERIORS[name]
    return case.model, case.arguments(db.data_of(name))


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "schools": (models.schools, (models.Y, models.SIGMA)),
    "mesquite": stored("mesquite-mesquite"),
    "logmesquite": stored("mesquite-logmesquite"),
    "logvolume": stored("mesquite-logmesquite_logvolume"),
    "kilpisjarvi": stored("kilpisjarvi_mod-kilpisjarvi"),
    "arma": stored("arma-arma11"),
    "garch": stored("garch-garch11"),
    "process": stored("gp_pois_regr-gp_regr"),
    "logistic": (logistic, (X, LABELS)),
    "pair": (pair, (PAIR,)),
    "mean": (closed.normal_mean, (closed.DATA,)),
    "rate": (closed.poisson_rate, (closed.COUNTS,)),
}


def least(draws: dict[str, np.ndarray]) -> float:
    return min(float(np.min(over(ess, array))) for array in draws.values())


def measured(call: Callable[[int], dict[str, np.ndarray]]) -> dict[str, Any]:
    """Return effective draws, seconds, and effective draws a second of the second of two calls."""
    times: list[float] = []
    draws: dict[str, np.ndarray] = {}
    for seed in (1, 2):
        began = time.perf_counter()
        draws = call(seed)
        times.append(time.perf_counter() - began)
    size = least(draws)
    facts = {"ess": round(size), "s": round(times[1], 3), "ess_per_s": round(size / times[1])}
    return {**facts, "compile_s": round(times[0] - times[1], 2)}


def tawa_call(model: Any, given: tuple[Any, ...], chains: int, draws: int) -> Any:
    built: list[Any] = []

    def call(seed: int) -> dict[str, np.ndarray]:
        options = Options(chains=chains, draws=draws, warmup=draws, dtype="f64", seed=seed)
        if not built:
            composed = program_of(model, given, options, "nuts")
            built.extend((composed, composed.executable(options)))
        composed, executable = built
        buffers = composed.buffers(chains)
        executable.run(composed.arguments(seed), buffers, chains)
        return dict(collect(model, given, composed, options, buffers).draws)

    return call


def numpyro_call(model: Any, given: tuple[Any, ...], chains: int, draws: int) -> Any:
    import jax
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(
        NUTS(model),
        num_warmup=draws,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,
    )

    def call(seed: int) -> dict[str, np.ndarray]:
        sampler.run(jax.random.PRNGKey(seed), *given)
        return {k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()}

    return call


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    try:
        others = peers()
    except ImportError:
        others = {}
    ratios: list[float] = []
    for name in options.names:
        model, given = CASES[name]
        ours = measured(tawa_call(model, given, options.chains, options.draws))
        row: dict[str, Any] = {"model": name, "tawa": ours}
        if others:
            row["numpyro"] = measured(
                numpyro_call(others[name], given, options.chains, options.draws)
            )
            ratios.append(ours["ess_per_s"] / row["numpyro"]["ess_per_s"])
            row["ratio"] = round(ratios[-1], 1)
        print(json.dumps(row), flush=True)
    if ratios:
        mean = float(np.exp(np.mean(np.log(ratios))))
        print(json.dumps({"geometric_mean": round(mean, 2), "models": len(ratios)}))


if __name__ == "__main__":
    main()
