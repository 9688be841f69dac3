"""Loops, branches, and the assignments that carry values through them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.statements import CONTROL, WRITES, children, is_volatile
from tawa.codegen.elements import element_of
from tawa.codegen.emit.copies import windows_before
from tawa.codegen.emit.emitter import (
    Array,
    Emitter,
    Mapped,
    Scalar,
    Tensor,
    Uniform,
    atom,
    variable_type,
)
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, is_tensor, layout_of
from tawa.ir.walk import all_of, has, terminator

# A loop that waits or issues asynchronous work is not unrolled: its body is large, its iterations
# long.
_ASYNCHRONOUS = (hopper.Wait, hopper.Wgmma, hopper.TmaLoad, hopper.TmaStore, hopper.NamedBarrier)

_ON_THE_WAY = 16
"""Registers of a thread that fill together: as many iterations as read so many are unrolled."""
_TEXT = 512
"""Statements of so many iterations at most: what a loop executes is to stay in the cache."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One variable that gets a new value."""

    name: str
    kind: str
    text: str
    reads: frozenset[str]


def assign(e: Emitter, items: Sequence[Assignment]) -> None:
    """Write assignments that happen at once: none sees another's new value."""
    pending = [item for item in items if item.text != item.name]
    while pending:
        free = next(
            (
                item
                for item in pending
                if not any(item.name in other.reads for other in pending if other is not item)
            ),
            None,
        )
        if free is not None:
            e.line(f"{free.name} = {free.text};")
            pending.remove(free)
            continue
        first = pending[0]
        saved = e.names.fresh(f"{first.name}_old")
        e.line(f"const {first.kind} {saved} = {first.name};")
        pending = [_substituted(item, first.name, saved) for item in pending]


def _substituted(item: Assignment, old: str, new: str) -> Assignment:
    text = re.sub(rf"\b{re.escape(old)}\b", new, item.text)
    return replace(item, text=text, reads=item.reads - {old})


def _array_of(tensor: Tensor) -> str:
    """Return the name of the array a tensor reads, empty for constants."""
    match tensor:
        case Array():
            return tensor.name
        case Mapped():
            return _array_of(tensor.inner)
        case _:
            return ""


def _with_array(tensor: Tensor, new: Array) -> Tensor:
    match tensor:
        case Mapped():
            return replace(tensor, inner=_with_array(tensor.inner, new))
        case _:
            return new


def assign_tensors(e: Emitter, pairs: Sequence[tuple[Array, Tensor]]) -> None:
    """Copy tensors at once, through a temporary where they exchange places."""
    pending: list[tuple[Array, Tensor]] = [pair for pair in pairs if pair[0] != pair[1]]
    while pending:
        free = next(
            (
                pair
                for pair in pending
                if not any(
                    _array_of(source) == pair[0].name
                    for target, source in pending
                    if target is not pair[0]
                )
                and not (isinstance(pair[1], Mapped) and _array_of(pair[1]) == pair[0].name)
            ),
            None,
        )
        if free is not None:
            e.copy(*free)
            pending.remove(free)
            continue
        victim = pending[0][0]
        saved = e.temporary(victim, f"{victim.name}_old")
        e.copy(saved, victim)
        pending = [
            (target, _with_array(source, saved) if _array_of(source) == victim.name else source)
            for target, source in pending
        ]


def carry(e: Emitter, targets: Sequence[SSAValue], sources: Sequence[SSAValue]) -> None:
    """Assign loop-carried or yielded values to the variables of `targets`."""
    tensors: list[tuple[Array, Tensor]] = []
    scalars: list[Assignment] = []
    for target, source in zip(targets, sources, strict=True):
        if is_tensor(target):
            tensors.append((_bound_array(e, target), e.tensor(source)))
            continue
        variable, value = e.scalar(target), e.scalar(source)
        scalars.append(
            Assignment(variable.text, variable_type(variable.element), value.text, value.reads)
        )
    assign_tensors(e, tensors)
    assign(e, scalars)


def _bound_array(e: Emitter, value: SSAValue) -> Array:
    found = e.tensor(value)
    if not isinstance(found, Array):
        raise InternalError(f"a carried tensor without an array: {value.type}")
    return found


def variables(e: Emitter, values: Sequence[SSAValue]) -> None:
    """Declare scalar variables for values assigned in several places; bind tensors' arrays."""
    for value in values:
        if is_tensor(value):
            e.array(value)
            continue
        element = element_of(value.type)
        name = e.fresh(value)
        e.line(f"{variable_type(element)} {name};")
        e.bind(value, Scalar(name, element, frozenset({name})))


def loop_variables(e: Emitter, arguments: Sequence[SSAValue], start: Sequence[SSAValue]) -> None:
    """Declare loop-carried variables with their first values."""
    tensors: list[tuple[Array, Tensor]] = []
    bound: list[tuple[SSAValue, Scalar]] = []
    for argument, value in zip(arguments, start, strict=True):
        if is_tensor(argument):
            tensors.append((e.array(argument), e.tensor(value)))
            continue
        element = element_of(argument.type)
        name = e.fresh(argument)
        e.line(f"{variable_type(element)} {name} = {e.scalar(value).text};")
        bound.append((argument, Scalar(name, element, frozenset({name}))))
    assign_tensors(e, tensors)
    for argument, value in zip(arguments, start, strict=True):
        if is_tensor(argument) and e.storage.accumulates(argument):
            _settle(e, argument, value)
    for argument, scalar in bound:
        e.bind(argument, scalar)


def _settle(e: Emitter, argument: SSAValue, value: SSAValue) -> None:
    """Pin an accumulator's first constants, or ptxas writes them between products (C7515)."""
    if isinstance(e.tensor(value), Uniform):
        e.pin(_bound_array(e, argument))


def _settled(scalar: Scalar) -> Scalar:
    """A loop's variable after the loop: nothing changes it any more."""
    return replace(scalar, reads=frozenset())


def _together(loop: scf.ForOp) -> int:
    """Return how many iterations of a loop are written at once, so that what they read is on its
    way together: one where an iteration reads much, or nothing, or keeps the next loads behind it.
    """
    statements = list(children(loop))
    loads = [op for op in all_of(loop, tile.Load) if is_tensor(op.result)]
    behind = any(isinstance(op, (*WRITES, *CONTROL)) for op in statements)
    if not loads or behind or any(map(is_volatile, loads)):
        return 1
    kinds = [load.result.type for load in loads]
    bits = [layout_of(k).register_count * max(8, bit_width(element_type(k))) for k in kinds]
    return min(32 * _ON_THE_WAY // sum(bits), _TEXT // len(statements))


def for_loop(e: Emitter, op: scf.ForOp) -> None:
    """Write scf.for as a C++ for loop over an int."""
    with windows_before(e, op):
        _for_loop(e, op)


def _for_loop(e: Emitter, op: scf.ForOp) -> None:
    body = op.body.block
    induction, *arguments = body.args
    loop_variables(e, arguments, list(op.iter_args))
    element = element_of(induction.type)
    index = e.fresh(induction, "i")
    e.bind(induction, Scalar(index, element))
    first, last, step = (e.scalar(value).text for value in (op.lb, op.ub, op.step))
    advance = f"++{index}" if step in ("1", "1ll") else f"{index} += {step}"
    if has(op, *_ASYNCHRONOUS):
        e.line("#pragma unroll 1")
    elif (together := _together(op)) > 1:
        e.line(f"#pragma unroll {together}")
    head = f"for ({element.storage} {index} = {first}; {index} < {atom(last)}; {advance})"
    with e.block(head):
        e.run(body)
        carry(e, arguments, list(terminator(body).operands))
    _bind_results(e, op.results, arguments)


def _bind_results(e: Emitter, results: Sequence[SSAValue], variables_: Sequence[SSAValue]) -> None:
    for result, variable in zip(results, variables_, strict=True):
        found = e.values[variable]
        if is_tensor(result) and e.storage.same(result, variable):
            e.bind(result, found)
        elif is_tensor(result):
            e.copy(e.array(result), e.tensor(variable))
        elif isinstance(found, Scalar):
            e.bind(result, _settled(found))


def if_else(e: Emitter, op: scf.IfOp) -> None:
    """Write scf.if; its results are variables assigned in both branches."""
    results = list(op.results)
    variables(e, results)
    then, other = op.true_region.block, op.false_region.blocks
    with e.block(f"if ({e.scalar(op.cond).text})"):
        _branch(e, then, results)
    if other and (results or _busy(other[0])):
        with e.otherwise():
            _branch(e, other[0], results)
    _settle_all(e, results)


def _settle_all(e: Emitter, results: Sequence[SSAValue]) -> None:
    for result in results:
        found = e.values[result]
        if isinstance(found, Scalar):
            e.bind(result, _settled(found))


def _busy(block: Block) -> bool:
    return len(list(block.ops)) > 1


def _branch(e: Emitter, block: Block, results: Sequence[SSAValue]) -> None:
    e.run(block)
    if results:
        carry(e, results, list(terminator(block).operands))


def while_loop(e: Emitter, op: scf.WhileOp) -> None:
    """Write scf.while: test at the top, leave by break."""
    test, body = op.before_region.block, op.after_region.block
    arguments, condition = list(test.args), terminator(test)
    kept = [place for place, item in enumerate(op.results) if is_tensor(item) or item.first_use]
    results = [op.results[place] for place in kept]
    variables(e, results)
    loop_variables(e, arguments, list(op.arguments))
    with e.block("while (true)"):
        e.run(test)
        flag, *passed = condition.operands
        with e.block(f"if (!{atom(e.scalar(flag).text)})"):
            carry(e, results, [passed[place] for place in kept])
            e.line("break;")
        for argument, value in zip(body.args, passed, strict=True):
            _pass(e, argument, value)
        e.run(body)
        carry(e, arguments, list(terminator(body).operands))
    _settle_all(e, results)


def _pass(e: Emitter, argument: SSAValue, value: SSAValue) -> None:
    """Give a value of a while loop's test to its body."""
    if is_tensor(argument) and not e.storage.same(argument, value):
        e.copy(e.array(argument), e.tensor(value))
        return
    e.bind(argument, e.values[value])


def nothing(e: Emitter, op: Operation) -> None:
    """Write nothing: terminators are read by the operation around them."""


RULES = {
    scf.ForOp: for_loop,
    scf.IfOp: if_else,
    scf.WhileOp: while_loop,
    scf.YieldOp: nothing,
    tile.Yield: nothing,
    scf.ConditionOp: nothing,
}
