"""The functions of `functions.py` and `matrices.py` as IR, made once for types of arguments."""

from __future__ import annotations

from functools import cache
from typing import Any

from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.values import is_record
from tawa.ppl.ir.core import Builder, Function, Kind, Program, Region, Type, Value
from tawa.ppl.ir.operations import ADJOINTS, MATRICES
from tawa.ppl.math import functions, matrices

_REAL: dict[Kind, Kind] = {"f64": "f64"}  # functions of whole numbers have no real of their own


@cache
def library(name: str, *types: Type) -> Function:
    """Return a function of `math/` for arguments of some types."""
    region = Region(tuple(map(Value, types)))
    builder = Builder(_REAL.get(types[0].kind, "f32"))
    program = Program(name, builder.dtype, (), region)
    low = Lowering(program, builder, frozenset())
    holder = matrices if name in (*MATRICES, *ADJOINTS) else functions
    with builder.inside(region):
        result = low.call(getattr(holder, name), region.args)
        results: Any = result if is_record(result) else (result,)
        region.yields = tuple(map(low.numbers.value, results))
    sizes = "x".join(str(size) for size in types[0].shape)
    made = "_".join(part for part in (name, types[0].kind, sizes) if part)
    return Function(made, region, variables=program.variables)
