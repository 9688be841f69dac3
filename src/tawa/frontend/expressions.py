"""Expressions of a kernel: Python's rules on constants, tile operations on everything else."""

from __future__ import annotations

import ast
import operator as python
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Block

from tawa.errors import TypeMismatch, UnknownName
from tawa.frontend import arithmetic
from tawa.frontend.attributes import get_attribute
from tawa.frontend.calls import Trips, call
from tawa.frontend.context import Context
from tawa.frontend.names import NotConstant, lift, resolve
from tawa.frontend.regions import emit_if, only_computes, splice
from tawa.frontend.subscripts import subscript
from tawa.frontend.values import Const, Tensor, Tuple, Value, describe, leaves, rebuild, same_form

Fold = Callable[[Any, Any], Any]


def _python(name: str) -> Fold:
    return getattr(python, name)


_BINARY: dict[type[ast.operator], tuple[str, Fold]] = {
    ast.Add: ("+", _python("add")),
    ast.Sub: ("-", _python("sub")),
    ast.Mult: ("*", _python("mul")),
    ast.Div: ("/", _python("truediv")),
    ast.FloorDiv: ("//", _python("floordiv")),
    ast.Mod: ("%", _python("mod")),
    ast.Pow: ("**", _python("pow")),
    ast.LShift: ("<<", _python("lshift")),
    ast.RShift: (">>", _python("rshift")),
    ast.BitAnd: ("&", _python("and_")),
    ast.BitOr: ("|", _python("or_")),
    ast.BitXor: ("^", _python("xor")),
    ast.MatMult: ("@", _python("matmul")),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Fold]] = {
    ast.Eq: ("==", python.eq),
    ast.NotEq: ("!=", python.ne),
    ast.Lt: ("<", python.lt),
    ast.LtE: ("<=", python.le),
    ast.Gt: (">", python.gt),
    ast.GtE: (">=", python.ge),
}


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
            return _unary(c, node)
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
        case _:
            raise c.unsupported(
                f"{_DESCRIPTIONS.get(type(node), type(node).__name__)} cannot stand in a kernel",
                why="the tile language has Python's operators, calls, indexing and tuples",
                remedy="compute it in host code and pass the result as an argument",
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
    ast.NamedExpr: "an assignment inside an expression (:=)",
    ast.Starred: "a starred expression",
}


def _name(c: Context, node: ast.Name) -> Value:
    if (binding := c.frame.names.get(node.id)) is not None:
        return binding.value
    if (reason := c.frame.gone.get(node.id)) is not None:
        raise c.builder.error(
            UnknownName,
            f"{node.id} has no value here",
            why=reason,
            remedy=f"give {node.id} a value before, of the same type",
        )
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
    raise c.builder.error(TypeMismatch, f"a tuple is needed here, this is {describe(value)}")


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
    value = evaluate(c, node)
    if isinstance(value, Const):
        return value.value
    raise c.builder.error(
        TypeMismatch,
        f"a slice bound must be a compile-time constant, this is {describe(value)}",
        why="the shape of every block is known when the kernel is compiled",
    )


def binary(c: Context, kind: ast.operator, one: Value, other: Value) -> Value:
    """Apply a binary operator: constants and tuples by Python, tensors by Triton's rules."""
    symbol, fold = _BINARY[type(kind)]
    if isinstance(one, Const) and isinstance(other, Const):
        return _fold(c, symbol, fold, one.value, other.value)
    if isinstance(one, Tuple) and isinstance(other, Tuple) and symbol == "+":
        return Tuple(one.items + other.items)
    if isinstance(one, Const) and isinstance(one.value, int) and symbol == "*":
        one, other = (other, one) if isinstance(other, Tuple) else (one, other)
    if isinstance(one, Tuple) and isinstance(other, Const) and symbol == "*":
        count = arithmetic.as_number(other)
        return Tuple(one.items * (count if isinstance(count, int) else 0))
    return arithmetic.binary(c.builder, symbol, one, other)


def _fold(c: Context, symbol: str, fold: Fold, one: object, other: object) -> Value:
    try:
        return lift(fold(one, other))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise c.builder.error(
            TypeMismatch,
            f"`{one!r} {symbol} {other!r}` has no value",
            why=f"Python says: {error}",
        ) from None


def _unary(c: Context, node: ast.UnaryOp) -> Value:
    operand = evaluate(c, node.operand)
    match node.op, operand:
        case ast.Not(), Const():
            return Const(not operand.value)
        case ast.Not(), Tuple():
            return Const(not operand.items)
        case ast.Not(), Tensor():
            return arithmetic.invert(c.builder, arithmetic.to_bool(c.builder, operand))
        case ast.USub(), Tensor():
            return arithmetic.negate(c.builder, operand)
        case ast.Invert(), Tensor():
            return arithmetic.invert(c.builder, operand)
        case ast.UAdd(), Tensor():
            return operand
        case _, Const(value=bool() | int() | float() as number):
            return _fold_unary(c, node.op, number)
        case _:
            raise c.builder.error(TypeMismatch, f"this operator does not take {describe(operand)}")


def _fold_unary(c: Context, kind: ast.unaryop, number: bool | int | float) -> Value:
    match kind, number:
        case ast.USub(), _:
            return Const(-number)
        case ast.UAdd(), _:
            return Const(+number)
        case _, int():
            return Const(~int(number))
        case _:
            raise c.builder.error(TypeMismatch, f"`~` does not take the float {number}")


def truth(c: Context, value: Value) -> bool | Tensor:
    """Return whether a value holds: a Python bool when it is known now, else an int1 scalar."""
    match value:
        case Const():
            return bool(value.value)
        case Tuple():
            return bool(value.items)
        case Tensor() if not value.is_block:
            return arithmetic.to_bool(c.builder, value)
        case Tensor():
            if all(extent == 1 for extent in value.shape):
                flat = c.builder.reshape(value, ())
                return arithmetic.to_bool(c.builder, flat)
            raise c.builder.error(
                TypeMismatch,
                f"a block of {describe(value)} is neither true nor false",
                why="control flow follows one truth value for the whole program",
                remedy="reduce it to a scalar, as in tl.max(x.to(tl.int32)) > 0, or use tl.where",
            )
        case _:
            return True


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

    On blocks both sides are computed. On scalars too while the right side only computes; if it
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
        right = arithmetic.to_bool(c.builder, evaluate(c, later))
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
            value = evaluate(c, side)
            number = arithmetic.as_number(value)
            sides.append(value if number is None else arithmetic.to_tensor(c.builder, value))
    then, other = sides
    if not same_form(then, other):
        raise c.builder.error(
            TypeMismatch,
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
        step = _compare(c, kind, left, right)
        result = step if result is None else _both(c, result, step)
        left = right
    return result if result is not None else Const(True)


def _both(c: Context, one: Value, other: Value) -> Value:
    """Join the links of a chained comparison."""
    for known, unknown in ((one, other), (other, one)):
        if isinstance(known, Const):
            return unknown if known.value else known
    return arithmetic.binary(c.builder, "&", one, other)


def _compare(c: Context, kind: ast.cmpop, one: Value, other: Value) -> Value:
    match kind:
        case ast.Is() | ast.IsNot():
            same = isinstance(one, Const) and isinstance(other, Const) and one.value is other.value
            return Const(same == isinstance(kind, ast.Is))
        case ast.In() | ast.NotIn():
            return Const(_contains(c, one, other) == isinstance(kind, ast.In))
        case _:
            symbol, fold = _COMPARE[type(kind)]
    match one, other:
        case Const(), Const():
            return _fold(c, symbol, fold, one.value, other.value)
        case (Tuple(), _) | (_, Tuple()) if symbol in ("==", "!="):
            return Const(same_form(one, other) == (symbol == "=="))
        case _:
            return arithmetic.compare(c.builder, symbol, one, other)


def _contains(c: Context, item: Value, container: Value) -> bool:
    match item, container:
        case Const(), Tuple():
            return item in container.items
        case Const(value=str() as part), Const(value=str() as whole):
            return part in whole
        case _:
            pass
    raise c.builder.error(
        TypeMismatch,
        f"`in` is decided at compile time, and {describe(item)} in {describe(container)} is not",
        remedy="compare with == and combine with |",
    )


def _call(c: Context, node: ast.Call) -> Value:
    function = evaluate(c, node.func)
    positional = _elements(c, node.args)
    named: dict[str, Value] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise c.unsupported(
                "**arguments cannot stand in a kernel", remedy="write the arguments by name"
            )
        named[keyword.arg] = evaluate(c, keyword.value)
    return call(c, function, positional, named)


def _formatted(c: Context, node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if not isinstance(node, ast.FormattedValue):
        raise c.unsupported("this part of an f-string cannot stand in a kernel")
    value = _plain(evaluate(c, node.value))
    if isinstance(value, Tensor):
        raise c.builder.error(
            TypeMismatch,
            f"an f-string is made at compile time, and this is {describe(value)}",
            remedy="use tl.device_print for values of the run",
        )
    if node.conversion > 0:
        value = {"r": repr, "s": str, "a": ascii}[chr(node.conversion)](value)
    layout = node.format_spec
    pattern = "".join(_formatted(c, part) for part in layout.values) if layout else ""  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
    return format(value, pattern)


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
    if len(node.generators) > 1 or not isinstance(generator.target, ast.Name):
        raise c.unsupported(
            "a comprehension over several sequences cannot stand in a kernel",
            remedy="use one `for` and one name",
        )
    name, made = generator.target.id, list[Value]()
    hidden = c.frame.names.get(name)
    for item in static_items(c, evaluate(c, generator.iter)):
        c.bind(name, item, generator.target)
        if all(truth(c, evaluate(c, test)) is True for test in generator.ifs):
            made.append(evaluate(c, node.elt))
    c.frame.names.pop(name, None)
    if hidden is not None:
        c.frame.names[name] = hidden
    return Tuple(tuple(made))


def static_items(c: Context, value: Value) -> Sequence[Value]:
    """Return what a compile-time sequence holds: a tuple, or a range with constant bounds."""
    match value:
        case Tuple():
            return value.items
        case Const(value=Trips() as trips):
            numbers = [arithmetic.as_number(v) for v in (trips.start, trips.end, trips.step)]
            bounds = [number for number in numbers if isinstance(number, int)]
            if len(bounds) == 3 and bounds[2] != 0:
                return [Const(number) for number in range(*bounds)]
            raise c.builder.error(
                TypeMismatch,
                "the bounds of an unrolled loop must be compile-time integers, these are "
                + ", ".join(describe(v) for v in (trips.start, trips.end, trips.step)),
                why="its trips are laid out when the kernel is compiled",
                remedy="use range or tl.range for bounds known at run time",
            )
        case _:
            raise c.unsupported(
                f"a loop cannot run over {describe(value)}",
                why="loops run over range, tl.range, tl.static_range, or a tuple (unrolled)",
            )
