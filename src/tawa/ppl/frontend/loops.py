"""Loops that carry variables, when a model is lowered."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tawa.ppl.frontend.arithmetic import RANK
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.values import Sequence, flatten, rebuild
from tawa.ppl.ir.core import I32, Region, Type, Value


def carry(
    low: Context,
    names: list[str],
    scope: dict[str, Any],
    node: ast.AST,
    make: Callable[[tuple[Value, ...], Callable[[dict[str, Any]], Any]], Any],
) -> None:
    """Lower a loop that carries variables, again until their types are those of its end.

    `make(starts, body)` makes the operation: it calls `body` with a scope in a region whose
    last arguments are the carried values, and returns the results and that region's end.
    """
    leaves: list[Any] = []
    template = flatten(tuple(scope[n] for n in names), leaves)
    types = [low.numbers.natural(leaf) for leaf in leaves]
    while True:
        mark = len(low.b.region.ops)
        starts = tuple(low.numbers.value(leaf, t) for leaf, t in zip(leaves, types, strict=True))
        wider: list[Type] = list(types)

        def close(
            inner: dict[str, Any], wider: list[Type] = wider, types: list[Type] = types
        ) -> tuple[Value, ...]:
            ends: list[Any] = []
            shape = flatten(tuple(inner[n] for n in names), ends)
            if repr(shape) != repr(template):
                raise low.error(
                    "a variable changes from one kind of value to another in a loop",
                    node,
                    why=f"{', '.join(names)}: records keep their form in all iterations",
                )
            for k, end in enumerate(ends):
                have = low.numbers.natural(end)
                if RANK[have.kind] > RANK[wider[k].kind] and have.shape == wider[k].shape:
                    wider[k] = have
            if wider != types:
                return ()
            return tuple(
                low.guarded(node, lambda e=e, t=t: low.numbers.value(e, t))
                for e, t in zip(ends, types, strict=True)
            )

        def enter(carried: tuple[Value, ...]) -> dict[str, Any]:
            inner = dict(scope)
            inner.update(zip(names, rebuild(template, carried), strict=True))
            return inner

        results = make(starts, lambda carried, close=close: (enter(carried), close))  # type: ignore[arg-type]
        if wider == types:
            break
        types = wider
        del low.b.region.ops[mark:]
    scope.update(zip(names, rebuild(template, results), strict=True))


def counted(
    low: Context,
    sequence: Sequence,
    names: list[str],
    scope: dict[str, Any],
    step: Callable[[dict[str, Any], Any], None],
    node: ast.AST,
) -> None:
    """Lower a loop over a sequence; `step` lowers what is done with an item, in a scope."""

    def make(starts: tuple[Value, ...], enter: Any) -> Any:
        index = Value(I32)
        if isinstance(sequence.count, int):
            low.limits[index] = sequence.count
        elif sequence.count in low.limits:  # the count is below its limit, the index below it
            low.limits[index] = low.limits[sequence.count] - 1
        region = Region((index, *(Value(start.type) for start in starts)))
        with low.b.inside(region):
            inner, close = enter(region.args[1:])
            step(inner, sequence.item(index))
            region.yields = close(inner)
        count = low.numbers.value(sequence.count)
        types = tuple(start.type for start in starts)
        most = low.limits.get(count, 0) - 1
        made = low.b.op("for", (count, *starts), types, (region,), most=most)
        return list(made.results)

    carry(low, names, scope, node, make)
