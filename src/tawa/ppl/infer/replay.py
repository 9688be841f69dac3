"""A model run again with the values of a posterior's draws: one draw a lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tawa.errors import ModelError
from tawa.ppl.emit.machine import STORED
from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.compose import BLANK, compose, particle
from tawa.ppl.infer.options import Options
from tawa.ppl.ir.core import Op, Type, Value
from tawa.ppl.passes.handle import Handler, Layout, Nest

Array = np.ndarray[Any, Any]


class Replay(Handler):
    """Take sites' values from draws; keep draws of the observations, or their log densities."""

    def __init__(
        self,
        low: Lowering,
        layout: Layout,
        draws: Mapping[str, Array],
        *,
        predictive: bool,
        left_out: bool,
    ) -> None:
        super().__init__(low, layout)
        self.draws = draws
        self.predictive = predictive
        self.left_out = left_out
        self.given: list[Array] = []
        self.rows = 0

    def sample(self, op: Op, nest: Nest) -> Value:
        """Draw the value; where there are draws of it, its record puts one in its place."""
        if not op.attrs["title"] or not nest.known:
            raise ModelError(
                f"{op.attrs['title'] or 'a site without a name'} has no kept draws",
                place=op.place,
                why="a site in recursion or in a loop of unknown length has no fixed place, "
                "one without a name is not kept",
                remedy="assign the sample to a variable, in a loop of known length",
            )
        return super().sample(op, nest)

    def record(self, op: Op, nest: Nest) -> Value:
        """Return the value of the draw that the lane runs again."""
        (drawn,) = op.operands
        title, type_ = op.attrs["title"], drawn.type
        held = self.draws.get(title)
        if held is None and self.left_out:
            raise ModelError(
                f"the posterior has no draws of {title}",
                place=op.place,
                why="keep= of its run left them out",
                remedy=f"keep {title} as well",
            )
        if held is None:
            return super().record(op, nest)
        shape = (*nest.counts, *type_.shape)
        if held.shape[2:] != shape or (held.dtype.kind == "f") != type_.is_float:
            raise ModelError(
                f"{title} is {held.dtype}{list(held.shape[2:])} in the posterior and "
                f"{type_.kind}{list(shape)} here",
                place=op.place,
                why="a draw has a value for each element of a site",
                remedy="pass arguments of the same sizes, or give the new site another name",
            )
        b = self.low.b
        first = nest.first(self.low, type_.size, self.rows)
        self.given.append(held)
        self.rows += int(np.prod(shape))

        def item(*at: Value) -> Value:
            place = b.offset(type_.shape, first, *at)
            word = b.op("read", (place,), (b.word,), name="given").result
            value = b.same_word(word, Type(type_.kind))
            if type_.is_float:
                missing = b.compare("ne", value, value)
            else:
                missing = b.compare("eq", word, b.const(BLANK, b.word))
            # A site that the draw's run did not reach.
            return b.make("select", missing, b.load(drawn, *at), value, type=value.type)

        return b.build(type_.shape, item)

    def observe(self, op: Op, nest: Nest) -> None:
        """Keep what is asked for."""
        title = op.attrs["title"]
        if not nest.known:
            raise ModelError(
                f"{title} has no fixed place",
                place=op.place,
                why="it is observed in recursion or in a loop of unknown length",
                remedy="observe in a loop over an array",
            )
        if self.predictive:
            family = op.attrs["family"]
            drawn = self.low.call(family.draw, op.operands[1:])
            self.keep(title, self.low.numbers.value(drawn, op.operands[0].type), nest)
        else:
            self.keep(title, self.density(op), nest)


def replay(
    model: Model,
    arguments: tuple[Any, ...],
    options: Options,
    draws: Mapping[str, Array],
    *,
    predictive: bool,
) -> tuple[dict[str, Array], Any]:
    """Return what the runs kept by name, shaped (chains, draws, ...), and the value."""
    composed = compose(
        lower(model, arguments, options.dtype),
        lambda low, layout: Replay(
            low, layout, draws, predictive=predictive, left_out=options.keep is not None
        ),
        options.stack,
    )
    handler = composed.handler
    assert isinstance(handler, Replay)
    if not handler.given:
        raise ModelError(
            f"{model.name} has no site of the posterior",
            why=f"kept sites: {', '.join(draws) or 'none'}",
            remedy="name a site by assigning its sample to a variable",
        )
    word = handler.low.b.word.kind
    composed.buffer(word, handler.rows, "given")
    composed.keeping(1)
    composed.algorithm(particle, composed.size)
    chains, count = next(iter(draws.values())).shape[:2]
    lanes = chains * count

    def words(draws: Array) -> Array:
        flat = draws.reshape(lanes, -1).T
        real = flat.dtype.kind == "f"
        return flat.astype(STORED[options.dtype if real else word]).view(STORED[word])

    given = np.ascontiguousarray(np.concatenate([*map(words, handler.given)]))
    buffers = composed.run(options, lanes, given=given)
    named, value = composed.particles(buffers["kept"])

    def shaped(held: Any) -> Any:
        if isinstance(held, tuple):
            return tuple(shaped(item) for item in held)  # type: ignore[reportUnknownVariableType]
        return held.reshape(chains, count, *held.shape[2:]) if hasattr(held, "reshape") else held

    return {name: shaped(array) for name, array in named.items()}, shaped(value)
