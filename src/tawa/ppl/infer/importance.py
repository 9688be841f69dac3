"""Importance sampling from the prior: one particle a lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered
from tawa.ppl.infer.compose import Composed, compose, made, particle
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.weights import Weights, evidence_of


def _program(lowered: Lowered, options: Options) -> tuple[Composed, None]:
    composed = compose(lowered, stack=options.stack, wanted=options.keep)
    composed.keeping(1)
    composed.algorithm(particle, composed.sizes, results="logw")
    return composed, None


def importance(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Draw `draws` particles from the prior; what comes out is resampled by weight."""
    lanes, name = options.draws, "importance"
    composed, _ = made(model, arguments, options, name, lanes, lambda low: _program(low, options))
    buffers = composed.run(options, lanes)
    logs = buffers["logw"][0].copy()
    with Weights(
        lanes, 1, options.dtype, "cpu", {"logw": buffers["logw"]}, options.threads
    ) as weights:
        weighed = weights.weigh()
        evidence = evidence_of(weighed, lanes)
        weights.choose(weighed, options.seed, 0, np.array([True]))
        chosen = weights.chosen.rows("chosen", 0, 1)[0]
    named, value = composed.particles(buffers["real"][:, chosen], buffers["whole"][:, chosen])
    return Posterior(
        model,
        arguments,
        options,
        named,
        value,
        evidence,
        logs,
        {"effective": float(weighed.effective[0])},
    )
