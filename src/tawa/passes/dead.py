"""Purpose: drop statements, and values carried by loops, that no statement with effect needs.

Before -> after::

    %a, %n = scf.for %k = .. (%x = .., %y = ..) {      %n = scf.for %k = .. (%y = ..) {
      %x2 = tile.dot .., %x                              %y2 = "add"(%y, ..)
      %y2 = "add"(%y, ..)                        ->      scf.yield %y2
      scf.yield %x2, %y2                               }
    }
    tile.store .., %n                                  tile.store .., %n

Requires: any level of IR. Ensures: what is left is needed, values carried round a loop for
themselves alone included. A loop without effect whose results are unused is gone: kernels are not
kept alive by waiting for ever.
Declines: never.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.liveness import Keep, Liveness
from tawa.analysis.statements import CONTROL
from tawa.ir.walk import home_of, is_terminator, operations_of, terminator


def sweep(block: Block, keep: Keep) -> None:
    """Drop from `block` all that no statement chosen by `keep` needs.

    `keep` is asked for statements that hold no others; loops and branches live for what is inside.
    """
    live = Liveness()
    live.mark_roots(block, keep)
    live.close()
    _erase_dead(block, live)


def _erase_dead(block: Block, live: Liveness) -> None:
    for operation in reversed(operations_of(block)):
        if is_terminator(operation):
            continue
        if operation not in live.operations:
            _drop(operation)
            continue
        if not (operation.regions and type(operation) in CONTROL):
            continue
        for region in operation.regions:
            for inner in region.blocks:
                _prune_ends(operation, inner, live)
                _erase_dead(inner, live)
        _prune(operation, live)


def _drop(operation: Operation) -> None:
    """Erase an operation whose results only dead statements, erased before it, have used."""
    operation.detach()
    operation.erase()


def _kept(values: Sequence[SSAValue], live: Liveness) -> list[int]:
    return [index for index, value in enumerate(values) if value in live.values]


def _prune_ends(operation: Operation, block: Block, live: Liveness) -> None:
    """Drop from a block's terminator the operands whose result or argument is dead."""
    end = terminator(block)
    match operation:
        case scf.WhileOp() if block is operation.before_region.block:
            kept = [0, *(index + 1 for index in _kept(operation.results, live))]
        case scf.WhileOp():
            kept = _kept(operation.before_region.block.args, live)
        case _:
            kept = _kept(operation.results, live)
    if len(kept) < len(end.operands):
        end.operands = [end.operands[index] for index in kept]


def _prune(operation: Operation, live: Liveness) -> None:
    """Rebuild a control operation without its dead results and carried values."""
    match operation:
        case scf.ForOp():
            kept = _kept(operation.results, live)
            if len(kept) == len(operation.results):
                return
            _erase_arguments(operation.body.block, [0, *(index + 1 for index in kept)])
            inits = [operation.iter_args[index] for index in kept]
            body = operation.detach_region(0)
            new = scf.ForOp(operation.lb, operation.ub, operation.step, inits, body)
        case scf.IfOp():
            kept = _kept(operation.results, live)
            if len(kept) == len(operation.results):
                return
            types = [operation.results[index].type for index in kept]
            yes, no = operation.detach_region(0), operation.detach_region(0)
            new = scf.IfOp(operation.cond, types, yes, no)
        case scf.WhileOp():
            kept = _kept(operation.results, live)
            carried = _kept(operation.before_region.block.args, live)
            if len(kept) == len(operation.results) and len(carried) == len(operation.arguments):
                return
            _erase_arguments(operation.before_region.block, carried)
            _erase_arguments(operation.after_region.block, kept)
            inits = [operation.arguments[index] for index in carried]
            types = [operation.results[index].type for index in kept]
            before, after = operation.detach_region(0), operation.detach_region(0)
            new = scf.WhileOp(inits, types, before, after)
        case _:
            raise TypeError(f"{operation.name} is no control operation")
    replace_control(operation, new, kept)


def _erase_arguments(block: Block, kept: list[int]) -> None:
    for index in reversed(range(len(block.args))):
        if index not in kept:
            block.erase_arg(block.args[index])


def replace_control(old: Operation, new: Operation, kept: Sequence[int]) -> None:
    """Put `new` where `old` stands; its first results are those of `old` at the indices `kept`."""
    new.attributes.update(old.attributes)
    new.location = old.location
    block = home_of(old)
    block.insert_op_before(new, old)
    for index, result in zip(kept, new.results):
        result.name_hint = old.results[index].name_hint
        old.results[index].replace_all_uses_with(result)
    _drop(old)
