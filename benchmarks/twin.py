"""The same kernel source through Triton: `twin(kernel)` is a Triton kernel of the same text.

A kernel's Python function names its language as a global, `tl`. Its twin is the function with the
same code in a namespace where `tl` is triton.language and every helper kernel is its own twin;
Triton then reads the very same lines of the very same file.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Any


def _is_kernel(value: object) -> bool:
    return isinstance(getattr(value, "fn", None), types.FunctionType)


@cache
def twin(kernel: Any) -> Any:
    """Return the Triton kernel of `kernel`'s source; needs triton."""
    import triton
    import triton.language

    plain = kernel.fn
    scope = dict(plain.__globals__)
    for name in plain.__code__.co_names:
        value = scope.get(name)
        if isinstance(value, types.ModuleType) and value.__name__ == "tawa.language":
            scope[name] = triton.language
        elif _is_kernel(value):
            scope[name] = twin(value)
    copy = types.FunctionType(
        plain.__code__, scope, plain.__name__, plain.__defaults__, plain.__closure__
    )
    copy.__kwdefaults__ = plain.__kwdefaults__
    copy.__annotations__ = dict(plain.__annotations__)
    copy.__module__, copy.__qualname__ = plain.__module__, plain.__qualname__
    copy.__doc__ = plain.__doc__
    return triton.jit(copy)
