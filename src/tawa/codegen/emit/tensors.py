"""Tensors in registers: splats, views that rename registers, reductions, layout conversions."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tawa.codegen.emit.emitter import Handler

RULES: dict[type[Operation], Handler] = {}


def looks_at(value: SSAValue) -> SSAValue | None:
    """Return the tensor whose registers a value shares under other numbers; None if its own."""
    return None
