"""Addresses and masks of copies: what stays the same round a loop is computed before it.

Purpose: an iteration costs a thread that copies one addition an address, not the arithmetic of an
index. Before -> after:
                                                    %p = ptr_add %base, (%row * %pitch)
    scf.for {                                       scf.for {
      %i = add %row, splat %k                         %m = mul %k, %pitch
      %q = ptr_add %base, (%i * splat %pitch)  ->     %q = ptr_add %p, splat %m
      %in = lt %i, splat %n                           %in = lt %row, splat (%n - %k)
      tile.load %q, %in {contiguous}                  tile.load %q, %in {contiguous}
    }                                               }
Requires: tile operations in loops, loads that become copies marked `contiguous`. Ensures: the same
elements; index arithmetic is taken not to overflow, as everywhere in the tile language.
Declines when: never; an index that is no sum of what stays and a scalar that moves is left alone.

Scalars that are needed only after a loop of products are computed after it.

Purpose: keep the tile's place (divisions and remainders, hundreds of cycles) off the path from one
tile's epilogue to the next tile's first product; after the loop the tensor cores are still busy.
Before -> after:
    %m = ...                                  %acc = scf.for ... { hopper.wgmma ... }
    %acc = scf.for ... { hopper.wgmma ... }   %m = ...
    hopper.tma_store %map[%m, ..]             hopper.tma_store %map[%m, ..]
Requires: waits placed; what is sunk lands before the wait that drains the loop.
Ensures: the same values. Declines when: a use stands before or inside the loop; a block takes
turns: there scalars are computed while another instance has the turn, and nothing may come between
the last product of a turn and its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerType, TensorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from tawa.analysis.polynomial import keeps_number
from tawa.ir import aref, hopper, tile
from tawa.ir.types import PtrType, bit_width, element_type, i64, shape_of
from tawa.ir.walk import (
    all_of,
    has,
    home_of,
    is_inside,
    is_terminator,
    marked_pure,
    move_before,
    walk,
)
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.layouts import cheap_values

_COMPARED = ("lt", "le", "gt", "ge")


@dataclass(frozen=True, slots=True)
class _Parts:
    """A tensor as the sum of `still`, which stands before the loop, and a scalar that moves in it.

    None stands for zero.
    """

    still: SSAValue | None
    moved: SSAValue | None


def reduce_addresses(role: hopper.Role) -> None:
    """Settle the copies in all loops of `role`, innermost loops only."""
    for load in all_of(role, tile.Load):
        loop = load.parent_op()
        if "contiguous" in load.attributes and isinstance(loop, scf.ForOp):
            _Settler(loop).settle(load)


class _Settler:
    """Splits values computed in one loop."""

    def __init__(self, loop: scf.ForOp) -> None:
        self.loop = loop
        self.before = Emitter.before(loop)
        self.known: dict[SSAValue, _Parts | None] = {}

    def settle(self, load: tile.Load) -> None:
        """Rewrite the address and the mask of one load."""
        # Where they stood: before the wait for a slot.
        if (owner := _place(load.pointer, self.loop.body.block)) is not None:
            parts = self.split(load.pointer)
            if parts is not None and parts.still is not None:
                here = Emitter.after(owner)
                load.operands[0] = self.joined(here, parts.still, parts.moved)
        if load.mask is None:
            return
        if (owner := _place(load.mask, self.loop.body.block)) is not None:
            load.operands[1] = self.mask(Emitter.after(owner), load.mask)

    def joined(self, here: Emitter, still: SSAValue, moved: SSAValue | None) -> SSAValue:
        if moved is None:
            return still
        spread = here.splat(moved, shape_of(still.type))
        return here.made(tile.PtrAdd, [still, spread], still.type)

    # --- masks --------------------------------------------------------------------------------

    def mask(self, here: Emitter, value: SSAValue) -> SSAValue:
        """Return a truth value with the moving scalars of its comparisons on their other side."""
        if not is_inside(value, self.loop):
            return value
        match value.owner:
            case tile.Elementwise() as op if op.function.data in ("and", "or"):
                return here.apply(op.function.data, *(self.mask(here, x) for x in op.inputs))
            case tile.ExpandDims() | tile.Broadcast() | tile.Transpose() | tile.Reshape() as op:
                inner = self.mask(here, op.operands[0])
                return here.put(_again(op, [inner], value.type)).results[0]
            case tile.Elementwise() as op if op.function.data in _COMPARED:
                return self.compared(here, op) or value
            case _:
                return value

    def compared(self, here: Emitter, op: tile.Elementwise) -> SSAValue | None:
        """Return a comparison of what stays with a scalar, or None."""
        left, right = (self.split(item) for item in op.inputs)
        if left is None or right is None:
            return None
        kinds = {element_type(item.type) for item in op.inputs}
        if len(kinds) > 1:
            return None
        kind, shape = kinds.pop(), shape_of(op.result.type)
        numbers = [_filling(parts.still, self.before) for parts in (left, right)]
        sides: list[SSAValue] = []
        for parts, other, number in ((left, right, numbers[0]), (right, left, numbers[1])):
            if parts.still is not None and number is None:
                sides.append(parts.still)
                continue
            total = _sum(here, [number, parts.moved], kind)
            if other.moved is not None:
                total = here.apply("sub", total, here.cast(other.moved, kind))
            sides.append(here.splat(total, shape))
        if all(parts.still is None or n is not None for parts, n in zip((left, right), numbers)):
            return None  # two scalars: nothing is gained
        if numbers[0] is None and numbers[1] is None and left.still and right.still:
            return None  # two tensors that stay, and a scalar that has no side
        return here.apply(op.function.data, *sides)

    # --- sums ---------------------------------------------------------------------------------

    def split(self, value: SSAValue) -> _Parts | None:
        """Return the parts of a tensor of integers or pointers, None where it is no such sum."""
        if value not in self.known:
            self.known[value] = self._split(value)
        return self.known[value]

    def _split(self, value: SSAValue) -> _Parts | None:
        if not is_inside(value, self.loop):
            return _Parts(value, None)
        if isinstance(value, BlockArgument):
            return None
        match value.owner:
            case tile.Splat(value=scalar):
                if not is_inside(scalar, self.loop):
                    return self._kept(value.owner, [])
                pointer = isinstance(element_type(value.type), PtrType)
                return None if pointer else _Parts(None, scalar)
            case tile.Constant() | tile.Arange():
                return self._kept(value.owner, [])
            case tile.ExpandDims() | tile.Broadcast() | tile.Transpose() | tile.Reshape() as op:
                return self._through(op)
            case tile.Cast() as op if keeps_number(op):
                return self._through(op)
            case tile.PtrAdd() as op:
                return self._pointers(op)
            case tile.Elementwise() as op:
                return self._combined(op)
            case _:
                return None

    def _kept(self, op: Operation, operands: Sequence[SSAValue]) -> _Parts:
        """Compute before the loop what does not move in it."""
        made = _again(op, operands or list(op.operands), op.results[0].type)
        made.results[0].name_hint = op.results[0].name_hint
        return _Parts(self.before.put(made).results[0], None)

    def _through(self, op: Operation) -> _Parts | None:
        inner = self.split(op.operands[0])
        if inner is None:
            return None
        if inner.still is None:
            return inner
        return _Parts(self._kept(op, [inner.still]).still, inner.moved)

    def _pointers(self, op: tile.PtrAdd) -> _Parts | None:
        base, step = self.split(op.pointer), self.split(op.offset)
        if base is None or step is None or base.still is None:
            return None
        still = base.still if step.still is None else self._kept(op, [base.still, step.still]).still
        return _Parts(still, self._total([base.moved, step.moved], i64))

    def _combined(self, op: tile.Elementwise) -> _Parts | None:
        parts = [self.split(item) for item in op.inputs]
        kind = element_type(op.result.type)
        if not _counts(kind):
            return None
        if None not in parts and all(part.moved is None for part in parts if part):
            stills = [part.still for part in parts if part and part.still is not None]
            return self._kept(op, stills) if marked_pure(op) else None
        match op.function.data, parts:
            case "add" | "sub", [_Parts() as a, _Parts() as b]:
                return self._sum(op, kind, a, b)
            case "mul", [_Parts() as a, _Parts() as b]:
                return self._product(op, kind, a, b)
            case _:
                return None

    def _sum(self, op: tile.Elementwise, kind: Attribute, a: _Parts, b: _Parts) -> _Parts | None:
        negative = op.function.data == "sub"
        if negative and a.still is None and b.still is not None:
            return None
        still = a.still if b.still is None else b.still
        if a.still is not None and b.still is not None:
            still = self._kept(op, [a.still, b.still]).still
        if not negative or b.moved is None:
            return _Parts(still, self._total([a.moved, b.moved], kind))
        here = self._after([a.moved, b.moved])
        first = a.moved if a.moved is not None else here.constant(0, kind)
        sides = (here.cast(side, kind) for side in (first, b.moved))
        return _Parts(still, here.apply("sub", *sides))

    def _product(
        self, op: tile.Elementwise, kind: Attribute, a: _Parts, b: _Parts
    ) -> _Parts | None:
        """A sum times what is the same number everywhere."""
        if (factor := _filling(b.still, self.before)) is None or b.moved is not None:
            a, b = b, a
            factor = _filling(b.still, self.before) if b.moved is None else None
        if factor is None or b.still is None or a.moved is None:
            return None
        still = None if a.still is None else self._kept(op, [a.still, b.still]).still
        here = self._after([a.moved])
        return _Parts(still, here.apply("mul", here.cast(a.moved, kind), factor))

    def _total(self, moved: Sequence[SSAValue | None], kind: Attribute) -> SSAValue | None:
        present = [value for value in moved if value is not None]
        if len(present) < 2 and all(value.type == kind for value in present):
            return present[0] if present else None
        return _sum(self._after(present), present, kind)

    def _after(self, values: Sequence[SSAValue | None]) -> Emitter:
        """Return an emitter behind the last of some scalars of the loop's body."""
        body = self.loop.body.block
        places = [_place(value, body) for value in values if value is not None]
        last = max((place for place in places if place is not None), key=_position, default=None)
        return Emitter.at_start(body) if last is None else Emitter.after(last)


def _counts(kind: Attribute) -> bool:
    """Tell whether a type is an integer that addresses are computed in."""
    whole = isinstance(kind, IntegerType)
    return whole and bit_width(cast("Attribute", kind)) >= 32


def _place(value: SSAValue, body: Block) -> Operation | None:
    """Return the operation of `body` that a scalar comes from, None where it stands before."""
    owner = value.owner
    return owner if isinstance(owner, Operation) and owner.parent is body else None


def _position(operation: Operation) -> int:
    block = home_of(operation)
    return block.get_operation_index(operation)


def _filling(value: SSAValue | None, before: Emitter) -> SSAValue | None:
    """Return the scalar that fills a tensor which stands before the loop."""
    match value.owner if value is not None else None:
        case tile.Splat(value=scalar):
            return scalar
        case tile.Constant(value=IntAttr() as number) if value is not None:
            return before.constant(number.data, element_type(value.type))
        case tile.Broadcast() | tile.ExpandDims() | tile.Reshape() as op:
            return _filling(op.operands[0], before)
        case _:
            return None


def _sum(here: Emitter, values: Sequence[SSAValue | None], kind: Attribute) -> SSAValue:
    present = [here.cast(value, kind) for value in values if value is not None]
    if not present:
        return here.constant(0, kind)
    total = present[0]
    for value in present[1:]:
        total = here.apply("add", total, value)
    return total


def _again(op: Operation, operands: Sequence[SSAValue], kind: Attribute) -> Operation:
    """Return an operation like `op` with other operands."""
    made = op.clone()
    made.operands = list(operands)
    assert made.results[0].type == kind, "shapes stay"
    return made


# --- scalars beside their uses --------------------------------------------------------------------


def sink_scalars(role: hopper.Role) -> None:
    """Move scalar statements of every block of `role` past the loops that do not need them."""
    for operation in walk(role):
        for region in operation.regions:
            for block in region.blocks:
                _sink(block)


def _sink(block: Block) -> None:
    order = {operation: float(place) for place, operation in enumerate(block.ops)}
    loops = [op for op in order if _multiplies(op)]
    if not loops or has(block, aref.Turn):
        return
    # Last first: what a statement feeds has found its place before the statement is looked at, and
    # of two that move to one place the earlier ends up in front.
    for operation in reversed(list(order)):
        if not _is_scalar(operation):
            continue
        uses = map(block.find_ancestor_op_in_block, _users(operation))
        first = min((order[use] for use in uses if use is not None), default=-1)
        passed = [loop for loop in loops if order[operation] < order[loop] < first]
        if not passed:
            continue
        operation.detach()
        block.insert_op_after(operation, passed[-1])
        # After the loop, before everything that stood there.
        order[operation] = order[passed[-1]] + 0.5


def sink_into_branches(role: hopper.Role) -> None:
    """Move cheap tensors that one of two sides alone uses to that side: addresses of the rarer
    would be computed for both.
    """
    cheap = set(cheap_values(role))
    for branch in [op for op in walk(role) if isinstance(op, scf.IfOp) and _acts(op)]:
        block = home_of(branch)
        above = list(block.ops)
        for operation in reversed(above[: above.index(branch)]):
            if not operation.results or any(value not in cheap for value in operation.results):
                continue
            sides = {_side_of(use, branch) for use in _users(operation)}
            side = sides.pop() if len(sides) == 1 else None
            if side is not None and side.first_op is not None:
                move_before(operation, side.first_op)


def _acts(branch: scf.IfOp) -> bool:
    """Tell whether both sides of a branch do something and give nothing."""
    sides = [region.block for region in branch.regions if region.blocks]
    return not branch.results and len(sides) == 2 and all(len(side.ops) > 1 for side in sides)


def _side_of(operation: Operation, branch: scf.IfOp) -> Block | None:
    """Return the side of `branch` that an operation stands on, None for elsewhere."""
    for region in branch.regions:
        if region.blocks and region.is_ancestor(operation):
            return region.block
    return None


def _multiplies(operation: Operation) -> bool:
    return type(operation) is scf.ForOp and has(operation, hopper.Wgmma)


def _is_scalar(operation: Operation) -> bool:
    return (
        marked_pure(operation)
        and not is_terminator(operation)
        and not operation.regions
        and bool(operation.results)
        and not any(isinstance(value.type, TensorType) for value in operation.results)
    )


def _users(operation: Operation) -> list[Operation]:
    return [use.operation for value in operation.results for use in value.uses]
