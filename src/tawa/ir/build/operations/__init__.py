"""What each function of the language compiles to: one handler a function, by name.

A handler takes the context and its arguments in the order of the documented signature, defaults
filled in, and returns a value. Methods of descriptors are under ``descriptor.``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tawa.ir.build.operations import (
    descriptors,
    elements,
    indexed,
    mapped,
    memory,
    products,
    program,
    reductions,
    rows,
    shapes,
)
from tawa.ir.build.values import Value

OPERATIONS: Mapping[str, Callable[..., Value]] = {
    **program.OPERATIONS,
    **shapes.OPERATIONS,
    **elements.OPERATIONS,
    **reductions.OPERATIONS,
    **mapped.OPERATIONS,
    **indexed.OPERATIONS,
    **products.OPERATIONS,
    **memory.OPERATIONS,
    **descriptors.OPERATIONS,
    **rows.OPERATIONS,
}

__all__ = ["OPERATIONS"]
