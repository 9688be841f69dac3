"""A regression: draws, the log likelihood of each observation, predictions at other data.

Run: python examples/07_ppl_predict.py (needs the extra: pip install 'tawa[ppl]')
"""

import numpy as np

from tawa import ppl


@ppl.model
def line(x, y):
    slope = ppl.sample(ppl.Normal(0.0, 5.0))
    start = ppl.sample(ppl.Normal(0.0, 5.0))
    spread = ppl.sample(ppl.HalfNormal(1.0))
    for a, b in zip(x, y):
        ppl.observe(ppl.Normal(start + slope * a, spread), b, name="y")
    return slope


def main() -> None:
    rng = np.random.default_rng(1)
    x = np.linspace(-1.0, 1.0, 20)
    y = 2.0 * x + 0.5 + 0.3 * rng.standard_normal(20)
    post = ppl.infer(line, x, y, method="nuts", metric="dense", chains=4, draws=500, seed=1)
    print(post.summary())
    unlikely = int(np.argmin(post.log_likelihood["y"].mean((0, 1))))
    print("the least likely observation:", unlikely)
    later = np.array([2.0, 3.0])
    drawn = ppl.predict(line, post, later, np.zeros(2), seed=2)["y"]
    print("predicted:", drawn.mean((0, 1)), "+-", drawn.std((0, 1)))


if __name__ == "__main__":
    main()
