"""Sequential Monte Carlo: particles run to their next observation, are weighed, and resampled.

A particle is the record of its lane's variables (`passes/cut.py`); resampling copies records.
Particles are resampled when the effective sample size falls below half of them (Liu and Chen).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.surface import run
from tawa.ppl.infer.compose import MakeHandler, compose
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.records import Array, Records
from tawa.ppl.infer.weights import Weights, systematic, uniforms, zeros
from tawa.ppl.ir.core import I32, Op
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
    particles = Filter(model, arguments, options)
    end = particles.run(options.seed)
    if end.log_evidence[0] == -np.inf:
        raise zeros(options.particles, f" after observation {len(end.sizes)}")
    named, value = particles.composed.particles(end.real, end.whole)
    statistics = {"effective": np.array(end.sizes), "steps": len(end.sizes)}
    return Posterior(
        model, arguments, options, named, value, float(end.log_evidence[0]), None, statistics
    )


@dataclass(frozen=True, slots=True)
class Filtered:
    """Where the particles of a run ended, equally weighted in each group.

    `real` and `whole` are their kept memory (words, lanes). The log evidence of a group whose
    weights were all zero is minus infinity; when all groups' are, the run ends there.
    """

    log_evidence: Array
    real: Array
    whole: Array
    sizes: list[float]


class Filter:
    """A compiled particle filter of a model, with any number of groups of `particles` lanes."""

    def __init__(
        self,
        model: Model,
        arguments: tuple[Any, ...],
        options: Options,
        handler: MakeHandler = AtObservations,
    ) -> None:
        self.options = options
        self.composed = compose(model, arguments, options.dtype, handler, options.stack)
        program = self.composed.program
        program.variables.setdefault("kind", I32)
        self.never = "pc" not in program.variables  # a model without observations ends at once
        self.composed.share(fresh=0, generation=0)
        self.composed.algorithm(_step)
        self.records = Records(self.composed)
        self.executable = self.composed.executable(options)

    def run(self, seed: int, z: Array | None = None) -> Filtered:
        """Run the filter with a seed; `z` (numbers, groups) are the groups' parameters."""
        options, size = self.options, self.options.particles
        groups = 1 if z is None else z.shape[1]
        lanes = size * groups
        state = self.composed.buffers(lanes)
        if z is not None:
            self.records.rows(state, "z")[:] = np.repeat(z, size, axis=1)
        evidence = np.zeros(groups)
        sizes: list[float] = []
        done = False
        while not done:
            generation = len(sizes)
            given = self.composed.arguments(seed, fresh=int(not sizes), generation=generation)
            self.executable.run(given, state, lanes, options.threads)
            logs = self.records.rows(state, "logw")[0]
            done = self.never or bool(np.all(self.records.rows(state, "kind") == DONE))
            weights = Weights.of(logs.reshape(groups, size))
            effective = weights.effective()
            chosen = np.arange(lanes).reshape(groups, size)
            again = (effective < size / 2) | done
            if np.any(again):
                marks, means = uniforms(seed, generation, groups), weights.log_mean()
                evidence[again] += means[again]
                for group in np.flatnonzero(again & (means > -np.inf)):
                    mark = float(marks[group])
                    chosen[group] = group * size + systematic(weights.whole[group], mark, size)
                self.records.choose(state, chosen.ravel())
                self.records.rows(state, "logw")[0] = np.where(np.repeat(again, size), 0, logs)
            sizes.append(float(effective.min()))
            done = done or bool(np.all(evidence == -np.inf))
        real, whole = (self.records.rows(state, n) for n in ("kept_real", "kept_whole"))
        return Filtered(evidence, real, whole, sizes)


def _step(lane: Any) -> None:
    run("load")
    if lane.fresh == 1:
        run("begin")
    lane.draw = lane.generation
    if lane.kind != DONE:
        run("go")
    run("save")
