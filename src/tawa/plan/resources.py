"""What a plan needs of a block: shared memory by buffer, registers by role.

Shared memory is exact up to alignment: rings (D slots of each payload), stages of TMA stores, two
barriers of 8 bytes a slot. Registers are a model: tensors live at the same point over the threads
of the role, plus slack for scalars and addresses; ptxas has the last word.

How the registers of a block are shared out to its roles: setmaxnreg moves what it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tawa.analysis.hardware import Run, copy_run
from tawa.analysis.liveness import Liveness, needed_by
from tawa.analysis.masks import conjuncts
from tawa.analysis.stages import loop_without, takes_turned_product
from tawa.analysis.statements import CONTROL, has_effect, name_of, views_of
from tawa.errors import OverBudget, PlanError
from tawa.ir import tile
from tawa.ir.types import PtrType, bit_width, element_type, i32, shape_of
from tawa.ir.walk import is_terminator, walk
from tawa.layouts.shared import split_columns
from tawa.plan.plan import ArefPlan, OperandPlan, Plan
from tawa.target import Target

TILE_ALIGNMENT = 1024
"""The span over which the 128-byte swizzle repeats: what each tile's base is aligned to."""
_LEAST_SWIZZLE = 32
"""Bytes of a row that the narrowest swizzle mode moves about."""
_CHEAP = (tile.Constant, tile.Splat, tile.Arange, tile.Broadcast, tile.ExpandDims)
SLACK = 40
"""Registers for addresses, loop counters and barriers beside the tensors, from built kernels."""
LEAST_SLACK = 24
"""The least of them with which a kernel was built."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of shared memory; `bytes` of all its slots."""

    label: str
    bytes: int


def tile_bytes(kind: Attribute) -> int:
    """Return the bytes of one tile in shared memory, rounded up to its alignment.

    A scalar takes 128 bytes: it travels in an aref of its own.
    """
    shape = shape_of(kind)
    if not shape:
        return 128
    size = -(-prod(shape) * bit_width(element_type(kind)) // 8)
    return -(-size // TILE_ALIGNMENT) * TILE_ALIGNMENT


def stage_bytes(store: Operation, parts: int) -> int:
    """Return the bytes of the buffer a TMA store goes through in `parts`: of the widest of them."""
    match store:
        case tile.DescStore() | tile.DescAtomic():
            kind = store.desc.type
            bits, columns = max(8, bit_width(kind.element)), kind.block_shape[-1]
            widths = split_columns(columns, bits, parts) or (columns,)
            size = prod(kind.block_shape[:-1]) * widths[0] * bits // 8
            return -(-size // TILE_ALIGNMENT) * TILE_ALIGNMENT
        case _:
            return 0


def scratch_bytes(
    statements: Iterable[Operation],
    in_ring: Container[SSAValue],
    transposed: Container[SSAValue] = frozenset(),
    stored: Container[SSAValue] = frozenset(),
) -> int:
    """Return the bytes through which a role moves tiles between its threads, and to its products,
    but for first operands that are `stored` elsewhere.

    Tiles written to memory by threads (from the fragments of a product to whole rows), tiles loaded
    by the consumer itself: needed one after the other, so the largest counts. Operands of products
    that are computed in registers or lie the wrong way round have a buffer each, which the products
    of a block share, unless they are `transposed` on the way.
    """
    sizes = [0]
    operands: dict[tuple[SSAValue, int, Block | None], int] = {}
    for operation in statements:
        match operation:
            case tile.Store():
                sizes.append(_wide_bytes(operation.value.type))
            case tile.DescLoad() if operation.result not in in_ring:
                sizes.append(tile_bytes(operation.result.type))
            case tile.Dot():
                operands |= {
                    (value, k, operation.parent): tile_bytes(value.type)
                    for value, k in _operands_in_shared(operation)
                    if value not in transposed
                    and not (k and value in stored)
                    and (value not in in_ring or not _in_place(value, k))
                }
            case _:
                pass
    return max(sizes) + sum(operands.values())


def _operands_in_shared(dot: tile.Dot) -> list[tuple[SSAValue, int]]:
    """Return the operands that must be in shared memory, each with its dimension K.

    A may come from registers, but not where 8-bit products are summed in runs of K: the runs are
    parts of a tile in memory. Nor where it stays the same round a loop (`lower.operands` says why),
    or is the result of a product transposed (the planner says why).
    """
    in_runs = bit_width(element_type(dot.a.type)) == 8 and (
        0 <= dot.max_imprecise.data <= shape_of(dot.a.type)[-1]
    )
    stored = in_runs or takes_turned_product(dot) or loop_without(dot.a, dot) is not None
    return [(dot.b, 0), (dot.a, 1)] if stored else [(dot.b, 0)]


def _in_place(value: SSAValue, k: int) -> bool:
    """Tell whether wgmma reads a loaded operand where it lies: it takes 8- and 32-bit elements only
    with K contiguous (PTX ISA, "wgmma.mma_async", "Strides"), 16-bit ones either way, and rows that
    a swizzle spreads.
    """
    while isinstance(value.owner, tile.Transpose):
        value, k = value.owner.value, value.owner.permutation.data[k].data
    shape, bits = shape_of(value.type), bit_width(element_type(value.type))
    if shape[-1] * bits < 8 * _LEAST_SWIZZLE:
        return False
    return bits == 16 or k == len(shape) - 1


def _wide_bytes(kind: Attribute) -> int:
    """Return the bytes of a tile of two dimensions or more; rows and scalars stay in registers."""
    return tile_bytes(kind) if sum(extent > 1 for extent in shape_of(kind)) > 1 else 0


def buffers(plan: Plan, statements: Mapping[str, Operation]) -> list[Buffer]:
    """Return the shared memory a plan asks for, buffer by buffer."""
    found: list[Buffer] = []
    instances = max((role.instances for role in plan.roles), default=1)
    for ring in plan.arefs:
        for name in ring.payload:
            # What is asked for while the kernel runs is a number, and no statement of the kernel.
            slot = tile_bytes(statements[name].results[0].type if name in statements else i32)
            found.append(Buffer(f"{name} x {ring.depth} slots", slot * ring.depth))
        found.append(Buffer(f"barriers of {ring.label}", 16 * ring.depth))
    for store in plan.stores:
        if store.via == "tma" and not store.stage:
            # Instances of a role have stages of their own.
            size = stage_bytes(statements[store.store], store.parts) * store.places * instances
            found.append(Buffer(f"stage of {store.store}", size))
    kept = kept_buffers((statements[loop.loop], loop.shared) for loop in plan.loops)
    found += [Buffer(buffer.label, buffer.bytes * instances) for buffer in kept]
    in_ring = aliases(_loads_of(plan.arefs, statements))
    transposed_rings = [ring for ring in plan.arefs if ring.via == "transpose"]
    transposed = aliases(_loads_of(transposed_rings, statements))
    stored = stored_operands(plan.operands, statements, transposed | in_ring)
    found += stored.values()
    size = scratch_bytes(statements.values(), in_ring, transposed, stored)
    if plan.specialized and size:
        found.append(Buffer("scratch", size))
    return found


def stored_operands(
    operands: Iterable[OperandPlan], statements: Mapping[str, Operation], there: Container[SSAValue]
) -> dict[SSAValue, Buffer]:
    """Return the first operands that are stored for wgmma as a plan says, unless they are `there`
    already, each with what holds it.
    """
    found: dict[SSAValue, Buffer] = {}
    for each in operands:
        dot = statements.get(each.product)
        if isinstance(dot, tile.Dot) and each.a == "shared" and dot.a not in there:
            found[dot.a] = Buffer(f"A of {each.product}", tile_bytes(dot.a.type))
    return found


def carried_in_shared(loop: Operation, names: Container[str]) -> list[SSAValue]:
    """Return the tensors of some names that a loop carries."""
    carried = loop.body.block.args[1:] if isinstance(loop, scf.ForOp) else ()
    return [each for each in carried if (each.name_hint or "") in names and shape_of(each.type)]


def kept_buffers(loops: Iterable[tuple[Operation, Container[str]]]) -> list[Buffer]:
    """Return what loops carry in shared memory; those of one name and type have one buffer."""
    most: Counter[tuple[str, Attribute]] = Counter()
    for loop, names in loops:
        carried = carried_in_shared(loop, names)
        most |= Counter((each.name_hint or "", each.type) for each in carried)
    return [Buffer(name, tile_bytes(kind) * count) for (name, kind), count in most.items()]


def _loads_of(rings: Iterable[ArefPlan], statements: Mapping[str, Operation]) -> list[Operation]:
    names = [name for ring in rings for one in (ring.payload, *ring.also) for name in one]
    return [statements[name] for name in names if name in statements]


def total(items: Iterable[Buffer]) -> int:
    """Return the sum of buffers in bytes."""
    return sum(buffer.bytes for buffer in items)


def check_shared(plan: Plan, statements: Mapping[str, Operation], target: Target) -> None:
    """Raise OverBudget, with the list of buffers, when a plan does not fit a block."""
    needed = buffers(plan, statements)
    if target.shared_beside:
        needed.append(Buffer("what its code took beside them", target.shared_beside))
    if total(needed) <= target.shared_per_block:
        return
    listed = ", ".join(f"{buffer.label}: {buffer.bytes:,}" for buffer in needed)
    raise OverBudget(
        f"the plan needs {total(needed):,} bytes of shared memory",
        why=f"a block has {target.shared_per_block:,}; {listed}",
        remedy="use smaller block sizes, or a smaller depth=",
    )


# --- registers ----------------------------------------------------------------------------------


def register_need(
    kernel: tile.Kernel, warps: int, in_shared: Iterable[Operation], indices: bool = True
) -> int:
    """Return the registers a thread needs when `warps` warps compute all tensors of a kernel.

    `in_shared` are the loads whose tiles stay in shared memory. Without `indices`, what is made of
    ranges alone, such as addresses, is taken to be made where it is used.
    """
    loads = list(in_shared)
    elsewhere = aliases(loads) | _used_by_producer(kernel, loads)
    elsewhere |= set() if indices else _made_of_ranges(kernel)
    pressure = _Pressure(warps * 32, elsewhere, 1 if not indices and _has_only_rows(kernel) else 4)
    return pressure.of_block(kernel.body.block, frozenset()) + SLACK


def _used_by_producer(kernel: tile.Kernel, loads: Iterable[Operation]) -> set[SSAValue]:
    """Return the tensors that only the addresses and masks of the producer's loads need."""
    consumer = Liveness(frozenset(loads))
    consumer.mark_roots(kernel.body.block, has_effect)
    consumer.close()
    found: set[SSAValue] = set()
    for operation in walk(kernel):
        if operation not in consumer.operations:
            found.update(operation.results)
        if isinstance(operation, scf.ForOp):
            carried = [*operation.body.block.args[1:], *operation.results]
            found.update(value for value in carried if value not in consumer.values)
    return found


def _has_only_rows(kernel: tile.Kernel) -> bool:
    shapes = (shape_of(value.type) for op in walk(kernel) for value in op.results)
    return all(sum(extent > 1 for extent in shape) < 2 for shape in shapes)


def _made_of_ranges(kernel: tile.Kernel) -> set[SSAValue]:
    """Return the tensors that are functions of ranges and scalars."""
    found: set[SSAValue] = set()
    sources = (tile.Constant, tile.Splat, tile.Arange)
    functions = (tile.ExpandDims, tile.Broadcast, tile.Elementwise, tile.Cast, tile.PtrAdd)
    for operation in walk(kernel):
        tensors = [value for value in operation.operands if shape_of(value.type)]
        made = isinstance(operation, functions) and all(value in found for value in tensors)
        if made or isinstance(operation, sources):
            found.update(operation.results)
    return found


def carried_need(
    kernel: tile.Kernel, warps: int, elsewhere: Container[SSAValue] = ()
) -> tuple[int, list[str]]:
    """Return the registers of what no schedule can avoid holding: a loop's carried tensors.

    Those `elsewhere` a loop carries in shared memory. The second result lists these tensors for a
    message.
    """
    worst: tuple[int, list[str]] = (0, [])
    for loop in walk(kernel):
        if not isinstance(loop, scf.ForOp):
            continue
        tensors = [
            value
            for value in loop.body.block.args[1:]
            if shape_of(value.type)
            and not isinstance(element_type(value.type), PtrType)
            and value not in elsewhere
        ]
        need = sum(_registers(value.type, warps * 32) for value in tensors)
        if need > worst[0]:
            listed = [
                f"{argument.name_hint} of {name_of(loop)}: {_registers(argument.type, warps * 32)}"
                for argument in tensors
            ]
            worst = (need, listed)
    return worst


def aliases(loads: Iterable[Operation]) -> set[SSAValue]:
    """Return the loaded tiles and all views of them."""
    return {view for load in loads for view in views_of(load.results[0])}


def held_registers(kind: Attribute, warps: int) -> int:
    """Return the registers of a thread's share of a tensor that `warps` warps hold."""
    return _registers(kind, 32 * warps)


def _registers(kind: Attribute, threads: int, row_copies: int = 4) -> int:
    """Return the registers of a thread's share of a tensor; rows and columns have copies."""
    shape = shape_of(kind)
    if not shape:
        return 0
    copies = row_copies if sum(extent > 1 for extent in shape) < 2 else 1
    bits = max(8, bit_width(element_type(kind)))
    return max(1, -(-prod(shape) * copies * bits // 32 // threads))


class _Pressure:
    """The most tensor registers live at one point, by a backward walk.

    Where no tensor has two dimensions, threads hold no copies: `copies` is 1.
    """

    def __init__(self, threads: int, in_shared: set[SSAValue], copies: int = 4) -> None:
        self._threads = threads
        self._in_shared = in_shared
        self._copies = copies

    def _size(self, values: Iterable[SSAValue]) -> int:
        return sum(
            _registers(value.type, self._threads, self._copies)
            for value in values
            if shape_of(value.type) and not self._is_cheap(value)
        )

    def _is_cheap(self, value: SSAValue) -> bool:
        """Constants, filled tensors and indices are made again where they are needed."""
        return value in self._in_shared or type(value.owner) in _CHEAP

    def of_block(self, block: Block, after: frozenset[SSAValue]) -> int:
        live = set(after)
        most = self._size(live)
        for operation in reversed(list(block.ops)):
            if is_terminator(operation):
                live.update(operation.operands)
                most = max(most, self._size(live))
                continue
            live.difference_update(operation.results)
            if isinstance(operation, CONTROL):
                most = max(most, self._of_control(operation, live))
            else:
                live.update(operation.operands)
            most = max(most, self._size(live) + self._promotion(operation))
        return most

    def _promotion(self, operation: Operation) -> int:
        """8-bit products that are added up in full precision every few steps hold a second sum."""
        if not isinstance(operation, tile.Dot) or not operation.max_imprecise.data:
            return 0
        kind = operation.a.type
        if bit_width(element_type(kind)) != 8 or shape_of(kind)[-1] <= operation.max_imprecise.data:
            return 0
        return _registers(operation.result.type, self._threads)

    def _of_control(self, operation: Operation, live: set[SSAValue]) -> int:
        """Tensors used inside and defined outside live through all iterations."""
        outside = {
            operand
            for inner in walk(operation)
            for operand in inner.operands
            if not operation.is_ancestor(operand.owner)
        }
        live.update(outside - set(operation.operands))
        through = frozenset(live)
        most = max(
            (
                self.of_block(block, through)
                for region in operation.regions
                for block in region.blocks
            ),
            default=0,
        )
        live.update(operation.operands)
        return most


# --- budgets of roles -----------------------------------------------------------------------------


COPYING = (56, 72, 88, 104, 128, 152, 176, 200)
"""Register budgets of a producer whose threads copy."""


TRANSPOSING = (32, 24)
"""Register budgets of a role that transposes tiles: four words in flight, addresses, barriers."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """Registers a thread of each role; `transposer` 0 where no role transposes."""

    producer: int
    consumer: int
    transposer: int = 0


def producer_need(loads: Iterable[Operation]) -> int:
    """Return the registers a producer's thread needs to copy the tiles of `loads` by cp.async.

    Two a copy for its address, one for each number that its mask compares, two for a row number
    that the loop reads, of this iteration and the next; 0 where TMA moves all tiles.
    """
    need = 0
    rows: dict[Operation, int] = {}
    for load in loads:
        run = copy_run(load) if isinstance(load, tile.Load) else ""
        if isinstance(run, Run) and isinstance(load, tile.Load):
            copies = prod(shape_of(load.result.type)) // (run.elements * 128)
            need += copies * (2 + _compared(load, run.axis))
            rows |= {index: max(copies, rows.get(index, 0)) for index in _rows_of(load)}
    return SLACK + need + 2 * sum(rows.values()) if need else 0


def _rows_of(load: tile.Load) -> list[Operation]:
    """Return the loads of the same block that make the vectors in a load's addresses."""
    return [
        op
        for op in needed_by(load)
        if isinstance(op, tile.Load)
        and op.parent is load.parent
        and len(shape_of(op.result.type)) == 1
    ]


def _compared(load: tile.Load, axis: int) -> int:
    """Return how many numbers a copy's mask compares that differ from run to run, 1 at least."""
    found: set[SSAValue] = set()
    for part in conjuncts(load.mask) if load.mask is not None else ():
        value = part
        while isinstance(value.owner, tile.Broadcast | tile.ExpandDims):
            value = value.owner.operands[0]
        if isinstance(value.owner, tile.Elementwise) and not _along(part, axis):
            varying = (x for x in value.owner.inputs if shape_of(x.type))
            found.update(x for x in varying if not isinstance(x.owner, tile.Splat | tile.Constant))
    return max(1, len(found))


def _along(value: SSAValue, axis: int) -> bool:
    """Tell whether a part of a mask changes along dimension `axis` alone."""
    inner = value.owner.operands[0] if isinstance(value.owner, tile.Broadcast) else value
    return all(extent == 1 or dim == axis for dim, extent in enumerate(shape_of(inner.type)))


def split_registers(
    consumers: int,
    needed: int,
    target: Target,
    producer_needs: int = 0,
    *,
    transposer: bool = False,
) -> Budgets:
    """Return the register budgets a thread, for `consumers` warpgroups.

    setmaxnreg moves registers inside the block: the sum over warpgroups may not exceed what the
    kernel is launched with. A producer that starts TMA copies gets 40, or less where the consumers
    then get more of what would be lost to rounding, or need it; one whose threads copy gets what
    they need (`producer_needs`), less where the consumers need it. A `transposer` gets 32, or 24
    where the consumers need the rest.
    """
    if not transposer:
        pool = pool_of(1 + consumers, target)
        return _split(consumers, needed, target, producer_needs, pool)
    pool = pool_of(2 + consumers, target)
    found = Budgets(0, 0)
    for own in TRANSPOSING:
        made = _split(consumers, needed, target, producer_needs, pool - own)
        if made.consumer > found.consumer:
            found = replace(made, transposer=own)
        if needed <= found.consumer:
            break
    return found


def pool_of(groups: int, target: Target) -> int:
    """Return the sum of the registers a thread of `groups` warpgroups that share a block."""
    return target.registers_at_launch(128 * groups) * groups


def _split(consumers: int, needed: int, target: Target, producer_needs: int, pool: int) -> Budgets:
    """Share a pool between one producer and the consumers."""
    most = target.registers_max - 16  # 240: above it ptxas has no use for a budget
    best = Budgets(0, 0)
    choices = (40, 32, 24)
    if producer_needs:
        most_useful = next((n for n in COPYING if n >= producer_needs), COPYING[-1])
        choices = tuple(n for n in reversed(COPYING) if n <= most_useful)
    for producer in choices:
        left = (pool - producer) // consumers // 8 * 8
        budget = min(most, left)
        wasted = pool - producer - left * consumers
        if not best.producer or (
            budget > best.consumer and (wasted == 0 or needed > best.consumer)
        ):
            best = Budgets(producer, budget)
        if needed <= best.consumer and (wasted == 0 or budget == most):
            break
    if producer_needs:
        # What the consumers have no use for costs nothing: ptxas keeps more addresses in it.
        left = pool - best.consumer * consumers
        spare = max((n for n in COPYING if n <= left), default=0)
        best = replace(best, producer=max(best.producer, spare))
    return best


def moved_to_helpers(plan: Plan, target: Target) -> Plan | None:
    """Return a plan whose consumers give a step of their registers to the last role that serves
    them, which works most; None where no such role is, or the consumers have no more to give.
    """
    helpers = [role for role in plan.roles if role not in plan.consumers]
    step = target.register_unit
    if not helpers or any(r.registers - step < target.registers_min for r in plan.consumers):
        return None
    freed = sum(step * role.warps * role.instances for role in plan.consumers)
    gained = freed // helpers[-1].warps // step * step
    roles = tuple(
        replace(role, registers=role.registers - step)
        if role in plan.consumers
        else replace(role, registers=role.registers + gained * (role is helpers[-1]))
        for role in plan.roles
    )
    return replace(plan, roles=roles)


def check_register_sum(plan: Plan, target: Target) -> None:
    """Raise PlanError when the roles' budgets exceed what the block is launched with."""
    threads = sum(role.warps * role.instances for role in plan.roles) * 32
    each = target.registers_at_launch(threads)
    asked = sum(role.registers * role.warps * 32 * role.instances for role in plan.roles)
    for role in plan.roles:
        low, high = target.registers_min, target.registers_max
        if role.registers % target.register_unit or not low <= role.registers <= high:
            raise PlanError(
                f"registers of role {role.label}: {role.registers}",
                why=f"setmaxnreg takes multiples of {target.register_unit} in {low}..{high}",
                remedy="round the pinned value",
            )
    if asked > each * threads:
        listed = ", ".join(
            f"{role.label} {role.warps * role.instances} warps x {role.registers}"
            for role in plan.roles
        )
        raise PlanError(
            f"the roles' registers sum to {asked}, more than the block's {each * threads}",
            why=f"{threads} threads are launched with {each} registers each; {listed}. "
            "setmaxnreg would wait for ever",
            remedy="lower registers= of one role",
        )
