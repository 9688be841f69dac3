"""Eight schools with tawa.ppl: NUTS, one chain a lane, on the CPU (or device="cuda").

Run: python examples/07_ppl_schools.py (needs the extra: pip install 'tawa[ppl]')
"""

import numpy as np

from tawa import ppl


@ppl.model
def schools(y, sigma):
    mu = ppl.sample(ppl.Normal(0.0, 5.0))
    tau = ppl.sample(ppl.HalfCauchy(5.0))
    theta = ppl.map(lambda s: ppl.sample(ppl.Normal(mu, tau), centered=False), sigma)
    ppl.map(lambda t, s, v: ppl.observe(ppl.Normal(t, s), v), theta, sigma, y)
    return mu, tau, theta


def main() -> None:
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    post = ppl.infer(schools, y, sigma, method="nuts", chains=32, draws=1000, seed=1)
    print(post.summary())
    print("divergent:", post.divergences, " largest rhat:", round(post.rhat(), 4))
    with ppl.inspect(schools, y, sigma) as model:
        print(model.ir)
        print("gradient at 0:", model.gradient(np.zeros(model.size)).round(3))


if __name__ == "__main__":
    main()
