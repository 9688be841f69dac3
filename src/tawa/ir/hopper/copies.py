"""Asynchronous copies: TMA, and cp.async by every thread."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, IntAttr, StringAttr
from xdsl.irdl import (
    AttrSizedOperandSegments,
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    var_operand_def,
)

from tawa.ir.operation import TawaOperation
from tawa.ir.types import BarriersType, TensorMapType, ViewType, i32


@irdl_op_definition
class TmaLoad(TawaOperation):
    """One thread starts the copy of the block at `offsets` (slowest first) into a view; its bytes
    complete on barrier `slot` (cp.async.bulk.tensor, mbarrier::complete_tx::bytes).

    Wide tiles are several boxes side by side, one a panel. With `multicast` = n this block loads
    the n-th part of the tile's rows that is its rank and sends it to all n blocks of the cluster.
    `eviction` is an L2 policy: "first", "last" or absent. Through a map of windows (.im2col) the
    offsets are those of `tile.desc_load`.
    """

    name = "hopper.tma_load"
    map = operand_def(TensorMapType)
    offsets = var_operand_def(i32)
    view = operand_def(ViewType)
    barriers = operand_def(BarriersType)
    slot = operand_def(i32)
    multicast = opt_attr_def(IntAttr)
    eviction = opt_attr_def(StringAttr)
    assembly_format = (
        "$map `[` $offsets `]` `,` $view `,` $barriers `[` $slot `]` attr-dict `:` type(operands)"
    )


@irdl_op_definition
class TmaStore(TawaOperation):
    """The elected threads start the copy of a view to the block at `offsets`.

    `by` "warpgroup": each warpgroup stores its own equal share of the view's rows.
    `reduce` combines into memory instead (add, min, max ...).
    """

    name = "hopper.tma_store"
    map = operand_def(TensorMapType)
    offsets = var_operand_def(i32)
    view = operand_def(ViewType)
    by = attr_def(StringAttr)
    eviction = opt_attr_def(StringAttr)
    reduce = opt_attr_def(StringAttr)
    assembly_format = "$map `[` $offsets `]` `,` $view attr-dict `:` type(operands)"


@irdl_op_definition
class BulkCommit(TawaOperation):
    """Close the group of the elected threads' TMA stores (cp.async.bulk.commit_group)."""

    name = "hopper.bulk_commit"
    by = attr_def(StringAttr)
    assembly_format = "attr-dict"


@irdl_op_definition
class BulkWait(TawaOperation):
    """The elected threads wait until at most `pending` of their groups are unfinished.

    `read` true: finished reading shared memory; false: written to global memory as well.
    """

    name = "hopper.bulk_wait"
    pending = attr_def(IntAttr)
    read = attr_def(BoolAttr)
    by = attr_def(StringAttr)
    assembly_format = "attr-dict"


@irdl_op_definition
class CopyAsync(TawaOperation):
    """Every thread starts copies from pointers to a view; masked-off elements become zero
    (cp.async with src-size). Each contiguous run is 4, 8 or 16 bytes.
    """

    name = "hopper.copy_async"
    pointer = operand_def()
    mask = opt_operand_def()
    view = operand_def(ViewType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)


@irdl_op_definition
class CopyAsyncArrive(TawaOperation):
    """Each thread's arrival at barrier `slot`, made for it when all cp.async copies that it has
    started are done (PTX ISA, "cp.async.mbarrier.arrive"; with .noinc it is one of the arrivals the
    barrier counts). The thread goes on at once. The arrival releases the copies, no other access of
    the thread; whoever waits for it fences the proxy before wgmma or TMA reads what was copied.
    """

    name = "hopper.copy_async_arrive"
    barriers = operand_def(BarriersType)
    slot = operand_def(i32)
    assembly_format = "$barriers `[` $slot `]` attr-dict `:` type(operands)"
