"""Sequential Monte Carlo: particles run to their next observation, are weighed, and resampled.

A particle is the record of its lane's variables (`passes/cut.py`); resampling copies records.
Particles are
resampled when the effective sample size falls below half of them (Liu and Chen).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.surface import assign, get, run
from tawa.ppl.infer.compose import Composed, compose
from tawa.ppl.infer.execute import Executable, seed_words
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior, each_array, unpack
from tawa.ppl.infer.weights import effective, log_mean, systematic, whole_weights
from tawa.ppl.ir.core import I32, Op, Region, Type, Value
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


class Records:
    """The rows of the state buffers, one for each word of a lane's variables."""

    def __init__(self, composed: Composed) -> None:
        self.composed = composed
        self.rows: dict[str, int] = {"state_real": 0, "state_whole": 0, "state_word": 0}
        self.places: dict[str, tuple[str, int]] = {}
        program = composed.program
        for name, type_ in program.variables.items():
            if name in ("draw", "fault", "going"):
                continue
            buffer = "state_real" if type_.is_float else "state_whole"
            buffer = "state_word" if type_.kind == "i64" else buffer
            self.places[name] = buffer, self.rows[buffer]
            self.rows[buffer] += type_.size
        program.buffers |= {"state_real": program.dtype, "state_whole": "i32", "state_word": "i64"}

    def copy(self, low: Lowering, *, save: bool) -> None:
        """Append the copies between the variables and the buffers; of the stack, what is in use."""
        variables = self.composed.program.variables
        for name in sorted(self.places, key=lambda n: n == "stack"):  # sp before the stack
            buffer, row = self.places[name]
            type_ = variables[name]
            if not type_.shape:
                self.scalar(low, name, type_, buffer, low.b.const(row, I32), save)
                continue
            count = low.b.get("sp", I32) if name == "stack" else low.b.const(type_.shape[0], I32)
            self.rest(low, name, type_, buffer, low.b.const(row, I32), (), count, save)

    def scalar(
        self, low: Lowering, name: str, type_: Type, buffer: str, row: Value, save: bool
    ) -> None:
        """Append the copy of a number."""
        stored = I32 if type_.kind == "bool" else type_
        if save:
            value = low.numbers.value(low.b.get(name, type_), stored)
            low.b.op("write", (row, value), name=buffer)
            return
        value = low.b.op("read", (row,), (stored,), name=buffer).result
        low.b.set(name, value if stored == type_ else low.b.make("cast", value, type=type_))

    def rest(
        self,
        low: Lowering,
        name: str,
        type_: Type,
        buffer: str,
        row: Value,
        at: tuple[Value, ...],
        count: Value,
        save: bool,
    ) -> None:
        """Append the copy of an array, from some index on."""
        b = low.b
        index = Value(I32)
        inner = Type(type_.kind, type_.shape[len(at) + 1 :])
        with b.inside(Region((index,))) as region:
            step_ = b.make("mul", index, b.const(inner.size, I32))
            here = b.make("add", row, step_)
            place = (*at, index)
            stored = I32 if type_.kind == "bool" else Type(type_.kind)
            if inner.shape:
                self.rest(low, name, type_, buffer, here, place, b.const(inner.shape[0], I32), save)
            elif save:
                item = b.op("loadvar", place, (Type(type_.kind),), name=name).result
                b.op("write", (here, low.numbers.value(item, stored)), name=buffer)
            else:
                item = b.op("read", (here,), (stored,), name=buffer).result
                if stored.kind != type_.kind:
                    item = b.make("cast", item, type=Type(type_.kind))
                b.op("storevar", (*place, item), name=name)
        b.op("for", (count,), (), (region,))


def smc(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Run a particle filter; `log_evidence` is the log of its unbiased estimate."""
    return Filter(model, arguments, options).run(options.seed)


class Filter:
    """A compiled particle filter of a model."""

    def __init__(self, model: Model, arguments: tuple[Any, ...], options: Options) -> None:
        self.options = options
        self.model = model
        self.composed = compose(model, arguments, options.dtype, AtObservations, options.stack)
        program = self.composed.program
        program.variables.setdefault("kind", I32)
        if "depth" not in program.variables:
            program.variables["depth"] = I32
        self.never = "pc" not in program.variables  # a model without observations ends at once
        self.records = Records(self.composed)
        fresh = self.composed.parameter("fresh", I32)
        generation = self.composed.parameter("generation", I32)
        for name, save in (("load", False), ("save", True)):
            region = Region()
            with self.composed.lowered.low.b.inside(region):
                self.records.copy(self.composed.lowered.low, save=save)
            program.procedures[name] = region
        self.composed.algorithm(
            _step,
            fresh,
            generation,
            self.composed.memory("kind"),
            self.composed.memory("draw"),
        )
        self.executable = Executable(program, options.device, options.cpu)

    def run(self, seed: int) -> Posterior:
        """Run the filter with a seed."""
        options, lanes = self.options, self.options.particles
        program, places = self.composed.program, self.records.places
        state = options.buffers(program, self.records.rows, lanes)
        evidence, generation = 0.0, 0
        weight_buffer, weight_row = places["logw"]
        kind_buffer, kind_row = places["kind"]
        sizes: list[float] = []
        while True:
            given = (
                *seed_words(seed),
                *self.composed.lowered.data,
                int(generation == 0),
                generation,
            )
            self.executable.run(given, state, lanes, options.threads)
            generation += 1
            logs = state[weight_buffer][weight_row]
            weights, top, scale = whole_weights(logs, f" after observation {generation}")
            done = self.never or bool(np.all(state[kind_buffer][kind_row] == DONE))
            size = effective(weights)
            sizes.append(size)
            if done or size < lanes / 2:
                evidence += log_mean(weights, top, scale)
                chosen = systematic(weights, options.uniform(generation, seed), lanes)
                for name, array in state.items():
                    state[name] = np.ascontiguousarray(array[:, chosen])
                state[weight_buffer][weight_row] = 0
            if done:
                break
        real = self._rows(state, "kept_real")
        whole = self._rows(state, "kept_whole")
        named, value = unpack(self.composed.layout, self.composed.lowered.template, real, whole)

        def flat(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return array.reshape(1, lanes, *array.shape[2:])

        return Posterior(
            self.model.name,
            {name: flat(array) for name, array in named.items()},
            each_array(flat, value),
            evidence,
            None,
            {"effective": np.array(sizes), "steps": generation},
        )

    def _rows(self, state: dict[str, np.ndarray[Any, Any]], name: str) -> np.ndarray[Any, Any]:
        buffer, row = self.records.places[name]
        size = self.composed.program.variables[name].size
        return state[buffer][None, row : row + size]


def _step(fresh: Any, generation: Any, kind: Any, draw: Any) -> None:
    if fresh == 1:
        run("begin")
    else:
        run("load")
    assign(draw, generation)
    if get(kind) != DONE:
        run("go")
    run("save")
