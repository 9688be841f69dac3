"""Rules of code generation, one function an operation, by topic."""

from __future__ import annotations

from xdsl.ir import Operation

from tawa.codegen.emit import (
    reduce,
    arithmetic,
    barriers,
    control,
    copies,
    shared,
    tensor_cores,
    tensors,
)
from tawa.codegen.emit.emitter import Handler
from tawa.codegen.emit.tensors import looks_at

RULES: dict[type[Operation], Handler] = {
    **arithmetic.RULES,
    **barriers.RULES,
    **control.RULES,
    **copies.RULES,
    **shared.RULES,
    **tensor_cores.RULES,
    **reduce.RULES,
    **tensors.RULES,
}

__all__ = ["RULES", "looks_at"]
