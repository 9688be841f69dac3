"""Host expressions in C: what launchers in Python compute (`tawa.runtime.expressions`), with
Python's meaning. Division rounds down, a remainder has the sign of the divisor, and what 64 bits
do not hold is noted in ``bad`` instead of wrapping.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tawa.errors import ArgumentError
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.syntax import parse
from tawa.tools.aot.names import C_TYPES, Fields

_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "tawa_add({}, {}, bad)",
    ast.Sub: "tawa_sub({}, {}, bad)",
    ast.Mult: "tawa_mul({}, {}, bad)",
    ast.FloorDiv: "tawa_floordiv({}, {}, bad)",
    ast.Mod: "tawa_mod({}, {}, bad)",
    ast.LShift: "tawa_shl({}, {}, bad)",
    ast.RShift: "tawa_shr({}, {}, bad)",
    ast.BitAnd: "({} & {})",
    ast.BitOr: "({} | {})",
    ast.BitXor: "({} ^ {})",
}
_UNARY: Mapping[type[ast.unaryop], str] = {
    ast.USub: "tawa_sub(0, {}, bad)",
    ast.UAdd: "{}",
    ast.Invert: "(~{})",
    ast.Not: "(int64_t)({} == 0)",
}
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_FUNCTIONS: Mapping[tuple[str, int], str] = {
    ("min", 2): "tawa_min({}, {})",
    ("max", 2): "tawa_max({}, {})",
    ("minimum", 2): "tawa_min({}, {})",
    ("maximum", 2): "tawa_max({}, {})",
    ("divide", 2): "tawa_divide({}, {}, bad)",
    ("remainder", 2): "tawa_remainder({}, {}, bad)",
    ("where", 3): "({} ? {} : {})",
    ("abs", 1): "tawa_abs({}, bad)",
    ("int", 1): "{}",
    ("bool", 1): "(int64_t)({} != 0)",
}
_DESCRIBED = {"extents": "extents", "strides": "strides"}


class Translation:
    """Turns expressions over a kernel's arguments and `variables` (C names of int64_t; ``program0``
    is for ``program(0)``) into C text of type int64_t, over ``arguments`` and ``bad``; `used` are
    the arguments that it met, `met` the variables.
    """

    def __init__(self, fields: Fields, variables: Mapping[str, str] | None = None) -> None:
        self.fields = fields
        self.variables = variables or {}
        self.used: list[str] = []
        self.met: set[str] = set()
        self._whole: ast.AST = ast.Constant(None)

    def text(self, expression: str | ast.expr) -> str:
        """Return C text; ArgumentError, with the part at fault, for what C has no word for."""
        tree = parse(expression, "eval").body if isinstance(expression, str) else expression
        self._whole = tree
        return self._expression(tree)

    def refuse(self, node: ast.AST, why: str) -> ArgumentError:
        """Return the error for a part of the expression."""
        return ArgumentError(
            f"{self.fields.kernel}: a launcher in C cannot compute {ast.unparse(node)!r}, part of"
            f" {ast.unparse(self._whole)!r}",
            why=why,
            remedy="pass it as an argument of its own, or launch the kernel from Python",
        )

    def _expression(self, node: ast.expr) -> str:
        again = self._expression
        match node:
            case ast.Constant(value=bool() | int() as value):
                if not -(1 << 63) < value < 1 << 63:
                    raise self.refuse(node, "it does not fit 64 bits")
                return f"INT64_C({int(value)})" if value >= 0 else f"(-INT64_C({-value}))"
            case ast.Name(name):
                return self._argument(node, name)
            case ast.BinOp() if (form := _BINARY.get(type(node.op))) is not None:
                return form.format(again(node.left), again(node.right))
            case ast.UnaryOp():
                return _UNARY[type(node.op)].format(again(node.operand))
            case ast.BoolOp():
                *rest, last = map(again, node.values)
                for text in reversed(rest):
                    met, missed = (last, "0") if isinstance(node.op, ast.And) else (text, last)
                    last = f"({text} ? {met} : {missed})"
                return last
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return f"({again(node.test)} ? {again(node.body)} : {again(node.orelse)})"
            case ast.Call(ast.Name(name), [ast.Constant(int(place))], []) if (
                f"{name}{place}" in self.variables
            ):
                self.met.add(f"{name}{place}")
                return self.variables[f"{name}{place}"]
            case ast.Call(func=ast.Name(name), args=args, keywords=[]):
                if (form := _FUNCTIONS.get((name, len(args)))) is not None:
                    return form.format(*map(again, args))
                if name in ("min", "max") and len(args) > 2:
                    return again(
                        ast.Call(node.func, [ast.Call(node.func, args[:-1], []), args[-1]], [])
                    )
            case ast.Attribute(value=ast.Name(name), attr="base"):
                return self._argument(node, name)
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(name), attr=what),
                slice=ast.Constant(value=int() as axis),
            ) if what in _DESCRIBED:
                match self.fields.signature.get(name):
                    case DescriptorArg(block_shape=block) if 0 <= axis < len(block):
                        return f"arguments->{self.fields.names[name]}.{what}[{axis}]"
                    case _:
                        pass
            case _:
                pass
        raise self.refuse(node, "it has whole numbers, arguments and Python's operators of these")

    def _compare(self, node: ast.Compare) -> str:
        texts = [self._expression(each) for each in (node.left, *node.comparators)]
        parts: list[str] = []
        for operator, left, right in zip(node.ops, texts, texts[1:]):
            if (sign := _COMPARE.get(type(operator))) is None:
                raise self.refuse(node, "it compares otherwise than by size")
            parts.append(f"({left} {sign} {right})")
        return f"(int64_t)({' && '.join(parts)})"

    def _argument(self, node: ast.expr, name: str) -> str:
        argument = self.fields.signature.get(name)
        place = f"arguments->{self.fields.names.get(name)}"
        match argument:
            case ConstantArg(value=bool() | int() as value):
                return self._expression(ast.Constant(value))
            case PointerArg():
                return f"(int64_t){place}"
            case DescriptorArg():
                return f"(int64_t){place}.address"
            case ScalarArg(dtype=dtype) if dtype[0] in "iu":
                if name not in self.used:
                    self.used.append(name)
                if dtype == "u64":
                    return f"tawa_wide({place}, bad)"
                return f"(int64_t)({place} != 0)" if dtype == "i1" else f"(int64_t){place}"
            case ScalarArg():
                raise self.refuse(node, f"'{name}' is a {C_TYPES[argument.dtype]}, no whole number")
            case _:
                raise self.refuse(node, f"'{name}' is no argument that is a number")
