"""Register layouts, and where values must exist."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, IntAttr
from xdsl.irdl import (
    AttrSizedOperandSegments,
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    region_def,
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
class Pick(TawaOperation):
    """The elements at place `at` of `axis`, which a warp holds and which goes: all lanes get them,
    by one shuffle a word from the lane that has them.
    """

    name = "hopper.pick"
    value = operand_def()
    axis = attr_def(IntAttr)
    at = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class CarryIn(TawaOperation):
    """Parts of lines, each part that of a warp, after what came before them: `ends` combined with
    `parts` by the body, which is that of the scan.

    `ends` are the scan of the parts' last elements along `axis`, whose places lanes of every warp
    hold; `parts` have the inside of a part as one more dimension, `axis` + 1. A part takes the end
    of its neighbour, below or, in `reverse`, above: one shuffle a word; that at the end stays.
    """

    name = "hopper.carry_in"
    ends = var_operand_def()
    parts = var_operand_def()
    axis = attr_def(IntAttr)
    reverse = opt_attr_def(BoolAttr)
    body = region_def("single_block")
    res = var_result_def()
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)


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
