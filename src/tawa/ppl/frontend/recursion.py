"""Functions that call themselves: one `Function` of the IR for each form of their arguments."""

from __future__ import annotations

from typing import Any

from tawa.errors import ModelError
from tawa.ppl.frontend.arithmetic import RANK, Misfit, describe
from tawa.ppl.frontend.context import Context, Specialised
from tawa.ppl.frontend.family import Drawn
from tawa.ppl.frontend.source import Closure
from tawa.ppl.frontend.values import flatten, rebuild
from tawa.ppl.ir.core import Function, Region, Type, Value, free_values


class Unknown(Exception):  # noqa: N818
    """What a recursive call returns is not known yet."""


class Recursive(Exception):  # noqa: N818
    """A function was found to call itself."""

    def __init__(self, key: object) -> None:
        super().__init__()
        self.key = key


def call(low: Context, closure: Closure, key: object, args: tuple[Any, ...]) -> Any:
    """Lower a call of a function that calls itself."""
    leaves: list[Any] = []
    template = flatten(args, leaves)
    for item in template:
        if item is not None and isinstance(item, (Closure, Drawn)):
            raise Misfit(
                f"{closure.name} calls itself, so its arguments are numbers, vectors and "
                f"records, not {describe(item)}"
            )
    values = tuple(low.numbers.value(leaf) for leaf in leaves)
    entry_key = (key, repr(template), tuple(value.type for value in values))
    entry = low.specialised.get(entry_key)
    if entry is None:
        entry = Specialised(f"{closure.name}{len(low.specialised) or ''}")
        low.specialised[entry_key] = entry
        _specialise(low, closure, entry, template, tuple(value.type for value in values))
    if entry.types is None:
        entry.incomplete = True
        raise Unknown
    call = low.b.op("call", values, entry.types, name=entry.name)
    return rebuild(entry.template, list(call.results))


def _specialise(
    low: Context, closure: Closure, entry: Specialised, template: Any, types: tuple[Type, ...]
) -> None:
    outer_path, low.path = low.path, (-1 - len(low.specialised),)
    try:
        while True:
            entry.incomplete = False
            region = Region(tuple(map(Value, types)))
            with low.b.inside(region):
                args = rebuild(template, region.args)
                try:
                    names = closure.parameters
                    result = low.body(closure, dict(zip(names, args, strict=True)))
                except Unknown:
                    raise ModelError(
                        f"{closure.name} calls itself before it returns anything",
                        place=closure.source.place(closure.node),
                        why="the type of what it returns is taken from a branch without a call",
                        remedy="return the base case first, under an if",
                    ) from None
                leaves: list[Any] = []
                shape = flatten(result, leaves)
                values = [low.numbers.value(leaf) for leaf in leaves]
                if entry.types is not None and len(entry.types) == len(values):
                    values = [
                        value
                        if RANK[value.type.kind] > RANK[want.kind]
                        else low.numbers.value(value, want)
                        for value, want in zip(values, entry.types, strict=True)
                    ]
                region.yields = tuple(values)
            found = tuple(value.type for value in values)
            stable = found == entry.types and not entry.incomplete
            entry.template, entry.types = shape, found
            if stable:
                break
    finally:
        low.path = outer_path
    captured = [v for v in free_values(region) if v not in low.program.params]
    if captured:
        raise ModelError(
            f"{closure.name} calls itself and uses a value of the function around it",
            place=closure.source.place(closure.node),
            why="each call has its own arguments and nothing else",
            remedy="pass the value as an argument",
        )
    place = closure.source.place(closure.node)
    low.program.functions[entry.name] = Function(entry.name, region, place)
