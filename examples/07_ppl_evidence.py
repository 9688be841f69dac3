"""Two models of the same counts, compared by their evidence: tempering moves between modes.

Run: python examples/07_ppl_evidence.py (needs the extra: pip install 'tawa[ppl]')
"""

import numpy as np

from tawa import ppl


@ppl.model
def one_rate(counts):
    rate = ppl.sample(ppl.Exponential(0.2))
    ppl.map(lambda n: ppl.observe(ppl.Poisson(rate), n), counts)
    return rate


@ppl.model
def one_change(counts):
    """The rate changes at a day that is not known."""
    day = ppl.sample(ppl.DiscreteUniform(1, len(counts) - 1))
    before = ppl.sample(ppl.Exponential(0.2))
    after = ppl.sample(ppl.Exponential(0.2))
    for k, n in enumerate(counts):
        ppl.observe(ppl.Poisson(before if k < day else after), n)
    return day


def main() -> None:
    counts = np.array([2, 3, 1, 2, 4, 2, 8, 9, 7, 11, 8, 9])
    options = {"method": "tempered", "particles": 2000, "steps": 5, "seed": 1}
    plain = ppl.infer(one_rate, counts, **options)
    changed = ppl.infer(one_change, counts, **options)
    ratio = changed.log_evidence - plain.log_evidence
    print("log of how much more likely a change is:", round(ratio, 2))
    print("day of the change:", np.bincount(changed.value.ravel()).argmax())


if __name__ == "__main__":
    main()
