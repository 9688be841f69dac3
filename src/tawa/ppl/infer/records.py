"""A lane's variables as a record in buffers: what is copied when a particle is resampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tawa.ppl.infer.compose import Composed
from tawa.ppl.infer.execute import Running
from tawa.ppl.ir.core import I32, Region, Type, Value
from tawa.ppl.ir.operations import HEAP, STACK

Array = np.ndarray[Any, Any]
# A launch sets these anew.
FRESH = ("draw", "fault", "going")


class Records:
    """The rows of the buffers, one for each word of a lane's variables.

    `used` names vectors with the variable that says how much of one is in use between launches, and
    the most that can be; of the stack these are `sp` and all, of the heap `hp` and all. `fresh` are
    variables that each launch sets anew. Adds the procedures `load` and `save`; where `copied`, a
    lane loads the record of the lane that its variable `source` names, from buffers `old_` of the
    same rows. Requires: the algorithm is lowered, so all variables declared.
    """

    def __init__(
        self,
        composed: Composed,
        used: Mapping[str, tuple[str, int]] | None = None,
        fresh: Sequence[str] = FRESH,
        *,
        copied: bool = False,
    ) -> None:
        composed.records = self
        program, self.copied = composed.program, copied
        sizes = {name: program.variables.get(name, I32).size for name in (STACK, HEAP)}
        self.used = {STACK: ("sp", sizes[STACK]), HEAP: ("hp", sizes[HEAP]), **(used or {})}
        self.low = composed.lowered.low
        self.program = program
        self.places: dict[str, tuple[str, int]] = {}
        kinds = {"state_real": program.dtype, "state_whole": "i32", "state_word": "i64"}
        rows = dict.fromkeys(kinds, 0)
        for name, type_ in program.variables.items():
            if name not in fresh:
                buffer = "state_real" if type_.is_float else "state_whole"
                buffer = "state_word" if type_.kind == "i64" else buffer
                self.places[name] = buffer, rows[buffer]
                rows[buffer] += self.used[name][1] if name in self.used else type_.size
        for name, kind in kinds.items():
            for other in (name, name.replace("state", "old")) if copied else (name,):
                composed.buffer(kind, rows[name], other)  # type: ignore[arg-type]
        for name, save in (("load", False), ("save", True)):
            with self.low.b.inside(Region()) as program.procedures[name]:
                for variable in sorted(self.places, key=lambda n: n in self.used):  # counts first
                    self._copy(variable, save)

    def _copy(self, name: str, save: bool) -> None:
        b, numbers = self.low.b, self.low.numbers
        buffer, row = self.places[name]
        type_ = self.program.variables[name]
        kind = Type(type_.kind)
        stored = I32 if type_.kind == "bool" else kind
        first = b.const(row, I32)
        source = (b.get("source", I32),) if self.copied else ()
        taken = buffer.replace("state", "old") if self.copied else buffer

        def item(*at: Value) -> None:
            place = b.offset(type_.shape, first, *at)
            if save:
                held = b.loadvar(name, kind.kind, *at) if at else b.get(name, kind)
                b.op("write", (place, numbers.value(held, stored)), name=buffer)
                return
            held = b.op("read", (place, *source), (stored,), name=taken).result
            held = held if stored == kind else b.make("cast", held, type=kind)
            if at:
                b.op("storevar", (*at, held), name=name)
            else:
                b.set(name, held)

        if name not in self.used:
            b.each(type_.shape, item)
            return
        with b.inside(Region((Value(I32),))) as region:
            item(*region.args)
        b.op("for", (b.get(self.used[name][0], I32),), (), (region,))

    def turn(self, running: Running) -> None:
        """Make what lanes saved what the next launch loads."""
        for kind in ("real", "whole", "word"):
            running.swap(f"old_{kind}", f"state_{kind}")

    def rows(self, running: Running, name: str) -> Array:
        """Return what lanes saved of a variable, (words, lanes): on the CPU a view."""
        buffer, row = self.places[name]
        return running.rows(buffer, row, self.program.variables[name].size)

    def give(self, running: Running, name: str, array: Array) -> None:
        """Set what lanes load of a variable, (words, lanes)."""
        buffer, row = self.places[name]
        running.give(buffer.replace("state", "old") if self.copied else buffer, array, row)
