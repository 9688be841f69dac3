"""The hopper dialect: the last word on concurrency.

Every barrier, arrive (and by whom), fence, commit, wait, election and staging buffer is an
operation here; code generation adds none. Tensors carry a register layout (the encoding of their type) over
the warps of the role that computes them; tile operations on such tensors stay tile operations.

Who executes. A role's body is executed by all its threads in step, tile by tile. `by` says which of
them perform an operation: "thread" (the single thread of an enclosing `OneThread`), "warp" (one
elected thread of each warp), "warpgroup" (one elected thread of each warpgroup), "role" (one thread
of the role) or "all" (every thread). The elected thread of a warpgroup is its thread 0, always the
same one: bulk groups belong to the thread that committed them.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
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
from xdsl.traits import NoTerminator, Pure

from tawa.ir.types import (
    BarriersType,
    BufferType,
    LayoutAttr,
    SharedLayoutAttr,
    TensorMapType,
    ViewType,
    i32,
)

_PLAIN = "operands attr-dict `:` functional-type(operands, results)"
_EFFECT = "operands attr-dict `:` type(operands)"

# --- set-up: what the block owns --------------------------------------------------------------


@irdl_op_definition
class TensorMap(IRDLOperation):
    """A tensor map the launcher encodes and passes as a kernel parameter.

    `desc` is a descriptor argument, or a `tile.make_desc` of arguments only. The box is
    `result.box`, in elements, slowest dimension first; `swizzle` in bytes.
    """

    name = "hopper.tensor_map"
    desc = operand_def()
    swizzle = attr_def(IntAttr)
    result = result_def(TensorMapType)
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Shared(IRDLOperation):
    """A buffer at byte `offset` of the block's dynamic shared memory.

    Two buffers may overlap only where the proof shows that their uses never do.
    """

    name = "hopper.shared"
    label = attr_def(StringAttr)
    offset = attr_def(IntAttr)
    result = result_def(BufferType)
    assembly_format = "$label attr-dict `:` type($result)"


@irdl_op_definition
class Barriers(IRDLOperation):
    """An array of mbarriers at byte `offset`; a phase completes after `arrivals` arrivals and when
    no expected bytes are outstanding (PTX ISA, "mbarrier").
    """

    name = "hopper.barriers"
    label = attr_def(StringAttr)
    offset = attr_def(IntAttr)
    arrivals = attr_def(IntAttr)
    result = result_def(BarriersType)
    assembly_format = "$label attr-dict `:` type($result)"


@irdl_op_definition
class InitBarriers(IRDLOperation):
    """Thread 0 of the block initialises the array (mbarrier.init)."""

    name = "hopper.init_barriers"
    barriers = operand_def(BarriersType)
    assembly_format = _EFFECT


@irdl_op_definition
class FenceBarrierInit(IRDLOperation):
    """Make the initialised barriers visible to TMA and the cluster (fence.mbarrier_init).

    Executed by thread 0 of the block, after the last `InitBarriers`.
    """

    name = "hopper.fence_barrier_init"
    assembly_format = "attr-dict"


@irdl_op_definition
class BlockSync(IRDLOperation):
    """All threads of the block meet (bar.sync 0). Stands outside roles."""

    name = "hopper.block_sync"
    assembly_format = "attr-dict"


@irdl_op_definition
class ClusterSync(IRDLOperation):
    """All threads of the cluster meet (barrier.cluster.arrive.release + wait.acquire)."""

    name = "hopper.cluster_sync"
    assembly_format = "attr-dict"


@irdl_op_definition
class Role(IRDLOperation):
    """The program of `warps` warps from `first_warp` of the block; one branch of a single if/else.

    `registers` is the budget a thread of the role may use after `SetRegisters`.
    Roles with several instances are as many `Role`s, with labels mma0, mma1 ...
    """

    name = "hopper.role"
    label = attr_def(StringAttr)
    first_warp = attr_def(IntAttr)
    warps = attr_def(IntAttr)
    registers = attr_def(IntAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())


@irdl_op_definition
class SetRegisters(IRDLOperation):
    """Give registers back ("dec") or wait until the pool has enough and take them ("inc").

    setmaxnreg: a multiple of 8 in 24..256, executed by every warp of the role's warpgroups.
    """

    name = "hopper.set_registers"
    count = attr_def(IntAttr)
    direction = attr_def(StringAttr)
    assembly_format = "$direction attr-dict"


@irdl_op_definition
class OneThread(IRDLOperation):
    """The body is executed by thread 0 of the role only. Gives no values."""

    name = "hopper.one_thread"
    body = region_def("single_block")
    traits = traits_def(NoTerminator())


@irdl_op_definition
class BlockId(IRDLOperation):
    """blockIdx along `axis` (i32)."""

    name = "hopper.block_id"
    axis = attr_def(IntAttr)
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class NumBlocks(IRDLOperation):
    """gridDim along `axis` (i32)."""

    name = "hopper.num_blocks"
    axis = attr_def(IntAttr)
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class ClusterRank(IRDLOperation):
    """The rank of this block in its cluster (%cluster_ctarank, i32)."""

    name = "hopper.cluster_rank"
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class GridExtent(IRDLOperation):
    """The extent of the grid the user launched along `axis` (i32): a parameter of a persistent
    kernel, whose own grid is smaller.
    """

    name = "hopper.grid_extent"
    axis = attr_def(IntAttr)
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


# --- mbarriers --------------------------------------------------------------------------------


@irdl_op_definition
class Wait(IRDLOperation):
    """Spin until the phase of parity `phase` (i32, 0 or 1) of barrier `slot` has completed.

    Executed by every thread of the role (or by the one thread): mbarrier.try_wait.parity.
    """

    name = "hopper.wait"
    barriers = operand_def(BarriersType)
    slot = operand_def(i32)
    phase = operand_def(i32)
    assembly_format = "$barriers `[` $slot `]` `,` $phase attr-dict `:` type(operands)"


@irdl_op_definition
class Arrive(IRDLOperation):
    """Arrive once for each thread chosen by `by` at barrier `slot`.

    Without `cluster` at this block's barrier; with `cluster` = n each of n elected threads of the
    group (lane i for block i) arrives at block i's barrier (mapa + mbarrier.arrive, no scope
    qualifier: see hopper.md, an explicit release.cluster would fence the whole GPU).
    """

    name = "hopper.arrive"
    barriers = operand_def(BarriersType)
    slot = operand_def(i32)
    by = attr_def(StringAttr)
    cluster = opt_attr_def(IntAttr)
    assembly_format = "$barriers `[` $slot `]` attr-dict `:` type(operands)"


@irdl_op_definition
class Expect(IRDLOperation):
    """One arrival that adds `bytes` to what the phase waits for (mbarrier.arrive.expect_tx)."""

    name = "hopper.expect"
    barriers = operand_def(BarriersType)
    slot = operand_def(i32)
    bytes = attr_def(IntAttr)
    assembly_format = "$barriers `[` $slot `]` attr-dict `:` type(operands)"


# --- shared memory ----------------------------------------------------------------------------


@irdl_op_definition
class Slot(IRDLOperation):
    """The tile in slot `index` of a buffer."""

    name = "hopper.slot"
    buffer = operand_def(BufferType)
    index = operand_def(i32)
    result = result_def(ViewType)
    traits = traits_def(Pure())
    assembly_format = "$buffer `[` $index `]` attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class TransposeView(IRDLOperation):
    """The same bytes with dimensions permuted."""

    name = "hopper.transpose_view"
    view = operand_def(ViewType)
    permutation = attr_def(ArrayAttr[IntAttr])
    result = result_def(ViewType)
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class SliceView(IRDLOperation):
    """The part of a view that starts at `start` and has the result's shape.

    Along the contiguous dimension a slice starts and ends at panel borders.
    """

    name = "hopper.slice_view"
    view = operand_def(ViewType)
    start = attr_def(ArrayAttr[IntAttr])
    result = result_def(ViewType)
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class ReshapeView(IRDLOperation):
    """The same bytes with unit dimensions dropped or added."""

    name = "hopper.reshape_view"
    view = operand_def(ViewType)
    result = result_def(ViewType)
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class SharedLoad(IRDLOperation):
    """Read a view into registers. `via` is "plain" (ld.shared) or "ldmatrix"."""

    name = "hopper.shared_load"
    view = operand_def(ViewType)
    via = attr_def(StringAttr)
    result = result_def()
    assembly_format = "$via $view attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class SharedStore(IRDLOperation):
    """Write registers to a view. `via` is "plain" (st.shared) or "stmatrix"."""

    name = "hopper.shared_store"
    value = operand_def()
    view = operand_def(ViewType)
    via = attr_def(StringAttr)
    assembly_format = "$via $value `,` $view attr-dict `:` type(operands)"


@irdl_op_definition
class ProxyFence(IRDLOperation):
    """Order this thread's shared-memory accesses before later asynchronous ones (TMA, wgmma)
    that a barrier orders after it: fence.proxy.async.shared::cta, by every thread of the role.
    """

    name = "hopper.proxy_fence"
    assembly_format = "attr-dict"


@irdl_op_definition
class NamedBarrier(IRDLOperation):
    """Threads meet at a hardware barrier ("sync"), or only announce themselves ("arrive").

    `scope` "warpgroup": each warpgroup of the role has its own barrier, `id` + its index in the
    role, of 128 threads. "role": one barrier `id` of all the role's threads. "roles": barrier `id`
    shared with other roles, `threads` in all (ping-pong).
    """

    name = "hopper.named_barrier"
    id = attr_def(IntAttr)
    scope = attr_def(StringAttr)
    kind = attr_def(StringAttr)
    threads = attr_def(IntAttr)
    assembly_format = "$kind attr-dict"


@irdl_op_definition
class Turn(IRDLOperation):
    """The warpgroups of a role take turns, in the order of their index: one holds it at a time.

    Warpgroup w meets the one before it at named barrier `id` + w, both counted: 256 threads. "take"
    waits there (bar.sync), "pass" announces itself to the next (bar.arrive at `id` + (w + 1) mod
    `groups`). "open" stands once before the first take: the last warpgroup announces itself, so
    that the first may begin. "close" stands once after the last pass: the first warpgroup meets
    what the last one has passed, so that the barriers are left as they were found. Every warpgroup
    takes and passes in turn, and all as often. Orders no accesses that other operations must rely
    on.
    """

    name = "hopper.turn"
    kind = attr_def(StringAttr)
    id = attr_def(IntAttr)
    groups = attr_def(IntAttr)
    assembly_format = "$kind attr-dict"


# --- TMA and other asynchronous copies --------------------------------------------------------


@irdl_op_definition
class TmaLoad(IRDLOperation):
    """One thread starts the copy of the block at `offsets` (slowest first) into a view; its bytes
    complete on barrier `slot` (cp.async.bulk.tensor, mbarrier::complete_tx::bytes).

    Wide tiles are several boxes side by side, one a panel. With `multicast` = n this block loads
    the n-th part of the tile's rows that is its rank and sends it to all n blocks of the cluster.
    `eviction` is an L2 policy: "first", "last" or absent.
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
class TmaStore(IRDLOperation):
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
class BulkCommit(IRDLOperation):
    """Close the group of the elected threads' TMA stores (cp.async.bulk.commit_group)."""

    name = "hopper.bulk_commit"
    by = attr_def(StringAttr)
    assembly_format = "attr-dict"


@irdl_op_definition
class BulkWait(IRDLOperation):
    """The elected threads wait until at most `pending` of their groups are unfinished.

    `read` true: finished reading shared memory; false: written to global memory as well.
    """

    name = "hopper.bulk_wait"
    pending = attr_def(IntAttr)
    read = attr_def(BoolAttr)
    by = attr_def(StringAttr)
    assembly_format = "attr-dict"


@irdl_op_definition
class CopyAsync(IRDLOperation):
    """Every thread starts copies from pointers to a view; masked-off elements become zero
    (cp.async with src-size). Each contiguous run is 4, 8 or 16 bytes.
    """

    name = "hopper.copy_async"
    pointer = operand_def()
    mask = opt_operand_def()
    view = operand_def(ViewType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)


@irdl_op_definition
class CopyAsyncCommit(IRDLOperation):
    """Close each thread's group of cp.async copies (cp.async.commit_group)."""

    name = "hopper.copy_async_commit"
    assembly_format = "attr-dict"


@irdl_op_definition
class CopyAsyncWait(IRDLOperation):
    """Each thread waits until at most `pending` of its cp.async groups are unfinished."""

    name = "hopper.copy_async_wait"
    pending = attr_def(IntAttr)
    assembly_format = "attr-dict"


# --- tensor cores -----------------------------------------------------------------------------


@irdl_op_definition
class WgmmaFence(IRDLOperation):
    """Order register writes before the next wgmma reads them (wgmma.fence.sync.aligned)."""

    name = "hopper.wgmma_fence"
    assembly_format = "attr-dict"


@irdl_op_definition
class Wgmma(IRDLOperation):
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
class WgmmaCommit(IRDLOperation):
    """Close the group of wgmmas started since the last commit (wgmma.commit_group)."""

    name = "hopper.wgmma_commit"
    assembly_format = "attr-dict"


@irdl_op_definition
class WgmmaWait(IRDLOperation):
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
class Mma(IRDLOperation):
    """a @ b + acc by mma.sync: all operands in registers, in the fragments of `layouts`."""

    name = "hopper.mma"
    a = operand_def()
    b = operand_def()
    acc = operand_def()
    precision = attr_def(StringAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class FmaDot(IRDLOperation):
    """a @ b + acc by fused multiply-add, both operands read from shared memory by each thread."""

    name = "hopper.fma_dot"
    a = operand_def(ViewType)
    b = operand_def(ViewType)
    acc = operand_def()
    result = result_def()
    assembly_format = _PLAIN


# --- registers --------------------------------------------------------------------------------


@irdl_op_definition
class ConvertLayout(IRDLOperation):
    """The same tensor in another register layout, within threads or by warp shuffles.

    A conversion that crosses warps is a `SharedStore`, a barrier and a `SharedLoad`, never this.
    """

    name = "hopper.convert_layout"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Uninitialized(IRDLOperation):
    """Registers with any content: an accumulator that its first product overwrites."""

    name = "hopper.uninitialized"
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class Pin(IRDLOperation):
    """Values that must exist before this point: ptxas may not move their computation past it."""

    name = "hopper.pin"
    values = var_operand_def()
    res = var_result_def()
    assembly_format = _PLAIN


Hopper = Dialect(
    "hopper",
    [
        TensorMap,
        Shared,
        Barriers,
        InitBarriers,
        FenceBarrierInit,
        BlockSync,
        ClusterSync,
        Role,
        SetRegisters,
        OneThread,
        BlockId,
        NumBlocks,
        ClusterRank,
        GridExtent,
        Wait,
        Arrive,
        Expect,
        Slot,
        TransposeView,
        SliceView,
        ReshapeView,
        SharedLoad,
        SharedStore,
        ProxyFence,
        NamedBarrier,
        Turn,
        TmaLoad,
        TmaStore,
        BulkCommit,
        BulkWait,
        CopyAsync,
        CopyAsyncCommit,
        CopyAsyncWait,
        WgmmaFence,
        Wgmma,
        WgmmaCommit,
        WgmmaWait,
        Mma,
        FmaDot,
        ConvertLayout,
        Uninitialized,
        Pin,
    ],
    [
        LayoutAttr,
        SharedLayoutAttr,
        BufferType,
        ViewType,
        BarriersType,
        TensorMapType,
    ],
)
