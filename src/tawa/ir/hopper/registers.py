"""Register layouts, and where values must exist."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr
from xdsl.irdl import (
    attr_def,
    irdl_op_definition,
    operand_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from tawa.ir.formats import PLAIN
from tawa.ir.operation import TawaOperation


@irdl_op_definition
class ConvertLayout(TawaOperation):
    """The same tensor in another register layout, within threads or by warp shuffles.

    A conversion that crosses warps is a `SharedStore`, a barrier and a `SharedLoad`, never this.
    """

    name = "hopper.convert_layout"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Columns(TawaOperation):
    """The columns (last dimension) of a tensor from `start` on, as many as the result has: the same
    registers, none of another thread.
    """

    name = "hopper.columns"
    value = operand_def()
    start = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Uninitialized(TawaOperation):
    """Registers with any content: an accumulator that its first product overwrites."""

    name = "hopper.uninitialized"
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class Pin(TawaOperation):
    """Values that must exist before this point: ptxas may not move their computation past it."""

    name = "hopper.pin"
    values = var_operand_def()
    res = var_result_def()
    assembly_format = PLAIN
