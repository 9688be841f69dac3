"""The kernel's CUDA parameters: what the body uses of its arguments, and the tensor maps.

Descriptors become tensor maps, encoded by the launcher; a descriptor made inside the kernel from
arguments alone is described to it by expressions in Python over the arguments' names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue

from tawa.analysis.hardware import padding_of
from tawa.codegen.elements import element_of
from tawa.codegen.emit.values import Map, Scalar
from tawa.codegen.names import Names
from tawa.codegen.parameters import (
    CounterParameter,
    GridParameter,
    Parameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import DescType, PtrType, Real, bit_width, spell
from tawa.ir.walk import walk


@dataclass(frozen=True, slots=True)
class Input:
    """One CUDA parameter: what is passed, its declaration, and the values it stands for.

    A number of a narrow float type is passed as its `bits`, the name of the parameter; the kernel
    widens it once, to the variable `name`.
    """

    name: str
    parameter: Parameter
    declaration: str
    meaning: Map | Scalar
    values: tuple[SSAValue, ...]
    bits: str = ""


def collect(kernel: tile.Kernel, names: Names) -> list[Input]:
    """Return the parameters: tensor maps, then arguments in order, then what is derived."""
    block = kernel.body.block
    arguments: dict[SSAValue, str] = dict(zip(block.args, kernel.argument_names, strict=True))
    found = [
        _tensor_map(op, arguments, names) for op in block.ops if isinstance(op, hopper.TensorMap)
    ]
    for value, name in arguments.items():
        if isinstance(value.type, DescType) or not _is_read(value):
            continue
        found.append(_argument(value, name, names))
    found.extend(_extents(kernel, arguments, names))
    found.extend(_grid(kernel, names))
    found.extend(_counter(kernel, names))
    return found


def _is_read(value: SSAValue) -> bool:
    """Tell whether the device reads an argument: maps made of it are encoded on the host."""
    return any(not isinstance(use.operation, tile.MakeDesc) for use in value.uses)


def _argument(value: SSAValue, name: str, names: Names) -> Input:
    unique = names.fresh(name)
    if isinstance(value.type, PtrType):
        return _scalar(unique, PointerParameter(name), (value,))
    made = _scalar(unique, ScalarParameter(name, spell(value.type)), (value,))
    if not element_of(value.type).is_small_float:
        return made
    bits = names.fresh(f"{name}_bits")
    return replace(made, declaration=f"const {element_of(value.type).storage} {bits}", bits=bits)


def _scalar(name: str, parameter: Parameter, values: tuple[SSAValue, ...]) -> Input:
    element = element_of(values[0].type)
    return Input(name, parameter, f"const {element.storage} {name}", Scalar(name, element), values)


def _tensor_map(op: hopper.TensorMap, arguments: dict[SSAValue, str], names: Names) -> Input:
    kind = op.result.type
    source = arguments.get(op.desc, "")
    label = op.result.name_hint or (f"{source}_map" if source else "map")
    name = names.fresh(label)
    element, swizzle = spell(kind.element), op.swizzle.data
    assert isinstance(op.desc.type, DescType), "a tensor map is of a descriptor"
    row = op.desc.type.block_shape[-1] * max(8, bit_width(kind.element)) // 8
    if source:
        parameter = TensorMapParameter(
            label,
            element,
            kind.box_shape,
            swizzle,
            padding_of(op.desc),
            source,
            row=row,
            window=op.desc.type.window,
        )
    else:
        made = op.desc.owner
        if not isinstance(made, tile.MakeDesc):
            raise InternalError("a tensor map of something other than an argument or make_desc")
        parameter = TensorMapParameter(
            label,
            element,
            kind.box_shape,
            swizzle,
            padding_of(op.desc),
            "",
            host_expression(made.base, arguments),
            tuple(host_expression(value, arguments) for value in made.extents),
            tuple(host_expression(value, arguments) for value in made.strides),
            row,
        )
    declaration = f"const __grid_constant__ TensorMap {name}"
    return Input(name, parameter, declaration, Map(name), (op.result,))


def _extents(kernel: tile.Kernel, arguments: dict[SSAValue, str], names: Names) -> list[Input]:
    """Return a parameter for each extent or stride of a descriptor argument the kernel asks for."""
    groups: dict[tuple[SSAValue, str, int], list[SSAValue]] = {}
    for op in walk(kernel):
        if isinstance(op, tile.DescExtent) and op.desc in arguments:
            groups.setdefault((op.desc, op.what.data, op.axis.data), []).append(op.result)
    found: list[Input] = []
    for (desc, what, axis), values in groups.items():
        source = arguments[desc]
        name = names.fresh(f"{source}_{what}_{axis}")
        # The base is an address; extents and strides are numbers of the type the kernel wants.
        kind = "u64" if what == "base" else spell(values[0].type)
        parameter = ScalarParameter(_of_descriptor(source, what, axis, desc), kind)
        found.append(_scalar(name, parameter, tuple(values)))
    return found


def _of_descriptor(source: str, what: str, axis: int, desc: SSAValue) -> str:
    """Return the host's expression of a descriptor argument's base, extent, stride or count."""
    if what == "base":
        return f"{source}.base"
    if what != "count":
        return f"{source}.{what}s[{axis}]"
    assert isinstance(desc.type, DescType), "windows are counted in images"
    window = desc.type.window
    assert window is not None, "windows are counted of a descriptor of windows"
    extent = f"({source}.extents[{axis + 1}] + {window.slack(axis)})"
    return f"max(0, {extent} // {window.stride[axis]} + 1)"


def _grid(kernel: tile.Kernel, names: Names) -> list[Input]:
    """Return a parameter for each extent of the user's grid the kernel asks for."""
    groups: dict[int, list[SSAValue]] = {}
    for op in walk(kernel):
        if isinstance(op, hopper.GridExtent):
            groups.setdefault(op.axis.data, []).append(op.result)
    return [
        _scalar(names.fresh(f"grid_{'xyz'[axis]}"), GridParameter(axis), tuple(values))
        for axis, values in sorted(groups.items())
    ]


def _counter(kernel: tile.Kernel, names: Names) -> list[Input]:
    """Return the parameter that says which counter is this launch's, if the kernel asks."""
    values = tuple(op.result for op in walk(kernel) if isinstance(op, hopper.Counter))
    return [_scalar(names.fresh("counter"), CounterParameter(), values)] if values else []


_PYTHON = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "idiv": "({} // {})",
    "irem": "({} % {})",
    "min": "min({}, {})",
    "max": "max({}, {})",
    "neg": "(-{})",
    "shl": "({} << {})",
    "shr": "({} >> {})",
}


def host_expression(value: SSAValue, arguments: dict[SSAValue, str]) -> str:
    """Return a scalar as a Python expression over the arguments' names.

    Addresses count bytes. Raises InternalError for what the host cannot know.
    """
    if value in arguments:
        return arguments[value]
    match value.owner:
        case tile.Constant(value=IntAttr(data=int() as number)):
            return str(number)
        case tile.Constant(value=Real(data=float() as number)):
            return repr(number)
        case tile.Cast() as op:
            return host_expression(op.value, arguments)
        case tile.Elementwise() as op if op.function.data in _PYTHON:
            parts = [host_expression(item, arguments) for item in op.inputs]
            return _PYTHON[op.function.data].format(*parts)
        case tile.PtrAdd() as op if isinstance(op.pointer.type, PtrType):
            size = bit_width(op.pointer.type.element) // 8
            base, offset = (host_expression(v, arguments) for v in (op.pointer, op.offset))
            return f"({base} + {offset} * {size})"
        case tile.DescExtent() as op if op.desc in arguments:
            return _of_descriptor(arguments[op.desc], op.what.data, op.axis.data, op.desc)
        case Operation() as op:
            raise InternalError(f"a descriptor made of {op.name}, which the host does not know")
        case _:
            raise InternalError("a descriptor made of a value the host does not know")
