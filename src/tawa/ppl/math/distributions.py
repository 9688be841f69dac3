# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# (lambdas of the subset: what a parameter is, the model's compiler infers)
"""The distributions of numbers: draws and log densities in the subset, from their definitions.

Outside of its support a density is 0: its logarithm is minus infinity.

Length: all distributions; a draw and a density each.
"""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.family import Distribution, Parameter
from tawa.ppl.frontend.surface import written
from tawa.ppl.frontend.words import (
    cast,
    costurn,
    exp,
    floor,
    is_double,
    lgamma,
    log,
    log1p,
    random,
    select,
    sinturn,
    sqrt,
    word,
)
from tawa.ppl.frontend.words import map as each
from tawa.ppl.math import supports as on
from tawa.ppl.math.supports import log1pexp

INF = float("inf")
HALF_LOG_TWO_PI = 0.9189385332046728
LOG_PI = 1.1447298858494002
LOG_TWO = 0.6931471805599453


def unit(high: Any, low: Any) -> Any:
    """Return a number inside of (0, 1) of two random words: 23 bits and a half, or 53."""
    if is_double(1.0):
        top, rest = cast(word("lshr", high, 5), "f64"), cast(word("lshr", low, 6), "f64")
        return (top * 67108864.0 + rest + 0.5) * 1.1102230246251565e-16
    return (cast(word("lshr", high, 9), "f32") + 0.5) * 1.1920928955078125e-07


@written
def uniform() -> Any:
    """Return a number inside of (0, 1)."""
    words = random()
    return unit(words[0], words[1])


def normal_pair() -> Any:
    """Return two independent standard normal numbers (Box and Muller)."""
    words = random()
    radius = sqrt(-2.0 * log(unit(words[0], words[1])))
    turn = unit(words[2], words[3])
    return radius * costurn(turn), radius * sinturn(turn)


def standard_normal() -> Any:
    """Return a standard normal number."""
    return normal_pair()[0]


def standard_gamma(shape: Any) -> Any:
    """Return a gamma number of scale 1 (Marsaglia and Tsang)."""
    boost = select(shape < 1.0, 1.0, 0.0)
    d = shape + boost - 0.3333333333333333
    c = 1.0 / sqrt(9.0 * d)
    v = 0.0 * d
    going = True
    while going:
        x = standard_normal()
        t = 1.0 + c * x
        v = t * t * t
        u = log(uniform())
        accepted = select(
            t > 0.0, u < 0.5 * x * x + d - d * v + d * log(select(t > 0.0, v, 1.0)), False
        )
        going = not accepted
    power = select(boost == 1.0, log(uniform()) / shape, 0.0)
    return d * v * exp(power)


def draw_beta(a: Any, b: Any) -> Any:
    """Return a beta number from two gamma numbers."""
    x = standard_gamma(a)
    y = standard_gamma(b)
    return x / (x + y)


def log_beta(a: Any, b: Any) -> Any:
    """Return the logarithm of the beta function."""
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def xlogy(x: Any, y: Any) -> Any:
    """x log(y), which is 0 where x is."""
    return select(x == 0.0, 0.0, x * log(select(x == 0.0, 1.0, y)))


@written
def logsumexp(values: Any) -> Any:
    """Return the logarithm of the sum of the exponentials of a vector: what a mixture's is."""
    top = max(values)
    finite = select(abs(top) < INF, top, 0.0)
    return finite + log(sum(each(lambda value: exp(value - finite), values)))


def when(condition: Any, value: Any) -> Any:
    """A log density inside of its support."""
    return select(condition, value, -INF)


def _cauchy() -> Any:
    u = 0.5 * (uniform() - 0.5)
    # tan of an angle between -1/4 and 1/4 of a turn.
    return sinturn(2.0 * u) / costurn(2.0 * u)


def _laplace() -> Any:
    u = uniform()
    size = -log(uniform())
    return select(u < 0.5, -size, size)


def _logit() -> Any:
    u = uniform()
    return log(u) - log1p(-u)


def _student(df: Any) -> Any:
    return standard_normal() * sqrt(0.5 * df / standard_gamma(0.5 * df))


# Log densities of location 0 and scale 1.


def at_normal(u: Any) -> Any:
    """Return the log density of a standard normal number."""
    return -0.5 * u * u - HALF_LOG_TWO_PI


def _at_student(u: Any, df: Any) -> Any:
    constant = lgamma(0.5 * (df + 1.0)) - lgamma(0.5 * df) - 0.5 * (log(df) + LOG_PI)
    return constant - 0.5 * (df + 1.0) * log1p(u * u / df)


def _gamma(x: Any, shape: Any, rate: Any) -> Any:
    return shape * log(rate) + (shape - 1.0) * log(x) - rate * x - lgamma(shape)


def _lognormal(x: Any, loc: Any, scale: Any) -> Any:
    y = log(x)
    return at_normal((y - loc) / scale) - log(scale) - y


def _weibull(x: Any, shape: Any, scale: Any) -> Any:
    y = log(x) - log(scale)
    return log(shape) - log(scale) + (shape - 1.0) * y - exp(shape * y)


def _beta(x: Any, a: Any, b: Any) -> Any:
    inside = (x > 0.0) & (x < 1.0)
    y = select(inside, x, 0.5)
    return when(inside, (a - 1.0) * log(y) + (b - 1.0) * log1p(-y) - log_beta(a, b))


def _pareto(x: Any, scale: Any, shape: Any) -> Any:
    inside = x >= scale
    y = log(select(inside, x, scale))
    return when(inside, log(shape) + shape * log(scale) - (shape + 1.0) * y)


def choose(n: Any, k: Any) -> Any:
    """Return the logarithm of the binomial coefficient."""
    return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)


def _binomial(k: Any, n: Any, probability: Any) -> Any:
    inside = (k >= 0) & (k <= n)
    x, total = float(select(inside, k, 0)), float(n)
    rest = xlogy(x, probability) + xlogy(total - x, 1.0 - probability)
    return when(inside, choose(total, x) + rest)


def draw_binomial(n: Any, probability: Any) -> Any:
    """Count successes: an expected count above 32, of either kind, is split (Devroye, X.4.3).

    What is left goes up the distribution function from 0, of the kind that is rarer.
    """
    p = 1.0 * probability
    k = 0 * n
    while float(n) * min(p, 1.0 - p) > 32.0:
        a = 1 + n // 2
        b = n + 1 - a
        x = draw_beta(float(a), float(b))
        low = x >= p
        p = select(low, p / x, (p - x) / (1.0 - x))
        k = select(low, k, k + a)
        n = select(low, a - 1, b - 1)
    rare = min(p, 1.0 - p)
    odds = rare / (1.0 - rare)
    chance = exp(float(n) * log1p(-rare))
    mark = uniform()
    i = 0 * n
    # Beyond the mean a chance that takes nothing off the mark is the last.
    while mark >= chance and (float(i) < float(n) * rare or mark - chance < mark):
        mark = mark - chance
        chance = chance * odds * float(n - i) / float(i + 1)
        i = i + 1
    return k + select(p > 0.5, n - i, i)


def _poisson(k: Any, rate: Any) -> Any:
    x = float(select(k >= 0, k, 0))
    return when(k >= 0, xlogy(x, rate) - rate - lgamma(x + 1.0))


def draw_poisson(rate: Any) -> Any:
    """Count arrivals; a large rate is split at a gamma order statistic (Ahrens and Dieter).

    What is left goes up the distribution function from 0. Counts have 32 bits: a rate above 2e9 is
    drawn as that.
    """
    left = min(1.0 * rate, 2e9)
    k = 0
    going = left > 32.0
    while going:
        m = int(0.875 * left)
        x = standard_gamma(float(m))
        if x > left:
            k = k + draw_binomial(m - 1, left / x)
            left = 0.0
        else:
            k = k + m
            left = left - x
        going = left > 32.0
    chance = exp(-left)
    mark = uniform()
    i = 0.0
    while mark >= chance and (i < left or mark - chance < mark):  # as in `draw_binomial`
        mark = mark - chance
        i = i + 1.0
        chance = chance * left / i
    return k + int(i)


def _negative_binomial(k: Any, total: Any, probability: Any) -> Any:
    x = float(select(k >= 0, k, 0))
    constant = lgamma(x + total) - lgamma(x + 1.0) - lgamma(total)
    return when(k >= 0, constant + total * log(probability) + xlogy(x, 1.0 - probability))


def _geometric(k: Any, probability: Any) -> Any:
    x = float(select(k >= 0, k, 0))
    return when(k >= 0, xlogy(x, 1.0 - probability) + log(probability))


def _draw_geometric(probability: Any) -> Any:
    return int(select(probability >= 1.0, 0.0, floor(log(uniform()) / log1p(-probability))))


def _categorical(k: Any, weights: Any) -> Any:
    inside = (k >= 0) & (k < len(weights))
    return when(inside, log(weights[select(inside, k, 0)]) - log(sum(weights)))


def _draw_categorical(weights: Any) -> Any:
    mark = uniform() * sum(weights)
    k = 0
    passed = 0.0
    # Rounding may leave the mark beyond the last sum: the last item of positive weight stands.
    for i in range(len(weights)):
        before = passed
        passed = passed + weights[i]
        k = select((weights[i] > 0.0) & (before <= mark), i, k)
    return k


def _categorical_logits(k: Any, logits: Any) -> Any:
    top = max(logits)
    total = sum(each(lambda x: exp(x - top), logits))
    inside = (k >= 0) & (k < len(logits))
    return when(inside, logits[select(inside, k, 0)] - top - log(total))


def _draw_categorical_logits(logits: Any) -> Any:
    top = max(logits)
    return _draw_categorical(each(lambda x: exp(x - top), logits))


def _draw_discrete_uniform(low: Any, high: Any) -> Any:
    count = high - low + 1
    return low + min(int(floor(uniform() * float(count))), count - 1)


def parameters(text: str) -> tuple[Parameter, ...]:
    """Return parameters of a text: names, what they take, and defaults: `loc:=0 total:int`."""
    made: list[Parameter] = []
    for item in text.split():
        name, _, rest = item.partition(":")
        takes, _, default = rest.partition("=")
        given = float(default) if default else None
        made.append(Parameter(name, takes or "real", given))  # type: ignore[arg-type]
    return tuple(made)


_LS = parameters("loc:=0 scale:=1")


def _location_scale(name: str, standard: Any, at: Any) -> Distribution:
    def draw(loc: Any, scale: Any) -> Any:
        return loc + scale * standard()

    def density(x: Any, loc: Any, scale: Any) -> Any:
        return at((x - loc) / scale) - log(scale)

    return Distribution(name, _LS, "real", on.REAL, draw, density, shift_scale=(0, 1))


def _half(name: str, standard: Any, at: Any) -> Distribution:
    def draw(scale: Any) -> Any:
        return scale * abs(standard())

    def density(x: Any, scale: Any) -> Any:
        return when(x >= 0.0, at(x / scale) - log(scale) + LOG_TWO)

    return _scaled(name, "scale:=1", draw, density)


def _scaled(
    name: str, text: str, draw: Any, density: Any, support: Any = on.POSITIVE
) -> Distribution:
    return Distribution(name, parameters(text), "real", support, draw, density)


def _whole(name: str, text: str, draw: Any, density: Any) -> Distribution:
    return Distribution(name, parameters(text), "int", on.WHOLE, draw, density)


def _positive(name: str, text: str, draw: Any, at: Any) -> Distribution:
    def density(x: Any, a: Any, b: Any) -> Any:
        inside = x > 0.0
        return when(inside, at(select(inside, x, 1.0), a, b))

    return _scaled(name, text, draw, density)


def _boolean(name: str, text: str, draw: Any, density: Any) -> Distribution:
    return Distribution(name, parameters(text), "bool", on.WHOLE, draw, density)


Normal = _location_scale("Normal", standard_normal, at_normal)
Cauchy = _location_scale("Cauchy", _cauchy, lambda u: -LOG_PI - log1p(u * u))
Laplace = _location_scale("Laplace", _laplace, lambda u: -abs(u) - LOG_TWO)
Logistic = _location_scale("Logistic", _logit, lambda u: -u - 2.0 * log1pexp(-u))
Gumbel = _location_scale("Gumbel", lambda: -log(-log(uniform())), lambda u: -u - exp(-u))
StudentT = Distribution(
    "StudentT",
    parameters("df loc:=0 scale:=1"),
    "real",
    on.REAL,
    lambda df, loc, scale: loc + scale * _student(df),
    lambda x, df, loc, scale: _at_student((x - loc) / scale, df) - log(scale),
    shift_scale=(1, 2),
)
HalfNormal = _half("HalfNormal", standard_normal, at_normal)
HalfCauchy = _half("HalfCauchy", _cauchy, lambda u: -LOG_PI - log1p(u * u))
HalfStudentT = _scaled(
    "HalfStudentT",
    "df scale:=1",
    lambda df, scale: scale * abs(_student(df)),
    lambda x, df, scale: when(x >= 0.0, _at_student(x / scale, df) - log(scale) + LOG_TWO),
)
LogNormal = _positive(
    *("LogNormal", "loc:=0 scale:=1"),
    lambda loc, scale: exp(loc + scale * standard_normal()),
    _lognormal,
)
Exponential = _scaled(
    *("Exponential", "rate:=1"),
    lambda rate: -log(uniform()) / rate,
    lambda x, rate: when(x >= 0.0, log(rate) - rate * x),
)
Gamma = _positive(
    "Gamma", "shape rate:=1", lambda shape, rate: standard_gamma(shape) / rate, _gamma
)
InverseGamma = _positive(
    *("InverseGamma", "shape scale:=1"),
    lambda shape, scale: scale / standard_gamma(shape),
    lambda x, shape, scale: shape * log(scale) - (shape + 1.0) * log(x) - scale / x - lgamma(shape),
)
ChiSquared = _scaled(
    *("ChiSquared", "df"),
    lambda df: 2.0 * standard_gamma(0.5 * df),
    lambda x, df: when(x > 0.0, _gamma(select(x > 0.0, x, 1.0), 0.5 * df, 0.5)),
)
Weibull = _positive(
    *("Weibull", "shape scale:=1"),
    lambda shape, scale: scale * exp(log(-log(uniform())) / shape),
    _weibull,
)
Pareto = _scaled(
    *("Pareto", "scale shape"),
    lambda scale, shape: scale * exp(-log(uniform()) / shape),
    _pareto,
    on.ABOVE,
)
Beta = _scaled("Beta", "a b", draw_beta, _beta, on.UNIT)
Uniform = _scaled(
    *("Uniform", "low:=0 high:=1"),
    lambda low, high: low + (high - low) * uniform(),
    lambda x, low, high: when((x >= low) & (x <= high), -log(high - low)),
    on.INTERVAL,
)
# An improper prior has no draws; where a search begins is any point.
Flat = _scaled("Flat", "", lambda: 4.0 * uniform() - 2.0, lambda x: 0.0, on.REAL)
HalfFlat = _scaled("HalfFlat", "", lambda: exp(4.0 * uniform() - 2.0), lambda x: 0.0)
Bernoulli = _boolean(
    *("Bernoulli", "probability"),
    lambda probability: uniform() < probability,
    lambda x, probability: log(select(x, probability, 1.0 - probability)),
)
BernoulliLogit = _boolean(
    *("BernoulliLogit", "logit"),
    lambda logit: _logit() < logit,
    lambda x, logit: -log1pexp(select(x, -logit, logit)),
)
Binomial = _whole("Binomial", "total:int probability", draw_binomial, _binomial)
Poisson = _whole("Poisson", "rate", draw_poisson, _poisson)
Geometric = _whole("Geometric", "probability", _draw_geometric, _geometric)
NegativeBinomial = _whole(
    *("NegativeBinomial", "total probability"),
    lambda total, p: draw_poisson(standard_gamma(total) * (1.0 - p) / p),
    _negative_binomial,
)
Categorical = _whole("Categorical", "weights:vector", _draw_categorical, _categorical)
CategoricalLogits = _whole(
    *("CategoricalLogits", "logits:vector"),
    _draw_categorical_logits,
    _categorical_logits,
)
DiscreteUniform = _whole(
    *("DiscreteUniform", "low:int high:int"),
    _draw_discrete_uniform,
    lambda k, low, high: when((k >= low) & (k <= high), -log(float(high - low + 1))),
)
