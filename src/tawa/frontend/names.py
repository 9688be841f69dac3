"""What Python objects mean inside a kernel, whether they come from tawa.language or Triton's.

Triton's objects are recognised by the module that defines them and their name, never imported: a
builtin by qualified name, a dtype by ``.name``, a constexpr by ``.value``, a helper by ``.fn``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import EnumType
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import tawa.language as tl
from tawa.frontend.source import Source, underlying
from tawa.ir.build.values import Const, Tuple, Value
from tawa.language import dtypes
from tawa.language.constant import ConstexprFunction
from tawa.language.written import Written

_LIBRARIES = ("triton.language", "tawa.language")
_TYPES = {name: dtypes.dtype(name) for name in dtypes._TABLE}  # pyright: ignore[reportPrivateUsage]


# What Triton's language has and this one has not: why, and what to write instead.
REFUSED: dict[str, tuple[str, str]] = {
    "atomic_poll": (
        "waiting with a limit of time is not compiled",
        "wait in a loop: while tl.atomic_load(pointer) != value: pass",
    ),
    "extern_elementwise": (
        "functions of device libraries in bitcode cannot be linked to CUDA C++",
        "use functions of tl.extra.libdevice, or inline PTX",
    ),
}


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function or class of the language, by name."""

    name: str

    def __repr__(self) -> str:
        return f"tl.{self.name}"


@dataclass(frozen=True, slots=True)
class Helper:
    """A function that is compiled where it is called: the user's, or one of Triton's library."""

    function: Any

    def __repr__(self) -> str:
        return str(self.function.__name__)


@dataclass(frozen=True, slots=True)
class HostFunction:
    """A function that runs in Python when the kernel is compiled, on constants.

    One made by Triton's decorator has the types of elements as Triton's objects.
    """

    function: Any
    tritons: bool = False


class NotConstant(Exception):  # noqa: N818
    """A global cannot be used in a kernel; the text says why."""


def lift(value: Any) -> Value:
    """Turn a Python object that is a constant of the kernel into a value."""
    if _defined_in_language(value, "constexpr") or type(value).__name__ == "constexpr":
        if isinstance(value.value, FunctionType):  # @tl.constexpr on it: plain Python, as in Triton
            return Const(HostFunction(value.value))
        return lift(value.value)
    if _is_foreign_dtype(value):
        return Const(_own_dtype(value))
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        return Tuple(tuple(lift(item) for item in items), _field_names(type(items)))
    return Const(_function(value))


def lift_global(value: Any) -> Value:
    """Turn a global or closure variable into a value; raises NotConstant.

    As in Triton a plain number is refused: a kernel would silently keep the value it had when
    first compiled.
    """
    lifted = lift(value)
    if type(value).__name__ == "constexpr" or (isinstance(lifted, Tuple) and lifted.fields):
        return lifted
    allowed = (Builtin, Helper, HostFunction, ModuleType, type, dtypes.dtype, BuiltinFunctionType)
    if isinstance(lifted, Const) and isinstance(lifted.value, allowed):
        return lifted
    raise NotConstant("its value could change after the kernel is compiled")


def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(str(name) for name in getattr(kind, "_fields", ()))


def resolve(source: Source, name: str) -> Value | None:
    """Find what a name outside the kernel's own variables stands for; None when undefined."""
    found, value = source.lookup(name)
    return lift_global(value) if found else None


def _documented(name: str) -> object:
    """Return what the language documents under a name, or None."""
    found = (getattr(module, name, None) for module in (tl, tl.extra.libdevice, tl.extra.cuda))
    return next((thing for thing in found if thing is not None), None)


def _is_library_python(owner: Any) -> bool:
    """Whether a function of Triton's library is plain Python on constants, no operation."""
    return isinstance(owner, FunctionType) and not hasattr(owner, "__triton_builtin__")


def _is_declared(owner: Any) -> bool:
    """Whether Triton only declares a function there: each backend has its own device library."""
    return _module_of(owner) == "triton.language.extra.libdevice"


def _module_of(value: object) -> str:
    return str(getattr(value, "__module__", None) or "")


def _in_library(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in _LIBRARIES)


def _defined_in_language(value: object, kind: str) -> bool:
    return type(value).__name__ == kind and _in_library(type(value).__module__)


def _is_foreign_dtype(value: object) -> bool:
    """Whether a value is an instance of the dtype class (or a subclass) of another library."""
    if isinstance(value, dtypes.dtype):
        return False
    return any(
        base.__name__ == "dtype" and _in_library(base.__module__) for base in type(value).__mro__
    )


def tritons_dtype(value: Any) -> Any:
    """Return the type of elements, pointers or tensors that Triton has for one of ours; anything
    else as it is.
    """
    language: Any = sys.modules["triton.language"]
    match value:
        case dtypes.pointer_type():
            return language.pointer_type(tritons_dtype(value.element_ty))
        case dtypes.block_type():
            return language.block_type(tritons_dtype(value.element_ty), list(value.shape))
        case dtypes.dtype():
            return language.dtype(value.name)
        case _:
            return value


def _own_dtype(value: Any) -> dtypes.dtype:
    if hasattr(value, "element_ty"):
        element = _own_dtype(value.element_ty)
        if hasattr(value, "shape"):
            return dtypes.block_type(element, [int(extent) for extent in value.shape])
        return dtypes.pointer_type(element, const=bool(getattr(value, "const", False)))
    if value.name in _TYPES:
        return _TYPES[value.name]
    raise NotConstant(f"the element type {value.name} is not supported")


def _function(value: Any) -> object:
    """Recognise functions and classes of the language, helpers and compile-time functions."""
    if isinstance(value, (ModuleType, MethodType)):
        return value
    inner = underlying(value) if not isinstance(value, type) else None
    if isinstance(value, Written):
        return Helper(inner)
    if type(value).__name__ == "ConstexprFunction" and inner is not None:
        return HostFunction(inner, not isinstance(value, ConstexprFunction))
    owner: Any = inner if inner is not None else value
    if isinstance(owner, EnumType):
        return owner
    name = str(getattr(owner, "__name__", ""))
    if callable(owner) and _in_library(_module_of(owner)):
        own = _documented(name)
        if isinstance(own, Written):
            return Helper(own.fn)
        if isinstance(own, ConstexprFunction):
            return HostFunction(own.fn)
        if name in REFUSED:
            return Builtin(name)
        written = inner is not value and not hasattr(value, "__triton_builtin__")
        if own is None and inner is not None and written:
            # Triton writes part of its library in its own language: compile that.
            return Helper(inner)
        if own is None and _is_library_python(value) and not _is_declared(owner):
            return HostFunction(owner)
        return Builtin(name)
    if inner is not None:
        return Helper(inner)
    return value
