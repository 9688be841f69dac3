"""Facts about integers: expressions in normal form, ranges and conditions.

An expression is a polynomial with integer coefficients over *atoms*: symbols, quotients, minima,
maxima and uninterpreted functions of expressions. Expressions are hash-consed, so two spellings of
one normal form are one object. Nothing here knows of a program: a symbol's key may be any hashable
value (a name, a value of an IR, a type variable), and what is known of symbols is passed in.

| file | what |
|---|---|
| `expressions.py` | expressions, their normal form, substitution, evaluation |
| `facts.py` | ranges of expressions |
| `conditions.py` | conditions over expressions: decide, evaluate |

Division is floor division and the remainder has the divisor's sign, as in Python. An identity such
as `(k*q + r)//k = q + r//k` is used for symbolic divisors too: an expression equals its normal form
wherever it is defined, and whoever builds a quotient states that its divisor is not 0.
"""

from tawa.integers.conditions import (
    FALSE,
    TRUE,
    AllOf,
    AnyOf,
    AtLeast,
    Condition,
    Equal,
    all_of,
    any_of,
    at_least,
    divides,
    equal,
)
from tawa.integers.expressions import (
    Apply,
    Atom,
    Expr,
    Quotient,
    Symbol,
    apply,
    broadcast,
    ceildiv,
    constant,
    maximum,
    minimum,
    render,
    symbol,
)
from tawa.integers.facts import Range, range_of

__all__ = [
    "FALSE", "TRUE", "AllOf", "AnyOf", "Apply", "AtLeast", "Atom", "Condition",
    "Equal", "Expr", "Quotient", "Range", "Symbol", "all_of", "any_of", "apply", "at_least",
    "broadcast", "ceildiv", "constant", "divides", "equal", "maximum", "minimum",
    "range_of", "render", "symbol",
]  # fmt: skip
