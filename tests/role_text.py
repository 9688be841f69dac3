"""Hopper IR of roles that move tiles of 64 x 64 numbers through a ring of slots, as text.

Constants are `%c0` to `%c9`, the ring is `%ring`, its descriptor's tensor map `%m`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proof_oracle import ACC, BYTES, DESC, MAP, SHARED, VIEW, i

POINTERS = (
    'tensor<64x64x!tile.ptr<bf16>, #hopper.layout<"64x64 r[8:(0,1) 4:(16,0)] l[8:(0,8) 4:(1,0)] '
    'w[4:(4,0)]">>'
)
TILES = f"%m = hopper.tensor_map %d {{swizzle = {i(128)}}} : ({DESC}) -> {MAP}\n"
_CONSTANTS = "".join(f"%c{n} = tile.constant {{value = {i(n)}}} : i32\n" for n in range(10))


def barriers(count: int) -> str:
    """The type of an array of barriers."""
    return f"!hopper.barriers<{i(count)}>"


def _buffer(slots: int) -> str:
    return f"!hopper.buffer<{i(slots)}, bf16, {SHARED}>"


def role(label: str, first: int, body: str, registers: int = 24) -> str:
    """A role of one warpgroup."""
    return (
        f'"hopper.role"() ({{\n{_CONSTANTS}{body}}}) {{label = "{label}", first_warp = {i(first)}, '
        f"warps = {i(4)}, registers = {i(registers)}}} : () -> ()\n"
    )


def one(body: str) -> str:
    """What one thread does."""
    return f'"hopper.one_thread"() ({{\n{body}}}) : () -> ()\n'


def kernel(
    roles: Sequence[str],
    arrays: Mapping[str, tuple[int, int]],
    slots: int = 2,
    arguments: Mapping[str, str] | None = None,
    shared: str = "",
    used: int = 0,
) -> str:
    """The kernel of some roles of four warps; `arrays` gives barriers and arrivals of each array,
    `shared` declares more memory, of so many bytes from the ring's end on.
    """
    arguments = arguments or {"d": DESC, "K": "i32"}
    tiles = TILES if "d" in arguments else ""
    offset = slots * BYTES + used
    declared, initialised = "", ""
    for name, (count, arrivals) in arrays.items():
        kind = barriers(count)
        declared += (
            f'%{name} = hopper.barriers "{name}" {{offset = {i(offset)}, arrivals = {i(arrivals)}}}'
            f" : {kind}\n"
        )
        initialised += f"hopper.init_barriers %{name} : {kind}\n"
        offset += 8 * count
    inputs = ", ".join(f"%{name}: {kind}" for name, kind in arguments.items())
    names = ", ".join(f'{{name = "{name}"}}' for name in arguments)
    launch = (
        f"threads = {i(128 * len(roles))}, registers = {i(168)}, shared = {i(offset)}, "
        f"cluster = {i(1)}"
    )
    return (
        f'"tile.kernel"() ({{\n^bb0({inputs}):\n{tiles}'
        f'%ring = hopper.shared "a" {{offset = {i(0)}}} : {_buffer(slots)}\n'
        f"{shared}{declared}{initialised}hopper.fence_barrier_init\nhopper.block_sync\n"
        f'{"".join(roles)}}}) {{sym_name = "k", arguments = [{names}], options = {{}}, '
        f"launch = {{{launch}}}}} : () -> ()\n"
    )


def wait(array: str, count: int, slot: str, phase: str) -> str:
    """A wait for a phase."""
    return f"hopper.wait %{array}[{slot}], {phase} : {barriers(count)}, i32, i32\n"


def arrive(array: str, count: int, slot: str, by: str) -> str:
    """An arrival."""
    return f'hopper.arrive %{array}[{slot}] {{by = "{by}"}} : {barriers(count)}, i32\n'


def view(name: str, slot: str, slots: int = 2) -> str:
    """The view of a slot of the ring."""
    return f"{name} = hopper.slot %ring[{slot}] : ({_buffer(slots)}, i32) -> {VIEW}\n"


def load(name: str, array: str, count: int, slot: str) -> str:
    """The first tile of the descriptor, copied to a view: bytes expected, and the copy."""
    kind = barriers(count)
    return (
        f"hopper.expect %{array}[{slot}] {{bytes = {i(BYTES)}}} : {kind}, i32\n"
        f"hopper.tma_load %m[%c0, %c0], {name}, %{array}[{slot}] : {MAP}, i32, i32, {VIEW}, {kind}"
        ", i32\n"
    )


def store(name: str) -> str:
    """The first tile of the descriptor, stored from a view and waited for."""
    return (
        f'hopper.tma_store %m[%c0, %c0], {name} {{by = "role"}} : {MAP}, i32, i32, {VIEW}\n'
        'hopper.bulk_commit {by = "role"}\n'
        f'hopper.bulk_wait {{by = "role", pending = {i(0)}, read = false}}\n'
    )


def gather(name: str, array: str, count: int, slot: str) -> str:
    """A tile copied to a view by cp.async, from `%where`."""
    return (
        f'"hopper.copy_async"(%where, {name}) <{{operandSegmentSizes = array<i32: 1, 0, 1>}}> : '
        f"({POINTERS}, {VIEW}) -> ()\n"
        f"hopper.copy_async_arrive %{array}[{slot}] : {barriers(count)}, i32\n"
    )


def product(name: str, acc: str, made: str) -> str:
    """A product of a view with itself, added to an accumulator, committed."""
    return (
        f"hopper.wgmma_fence\n{made} = hopper.wgmma {name}, {name}, {acc} : ({VIEW}, {VIEW}, {ACC})"
        f" -> {ACC}\nhopper.wgmma_commit\n"
    )


def finish(made: str, acc: str) -> str:
    """The accumulator when all products are over."""
    return f"{made} = hopper.wgmma_wait {{pending = {i(0)}}} of {acc} : {ACC} -> {ACC}\n"
