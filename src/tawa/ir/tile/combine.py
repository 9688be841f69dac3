"""Operations that combine elements: products, reductions, prefixes, choices and counts."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, IntAttr, StringAttr
from xdsl.irdl import (
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, Pure

from tawa.ir.formats import PLAIN
from tawa.ir.operation import TawaOperation


@irdl_op_definition
class Dot(TawaOperation):
    """The matrix product a @ b + acc, of shapes [.., M, K] and [.., K, N], accumulated in `acc`.

    `precision` is the meaning of fp32 operands: `tawa.ir.precision`.
    `max_imprecise` is Triton's max_num_imprecise_acc for fp8 (0: full fp32 accumulation).
    """

    name = "tile.dot"
    a = operand_def()
    b = operand_def()
    acc = operand_def()
    precision = attr_def(StringAttr)
    max_imprecise = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Reduce(TawaOperation):
    """Combine along `axis`, which disappears. The body takes two elements (of each operand: a
    tuple reduction has several) and yields their combination with `tile.yield`.
    """

    name = "tile.reduce"
    inputs = var_operand_def()
    axis = attr_def(IntAttr)
    body = region_def("single_block")
    res = var_result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Scan(TawaOperation):
    """Inclusive prefix combination along `axis`; the body as in `Reduce`."""

    name = "tile.scan"
    inputs = var_operand_def()
    axis = attr_def(IntAttr)
    reverse = opt_attr_def(BoolAttr)
    body = region_def("single_block")
    res = var_result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Gather(TawaOperation):
    """Elements of `value` chosen along `axis` by `index`, whose shape the result has.

    In the other dimensions a result's element comes from its own place. An index outside the
    extent, a power of two, is taken modulo the extent.
    """

    name = "tile.gather"
    value = operand_def()
    index = operand_def()
    axis = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Histogram(TawaOperation):
    """How often each of 0, 1 .. n - 1 stands in a row of integers; n is the result's last extent.

    The last dimension is counted along. Elements outside count nowhere, nor do those whose `mask`
    is false.
    """

    name = "tile.histogram"
    value = operand_def()
    mask = opt_operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$value (`,` $mask^)? attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class Yield(TawaOperation):
    """End the body of a reduce or scan with the combined elements."""

    name = "tile.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator())
    assembly_format = "($values^ `:` type($values))? attr-dict"
