"""What each function of the language compiles to: one handler a function, by name.

A handler takes the context and its arguments in the order of the documented signature, defaults
filled in, and returns a value. Methods of descriptors are under ``descriptor.``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tawa.frontend.handlers import (
    atomics,
    descriptors,
    elements,
    indexed,
    memory,
    products,
    program,
    reductions,
    rows,
    shapes,
)
from tawa.frontend.values import Value

HANDLERS: Mapping[str, Callable[..., Value]] = {
    **program.HANDLERS,
    **shapes.HANDLERS,
    **elements.HANDLERS,
    **reductions.HANDLERS,
    **indexed.HANDLERS,
    **products.HANDLERS,
    **memory.HANDLERS,
    **descriptors.HANDLERS,
    **rows.HANDLERS,
    **atomics.HANDLERS,
}

__all__ = ["HANDLERS"]
