"""What operations there are: one table for the verifier, the interpreter and the emitters.

A row says how many operands an operation takes, of which kinds, and what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT, INT, BOOLEAN, ANY = "float", "int", "bool", "any"


@dataclass(frozen=True, slots=True)
class Rule:
    """Operands of one scalar type (`takes`); and of the result, but where `gives` says."""

    arity: int
    takes: str
    gives: str = ""
    meaning: str = ""


_OPERATIONS: dict[str, Rule] = {
    "add": Rule(2, "number", meaning="a + b, integers wrap"),
    "sub": Rule(2, "number", meaning="a - b"),
    "mul": Rule(2, "number", meaning="a * b"),
    "div": Rule(2, FLOAT, meaning="a / b, rounded to nearest"),
    "fma": Rule(3, FLOAT, meaning="a * b + c, rounded once"),
    "sqrt": Rule(1, FLOAT, meaning="rounded to nearest"),
    "neg": Rule(1, "number", meaning="-a"),
    "abs": Rule(1, FLOAT, meaning="without its sign"),
    "floor": Rule(1, FLOAT, meaning="toward minus infinity"),
    "rint": Rule(1, FLOAT, meaning="nearest integer, ties to even"),
    "floordiv": Rule(2, INT, meaning="quotient toward minus infinity; of 0: 0"),
    "mod": Rule(2, INT, meaning="a - b * floordiv(a, b)"),
    "lt": Rule(2, "number", BOOLEAN, "a < b"),
    "le": Rule(2, "number", BOOLEAN, "a <= b"),
    "eq": Rule(2, ANY, BOOLEAN, "a == b"),
    "ne": Rule(2, ANY, BOOLEAN, "a != b"),
    "and": Rule(2, "bits", meaning="of bits"),
    "or": Rule(2, "bits", meaning="of bits"),
    "xor": Rule(2, "bits", meaning="of bits"),
    "shl": Rule(2, INT, meaning="a << b"),
    "lshr": Rule(2, INT, meaning="a >> b, zeros come in"),
    "mulhi": Rule(2, INT, meaning="the high word of the unsigned product"),
}
# Functions of `math/` that stand as one operation, so that reverse mode knows their derivatives.
FUNCTIONS = ("exp", "log", "log1p", "expm1", "sinturn", "costurn", "lgamma", "digamma", "erf")
ELEMENTARY = _OPERATIONS | {
    name: Rule(1, FLOAT, meaning=f"math/functions.py: {name}") for name in FUNCTIONS
}
# Functions of arrays, of `math/matrices.py`. `NAME_adjoint` takes what NAME takes, its result, and
# the adjoint of that; it gives the adjoints of what NAME takes.
MATRICES = ("cholesky", "solve_lower")
ADJOINTS = tuple(f"{name}_adjoint" for name in MATRICES)
PURE = frozenset(
    (*ELEMENTARY, *MATRICES, "const", "pack", "select", "cast", "bits", "load", "build")
)
"""What reads only its operands and data, and changes nothing."""
PARTS = 32
"""Of how many parts a sum over rows is: threads of a warp. Rows are added to the parts in turn."""
NEUTRAL = {"f32": -0.0, "f64": -0.0, "i32": -(1 << 31), "i64": -(1 << 63)}
"""What accumulates to nothing, of a kind: 0.0 would make a sum of -0.0 positive."""
STRUCTURED = ("if", "for", "while", "switch", "build")
EFFECTS = ("sample", "observe", "factor", "record")
OTHERS = (
    *("const", "pack", "select", "cast", "bits", "load", "get", "set", "loadvar", "storevar"),
    *("accumulate", "thread", "shuffle", "shuffle_xor"),
    *("lane", "read", "write", "call", "run", "philox", "suspend", "plate"),
    *MATRICES,
    *ADJOINTS,
)
STACK = "stack"
"""The variable of what calls that are not finished keep (`passes/cut.py`)."""
HEAP = "heap"
"""The variable of the cells of lists (`frontend/lists.py`)."""
KEPT = "kept_words"
"""The variable of what is kept of a draw (`passes/handle.py`)."""
# Why a lane could not go on rightly: the value of its variable `fault` is an index into this. Of
# two the later one here stays: lists are empty where a heap is used up.
FAULTS = ("", "index", "list", "stack", "trace", "heap")
