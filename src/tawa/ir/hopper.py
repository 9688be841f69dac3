"""The hopper dialect: the last word on concurrency.

Every barrier, arrive (and by whom), fence, commit, wait, election and staging buffer is an
operation here; code generation adds none. Tensors carry a register layout (the encoding of their
type) over the warps of the role that computes them; tile operations on such tensors stay tile
operations.

Who executes. A role's body is executed by all its threads in step, tile by tile. `by` says which of
them perform an operation: "thread" (the single thread of an enclosing `OneThread`), "warp" (one
elected thread of each warp), "warpgroup" (one elected thread of each warpgroup), "role" (one thread
of the role) or "all" (every thread). The elected thread of a warpgroup is its thread 0, always the
same one: bulk groups belong to the thread that committed them.

Length: a dialect is one file.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute
from xdsl.irdl import (
    AttrSizedOperandSegments,
    attr_def,
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

from tawa.ir.operation import (
    EFFECT,
    PLAIN,
    Computation,
    Source,
    Statement,
    TawaOperation,
    Unary,
    dialect,
    operand_of,
)
from tawa.ir.types import (
    BarriersType,
    BufferType,
    LayoutAttr,
    SharedLayoutAttr,
    TensorMapType,
    ViewType,
    i32,
)

PROGRAMS = "programs"
"""The attribute of an scf.while that walks over programs: its iterations have no order."""


class LaunchFact(TawaOperation, declared=False):
    """A number of the launch (i32) that all threads of a block know."""

    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


class AtBarrier(TawaOperation, declared=False):
    """Something that happens at one barrier, `slot` of an array."""

    barriers = operand_of(BarriersType)
    slot = operand_def(i32)
    assembly_format = "$barriers `[` $slot `]` attr-dict `:` type(operands)"


class ViewOfView(Computation, declared=False):
    """The bytes of a view, or some of them, seen otherwise."""

    view = operand_of(ViewType)
    result = result_def(ViewType)


class TensorMap(Computation):
    """A tensor map the launcher encodes and passes as a kernel parameter.

    `desc` is a descriptor argument, or a `tile.make_desc` of arguments only. The box is
    `result.box`, in elements, slowest dimension first; `swizzle` in bytes.
    """

    desc = operand_def()
    swizzle = attr_def(IntAttr)
    result = result_def(TensorMapType)


class Shared(TawaOperation):
    """A buffer at byte `offset` of the block's dynamic shared memory.

    Two buffers may overlap only where the proof shows that their uses never do.
    """

    label = attr_def(StringAttr)
    offset = attr_def(IntAttr)
    result = result_def(BufferType)
    assembly_format = "$label attr-dict `:` type($result)"


class Barriers(TawaOperation):
    """An array of mbarriers at byte `offset`; a phase completes after `arrivals` arrivals and when
    no expected bytes are outstanding (PTX ISA, "mbarrier").
    """

    label = attr_def(StringAttr)
    offset = attr_def(IntAttr)
    arrivals = attr_def(IntAttr)
    result = result_def(BarriersType)
    assembly_format = "$label attr-dict `:` type($result)"


class InitBarriers(TawaOperation):
    """Thread 0 of the block initialises the array (mbarrier.init)."""

    barriers = operand_of(BarriersType)
    assembly_format = EFFECT


class FenceBarrierInit(Statement):
    """Make the initialised barriers visible to TMA and the cluster (fence.mbarrier_init).

    Executed by thread 0 of the block, after the last `InitBarriers`.
    """


class PrefetchMap(TawaOperation):
    """Bring a tensor map near TMA, by the first thread of the block's last warp
    (prefetch.tensormap). A hint: it orders nothing.

    A first copy waits for its map, about as long as for its data; a store's comes when nothing
    else is left to do.
    """

    map = operand_of(TensorMapType)
    assembly_format = EFFECT


class BlockSync(Statement):
    """All threads of the block meet (bar.sync 0). Stands outside roles."""


class ClusterSync(Statement):
    """All threads of the cluster meet (barrier.cluster.arrive.release + wait.acquire).

    `relaxed` (arrive.relaxed): it publishes what `FenceBarrierInit` has released and no other
    write, for the set-up; a release waits for the memory of the whole GPU (MEMBAR.ALL.GPU).
    """

    relaxed = opt_attr_def(UnitAttr)


class GridWait(Statement):
    """Wait until the kernels before this one in the stream have ended, and see what they wrote
    (griddepcontrol.wait). Executed by all threads of a role, or by its one thread.

    A kernel launched `early` begins before that: in each role this stands above all that reads or
    writes global memory.
    """


class LaunchDependents(Statement):
    """Let blocks of the next kernel in the stream begin where there is room, once all blocks of
    this one have come here, if it is launched `early` (griddepcontrol.launch_dependents).

    It orders nothing: these wait for the end of this kernel by a `GridWait` of their own.
    """


class Role(TawaOperation):
    """The program of `warps` warps from `first_warp` of the block; one branch of a single if/else.

    `registers` is the budget a thread of the role may use after `SetRegisters`.
    Roles with several instances are as many `Role`s, with labels mma0, mma1 ...
    """

    label = attr_def(StringAttr)
    first_warp = attr_def(IntAttr)
    warps = attr_def(IntAttr)
    registers = attr_def(IntAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())


class SetRegisters(TawaOperation):
    """Give registers back ("dec") or wait until the pool has enough and take them ("inc").

    setmaxnreg: a multiple of 8 in 24..256, executed by every warp of the role's warpgroups.
    """

    count = attr_def(IntAttr)
    direction = attr_def(StringAttr)
    assembly_format = "$direction attr-dict"


class OneThread(TawaOperation):
    """The body is executed by one thread of the role, in its first warp. Gives no values."""

    body = region_def("single_block")
    traits = traits_def(NoTerminator())


class BlockId(LaunchFact):
    """blockIdx along `axis` (i32)."""

    axis = attr_def(IntAttr)


class NumBlocks(LaunchFact):
    """gridDim along `axis` (i32)."""

    axis = attr_def(IntAttr)


class ClusterRank(LaunchFact):
    """The rank of this block in its cluster (%cluster_ctarank, i32)."""


class GridExtent(LaunchFact):
    """The extent of the grid the user launched along `axis` (i32): a parameter of a persistent
    kernel, whose own grid is smaller.
    """

    axis = attr_def(IntAttr)


class Counter(LaunchFact):
    """Which of the kernel's counters in global memory counts the programs of this launch (i32).

    A parameter: the launcher gives launches that may run at the same time different ones.
    """


class NextProgram(TawaOperation):
    """The next of `programs` (i32) that no block of the launch has taken, `programs` or more where
    none is left.

    A block begins with the program of its own number and asks, by one thread, until none is left:
    then `counter` is 0 again, as it was when the launch began.
    """

    counter = operand_def(i32)
    programs = operand_def(i32)
    result = result_def(i32)
    assembly_format = "$counter `,` $programs attr-dict `:` functional-type(operands, results)"


class Wait(TawaOperation):
    """Spin until the phase of parity `phase` (i32, 0 or 1) of barrier `slot` has completed.

    Executed by every thread of the role (or by the one thread): mbarrier.try_wait.parity.
    """

    barriers = operand_of(BarriersType)
    slot = operand_def(i32)
    phase = operand_def(i32)
    assembly_format = "$barriers `[` $slot `]` `,` $phase attr-dict `:` type(operands)"


class Arrive(AtBarrier):
    """Arrive once for each thread chosen by `by` at barrier `slot`; "warp" converges first.

    Without `cluster` at this block's barrier; with `cluster` = n each of n elected threads of the
    group (lane i for block i) arrives at block i's barrier (mapa + mbarrier.arrive, no scope
    qualifier: see hopper.md, an explicit release.cluster would fence the whole GPU).
    """

    by = attr_def(StringAttr)
    cluster = opt_attr_def(IntAttr)


class Expect(AtBarrier):
    """One arrival that adds `bytes` to what the phase waits for (mbarrier.arrive.expect_tx)."""

    bytes = attr_def(IntAttr)


class Slot(Computation):
    """The tile in slot `index` of a buffer."""

    buffer = operand_of(BufferType)
    index = operand_def(i32)
    result = result_def(ViewType)
    assembly_format = "$buffer `[` $index `]` attr-dict `:` functional-type(operands, results)"


class TransposeView(ViewOfView):
    """The same bytes with dimensions permuted."""

    permutation = attr_def(ArrayAttr[IntAttr])


class SliceView(ViewOfView):
    """The part of a view that starts at `start` and has the result's shape.

    Along the contiguous dimension a slice starts and ends at panel borders.
    """

    start = attr_def(ArrayAttr[IntAttr])


class ReshapeView(ViewOfView):
    """The same bytes with unit dimensions dropped or added, or rows counted by other dimensions."""


class SharedLoad(TawaOperation):
    """Read a view into registers. `via` is "plain" (ld.shared) or "ldmatrix"."""

    view = operand_of(ViewType)
    via = attr_def(StringAttr)
    result = result_def()
    assembly_format = "$via $view attr-dict `:` functional-type(operands, results)"


class SharedGather(TawaOperation):
    """Read elements of a view along `axis` by `index`, whose shape and layout the result has.

    The meaning is `tile.gather`'s. Which elements a thread reads only the index tells: all may be.
    """

    view = operand_of(ViewType)
    index = operand_def()
    axis = attr_def(IntAttr)
    result = result_def()
    assembly_format = PLAIN


class SharedStore(TawaOperation):
    """Write registers to a view. `via` is "plain" (st.shared) or "stmatrix".

    All threads that hold an element write it. `owners`: the one that owns it alone does, since the
    others do not have its value (what an atomic gave).
    """

    value = operand_def()
    view = operand_of(ViewType)
    via = attr_def(StringAttr)
    owners = opt_attr_def(UnitAttr)
    assembly_format = "$via $value `,` $view attr-dict `:` type(operands)"


class SharedTranspose(TawaOperation):
    """Each warp copies its part of a [R, C] tile of 8-bit elements, row-major at `source`, to the
    [C, R] tile at `view`: what wgmma reads with R as the reduction dimension.

    ldmatrix.trans moves pairs of bytes, a byte permutation parts them, stmatrix writes them: see
    `tawa.layouts.transpose`. `interleaved`: each run of 16 rows of the source stands in the order
    0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15, that of an accumulator's columns packed to 8 bits.
    """

    source = operand_of(ViewType)
    view = operand_of(ViewType)
    interleaved = attr_def(BoolAttr)
    assembly_format = "$source `,` $view attr-dict `:` type(operands)"


class ProxyFence(Statement):
    """Order this thread's shared-memory accesses before later asynchronous ones (TMA, wgmma)
    that a barrier orders after it: fence.proxy.async.shared::cta, by every thread of the role.
    """


class NamedBarrier(TawaOperation):
    """Threads meet at a hardware barrier ("sync"), or only announce themselves ("arrive").

    `scope` "warpgroup": each warpgroup of the role has its own barrier, `id` + its index in the
    role, of 128 threads. "role": one barrier `id` of all the role's threads. "roles": barrier `id`
    shared with other roles, `threads` in all (ping-pong).
    """

    id = attr_def(IntAttr)
    scope = attr_def(StringAttr)
    kind = attr_def(StringAttr)
    threads = attr_def(IntAttr)
    assembly_format = "$kind attr-dict"


class Turn(TawaOperation):
    """The warpgroups of a role take turns, in the order of their index: one holds it at a time.

    Warpgroup w meets the one before it at named barrier `id` + w, both counted: 256 threads. "take"
    waits there (bar.sync), "pass" announces itself to the next (bar.arrive at `id` + (w + 1) mod
    `groups`). "open" stands once before the first take: the last warpgroup announces itself, so
    that the first may begin. "close" stands once after the last pass: the first warpgroup meets
    what the last one has passed, so that the barriers are left as they were found. Every warpgroup
    takes and passes in turn, and all as often. Orders no accesses that other operations must rely
    on.
    """

    kind = attr_def(StringAttr)
    id = attr_def(IntAttr)
    groups = attr_def(IntAttr)
    assembly_format = "$kind attr-dict"


class TmaLoad(TawaOperation):
    """One thread starts the copy of the block at `offsets` (slowest first) into a view; its bytes
    complete on barrier `slot` (cp.async.bulk.tensor, mbarrier::complete_tx::bytes).

    Wide tiles are several boxes side by side, one a panel. With `multicast` = n this block loads
    the n-th part of the tile's rows that is its rank and sends it to all n blocks of the cluster.
    `eviction` is an L2 policy: "first", "last" or absent. Through a map of windows (.im2col) the
    offsets are those of `tile.desc_load`.
    """

    map = operand_of(TensorMapType)
    offsets = var_operand_def(i32)
    view = operand_of(ViewType)
    barriers = operand_of(BarriersType)
    slot = operand_def(i32)
    multicast = opt_attr_def(IntAttr)
    eviction = opt_attr_def(StringAttr)
    assembly_format = (
        "$map `[` $offsets `]` `,` $view `,` $barriers `[` $slot `]` attr-dict `:` type(operands)"
    )


class TmaStore(TawaOperation):
    """The elected threads start the copy of a view to the block at `offsets`.

    `by` "warpgroup": each warpgroup stores its own equal share of the view's rows.
    `reduce` combines into memory instead (add, min, max ...).
    """

    map = operand_of(TensorMapType)
    offsets = var_operand_def(i32)
    view = operand_of(ViewType)
    by = attr_def(StringAttr)
    eviction = opt_attr_def(StringAttr)
    reduce = opt_attr_def(StringAttr)
    assembly_format = "$map `[` $offsets `]` `,` $view attr-dict `:` type(operands)"


class BulkCommit(Statement):
    """Close the group of the elected threads' TMA stores (cp.async.bulk.commit_group)."""

    by = attr_def(StringAttr)


class BulkWait(Statement):
    """The elected threads wait until at most `pending` of their groups are unfinished.

    `read` true: finished reading shared memory; false: written to global memory as well.
    """

    pending = attr_def(IntAttr)
    read = attr_def(BoolAttr)
    by = attr_def(StringAttr)


class CopyAsync(TawaOperation):
    """Every thread starts copies from pointers to a view; masked-off elements become zero
    (cp.async with src-size). Each contiguous run is 4, 8 or 16 bytes.
    """

    pointer = operand_def()
    mask = opt_operand_def()
    view = operand_of(ViewType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)


class CopyAsyncArrive(AtBarrier):
    """Each thread's arrival at barrier `slot`, made for it when all cp.async copies that it has
    started are done (PTX ISA, "cp.async.mbarrier.arrive"; with .noinc it is one of the arrivals the
    barrier counts). The thread goes on at once. The arrival releases the copies, no other access of
    the thread; whoever waits for it fences the proxy before wgmma or TMA reads what was copied.
    """


class WgmmaFence(Statement):
    """Order register writes before the next wgmma reads them (wgmma.fence.sync.aligned)."""


class Wgmma(TawaOperation):
    """Each warpgroup starts its rows of a @ b + acc: every k step of the tile, in order.

    `a` is a view, or a tensor in the register-operand layout; `b` a view of shape [K, N]. The
    result shares registers with `acc`. Where `accumulate` (i1) is given and false the accumulator
    is taken as zero (scale-d = 0 of the first k step). The result may not be read, nor the views
    freed, before a `WgmmaWait` that covers the committed group.
    """

    a = operand_def()
    b = operand_of(ViewType)
    acc = operand_def()
    accumulate = opt_operand_def(Attribute)
    result = result_def()
    assembly_format = (
        "$a `,` $b `,` $acc (`if` $accumulate^)? attr-dict `:` functional-type(operands, results)"
    )


class WgmmaCommit(Statement):
    """Close the group of wgmmas started since the last commit (wgmma.commit_group)."""


class WgmmaWait(TawaOperation):
    """Wait until at most `pending` groups are unfinished (wgmma.wait_group).

    `values` are accumulators (and register operands) complete from here on; the results are the
    same registers, readable.
    """

    pending = attr_def(IntAttr)
    values = var_operand_def()
    res = var_result_def()
    assembly_format = "attr-dict (`of` $values^ `:` type($values) `->` type($res))?"


class Mma(Computation):
    """a @ b + acc by mma.sync: all operands in registers, in the fragments of `layouts`."""

    a = operand_def()
    b = operand_def()
    acc = operand_def()
    precision = attr_def(StringAttr)
    result = result_def()


class FmaDot(TawaOperation):
    """a @ b + acc by fused multiply-add, both operands read from shared memory by each thread."""

    a = operand_of(ViewType)
    b = operand_of(ViewType)
    acc = operand_def()
    result = result_def()
    assembly_format = PLAIN


class ConvertLayout(Unary):
    """The same tensor in another register layout, within threads or by warp shuffles.

    A conversion that crosses warps is a `SharedStore`, a barrier and a `SharedLoad`, never this.
    """


class Columns(Unary):
    """The columns (last dimension) of a tensor from `start` on, as many as the result has: the same
    registers, none of another thread.
    """

    start = attr_def(IntAttr)


class Pick(Unary):
    """The elements at place `at` of `axis`, which a warp holds and which goes: all lanes get them,
    by one shuffle a word from the lane that has them.
    """

    axis = attr_def(IntAttr)
    at = attr_def(IntAttr)


class CarryIn(TawaOperation):
    """Parts of lines, each part that of a warp, after what came before them: `ends` combined with
    `parts` by the body, which is that of the scan.

    `ends` are the scan of the parts' last elements along `axis`, whose places lanes of every warp
    hold; `parts` have the inside of a part as one more dimension, `axis` + 1. A part takes the end
    of its neighbour, below or, in `reverse`, above: one shuffle a word; that at the end stays.
    """

    ends = var_operand_def()
    parts = var_operand_def()
    axis = attr_def(IntAttr)
    reverse = opt_attr_def(BoolAttr)
    body = region_def("single_block")
    res = var_result_def()
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)


class Uninitialized(Source):
    """Registers with any content: an accumulator that its first product overwrites."""


class Pin(TawaOperation):
    """Values that must exist before this point: ptxas may not move their computation past it."""

    values = var_operand_def()
    res = var_result_def()
    assembly_format = PLAIN


Hopper = dialect(
    "hopper",
    vars(),
    [LayoutAttr, SharedLayoutAttr, BufferType, ViewType, BarriersType, TensorMapType],
)
