"""From the arguments of a call to a signature, the hints (Triton's options) and the pins (ours).

The rules are Triton's: None and the int 1 become constants, ints and addresses that are multiples
of 16 say so, an int's width follows its value, a float is f32, a parameter annotated with a type
has that type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any

from tawa.constants import freeze
from tawa.errors import ArgumentError
from tawa.frontend.signature import (
    Argument,
    ConstantArg,
    DescriptorArg,
    PointerArg,
    ScalarArg,
    Signature,
)
from tawa.plan.pins import Pins
from tawa.runtime.arrays import is_array, look
from tawa.runtime.descriptors import is_descriptor, window_of
from tawa.runtime.dtypes import BYTES, dtype_name
from tawa.runtime.kernel import KernelFunction, Parameter, is_jit, unwrap_constant

HINTS = frozenset((
    "num_warps", "num_stages", "num_ctas", "maxnreg", "debug", "enable_fp_fusion",
    "launch_cooperative_grid", "launch_pdl", "default_dot_input_precision",
    "max_num_imprecise_acc_default", "sanitize_overflow", "ir_override", "arch",
))  # fmt: skip
"""Triton's options: the planner may decide otherwise, and then says so."""

PINS = frozenset(field.name for field in fields(Pins))
"""Our own options: honoured, or an error says why not. `specialize=False`: an ordinary kernel."""

FORGONE = frozenset(("extern_libs",))
"""Of Triton, and of no meaning here: the device library is CUDA's own, and functions of other ones
are refused where a kernel calls them."""

MODES = frozenset(("strict",))
"""`strict=True`: no re-association."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call taken apart: values by parameter, hints and pins."""

    values: Mapping[str, Any]
    options: Mapping[str, Any]
    pins: Pins = field(default_factory=Pins)
    strict: bool = False


def bind(kernel: KernelFunction, args: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
    """Match the arguments of a call with the kernel's parameters; ArgumentError names misfits."""
    if kernel.variadic:
        raise ArgumentError(
            f"the kernel {kernel.name} has a parameter *{kernel.variadic}",
            why="the number of a kernel's parameters is fixed when it is compiled",
            remedy="name each parameter: functions that a kernel calls may take any number",
        )
    if len(args) > len(kernel.parameters):
        raise ArgumentError(
            f"{kernel.name} got {len(args)} positional arguments",
            why=f"it has {len(kernel.parameters)} parameters: {', '.join(kernel.names)}",
            remedy=f"remove {len(args) - len(kernel.parameters)} of them",
        )
    values = dict(zip(kernel.names, args))
    if twice := [name for name in keywords if name in values]:
        raise ArgumentError(
            f"{kernel.name} got {_names(twice)} twice: by position and by name",
            remedy="give each argument once",
        )
    known = kernel.by_name
    values.update((name, value) for name, value in keywords.items() if name in known)
    extra = {name: value for name, value in keywords.items() if name not in known}
    _check_extra(kernel, extra)
    if missing := [p.name for p in kernel.parameters if p.name not in values and p.required]:
        raise ArgumentError(
            f"{kernel.name} needs {_names(missing)}, which the call does not give",
            why=f"its parameters are {', '.join(kernel.names)}",
            remedy="pass " + ", ".join(f"{name}=..." for name in missing),
        )
    ordered = {p.name: values.get(p.name, p.default) for p in kernel.parameters}
    # A parameter named like an option (num_stages: tl.constexpr) is both, as in Triton.
    # `arch` is a word of kernels' own, whatever it means to them.
    both = HINTS - {"arch"}
    extra |= {name: unwrap_constant(ordered[name]) for name in ordered if name in both}
    _check_hints(kernel, extra)
    if kernel.debug is not None:
        extra.setdefault("debug", kernel.debug)
    return Call(
        ordered,
        {name: value for name, value in extra.items() if name in HINTS and value is not None},
        Pins(**{name: value for name, value in extra.items() if name in PINS}),
        bool(extra.get("strict", False)),
    )


def _check_extra(kernel: KernelFunction, extra: Iterable[str]) -> None:
    options = HINTS | PINS | MODES | FORGONE
    unknown = [name for name in extra if name not in options]
    if not unknown:
        return
    from difflib import get_close_matches

    words = [*kernel.names, *sorted(options)]
    near = [close[0] for name in unknown if (close := get_close_matches(name, words, 1))]
    raise ArgumentError(
        f"{kernel.name} does not know {_names(unknown)}",
        why=f"its parameters are {', '.join(kernel.names) or 'none'}; options are"
        f" {', '.join(sorted(options))}",
        remedy=f"did you mean {_names(near)}?" if near else "remove it, or add the parameter",
    )


def _check_hints(kernel: KernelFunction, given: Mapping[str, Any]) -> None:
    """Refuse numbers of warps and stages that mean nothing, and other machines."""
    warps, stages, arch = (given.get(name) for name in ("num_warps", "num_stages", "arch"))
    if not (warps is None or (_counts(warps, 1) and warps & (warps - 1) == 0)):
        wrong = f"num_warps={warps!r}", "a program has a power of two of warps: 1, 2, 4 ..."
    elif not (stages is None or _counts(stages, 0)):
        wrong = f"num_stages={stages!r}", "a loop has a whole number of stages, 0 or more"
    elif arch not in (None, "sm90", "sm90a"):
        wrong = f"arch={arch!r}", "tawa compiles for sm_90a, which Triton calls sm90"
    else:
        return
    raise ArgumentError(
        f"{kernel.name} got {wrong[0]}", why=wrong[1], remedy="leave it out to let tawa decide"
    )


def _counts(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and int(value) >= least


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def derive_signature(kernel: KernelFunction, values: Mapping[str, Any]) -> Signature:
    """Return the signature of a call's values, in the order of the parameters; tuples last."""
    found: dict[str, Argument] = {
        parameter.name: argument_of(kernel.name, parameter, values[parameter.name])
        for parameter in kernel.parameters
    }
    return {**found, **kernel.groups}


def named_error(kernel: str, name: str, error: ArgumentError) -> ArgumentError:
    """Return the error of an array as that of the argument `name`."""
    what = f"{kernel}: the argument '{name}': {error.what}"
    return ArgumentError(what, why=error.why, remedy=error.remedy)


def argument_of(kernel: str, parameter: Parameter, value: Any) -> Argument:
    """Return what a kernel is specialized on for one argument."""
    if parameter.constexpr:
        return ConstantArg(_constant(kernel, parameter.name, value))
    if value is None or is_jit(value) or type(value).__name__ in ("constexpr", "dtype"):
        return ConstantArg(_constant(kernel, parameter.name, value))
    if is_descriptor(value):
        return _descriptor(parameter.name, value)
    if is_array(value):
        try:
            view = look(value)
        except ArgumentError as error:
            raise named_error(kernel, parameter.name, error) from None
        return PointerArg(view.dtype, parameter.specialize_pointer and view.address % 16 == 0)
    match number(value):
        case bool():
            return ScalarArg(parameter.dtype or "i1")
        case int() as integer:
            return _integer(kernel, parameter, integer)
        case float():
            return ScalarArg(parameter.dtype or "f32")
        case _:
            raise ArgumentError(
                f"{kernel}: the argument '{parameter.name}' is a {type(value).__qualname__}",
                why="arguments are arrays, descriptors, numbers, None, and constants for"
                " parameters annotated tl.constexpr",
                remedy=f"annotate {parameter.name} with tl.constexpr, or pass an array",
            )


def _constant(kernel: str, name: str, value: Any) -> Any:
    constant = unwrap_constant(value)
    if is_array(constant):
        raise ArgumentError(
            f"{kernel}: the constexpr '{name}' got an array",
            why="a constexpr is part of the program: a number, a type, a string or a function",
            remedy=f"drop the annotation of {name}, or pass a constant",
        )
    if isinstance(constant, list):
        return tuple(constant)  # pyright: ignore
    plain = number(constant)
    return constant if plain is None else plain


def number(value: Any) -> bool | int | float | None:
    """Return a Python number for one, or for a NumPy scalar; None for anything else."""
    if isinstance(value, bool | int | float):
        return value
    item = getattr(value, "item", None)
    if item is None or getattr(value, "shape", None) != ():
        return None
    plain = item()
    return plain if isinstance(plain, bool | int | float) else None


def _integer(kernel: str, parameter: Parameter, value: int) -> Argument:
    divisible = parameter.specialize_pointer and value % 16 == 0
    by_eight = parameter.specialize_pointer and value % 16 == 8
    if parameter.dtype:
        return ScalarArg(parameter.dtype, divisible, by_eight)
    if value == 1 and parameter.specialize:
        return ConstantArg(1)
    return ScalarArg(integer_type(kernel, parameter.name, value), divisible, by_eight)


def integer_type(kernel: str, name: str, value: int) -> str:
    """Return the type of an int by its value: i32, i64 or u64."""
    if -(1 << 31) <= value < 1 << 31:
        return "i32"
    if -(1 << 63) <= value < 1 << 63:
        return "i64"
    if 0 <= value < 1 << 64:
        return "u64"
    raise ArgumentError(
        f"{kernel}: the argument '{name}' = {value} does not fit 64 bits",
        why="an integer argument is i32, i64 or u64, by its value",
    )


def _descriptor(name: str, value: Any) -> DescriptorArg:
    base = value.base
    dtype = look(base).dtype if is_array(base) else dtype_name(getattr(base, "dtype", base))
    block = tuple(int(extent) for extent in value.block_shape)
    if not 1 <= len(block) <= 5 or min(block) < 1:
        raise ArgumentError(
            f"the descriptor '{name}' has block_shape={list(block)}",
            why="it has 1 to 5 dimensions, each of at least one element",
        )
    ragged = bool(int(value.shape[-1]) * BYTES[dtype] % 16)
    padding, window = getattr(value, "padding", "zero"), window_of(value)
    return DescriptorArg(dtype, block, padding, ragged and window is None, window)


def signature_key(signature: Signature) -> tuple[object, ...]:
    """Return a hashable key in which constants differ by type and bits."""
    return tuple(
        (name, type(argument.value), freeze(argument.value))
        if isinstance(argument, ConstantArg)
        else (name, argument)
        for name, argument in signature.items()
    )
