"""What the block owns, and its roles."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, StringAttr, UnitAttr
from xdsl.irdl import (
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.traits import NoTerminator, Pure

from tawa.ir.formats import EFFECT, PLAIN
from tawa.ir.operation import TawaOperation
from tawa.ir.types import BarriersType, BufferType, TensorMapType, i32


@irdl_op_definition
class TensorMap(TawaOperation):
    """A tensor map the launcher encodes and passes as a kernel parameter.

    `desc` is a descriptor argument, or a `tile.make_desc` of arguments only. The box is
    `result.box`, in elements, slowest dimension first; `swizzle` in bytes.
    """

    name = "hopper.tensor_map"
    desc = operand_def()
    swizzle = attr_def(IntAttr)
    result = result_def(TensorMapType)
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Shared(TawaOperation):
    """A buffer at byte `offset` of the block's dynamic shared memory.

    Two buffers may overlap only where the proof shows that their uses never do.
    """

    name = "hopper.shared"
    label = attr_def(StringAttr)
    offset = attr_def(IntAttr)
    result = result_def(BufferType)
    assembly_format = "$label attr-dict `:` type($result)"


@irdl_op_definition
class Barriers(TawaOperation):
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
class InitBarriers(TawaOperation):
    """Thread 0 of the block initialises the array (mbarrier.init)."""

    name = "hopper.init_barriers"
    barriers = operand_def(BarriersType)
    assembly_format = EFFECT


@irdl_op_definition
class FenceBarrierInit(TawaOperation):
    """Make the initialised barriers visible to TMA and the cluster (fence.mbarrier_init).

    Executed by thread 0 of the block, after the last `InitBarriers`.
    """

    name = "hopper.fence_barrier_init"
    assembly_format = "attr-dict"


@irdl_op_definition
class PrefetchMap(TawaOperation):
    """Bring a tensor map near TMA, by the first thread of the block's last warp
    (prefetch.tensormap). A hint: it orders nothing.

    A first copy waits for its map, about as long as for its data; a store's comes when nothing
    else is left to do.
    """

    name = "hopper.prefetch_map"
    map = operand_def(TensorMapType)
    assembly_format = EFFECT


@irdl_op_definition
class BlockSync(TawaOperation):
    """All threads of the block meet (bar.sync 0). Stands outside roles."""

    name = "hopper.block_sync"
    assembly_format = "attr-dict"


@irdl_op_definition
class ClusterSync(TawaOperation):
    """All threads of the cluster meet (barrier.cluster.arrive.release + wait.acquire).

    `relaxed` (arrive.relaxed): it publishes what `FenceBarrierInit` has released and no other
    write, for the set-up; a release waits for the memory of the whole GPU (MEMBAR.ALL.GPU).
    """

    name = "hopper.cluster_sync"
    relaxed = opt_attr_def(UnitAttr)
    assembly_format = "attr-dict"


@irdl_op_definition
class GridWait(TawaOperation):
    """Wait until the kernels before this one in the stream have ended, and see what they wrote
    (griddepcontrol.wait). Executed by all threads of a role, or by its one thread.

    A kernel launched `early` begins before that: in each role this stands above all that reads or
    writes global memory.
    """

    name = "hopper.grid_wait"
    assembly_format = "attr-dict"


@irdl_op_definition
class LaunchDependents(TawaOperation):
    """Let blocks of the next kernel in the stream begin where there is room, once all blocks of
    this one have come here, if it is launched `early` (griddepcontrol.launch_dependents).

    It orders nothing: these wait for the end of this kernel by a `GridWait` of their own.
    """

    name = "hopper.launch_dependents"
    assembly_format = "attr-dict"


@irdl_op_definition
class Role(TawaOperation):
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
class SetRegisters(TawaOperation):
    """Give registers back ("dec") or wait until the pool has enough and take them ("inc").

    setmaxnreg: a multiple of 8 in 24..256, executed by every warp of the role's warpgroups.
    """

    name = "hopper.set_registers"
    count = attr_def(IntAttr)
    direction = attr_def(StringAttr)
    assembly_format = "$direction attr-dict"


@irdl_op_definition
class OneThread(TawaOperation):
    """The body is executed by one thread of the role, in its first warp. Gives no values."""

    name = "hopper.one_thread"
    body = region_def("single_block")
    traits = traits_def(NoTerminator())


@irdl_op_definition
class BlockId(TawaOperation):
    """blockIdx along `axis` (i32)."""

    name = "hopper.block_id"
    axis = attr_def(IntAttr)
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class NumBlocks(TawaOperation):
    """gridDim along `axis` (i32)."""

    name = "hopper.num_blocks"
    axis = attr_def(IntAttr)
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class ClusterRank(TawaOperation):
    """The rank of this block in its cluster (%cluster_ctarank, i32)."""

    name = "hopper.cluster_rank"
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


PROGRAMS = "programs"
"""The attribute of an scf.while that walks over programs: its iterations have no order."""


@irdl_op_definition
class Counter(TawaOperation):
    """Which of the kernel's counters in global memory counts the programs of this launch (i32).

    A parameter: the launcher gives launches that may run at the same time different ones.
    """

    name = "hopper.counter"
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class NextProgram(TawaOperation):
    """The next of `programs` (i32) that no block of the launch has taken, `programs` or more where
    none is left.

    A block begins with the program of its own number and asks, by one thread, until none is left:
    then `counter` is 0 again, as it was when the launch began.
    """

    name = "hopper.next_program"
    counter = operand_def(i32)
    programs = operand_def(i32)
    result = result_def(i32)
    assembly_format = "$counter `,` $programs attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class GridExtent(TawaOperation):
    """The extent of the grid the user launched along `axis` (i32): a parameter of a persistent
    kernel, whose own grid is smaller.
    """

    name = "hopper.grid_extent"
    axis = attr_def(IntAttr)
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"
