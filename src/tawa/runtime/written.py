"""Which arguments a kernel stores to, read from its tile IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tawa.errors import ArgumentError, TawaError
from tawa.frontend import build
from tawa.frontend.signature import Argument, ConstantArg, PointerArg, ScalarArg
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.config import Heuristics
from tawa.runtime.jit import JitFunction, Launchable
from tawa.runtime.specialize import bind, derive_signature
from tawa.simulator.races import written_arguments

# A kernel need not make sense for arrays of all of these types: they are tried in turn.
_TRIED = ("f32", "bf16", "i32", "i64", "f8e4m3")


def stored_by(kernel: CompiledKernel) -> set[str]:
    """Return the names of the arguments that a compiled kernel may store to."""
    return written_arguments(kernel.asm.program("tile"))


def stored_to(
    kernel: Launchable, kinds: Mapping[str, str], constants: Mapping[str, Any]
) -> set[str]:
    """Return the names of the arguments that a kernel may store to, whatever their types are.

    `kinds` are its arguments by name: "" for an array, else the type of a number ("i32");
    `constants` its other parameters, of which a tuned kernel's first configuration gives some.
    Raises `ArgumentError` where a parameter has neither, or no type makes a kernel of it.
    """
    function, given = _plain(kernel, {}, compute=False)
    given |= constants
    refused: list[str] = []
    for dtype in _TRIED:
        signature: dict[str, Argument] = {}
        for parameter in function.kernel.parameters:
            name = parameter.name
            if (kind := kinds.get(name)) is not None:
                signature[name] = (
                    ScalarArg(parameter.dtype or kind) if kind else PointerArg(dtype, True)
                )
            elif name in given or not parameter.required:
                signature[name] = ConstantArg(given.get(name, parameter.default))
            else:
                raise ArgumentError(
                    f"nothing gives a value for {name} of {function.__name__}",
                    remedy=f"name it among the arguments, or pass {name}=...",
                )
        try:
            return written_arguments(build(function.fn, signature, {}))
        except TawaError as error:
            refused.append(f"{dtype}: {error.brief}")
    raise ArgumentError(
        f"{function.__name__} can be read for none of the types {', '.join(_TRIED)}",
        why="\n".join(refused),
    )


def stored_among(kernel: Launchable, values: Mapping[str, Any]) -> set[str]:
    """Return the names of the arguments that a call with `values` may store to.

    Arrays may be placeholders. Of a tuned kernel its first configuration is read.
    """
    function, given = _plain(kernel, values, compute=True)
    call = bind(function.kernel, (), given)
    signature = derive_signature(function.kernel, call.values)
    return written_arguments(build(function.fn, signature, call.options))


def _plain(
    kernel: Launchable, values: Mapping[str, Any], *, compute: bool
) -> tuple[JitFunction[..., Any], dict[str, Any]]:
    """Return the kernel under all decorators, and `values` with what these give: of a tuned one its
    first configuration does, and what heuristics `compute`.
    """
    inner: Any = kernel
    given = dict(values)
    while not isinstance(inner, JitFunction):
        if isinstance(inner, Heuristics):
            for name, function in inner.values.items() if compute else ():
                given[name] = function(given)
        elif configs := getattr(inner, "configs", []):
            given = {**configs[0].all_kwargs(), **given}
        inner = inner.fn
    return cast("JitFunction[..., Any]", inner), given
