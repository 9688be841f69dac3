"""Purpose: multiply fp32 on the tensor cores, more exactly than one product of narrow numbers does.

Before -> after (``input_precision="tf32x3"``)::

    %c = tile.dot %a, %b, %acc {tf32x3}   ->   %la = %a - (%a in tf32);  %lb = %b - (%b in tf32)
                                               %c1 = tile.dot %la, %b, 0 {tf32}
                                               %c2 = tile.dot %a, %lb, %c1 {tf32}
                                               %c3 = tile.dot %a, %b, %c2 {tf32}
                                               %c  = %c3 + %acc

A number is the sum of *parts*, each the next in the narrow type; products of parts too small to
count are left out, the others are added from the smallest to the largest (`tawa.ir.precision`).
The tensor cores cut off what a sum cannot hold, always towards zero: over many steps of K the error
would grow with their number. So each product begins at zero, and threads add it, which round.
Requires: tile IR, after `accumulate`. Ensures: what the oracle does for that precision. Declines
when: no instruction takes the shape; fused multiply-add makes one exact product of it then.
"""

from __future__ import annotations

from xdsl.dialects.builtin import BFloat16Type, Float32Type, IntAttr, StringAttr
from xdsl.ir import SSAValue

from tawa.analysis.hardware import is_zero
from tawa.analysis.statements import name_of
from tawa.ir import tile
from tawa.ir.precision import SPLITS, TF32_MASK, Split
from tawa.ir.types import element_type, i32, shape_of, with_shape
from tawa.ir.walk import all_of
from tawa.passes.lower.emit import Emitter, erase
from tawa.plan.plan import Declined, Plan
from tawa.target import Target


def split_products(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Expand each fp32 product whose precision is made of several narrow ones."""
    notes: list[Declined] = []
    for dot in all_of(kernel, tile.Dot):
        split = SPLITS.get(dot.precision.data)
        if split is None or not isinstance(element_type(dot.a.type), Float32Type):
            continue
        if reason := _objection(dot, split):
            notes.append(Declined(f"{dot.precision.data} for {name_of(dot)}", reason))
            continue
        _expand(dot, split)
    return tuple(notes)


def _objection(dot: tile.Dot, split: Split) -> str:
    """Return why the tensor cores would not multiply the parts, or nothing."""
    (m, k), n = shape_of(dot.a.type)[-2:], shape_of(dot.b.type)[-1]
    if m % 16 or n % 8 or k % split.step:
        return f"{m} x {n} x {k} is not made of 16 x 8 x {split.step}; one product is exact"
    return ""


def _expand(dot: tile.Dot, split: Split) -> None:
    emitter = Emitter.before(dot)
    left, right = (_parts(emitter, value, split) for value in (dot.a, dot.b))
    total = emitter.constant(0, dot.result.type)
    for i, j in split.terms:
        factors, how = [left[i], right[j], total], StringAttr("tf32")
        total = emitter.made(
            tile.Dot, factors, dot.result.type, precision=how, max_imprecise=IntAttr(0)
        )
    if not is_zero(dot.acc):
        total = emitter.apply("add", total, dot.acc)
    total.name_hint = dot.result.name_hint
    dot.result.replace_all_uses_with(total)
    erase(dot)


def _parts(emitter: Emitter, value: SSAValue, split: Split) -> list[SSAValue]:
    """Return the parts of a tile, the largest first; of tf32 they stay fp32, the tensor cores
    leave the lower bits out by themselves.
    """
    parts: list[SSAValue] = []
    rest = value
    for last in (*[False] * (split.parts - 1), True):
        if split.narrow == "tf32":
            parts.append(rest)
            wide = rest if last else _in_tf32(emitter, rest)
        else:
            narrow = emitter.cast(rest, BFloat16Type())
            parts.append(narrow)
            wide = emitter.cast(narrow, element_type(value.type))
        if not last:
            rest = emitter.apply("sub", rest, wide)
    return parts


def _in_tf32(emitter: Emitter, value: SSAValue) -> SSAValue:
    kind = with_shape(shape_of(value.type), i32)
    bits = emitter.made(tile.Bitcast, [value], kind)
    kept = emitter.apply("and", bits, emitter.constant(TF32_MASK - (1 << 32), kind))
    return emitter.made(tile.Bitcast, [kept], value.type)
