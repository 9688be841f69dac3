"""Which tensors are other names of one tensor's registers."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import LayoutAttr, layout_of
from tawa.layouts.convert import register_map

_VIEWS = (tile.ExpandDims, tile.Broadcast, tile.Transpose, tile.Reshape, hopper.Columns)


def renames(operation: Operation) -> bool:
    """Tell whether the result of an operation is its operand's registers, otherwise numbered.

    Layouts are chosen; code generation writes nothing for such an operation.
    """
    if isinstance(operation, hopper.ConvertLayout):
        have, wanted = operation.value.type, operation.result.type
        return register_map(layout_of(have), layout_of(wanted)) is not None
    return isinstance(operation, _VIEWS) and _is_held(operation.operands[0])


def _is_held(value: SSAValue) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and isinstance(kind.encoding, LayoutAttr)


def names_of(value: SSAValue) -> Iterator[SSAValue]:
    """Yield a tensor and those whose registers it names, down to the one that has them."""
    yield value
    while isinstance(value.owner, Operation) and renames(value.owner):
        value = value.owner.operands[0]
        yield value
