"""Errors of the systems on the compiler: `tawa.ppl` and `tawa.axon`."""

from __future__ import annotations

from tawa.errors.base import TawaError


class ModelError(TawaError):
    """A probabilistic model uses what its language does not have, or uses it wrongly.

    Why: The source of a model is compiled to a program of one chain or particle, on CPU and GPU.

    Remedy: Write what the message proposes; compute other things outside and pass them in.

    Example::

        from tawa import ppl
        ppl.factor(1.0)

    Message::

        ppl.factor was called outside of a model
          why: a model's source is compiled, not run: its words have a meaning only there
          do:  call it in a function under @ppl.model, and run that with ppl.infer
    """


class GradientError(TawaError):
    """A model has a site that hmc and nuts, which move along a gradient, cannot move.

    Why: Every site must take real values, and which sites there are must not depend on a sample.

    Remedy: Use method="mh" or "smc", or sum over the values of a discrete site: a mixture of two is
    `ppl.factor(ppl.logsumexp([ppl.log(w) + ppl.log_prob(ppl.Normal(a, s), y), ppl.log1p(-w) +
    ppl.log_prob(ppl.Normal(b, s), y)]))`.

    Example::

        from tawa import ppl
        @ppl.model
        def switch():
            left = ppl.sample(ppl.Bernoulli(0.5))
        ppl.infer(switch, method="nuts")

    Message::

        left is discrete: Bernoulli has no gradient
          at kernel.py:7
                left = ppl.sample(ppl.Bernoulli(0.5))
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          why: nuts moves along a gradient of the log density
          do:  use method="mh" or "smc", or sum over its values: ppl.factor(ppl.logsumexp([...]))
    """


class StackError(TawaError):
    """A lane's memory for calls that are not finished, for its lists or its trace, is too small.

    Why: Each chain or particle is a thread with a stack of a size that is fixed before the run.

    Remedy: Pass a larger `stack=` (in words) or `trace=`, or write a model that recurs less deeply.

    Example::

        from tawa import ppl
        @ppl.model
        def deep(n): return 0 if n == 0 else deep(n - 1) + 1
        ppl.infer(deep, 100, method="importance", draws=10)

    Message::

        deep: the stack of 64 words ran out at depth 64 in 10 of 10 lanes
          why: each call that is not finished keeps its values on the stack of its lane
          do:  pass stack=256 or more to ppl.infer, or recur less deeply
    """


class WeightError(TawaError):
    """All particles have weight zero: no run of the model explains the data.

    Why: A weight is the product of the densities of what was observed.

    Remedy: Check the supports and units of the observations, or take more particles.

    Example::

        from tawa import ppl
        @ppl.model
        def impossible(y):
            ppl.observe(ppl.Uniform(0.0, 1.0), y)
        ppl.infer(impossible, 2.0, method="importance", draws=100)

    Message::

        all 100 weights are zero
          do:  check the observations' supports and units, or take more particles
    """


class AxonError(TawaError):
    """A program of `tawa.axon` has shapes, types or sizes that cannot fit, or breaks its grammar.

    Why: Shapes and ranks are inferred from the structure of a program. The message shows two
    places that contradict one another: the operation, and where the other size comes from. A
    function that promises all sizes (`forall`) may not need a condition on them.

    Remedy: Change one of the two places; or write the condition after `requires`.

    Example::

        from tawa import axon

        program = "fun f (x : f32[n, 3]) w = relu (linear x (w : f32[4, m]))"
        axon.check(program, "net.axon")

    Message::

        net.axon:1:33: error: the shapes of `linear` differ on axis 0
           1 | fun f (x : f32[n, 3]) w = relu (linear x (w : f32[4, m]))
             |                                           ^^^^^^^^^^^^^ axis 0 is 4
           1 | fun f (x : f32[n, 3]) w = relu (linear x (w : f32[4, m]))
             |        ^ axis 1 is 3
    """


class AxonGuard(AxonError):  # noqa: N818
    """A function of `tawa.axon` is called with arrays whose shapes it does not fit.

    Why: A condition on sizes that inference cannot decide is a guard. All guards are checked
    before any work is done.

    Remedy: Compare the condition with the shapes given: pad, crop or transpose.

    Example::

        import numpy as np

        from tawa import axon

        halves = axon.load("fun halves x = reshape x [2, -1]").halves
        halves(np.zeros((3, 5), np.float32))

    Message::

        halves cannot take [3, 5]: it needs [d, e] = fill([2, -1], ..x), for `reshape` at 1:16
          why: halves : f32[..x] -> f32[d, e]    where [d, e] = fill([2, -1], ..x)
    """
