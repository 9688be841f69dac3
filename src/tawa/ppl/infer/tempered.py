"""Tempering: particles go from the prior to the posterior, the weight to a power that grows to 1.

Del Moral, Doucet, Jasra 2006. A particle is a trace of mh with all variables of its lane. The next
power is the largest that leaves half the effective sample size; after resampling each particle
takes `steps` proposals that leave its tempered distribution as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered
from tawa.ppl.frontend.words import read, run
from tawa.ppl.infer.compose import Composed, made
from tawa.ppl.infer.mh import first, propose, traced
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.records import FRESH, Records
from tawa.ppl.infer.weights import Weighed, Weights, evidence_of
from tawa.ppl.ir.operations import KEPT

ANEW = (
    *("source", "logw", "reused", "cursor", "target", "site_count"),
    *("new_entries", "new_words", KEPT),
)
"""What a run of the model begins with, beside `FRESH`: its result is in what `accept` sets."""


def tempered(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Move `particles` from the prior to the posterior; any program, also with random structure."""

    def make(lowered: Lowered) -> Composed:
        composed = traced(lowered, options)
        composed.share(heat=0.0, generation=0, moves=options.steps, tries=1)
        composed.buffer("i32", 1, "chosen")
        composed.algorithm(_step, options.trace, results="held")
        words = ("site", "count", "start", "density", "word")
        used = {f"trace_{name}": ("used", options.trace) for name in words}
        Records(composed, used, (*FRESH, *ANEW), copied=True)
        return composed

    size, threads = options.particles, options.threads
    composed = made(model, arguments, options, "tempered", size, make)
    records: Records = composed.records
    executable, given = composed.executable(options), composed.arguments(options.seed)
    evidence, heats = 0.0, [0.0]
    with executable.on(given, composed.rows, size, threads) as lanes:
        memory = {"logw": lanes.memory["held"], "chosen": lanes.memory["chosen"]}
        with Weights(size, 1, options.dtype, options.device, memory, threads) as weights:
            while True:
                lanes.launch(heat=heats[-1], generation=len(heats) - 1)
                executable.check(lanes)
                if heats[-1] == 1.0:
                    break
                held = lanes.rows("held")
                heat = _next(weights.weigh, np.count_nonzero(held > -np.inf) / 2, heats[-1])
                weighed = weights.weigh(heat - heats[-1])
                evidence += evidence_of(weighed, size)
                weights.choose(weighed, options.seed, len(heats), np.array([True]))
                records.turn(lanes)
                heats.append(heat)
        # A copy: of a view, all records would live as long as the draws.
        named, value = composed.particles(records.rows(lanes, "held_words").copy())
        rate = records.rows(lanes, "accepted")[0] / (options.steps * (len(heats) - 1))
    statistics = {"heats": np.array(heats), "accepted": rate}
    return Posterior(model, arguments, options, named, value, evidence, None, statistics)


def _next(weigh: Callable[[float], Weighed], least: float, heat: float) -> float:
    """Return the largest power that leaves at least so many particles effective."""

    def enough(power: float) -> bool:
        return float(weigh(power - heat).effective[0]) >= least

    if enough(1.0):
        return 1.0
    low, high = heat, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return high


def settle(lane: Any, size: Any) -> None:
    """Move the old trace to the front, so that `used` words of each array are all of it."""
    if lane.side == 1:
        for k in range(lane.old_entries):
            lane.trace_site[k] = lane.trace_site[size + k]
            lane.trace_count[k] = lane.trace_count[size + k]
            lane.trace_start[k] = lane.trace_start[size + k] - size
            lane.trace_density[k] = lane.trace_density[size + k]
        for k in range(lane.old_words):
            lane.trace_word[k] = lane.trace_word[size + k]
    lane.side = 0
    lane.used = max(lane.old_entries, lane.old_words)


def _step(lane: Any, size: Any) -> None:
    lane.source = read("chosen", 0, "i32")
    if lane.generation == 0:
        first(lane)
    else:
        run("load")
        for move in range(lane.moves):
            lane.draw = lane.generation * lane.moves + move
            propose(lane, lane.heat)
    if lane.fault == 0:
        settle(lane, size)
    run("save")
