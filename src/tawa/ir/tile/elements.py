"""Where tensors begin, and operations on each element of one."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute
from xdsl.irdl import (
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from tawa.ir.formats import PLAIN
from tawa.ir.operation import TawaOperation


@irdl_op_definition
class Constant(TawaOperation):
    """A scalar constant, or a tensor filled with one. `value` is an IntAttr or Real."""

    name = "tile.constant"
    value = attr_def(Attribute)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class Arange(TawaOperation):
    """The tensor [start, start + 1, ..., start + n - 1] of i32, n from the result type."""

    name = "tile.arange"
    start = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class Elementwise(TawaOperation):
    """Apply a function of `tawa.ir.functions` to each element.

    `function` names the row: "add", "fma", "exp2", "less", "select" ... Signedness and width come
    from the element types; operands and result have one shape (scalars: none). `skip_ones` of a
    "mul": a warp whose second factors are all one does nothing. `natural` of an integer "idiv" or
    "irem": neither operand is ever negative, and the divisor is positive and one of few values.
    `within` of an integer: the least and the greatest number it may be, computed without wrapping;
    a launch that would pass them is refused.
    """

    name = "tile.elementwise"
    function = attr_def(StringAttr)
    skip_ones = opt_attr_def(UnitAttr)
    natural = opt_attr_def(UnitAttr)
    within = opt_attr_def(ArrayAttr[IntAttr])
    inputs = var_operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$function `(` $inputs `)` attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class Cast(TawaOperation):
    """Convert each element to another type (nearest even; integers wrap, fp8 saturates).

    A float becomes an integer towards zero, saturated, NaN 0; of 8 and 16 bits the low ones of
    that to i32. Of NaN and a type of 64 bits: the integer's highest bit alone (PTX ISA, "cvt").
    """

    name = "tile.cast"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Bitcast(TawaOperation):
    """Read the bits of each element as another type of the same width."""

    name = "tile.bitcast"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN
