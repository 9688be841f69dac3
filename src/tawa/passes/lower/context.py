"""What the passes of the lowering share: kernel, plan, rings, buffers and barrier ids."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from tawa.analysis.statements import name_of
from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, BufferType, SharedLayoutAttr, bit_width
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.placement import choose_layout
from tawa.plan.plan import Declined, LoopPlan, Plan, StorePlan, TensorPlan
from tawa.target import Target


@dataclass(slots=True, eq=False)
class Ring:
    """A lowered aref: a buffer for each tile of the payload, and its two arrays of barriers."""

    label: str
    depth: int
    buffers: list[hopper.Shared]
    filled: hopper.Barriers
    freed: hopper.Barriers


@dataclass(slots=True, eq=False)
class Lowering:
    """State of one lowering.

    Set-up operations are appended in three groups (maps, buffers, barriers) before the roles.
    `scratch` lists the groups of buffers each role may lay over one another: their uses are
    separated by the role's barrier. `over` gives the buffer, no smaller, that another lies over:
    their uses are separated where they stand. `freed_apart` are the rings a role frees in other
    blocks than it gets them, `single` the roles that one thread runs, `direct` the stores that the
    plan wants straight from registers, `placed` the layouts it says that a role has. `widest_run`
    bounds the panels of 8-bit tiles (bytes).
    `iterations` gives the block argument that counts a loop's iterations, `staged` the view of a
    computed tensor that the products of a block read.
    """

    kernel: tile.Kernel
    plan: Plan
    target: Target
    rings: dict[SSAValue, Ring] = field(default_factory=dict[SSAValue, Ring])
    scratch: dict[hopper.Role, list[list[hopper.Shared]]] = field(
        default_factory=dict[hopper.Role, list[list[hopper.Shared]]]
    )
    over: dict[hopper.Shared, hopper.Shared] = field(
        default_factory=dict[hopper.Shared, hopper.Shared]
    )
    freed_apart: set[tuple[hopper.Role, Ring]] = field(
        default_factory=set[tuple[hopper.Role, Ring]]
    )
    iterations: dict[Block, BlockArgument] = field(default_factory=dict[Block, BlockArgument])
    staged: dict[tuple[SSAValue, Block, SharedLayout, bool], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, Block, SharedLayout, bool], SSAValue]
    )
    single: set[hopper.Role] = field(default_factory=set[hopper.Role])
    widest_run: int = 128
    direct: set[Operation] = field(default_factory=set[Operation])
    placed: set[TensorPlan] = field(default_factory=set[TensorPlan])
    notes: list[Declined] = field(default_factory=list[Declined])
    next_barrier: int = 1
    role_barriers: dict[hopper.Role, int] = field(default_factory=dict[hopper.Role, int])
    group_barriers: dict[hopper.Role, int] = field(default_factory=dict[hopper.Role, int])

    @property
    def roles(self) -> list[hopper.Role]:
        """The kernel's roles, in the order of their warps."""
        return [op for op in self.kernel.body.block.ops if isinstance(op, hopper.Role)]

    def set_up(self, kind: type[Operation]) -> Emitter:
        """Return an emitter after the last set-up operation of `kind`'s group."""
        groups = (hopper.TensorMap, hopper.Shared, hopper.Barriers)
        before = groups[: groups.index(kind) + 1]
        block = self.kernel.body.block
        last: Operation | None = None
        for operation in block.ops:
            if isinstance(operation, hopper.Role):
                break
            if isinstance(operation, before) or operation.dialect_name() == "tile":
                last = operation
        if last is not None:
            return Emitter.after(last)
        first = block.first_op
        return Emitter.before(first) if first is not None else Emitter.at_end(block)

    def set_up_scalars(self) -> Emitter:
        """Return an emitter after the scalars at the top of the kernel, before all else."""
        block = self.kernel.body.block
        for operation in block.ops:
            if operation.dialect_name() != "tile":
                return Emitter.before(operation)
        return Emitter.at_end(block)

    def placement(
        self, shape: tuple[int, ...], element: Attribute, order: tuple[int, ...] | None = None
    ) -> SharedLayout:
        """Return how a tile that TMA or wgmma shall read lies in shared memory.

        8-bit tiles get narrower panels where products are summed in shorter runs: a run of K is
        whole panels.
        """
        widest = self.widest_run if bit_width(element) == 8 else 128
        return choose_layout(shape, element, order, widest)

    def new_buffer(
        self, label: str, layout: SharedLayout, element: object, slots: int = 1
    ) -> hopper.Shared:
        """Declare a buffer; its offset is chosen at the end of the lowering."""
        kind = BufferType(IntAttr(slots), element, SharedLayoutAttr(layout))  # pyright: ignore
        buffer = hopper.Shared.make(results=[kind], label=label, offset=0)
        return self.set_up(hopper.Shared).put(buffer, label.split("@")[0])

    def new_barriers(self, label: str, count: int, hint: str) -> hopper.Barriers:
        """Declare `count` mbarriers; arrivals are counted when all roles are lowered."""
        barriers = hopper.Barriers.make(
            results=[BarriersType(IntAttr(count))], label=label, offset=0, arrivals=1
        )
        return self.set_up(hopper.Barriers).put(barriers, hint)

    def role_barrier(self, role: hopper.Role) -> hopper.NamedBarrier:
        """Return a barrier operation at which all threads of `role` meet."""
        if role not in self.role_barriers:
            self.role_barriers[role] = self.take_barriers(1)
        return named_barrier(self.role_barriers[role], "role", 32 * role.warps.data)

    def group_barrier(self, role: hopper.Role) -> hopper.NamedBarrier:
        """Return a barrier operation at which the threads of each warpgroup of `role` meet."""
        if role not in self.group_barriers:
            self.group_barriers[role] = self.take_barriers(role.warps.data // 4)
        return named_barrier(self.group_barriers[role], "warpgroup", 128)

    def take_barriers(self, count: int) -> int:
        """Reserve `count` named barriers of the block and return the number of the first."""
        first = self.next_barrier
        self.next_barrier += count
        return first

    def apart(self, role: hopper.Role, ring: Ring) -> bool:
        """Tell whether `role` frees slots of `ring` in other blocks than it gets them."""
        return (role, ring) in self.freed_apart

    def note(self, feature: str, reason: str) -> None:
        """Record what was done otherwise than a reader of the kernel might expect."""
        line = Declined(feature, reason)
        if line not in self.notes:
            self.notes.append(line)

    def loop_plan(self, loop: scf.ForOp) -> LoopPlan:
        """Return the plan of a loop, the default one when the plan does not name it."""
        name = name_of(loop)
        named = {item.loop: item for item in self.plan.loops}
        return named.get(name, LoopPlan(name))

    @property
    def by_columns(self) -> bool:
        """Whether the warpgroups that share a product have columns of their own."""
        return self.plan.split == "columns"

    def operand_plan(self, dot: tile.Dot) -> str:
        """Return where the plan wants operand A of a product; a copy goes by its first name."""
        named = {item.product: item.a for item in self.plan.operands}
        name = name_of(dot)
        return named.get(name, named.get(name.partition("#")[0], ""))

    def store_plan(self, store: tile.DescStore | tile.DescAtomic) -> StorePlan:
        """Return the plan of a store, the default one when the plan does not name it."""
        name = name_of(store)
        named = {item.store: item for item in self.plan.stores}
        return named.get(name, StorePlan(name, "tma"))


def named_barrier(first: int, scope: str, threads: int) -> hopper.NamedBarrier:
    """Return a `sync` named barrier."""
    return hopper.NamedBarrier.make(id=first, scope=scope, kind="sync", threads=threads)


def role_of(operation: Operation) -> hopper.Role:
    """Return the role an operation belongs to."""
    parent = operation
    while not isinstance(parent, hopper.Role):
        if (parent := parent.parent_op()) is None:  # pyright: ignore[reportAssignmentType]
            raise ValueError(f"{operation.name} stands outside roles")
    return parent
