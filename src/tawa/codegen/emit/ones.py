"""Multiplications that a warp leaves out where all its factors are one (`lower.accumulators`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsl.ir import SSAValue

from tawa.analysis.effects import VIEWS
from tawa.codegen.emit.emitter import Emitter
from tawa.codegen.emit.values import Array, Tensor
from tawa.codegen.wrappers.arithmetic import ANY_LANE
from tawa.ir import tile
from tawa.ir.types import layout_of


def multiply_unless_ones(
    e: Emitter, op: tile.Elementwise, target: Array, scaled: Tensor, factor: Tensor, rows: SSAValue
) -> None:
    """Multiply registers in place by factors, unless all factors of the warp are one."""
    factors = _rows_of(rows)
    answer = e.answers.get(factors)
    if answer is None or factors.owner.parent is not op.parent:
        layout = layout_of(op.result.type)
        first = {row[:-1]: r for r, row in reversed([*enumerate(layout.register_table)])}
        answer = _any_but_ones(e, [factor.at(str(r)) for r in sorted(first.values())])
    with e.block(f"if ({answer})"):
        e.fill(target, lambda r: f"{scaled.at(r)} * {factor.at(r)}")


def ask_early(e: Emitter, op: tile.Elementwise, target: Array) -> None:
    """Where factors are made that may all be one, ask at once: the answer is there when needed."""
    if any(use.skip_ones is not None and use.parent is op.parent for use in _products(op.result)):
        name = e.names.fresh("rises")
        registers = layout_of(op.result.type).register_count
        answer = _any_but_ones(e, [target.at(str(r)) for r in range(registers)])
        e.line(f"const bool {name} = {answer};")
        e.answers[op.result] = name


def _any_but_ones(e: Emitter, factors: Iterable[str]) -> str:
    return e.call(ANY_LANE, " | ".join(f"{text} != 1.0f" for text in factors))


def _rows_of(value: SSAValue) -> SSAValue:
    """Return what a tensor repeats, below broadcasts and views."""
    while isinstance(value.owner, (tile.Broadcast, *VIEWS)):
        value = value.owner.operands[0]
    return value


def _products(value: SSAValue) -> Iterator[tile.Elementwise]:
    """Yield the multiplications by a value or what repeats it."""
    for use in value.uses:
        match use.operation:
            case tile.Elementwise(function=function) as user if function.data == "mul":
                yield user
            case tile.Broadcast() as view:
                yield from _products(view.result)
            case view if isinstance(view, VIEWS):
                yield from _products(view.results[0])
            case _:
                pass
