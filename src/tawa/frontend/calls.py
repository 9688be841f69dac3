"""Calls: functions of the language by name, helpers inline, Python functions on constants."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import (
    BuiltinFunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, get_args

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, SSAValue

import tawa.language as tl
from tawa.errors import TawaError, TypeMismatch, UnsupportedSyntax
from tawa.frontend.aggregates import Aggregate, aggregate_of
from tawa.frontend.attributes import find_attribute, get_attribute
from tawa.frontend.context import Context
from tawa.frontend.names import (
    REFUSED,
    Builtin,
    Helper,
    HostFunction,
    lift,
    tritons_dtype,
)
from tawa.frontend.source import underlying
from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.binding import bind
from tawa.ir.build.operations import OPERATIONS
from tawa.ir.build.values import (
    BlockPointer,
    Const,
    Descriptor,
    Instance,
    Method,
    Tensor,
    Tuple,
    Value,
    describe,
    known,
    leaves,
)
from tawa.language.written import Written


@dataclass(frozen=True, slots=True)
class Iterations:
    """What a `for` loop runs over; `static` loops are unrolled, `hints` go on the loop."""

    start: Value
    end: Value
    step: Value
    static: bool = False
    hints: Mapping[str, object] = field(default_factory=dict[str, object])


def call(
    c: Context, function: Value, positional: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """Compile a call of any value; raises UnsupportedSyntax when it is not callable here."""
    match function:
        case Method(receiver=Descriptor() as desc, name=name):
            stub = getattr(tl.tensor_descriptor, name)
            return _call_handler(c, f"descriptor.{name}", stub, [desc, *positional], named)
        case Method(receiver=Instance(kind=kind) as receiver, name=name):
            return call(c, lift(getattr(kind, name)), [receiver, *positional], named)
        case Method(receiver=receiver, name=name):
            stub = getattr(tl, _ALIASES.get(name, name))
            if isinstance(stub, Written):
                return c.inline(c, stub.fn, [receiver, *positional], named)  # pyright: ignore[reportArgumentType]
            return _call_builtin(c, name, stub, [receiver, *positional], named)
        case Const(value=Builtin(name=name)):
            return _call_builtin(c, name, _stub(c, name), positional, named)
        case Const(value=Helper(function=helper)) if _is_tritons(helper) and not _is_tritons(
            c.frame.source.function
        ):
            return _inline_tritons(c, helper, positional, named)
        case Const(value=Helper(function=helper)) if helper.__name__ == "__init__":
            raise c.unsupported(
                "a constructor is called by the name of its class",
                why="an aggregate is a value: no other function gives its fields their values",
                remedy="call the class, or write a helper that both constructors call",
            )
        case Const(value=Helper(function=helper)):
            return c.inline(c, helper, positional, named)
        case Const(value=HostFunction(function=host, tritons=tritons)):
            given = (*positional, *named.values())
            plain = underlying(host)
            if plain is None or all(_is_constant(known(value)) for value in given):
                return _run_in_python(c, host, positional, named, tritons)
            # What is asked of a value of the run is its type, which the frontend knows, or what is
            # constant of an aggregate. A number has become a scalar: of floats that is another one.
            found = c.inline(c, plain, positional, named)
            match known(found):
                case Const(value=int()) as number:
                    return number
                case _ if isinstance(found, Const):
                    return found
                case _:
                    pass
            return _run_in_python(c, host, positional, named)
        case Const(value=host) if callable(host) and not isinstance(host, type):
            return _call_python(c, host, positional, named)
        case Const(value=type() as kind):
            return _call_type(c, kind, positional, named)
        case _:
            raise c.unsupported(f"{describe(function)} cannot be called in a kernel")


def _is_tritons(function: Any) -> bool:
    return str(function.__module__).startswith("triton.")


def _inline_tritons(
    c: Context, helper: Any, positional: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """Compile a function of Triton's library; where it does not, say so of the user's call."""
    place, calls = c.builder.place, c.builder.calls
    try:
        return c.inline(c, helper, positional, named)
    except TawaError as error:
        where = f" ({error.place.file}:{error.place.line})" if error.place is not None else ""
        raise UnsupportedSyntax(
            f"{helper.__module__}.{helper.__name__} cannot be called so in a kernel",
            place=place,
            calls=calls,
            why=f"Triton's own text of it does not compile here: {error.what}{where}",
            remedy="use functions of tl, or inline PTX",
        ) from error


_ALIASES = {"to": "cast", "logical_and": "add", "logical_or": "add"}


def refuse_missing(c: Context, function: Value) -> None:
    """Raise UnsupportedSyntax for a function of the language that is not supported: before its
    arguments, which may be what only such functions take, are looked at.
    """
    match function:
        case Const(value=Builtin(name=name)):
            _stub(c, name)
        case _:
            pass


def _stub(c: Context, name: str) -> Callable[..., object]:
    """Return the documented function of the language called `name`."""
    for module in (tl, tl.extra.libdevice, tl.extra.cuda):
        if callable(found := getattr(module, name, None)):
            return found
    why, remedy = REFUSED.get(
        name,
        (
            "the compiler knows no tile operation for it",
            "docs/reference/language.md has all there is",
        ),
    )
    raise c.unsupported(f"tl.{name} is not supported", why=why, remedy=remedy)


def _call_builtin(
    c: Context,
    name: str,
    stub: Callable[..., object],
    positional: Sequence[Value],
    named: Mapping[str, Value],
) -> Value:
    match name:
        case "range" | "static_range":
            return _trips(name, bind(c.builder, f"tl.{name}", stub, positional, named, lift))
        case "constexpr" | "condition":
            return positional[0] if positional else Const(None)
        case "tuple":
            return _call_type(c, tuple, positional, named)
        case "aggregate_replace":
            return _replaced(c, positional, named)
        case "pointer_type" | "block_type" | "dtype":
            return _run_in_python(c, stub, positional, named)
        case "logical_and" | "logical_or":
            one, other = (arithmetic.to_bool(c.builder, value) for value in positional)
            return arithmetic.binary(c.builder, "&" if name == "logical_and" else "|", one, other)
        case _:
            return _call_handler(c, _ALIASES.get(name, name), stub, positional, named)


def _call_handler(
    c: Context,
    key: str,
    stub: Callable[..., object],
    positional: Sequence[Value],
    named: Mapping[str, Value],
) -> Value:
    if (handler := OPERATIONS.get(key)) is None:
        raise c.unsupported(
            f"tl.{key} cannot be called in a kernel", why="it is a type, or has no tile operation"
        )
    return handler(c, *bind(c.builder, f"tl.{key}", stub, positional, named, lift).values())


def _trips(name: str, bound: Mapping[str, Value]) -> Const:
    first, second, step = (bound[key] for key in ("arg1", "arg2", "step"))
    hints = {
        key: value.value
        for key, value in bound.items()
        if key not in ("arg1", "arg2", "step") and isinstance(value, Const)
    }
    single = isinstance(second, Const) and second.value is None
    start, end = (Const(0), first) if single else (first, second)
    by_one = isinstance(step, Const) and step.value is None
    return Const(
        Iterations(start, end, Const(1) if by_one else step, name == "static_range", hints)
    )


def _run_in_python(
    c: Context,
    function: Any,
    positional: Sequence[Value],
    named: Mapping[str, Value],
    tritons: bool = False,
) -> Value:
    """Call a Python function now; its arguments must be constants. One of Triton's compares types
    of elements with Triton's own, which equal none of ours.
    """
    positional = [known(value) for value in positional]
    named = {name: known(value) for name, value in named.items()}
    for value in (*positional, *named.values()):
        if not _is_constant(value):
            raise c.builder.mismatch(
                f"{getattr(function, '__name__', function)} runs at compile time, "
                f"and {describe(value)} is known only at run time",
                remedy="use the function of tawa.language that does the same",
            )
    try:
        arguments = [_to_python(value) for value in positional]
        keywords = {name: _to_python(value) for name, value in named.items()}
        if tritons:
            arguments = [tritons_dtype(value) for value in arguments]
            keywords = {name: tritons_dtype(value) for name, value in keywords.items()}
        return lift(function(*arguments, **keywords))
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        raise c.builder.mismatch(
            f"{getattr(function, '__name__', function)} failed at compile time",
            why=f"{type(error).__name__}: {error}",
        ) from None


def _is_constant(value: Value) -> bool:
    match value:
        case Tuple():
            return all(map(_is_constant, value.items))
        case Instance():
            return all(map(_is_constant, value.fields.values()))
        case _:
            return isinstance(value, Const)


def _to_python(value: Value) -> object:
    match value:
        case Const():
            return value.value
        case Tuple(fields=()):
            return [_to_python(item) for item in value.items]
        case Tuple(fields=fields):
            made: Any = namedtuple("tuple", fields)  # pyright: ignore[reportUntypedNamedTuple]
            return made(*map(_to_python, value.items))
        case Instance(fields=fields):
            return _to_python(Tuple(tuple(fields.values()), tuple(fields)))
        case _:
            return value


def _call_python(
    c: Context, function: Any, positional: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """Call one of Python's builtins, or a method of a constant."""
    tile_name = {min: "minimum", max: "maximum", abs: "abs", print: "device_print"}
    known = function if isinstance(function, BuiltinFunctionType) else None  # none has its own ==
    match function:
        case _ if function is len:
            return _length(c, positional)
        case _ if known in (isinstance, getattr, hasattr):
            return _introspect(c, function, positional)
        case _ if function is print:
            return call(c, Const(Builtin("device_print")), positional, named)
        case _ if function is breakpoint and not positional and not named:
            return _stop(c)
        case _ if known in tile_name and not all(map(_is_constant, positional)):
            return _fold_calls(c, tile_name[function], positional)
        case _ if _may_run(function) and all(map(_is_plain, (*positional, *named.values()))):
            return _run_in_python(c, function, positional, named)
        case _:
            name = getattr(function, "__name__", "")
            raise c.unsupported(
                f"{name or function!s} cannot be called in a kernel",
                why="while a kernel is compiled only these run: functions of the language, "
                "helpers, the builtins of Python and the functions of math that compute with "
                "numbers, texts and types and do nothing else, and methods of such values",
                remedy=f"use tl.{name}"
                if name in OPERATIONS
                else "decorate it with @tawa.jit, or with @tl.constexpr_function to run it "
                "at compile time",
            )


def _stop(c: Context) -> Value:
    """Let the oracle stop here, with the variables that have values of run time or are numbers."""
    names: list[Attribute] = []
    values: list[SSAValue] = []
    for name, binding in c.frame.names.items():
        value = binding.value
        if isinstance(value, Const):
            match value.value:
                case bool() | float():
                    value = arithmetic.to_tensor(c.builder, value)
                case int(number) if -(1 << 63) <= number < 1 << 64:
                    value = arithmetic.to_tensor(c.builder, value)
                case _:
                    continue
        found = [*leaves(value)]
        names += [StringAttr(name)] * len(found)
        values += found
    told = [Tensor(value) for value in values]
    c.builder.effect(tile.Breakpoint, [told], function=c.frame.source.name, names=ArrayAttr(names))
    return Const(None)


_PURE = frozenset(
    (
        *(abs, all, any, ascii, bin, callable, chr, divmod, format, hash, hex, issubclass, len),
        *(max, min, oct, ord, pow, repr, round, sorted, sum),
    )
)
_PLAIN = (bool, int, float, complex, str, bytes, tuple, tl.dtype, Enum, type(None))


def _may_run(function: Any) -> bool:
    """Tell whether a function of Python's computes a value and does nothing else, so that it may
    run while a kernel is compiled, on plain values.
    """
    owner = getattr(function, "__self__", None)
    match function:
        case _ if isinstance(owner, ModuleType):  # a function of a module written in C
            return function in _PURE or getattr(math, function.__name__, None) is function
        case _ if getattr(function, "__name__", "") in ("format", "format_map"):
            return False  # the fields of a text read attributes of anything
        case BuiltinFunctionType() | MethodType() | MethodWrapperType():
            return isinstance(owner, _PLAIN) or any(owner is kind for kind in _PLAIN)
        case MethodDescriptorType() | WrapperDescriptorType():
            return issubclass(function.__objclass__, _PLAIN)
        case _:
            return False


def _is_plain(value: Value) -> bool:
    """Tell whether a value is data of Python's own or of the language, whose methods do no more
    than compute. What is known only at run time counts: the call says what is wrong with it.
    """
    match value:
        case Tuple():
            return all(map(_is_plain, value.items))
        case Const():
            return isinstance(value.value, (*_PLAIN, type, Builtin))
        case _:
            return True


def _fold_calls(c: Context, name: str, values: Sequence[Value]) -> Value:
    """Apply min or max to any number of values, from the left; abs to one."""
    builtin = Const(Builtin(name))
    if len(values) == 1 and isinstance(values[0], Tuple):
        values = values[0].items
    if name == "abs" or len(values) < 2:
        return call(c, builtin, values, {})
    result = values[0]
    for value in values[1:]:
        result = call(c, builtin, [result, value], {})
    return result


def _length(c: Context, positional: Sequence[Value]) -> Value:
    match positional:
        case [Tuple() as value]:
            return Const(len(value.items))
        case [Tensor(is_block=True) as value]:
            return Const(value.shape[0])
        case [Const(value=str() as text)]:
            return Const(len(text))
        case _:
            raise c.builder.mismatch("len takes a tuple")


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "tensor": (Tensor, BlockPointer),
    "tensor_descriptor": (Descriptor,),
    "tensor_descriptor_base": (Descriptor,),
    "tuple": (Tuple,),
}


def _introspect(c: Context, function: Any, positional: Sequence[Value]) -> Value:
    """Answer isinstance, hasattr and getattr at compile time."""
    match function.__name__, positional:
        case "isinstance", [value, kind]:
            kinds = kind.items if isinstance(kind, Tuple) else (kind,)
            return Const(any(_is_instance(value, one) for one in kinds))
        case "hasattr", [Const(value=owner), Const(value=str() as name)]:
            return Const(hasattr(owner, name))
        case "hasattr", [owner, Const(value=str() as name)]:
            try:
                return Const(find_attribute(c, owner, name) is not None)
            except TypeMismatch:  # what values of its shape do not have
                return Const(False)
        case "getattr", [owner, Const(value=str() as name)]:
            return get_attribute(c, owner, name)
        case "getattr", [Const(value=owner), Const(value=str() as name), default]:
            return lift(getattr(owner, name)) if hasattr(owner, name) else default
        case name, _:
            raise c.builder.mismatch(f"{name} takes constants in a kernel")


def _is_instance(value: Value, kind: Value) -> bool:
    match kind:
        case Const(value=Builtin(name="dtype")):
            return isinstance(value, Const) and isinstance(value.value, tl.dtype)
        case Const(value=Builtin(name="constexpr")):
            return _is_constant(value)
        case Const(value=Builtin(name=name)):
            return isinstance(value, _PYTHON_TYPES.get(name, ()))
        case Const(value=type() as python) if isinstance(value, Const):
            return isinstance(value.value, python)
        case Const(value=type() as python) if isinstance(value, Instance):
            return issubclass(value.kind, python)
        case Const(value=type() as python):
            return isinstance(value, Tuple) and python in (tuple, list)
        case _:
            return False


def _aggregate(
    c: Context,
    kind: type,
    aggregate: Aggregate,
    positional: Sequence[Value],
    named: Mapping[str, Value],
) -> Instance:
    """Make an object of an aggregate: by its constructor, else of the fields in order."""
    made = Instance(kind, {})
    if aggregate.init is None:
        given = bind(c.builder, kind.__name__, aggregate.stub, positional, named, lift)
        for name, value in given.items():
            made = with_field(c, made, name, value)
        return made
    constructor: Any = underlying(aggregate.init)
    found = c.inline(c, constructor, [made, *positional], named)
    values = found.fields if isinstance(found, Instance) else dict[str, Value]()
    if missing := [name for name in aggregate.fields if name not in values]:
        raise c.builder.mismatch(
            f"the constructor of {kind.__name__} gives {', '.join(missing)} no value",
            why="an aggregate has all its fields, whichever way its constructor goes",
        )
    return Instance(kind, values)


def with_field(c: Context, made: Value, name: str, value: Value) -> Instance:
    """Return an aggregate that is being made, with a value of a field; raises TypeMismatch."""
    aggregate = aggregate_of(made.kind) if isinstance(made, Instance) else None
    if not isinstance(made, Instance) or aggregate is None or name not in aggregate.fields:
        raise c.builder.mismatch(
            f"{describe(made)} has no field {name}",
            why="the fields of an aggregate are its annotated names",
        )
    kind = aggregate.fields[name]
    kinds = [lift(each) for each in get_args(kind) or (kind,)]
    if kinds == [Const(Builtin("constexpr"))]:
        value = known(value)
    elif kinds == [Const(Builtin("tensor"))] and arithmetic.as_number(value) is not None:
        value = arithmetic.to_tensor(c.builder, value)  # as of an argument that is 1
    if not any(_is_instance(value, each) for each in kinds):
        raise c.builder.mismatch(
            f"the field {name} of {made.kind.__name__} is {describe(value)}",
            why=f"it is annotated {getattr(kind, '__name__', kind)}",
        )
    values = {**made.fields, name: value}
    return Instance(made.kind, {each: values[each] for each in aggregate.fields if each in values})


def _replaced(c: Context, positional: Sequence[Value], changes: Mapping[str, Value]) -> Value:
    match positional:
        case [Instance(kind=kind, fields=fields)]:
            return _call_type(c, kind, (), {**fields, **changes})
        case _:
            raise c.builder.mismatch("tl.aggregate_replace takes an aggregate, and new fields")


_LIMITS = frozenset((("torch", "finfo"), ("torch", "iinfo")))
"""Types that say what a type of elements holds, and do nothing else."""
_CONVERSIONS = {kind: kind.__name__ for kind in (range, list, tuple, bool, int, float, str)}


def _call_type(
    c: Context, kind: type, positional: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """Call a Python type: conversions of constants, range, named tuples, and aggregates."""
    if (aggregate := aggregate_of(kind)) is not None:
        return _aggregate(c, kind, aggregate, positional, named)
    if getattr(kind, "_fields", None) is not None:  # a named tuple
        given = bind(c.builder, kind.__name__, kind, positional, named, lift)
        return Tuple(tuple(given.values()), tuple(given))
    match _CONVERSIONS.get(kind, ""), positional:
        case "range", _:
            names = ("arg1", "arg2", "step")
            bound: dict[str, Value] = {name: Const(None) for name in names}
            return _trips("range", bound | dict(zip(names, positional)))
        case "list" | "tuple", [Tuple() as value]:
            return Tuple(value.items)
        case "list" | "tuple", [Const(value=Iterations())]:
            return positional[0]
        case "bool", [Tensor() as value]:
            return arithmetic.to_bool(c.builder, value)
        case "int" | "float" | "bool" | "str", _ if all(map(_is_plain, positional)):
            return _run_in_python(c, kind, positional, named)
        case _ if (kind.__module__, kind.__name__) in _LIMITS:
            return _run_in_python(c, kind, positional, named)
        case _:
            raise c.unsupported(
                f"{kind.__name__} cannot be made in a kernel",
                why="a kernel knows scalars, tensors, descriptors and (named) tuples",
            )
