"""The functions of `functions.py` as IR, made once for each kind."""

from __future__ import annotations

from functools import cache
from typing import Any

from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.values import is_record
from tawa.ppl.ir.core import I32, Builder, Function, Kind, Program, Region, Type, Value
from tawa.ppl.math import functions

_REAL: dict[Kind, Kind] = {"f64": "f64"}  # functions of whole numbers have no real of their own


@cache
def library(name: str, kind: Kind) -> Function:
    """Return a function of `math/` for arguments of a kind; `philox` takes six i32."""
    count, type_ = (6, I32) if name == "philox" else (1, Type(kind))
    region = Region(tuple(Value(type_) for _ in range(count)))
    builder = Builder(_REAL.get(kind, "f32"))
    program = Program(name, builder.dtype, (), region)
    low = Lowering(program, builder, frozenset())
    with builder.inside(region):
        result = low.call(getattr(functions, name), region.args)
        results: Any = result if is_record(result) else (result,)
        region.yields = tuple(low.numbers.value(item) for item in results)
    return Function(f"{name}_{kind}", region)
