"""A position seen through noise: a particle filter, and a chain over what the filter needs to know.

Run: python examples/07_ppl_tracking.py (needs the extra: pip install 'tawa[ppl]')
"""

import numpy as np

from tawa import ppl


@ppl.model
def track(ys, noise):
    def moved(x):
        return 0.9 * x + ppl.sample(ppl.Normal(0.0, 1.0))  # in a function: no draw is kept

    x = 0.0
    for y in ys:
        x = moved(x)
        ppl.observe(ppl.Normal(x, noise), y)
    return x


@ppl.model
def track_of_unknown_noise(ys):
    noise = ppl.sample(ppl.HalfNormal(1.0))
    x = 0.0
    for y in ys:
        x = ppl.sample(ppl.Normal(0.9 * x, 1.0))
        ppl.observe(ppl.Normal(x, noise), y)
    return noise


def main() -> None:
    rng = np.random.default_rng(1)
    x, ys = 0.0, []
    for _ in range(20):
        x = 0.9 * x + rng.standard_normal()
        ys.append(x + 0.5 * rng.standard_normal())
    seen = np.array(ys)
    found = ppl.infer(track, seen, 0.5, method="smc", particles=20_000, seed=1)
    print("position:", x, " found:", found.value.mean(), "+-", found.value.std())
    options = {"parameters": ("noise",), "chains": 2, "particles": 100, "seed": 1}
    post = ppl.infer(track_of_unknown_noise, seen, method="pmmh", draws=100, warmup=50, **options)
    print("noise: 0.5  found:", post["noise"].mean(), "+-", post["noise"].std())


if __name__ == "__main__":
    main()
