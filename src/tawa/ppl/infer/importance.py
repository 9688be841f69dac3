"""Importance sampling from the prior: one particle a lane."""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.model import Model
from tawa.ppl.infer.compose import compose, particle
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.weights import Weights, evidence_of, systematic, uniforms


def importance(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Draw `draws` particles from the prior; what comes out is resampled by weight."""
    composed = compose(model, arguments, options.dtype, stack=options.stack)
    composed.keeping(1)
    composed.algorithm(particle, composed.sizes, results="logw")
    lanes = options.draws
    buffers = composed.buffers(lanes)
    given = composed.arguments(options.seed)
    composed.executable(options).run(given, buffers, lanes, options.threads)
    logs = buffers["logw"][0]
    weights = Weights.of(logs[None])
    evidence = evidence_of(weights)
    chosen = systematic(weights.whole[0], uniforms(options.seed, 0, 1)[0], lanes)
    named, value = composed.particles(buffers["real"][:, chosen], buffers["whole"][:, chosen])
    return Posterior(
        model,
        arguments,
        options,
        named,
        value,
        evidence,
        logs,
        {"effective": float(weights.effective()[0])},
    )
