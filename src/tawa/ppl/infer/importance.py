"""Importance sampling from the prior: one particle a lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.surface import get, run, write
from tawa.ppl.infer.compose import compose, keep, kept
from tawa.ppl.infer.execute import Executable, seed_words
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior, each_array, unpack
from tawa.ppl.infer.weights import effective, log_mean, systematic, whole_weights


def lane(logw: Any, real: Any, whole: Any, reals: Any, wholes: Any) -> None:
    """Run the model once and keep what it drew."""
    run("begin")
    run("go")
    write("logw", 0, get(logw))
    keep(real, whole, reals, wholes, 0)


def importance(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Draw `draws` particles from the prior; what comes out is resampled by weight."""
    composed = compose(model, arguments, options.dtype, stack=options.stack)
    program = composed.program
    program.buffers["logw"] = options.dtype
    composed.algorithm(lane, composed.memory("logw"), *kept(composed))
    lanes = options.draws
    buffers = options.buffers(
        program,
        {
            "logw": 1,
            "real": composed.layout.sizes["kept_real"],
            "whole": composed.layout.sizes["kept_whole"],
        },
        lanes,
    )
    executable = Executable(program, options.device, options.cpu)
    executable.run(
        (*seed_words(options.seed), *composed.lowered.data), buffers, lanes, options.threads
    )
    logs = buffers["logw"][0]
    weights, top, scale = whole_weights(logs)
    chosen = systematic(weights, options.uniform(0), lanes)
    real, whole = (buffers[name][None][:, :, chosen] for name in ("real", "whole"))
    named, value = unpack(composed.layout, composed.lowered.template, real, whole)

    def flat(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return array.reshape(1, lanes, *array.shape[2:])

    return Posterior(
        model.name,
        {name: flat(array) for name, array in named.items()},
        each_array(flat, value),
        log_mean(weights, top, scale),
        logs,
        {"effective": effective(weights)},
    )
