"""Rules of code generation, one function an operation, by topic."""

from __future__ import annotations

from xdsl.ir import Operation

from tawa.codegen.emit import (
    arithmetic,
    atomics,
    barriers,
    control,
    copies,
    diagnostics,
    global_memory,
    inline_asm,
    reduce,
    shared,
    tensor_cores,
    tensors,
)
from tawa.codegen.emit.emitter import Handler
from tawa.codegen.emit.tensors import looks_at

_TOPICS = (
    *(arithmetic, atomics, barriers, control, copies, diagnostics, global_memory),
    *(inline_asm, reduce, shared, tensor_cores, tensors),
)
RULES: dict[type[Operation], Handler] = {
    kind: handler for topic in _TOPICS for kind, handler in topic.RULES.items()
}

__all__ = ["RULES", "looks_at"]
