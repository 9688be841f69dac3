"""Sequential Monte Carlo: particles run to their next observation, are weighed, and resampled.

A particle is the record of its lane's variables (`passes/cut.py`). Records, weights and choices
stay on the device: a lane begins with the record of the lane that was chosen for it, and leaves its
own in other buffers.
Particles are resampled when the effective sample size falls below half of them (Liu and Chen).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered
from tawa.ppl.frontend.words import here, read, run
from tawa.ppl.infer.compose import Composed, MakeHandler, compose, made
from tawa.ppl.infer.execute import seeded
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.records import FRESH, Array, Records
from tawa.ppl.infer.weights import Weights, zeros
from tawa.ppl.ir.core import Op
from tawa.ppl.ir.operations import KEPT
from tawa.ppl.passes.cut import DONE
from tawa.ppl.passes.handle import Handler, Nest

SAMPLE, OBSERVE, FACTOR = 2, 3, 4


class AtObservations(Handler):
    """Suspend the model after each observation and factor."""

    def observe(self, op: Op, nest: Nest) -> None:
        """Weigh, then suspend."""
        super().observe(op, nest)
        self.low.b.op("suspend", kind=OBSERVE)

    def factor(self, op: Op, nest: Nest) -> None:
        """Weigh, then suspend."""
        super().factor(op, nest)
        self.low.b.op("suspend", kind=FACTOR)


def smc(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Run a particle filter; `log_evidence` is the log of its unbiased estimate."""
    with Filter(model, arguments, options) as particles:
        end = particles.run(options.seed)
    if end.log_evidence[0] == -np.inf:
        raise zeros(options.particles, f" after observation {len(end.sizes)}")
    named, value = particles.composed.particles(end.kept[:, end.chosen])
    statistics = {"effective": np.array(end.sizes), "steps": len(end.sizes)}
    return Posterior(
        model, arguments, options, named, value, float(end.log_evidence[0]), None, statistics
    )


@dataclass(frozen=True, slots=True)
class Filtered:
    """Where the particles of a run ended.

    `kept` are their kept words (words, lanes), of which `chosen` lanes, equally weighted, stand for
    a group. The log evidence of a group whose weights were all zero is minus
    infinity; when all groups' are, the run ends there. Arrays may be views, up to the next run.
    `logs` are the log weights of importance, before it chose.
    """

    log_evidence: Array
    kept: Array
    chosen: Array
    sizes: list[float]
    logs: Array | None


class Filter:
    """A particle filter of a model with groups of `particles` lanes, for as long as a `with` lasts.

    smc has one group, pmmh one for each chain; importance is a filter that stops at no observation.
    """

    def __init__(
        self,
        model: Model,
        arguments: tuple[Any, ...],
        options: Options,
        handler: MakeHandler = AtObservations,
        method: str = "smc",
    ) -> None:
        self.stops = method != "importance"

        def make(lowered: Lowered) -> Composed:
            composed = compose(lowered, handler, options.stack, options.keep)
            composed.share(fresh=0, generation=0)
            composed.buffer("i32", 1, "chosen")
            composed.algorithm(_step, self.stops, results="logw kind failed")
            fresh = (*FRESH, "logw", "source", "failed")
            if not self.stops:  # of what goes on nowhere, what it kept is all
                names = composed.program.variables.keys()
                fresh = tuple(names - {KEPT})
            Records(composed, fresh=fresh, copied=self.stops)
            return composed

        size, groups = options.particles, options.chains if method == "pmmh" else 1
        self.composed = made(model, arguments, options, method, size * groups, make)
        self.records: Records = self.composed.records
        self.executable = self.composed.executable(options)
        given, rows, threads = self.composed.arguments(0), self.composed.rows, options.threads
        lanes, long = size * groups, not self.stops
        self.lanes = self.executable.on(given, rows, lanes, threads, long=long)
        memory = self.lanes.memory
        self.weights = Weights(size, groups, options.dtype, options.device, memory, threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.weights.__exit__(*error)
        self.lanes.__exit__(*error)

    def run(self, seed: int, z: Array | None = None) -> Filtered:
        """Run the filter with a seed; `z` (numbers, groups) are the groups' parameters."""
        lanes, weights = self.lanes, self.weights
        if z is not None:
            self.records.give(lanes, "z", np.repeat(z, weights.size, axis=1))
        evidence, sizes, logs, done = np.zeros(weights.groups), list[float](), None, False
        while not done:
            generation = len(sizes)
            if generation:
                self.records.turn(lanes)
            lanes.launch(**seeded(seed), fresh=int(not generation), generation=generation)
            weighed = weights.weigh()
            if weighed.faults:
                self.executable.check(lanes)
            done = not weighed.going
            logs = None if self.stops else lanes.rows("logw", 0, 1)[0].copy()
            again = (weighed.effective < weights.size / 2) | done
            if np.any(again):
                evidence[again] += weighed.log_mean()[again]
            weights.choose(weighed, seed, generation, again)
            sizes.append(float(weighed.effective.min()))
            done = done or bool(np.all(evidence == -np.inf))
        (chosen,) = lanes.rows("chosen", 0, 1)
        return Filtered(evidence, self.records.rows(lanes, KEPT), chosen, sizes, logs)


def _step(lane: Any, stops: Any) -> None:
    if stops:
        lane.source = here() if lane.fresh == 1 else read("chosen", 0, "i32")
        run("load")
    lane.logw = read("logw", 0, "real")
    if lane.fresh == 1:
        run("begin")
    lane.draw = lane.generation
    if lane.kind != DONE:
        run("go")
    run("save")
    lane.failed = lane.fault
