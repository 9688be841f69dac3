"""The twelve models of `ppl.py` in NumPyro and PyMC, and NUTS of NumPyro, BlackJAX and nutpie.

`numpyro_model(name)` and `pymc_model(name, given)` are the models; `CALLS[system](name, given,
sizes)` returns a function of a seed that gives draws by name, shaped (chains, draws, ...): its
first call compiles, the later ones do not. BlackJAX has no models of its own: it samples the
potential of the NumPyro model, as its documentation does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Draws = dict[str, np.ndarray]
Call = Callable[[int], Draws]


class Sizes(NamedTuple):
    """Chains, and draws and warm-up of each"""

    chains: int
    draws: int
    warmup: int


def numpyro_model(name: str) -> Callable[..., None]:
    """Return a model in NumPyro."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as d
    from jax.scipy.special import logsumexp

    numpyro.enable_x64()
    s = numpyro.sample

    def real(title: str, *shape: int) -> Any:
        return s(title, d.ImproperUniform(d.constraints.real, (), shape))

    def positive(title: str) -> Any:
        return s(title, d.ImproperUniform(d.constraints.positive, (), ()))

    def schools(y, sigma):
        mu, tau = s("mu", d.Normal(0, 5)), s("tau", d.HalfCauchy(5))
        eta = s("eta", d.Normal(0, 1).expand([8]))
        s("o", d.Normal(mu + tau * eta, sigma), obs=y)

    def regression(x, y):
        s("o", d.Normal(x @ real("beta", x.shape[1]), positive("sigma")), obs=y)

    def kilpisjarvi(x, y, a, b, c, e):
        alpha, beta = s("alpha", d.Normal(a, b)), s("beta", d.Normal(c, e))
        s("o", d.Normal(alpha + beta * x, positive("sigma")), obs=y)

    def arma(y):
        mu, phi = s("mu", d.Normal(0, 10)), s("phi", d.Normal(0, 2))
        theta, sigma = s("theta", d.Normal(0, 2)), s("sigma", d.HalfCauchy(2.5))

        def step(carry, v):
            error = v - (mu + phi * carry[0] + theta * carry[1])
            return (v, error), error

        _, errors = jax.lax.scan(step, (mu, 0.0 * mu), y)
        s("o", d.Normal(0, sigma), obs=errors)

    def garch(y, first):
        mu, alpha0 = real("mu"), positive("alpha0")
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

    def logistic(x, y):
        beta = s("beta", d.Normal(0, 2).expand([x.shape[1]]))
        s("o", d.Bernoulli(logits=x @ beta), obs=y.astype(float))

    def pair(y):
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

    models = [schools, kilpisjarvi, arma, garch, process, logistic, pair, mean, rate]
    named = {model.__name__: model for model in models}
    return named.get(name, regression)


def pymc_model(name: str, given: tuple[Any, ...]) -> Any:
    """Return a model in PyMC."""
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    def arma(y):
        mu, phi = pm.Normal("mu", 0, 10), pm.Normal("phi", 0, 2)
        theta, sigma = pm.Normal("theta", 0, 2), pm.HalfCauchy("sigma", 2.5)

        def step(v, before, error, mu, phi, theta):
            return v - (mu + phi * before + theta * error)

        series = pt.as_tensor(y)
        before = pt.concatenate([[mu], series[:-1]])
        errors, _ = pytensor.scan(
            step, [series, before], [pt.zeros(())], [mu, phi, theta], strict=True
        )
        pm.Potential("o", pm.logp(pm.Normal.dist(0, sigma), errors).sum())

    def garch(y, first):
        mu, alpha0 = pm.Flat("mu"), pm.HalfFlat("alpha0")
        alpha1 = pm.Uniform("alpha1", 0, 1)
        beta1 = pm.Uniform("beta1", 0, 1 - alpha1)
        pm.Potential("f", pt.log(1 - alpha1))

        def step(v, variance, mu, alpha0, alpha1, beta1):
            return alpha0 + alpha1 * (v - mu) ** 2 + beta1 * variance

        start = pt.as_tensor(np.float64(first * first))
        later, _ = pytensor.scan(
            step, [pt.as_tensor(y[:-1])], [start], [mu, alpha0, alpha1, beta1], strict=True
        )
        scales = pt.sqrt(pt.concatenate([[start], later]))
        pm.Potential("o", pm.logp(pm.Normal.dist(mu, scales), pt.as_tensor(y)).sum())

    def pair(y):
        weight, low = pm.Beta("weight", 2, 2), pm.Normal("low", -1, 0.3)
        high, scale = pm.Normal("high", 1.5, 0.3), pm.HalfNormal("scale", 1)
        terms = [
            pt.log(w / scale) - 0.5 * ((y - m) / scale) ** 2
            for w, m in ((weight, low), (1 - weight, high))
        ]
        pm.Potential("f", pt.logaddexp(*terms).sum())

    with pm.Model() as model:
        match name:
            case "schools":
                y, sigma = given
                mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
                eta = pm.Normal("eta", 0, 1, shape=8)
                pm.Normal("o", mu + tau * eta, sigma, observed=y)
            case "kilpisjarvi":
                x, y, a, b, c, e = given
                alpha, beta = pm.Normal("alpha", a, b), pm.Normal("beta", c, e)
                pm.Normal("o", alpha + beta * x, pm.HalfFlat("sigma"), observed=y)
            case "arma":
                arma(*given)
            case "garch":
                garch(*given)
            case "process":
                x, y = given
                rho, alpha = pm.Gamma("rho", 25, 4), pm.HalfNormal("alpha", 2)
                sigma = pm.HalfNormal("sigma", 1)
                smooth = alpha**2 * pt.exp(-0.5 * (((x[:, None] - x) / rho) ** 2))
                pm.MvNormal("o", np.zeros(len(x)), smooth + sigma * pt.eye(len(x)), observed=y)
            case "logistic":
                x, y = given
                beta = pm.Normal("beta", 0, 2, shape=x.shape[1])
                pm.Bernoulli("o", logit_p=x @ beta, observed=y)
            case "pair":
                pair(*given)
            case "mean":
                pm.Normal("o", pm.Normal("x", 0.5, 2), 1.5, observed=given[0])
            case "rate":
                pm.Poisson("o", pm.Gamma("x", 2, 0.5), observed=given[0])
            case _:
                x, y = given
                beta = pm.Flat("beta", shape=x.shape[1])
                pm.Normal("o", x @ beta, pm.HalfFlat("sigma"), observed=y)
    return model


def over_chains(
    method: str, chain: Callable[..., Any], given: tuple[Any, ...], chains: int
) -> Call:
    """Return a call of JAX chains, one function of a key and a model's arguments, compiled once."""
    import jax

    def whole(keys: Any, *args: Any) -> Any:
        spread = (
            jax.vmap if method == "vectorized" else lambda one: lambda keys: jax.lax.map(one, keys)
        )
        return spread(lambda key: chain(key, *args))(keys)

    compiled = jax.jit(whole)

    def call(seed: int) -> Draws:
        draws = compiled(jax.random.split(jax.random.PRNGKey(seed), chains), *given)
        return {name: np.asarray(array) for name, array in draws.items()}

    return call


def numpyro_call(method: str) -> Callable[[str, tuple[Any, ...], Sizes], Call]:
    """NUTS of NumPyro; `method` is how it runs its chains.

    Its kernel runs in a loop of our own in one compiled function: `MCMC.run` compiles again in
    each call (7 to 15 s each for eight schools), so that its times would be of its compiler.
    """

    def make(name: str, given: tuple[Any, ...], sizes: Sizes) -> Call:
        import jax
        from numpyro.infer import NUTS

        kernel = NUTS(numpyro_model(name))

        def chain(key: Any, *args: Any) -> Any:
            state = kernel.init(key, sizes.warmup, None, args, {})

            def iteration(_: Any, state: Any) -> Any:
                return kernel.sample(state, args, {})

            def draw(state: Any, _: Any) -> Any:
                state = kernel.sample(state, args, {})
                return state, kernel.postprocess_fn(args, {})(state.z)

            state = jax.lax.fori_loop(0, sizes.warmup, iteration, state)
            return jax.lax.scan(draw, state, length=sizes.draws)[1]

        return over_chains(method, chain, given, sizes.chains)

    return make


def blackjax_call(method: str) -> Callable[[str, tuple[Any, ...], Sizes], Call]:
    """NUTS of BlackJAX with its window adaptation; `method` is how the chains run."""

    def make(name: str, given: tuple[Any, ...], sizes: Sizes) -> Call:
        import blackjax
        import jax
        from numpyro.infer.util import initialize_model

        start, potential, constrain, _ = initialize_model(
            jax.random.PRNGKey(0), numpyro_model(name), model_args=given, dynamic_args=True
        )
        flat, build = jax.flatten_util.ravel_pytree(start.z)

        def chain(key: Any, *args: Any) -> Any:
            def density(z: Any) -> Any:
                return -potential(*args)(z)

            begin, warm, go = jax.random.split(key, 3)
            z = build(jax.random.uniform(begin, flat.shape, minval=-2.0, maxval=2.0))
            adaptation = blackjax.window_adaptation(blackjax.nuts, density)
            (state, parameters), _ = adaptation.run(warm, z, num_steps=sizes.warmup)
            step = blackjax.nuts(density, **parameters).step

            def draw(state: Any, key: Any) -> Any:
                state, _ = step(key, state)
                return state, constrain(*args)(state.position)

            return jax.lax.scan(draw, state, jax.random.split(go, sizes.draws))[1]

        return over_chains(method, chain, given, sizes.chains)

    return make


def nutpie_call(name: str, given: tuple[Any, ...], sizes: Sizes) -> Call:
    """NUTS of nutpie over a PyMC model, compiled by Numba; the warm-up is its default, 400."""
    import nutpie

    model = pymc_model(name, given)
    titles = [variable.name for variable in model.free_RVs]
    compiled = nutpie.compile_pymc_model(model)

    def call(seed: int) -> Draws:
        trace = nutpie.sample(
            compiled,
            draws=sizes.draws,
            chains=sizes.chains,
            cores=1,
            seed=seed,
            progress_bar=False,
            save_warmup=False,
        )
        return {title: np.asarray(trace.posterior[title]) for title in titles}

    return call


CALLS: dict[str, Callable[[str, tuple[Any, ...], Sizes], Call]] = {
    "numpyro": numpyro_call("sequential"),
    "numpyro-vectorized": numpyro_call("vectorized"),
    "blackjax": blackjax_call("sequential"),
    "blackjax-vectorized": blackjax_call("vectorized"),
    "nutpie": nutpie_call,
}
