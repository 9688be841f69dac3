"""Static rules, registers and global memory: what a declaration or a value must be."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

import tawa.language as tl
from frontend_kernels import of
from proof_kernels import KERNELS, lower
from tawa.errors import ProtocolError
from tawa.frontend import build
from tawa.ir import hopper, tile
from tawa.ir.types import TensorMapType, int_array
from tawa.passes.lower import order, waits
from tawa.passes.lower.emit import retype
from tawa.plan.pins import Pins
from tawa.simulator.proof import prove
from tawa.target import H200


def sample(name: str = "gemm") -> tile.Kernel:
    return KERNELS[f"sample {name}"]()


def first(kernel: tile.Kernel, kind: type[Operation], place: int = 0) -> Operation:
    return [operation for operation in kernel.walk() if isinstance(operation, kind)][place]


def refused(kernel: tile.Kernel, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        prove(kernel, H200)


def number(value: int) -> IntAttr:
    return IntAttr(value)


@pytest.mark.parametrize(
    ("kind", "name", "value", "sentence"),
    [
        (hopper.Shared, "offset", 512, "starts at byte 512; a 128-byte swizzle .* of 1024"),
        (hopper.TensorMap, "swizzle", 64, "rows of 128 bytes, wider than its swizzle of 64"),
        (hopper.TensorMap, "swizzle", 0, "a swizzle of 0 bytes, the view one of 128"),
        (hopper.TensorMap, "swizzle", 256, "has a swizzle of 256 bytes"),
        (hopper.Barriers, "arrivals", 1 << 20, "counts 1048576 arrivals; an mbarrier counts 1 to"),
        (hopper.Expect, "bytes", 1 << 20, "expects 1048576 bytes; an mbarrier counts 1 to"),
        (hopper.Expect, "bytes", 0, "expects 0 bytes"),
    ],
)
def test_declarations(kind: type[Operation], name: str, value: int, sentence: str) -> None:
    kernel = sample()
    first(kernel, kind).attributes[name] = number(value)
    refused(kernel, sentence)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("registers", 176, "384 threads of 176 registers: 67584 in all, a block has 65536"),
        ("threads", 2048, "a block of 2048 threads"),
        ("cluster", 32, "a cluster of 32 blocks"),
    ],
)
def test_launches(name: str, value: int, sentence: str) -> None:
    kernel = sample()
    launch = dict(kernel.launch.data)
    launch[name] = number(value)
    kernel.attributes["launch"] = type(kernel.launch)(launch)
    refused(kernel, sentence)


def with_box(*box: int) -> tile.Kernel:
    """Return the sample GEMM, whose tile of A is 128 x 64, with other boxes in the map of A."""
    kernel = sample()
    map_of_a = first(kernel, hopper.TmaLoad).map
    retype(map_of_a, TensorMapType(map_of_a.type.element, int_array(box)))
    return kernel


def test_a_box_is_its_view_or_a_part_that_lies_together() -> None:
    assert prove(with_box(128, 64), H200)
    assert prove(with_box(32, 64), H200)  # rows of it
    refused(with_box(96, 64), "a box of 96 rows, the view 128 in 1 shares")
    refused(with_box(128, 48), "a box 48 wide, the view panels of 64")
    refused(with_box(64, 32), "boxes 64x32, which do not lie together")


def test_a_slice_for_an_engine_starts_with_the_swizzle() -> None:
    kernel = KERNELS["matmul in 4 parts"]()
    views = [op for op in kernel.walk() if isinstance(op, hopper.SliceView)]
    if not views:
        pytest.skip("the parts are buffers of their own")
    views[0].attributes["start"] = type(views[0].start)([number(4), number(0)])
    with pytest.raises(ProtocolError):
        prove(kernel, H200)


# --- registers ------------------------------------------------------------------------------------


def test_an_accumulator_is_written_before_a_product_adds_to_it() -> None:
    kernel = KERNELS["codegen matmul_nn"]()
    wgmma = first(kernel, hopper.Wgmma)
    plain = hopper.Wgmma(
        operands=[wgmma.a, wgmma.b, wgmma.acc, []],
        attributes=dict(wgmma.attributes),
        result_types=[wgmma.result.type],
    )
    Rewriter.insert_op(plain, InsertPoint.before(wgmma))
    wgmma.result.replace_all_uses_with(plain.result)
    Rewriter.erase_op(wgmma)
    refused(kernel, "accumulates into registers that nothing has written")


def test_a_loop_of_no_trips_gives_no_unwritten_registers() -> None:
    """The value after the loop is zeros where it made no trip: without the choice, anything."""
    kernel = KERNELS["codegen matmul_nn"]()
    wait = [op for op in kernel.walk() if isinstance(op, hopper.WgmmaWait) and op.values][-1]
    for use in list(wait.res[0].uses):
        branch = use.operation.parent_op()
        if branch is not None and branch.name == "scf.if":
            branch.results[0].replace_all_uses_with(wait.res[0])
    refused(kernel, "registers that nothing has written")


def test_a_name_from_before_the_wait_is_stale() -> None:
    kernel = sample()
    wait = [op for op in kernel.walk() if isinstance(op, hopper.WgmmaWait) and op.values][-1]
    old: SSAValue = wait.values[0]
    user = next(use for use in wait.res[0].uses if isinstance(use.operation, tile.Cast))
    user.operation.operands[user.index] = old
    refused(kernel, "under a name from before the last product or wait")


# --- global memory --------------------------------------------------------------------------------


def both_ways(c_ptr, N, B: tl.constexpr):
    """A row by its threads, the tile below it by TMA: the same argument."""
    desc = tl.make_tensor_descriptor(c_ptr, [N, N], [N, 1], [B, B])
    x = desc.load([0, 0])
    r = tl.arange(0, B)
    tl.store(c_ptr + r[:, None] * N + r[None, :], x)
    desc.store([B, 0], x)


def test_threads_and_tma_do_not_write_one_array_unordered(monkeypatch) -> None:
    signature = of(c_ptr="f16*", N="i32", B=64)  # no map describes its rows
    ordered = lower(build(both_ways, signature, {}), Pins())
    assert not [op for op in ordered.walk() if isinstance(op, hopper.TmaStore)]
    assert prove(ordered, H200).configurations
    monkeypatch.setattr(order._Before, "overwrites", lambda *_: False)
    kernel = lower(build(both_ways, signature, {}), Pins())
    refused(kernel, "writes global memory by hopper.tma_store .* nothing orders them")


def two_operands(a_ptr, b_ptr, c_ptr, at_ptr, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    """Fewer rows than columns: the product is turned, its operand A a view of what is loaded.

    The loop stores: what it loads is not read a trip ahead.
    """
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, B)
    acc = tl.zeros((M, N), tl.float32)
    for at in range(0, K, B):
        a = tl.load(a_ptr + m * K + (at + k)[None, :])
        acc = tl.dot(a, tl.load(b_ptr + (at + k)[:, None] * N + n), acc)
        tl.store(at_ptr, at)
    tl.store(c_ptr + m * N + n, acc)


def test_the_registers_of_a_view_are_not_computed_anew(monkeypatch) -> None:
    signature = of(
        a_ptr="f16*", b_ptr="f16*", c_ptr="f32*", at_ptr="i32*", K="i32", M=32, N=64, B=32
    )
    pins = Pins(specialize=False)
    assert prove(lower(build(two_operands, signature, {}), pins), H200).configurations
    monkeypatch.setattr(waits, "names_of", lambda value: (value,))
    kernel = lower(build(two_operands, signature, {}), pins)
    refused(kernel, "computes operand A of a wgmma anew by tile.load")
