"""The functions of `functions.py` as IR, made once for each kind."""

from __future__ import annotations

from functools import lru_cache

from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.ir.core import I32, Builder, Function, Kind, Program, Region, Type, Value
from tawa.ppl.math import functions


@lru_cache(maxsize=None)
def library(name: str, kind: Kind) -> Function:
    """Return a function of `math/` for arguments of a kind; `philox` takes six i32."""
    count, type_ = (6, I32) if name == "philox" else (1, Type(kind))
    region = Region(tuple(Value(type_) for _ in range(count)))
    builder = Builder("f64" if kind == "f64" else "f32")
    program = Program(name, builder.dtype, (), region)
    low = Lowering(program, builder, frozenset())
    with builder.inside(region):
        result = low.call(getattr(functions, name), region.args)
        results = result if isinstance(result, tuple) else (result,)
        region.yields = tuple(low.numbers.value(item) for item in results)  # type: ignore[reportUnknownVariableType]
    return Function(f"{name}_{kind}", region)
