"""Importance sampling from the prior: a filter whose particles stop nowhere before their end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tawa.ppl.frontend.model import Model
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.smc import Filter
from tawa.ppl.infer.weights import zeros
from tawa.ppl.passes.handle import Handler


def importance(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Draw `draws` particles from the prior; what comes out is resampled by weight."""
    lanes = replace(options, particles=options.draws)
    with Filter(model, arguments, lanes, Handler, "importance") as particles:
        end = particles.run(options.seed)
    evidence = float(end.log_evidence[0])
    if evidence == -np.inf:
        raise zeros(options.draws)
    named, value = particles.composed.particles(end.kept[:, end.chosen])
    statistics = {"effective": end.sizes[0]}
    return Posterior(model, arguments, options, named, value, evidence, end.logs, statistics)
