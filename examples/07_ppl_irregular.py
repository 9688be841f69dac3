"""Programs whose structure is random: a birth-death tree by recursion, a filter by SMC.

Run: python examples/07_ppl_irregular.py (needs the extra: pip install 'tawa[ppl]')
"""

import numpy as np

from tawa import ppl


@ppl.model
def birth_death(time, rate, extinct):
    wait = ppl.sample(ppl.Exponential(rate + extinct))
    if wait > time:
        return 1
    if ppl.sample(ppl.Bernoulli(extinct / (rate + extinct))):
        return 0
    return birth_death(time - wait, rate, extinct) + birth_death(time - wait, rate, extinct)


@ppl.model
def weather(counts, change, rates):
    state = ppl.sample(ppl.Categorical([0.5, 0.5]))
    for count in counts:
        state = ppl.sample(ppl.Categorical(change[state]))
        ppl.observe(ppl.Poisson(rates[state]), count)
    return state


def main() -> None:
    post = ppl.infer(
        birth_death, 2.0, 0.6, 0.3, method="importance", draws=200_000, seed=1, stack=1000
    )
    print("mean number alive:", post.value.mean(), " expected:", np.exp(0.6))
    counts = np.array([1, 0, 2, 5, 6, 4, 7])
    change, rates = np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([1.0, 5.0])
    found = ppl.infer(weather, counts, change, rates, method="smc", particles=100_000, seed=1)
    print("P(last state is 1):", found.value.mean(), " log evidence:", found.log_evidence)


if __name__ == "__main__":
    main()
