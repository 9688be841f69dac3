"""Memory through pointers."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, StringAttr
from xdsl.irdl import (
    AttrSizedOperandSegments,
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, Pure

from tawa.ir.formats import PLAIN
from tawa.ir.operation import TawaOperation


@irdl_op_definition
class PtrAdd(TawaOperation):
    """Move a pointer, or each pointer of a tensor, by a number of elements."""

    name = "tile.ptr_add"
    pointer = operand_def()
    offset = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Load(TawaOperation):
    """Load from a pointer or a tensor of pointers; where `mask` is false, `other` (or anything)."""

    name = "tile.load"
    pointer = operand_def()
    mask = opt_operand_def()
    other = opt_operand_def()
    cache = opt_attr_def(StringAttr)
    eviction = opt_attr_def(StringAttr)
    volatile = opt_attr_def(BoolAttr)
    result = result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(MemoryReadEffect())


@irdl_op_definition
class Store(TawaOperation):
    """Store to a pointer or a tensor of pointers where `mask` is true."""

    name = "tile.store"
    pointer = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    cache = opt_attr_def(StringAttr)
    eviction = opt_attr_def(StringAttr)
    assembly_format = "$pointer `,` $value (`,` $mask^)? attr-dict `:` type(operands)"


@irdl_op_definition
class Atomic(TawaOperation):
    """Read, modify and write memory as one step; gives the old value.

    `function` is add, max, min, and, or, xor, exchange; `order` relaxed, acquire, release, acq_rel;
    `scope` gpu, cta or sys.
    """

    name = "tile.atomic"
    function = attr_def(StringAttr)
    pointer = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    order = attr_def(StringAttr)
    scope = attr_def(StringAttr)
    result = result_def()


@irdl_op_definition
class CompareExchange(TawaOperation):
    """Write `value` where memory equals `expected`, as one step; gives the old value."""

    name = "tile.compare_exchange"
    pointer = operand_def()
    expected = operand_def()
    value = operand_def()
    order = attr_def(StringAttr)
    scope = attr_def(StringAttr)
    result = result_def()
    assembly_format = PLAIN
