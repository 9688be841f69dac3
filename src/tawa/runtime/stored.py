"""Which arguments a kernel stores to, read from its tile IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tawa.errors import ArgumentError, TawaError
from tawa.frontend import build
from tawa.frontend.signature import Argument, ConstantArg, PointerArg, ScalarArg
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.jit import JitFunction, Launchable
from tawa.simulator.races import written_arguments

# What is stored to is asked of the kernel's text for arrays of these types, in turn: it need not
# make sense for all of them. What a launch stores to is looked at again for its own.
_TRIED = ("f32", "bf16", "i32", "i64", "f8e4m3")
_SCALARS = {"int": "i32", "SymInt": "i32", "float": "f32", "bool": "i1"}


def stored_by(kernel: CompiledKernel) -> set[str]:
    """Return the names of the arguments that a compiled kernel stores to."""
    return written_arguments(kernel.asm.program("tile"))


def stored_arguments(
    kernel: Launchable, name: str, arguments: Mapping[str, str], constants: Mapping[str, Any]
) -> set[str]:
    """Return the names of the arguments that a kernel stores to, whatever is passed to it.

    `arguments` are the words of a torch schema by parameter: Tensor, Tensor?, SymInt, float, bool;
    `name` is what errors call the kernel. Raises `ArgumentError` where a parameter has no value, or
    where the kernel can be read for no type of array.
    """
    inner: Any = kernel
    while not isinstance(inner, JitFunction):
        inner = inner.fn
    function = cast("JitFunction[..., Any]", inner)
    defaults = {p.name: p.default for p in function.kernel.parameters if not p.required}
    meta = {**defaults, **constants}
    refused: list[str] = []
    for dtype in _TRIED:
        signature: dict[str, Argument] = {}
        for parameter in function.kernel.parameters:
            kind = arguments.get(parameter.name, "")
            if "Tensor" in kind:
                signature[parameter.name] = PointerArg(dtype, True)
            elif kind:
                scalar = parameter.dtype or _SCALARS.get(kind.removesuffix("?"), "i32")
                signature[parameter.name] = ScalarArg(scalar)
            elif parameter.name in meta:
                signature[parameter.name] = ConstantArg(meta[parameter.name])
            else:
                raise ArgumentError(
                    f"{name} gives no value for {parameter.name}",
                    remedy=f"name it in the schema, or pass {parameter.name}=...",
                )
        try:
            return written_arguments(build(function.fn, signature, {}))
        except TawaError as error:
            refused.append(f"{dtype}: {error.brief}")
    raise ArgumentError(
        f"{name}: the kernel can be read for none of the types {', '.join(_TRIED)}",
        why="\n".join(refused),
    )
