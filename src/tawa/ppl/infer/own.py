"""Methods of a user's own: functions of the subset over `start` and `resume`, a draw a lane.

A suspended model is what the lane's variables hold. `start` begins the model anew; `resume` runs it
to behind its next `observe` or `factor`, or to its end, and adds what these weigh to `lane.logw`.
`lane.kind` says where it stands: `OBSERVE`, `FACTOR` or `DONE`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered
from tawa.ppl.frontend.surface import written
from tawa.ppl.frontend.words import run
from tawa.ppl.infer.compose import Composed, compose, keep, made
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.smc import AtObservations


@written
def start(lane: Any) -> None:
    """Begin the model anew (own methods), with random numbers that no earlier start had."""
    lane.draw += 1
    run("begin")


@written
def resume() -> None:
    """Run the model to its next suspension or its end (own methods)."""
    run("go")


def own(function: Callable[[Any], None]) -> Callable[[Model, tuple[Any, ...], Options], Posterior]:
    """Return the method that runs a function of the lane, once for each of `draws` lanes.

    What the model's last run drew and returned is the lane's draw.
    """

    def method(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
        def make(lowered: Lowered) -> Composed:
            composed = compose(lowered, AtObservations, options.stack, options.keep)
            composed.keeping(1)
            composed.algorithm(_lane, function, composed.size, results="logw")
            return composed

        lanes = options.draws
        composed = made(model, arguments, options, function, lanes, make)
        buffers = composed.run(options, lanes)
        named, value = composed.particles(buffers["kept"])
        logs = buffers["logw"][0]
        return Posterior(model, arguments, options, named, value, log_weights=logs)

    return method


def _lane(lane: Any, function: Any, size: Any) -> None:
    function(lane)
    keep(lane.kept_words, size, 0)
