"""Purpose: make a model a function of one real vector: what hmc and nuts move.

Before -> after::

    %t = sample %s {HalfCauchy}         z = loadvar at 1; %t = exp z; factor log density + z
    observe %v, %t, %s {Normal}         factor log density

Requires: a lowered model. Ensures: the variable `z` has a place for each free number; the body only
computes, records and has `factor` left.
Declines: a discrete site, a site that is not reached in every run or not a known number of times:
GradientError.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tawa.errors import GradientError
from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.ir.core import Op, Value
from tawa.ppl.passes.handle import Handler, Layout, Nest


class Density(Handler):
    """Read a site's value from `z` through its support's map; leave `factor` for every term."""

    def __init__(self, low: Lowering, layout: Layout, method: str) -> None:
        super().__init__(low, layout)
        self.method = method
        self.size = 0

    def sample(self, op: Op, nest: Nest) -> Value:
        """Map the site's free numbers to its value."""
        family = op.attrs["family"]
        title = op.attrs["title"] or f"site {op.attrs['site']}"
        if family.support.forward is None:
            raise GradientError(
                f"{title} is discrete: {family.name} has no gradient",
                place=op.place,
                why=f"{self.method} moves along a gradient of the log density",
                remedy='use method="mh" or "smc", or sum over its values: '
                "ppl.factor(ppl.logsumexp([...]))",
            )
        if not nest.known or not nest.certain:
            raise GradientError(
                f"{title} is not a site of every run",
                place=op.place,
                why=f"{self.method} moves a vector of a fixed length: which sites "
                f"there are must not "
                "depend on a branch, on recursion, or on a loop of unknown length",
                remedy='use method="mh" or "smc", or sample it in every run',
            )
        low, b = self.low, self.low.b
        free = family.support.free(op.result.type.shape)
        start = self.size
        self.size += free * prod(nest.counts)
        first = nest.first(low, free, start)

        def read(at: Value) -> Value:
            return b.loadvar("z", b.dtype, at)

        if op.result.type.shape:

            def free_number(k: Value) -> Value:
                return read(b.make("add", first, k))

            given = low.b.build((free,), free_number)
        else:
            given = read(first)
        takes = family.support.forward.__code__.co_argcount
        args: tuple[Any, ...] = (given, *op.operands)[:takes]
        value, jacobian = low.call(family.support.forward, args)
        value = low.numbers.value(value, op.result.type)
        density = low.call(family.log_density, (value, *op.operands))
        self.weigh(low.numbers.value(density, b.real))
        if not isinstance(jacobian, float):
            self.weigh(low.numbers.value(jacobian, b.real))
        return value

    def weigh(self, amount: Value) -> None:
        """Leave a factor."""
        self.low.b.op("factor", (amount,))
