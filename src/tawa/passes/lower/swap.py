"""Products too flat for wgmma are swapped: D^T = B^T A^T, where the transposed one fits.

Purpose: let products of 8 to 56 rows use the instruction that takes 64 rows and any 8 columns.
Before -> after:
    %acc = scf.for iter_args(%acc = %zero)            %t = scf.for iter_args(%t = %zero_t)
      %acc' = tile.dot %a, %b, %acc            ->       %t' = tile.dot %b^T, %a^T, %t
                                                      %acc = tile.transpose %t
Operands are views of shared memory, so that their transposes are free; an accumulator is swapped
wherever it is carried, so that none is swapped while it is in flight.
Requires: rings lowered. Ensures: the same values in the same order of sums.
Declines when: the swapped product does not fit either; it is then not for wgmma.
"""

from __future__ import annotations

import dataclasses

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, SSAValue

from tawa.analysis.statements import name_of
from tawa.ir import hopper, tile
from tawa.ir.types import element_type, int_array, shape_of, with_shape
from tawa.ir.walk import all_of, terminator
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.dots import Product, facts_of, wgmma_objection
from tawa.passes.lower.emit import Emitter, erase, replace, retype

_TURN = int_array((1, 0))


def swap_operands(lowering: Lowering, role: hopper.Role) -> None:
    """Turn the products of `role` that wgmma takes only the other way round."""
    swapped = False
    for dot in all_of(role, tile.Dot):
        product = facts_of(lowering, dot, role.warps.data)
        objection = wgmma_objection(product)
        if objection and not wgmma_objection(_swapped(product)):
            lowering.note(f"{name_of(dot)} as written", f"{objection}; operands are swapped")
            _swap(dot)
            swapped = True
    if swapped:
        _transpose_carried(role.body.block)


def _swapped(product: Product) -> Product:
    a, b = product.b, product.a
    return dataclasses.replace(product, m=product.n, n=product.m, a=a, b=b)


def _swap(dot: tile.Dot) -> None:
    emitter = Emitter.before(dot)
    a, b, acc = (_transpose(emitter, value) for value in (dot.b, dot.a, dot.acc))
    made = emitter.put(tile.Dot.make(a, b, acc, results=[acc.type], attributes=dot.attributes))
    made.result.name_hint = dot.result.name_hint
    replace(dot, [_transpose(emitter, made.result)])


def _transposed_type(kind: Attribute) -> Attribute:
    return with_shape(tuple(reversed(shape_of(kind))), element_type(kind))


def _transpose(emitter: Emitter, value: SSAValue) -> SSAValue:
    """Return the transpose of a matrix; of a transpose, what it was made of."""
    match value.owner:
        case tile.Transpose(permutation=permutation) as above if permutation == _TURN:
            return above.value
        case tile.Constant() as constant:
            swapped = tile.Constant.make(
                results=[_transposed_type(value.type)], attributes=constant.attributes
            )
            return Emitter.after(constant).put(swapped).result
        case _:
            return _transposed(emitter, value)


def _transposed(emitter: Emitter, value: SSAValue) -> SSAValue:
    kind = _transposed_type(value.type)
    return emitter.made(tile.Transpose, [value], kind, value.name_hint, permutation=_TURN)


def _is_turn(value: SSAValue) -> bool:
    return isinstance(value.owner, tile.Transpose) and value.owner.permutation == _TURN


# --- accumulators in loops and branches -----------------------------------------------------------


def _transpose_carried(block: Block) -> None:
    """Carry swapped what loops and branches carry to be swapped; innermost first."""
    for operation in list(block.ops):
        for region in operation.regions:
            for inner in region.blocks:
                _transpose_carried(inner)
        match operation:
            case scf.ForOp():
                for index in range(len(operation.results)):
                    _transpose_loop(operation, index)
            case scf.IfOp():
                for result in operation.results:
                    _transpose_branch(operation, result)
            case _:
                continue


def _transpose_loop(loop: scf.ForOp, index: int) -> None:
    argument, end = loop.body.block.args[index + 1], terminator(loop.body.block)
    uses = [use.operation for use in argument.uses]
    wanted = all(isinstance(use, tile.Transpose) and use.permutation == _TURN for use in uses)
    if not uses or not wanted or not _is_turn(end.operands[index]):
        return
    loop.operands[3 + index] = _transpose(Emitter.before(loop), loop.iter_args[index])
    _become_transposed(argument, Emitter.at_start(loop.body.block))
    end.operands[index] = _transpose(Emitter.before(end), end.operands[index])
    _become_transposed(loop.results[index], Emitter.after(loop))


def _transpose_branch(branch: scf.IfOp, result: OpResult) -> None:
    ends = [terminator(region.block) for region in branch.regions if region.blocks]
    if not any(_is_turn(end.operands[result.index]) for end in ends):
        return
    for end in ends:
        end.operands[result.index] = _transpose(Emitter.before(end), end.operands[result.index])
    _become_transposed(result, Emitter.after(branch))


def _become_transposed(value: BlockArgument | OpResult, emitter: Emitter) -> None:
    """Change a value to its transpose; users get it swapped back, or as it is if they transpose
    it.
    """
    users = [(use.operation, use.index) for use in value.uses]
    retype(value, _transposed_type(value.type))
    back: SSAValue | None = None
    for user, index in users:
        if isinstance(user, tile.Transpose) and user.permutation == _TURN:
            user.result.replace_all_uses_with(value)
            erase(user)
            continue
        back = back if back is not None else _transposed(emitter, value)
        user.operands[index] = back
