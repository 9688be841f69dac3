"""Matrix products: wgmma, mma.sync and fused multiply-adds."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import (
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from tawa.ir.formats import PLAIN
from tawa.ir.operation import TawaOperation
from tawa.ir.types import ViewType


@irdl_op_definition
class WgmmaFence(TawaOperation):
    """Order register writes before the next wgmma reads them (wgmma.fence.sync.aligned)."""

    name = "hopper.wgmma_fence"
    assembly_format = "attr-dict"


@irdl_op_definition
class Wgmma(TawaOperation):
    """Each warpgroup starts its rows of a @ b + acc: every k step of the tile, in order.

    `a` is a view, or a tensor in the register-operand layout; `b` a view of shape [K, N]. The
    result shares registers with `acc`. Where `accumulate` (i1) is given and false the accumulator
    is taken as zero (scale-d = 0 of the first k step). The result may not be read, nor the views
    freed, before a `WgmmaWait` that covers the committed group.
    """

    name = "hopper.wgmma"
    a = operand_def()
    b = operand_def(ViewType)
    acc = operand_def()
    accumulate = opt_operand_def(Attribute)
    result = result_def()
    assembly_format = (
        "$a `,` $b `,` $acc (`if` $accumulate^)? attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class WgmmaCommit(TawaOperation):
    """Close the group of wgmmas started since the last commit (wgmma.commit_group)."""

    name = "hopper.wgmma_commit"
    assembly_format = "attr-dict"


@irdl_op_definition
class WgmmaWait(TawaOperation):
    """Wait until at most `pending` groups are unfinished (wgmma.wait_group).

    `values` are accumulators (and register operands) complete from here on; the results are the
    same registers, readable.
    """

    name = "hopper.wgmma_wait"
    pending = attr_def(IntAttr)
    values = var_operand_def()
    res = var_result_def()
    assembly_format = "attr-dict (`of` $values^ `:` type($values) `->` type($res))?"


@irdl_op_definition
class Mma(TawaOperation):
    """a @ b + acc by mma.sync: all operands in registers, in the fragments of `layouts`."""

    name = "hopper.mma"
    a = operand_def()
    b = operand_def()
    acc = operand_def()
    precision = attr_def(StringAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class FmaDot(TawaOperation):
    """a @ b + acc by fused multiply-add, both operands read from shared memory by each thread."""

    name = "hopper.fma_dot"
    a = operand_def(ViewType)
    b = operand_def(ViewType)
    acc = operand_def()
    result = result_def()
    assembly_format = PLAIN
