"""`tawa.inline`: a function of the language compiled into a kernel that is being built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tawa.errors import UnsupportedSyntax
from tawa.frontend.context import Context, Frame
from tawa.frontend.liveness import analyse
from tawa.frontend.lowering import inline_call
from tawa.frontend.source import read_source
from tawa.ir.build.builder import Context as Operations
from tawa.ir.build.kernel import KernelBuilder
from tawa.ir.build.values import Value, caller


def inline(kernel: KernelBuilder, function: Any, *arguments: Any, **named: Any) -> Any:
    """Compile the body of `function` at the current place of a kernel that is being built.

    `function` is a Python function in the tile language, or one under ``@tawa.jit`` or of
    `tawa.language`; arguments are values of the builder, numbers (constants to it), types, tuples.
    Returns what it returns: a value, a tuple of them, None. Its statements are named by variable
    and line. Raises the errors of the frontend, at the function's line, called from the caller's.

    >>> import tawa.language as tl
    >>> from tawa.ir.build import KernelBuilder
    >>> k = KernelBuilder("largest")
    >>> x = k.pointer("x", "f32")
    >>> largest = inline(k, tl.topk, k.load(x + k.arange(0, 64)), 4)
    >>> k.store(x + k.arange(0, 4), largest)
    """
    if isinstance(function, str) or not (callable(function) or hasattr(function, "fn")):
        raise UnsupportedSyntax(
            f"{function!r} cannot be compiled into a kernel",
            place=caller(),
            remedy="pass a function of the tile language",
        )
    source = read_source(function)

    def emit(c: Operations, given: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
        frame = Frame(source, analyse(source.tree))
        context = Context(c.builder, c.options, frame, (), inline_call)
        before = c.builder.place, c.builder.calls
        try:
            return inline_call(context, source.function, given, keywords)
        finally:
            c.builder.place, c.builder.calls = before

    return kernel.apply(emit, *arguments, **named)
