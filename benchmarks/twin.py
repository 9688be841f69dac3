"""The same kernel source through Triton: `twin(kernel)` is a Triton kernel of the same text.

A kernel's Python function names its language as a global, `tl`. Its twin is the function with the
same code in a namespace where `tl` is triton.language and every helper kernel is its own twin;
Triton then reads the very same lines of the very same file. `twin(kernel, specialized=True)` asks
for Triton's own warp specialization: the loops that run on the GPU become
``tl.range(..., warp_specialize=True)``, and nothing else changes.
"""

from __future__ import annotations

import re
import types
from functools import cache
from typing import Any


def _is_kernel(value: object) -> bool:
    return isinstance(getattr(value, "fn", None), types.FunctionType)


def specialized_source(source: str) -> str:
    """Return a kernel's text with Triton's warp specialization asked for in each of its loops."""
    return re.sub(
        r"^(\s*for \w+ in )range\((.*)\):",
        r"\1tl.range(\2, warp_specialize=True):",
        source,
        flags=re.M,
    )


@cache
def twin(kernel: Any, specialized: bool = False) -> Any:
    """Return the Triton kernel of `kernel`'s source; needs triton."""
    return _twin(kernel, specialized, {})


def _twin(kernel: Any, specialized: bool, made: dict[Any, Any]) -> Any:
    """Return the twin of a kernel, one of those that are `made`: kernels may call themselves and
    one another.
    """
    if kernel in made:
        return made[kernel]
    import triton
    import triton.language

    plain = kernel.fn
    scope = dict(plain.__globals__)
    copy = types.FunctionType(
        plain.__code__, scope, plain.__name__, plain.__defaults__, plain.__closure__
    )
    copy.__kwdefaults__ = plain.__kwdefaults__
    copy.__annotations__ = dict(plain.__annotations__)
    copy.__module__, copy.__qualname__ = plain.__module__, plain.__qualname__
    copy.__doc__ = plain.__doc__
    result = made[kernel] = triton.jit(copy)
    if specialized:
        if not hasattr(result, "_unsafe_update_src"):
            raise RuntimeError("this Triton does not let a kernel's text be changed")
        result._unsafe_update_src(specialized_source(result.src))
    for name in plain.__code__.co_names:
        value = scope.get(name)
        if isinstance(value, types.ModuleType) and value.__name__ == "tawa.language":
            scope[name] = triton.language
        elif _is_kernel(value):
            scope[name] = _twin(value, specialized, made)
    return result
