"""The user's kernel as the runtime sees it: its Python function and its parameters.

Reads a plain function, our own `JitFunction` and Triton's `JITFunction` by their attributes,
without importing Triton.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

from tawa.errors import ArgumentError
from tawa.frontend.signature import TupleArg
from tawa.runtime.dtypes import find_dtype

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its default (`REQUIRED` if none), and how far calls specialize on it.

    `dtype` is the type an annotation fixes (``n: tl.int64``), else empty.
    """

    name: str
    default: Any = REQUIRED
    constexpr: bool = False
    dtype: str = ""
    specialize: bool = True
    specialize_alignment: bool = True

    @property
    def specialize_pointer(self) -> bool:
        """Whether calls specialize on the alignment of an address."""
        return self.specialize and self.specialize_alignment

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is REQUIRED


class KernelFunction:
    """A Python function and its parameters in order.

    `groups`: the parameters of the function that are tuples, of `parameters` in their place.
    `debug`: the option of this name for calls that do not give it.
    `variadic`: a parameter for any number of arguments, which functions that kernels call have.
    """

    def __init__(
        self,
        function: FunctionType,
        do_not_specialize: Iterable[int | str] = (),
        do_not_specialize_on_alignment: Iterable[int | str] = (),
        debug: bool | None = None,
    ) -> None:
        self.function = function
        self.debug = debug
        name = function.__name__
        self.name = name if name.isidentifier() and not keyword.iskeyword(name) else "kernel"
        plain = set(do_not_specialize)
        unaligned = set(do_not_specialize_on_alignment)
        parameters = inspect.signature(function).parameters.values()
        self.parameters = tuple(
            _parameter(index, parameter, plain, unaligned, self.name)
            for index, parameter in enumerate(parameters)
        )
        rest = (each.name for each in parameters if each.kind is each.VAR_POSITIONAL)
        self.variadic = next(rest, "")

        self.groups: Mapping[str, TupleArg] = {}

    def with_parameters(
        self, parameters: Iterable[Parameter], groups: Mapping[str, TupleArg]
    ) -> KernelFunction:
        """Return the kernel with other parameters, some of them items of `groups`."""
        made = KernelFunction(self.function, debug=self.debug)
        made.parameters, made.groups = tuple(parameters), groups
        return made

    @classmethod
    def without_source(cls, name: str, parameters: Iterable[Parameter]) -> KernelFunction:
        """Return what a launch reads of a kernel that no Python function made."""

        def launched() -> None: ...

        launched.__name__ = launched.__qualname__ = name
        return cls(launched).with_parameters(parameters, {})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters' names."""
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def by_name(self) -> Mapping[str, Parameter]:
        """The parameters by name."""
        return {parameter.name: parameter for parameter in self.parameters}


def _parameter(
    index: int,
    parameter: inspect.Parameter,
    plain: set[int | str],
    unaligned: set[int | str],
    kernel: str,
) -> Parameter:
    if parameter.kind is parameter.VAR_KEYWORD:
        raise ArgumentError(
            f"the kernel {kernel} has a parameter **{parameter.name}",
            why="the number of a kernel's parameters is fixed when it is compiled",
            remedy="name each parameter",
        )
    if parameter.name.startswith("__tawa_"):
        raise ArgumentError(
            f"the kernel {kernel} has a parameter called {parameter.name}",
            why="names that begin with __tawa_ are those of the code that launches it",
            remedy="call it otherwise",
        )
    constexpr, dtype = _annotation(parameter.annotation)
    return Parameter(
        parameter.name,
        parameter.default,
        constexpr,
        dtype,
        not {index, parameter.name} & plain,
        not {index, parameter.name} & unaligned,
    )


def _annotation(annotation: Any) -> tuple[bool, str]:
    """Return whether an annotation says constexpr, and the scalar type it fixes, if any."""
    if annotation is REQUIRED or annotation is None:
        return False, ""
    if isinstance(annotation, str):
        text = annotation
    else:
        text = getattr(annotation, "__name__", None) or getattr(annotation, "name", None) or ""
    if "constexpr" in str(text) or type(annotation).__name__ == "constexpr":
        return True, ""
    if text in ("int", "float", "bool", "str"):  # Python's words say nothing about the width
        return False, ""
    return False, find_dtype(str(text)) or ""


def unwrap_constant(value: Any) -> Any:
    """Return what a constexpr object holds, or the value itself."""
    return value.value if type(value).__name__ == "constexpr" else value


def is_jit(value: Any) -> bool:
    """Tell whether an object wraps a kernel or helper function: ours or Triton's."""
    return inspect.isfunction(getattr(value, "fn", None)) and not inspect.isclass(value)
