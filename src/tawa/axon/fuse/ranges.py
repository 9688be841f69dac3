"""What is known of the numbers that a traced program computes, whatever its arrays hold."""

from __future__ import annotations

import math

from tawa.axon.fuse.trace import Node, Operand

_LEAST = 2.0**-126  # of the normal numbers of float32; the reciprocal of its reciprocal is it


def finite(value: Operand) -> bool:
    """Tell whether a value is finite, or NaN, if the arrays are that it is computed of."""
    match value:
        case Node("/", (dividend, divisor)):
            return finite(dividend) and positive(divisor)
        case Node("reciprocal", (divisor,)):
            return positive(divisor)
        case Node():
            return value.name in _FINITE and all(map(finite, value.inputs))
        case number:
            return math.isfinite(number)


def positive(value: Operand) -> bool:
    """Tell whether a value is at least some normal number that does not depend on arrays."""
    match value:
        case Node() if _wraps(value):
            return False
        case Node("+", (one, other)):
            return any(positive(a) and not_negative(b) for a, b in ((one, other), (other, one)))
        case Node("sqrt_rn" | "cast" | "bfloat16", (inner,)):
            return positive(inner)
        case Node("maximum", operands):
            return any(map(positive, operands))
        case Node():
            return False
        case number:
            return number >= _LEAST


def not_negative(value: Operand) -> bool:
    """Tell whether a value is at least 0, or NaN."""
    match value:
        case Node() if _wraps(value):
            return False
        case Node("abs" | "square" | "sqrt_rn" | "size"):
            return True
        case Node("*", (one, other)) if one is other:
            return True
        case Node("+" | "*" | "/" | "sum" | "cast", operands):
            return all(map(not_negative, operands))
        case Node():
            return positive(value)
        case number:
            return number >= 0


def _wraps(node: Node) -> bool:
    """Tell whether what is computed may be too large for its type, which is one of integers."""
    return not node.dtype.startswith("float") and node.name != "size"


def has_reciprocal(value: Operand) -> bool:
    """Tell whether the reciprocal of a float32 is no subnormal number, and infinite for 0 alone.

    So it is for a root of what is no less than some number, and the sum that softmax divides by:
    one of its exponentials is 1.
    """
    match value:
        case Node("size") | Node("cast", (Node("size"),)):
            return True
        case Node("sqrt_rn", (inner,)):
            return positive(inner)
        case Node("sum", (Node("exp", (Node("-", (one, Node("max", (most,)))),)),)):
            return one is most
        case Node():
            return False
        case number:
            return _LEAST <= abs(number) <= 1 / _LEAST


_FINITE = {
    *("load", "size", "cast", "bfloat16", "+", "-", "*", "neg", "abs", "square", "sqrt_rn"),
    *("where", "maximum", "minimum", "sign", "tanh", "erf", "sin", "cos", "floor", "ceil", "rint"),
}
