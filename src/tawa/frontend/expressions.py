"""Expressions of a kernel: Python's rules on constants, tile operations on everything else.

Indexing: ``x[:, None]`` on tensors, positions and slices on tuples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.ir import Block

from tawa.errors import UnknownName
from tawa.frontend.attributes import get_attribute
from tawa.frontend.calls import call, refuse_missing, with_field
from tawa.frontend.context import Context
from tawa.frontend.liveness import writes
from tawa.frontend.names import NotConstant, lift, resolve
from tawa.frontend.operators import binary, both, compare, static_items, truth, unary
from tawa.ir.build import arithmetic
from tawa.ir.build.binding import suggest
from tawa.ir.build.operations.shapes import new_axes
from tawa.ir.build.regions import emit_if, only_computes, splice
from tawa.ir.build.values import (
    Const,
    Instance,
    Tensor,
    Tuple,
    Value,
    describe,
    known,
    leaves,
    rebuild,
    same_form,
)


def evaluate(c: Context, node: ast.expr) -> Value:
    """Compile an expression; raises the errors of `tawa.errors` at its place."""
    with c.builder.at(c.frame.source.place(node)):
        return _evaluate(c, node)


def _evaluate(c: Context, node: ast.expr) -> Value:
    match node:
        case ast.Constant():
            return lift(node.value)
        case ast.Name():
            return _name(c, node)
        case ast.Attribute():
            return get_attribute(c, evaluate(c, node.value), node.attr)
        case ast.Subscript():
            return subscript(c, evaluate(c, node.value), _index(c, node.slice))
        case ast.BinOp():
            return binary(c, node.op, evaluate(c, node.left), evaluate(c, node.right))
        case ast.UnaryOp():
            return unary(c, node.op, evaluate(c, node.operand))
        case ast.BoolOp():
            return _boolean(c, node)
        case ast.Compare():
            return _comparison(c, node)
        case ast.IfExp():
            return _choice(c, node)
        case ast.Call():
            return _call(c, node)
        case ast.Tuple() | ast.List():
            return Tuple(tuple(_elements(c, node.elts)))
        case ast.JoinedStr():
            return Const("".join(_formatted(c, part) for part in node.values))
        case ast.ListComp() | ast.GeneratorExp():
            return _comprehension(c, node)
        case ast.NamedExpr():
            value = as_variable(c, evaluate(c, node.value), node.target.id)
            c.bind(node.target.id, value, node.target)
            return value
        case _:
            raise c.unsupported(
                f"{_DESCRIPTIONS.get(type(node), type(node).__name__)} cannot stand in a kernel",
                why="the tile language has Python's operators, calls, indexing and tuples",
                remedy=_REMEDIES.get(
                    type(node), "compute it in host code and pass the result as an argument"
                ),
            )


_DESCRIPTIONS: dict[type[ast.expr], str] = {
    ast.Lambda: "a lambda",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.DictComp: "a dictionary comprehension",
    ast.SetComp: "a set comprehension",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Await: "await",
    ast.Starred: "a starred expression",
}
_REMEDIES: dict[type[ast.expr], str] = {
    ast.Lambda: "write it as a function of the module, with @tawa.jit",
}


def as_variable(c: Context, value: Value, name: str = "") -> Value:
    """Turn numbers into typed scalars, as assigning them to a variable does in Triton: but the next
    value of a `name` that was declared a constexpr stays one.
    """
    if c.frame.names.pop(declared(name), None) is not None:
        return known(value)
    match value:
        case Const(value=bool() | int() | float()):
            return arithmetic.to_tensor(c.builder, value)
        case Tuple():
            return Tuple(tuple(as_variable(c, item) for item in value.items), value.fields)
        case _:
            return value


def declared(name: str) -> str:
    """Return what stands among the variables while ``name: tl.constexpr`` has no value yet."""
    return f"{name}: tl.constexpr"


def named_by(c: Context, target: ast.expr, value: Value) -> Iterator[tuple[ast.Name, Value]]:
    """Give each name of a target with the part of the value that it takes."""
    c.builder.place = c.frame.source.place(target)
    match target:
        case ast.Name():
            yield target, value
        case ast.Tuple() | ast.List():
            starred = (each for each in target.elts if isinstance(each, ast.Starred))
            if (each := next(starred, None)) is not None:
                c.builder.place = c.frame.source.place(each)
                raise c.unsupported(
                    "a starred name cannot take the rest of a tuple",
                    why="the language has no starred targets, as Triton's",
                    remedy="take a slice, as in rest = items[1:]",
                )
            if not isinstance(value, Tuple) or len(value.items) != len(target.elts):
                raise c.builder.mismatch(
                    f"{len(target.elts)} names cannot take {describe(value)}",
                    why="unpacking needs a tuple with one item for each name",
                )
            for each, item in zip(target.elts, value.items):
                yield from named_by(c, each, item)
        case ast.Attribute(value=ast.Name(id=name) as owner, attr=field) if name == c.frame.made:
            yield owner, with_field(c, c.frame.names[name].value, field, value)
        case _:
            raise c.unsupported(
                "only names can be assigned to",
                why="tensors, descriptors and aggregates are values: no part of one can be changed",
                remedy="use tl.where to change elements, tl.store to write memory, and "
                "tl.aggregate_replace for a copy of an aggregate",
            )


def _now_and_then(c: Context, node: ast.expr) -> Value:
    """Compile a part of an expression that is not always computed: names assigned in it have no
    value after it.
    """
    value = evaluate(c, node)
    for name in writes(node):
        if c.frame.names.pop(name, None) is not None:
            c.frame.gone[name] = "it is assigned where an expression is not always computed"
    return value


def _name(c: Context, node: ast.Name) -> Value:
    if (binding := c.frame.names.get(node.id)) is not None:
        return binding.value
    if (reason := c.frame.gone.get(node.id)) is not None:
        error = c.builder.error(
            UnknownName,
            f"{node.id} has no value here",
            why=reason,
            remedy=f"give {node.id} a value before, of the same type",
        )
        if (kind := c.frame.ended.get(node.id)) is None:
            raise error
        return c.builder.missing(kind, error)
    try:
        found = resolve(c.frame.source, node.id)
    except NotConstant as error:
        raise c.builder.error(
            UnknownName,
            f"the global {node.id} is not a compile-time constant",
            why=f"a kernel reads globals when it is compiled: {error}",
            remedy=f"write {node.id} = tl.constexpr(...), or pass it as an argument",
        ) from None
    if found is None:
        raise c.builder.error(
            UnknownName,
            f"{node.id} is not defined",
            why=f"it is no variable of {c.frame.source.name}, no global and no builtin",
            remedy=suggest(
                node.id,
                (*c.frame.names, *c.frame.source.function.__globals__),
                "give it a value before, or pass it as an argument",
            ),
        )
    return found


def _elements(c: Context, nodes: Sequence[ast.expr]) -> list[Value]:
    values: list[Value] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            values.append(evaluate(c, node))
            continue
        values.extend(_items(c, evaluate(c, node.value)))
    return values


def _items(c: Context, value: Value) -> tuple[Value, ...]:
    if isinstance(value, Tuple):
        return value.items
    raise c.builder.mismatch(f"a tuple is needed here, this is {describe(value)}")


def _index(c: Context, node: ast.expr) -> Value:
    """Compile what stands between brackets; a slice becomes a constant Python slice."""
    match node:
        case ast.Slice():
            bounds = [
                None if part is None else _constant(c, part)
                for part in (node.lower, node.upper, node.step)
            ]
            return Const(slice(*bounds))
        case ast.Tuple():
            return Tuple(tuple(_index(c, part) for part in node.elts))
        case _:
            return evaluate(c, node)


def _constant(c: Context, node: ast.expr) -> object:
    value = known(evaluate(c, node))
    if isinstance(value, Const):
        return value.value
    raise c.builder.mismatch(
        f"a slice bound must be a compile-time constant, this is {describe(value)}",
        why="the shape of every tensor is known when the kernel is compiled",
    )


def _boolean(c: Context, node: ast.BoolOp) -> Value:
    conjunction = isinstance(node.op, ast.And)
    value: Value = Const(conjunction)
    for index, operand in enumerate(node.values):
        value = evaluate(c, operand)
        if isinstance(value, (Const, Tuple)):
            if truth(c, value) is not conjunction:
                return value
            continue
        rest = node.values[index + 1 :]
        return _run_time_boolean(c, node, value, rest) if rest else value
    return value


def _run_time_boolean(
    c: Context, node: ast.BoolOp, first: Value, rest: Sequence[ast.expr]
) -> Value:
    """Join a run-time truth value with the operands after it.

    On tensors both sides are computed. On scalars too while the right side only computes; if it
    reads memory it stands under an `if`, since the left side may be its guard.
    """
    later = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, list(rest))
    ast.copy_location(later, rest[0])
    conjunction = isinstance(node.op, ast.And)
    if isinstance(first, Tensor) and first.is_block:
        one, other = (arithmetic.to_bool(c.builder, v) for v in (first, evaluate(c, later)))
        return arithmetic.binary(c.builder, "&" if conjunction else "|", one, other)
    left = arithmetic.to_bool(c.builder, first)
    block = Block()
    with c.builder.into(block):
        right = arithmetic.to_bool(c.builder, _now_and_then(c, later))
    if only_computes(block):
        splice(c.builder, block)
        return arithmetic.binary(c.builder, "&" if conjunction else "|", left, right)
    short = Block()
    with c.builder.into(short):
        known = c.builder.constant(not conjunction, arithmetic.int1)
    sides = [(block, [right.ssa]), (short, [known.ssa])]
    if not conjunction:
        sides.reverse()
    return Tensor(emit_if(c.builder, left, *sides)[0])


def _choice(c: Context, node: ast.IfExp) -> Value:
    condition = truth(c, evaluate(c, node.test))
    if isinstance(condition, bool):
        return evaluate(c, node.body if condition else node.orelse)
    blocks, sides = (Block(), Block()), list[Value]()
    for block, side in zip(blocks, (node.body, node.orelse)):
        with c.builder.into(block):
            value = _now_and_then(c, side)
            number = arithmetic.as_number(value)
            sides.append(value if number is None else arithmetic.to_tensor(c.builder, value))
    then, other = sides
    if not same_form(then, other):
        raise c.builder.mismatch(
            f"the two sides of this choice differ: {describe(then)} and {describe(other)}",
            why="the condition is known only at run time, so both sides must have one type",
            remedy="cast one side with `.to(...)`",
        )
    pure = all(map(only_computes, blocks))
    if isinstance(then, Tensor) and isinstance(other, Tensor) and not then.is_block and pure:
        for block in blocks:
            splice(c.builder, block)
        return c.builder.elementwise("select", condition, then, other)
    results = emit_if(
        c.builder, condition, (blocks[0], list(leaves(then))), (blocks[1], list(leaves(other)))
    )
    return rebuild(then, iter(results))


def _comparison(c: Context, node: ast.Compare) -> Value:
    left = evaluate(c, node.left)
    result: Value | None = None
    for kind, operand in zip(node.ops, node.comparators):
        right = evaluate(c, operand)
        step = compare(c, kind, left, right)
        result = step if result is None else both(c, result, step)
        left = right
    return result if result is not None else Const(True)


def _call(c: Context, node: ast.Call) -> Value:
    function = evaluate(c, node.func)
    refuse_missing(c, function)
    positional = _elements(c, node.args)
    named: dict[str, Value] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise c.unsupported(
                "**arguments cannot stand in a kernel", remedy="write the arguments by name"
            )
        if keyword.arg not in ("_semantic", "_builder"):
            # What Triton's compiler hands to its own functions, and wrappers pass on: it is None.
            named[keyword.arg] = evaluate(c, keyword.value)
    return call(c, function, positional, named)


def _formatted(c: Context, node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if not isinstance(node, ast.FormattedValue):
        raise c.unsupported("this part of an f-string cannot stand in a kernel")
    value = _plain(evaluate(c, node.value))
    if isinstance(value, Tensor):
        raise c.builder.mismatch(
            f"an f-string is made at compile time, and this is {describe(value)}",
            remedy="use tl.device_print for values of the run",
        )
    if node.conversion > 0:
        value = {"r": repr, "s": str, "a": ascii}[chr(node.conversion)](value)
    layout = node.format_spec
    pattern = "".join(_formatted(c, part) for part in layout.values) if layout else ""  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
    try:
        return format(value, pattern)
    except (TypeError, ValueError) as error:
        raise c.builder.mismatch(
            f"{describe(lift(value))} has no format {pattern!r}",
            why=str(error),
            remedy="change the part after the colon",
        ) from None


def _plain(value: Value) -> object:
    """Return the Python value of a constant, tuples included; a tensor stays what it is."""
    match value:
        case Const():
            return value.value
        case Tuple():
            return tuple(_plain(item) for item in value.items)
        case _:
            return value


def _comprehension(c: Context, node: ast.ListComp | ast.GeneratorExp) -> Value:
    generator = node.generators[0]
    if len(node.generators) > 1:
        raise c.unsupported(
            "a comprehension over several sequences cannot stand in a kernel",
            remedy="use one `for`",
        )
    made, before = list[Value](), dict(c.frame.names)
    for item in static_items(c, evaluate(c, generator.iter)):
        for name, part in named_by(c, generator.target, item):
            c.bind(name.id, part, name)
        if all(_decided(c, test) for test in generator.ifs):
            made.append(evaluate(c, node.elt))
    for name in writes(generator.target):
        c.frame.names.pop(name, None)
        if name in before:
            c.frame.names[name] = before[name]
    return Tuple(tuple(made))


def _decided(c: Context, test: ast.expr) -> bool:
    decided = truth(c, known(evaluate(c, test)))
    if isinstance(decided, bool):
        return decided
    raise c.builder.mismatch(
        f"the condition of a comprehension is {describe(decided)}",
        why="how many items it has is known when the kernel is compiled",
        remedy="take all items, and choose with tl.where",
    )


# --- subscripts -----------------------------------------------------------------------------------


def subscript(c: Context, value: Value, index: Value) -> Value:
    """Index a tensor with None, ``:`` and ``...``, or a tuple with a constant; TypeMismatch."""
    match value, index:
        case Instance(), _:
            return call(c, get_attribute(c, value, "__getitem__"), [index], {})
        case Tensor(), _:
            return _new_axes(c, value, index)
        case Tuple(), Const():
            return _tuple_item(c, value, index.value)
        case Const(), Const():
            return _constant_item(c, value.value, index.value)
        case _:
            raise c.builder.mismatch(
                f"{describe(value)} cannot be indexed by {describe(index)}",
                why="tuples are indexed by compile-time integers, tensors by None and `:`",
            )


def _tuple_item(c: Context, value: Tuple, position: Any) -> Value:
    if isinstance(position, slice):
        return Tuple(tuple(value.items[position]))
    if isinstance(position, int) and -len(value.items) <= position < len(value.items):
        return value.items[position]
    raise c.builder.mismatch(
        f"{position!r} is no position of a tuple of {len(value.items)}",
        why="tuples are indexed by compile-time integers and slices",
    )


def _constant_item(c: Context, value: Any, index: Any) -> Value:
    try:
        return lift(value[index])
    except (TypeError, KeyError, IndexError) as error:
        raise c.builder.mismatch(
            f"{value!r}[{index!r}] has no value", why=f"Python says: {error}"
        ) from None


def _new_axes(c: Context, value: Tensor, index: Value) -> Tensor:
    marks = index.items if isinstance(index, Tuple) else (index,)
    return new_axes(c, value, [mark.value if isinstance(mark, Const) else mark for mark in marks])
