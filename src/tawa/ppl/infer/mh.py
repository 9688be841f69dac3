"""Single-site Metropolis-Hastings over traces (Wingate, Stuhlmüller, Goodman 2011).

A trace is the list of what a run drew, addressed by site and by how often the site was reached
before. One proposal draws one of its values anew from the prior, runs the model with all others
reused where their addresses are met again, and draws the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.errors import WeightError
from tawa.ppl.frontend.indexing import fault
from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered
from tawa.ppl.frontend.values import Lane
from tawa.ppl.frontend.words import log, run, select
from tawa.ppl.infer.compose import Composed, compose, made
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.ir.core import I32, Op, Region, Type, Value
from tawa.ppl.math.distributions import uniform
from tawa.ppl.passes.handle import Handler, Layout, Nest

INF = float("inf")


class Reuse(Handler):
    """Take a site's value from the old trace where it has one, unless it is the one to change."""

    def __init__(self, low: Lowering, layout: Layout, size: int) -> None:
        super().__init__(low, layout)
        program = low.program
        self.size = size
        sites = max(low.sites.values(), default=0) + 1
        for name in ("trace_site", "trace_count", "trace_start"):
            program.variables[name] = Type("i32", (2 * size,))
        program.variables |= {
            "trace_density": Type(program.dtype, (2 * size,)),
            "trace_word": Type(low.b.word.kind, (2 * size,)),
            "site_count": Type("i32", (sites,)),
            "side": I32,
            "old_entries": I32,
            "new_entries": I32,
            "new_words": I32,
            "cursor": I32,
            "target": I32,
            "reused": Type(program.dtype),
        }

    def sample(self, op: Op, nest: Nest) -> Value:
        """Reuse or draw, and note the value in the new trace."""
        low, b = self.low, self.low.b
        type_, site, lane = op.result.type, op.attrs["site"], Lane({})
        found, reuse = low.call(find, (lane, site, self.size))
        yes, no = Region(), Region()
        with b.inside(yes):
            start = b.loadvar("trace_start", "i32", found)
            yes.yields = (b.taken("trace_word", start, type_),)
        with b.inside(no):
            no.yields = (super().sample(op, nest),)
        value = b.op("if", (reuse,), (type_,), (yes, no)).result
        density = low.call(op.attrs["family"].log_density, (value, *op.operands))
        given = (lane, site, type_.size, self.size, found, reuse, density)
        entry, start = low.call(note, given)
        used = b.get("new_words", I32)
        fault(low, low.numbers.compare("Gt", used, self.size), "trace")
        fault(low, low.numbers.compare("GtE", entry, self.size), "trace")
        b.put("trace_word", start, value)
        # Where a trace is full, what follows is written behind it.
        held = low.program.variables["trace_word"]
        most = max(held.size, 2 * self.size + type_.size)
        low.program.variables["trace_word"] = Type(held.kind, (most,))
        return value


def find(lane: Any, site: Any, size: Any) -> Any:
    """Return where the old trace has the site at hand, and whether its value is reused."""
    count = lane.site_count[site]
    base = lane.side * size
    at = lane.cursor
    looked = 0
    hit = False
    # A run that goes as the last one did finds each address where the cursor stands.
    while looked < lane.old_entries and not hit:
        if at >= lane.old_entries:
            at = 0
        hit = lane.trace_site[base + at] == site and lane.trace_count[base + at] == count
        looked = looked + 1
        at = at + 1
    lane.cursor = at
    found = at - 1 if hit else 0
    return base + found, hit and found != lane.target


def note(lane: Any, site: Any, words: Any, size: Any, found: Any, reuse: Any, density: Any) -> Any:
    """Write an entry of the new trace; gather the change of the densities of reused values."""
    if reuse:
        lane.reused += density - lane.trace_density[found]
    entry = lane.new_entries
    base = (1 - lane.side) * size
    at = base + min(entry, size - 1)
    start = base + min(lane.new_words, size)
    lane.trace_site[at] = site
    lane.trace_count[at] = lane.site_count[site]
    lane.trace_start[at] = start
    lane.trace_density[at] = density
    lane.site_count[site] = lane.site_count[site] + 1
    lane.new_entries += 1
    lane.new_words += words
    return entry, start


def once(lane: Any) -> None:
    """Run the model against the old trace."""
    run("begin")
    lane.site_count = 0
    lane.new_entries = 0
    lane.new_words = 0
    lane.cursor = 0
    lane.reused = 0.0
    run("go")


def accept(lane: Any) -> None:
    """Make the new trace the old one."""
    lane.held = lane.logw
    lane.side = 1 - lane.side
    lane.old_entries = lane.new_entries
    lane.old_words = lane.new_words
    lane.held_words = lane.kept_words


def first(lane: Any) -> None:
    """Run the model from its prior until its weight is not zero; the first weight is `held`."""
    attempt = 0
    lane.target = -1
    lane.logw = -INF
    while attempt < lane.tries and not (lane.logw > -INF) and lane.fault == 0:
        lane.draw = -1 - attempt
        once(lane)
        attempt = attempt + 1
    lane.accepted = 0
    accept(lane)


def propose(lane: Any, heat: Any) -> None:
    """Draw one value anew, and keep that where it is accepted; weights to the power of `heat`."""
    entries = lane.old_entries
    # A run begins its count at 0 and the test of acceptance goes on from its end: -1 is free.
    lane.count = -1
    pick = int(uniform() * float(entries))
    lane.target = min(pick, entries - 1)
    once(lane)
    ratio = heat * (lane.logw - lane.held) + lane.reused
    ratio = ratio + log(float(entries)) - log(float(lane.new_entries))
    if log(uniform()) < ratio and lane.fault == 0:
        lane.accepted += 1
        accept(lane)


def chain(lane: Any, hold: Any, size: Any) -> None:
    """Run a chain: a first run with a weight, then proposals; keep every `thin`-th."""
    first(lane)
    total = select(lane.held > -INF, lane.warmup + lane.draws * lane.thin, 0)
    step = 0
    while step < total and lane.fault == 0:
        lane.draw = step
        propose(lane, 1.0)
        step = step + 1
        if step > lane.warmup and (step - lane.warmup) % lane.thin == 0:
            row = (step - lane.warmup) // lane.thin - 1
            hold(lane.held_words, size, row)


def traced(lowered: Lowered, options: Options) -> Composed:
    """Return the program whose runs reuse the values of a trace."""
    return compose(
        lowered,
        lambda low, layout: Reuse(low, layout, options.trace),
        options.stack,
        options.keep,
        moments=options.moments,
    )


def mh(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Run chains of single-site proposals; `thin` proposals a kept draw."""

    def make(lowered: Lowered) -> Composed:
        composed = traced(lowered, options)
        composed.share(draws=options.draws, warmup=options.warmup, thin=options.thin, tries=1000)
        hold = composed.keeping(options.draws, moments=options.moments)
        composed.algorithm(chain, hold, composed.size, results="held accepted")
        return composed

    composed = made(model, arguments, options, "mh", options.chains, make)
    buffers = composed.run(options, options.chains)
    if not np.all(buffers["held"] > -np.inf):
        raise WeightError(
            f"{model.name}: 1000 runs from the prior have weight zero",
            why="mh begins at a run that agrees with what was observed",
            remedy="check the observations' supports and units",
        )
    named, value, moments = composed.unpack(buffers, options)
    rate = buffers["accepted"][0] / max(1, options.warmup + options.draws * options.thin)
    return Posterior(
        model, arguments, options, named, value, moments=moments, statistics={"accepted": rate}
    )
