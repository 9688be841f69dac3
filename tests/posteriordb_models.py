"""The posteriors of posteriordb that have stored draws, written in tawa.ppl from their mathematics.

`POSTERIORS[name]` is a model, its arguments made of the data, and the names of what it returns.
`compare` holds a posterior against the stored means and deviations.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tawa import ppl
from tawa.ppl.infer.diagnostics import ess

DATA = Path(__file__).parent / "data"
REFERENCE = json.loads((DATA / "posteriordb_reference.json").read_text())
FOLDER = os.environ.get("TAWA_POSTERIORDB", "")


@ppl.model
def regression(x, y):
    """Flat priors, as all the regressions of posteriordb have that say nothing else."""
    beta = ppl.repeat(x.shape[1], lambda: ppl.sample(ppl.Flat()))
    sigma = ppl.sample(ppl.HalfFlat())
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(m, sigma), v), x @ beta, y)
    return beta, sigma


@ppl.model
def regression_cauchy(x, y):
    beta = ppl.repeat(x.shape[1], lambda: ppl.sample(ppl.Flat()))
    sigma = ppl.sample(ppl.HalfCauchy(2.5))
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(m, sigma), v), x @ beta, y)
    return beta, sigma


@ppl.model
def regression_normal(x, y):
    beta = ppl.repeat(x.shape[1], lambda: ppl.sample(ppl.Normal(0.0, 10.0)))
    sigma = ppl.sample(ppl.HalfNormal(10.0))
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(m, sigma), v), x @ beta, y)
    return beta, sigma


@ppl.model
def diamonds(x, y):
    b = ppl.repeat(x.shape[1], lambda: ppl.sample(ppl.Normal(0.0, 1.0)))
    intercept = ppl.sample(ppl.StudentT(3.0, 8.0, 10.0))
    sigma = ppl.sample(ppl.HalfStudentT(3.0, 10.0))
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(intercept + m, sigma), v), x @ b, y)
    return b, intercept, sigma


@ppl.model
def kilpisjarvi(x, y, alpha_mean, alpha_scale, beta_mean, beta_scale):
    alpha = ppl.sample(ppl.Normal(alpha_mean, alpha_scale))
    beta = ppl.sample(ppl.Normal(beta_mean, beta_scale))
    sigma = ppl.sample(ppl.HalfFlat())
    ppl.map(lambda a, v: ppl.observe(ppl.Normal(alpha + beta * a, sigma), v), x, y)
    return alpha, beta, sigma


@ppl.model
def autoregression(lags, y):
    alpha = ppl.sample(ppl.Normal(0.0, 10.0))
    beta = ppl.repeat(lags.shape[1], lambda: ppl.sample(ppl.Normal(0.0, 10.0)))
    sigma = ppl.sample(ppl.HalfCauchy(2.5))
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(alpha + m, sigma), v), lags @ beta, y)
    return alpha, beta, sigma


@ppl.model
def arma(y):
    mu = ppl.sample(ppl.Normal(0.0, 10.0))
    phi = ppl.sample(ppl.Normal(0.0, 2.0))
    theta = ppl.sample(ppl.Normal(0.0, 2.0))
    sigma = ppl.sample(ppl.HalfCauchy(2.5))
    before, error = mu, 0.0
    for v in y:
        error = v - (mu + phi * before + theta * error)
        ppl.observe(ppl.Normal(0.0, sigma), error)
        before = v
    return mu, phi, theta, sigma


@ppl.model
def garch(y, first):
    mu = ppl.sample(ppl.Flat())
    alpha0 = ppl.sample(ppl.HalfFlat())
    alpha1 = ppl.sample(ppl.Uniform(0.0, 1.0))
    beta1 = ppl.sample(ppl.Uniform(0.0, 1.0 - alpha1))
    ppl.factor(ppl.log(1.0 - alpha1))  # flat over the triangle
    variance = first * first
    for v in y:
        ppl.observe(ppl.Normal(mu, ppl.sqrt(variance)), v)
        variance = alpha0 + alpha1 * (v - mu) ** 2 + beta1 * variance
    return mu, alpha0, alpha1, beta1


@ppl.model
def gauss_mixture(y):
    low = ppl.sample(ppl.Normal(0.0, 2.0))
    high = low + ppl.sample(ppl.HalfFlat(), name="gap")
    ppl.observe(ppl.Normal(0.0, 2.0), high)
    sigma = ppl.repeat(2, lambda: ppl.sample(ppl.HalfNormal(2.0)))
    theta = ppl.sample(ppl.Beta(5.0, 5.0))

    def term(weight, v, mean, scale):
        return ppl.log(weight / scale) - 0.5 * ((v - mean) / scale) ** 2

    for v in y:
        ppl.factor(log_add(term(theta, v, low, sigma[0]), term(1.0 - theta, v, high, sigma[1])))
    return [low, high], sigma, theta


def log_add(a, b):
    high = max(a, b)
    return high + ppl.log1p(ppl.exp(min(a, b) - high))


def forward(observed, density, theta1, theta2):
    """The log likelihood of a chain of two states that may begin in either."""
    go = [[ppl.log(p) for p in row] for row in [theta1, theta2]]
    a, b = density(0, 0), density(0, 1)
    for t in range(1, len(observed)):
        stay = log_add(a + go[0, 0], b + go[1, 0]) + density(t, 0)
        b = log_add(a + go[0, 1], b + go[1, 1]) + density(t, 1)
        a = stay
    return log_add(a, b)


@ppl.model
def hmm_example(y):
    theta1 = ppl.sample(ppl.Dirichlet([1.0, 1.0]))
    theta2 = ppl.sample(ppl.Dirichlet([1.0, 1.0]))
    low = ppl.sample(ppl.HalfFlat())
    ppl.observe(ppl.Normal(3.0, 1.0), low)
    high = low + ppl.sample(ppl.HalfFlat(), name="gap")
    ppl.observe(ppl.Normal(10.0, 1.0), high)
    mu = [low, high]
    ppl.factor(forward(y, lambda t, k: -0.5 * (y[t] - mu[k]) ** 2, theta1, theta2))
    return theta1, theta2, mu


@ppl.model
def hmm_drive_exponential(u, v, alpha):
    theta1 = ppl.sample(ppl.Dirichlet(alpha[0]))
    theta2 = ppl.sample(ppl.Dirichlet(alpha[1]))

    def rates():
        low = ppl.sample(ppl.HalfFlat(), name="low")
        high = low + ppl.sample(ppl.HalfFlat(), name="gap")
        ppl.observe(ppl.Normal(0.0, 1.0), low)
        ppl.observe(ppl.Normal(3.0, 1.0), high)
        return [low, high]

    phi, rate = rates(), rates()

    def density(t, k):
        return ppl.log(phi[k] * rate[k]) - phi[k] * u[t] - rate[k] * v[t]

    ppl.factor(forward(u, density, theta1, theta2))
    return theta1, theta2, phi, rate


@ppl.model
def hmm_drive_normal(u, v, alpha, tau, rho):
    theta1 = ppl.sample(ppl.Dirichlet(alpha[0]))
    theta2 = ppl.sample(ppl.Dirichlet(alpha[1]))

    def means():
        low = ppl.sample(ppl.Normal(0.0, 1.0), name="low")
        high = low + ppl.sample(ppl.HalfFlat(), name="gap")
        ppl.observe(ppl.Normal(3.0, 1.0), high)
        return [low, high]

    phi, place = means(), means()

    def density(t, k):
        return -0.5 * ((u[t] - phi[k]) / tau) ** 2 - 0.5 * ((v[t] - place[k]) / rho) ** 2

    ppl.factor(forward(u, density, theta1, theta2))
    return theta1, theta2, phi, place


def covariance(x, alpha, rho, diagonal):
    n = len(x)

    def entry(i, j):
        smooth = alpha * alpha * ppl.exp(-0.5 * ((x[i] - x[j]) / rho) ** 2)
        return smooth + (diagonal if i == j else 0.0)

    return [[entry(i, j) for j in range(n)] for i in range(n)]


@ppl.model
def process_regression(x, y):
    rho = ppl.sample(ppl.Gamma(25.0, 4.0))
    alpha = ppl.sample(ppl.HalfNormal(2.0))
    sigma = ppl.sample(ppl.HalfNormal(1.0))
    factor = ppl.cholesky(covariance(x, alpha, rho, sigma))
    ppl.observe(ppl.MultivariateNormal(ppl.map(lambda v: 0.0 * v, x), scale_tril=factor), y)
    return rho, alpha, sigma


@ppl.model
def process_counts(x, k):
    rho = ppl.sample(ppl.Gamma(25.0, 4.0))
    alpha = ppl.sample(ppl.HalfNormal(2.0))
    standard = ppl.map(lambda v: ppl.sample(ppl.Normal(0.0, 1.0)), x)
    f = ppl.cholesky(covariance(x, alpha, rho, 1e-10)) @ standard
    ppl.map(lambda v, count: ppl.observe(ppl.Poisson(ppl.exp(v)), count), f, k)
    return rho, alpha, f


@ppl.model
def lotka_volterra(start, y):
    alpha = ppl.sample(ppl.Normal(1.0, 0.5))
    beta = ppl.sample(ppl.Normal(0.05, 0.05))
    gamma = ppl.sample(ppl.Normal(1.0, 0.5))
    delta = ppl.sample(ppl.Normal(0.05, 0.05))
    # The priors are cut off at 0.
    ppl.factor(0.0 if min(min(alpha, beta), min(gamma, delta)) > 0.0 else NEVER)
    z = ppl.repeat(2, lambda: ppl.sample(ppl.LogNormal(2.302585092994046, 1.0)))
    sigma = ppl.repeat(2, lambda: ppl.sample(ppl.LogNormal(-1.0, 1.0)))
    ppl.map(lambda a, s, v: ppl.observe(ppl.LogNormal(ppl.log(a), s), v), z, sigma, start)

    def slope(u, v):
        return (alpha - beta * v) * u, (delta * u - gamma) * v

    u, v = z[0], z[1]
    for row in y:
        for _ in range(STEPS):  # Runge and Kutta's classical method
            a, b = slope(u, v)
            c, d = slope(u + 0.5 * H * a, v + 0.5 * H * b)
            e, f = slope(u + 0.5 * H * c, v + 0.5 * H * d)
            g, h = slope(u + H * e, v + H * f)
            u = u + H / 6.0 * (a + 2.0 * c + 2.0 * e + g)
            v = v + H / 6.0 * (b + 2.0 * d + 2.0 * f + h)
        ppl.observe(ppl.LogNormal(ppl.log(u), sigma[0]), row[0])
        ppl.observe(ppl.LogNormal(ppl.log(v), sigma[1]), row[1])
    return [alpha, beta, gamma, delta], z, sigma


STEPS, NEVER = 10, float("-inf")
H = 1.0 / STEPS


@ppl.model
def elimination(times, y, dose, volume):
    k_a = ppl.sample(ppl.HalfCauchy(1.0))
    k_m = ppl.sample(ppl.HalfCauchy(1.0))
    v_m = ppl.sample(ppl.HalfCauchy(1.0))
    sigma = ppl.sample(ppl.HalfCauchy(1.0))

    def slope(t, c):
        return ppl.exp(-k_a * t) * dose * k_a / volume - v_m / volume * c / (k_m + c)

    t, c = 0.0, 0.0
    for k in range(len(times)):
        h = (times[k] - t) / 20.0
        for _ in range(20):
            a = slope(t, c)
            b = slope(t + 0.5 * h, c + 0.5 * h * a)
            d = slope(t + 0.5 * h, c + 0.5 * h * b)
            e = slope(t + h, c + h * d)
            c = c + h / 6.0 * (a + 2.0 * b + 2.0 * d + e)
            t = t + h
        ppl.observe(ppl.LogNormal(ppl.log(c), sigma), y[k])
    return k_a, k_m, v_m, sigma


@ppl.model
def eight_schools(y, sigma):
    mu = ppl.sample(ppl.Normal(0.0, 5.0))
    tau = ppl.sample(ppl.HalfCauchy(5.0))
    theta = ppl.map(lambda s: ppl.sample(ppl.Normal(mu, tau), centered=False), sigma)
    ppl.map(lambda t, s, v: ppl.observe(ppl.Normal(t, s), v), theta, sigma, y)
    return theta, mu, tau


@dataclass(frozen=True)
class Case:
    """A model, its arguments of the data, and the names of what it returns."""

    model: Any
    arguments: Callable[[dict[str, Any]], tuple[Any, ...]]
    names: str = "beta sigma"


def columns(*parts: Any) -> np.ndarray:
    """A design matrix, its first column ones."""
    return np.column_stack([np.ones(len(parts[0])), *parts])


def linear(*terms: Callable[[dict[str, Any]], Any], y: str, scale=lambda v: v, model=regression):
    """A linear regression on terms of the data."""
    return Case(model, lambda d: (columns(*(term(d) for term in terms)), scale(d[y])))


def get(name: str, change: Callable[[Any], Any] = lambda v: v) -> Callable[[dict[str, Any]], Any]:
    return lambda d: change(d[name])


def product(a: Any, b: Any) -> Any:
    return lambda d: a(d) * b(d)


def standard(v: np.ndarray, by: float = 1.0) -> np.ndarray:
    return (v - v.mean()) / (by * v.std(ddof=1))


def equals(name: str, *levels: int) -> list[Any]:
    return [get(name, lambda v, level=level: (v == level) * 1.0) for level in levels]


def diamond_arguments(d: dict[str, Any]) -> tuple[Any, ...]:
    x = d["X"][:, 1:]
    return x - x.mean(axis=0), d["Y"]


def lagged(d: dict[str, Any]) -> tuple[Any, ...]:
    y, k = d["y"], int(d["K"])
    return np.column_stack([y[k - i - 1 : len(y) - i - 1] for i in range(k)]), y[k:]


HS, IQ = get("mom_hs"), get("mom_iq")
HEIGHT, MALE = get("height"), get("male")
Z_HEIGHT = get("height", standard)
AREA = product(get("diam1"), get("diam2"))
VOLUME = product(AREA, get("canopy_height"))


def log_of(term: Any) -> Any:
    return lambda d: np.log(term(d))


def shape(d: dict[str, Any]) -> Any:
    return np.log(d["diam1"] / d["diam2"])


PLAIN = [get(n) for n in ("diam1", "diam2", "canopy_height", "total_height", "density")]
LOGS = [log_of(term) for term in PLAIN]
GROUP = get("group")


def kid(*terms: Any, model: Any = regression) -> Case:
    return linear(*terms, y="kid_score", model=model)


def earn(*terms: Any, scale: Any = np.log) -> Case:
    return linear(*terms, y="earn", scale=scale)


def bush(*terms: Any, scale: Any = np.log) -> Case:
    return linear(*terms, y="weight", scale=scale)


def centred(by: Callable[[Any], Any]) -> Case:
    hs, iq = get("mom_hs", by), get("mom_iq", by)
    return kid(hs, iq, product(hs, iq))


HALF, HUNDRED = get("mom_hs", lambda v: v - 0.5), get("mom_iq", lambda v: v - 100.0)
NES = linear(
    get("real_ideo"),
    get("race_adj"),
    *equals("age_discrete", 2, 3, 4),
    get("educ1"),
    get("gender"),
    get("income"),
    y="partyid7",
)
BLR = Case(regression_normal, lambda d: (d["X"], d["y"]))
POSTERIORS: dict[str, Case] = {
    "arK-arK": Case(autoregression, lagged, "alpha beta sigma"),
    "arma-arma11": Case(arma, lambda d: (d["y"],), "mu phi theta sigma"),
    "bball_drive_event_0-hmm_drive_0": Case(
        hmm_drive_exponential, lambda d: (d["u"], d["v"], d["alpha"]), "theta1 theta2 phi lambda"
    ),
    "bball_drive_event_1-hmm_drive_1": Case(
        hmm_drive_normal,
        lambda d: (d["u"], d["v"], d["alpha"], d["tau"], d["rho"]),
        "theta1 theta2 phi lambda",
    ),
    "diamonds-diamonds": Case(diamonds, diamond_arguments, "b Intercept sigma"),
    "earnings-earn_height": earn(HEIGHT, scale=lambda v: v),
    "earnings-log10earn_height": earn(HEIGHT, scale=np.log10),
    "earnings-logearn_height": earn(HEIGHT),
    "earnings-logearn_height_male": earn(HEIGHT, MALE),
    "earnings-logearn_interaction": earn(HEIGHT, MALE, product(HEIGHT, MALE)),
    "earnings-logearn_interaction_z": earn(Z_HEIGHT, MALE, product(Z_HEIGHT, MALE)),
    "earnings-logearn_logheight_male": earn(log_of(HEIGHT), MALE),
    "eight_schools-eight_schools_noncentered": Case(
        eight_schools, lambda d: (d["y"], d["sigma"]), "theta mu tau"
    ),
    "garch-garch11": Case(garch, lambda d: (d["y"], d["sigma1"]), "mu alpha0 alpha1 beta1"),
    "gp_pois_regr-gp_pois_regr": Case(
        process_counts, lambda d: (d["x"], d["k"].astype(int)), "rho alpha f"
    ),
    "gp_pois_regr-gp_regr": Case(process_regression, lambda d: (d["x"], d["y"]), "rho alpha sigma"),
    "hmm_example-hmm_example": Case(hmm_example, lambda d: (d["y"],), "theta1 theta2 mu"),
    "hudson_lynx_hare-lotka_volterra": Case(
        lotka_volterra, lambda d: (d["y_init"], d["y"]), "theta z_init sigma"
    ),
    "kidiq-kidscore_interaction": kid(HS, IQ, product(HS, IQ), model=regression_cauchy),
    "kidiq-kidscore_momhs": kid(HS, model=regression_cauchy),
    "kidiq-kidscore_momhsiq": kid(HS, IQ, model=regression_cauchy),
    "kidiq-kidscore_momiq": kid(IQ, model=regression_cauchy),
    "kidiq_with_mom_work-kidscore_interaction_c": centred(lambda v: v - v.mean()),
    "kidiq_with_mom_work-kidscore_interaction_c2": kid(HALF, HUNDRED, product(HALF, HUNDRED)),
    "kidiq_with_mom_work-kidscore_interaction_z": centred(lambda v: standard(v, 2.0)),
    "kidiq_with_mom_work-kidscore_mom_work": kid(*equals("mom_work", 2, 3, 4)),
    "kilpisjarvi_mod-kilpisjarvi": Case(
        kilpisjarvi,
        lambda d: tuple(d[n] for n in ["x", "y", "pmualpha", "psalpha", "pmubeta", "psbeta"]),
        "alpha beta sigma",
    ),
    "low_dim_gauss_mix-low_dim_gauss_mix": Case(
        gauss_mixture, lambda d: (d["y"],), "mu sigma theta"
    ),
    "mesquite-logmesquite": bush(*LOGS, GROUP),
    "mesquite-logmesquite_logva": bush(log_of(VOLUME), log_of(AREA), GROUP),
    "mesquite-logmesquite_logvas": bush(log_of(VOLUME), log_of(AREA), shape, *LOGS[3:], GROUP),
    "mesquite-logmesquite_logvash": bush(log_of(VOLUME), log_of(AREA), shape, LOGS[3], GROUP),
    "mesquite-logmesquite_logvolume": bush(log_of(VOLUME)),
    "mesquite-mesquite": bush(*PLAIN, GROUP, scale=lambda v: v),
    **{f"nes{year}-nes": NES for year in range(1972, 2001, 4)},
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": Case(
        elimination, lambda d: (d["times"], d["C_hat"], d["D"], d["V"]), "k_a K_m V_m sigma"
    ),
    "sblrc-blr": BLR,
    "sblri-blr": BLR,
}


def data_of(name: str) -> dict[str, Any]:
    """Return a posterior's data, of the tests' own file or of the folder that is named."""
    key = name.rsplit("-", 1)[0]
    small = json.loads((DATA / "posteriordb_data.json").read_text())
    if key in small:
        given = small[key]
    else:
        path = Path(FOLDER) / "posterior_database/data/data" / f"{key}.json.zip"
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as held:
            given = json.loads(held.read(held.namelist()[0]))
    return {k: np.array(v, float) if isinstance(v, list) else float(v) for k, v in given.items()}


def sample(name: str, **options: Any) -> Any:
    """Draw from a posterior, in float64."""
    case = POSTERIORS[name]
    return ppl.infer(case.model, *case.arguments(data_of(name)), dtype="float64", **options)


def quantities(name: str, post: Any) -> dict[str, np.ndarray]:
    """Return the draws (chains, draws) of each stored quantity."""
    found: dict[str, np.ndarray] = {}
    values = dict(zip(POSTERIORS[name].names.split(), post.value, strict=True))
    for title in REFERENCE[name]:
        plain, _, index = title.rstrip("]").partition("[")
        found[title] = values[plain][..., int(index) - 1] if index else values[plain]
    return found


def compare(name: str, post: Any) -> list[tuple[str, float, float, float]]:
    """Return (quantity, errors of the mean, errors of the deviation, effective draws).

    An error is the difference from what is stored over the Monte Carlo standard error of both
    sides; that of a deviation by the fourth moment.
    """
    rows: list[tuple[str, float, float, float]] = []
    for title, draws in quantities(name, post).items():
        mean, deviation, size = REFERENCE[name][title]
        centred_draws = draws - draws.mean()
        of_mean, of_square = float(ess(draws)), float(ess(centred_draws**2))
        error = deviation * math.sqrt(1 / of_mean + 1 / size)
        kurtosis = float((centred_draws**4).mean() / (centred_draws**2).mean() ** 2)
        spread = deviation * math.sqrt((kurtosis - 1) / 4 * (1 / of_square + 1 / size))
        rows.append(
            (
                title,
                abs(float(draws.mean()) - mean) / error,
                abs(float(draws.std()) - deviation) / spread,
                min(of_mean, of_square),
            )
        )
    return rows
