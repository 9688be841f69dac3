"""Let a product accumulate where its result is only added.

Purpose: `acc += tl.dot(a, b)`, the common spelling, costs no pass over the accumulator.
Before -> after:
    %p = tile.dot %a, %b, %zero               %sum = tile.dot %a, %b, %acc
    %sum = tile.elementwise "add"(%acc, %p)
Requires: tile IR. Ensures: the same sum in another order: acc + (p0 + p1 + ..) becomes
((acc + p0) + p1) + .., as Triton does.
Declines when: the product has another use, starts from something else than zero, or the types
differ. Not run under ``strict``.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tawa.ir import tile
from tawa.ir.walk import walk
from tawa.passes.fold import constant_of
from tawa.passes.lower.emit import erase
from tawa.plan.plan import Declined, Plan
from tawa.target import Target


def accumulate(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Fuse each addition of a product with the product."""
    for operation in walk(kernel):
        match operation:
            case tile.Elementwise() if operation.function.data == "add":
                _fuse(operation)
            case _:
                continue
    return ()


def _fuse(addition: tile.Elementwise) -> None:
    left, right = addition.inputs
    for product, acc in ((right, left), (left, right)):
        if (dot := _lone_product(product)) is not None and product is not acc:
            break
    else:
        return
    fused = tile.Dot.make(
        dot.a, dot.b, acc, results=[addition.result.type], attributes=dot.attributes
    )
    fused.location = dot.location
    fused.result.name_hint = addition.result.name_hint or dot.result.name_hint
    block = addition.parent_block()
    assert block is not None, "an operation of a kernel stands in a block"
    # At the place of the addition: the accumulator may be defined after the product.
    block.insert_op_before(fused, addition)
    addition.result.replace_all_uses_with(fused.result)
    for dead in (addition, dot):
        erase(dead)


def _lone_product(value: SSAValue) -> tile.Dot | None:
    """Return the dot that gives `value`, if it starts from zero and nothing else uses it."""
    match value.owner:
        case tile.Dot() as dot if value.has_one_use() and constant_of(dot.acc) == 0:
            return dot
        case _:
            return None
