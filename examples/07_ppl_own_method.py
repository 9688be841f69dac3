"""A method of one's own: rejection sampling that gives up a run at its first unlikely observation.

Run: python examples/07_ppl_own_method.py (needs the extra: pip install 'tawa[ppl]')
"""

import numpy as np

from tawa import ppl


def rejection(lane):
    """Run the model until all its observations are accepted, each with its probability.

    Right where no observation has a density above 1, as of counts and of booleans. `start` begins
    a run, `resume` goes on to behind the next observation: what is given up there is not run on.
    """
    going = True
    while going:
        ppl.start(lane)
        alive = True
        while alive and lane.kind != ppl.DONE:
            before = lane.logw
            ppl.resume()
            alive = ppl.log(ppl.uniform()) < lane.logw - before
        going = not alive


@ppl.model
def coin(flips):
    bias = ppl.sample(ppl.Beta(1.0, 1.0))
    ppl.map(lambda flip: ppl.observe(ppl.Bernoulli(bias), flip), flips)
    return bias


def main() -> None:
    flips = np.array([True, True, False, True, True, False, True, True])
    post = ppl.infer(coin, flips, method=rejection, draws=20_000, seed=1)
    print(f"bias {post.value.mean():.3f}, exactly {7 / 10:.3f}")


if __name__ == "__main__":
    main()
