"""Memory through descriptors, block by block."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, Pure

from tawa.ir.formats import PLAIN
from tawa.ir.operation import TawaOperation
from tawa.ir.types import DescType, PtrType


@irdl_op_definition
class MakeDesc(TawaOperation):
    """Describe a tensor in global memory: base pointer, extents and strides (elements, i64)."""

    name = "tile.make_desc"
    base = operand_def(PtrType)
    extents = var_operand_def()
    strides = var_operand_def()
    padding = attr_def(StringAttr)  # "zero" or "nan"
    result = result_def(DescType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())


@irdl_op_definition
class DescExtent(TawaOperation):
    """The extent (`what` = "extent") or stride ("stride") of a descriptor's dimension `axis`.

    `what` = "base" is the address of its first element, a pointer (`axis` is 0); "count" how many
    windows an image has along its spatial axis `axis`.
    """

    name = "tile.desc_extent"
    desc = operand_def(DescType)
    what = attr_def(StringAttr)
    axis = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN

    @classmethod
    def of(cls, desc: SSAValue, what: str, axis: int, kind: Attribute) -> DescExtent:
        """Return the question of `what` of `desc`, whose answer has type `kind`."""
        asked = {"what": StringAttr(what), "axis": IntAttr(axis)}
        return cls(operands=[desc], attributes=asked, result_types=[kind])


@irdl_op_definition
class DescLoad(TawaOperation):
    """Load the block at `offsets`; elements outside the tensor read as the padding.

    The result has the descriptor's block shape. Of windows, `offsets` are the first window and
    channel, then, by spatial axis, the tap, and then the windows of an image.
    """

    name = "tile.desc_load"
    desc = operand_def(DescType)
    offsets = var_operand_def()
    eviction = opt_attr_def(StringAttr)
    result = result_def()
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$desc `[` $offsets `]` attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class DescStore(TawaOperation):
    """Store a block at `offsets`; elements outside the tensor are dropped."""

    name = "tile.desc_store"
    desc = operand_def(DescType)
    offsets = var_operand_def()
    value = operand_def()
    assembly_format = "$desc `[` $offsets `]` `,` $value attr-dict `:` type(operands)"


@irdl_op_definition
class DescAtomic(TawaOperation):
    """Combine a block into memory at `offsets` (add, max, min, and, or, xor); nothing returned."""

    name = "tile.desc_atomic"
    function = attr_def(StringAttr)
    desc = operand_def(DescType)
    offsets = var_operand_def()
    value = operand_def()
    assembly_format = "$function $desc `[` $offsets `]` `,` $value attr-dict `:` type(operands)"
