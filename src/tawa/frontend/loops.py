"""Loops: `scf.for`, `scf.while`, and loops that are unrolled here.

A loop carries the variables that its body assigns and that are read at the top of a later trip or
after the loop. Their types must not change; what no trip changes is not carried.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import reduce

from xdsl.dialects import scf
from xdsl.dialects.builtin import BoolAttr, IntAttr
from xdsl.ir import Attribute, Block, Region

from tawa.errors import TypeMismatch
from tawa.frontend import arithmetic
from tawa.frontend.calls import Trips
from tawa.frontend.context import Binding, Context
from tawa.frontend.expressions import evaluate
from tawa.frontend.liveness import assigned
from tawa.frontend.operators import static_items, truth
from tawa.frontend.promotion import promote_integers
from tawa.frontend.regions import Carried, take, types_of
from tawa.frontend.types import ir_scalar
from tawa.frontend.values import (
    Const,
    Tensor,
    Value,
    describe,
    leaves,
    name_value,
    rebuild,
    same_form,
)
from tawa.language.dtypes import dtype, int32, int64

Body = Callable[[Context, Sequence[ast.stmt]], None]


def run_for(c: Context, loop: ast.For, body: Body) -> None:
    """Compile a `for` loop; raises UnsupportedSyntax, TypeMismatch."""
    if loop.orelse:
        c.builder.place = c.frame.source.place(loop.orelse[0])
        raise c.unsupported("else after a loop", remedy="write it after the loop")
    over = evaluate(c, loop.iter)
    match over:
        case Const(value=Trips(static=False) as trips):
            if not isinstance(loop.target, ast.Name):
                raise c.unsupported("a loop over a range has one variable")
            _run_range(c, loop, loop.target.id, trips, body)
        case _:
            _unroll(c, loop, static_items(c, over), body)


def _unroll(c: Context, loop: ast.For, items: Sequence[Value], body: Body) -> None:
    """Compile the body once for each item; the variable stays a constant."""
    for item in items:
        match loop.target:
            case ast.Name(id=name):
                c.bind(name, item, loop.target)
            case ast.Tuple(elts=names) if len(parts := _parts(item)) == len(names):
                for target, part in zip(names, parts):
                    if isinstance(target, ast.Name):
                        c.bind(target.id, part, target)
            case _:
                raise c.unsupported(f"the loop's variables do not fit {describe(item)}")
        body(c, loop.body)


def _parts(item: Value) -> tuple[Value, ...]:
    return getattr(item, "items", ())


def _run_range(c: Context, loop: ast.For, target: str, trips: Trips, body: Body) -> None:
    start, end, step, kind = _bounds(c, trips)
    backwards = None
    if isinstance(trips.step, Const) and (arithmetic.as_number(trips.step) or 0) < 0:
        # scf.for counts up: run from the far end and mirror the index.
        start, end = end, start
        backwards = arithmetic.binary(c.builder, "+", start, end)
    names = _carried_names(c, loop)
    before, place = dict(c.frame.names), c.builder.place
    block = Block(arg_types=[ir_scalar(kind)])
    name_value(block.args[0], target)
    carried = _enter(c, names, block)
    with c.builder.into(block):
        index = Tensor(block.args[0])
        if backwards is not None:
            index = arithmetic.binary(c.builder, "-", backwards, index)
        index = _narrowed(c, index, trips, kind)
        c.bind(target, index, loop.target)
        _run_inside(c, loop.body, body)
    after = c.frame.names
    c.builder.place = place
    _yielded(c, loop, names, before, after, carried)
    left = carried.drop_invariant()
    block.add_op(scf.YieldOp(*take(carried.yielded, left)))
    made = scf.ForOp(start.ssa, end.ssa, step.ssa, take(carried.initial, left), block)
    made.attributes.update(_wishes(trips))
    c.builder.emit(made)
    _leave(c, loop, names, before, carried, dict(zip(left, made.results)))
    c.frame.names.pop(target, None)
    c.frame.ended[target] = index.type
    c.frame.gone[target] = f"it is the index of the loop at line {place.line}, which has ended"


def _bounds(c: Context, trips: Trips) -> tuple[Tensor, Tensor, Tensor, dtype]:
    """Return start, end and a positive step of one signless type, and that type."""
    step = arithmetic.as_number(trips.step)
    if step == 0:
        raise c.builder.error(TypeMismatch, "the step of this loop is 0", why="it never ends")
    size: Value = Const(abs(step)) if step is not None else trips.step
    values = [arithmetic.to_tensor(c.builder, v) for v in (trips.start, trips.end, size)]
    for value in values:
        if value.is_block or not value.dtype.is_int():
            raise c.builder.error(
                TypeMismatch,
                f"a bound of this loop is {describe(value)}",
                why="start, end and step are integer scalars",
            )
    kind = reduce(promote_integers, (value.dtype for value in values))
    if kind.is_int_unsigned() or kind.int_bitwidth < 32:
        # scf.for counts signed integers; 64 bits hold every uint32.
        kind = int64 if kind.is_int_unsigned() and kind.int_bitwidth >= 32 else int32
    start, end, width = (
        arithmetic.to_type(c.builder, v, kind) for v in (trips.start, trips.end, size)
    )
    return start, end, width, kind


def _narrowed(c: Context, index: Tensor, trips: Trips, kind: dtype) -> Tensor:
    """Give the index the type Triton gives it: that of the bounds."""
    values = (trips.start, trips.end, trips.step)
    kinds = [value.dtype for value in values if isinstance(value, Tensor)]
    natural = reduce(promote_integers, kinds, int32) if kinds else int32
    return arithmetic.cast(c.builder, index, natural) if natural != kind else index


def _wishes(trips: Trips) -> dict[str, Attribute]:
    """Return what the author wished for the loop, as attributes; unset ones are left out."""
    found: dict[str, Attribute] = {}
    for name, wish in trips.wishes.items():
        if isinstance(wish, bool):
            found |= {name: BoolAttr.from_bool(True)} if wish else {}
        elif isinstance(wish, int):
            found[name] = IntAttr(wish)
    return found


def _carried_names(c: Context, loop: ast.For | ast.While) -> list[str]:
    needed = c.frame.live.head.get(loop, frozenset()) | c.frame.live.after[loop]
    wanted = assigned(loop.body) & needed
    if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
        wanted -= {loop.target.id}
    return [name for name in c.frame.names if name in wanted]


def _enter(c: Context, names: Sequence[str], *blocks: Block) -> Carried:
    """Add block arguments for the carried variables and bind them to those of the last block."""
    initial = [leaf for name in names for leaf in leaves(c.frame.names[name].value)]
    arguments = [
        [block.insert_arg(leaf.type, len(block.args)) for block in blocks] for leaf in initial
    ]
    c.frame.names = dict(c.frame.names)
    _bind_arguments(c, names, [group[-1] for group in arguments])
    return Carried(initial, arguments, [])


def _bind_arguments(c: Context, names: Sequence[str], arguments: Sequence[object]) -> None:
    source = iter(arguments)
    for name in names:
        binding = c.frame.names[name]
        value = rebuild(binding.value, source)  # pyright: ignore[reportArgumentType]
        for leaf in leaves(value):
            name_value(leaf, name)
        c.frame.names[name] = Binding(value, binding.place)


def _run_inside(c: Context, statements: Sequence[ast.stmt], body: Body) -> None:
    outer, c.frame.loop = c.frame.loop, c.builder.place
    body(c, statements)
    c.frame.loop = outer


def _yielded(
    c: Context,
    loop: ast.For | ast.While,
    names: Sequence[str],
    before: dict[str, Binding],
    after: dict[str, Binding],
    carried: Carried,
) -> None:
    """Check that the body keeps the types, and note what it hands to the next trip."""
    for name in names:
        if name not in after:
            raise c.builder.error(
                TypeMismatch,
                f"{name} may have no value at the end of this loop's body",
                why=c.frame.gone.get(name, ""),
                remedy="assign it on every path",
            )
        old, new = before[name], after[name]
        if not same_form(old.value, new.value):
            raise _changes_type(c, loop, name, old, new)
        carried.yielded.extend(leaves(new.value))


def _changes_type(
    c: Context, loop: ast.For | ast.While, name: str, old: Binding, new: Binding
) -> TypeMismatch:
    line = c.frame.source.place(loop).line
    c.builder.place = new.place
    return c.builder.error(
        TypeMismatch,
        f"{name} changes its type in the loop at line {line}: {describe(old.value)} before, "
        f"{describe(new.value)} after a trip",
        why=f"line {old.place.line} makes it {describe(old.value)}, line {new.place.line} "
        f"{describe(new.value)}; a variable has one type in all trips",
        remedy="start with a value of the final type, or cast with `.to(...)` at the end of "
        "the body",
    )


def _leave(
    c: Context,
    loop: ast.For | ast.While,
    names: Sequence[str],
    before: dict[str, Binding],
    carried: Carried,
    results: dict[int, object],
) -> None:
    """Bind the carried variables to the loop's results, and forget what only the body knew."""
    inner = c.frame.names
    c.frame.names = dict(before)
    values = [results.get(i, initial) for i, initial in enumerate(carried.initial)]
    _bind_results(c, names, values, inner)
    line = c.frame.source.place(loop).line
    for name in assigned(loop.body) - set(before):
        c.frame.gone[name] = (
            f"it is assigned only inside the loop at line {line}, which may run no trip"
        )


def _bind_results(
    c: Context, names: Sequence[str], values: Sequence[object], inner: dict[str, Binding]
) -> None:
    source = iter(values)
    for name in names:
        binding = c.frame.names[name]
        value = rebuild(binding.value, source)  # pyright: ignore[reportArgumentType]
        for leaf in leaves(value):
            name_value(leaf, name)
        c.frame.names[name] = Binding(value, inner[name].place)


def run_while(c: Context, loop: ast.While, body: Body) -> None:
    """Compile a `while` loop; raises UnsupportedSyntax, TypeMismatch."""
    if loop.orelse:
        c.builder.place = c.frame.source.place(loop.orelse[0])
        raise c.unsupported("else after a loop", remedy="write it after the loop")
    names = _carried_names(c, loop)
    before, place = dict(c.frame.names), c.builder.place
    test, block = Block(), Block()
    carried = _enter(c, names, block, test)
    with c.builder.into(test):
        condition = truth(c, evaluate(c, loop.test))
    if isinstance(condition, bool):
        if condition:
            raise c.unsupported(
                "a loop that never ends",
                why="its condition is a constant, and a kernel has no break",
                remedy="write the condition of leaving into the while",
            )
        c.frame.names = before
        return
    _bind_arguments(c, names, [group[0] for group in carried.arguments])
    with c.builder.into(block):
        _run_inside(c, loop.body, body)
    after = c.frame.names
    c.builder.place = place
    _yielded(c, loop, names, before, after, carried)
    left = carried.drop_invariant()
    test.add_op(scf.ConditionOp(condition.ssa, *test.args))
    block.add_op(scf.YieldOp(*take(carried.yielded, left)))
    initial = take(carried.initial, left)
    made = scf.WhileOp(initial, types_of(initial), Region([test]), Region([block]))
    c.builder.emit(made)
    _leave(c, loop, names, before, carried, dict(zip(left, made.results)))
