"""Views of shared memory, their loads and stores, and the fence to the async proxy."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntAttr, StringAttr, UnitAttr
from xdsl.irdl import (
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from tawa.ir.formats import PLAIN
from tawa.ir.operation import TawaOperation
from tawa.ir.types import BufferType, ViewType, i32


@irdl_op_definition
class Slot(TawaOperation):
    """The tile in slot `index` of a buffer."""

    name = "hopper.slot"
    buffer = operand_def(BufferType)
    index = operand_def(i32)
    result = result_def(ViewType)
    traits = traits_def(Pure())
    assembly_format = "$buffer `[` $index `]` attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class TransposeView(TawaOperation):
    """The same bytes with dimensions permuted."""

    name = "hopper.transpose_view"
    view = operand_def(ViewType)
    permutation = attr_def(ArrayAttr[IntAttr])
    result = result_def(ViewType)
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class SliceView(TawaOperation):
    """The part of a view that starts at `start` and has the result's shape.

    Along the contiguous dimension a slice starts and ends at panel borders.
    """

    name = "hopper.slice_view"
    view = operand_def(ViewType)
    start = attr_def(ArrayAttr[IntAttr])
    result = result_def(ViewType)
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class ReshapeView(TawaOperation):
    """The same bytes with unit dimensions dropped or added, or rows counted by other dimensions."""

    name = "hopper.reshape_view"
    view = operand_def(ViewType)
    result = result_def(ViewType)
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class SharedLoad(TawaOperation):
    """Read a view into registers. `via` is "plain" (ld.shared) or "ldmatrix"."""

    name = "hopper.shared_load"
    view = operand_def(ViewType)
    via = attr_def(StringAttr)
    result = result_def()
    assembly_format = "$via $view attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class SharedGather(TawaOperation):
    """Read elements of a view along `axis` by `index`, whose shape and layout the result has.

    The meaning is `tile.gather`'s. Which elements a thread reads only the index tells: all may be.
    """

    name = "hopper.shared_gather"
    view = operand_def(ViewType)
    index = operand_def()
    axis = attr_def(IntAttr)
    result = result_def()
    assembly_format = PLAIN


@irdl_op_definition
class SharedStore(TawaOperation):
    """Write registers to a view. `via` is "plain" (st.shared) or "stmatrix".

    All threads that hold an element write it. `owners`: the one that owns it alone does, since the
    others do not have its value (what an atomic gave).
    """

    name = "hopper.shared_store"
    value = operand_def()
    view = operand_def(ViewType)
    via = attr_def(StringAttr)
    owners = opt_attr_def(UnitAttr)
    assembly_format = "$via $value `,` $view attr-dict `:` type(operands)"


@irdl_op_definition
class SharedTranspose(TawaOperation):
    """Each warp copies its part of a [R, C] tile of 8-bit elements, row-major at `source`, to the
    [C, R] tile at `view`: what wgmma reads with R as the reduction dimension.

    ldmatrix.trans moves pairs of bytes, a byte permutation parts them, stmatrix writes them: see
    `tawa.layouts.transpose`. `interleaved`: each run of 16 rows of the source stands in the order
    0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15, that of an accumulator's columns packed to 8 bits.
    """

    name = "hopper.shared_transpose"
    source = operand_def(ViewType)
    view = operand_def(ViewType)
    interleaved = attr_def(BoolAttr)
    assembly_format = "$source `,` $view attr-dict `:` type(operands)"


@irdl_op_definition
class ProxyFence(TawaOperation):
    """Order this thread's shared-memory accesses before later asynchronous ones (TMA, wgmma)
    that a barrier orders after it: fence.proxy.async.shared::cta, by every thread of the role.
    """

    name = "hopper.proxy_fence"
    assembly_format = "attr-dict"
