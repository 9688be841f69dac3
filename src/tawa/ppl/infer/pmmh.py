"""Particle marginal Metropolis-Hastings (Andrieu, Doucet, Holenstein 2010).

A chain moves the free numbers of the sites named by `parameters`; a particle filter over all
others estimates the likelihood. The filters of all chains run at once, a group of lanes each. The
random walk's size and its deviations are learnt from the warm-up, in each chain for itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.errors import ModelError, WeightError
from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.words import exp, log, run, sqrt
from tawa.ppl.infer.compose import Composed, bare
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.records import Records
from tawa.ppl.infer.smc import AtObservations, Filter
from tawa.ppl.ir.core import Op, Type, Value
from tawa.ppl.math.distributions import standard_normal, uniform
from tawa.ppl.passes.density import Density
from tawa.ppl.passes.handle import Handler, Layout, Nest

INF = float("inf")
LOG_STEP, RATE = 0.867, 0.234  # log 2.38, and the rate of Roberts, Gelman and Gilks 1997


class Moved(AtObservations, Density):
    """Read the parameters from `z` and weigh them by their prior; particles draw the rest."""

    weigh = Handler.weigh

    def __init__(self, low: Lowering, layout: Layout, names: tuple[str, ...]) -> None:
        Density.__init__(self, low, layout, "pmmh")
        self.names = names
        self.found: set[str] = set()

    def sample(self, op: Op, nest: Nest) -> Value:
        """Map a parameter's free numbers to its value, or draw."""
        if op.attrs["title"] not in self.names:
            return Handler.sample(self, op, nest)
        value = Density.sample(self, op, nest)
        self.low.program.variables["z"] = Type(self.low.program.dtype, (self.size,))
        self.found.add(op.attrs["title"])
        return value


def walk(lane: Any) -> None:
    """Accept or reject the last proposal, whose log weight is `new`; learn; propose."""
    run("load")
    lane.draw = lane.time
    if lane.time == 0:
        for i in range(len(lane.square)):
            lane.square[i] = 1.0
        lane.logw = -INF
        lane.log_step = LOG_STEP - 0.5 * log(float(len(lane.z)))
        lane.new = 0.0
        lane.better = False
    else:
        change = min(lane.new - lane.logw, 0.0)
        lane.better = log(uniform()) < change
        if lane.better:
            lane.z = lane.proposal
            lane.logw = lane.new
        # A chain that has no start yet tries standard normal numbers.
        if lane.time <= lane.warmup and lane.logw > -INF:
            t = float(lane.time)
            lane.log_step += (exp(change) - RATE) / sqrt(t)
            for i in range(len(lane.z)):
                delta = lane.z[i] - lane.mean[i]
                lane.mean[i] = lane.mean[i] + delta / (t + 1.0)
                more = delta * (lane.z[i] - lane.mean[i]) - lane.square[i]
                lane.square[i] = lane.square[i] + more / (t + 1.0)
    step = exp(lane.log_step) if lane.logw > -INF else 1.0
    for i in range(len(lane.z)):
        lane.proposal[i] = lane.z[i] + step * sqrt(lane.square[i]) * standard_normal()
    run("save")


def walker(size: int, warmup: int) -> tuple[Composed, Records]:
    """Return the lane program of a random walk over `size` numbers, in float64."""
    composed = bare("walk")
    composed.share(time=0, warmup=warmup)
    composed.declare((size,), "z", "proposal", "mean", "square")
    composed.algorithm(walk)
    return composed, Records(composed)


def pmmh(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Run chains over `parameters`; a kept draw has its values and those of one particle."""

    def handler(low: Lowering, layout: Layout) -> Handler:
        return Moved(low, layout, options.parameters)

    with Filter(model, arguments, options, handler, "pmmh") as particles:
        return _run(model, arguments, options, particles)


def _run(
    model: Model, arguments: tuple[Any, ...], options: Options, particles: Filter
) -> Posterior:
    moved = particles.composed.handler
    assert isinstance(moved, Moved)
    missing = [name for name in options.parameters if name not in moved.found]
    if missing or not options.parameters:
        raise ModelError(
            f"{model.name} has no site {missing[0]}" if missing else "pmmh needs parameters=",
            why="a chain moves the sites that it names, particles draw all others",
            remedy='pass parameters=("name", ...), names of real sites of every run',
        )
    composed, records = walker(moved.size, options.warmup)
    executable = composed.executable(options)
    chains, total = options.chains, options.warmup + options.draws * options.thin
    kept: Any = 0
    rows: list[Any] = []
    accepted = np.zeros(chains)
    end = None
    given = composed.arguments(options.seed)
    with executable.on(given, composed.rows, chains, options.threads) as walks:
        for time in range(total + 1):
            walks.launch(time=time)
            executable.check(walks)
            if end is not None:
                better = records.rows(walks, "better")[0] > 0
                marks = particles.weights.uniforms(_seed(options.seed, time - 1), -1)
                picks = ((np.arange(chains) + marks) * options.particles).astype(np.int64)
                lanes = end.chosen[picks]
                size = particles.composed.size  # where nothing is kept there is a word all the same
                kept = np.where(better, end.kept[:size, lanes], kept)
                if time > options.warmup:
                    accepted += better
                    if (time - options.warmup) % options.thin == 0:
                        rows.append(kept)
            if time == options.warmup + 1 and np.any(records.rows(walks, "logw") == -np.inf):
                raise WeightError(
                    f"{model.name}: no parameters of positive likelihood in {time} tries",
                    why="a chain begins at standard normal free numbers of the parameters",
                    remedy="take more particles or warm-up, or check what is observed",
                )
            if time < total:
                end = particles.run(_seed(options.seed, time), records.rows(walks, "proposal"))
                records.give(walks, "new", end.log_evidence[None])
    named, value, _ = particles.composed.unpack({"kept": np.concatenate(rows)}, options)
    statistics = {"accepted": accepted / (options.draws * options.thin)}
    return Posterior(model, arguments, options, named, value, statistics=statistics)


def _seed(seed: int, time: int) -> int:
    """The key of the filter at a time: the golden ratio's multiples are far apart."""
    return (seed + (time + 1) * 0x9E3779B97F4A7C15) % 2**64
