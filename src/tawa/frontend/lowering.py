"""One kernel: its parameters become arguments or constants, its body tile IR.

Before: a Python function and a signature. After: a verified `tile.kernel` without dead values.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from types import FunctionType

from xdsl.dialects.builtin import DictionaryAttr, TensorType
from xdsl.ir import Block

from tawa.errors import ArgumentError, UnsupportedSyntax
from tawa.frontend.context import Binding, Context, Frame
from tawa.frontend.liveness import analyse
from tawa.frontend.names import lift
from tawa.frontend.signature import (
    Argument,
    ConstantArg,
    DescriptorArg,
    PointerArg,
    ScalarArg,
    Signature,
    TupleArg,
)
from tawa.frontend.source import Source, read_source
from tawa.frontend.statements import is_constexpr, run
from tawa.ir import tile
from tawa.ir.build.binding import bind
from tawa.ir.build.builder import Builder
from tawa.ir.build.finish import facts_of, finish
from tawa.ir.build.values import Const, Descriptor, Tensor, Tuple, Value, describe, name_value
from tawa.ir.types import SCALARS, DescType, PtrType

_ENDS = (
    "helpers are compiled into their callers, so that types and constants of the arguments must "
    "tell where functions that call themselves end"
)


def lower(function: object, signature: Signature, options: Mapping[str, object]) -> tile.Kernel:
    """Compile a function for a signature; see `tawa.frontend.build`."""
    source = read_source(function)
    block = Block()
    builder = Builder(block, source.place(source.tree))
    frame = Frame(source, analyse(source.tree))
    context = Context(builder, options, frame, ((source.function, ()),), inline_call)
    _refuse_variadic(context, source, "*", source.tree.args.vararg)
    _refuse_variadic(context, source, "**", source.tree.args.kwarg)
    facts = _bind_parameters(context, signature)
    try:
        result = run(context, source.tree.body)
    except RecursionError:
        raise UnsupportedSyntax(
            f"the calls in {source.name} have no end", place=source.place(source.tree), why=_ENDS
        ) from None
    if result is not None and result != Const(None):
        raise builder.error(
            UnsupportedSyntax,
            f"the kernel {source.name} returns {describe(result)}",
            why="a kernel gives its results through memory",
            remedy="store the value, or call the function from a kernel as a helper",
        )
    kernel = finish(source.name, block, facts, options)
    builder.check_missing(kernel)
    return kernel


def _refuse_variadic(c: Context, source: Source, stars: str, extra: ast.arg | None) -> None:
    if extra is not None:
        c.builder.place = source.place(extra)
        raise c.unsupported(
            f"{stars}{extra.arg} cannot be a parameter of {source.name}",
            why="every parameter has one type, known when the kernel is compiled",
            remedy="write the parameters one by one",
        )


def _parameters(source: Source) -> list[ast.arg]:
    parameters = source.tree.args
    variadic = [parameters.vararg] if parameters.vararg is not None else []
    return [*parameters.posonlyargs, *parameters.args, *variadic, *parameters.kwonlyargs]


def _bind_parameters(c: Context, signature: Signature) -> list[DictionaryAttr]:
    """Give each parameter its value; returns the facts about the run-time ones, in order."""
    source = c.frame.source
    names = [parameter.arg for parameter in _parameters(source)]
    tuples = [entry for entry in signature.values() if isinstance(entry, TupleArg)]
    for name in signature:
        if name not in names and not any(name in entry.items for entry in tuples):
            raise c.builder.error(
                ArgumentError,
                f"{source.name} has no parameter {name}",
                why=f"its parameters are {', '.join(names)}",
            )
    facts: list[DictionaryAttr] = []
    for parameter in _parameters(source):
        c.builder.place = source.place(parameter)
        argument = _argument(c, parameter, signature)
        value = _value_of(c, parameter.arg, argument, signature, facts)
        c.frame.names[parameter.arg] = Binding(value, c.builder.place)
    return facts


def _argument(c: Context, parameter: ast.arg, signature: Signature) -> Argument:
    name = parameter.arg
    constant = parameter.annotation is not None and is_constexpr(c, parameter.annotation)
    if name not in signature:
        default = inspect.signature(c.frame.source.function).parameters[name].default
        if default is inspect.Parameter.empty:
            raise c.builder.error(
                ArgumentError,
                f"{c.frame.source.name} got no argument {name}",
                remedy=f"pass it by name: kernel[grid](..., {name}=...)",
            )
        return ConstantArg(default)
    argument = signature[name]
    if constant and not isinstance(argument, ConstantArg):
        raise c.builder.error(
            ArgumentError,
            f"{name} is a tl.constexpr and got a value of the run",
            why="its value is part of the compiled code",
            remedy="pass a Python number, or drop the annotation",
        )
    return argument


def _value_of(
    c: Context, name: str, argument: Argument, signature: Signature, facts: list[DictionaryAttr]
) -> Value:
    """Return what an argument means, and add to `facts` for each of the run that it has."""
    match argument:
        case TupleArg():
            parts = (
                _value_of(c, item, signature[item], signature, facts) for item in argument.items
            )
            return Tuple(tuple(parts), argument.fields)
        case ConstantArg():
            return lift(argument.value)
        case ScalarArg():
            kind = SCALARS[argument.dtype]
        case PointerArg():
            kind = PtrType(SCALARS[argument.dtype])
        case DescriptorArg():
            element = "i8" if argument.dtype == "i1" else argument.dtype  # as memory holds it
            block = TensorType(SCALARS[element], list(argument.block_shape))
            kind = DescType(block, argument.window)
    made = c.builder.block.insert_arg(kind, len(c.builder.block.args))
    name_value(made, name)
    facts.append(_facts(name, argument))
    if isinstance(argument, DescriptorArg):
        return Descriptor(made, padding=argument.padding, truths=argument.dtype == "i1")
    return Tensor(made)


def _facts(name: str, argument: Argument) -> DictionaryAttr:
    """Return what the specialization key says about a run-time argument."""
    match argument:
        case ScalarArg(divisible=True) | PointerArg(divisible=True):
            return facts_of(name, 16)
        case ScalarArg(by_eight=True):
            return facts_of(name, 8)
        case DescriptorArg():
            return facts_of(name, padding=argument.padding, ragged=argument.ragged)
        case _:
            return facts_of(name)


def inline_call(
    c: Context, function: FunctionType, positional: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """Compile a helper's body at its call."""
    by_name = (f"{name}={describe(value)}" for name, value in named.items())
    said = [*map(describe, positional), *by_name]
    if (function, said) in c.stack:
        raise c.unsupported(
            f"{function.__name__} calls itself",
            why=_ENDS,
            remedy="write a loop",
        )
    inner = c.enter(function, said)
    source = inner.frame.source
    bound = bind(c.builder, function.__name__, source.function, positional, named, lift)
    outer = (c.builder.place, c.builder.calls, set(c.builder.fresh))
    c.builder.calls = (c.builder.place, *c.builder.calls)
    _refuse_variadic(inner, source, "**", source.tree.args.kwarg)
    for parameter in _parameters(source):
        place = source.place(parameter)
        inner.frame.names[parameter.arg] = Binding(bound[parameter.arg], place)
    result = run(inner, source.tree.body)
    c.builder.place, c.builder.calls, fresh = outer
    c.builder.fresh |= fresh
    return Const(None) if result is None else result
