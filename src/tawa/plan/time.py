"""A model of time, good enough to rank plans: cycles of one block for one tile.

A roofline for each iteration of a loop (products on the tensor cores, bytes from L2 through TMA),
the latency that a ring too shallow leaves open, the drain between products that are waited for one
by one, and the store. Numbers of an H200, sources beside them. It knows nothing of power.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, Operation

from tawa.analysis.polynomial import trip_count
from tawa.analysis.statements import children, name_of, name_statements
from tawa.ir import tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.plan.plan import Plan
from tawa.plan.resources import register_need

PRODUCT_BITS = 32_768
"""Multiply-adds x operand bits a cycle: 2048 of 16 bits (989 TFLOP/s over 132 SMs at 1.83 GHz)."""
SHARED_BYTES = 128
"""Bytes a cycle wgmma reads from shared memory: what bounds products of few columns."""
MEMORY_BYTES = 64
"""Bytes a cycle from L2 into an SM. A 128 x 256 x 64 tile at 740 TFLOP/s takes 41 of them."""
LATENCY = 900
"""Cycles from the issue of a TMA load to its data, through L2, under load."""
DRAIN = 90
"""Cycles the tensor cores idle when a warpgroup waits for its last product before the next."""
VECTOR_ELEMENTS = 128
"""Elements a cycle for arithmetic on registers (four schedulers of 32 lanes)."""
UNKNOWN_ITERATIONS = 64
"""Iterations assumed of a loop whose bounds are arguments."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cycles of one tile by what takes them; `total` counts overlap, of the `beside` tiles that a
    block computes at once as well.
    """

    products: float
    loads: float
    arithmetic: float
    exposed: float
    store: float
    beside: int = 1

    @property
    def total(self) -> float:
        """Cycles of a tile: the busiest unit, plus what nothing hides."""
        busy = max(self.products + self.exposed, self.loads)
        return max(busy, (busy + self.arithmetic + self.store) / self.beside)


@dataclass(slots=True)
class _Sum:
    products: float = 0.0
    loads: float = 0.0
    arithmetic: float = 0.0
    exposed: float = 0.0
    store: float = 0.0


def estimate(
    kernel: tile.Kernel,
    plan: Plan,
    statements: Mapping[str, Operation],
    iterations: Mapping[str, int] | None = None,
) -> Estimate:
    """Return the cycles of one tile of `kernel` carried out as `plan`.

    `iterations` are those of loops, by name, where they are known.
    """
    total = _Sum()
    depths = {
        statements[name]: ring.depth
        for ring in plan.arefs
        for names in (ring.payload, *ring.also)
        for name in names
        if name in statements
    }
    _add(kernel.body.block, 1, plan, depths, total, iterations or {})
    consumers = sum(role.warps * role.instances for role in plan.consumers) // 4
    if consumers > 1:
        # One warpgroup's wait is another's turn.
        total.exposed /= consumers
    waits = {store.store: store.parts - store.places for store in plan.stores if store.via == "tma"}
    for name, operation in statements.items():
        if isinstance(operation, tile.DescStore | tile.Store):
            total.store += _store_cycles(operation, waits.get(name), plan.persistent)
    beside = max((role.instances for role in plan.consumers), default=1)
    parts = total.products, total.loads, total.arithmetic, total.exposed, total.store
    return Estimate(*parts, beside)


def tile_cycles(kernel: tile.Kernel, plan: Plan, iterations: Mapping[str, int]) -> float:
    """Return the cycles of one tile of a kernel whose statements are not named yet."""
    copy = kernel.clone()
    return estimate(copy, plan, name_statements(copy), iterations).total


def registers_lacking(kernel: tile.Kernel, plan: Plan) -> int:
    """Return how many registers a thread of a consumer needs beyond those it gets: these spill."""
    copy = kernel.clone()
    statements = name_statements(copy)
    names = (name for ring in plan.arefs for each in (ring.payload, *ring.also) for name in each)
    loads = [statements[name] for name in names if name in statements]
    lacking = (register_need(copy, r.warps, loads) - r.registers for r in plan.consumers)
    return max((0, *lacking))


def trip_cycles(block: Block) -> tuple[float, float, float]:
    """Return what an iteration takes of the tensor cores, of arithmetic, and to load its tiles."""
    operations = list(block.ops)
    dots = [op for op in operations if isinstance(op, tile.Dot)]
    loads = [op for op in operations if isinstance(op, tile.DescLoad)]
    return (
        sum(map(dot_cycles, dots)),
        sum(map(_vector_cycles, operations)),
        sum(_bytes(load.results[0].type) for load in loads) / MEMORY_BYTES,
    )


def _add(
    block: Block,
    iterations: int,
    plan: Plan,
    depths: Mapping[Operation, int],
    total: _Sum,
    known: Mapping[str, int],
) -> None:
    """Add what a block costs when it runs `iterations` times."""
    operations = list(block.ops)
    loads = [op for op in operations if isinstance(op, tile.DescLoad) or op in depths]
    dots = [op for op in operations if isinstance(op, tile.Dot)]
    products = sum(map(dot_cycles, dots))
    bytes_moved = sum(_bytes(load.results[0].type) for load in loads)
    total.products += iterations * products
    total.loads += iterations * bytes_moved / MEMORY_BYTES
    total.arithmetic += iterations * sum(map(_vector_cycles, operations)) / 4
    total.exposed += iterations * _exposed(block, loads, dots, products, plan, depths)
    total.exposed += iterations * _shared_bytes(block, plan) / SHARED_BYTES
    for operation in operations:
        inner = iterations
        if isinstance(operation, scf.ForOp | scf.WhileOp):
            count = trip_count(operation) if isinstance(operation, scf.ForOp) else None
            count = known.get(name_of(operation), count)
            inner = iterations * (UNKNOWN_ITERATIONS if count is None else count)
        if isinstance(operation, scf.ForOp | scf.WhileOp | scf.IfOp):
            for region in operation.regions:
                for body in region.blocks:
                    _add(body, inner, plan, depths, total, known)


def _exposed(
    block: Block,
    loads: Sequence[Operation],
    dots: Sequence[Operation],
    products: float,
    plan: Plan,
    depths: Mapping[Operation, int],
) -> float:
    """Return the cycles of an iteration in which the tensor cores wait."""
    parent = block.parent_op()
    pinned = {loop.loop: loop.mma_depth for loop in plan.loops}
    in_flight = pinned.get(name_of(parent), 1) if isinstance(parent, scf.ForOp) else 1
    waits = DRAIN * len(dots) / in_flight
    if not loads:
        return waits
    depth = min(depths.get(load, 0) for load in loads)
    if depth == 0:
        return waits + LATENCY
    # D - P slots are being filled while P are read: the latency is spread over their iterations.
    ahead = max(0, depth - in_flight)
    return waits + max(0.0, LATENCY / (ahead + 1) - products)


def _shared_bytes(block: Block, plan: Plan) -> int:
    """Return the bytes that an iteration reads and writes of what its loop carries in shared
    memory.
    """
    loop = block.parent_op()
    named = {each.loop: each.shared for each in plan.loops}
    names = named.get(name_of(loop), ()) if isinstance(loop, scf.ForOp) else ()
    return sum(2 * _bytes(each.type) for each in block.args[1:] if each.name_hint in names)


def dot_cycles(dot: tile.Dot) -> float:
    """Return the cycles of a product: multiply-adds, or operands read from shared memory."""
    shape = shape_of(dot.result.type)
    inner = shape_of(dot.a.type)[-1]
    bits = bit_width(element_type(dot.a.type))
    work = prod(shape) * inner * bits / PRODUCT_BITS
    rows = -(-shape[-2] // 64)
    read = prod(shape_of(dot.a.type)) + rows * prod(shape_of(dot.b.type))
    return max(work, read * bits / 8 / SHARED_BYTES)


def _bytes(kind: Attribute) -> int:
    return prod(shape_of(kind)) * bit_width(element_type(kind)) // 8


def _vector_cycles(operation: Operation) -> float:
    """Return the cycles of element functions; a quarter of them is taken not to overlap."""
    if not isinstance(operation, tile.Elementwise | tile.Cast | tile.Reduce):
        return 0.0
    kind = operation.operands[0].type if operation.operands else None
    count = prod(shape_of(kind)) if kind is not None and shape_of(kind) else 0
    slow = 4 if isinstance(operation, tile.Elementwise) and "exp" in operation.function.data else 1
    steps = max(1, sum(1 for _ in children(operation)))  # the body of a reduction
    return count * slow * steps / VECTOR_ELEMENTS


def _store_cycles(store: tile.DescStore | tile.Store, waits: int | None, persistent: bool) -> float:
    """Return the cycles of an epilogue: bytes out, and `waits` for a part's place in shared memory
    (None where it leaves from registers).
    """
    kind = store.value.type
    size = prod(shape_of(kind)) * bit_width(element_type(kind)) / 8
    cycles = size / SHARED_BYTES + size / MEMORY_BYTES
    if waits is not None and persistent:
        cycles -= size / MEMORY_BYTES * 0.75  # drains under the next tile
    return cycles + max(0, waits or 0) * LATENCY / 2
