"""Single-site Metropolis-Hastings over traces (Wingate, Stuhlmüller, Goodman 2011).

A trace is the list of what a run drew, addressed by site and by how often the site was reached
before. One
proposal draws one of its values anew from the prior, runs the model with all others reused where
their addresses are met again, and draws the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.errors import WeightError
from tawa.ppl.frontend.indexing import fault
from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.surface import assign, get, log, run, write
from tawa.ppl.frontend.values import Memory
from tawa.ppl.infer.compose import compose, keep, kept
from tawa.ppl.infer.execute import Executable, seed_words
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior, unpack
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
        word = Type("i64" if program.dtype == "f64" else "i32", (2 * size,))
        sites = max(low.sites.values(), default=0) + 1
        for name in ("trace_site", "trace_count", "trace_start"):
            program.variables[name] = Type("i32", (2 * size,))
        program.variables |= {
            "trace_density": Type(program.dtype, (2 * size,)),
            "trace_word": word,
            "site_count": Type("i32", (sites,)),
            "new_value": Type("i32", (size,)),
            "side": I32,
            "old_entries": I32,
            "new_entries": I32,
            "new_words": I32,
            "cursor": I32,
            "target": I32,
            "reused": Type(program.dtype),
        }

    def memory(self, name: str) -> Memory:
        """Return a variable of the trace."""
        return Memory(name, self.low.program.variables[name])

    def sample(self, op: Op, nest: Nest) -> Value:
        """Reuse or draw, and note the value in the new trace."""
        low, b = self.low, self.low.b
        type_ = op.result.type
        words = type_.size
        found, reuse = low.call(
            find,
            (
                op.attrs["site"],
                self.size,
                *(
                    self.memory(name)
                    for name in (
                        "trace_site",
                        "trace_count",
                        "site_count",
                        "side",
                        "old_entries",
                        "cursor",
                        "target",
                    )
                ),
            ),
        )
        yes, no = Region(), Region()
        with b.inside(yes):
            start = b.op("loadvar", (found,), (I32,), name="trace_start").result
            yes.yields = (self.restore(type_, start),)
        with b.inside(no):
            no.yields = (super().sample(op, nest),)
        value = b.op("if", (reuse,), (type_,), (yes, no)).result
        given = low.call(op.attrs["family"].log_density, (value, *op.operands))
        density = low.numbers.value(given, b.real)
        entry, start = low.call(
            note,
            (
                op.attrs["site"],
                words,
                self.size,
                found,
                reuse,
                density,
                *(
                    self.memory(name)
                    for name in (
                        "trace_site",
                        "trace_count",
                        "trace_start",
                        "trace_density",
                        "site_count",
                        "side",
                        "new_entries",
                        "new_words",
                        "reused",
                    )
                ),
            ),
        )
        used = b.get("new_words", I32)
        fault(low, low.numbers.compare("Gt", used, self.size), "trace")
        fault(low, low.numbers.compare("GtE", entry, self.size), "trace")
        self.store(value, start)
        return value

    def restore(self, type_: Type, start: Value) -> Value:
        """Append the reading of a value from the words of a trace."""
        b, word = self.low.b, Type(self.low.program.variables["trace_word"].kind)

        def item(place: Value) -> Value:
            raw = b.op("loadvar", (place,), (word,), name="trace_word").result
            kind = Type(type_.kind)
            if kind == word:
                return raw
            return b.make("bits" if kind.is_float else "cast", raw, type=kind)

        if not type_.shape:
            return item(start)
        return self.low.b.build(type_.shape, lambda *at: item(self.place(type_, start, at)))

    def place(self, type_: Type, start: Value, at: tuple[Value, ...]) -> Value:
        """Append where an element lies."""
        b = self.low.b
        offset = b.const(0, I32)
        for size, index in zip(type_.shape, at, strict=True):
            offset = b.make("add", b.make("mul", offset, b.const(size, I32)), index)
        return b.make("add", start, offset)

    def store(self, value: Value, start: Value) -> None:
        """Append the writing of a value to the words of the new trace."""
        b, word = self.low.b, Type(self.low.program.variables["trace_word"].kind)

        def level(rest: tuple[int, ...], at: tuple[Value, ...]) -> None:
            if not rest:
                item = b.load(value, *at) if at else value
                if item.type != word:
                    item = b.make("bits" if item.type.is_float else "cast", item, type=word)
                where = self.place(value.type, start, at)
                top = b.const(2 * self.size - 1, I32)
                safe = b.make("select", b.compare("lt", top, where), top, where, type=I32)
                b.op("storevar", (safe, item), name="trace_word")
                return
            index = Value(I32)
            with b.inside(Region((index,))) as region:
                level(rest[1:], (*at, index))
            b.op("for", (b.const(rest[0], I32),), (), (region,))

        level(value.type.shape, ())


def find(
    site: Any,
    size: Any,
    trace_site: Any,
    trace_count: Any,
    site_count: Any,
    side: Any,
    old_entries: Any,
    cursor: Any,
    target: Any,
) -> Any:
    """Return where the old trace has the site at hand, and whether its value is reused."""
    count = site_count[site]
    entries = get(old_entries)
    base = get(side) * size
    at = get(cursor)
    looked = 0
    hit = False
    # A run that goes as the last one did finds each address where the cursor stands.
    while looked < entries and not hit:
        if at >= entries:
            at = 0
        hit = trace_site[base + at] == site and trace_count[base + at] == count
        looked = looked + 1
        at = at + 1
    assign(cursor, at)
    found = at - 1 if hit else 0
    return base + found, hit and found != get(target)


def note(
    site: Any,
    words: Any,
    size: Any,
    found: Any,
    reuse: Any,
    density: Any,
    trace_site: Any,
    trace_count: Any,
    trace_start: Any,
    trace_density: Any,
    site_count: Any,
    side: Any,
    new_entries: Any,
    new_words: Any,
    reused: Any,
) -> Any:
    """Write an entry of the new trace; gather the change of the densities of reused values."""
    if reuse:
        assign(reused, get(reused) + density - trace_density[found])
    entry = get(new_entries)
    base = (1 - get(side)) * size
    at = base + min(entry, size - 1)
    start = base + get(new_words)
    trace_site[at] = site
    trace_count[at] = site_count[site]
    trace_start[at] = start
    trace_density[at] = density
    site_count[site] = site_count[site] + 1
    assign(new_entries, entry + 1)
    assign(new_words, get(new_words) + words)
    return entry, start


def once(
    site_count: Any, sites: Any, new_entries: Any, new_words: Any, cursor: Any, reused: Any
) -> None:
    """Run the model against the old trace."""
    run("begin")
    for k in range(sites):
        site_count[k] = 0
    assign(new_entries, 0)
    assign(new_words, 0)
    assign(cursor, 0)
    assign(reused, 0.0)
    run("go")


def chain(
    draws: Any,
    warmup: Any,
    thin: Any,
    tries: Any,
    draw: Any,
    count: Any,
    logw: Any,
    fault_: Any,
    side: Any,
    old_entries: Any,
    target: Any,
    accepted: Any,
    held: Any,
    trace: Any,
    real: Any,
    whole: Any,
    reals: Any,
    wholes: Any,
    held_real: Any,
    held_whole: Any,
) -> None:
    """Run a chain: a first run with a weight, then proposals; keep every `thin`-th."""
    site_count, sites, new_entries, new_words, cursor, reused = trace
    attempt = 0
    assign(target, -1)
    assign(logw, -INF)
    while attempt < tries and not (get(logw) > -INF) and get(fault_) == 0:
        assign(draw, -1 - attempt)
        once(site_count, sites, new_entries, new_words, cursor, reused)
        attempt = attempt + 1
    assign(held, get(logw))
    assign(side, 1 - get(side))
    assign(old_entries, get(new_entries))
    for k in range(reals):
        held_real[k] = real[k]
    for k in range(wholes):
        held_whole[k] = whole[k]
    step = 0
    total = warmup + draws * thin
    if not (get(held) > -INF):
        total = 0
    while step < total and get(fault_) == 0:
        assign(draw, step)
        entries = get(old_entries)
        # A run begins its count at 0 and the test of acceptance goes on from its end: -1 is free.
        assign(count, -1)
        pick = int(uniform() * float(entries))
        assign(target, min(pick, entries - 1))
        once(site_count, sites, new_entries, new_words, cursor, reused)
        ratio = get(logw) - get(held) + get(reused)
        ratio = ratio + log(float(entries)) - log(float(get(new_entries)))
        if log(uniform()) < ratio and get(fault_) == 0:
            assign(accepted, get(accepted) + 1)
            assign(held, get(logw))
            assign(side, 1 - get(side))
            assign(old_entries, get(new_entries))
            for k in range(reals):
                held_real[k] = real[k]
            for k in range(wholes):
                held_whole[k] = whole[k]
        step = step + 1
        if step > warmup and (step - warmup) % thin == 0:
            keep(held_real, held_whole, reals, wholes, (step - warmup) // thin - 1)
    write("held", 0, get(held))
    write("accepted", 0, get(accepted))


def mh(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Run chains of single-site proposals; `thin` proposals a kept draw."""
    composed = compose(
        model,
        arguments,
        options.dtype,
        lambda low, layout: Reuse(low, layout, options.trace),
        options.stack,
    )
    program, layout = composed.program, composed.layout
    real = Type(options.dtype)
    variables: dict[str, Type] = {"accepted": I32, "held": real}
    variables |= {
        name: program.variables[f"kept_{name[5:]}"] for name in ("held_real", "held_whole")
    }
    numbers = [composed.parameter(name, I32) for name in ("draws", "warmup", "thin", "tries")]
    names = ("draw", "count", "logw", "fault", "side", "old_entries", "target", "accepted", "held")
    program.buffers |= {"held": options.dtype, "accepted": "i32"}
    sites = program.variables["site_count"].size
    trace = (
        composed.memory("site_count"),
        sites,
        *(composed.memory(name) for name in ("new_entries", "new_words", "cursor", "reused")),
    )
    composed.algorithm(
        chain,
        *numbers,
        *(composed.memory(name, variables.get(name)) for name in names),
        trace,
        *kept(composed),
        *(composed.memory(name, variables[name]) for name in ("held_real", "held_whole")),
    )
    lanes = options.chains
    rows = {
        "real": layout.sizes["kept_real"] * options.draws,
        "whole": layout.sizes["kept_whole"] * options.draws,
        "held": 1,
        "accepted": 1,
    }
    buffers = options.buffers(program, rows, lanes)
    given = (
        *seed_words(options.seed),
        *composed.lowered.data,
        options.draws,
        options.warmup,
        options.thin,
        1000,
    )
    Executable(program, options.device, options.cpu).run(given, buffers, lanes, options.threads)
    if not np.all(buffers["held"] > -np.inf):
        raise WeightError(
            f"{model.name}: 1000 runs from the prior have weight zero",
            why="mh begins at a run that agrees with what was observed",
            remedy="check the observations' supports and units",
        )
    shaped = [
        buffers[name].reshape(options.draws, layout.sizes[f"kept_{name}"], lanes)
        for name in ("real", "whole")
    ]
    named, value = unpack(layout, composed.lowered.template, *shaped)
    rate = buffers["accepted"][0] / max(1, options.warmup + options.draws * options.thin)
    return Posterior(model.name, named, value, statistics={"accepted": rate})
