"""Programs that universal languages are shown with, and the log evidence of those that have one."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

import ppl_models as models
from tawa import ppl

FLIPS = np.arange(100) % 10 < 7
WORDS = np.array([[0, 0, 1, 0], [2, 3, 3, 2], [0, 1, 2, 2]])
SEQUENCE = np.resize(models.EMISSIONS, 20)
CASES = np.array([0, 1, 0, 2, 1, 3, 2, 4, 6, 5, 7, 6, 8, 6, 5, 5, 3, 3, 2, 1])


@ppl.model
def coin(flips):
    bias = ppl.sample(ppl.Beta(1.0, 1.0))
    ppl.map(lambda flip: ppl.observe(ppl.Bernoulli(bias), flip), flips)
    return bias


@ppl.model
def sprinkler():
    rain = ppl.sample(ppl.Bernoulli(0.2))
    sprinkled = ppl.sample(ppl.Bernoulli(ppl.select(rain, 0.01, 0.4)))
    dry = ppl.select(rain, 0.2, 1.0) * ppl.select(sprinkled, 0.1, 1.0)
    ppl.observe(ppl.Bernoulli(1.0 - dry), True)
    return rain


def failures(p):
    if ppl.sample(ppl.Bernoulli(p)):
        return 0
    return 1 + failures(p)


@ppl.model
def geometric(seen):
    """A count by recursion, and a noisy look at it."""
    count = failures(0.5)
    ppl.observe(ppl.Normal(count, 1.0), seen)
    return count


@ppl.model
def topics(words):
    """Latent Dirichlet allocation: two topics, four words, documents in rows."""
    topic = ppl.repeat(2, lambda: ppl.sample(ppl.Dirichlet([0.5, 0.5, 0.5, 0.5])))
    for document in words:
        share = ppl.sample(ppl.Dirichlet([0.7, 0.7]))
        for word in document:
            z = ppl.sample(ppl.Categorical(share))
            ppl.observe(ppl.Categorical(topic[z]), word)
    return topic[0]


@ppl.model
def survivors(time, rate, extinct, seen):
    """A birth-death process, and a noisy look at how many are left."""
    count = models.birth_death(time, rate, extinct)
    ppl.observe(ppl.Normal(count, 1.0), seen)
    return count


@ppl.model
def vector_borne(cases):
    """People susceptible, exposed, infectious; mosquitoes likewise, born as they die; reports."""
    bite = ppl.sample(ppl.Beta(2.0, 4.0))
    report = ppl.sample(ppl.Beta(8.0, 2.0))
    s, e, i = 97, 2, 1
    ms, me, mi = 190, 5, 5
    for seen in cases:
        exposed = ppl.sample(ppl.Binomial(s, 1.0 - ppl.exp(-bite * mi / 200.0)))
        ill = ppl.sample(ppl.Binomial(e, 0.25))
        well = ppl.sample(ppl.Binomial(i, 0.2))
        bitten = ppl.sample(ppl.Binomial(ms, 1.0 - ppl.exp(-bite * i / 100.0)))
        grown = ppl.sample(ppl.Binomial(me, 0.15))
        dead = ppl.sample(ppl.Binomial(me + mi - grown, 0.1))
        s, e, i = s - exposed, e + exposed - ill, i + ill - well
        gone = min(dead, mi)
        ms, me, mi = ms - bitten + gone, me + bitten - grown, mi + grown - gone
        ppl.observe(ppl.Poisson(report * float(ill) + 0.1), seen)
    return bite


PROGRAMS = {
    "coin": (coin, (FLIPS,)),
    "sprinkler": (sprinkler, ()),
    "geometric": (geometric, (3.0,)),
    "hmm": (models.hmm, (SEQUENCE, models.TRANSITION, models.EMISSION)),
    "topics": (topics, (WORDS,)),
    "survivors": (survivors, (2.0, 0.6, 0.3, 3.0)),
    "vector_borne": (vector_borne, (CASES,)),
}
"""Models and their arguments by name."""


def _log_mean(terms):
    return math.log(sum(terms))


def _normal(x):
    return math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _dirichlet_multinomial(counts, concentration):
    total = concentration * len(counts)
    log = math.lgamma(total) - math.lgamma(total + sum(counts))
    return log + sum(math.lgamma(concentration + n) - math.lgamma(concentration) for n in counts)


def _evidence_of_topics():
    """Sum over the topics of all words; what is left are Dirichlet-multinomials."""
    words = WORDS.ravel()
    total = 0.0
    for zs in product((0, 1), repeat=len(words)):
        z = np.array(zs)
        log = 0.0
        for row in z.reshape(WORDS.shape):
            log += _dirichlet_multinomial(np.bincount(row, minlength=2), 0.7)
        for k in (0, 1):
            log += _dirichlet_multinomial(np.bincount(words[z == k], minlength=4), 0.5)
        total += math.exp(log)
    return math.log(total)


def _evidence_of_survivors():
    """Kendall 1948: none with probability a, else geometric of ratio b."""
    time, birth, death, seen = PROGRAMS["survivors"][1]
    grown = math.exp((birth - death) * time)
    a, b = (r * (grown - 1) / (birth * grown - death) for r in (death, birth))
    chances = [a, *((1 - a) * (1 - b) * b ** (n - 1) for n in range(1, 200))]
    return _log_mean(p * _normal(n - seen) for n, p in enumerate(chances))


def _evidence_of_hmm():
    state, log = np.array([0.5, 0.5]), 0.0
    for y in SEQUENCE:
        state = (state @ models.TRANSITION) * models.EMISSION[:, y]
        log += math.log(state.sum())
        state = state / state.sum()
    return log


def evidence(name: str) -> float:
    """Return the log evidence of a program but vector_borne, which has no closed form."""
    heads = int(FLIPS.sum())
    match name:
        case "coin":
            tails = len(FLIPS) - heads
            return math.lgamma(heads + 1) + math.lgamma(tails + 1) - math.lgamma(len(FLIPS) + 2)
        case "sprinkler":
            return math.log(0.2 * (1 - 0.2 * (0.01 * 0.1 + 0.99)) + 0.8 * 0.4 * 0.9)
        case "geometric":
            return _log_mean(0.5 ** (n + 1) * _normal(n - 3.0) for n in range(60))
        case "hmm":
            return _evidence_of_hmm()
        case "topics":
            return _evidence_of_topics()
        case _:
            return _evidence_of_survivors()
