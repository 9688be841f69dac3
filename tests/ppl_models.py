"""Models of the tests, from their mathematics."""

from __future__ import annotations

import numpy as np

from tawa import ppl

Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SERIES = np.array([0.3, 1.2, -0.5, 0.7, 2.0, 1.1, -0.3, 0.4])
EMISSIONS = np.array([0, 1, 1, 2, 0, 2, 2, 1])
TRANSITION = np.array([[0.7, 0.3], [0.2, 0.8]])
EMISSION = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])


@ppl.model
def schools(y, sigma):
    mu = ppl.sample(ppl.Normal(0.0, 5.0))
    tau = ppl.sample(ppl.HalfCauchy(5.0))
    theta = ppl.map(lambda s: ppl.sample(ppl.Normal(mu, tau), centered=False), sigma)
    ppl.map(lambda t, s, v: ppl.observe(ppl.Normal(t, s), v), theta, sigma, y)
    return mu, tau, theta


@ppl.model
def birth_death(time, rate, extinct):
    wait = ppl.sample(ppl.Exponential(rate + extinct))
    if wait > time:
        return 1
    if ppl.sample(ppl.Bernoulli(extinct / (rate + extinct))):
        return 0
    return birth_death(time - wait, rate, extinct) + birth_death(time - wait, rate, extinct)


@ppl.model
def kalman(ys):
    x = ppl.sample(ppl.Normal(0.0, 1.0))
    for y in ys:
        x = ppl.sample(ppl.Normal(0.9 * x, 0.5))
        ppl.observe(ppl.Normal(x, 1.0), y)
    return x


@ppl.model
def hmm(ys, transition, emission):
    state = ppl.sample(ppl.Categorical([0.5, 0.5]))
    for y in ys:
        state = ppl.sample(ppl.Categorical(transition[state]))
        ppl.observe(ppl.Categorical(emission[state]), y)
    return state


@ppl.model
def mixture(ys):
    weight = ppl.sample(ppl.Beta(2.0, 2.0))
    low = ppl.sample(ppl.Normal(-1.0, 1.0))
    gap = ppl.sample(ppl.LogNormal(0.0, 0.5))

    def density(y, at):
        return ppl.exp(-0.5 * (y - at) ** 2)

    for y in ys:
        ppl.factor(ppl.log(weight * density(y, low) + (1.0 - weight) * density(y, low + gap)))
    return low, gap


@ppl.model
def line(x, y):
    slope = ppl.sample(ppl.Normal(0.0, 2.0))
    cut = ppl.sample(ppl.StudentT(4.0, 0.0, 2.0))
    noise = ppl.sample(ppl.Gamma(2.0, 2.0))
    mean = cut + slope * x
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(m, noise), v), mean, y)
    return slope


@ppl.model
def garch(ys):
    a = ppl.sample(ppl.Uniform(0.0, 1.0))
    b = ppl.sample(ppl.Uniform(0.0, 1.0 - a))
    sigma = 1.0
    before = 0.0
    for y in ys:
        sigma = ppl.sqrt(0.2 + a * before * before + b * sigma * sigma)
        ppl.observe(ppl.Normal(0.0, sigma), y)
        before = y
    return sigma


@ppl.model
def process(x, y):
    length = ppl.sample(ppl.InverseGamma(5.0, 5.0))
    scale = ppl.sample(ppl.HalfNormal(1.0))

    def kernel(a, b):
        return scale * scale * ppl.exp(-0.5 * ((a - b) / length) ** 2)

    rows = [[kernel(a, b) for b in x] for a in x]
    n = len(x)
    noisy = [[rows[i, j] + (0.1 if i == j else 0.0) for j in range(n)] for i in range(n)]
    zero = ppl.map(lambda a: 0.0 * a, x)
    ppl.observe(ppl.MultivariateNormal(zero, scale_tril=ppl.cholesky(noisy)), y)
    return length


@ppl.model
def shares(counts):
    p = ppl.sample(ppl.Dirichlet([1.0, 2.0, 3.0]))
    ppl.map(lambda k: ppl.observe(ppl.Categorical(p), k), counts)
    return p


@ppl.model
def branches(y):
    x = ppl.sample(ppl.Normal(0.0, 1.0))
    scale = ppl.sample(ppl.Weibull(2.0, 1.0))
    if x > 0.3:
        place = ppl.lgamma(1.0 + x) + ppl.erf(x)
    else:
        place = abs(x) * ppl.log1p(x * x)
    ppl.observe(ppl.Logistic(place, scale), y)
    return place
