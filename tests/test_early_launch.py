"""Launches that begin while the kernel before them ends: where they wait, and what is checked."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

import tawa
import tawa.language as tl
from mutants import mutants
from tawa.errors import ProtocolError, TawaError
from tawa.ir import hopper, parse, tile
from tawa.kernels.attention import attention
from tawa.kernels.matmul import matmul as matmul_of
from tawa.kernels.recipe import Step
from tawa.runtime.compiled import LaunchShape
from tawa.runtime.launcher import _ATTRIBUTE, Block
from tawa.simulator.proof import prove
from tawa.target import H200


@tawa.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


@tawa.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def arguments(size: int = 256):
    a, b = (np.random.default_rng(i).standard_normal((size, size), np.float32) for i in range(2))
    a, b, c = a.astype(np.float16), b.astype(np.float16), np.empty((size, size), np.float16)
    desc = tawa.TensorDescriptor.from_tensor
    return desc(a, [128, 64]), desc(b, [64, 128]), desc(c, [128, 128]), size


TILE = {"BM": 128, "BN": 128, "BK": 64}


def compiled(**options):
    return matmul.compile(*arguments(), grid=(2, 2), **TILE, **options)


def lowered(**options) -> tile.Kernel:
    return parse(str(compiled(launch_pdl=True, **options).asm["hopper"]))


def only(kernel: tile.Kernel, kind: type[Operation]) -> Operation:
    (found,) = [operation for operation in kernel.walk() if isinstance(operation, kind)]
    return found


@pytest.mark.parametrize(
    "pins",
    [{}, {"cluster": 2}, {"arrangement": "pingpong"}, {"specialize": False}],
    ids=["cooperative", "clusters", "tiles of their own", "ordinary"],
)
def test_the_block_waits_once_above_all_roles(pins):
    kernel = compiled(launch_pdl=True, **pins)
    assert kernel.launch.early
    ops = list(parse(str(kernel.asm["hopper"])).body.block.ops)
    roles = [place for place, op in enumerate(ops) if isinstance(op, hopper.Role)]
    assert isinstance(ops[roles[0] - 2], hopper.GridWait)
    assert isinstance(ops[roles[0] - 1], hopper.LaunchDependents)
    assert sum(isinstance(op, hopper.GridWait) for op in ops) == 1


def test_it_is_told():
    text = matmul.explain(*arguments(), grid=(2, 2), **TILE, launch_pdl=True)
    assert "persistent, begins while the kernel before it ends" in text


def test_without_the_option_nothing_is_added():
    kernel = compiled()
    assert not kernel.launch.early
    assert "griddepcontrol" not in str(kernel.asm["cuda"])
    assert compiled(launch_pdl=False).asm["cuda"] == kernel.asm["cuda"]


def test_kernels_without_barriers_wait_too():
    x = np.arange(256, dtype=np.float32)
    kernel = double.compile(x, x.copy(), 200, BLOCK=128, grid=(2,), launch_pdl=True)
    assert kernel.launch.early
    text = str(kernel.asm["cuda"])
    assert text.index("grid_wait();\n") < text.index("launch_dependents();\n")


def test_an_early_kernel_without_its_wait_is_refused():
    kernel = lowered()
    Rewriter.erase_op(only(kernel, hopper.GridWait))
    with pytest.raises(ProtocolError, match="does not wait for those before it"):
        prove(kernel, H200)


@pytest.mark.parametrize("kind", [hopper.GridWait, hopper.LaunchDependents])
def test_neither_has_a_place_inside_a_role(kind):
    kernel = lowered()
    operation = only(kernel, kind)
    role = next(op for op in kernel.walk() if isinstance(op, hopper.Role))
    operation.detach()
    Rewriter.insert_op(operation, InsertPoint.at_end(role.body.block))
    with pytest.raises(ProtocolError, match="stands inside a role"):
        prove(kernel, H200)


def test_waiting_below_the_roles_proves_nothing():
    kernel = lowered()
    operation = only(kernel, hopper.GridWait)
    operation.detach()
    Rewriter.insert_op(operation, InsertPoint.at_end(kernel.body.block))
    with pytest.raises(TawaError, match="after the roles"):
        prove(kernel, H200)


def test_the_hint_may_be_missing():
    kernel = lowered()
    Rewriter.erase_op(only(kernel, hopper.LaunchDependents))
    assert prove(kernel, H200).ok


def test_mutants_of_the_wait():
    kernel = lowered()
    for mutant in mutants(kernel):
        if not isinstance(mutant.operation, hopper.GridWait) or mutant.harmless:
            continue
        with pytest.raises(TawaError):
            prove(mutant.make(), H200)


def test_the_simulator_runs_them():
    given = arguments()
    a, b, c = (each.base for each in given[:3])
    tawa.simulate(matmul, *given, grid=(2, 2), **TILE, launch_pdl=True)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(c.astype(np.float32), expected, rtol=2e-2, atol=5e-2)


def attributes(shape: LaunchShape) -> list[tuple[int, ...]]:
    """Return the attributes of a launch, as the driver reads them."""
    import ctypes
    import struct

    block = Block(shape, 1, struct.Struct("<q"))
    *_, address, count = struct.unpack("<7I4xQQI4x", ctypes.string_at(block.config, 56))
    raw = ctypes.string_at(address, count * _ATTRIBUTE.size) if count else b""
    return list(_ATTRIBUTE.iter_unpack(raw))


def test_what_the_driver_is_told():
    assert attributes(LaunchShape(128, 0)) == []
    assert attributes(LaunchShape(128, 0, 2)) == [(4, 2, 1, 1)]
    assert attributes(LaunchShape(128, 0, early=True)) == [(6, 1, 0, 0)]
    assert attributes(LaunchShape(128, 0, 2, early=True)) == [(4, 2, 1, 1), (6, 1, 0, 0)]


def test_the_library_asks_for_it(monkeypatch):
    asked: list[object] = []
    run = Step.__call__

    def noted(step, arrays):
        asked.append(step.options.get("launch_pdl"))
        run(step, arrays)

    monkeypatch.setattr(Step, "__call__", noted)
    q = np.random.default_rng(0).standard_normal((1, 1, 64, 64)).astype(np.float16)
    usual = matmul_of(q[0, 0], q[0, 0]), attention(q, q, q)
    early = matmul_of(q[0, 0], q[0, 0], launch_pdl=True), attention(q, q, q, launch_pdl=True)
    for one, other in zip(usual, early):
        np.testing.assert_array_equal(one, other)
    assert asked == [None, None, True, True]
