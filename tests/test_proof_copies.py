"""The proof on cp.async producers: arrivals that copies make, fences of those who wait for them."""

from __future__ import annotations

import pytest
from xdsl.rewriter import InsertPoint, Rewriter

from mutants import changes, drops, moves
from proof_oracle import ACC, SHARED, VIEW, i
from tawa.errors import ProtocolError
from tawa.ir import hopper, parse, tile
from tawa.simulator.proof import prove
from tawa.target import H200

POINTERS = (
    'tensor<64x64x!tile.ptr<bf16>, #hopper.layout<"64x64 r[8:(0,1) 4:(16,0)] l[8:(0,8) 4:(1,0)] '
    'w[4:(4,0)]">>'
)
BARRIERS = "!hopper.barriers<#builtin.int<1>>"
BUFFER = f"!hopper.buffer<#builtin.int<1>, bf16, {SHARED}>"
LAUNCH = f"threads = {i(256)}, registers = {i(248)}, shared = {i(8208)}, cluster = {i(1)}"
CONSTANTS = "\n".join(f"%c{n} = tile.constant {{value = {i(n)}}} : i32" for n in (0, 1))


def kernel(trips: int = 3) -> tile.Kernel:
    load = "\n".join(_put(trip) for trip in range(trips))
    mma = "\n".join(_get(trip) for trip in range(trips))
    return parse(f"""
"tile.kernel"() ({{
^bb0(%p: !tile.ptr<bf16>):
  %ring = hopper.shared "a" {{offset = {i(0)}}} : {BUFFER}
  %filled = hopper.barriers "filled" {{offset = {i(8192)}, arrivals = {i(128)}}} : {BARRIERS}
  %freed = hopper.barriers "freed" {{offset = {i(8200)}, arrivals = {i(1)}}} : {BARRIERS}
  hopper.init_barriers %filled : {BARRIERS}
  hopper.init_barriers %freed : {BARRIERS}
  hopper.fence_barrier_init
  hopper.block_sync
  "hopper.role"() ({{
    {CONSTANTS}
    %where = tile.splat %p : (!tile.ptr<bf16>) -> {POINTERS}
    {load}
  }}) {{label = "load", first_warp = {i(0)}, warps = {i(4)}, registers = {i(24)}}} : () -> ()
  "hopper.role"() ({{
    {CONSTANTS}
    %acc0 = tile.constant {{value = {i(0)}}} : {ACC}
    {mma}
  }}) {{label = "mma", first_warp = {i(4)}, warps = {i(4)}, registers = {i(24)}}} : () -> ()
}}) {{sym_name = "gather", arguments = [{{name = "p"}}], options = {{}},
  launch = {{{LAUNCH}}}}} : () -> ()
""")


def _put(trip: int) -> str:
    return f"""
    hopper.wait %freed[%c0], %c{(trip & 1) ^ 1} : {BARRIERS}, i32, i32
    %v{trip} = hopper.slot %ring[%c0] : ({BUFFER}, i32) -> {VIEW}
    "hopper.copy_async"(%where, %v{trip}) <{{operandSegmentSizes = array<i32: 1, 0, 1>}}>
      : ({POINTERS}, {VIEW}) -> ()
    hopper.copy_async_arrive %filled[%c0] : {BARRIERS}, i32
"""


def _get(trip: int) -> str:
    return f"""
    hopper.wait %filled[%c0], %c{trip & 1} : {BARRIERS}, i32, i32
    hopper.proxy_fence
    %w{trip} = hopper.slot %ring[%c0] : ({BUFFER}, i32) -> {VIEW}
    hopper.wgmma_fence
    %acc{trip + 1} = hopper.wgmma %w{trip}, %w{trip}, %acc{trip} : ({VIEW}, {VIEW}, {ACC}) -> {ACC}
    hopper.wgmma_commit
    hopper.wgmma_wait {{pending = {i(0)}}}
    hopper.arrive %freed[%c0] {{by = "warpgroup"}} : {BARRIERS}, i32
"""


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_gathered_tiles_are_proved(trips: int) -> None:
    assert prove(kernel(trips), H200).ok


def test_each_missing_operation_is_refused() -> None:
    for mutant in drops(kernel()):
        try:
            prove(mutant.make(), H200)
        except ProtocolError:
            assert not mutant.harmless
            continue
        assert mutant.harmless or _redundant(mutant.index), mutant.name


def _redundant(index: int) -> bool:
    """The first fence covers the later products: nothing touches the accumulator in between."""
    operations = list(kernel().walk())
    fences = [n for n, op in enumerate(operations) if op.name == "hopper.wgmma_fence"]
    return index in fences[1:]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("drop", "hopper.copy_async_arrive", "no hang|copies that no arrival stands for"),
        ("waits no copies", "hopper.copy_async_arrive", "copy_async of load"),
        ("drop", "hopper.proxy_fence", "no proxy fence"),
        ("to start", "hopper.proxy_fence", "no proxy fence"),
    ],
)
def test_what_is_missing_is_named(kind: str, name: str, message: str) -> None:
    made = [*drops(kernel()), *changes(kernel()), *moves(kernel())]
    found = [m for m in made if m.kind == kind and m.operation.name == name]
    with pytest.raises(ProtocolError, match=message):
        prove(found[0].make(), H200)


def test_a_fence_before_the_wait_is_none() -> None:
    """It must come after its thread knows of the copies."""
    broken = kernel()
    waits = [op for op in broken.walk() if isinstance(op, hopper.Wait)]
    fence = next(op for op in broken.walk() if isinstance(op, hopper.ProxyFence))
    wait = next(op for op in waits if op.next_op is fence)
    fence.detach()
    Rewriter.insert_op(fence, InsertPoint.before(wait))
    with pytest.raises(ProtocolError, match="no proxy fence"):
        prove(broken, H200)
