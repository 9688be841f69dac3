"""Launches that begin while the kernel before them ends: where they wait, and what is checked."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import Block, Operation, Region
from xdsl.rewriter import InsertPoint, Rewriter

import tawa
import tawa.language as tl
from mutants import mutants
from tawa.errors import ProtocolError, TawaError
from tawa.ir import hopper, parse, tile
from tawa.kernels import recipe
from tawa.kernels.attention import attention
from tawa.kernels.matmul import matmul as matmul_of
from tawa.runtime import launcher
from tawa.runtime.compiled import LaunchShape
from tawa.simulator import simulate
from tawa.simulator.memory import HostDescriptor
from tawa.target import H200
from tawa.verify import verify


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


def arguments(size: int = 256, depth: int = 256):
    made = np.random.default_rng(0).standard_normal
    a, b = (made(shape, np.float32).astype(np.float16) for shape in ((size, depth), (depth, size)))
    c = np.empty((size, size), np.float16)
    desc = tawa.TensorDescriptor.from_tensor
    return desc(a, [128, 64]), desc(b, [64, 128]), desc(c, [128, 128]), depth


TILE = {"BM": 128, "BN": 128, "BK": 64}


def compiled(**options):
    return matmul.compile(*arguments(), grid=(2, 2), **TILE, **options)


def lowered(**options) -> tile.Kernel:
    return parse(str(compiled(launch_pdl=True, **options).asm["hopper"]))


def only(kernel: tile.Kernel, kind: type[Operation]) -> Operation:
    (found,) = [operation for operation in kernel.walk() if isinstance(operation, kind)]
    return found


PINS = {
    "cooperative": {},
    "clusters": {"cluster": 2},
    "tiles of their own": {"arrangement": "pingpong"},
    "ordinary": {"specialize": False},
    "a program a block": {"persistent": False},
}


@pytest.mark.parametrize("name", PINS)
def test_each_role_waits_once(name):
    kernel = compiled(launch_pdl=True, **PINS[name])
    assert kernel.launch.early
    assert kernel.proof.ok
    made = parse(str(kernel.asm["hopper"]))
    roles = [op for op in made.walk() if isinstance(op, hopper.Role)]
    for role in roles:
        assert sum(isinstance(op, hopper.GridWait) for op in role.walk()) == 1
    only(made, hopper.LaunchDependents)


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


def waits(kernel: tile.Kernel) -> list[Operation]:
    return [operation for operation in kernel.walk() if isinstance(operation, hopper.GridWait)]


def run(kernel: tile.Kernel) -> None:
    *descriptors, depth = arguments()
    given = {f"{name}_desc": each for name, each in zip("abc", descriptors)}
    at = {
        name: HostDescriptor(each.base, each.shape, each.strides, tuple(each.block_shape))
        for name, each in given.items()
    }
    simulate(kernel, (2, 2, 1), {**at, "K": depth}, multiprocessors=2)


@pytest.mark.parametrize("role", [0, 1])
def test_a_role_without_its_wait_is_refused(role):
    kernel = lowered()
    Rewriter.erase_op(waits(kernel)[role])
    with pytest.raises(ProtocolError, match="does not wait for the kernels before"):
        verify(kernel, H200)
    with pytest.raises(ProtocolError, match="before the kernels before this one end"):
        run(kernel)


def moved(kernel: tile.Kernel, role: int, point: InsertPoint) -> tile.Kernel:
    wait = waits(kernel)[role]
    wait.detach()
    Rewriter.insert_op(wait, point)
    return kernel


def first(kernel: tile.Kernel, kind: type[Operation]) -> Operation:
    return next(op for op in kernel.walk() if isinstance(op, kind))


@pytest.mark.parametrize("kind", [hopper.TmaLoad, hopper.Wait])
def test_a_wait_in_a_loop_is_none(kind):
    kernel = lowered()
    moved(kernel, 0, InsertPoint.before(first(kernel, kind)))
    with pytest.raises(ProtocolError, match="load is launched early and does not wait"):
        verify(kernel, H200)


@pytest.mark.parametrize("role", [0, 1])
def test_a_wait_below_what_touches_memory_is_refused(role):
    kernel = lowered()
    wait = waits(kernel)[role]
    assert wait.parent is not None
    moved(kernel, role, InsertPoint.at_end(wait.parent))
    with pytest.raises(ProtocolError, match="before it has waited for the kernels before"):
        verify(kernel, H200)
    with pytest.raises(ProtocolError, match="before the kernels before this one end"):
        run(kernel)


def test_a_role_that_touches_no_memory_waits_for_the_end():
    kernel = lowered()
    load = next(op for op in kernel.walk() if isinstance(op, hopper.Role))
    for operation in list(load.body.block.ops):
        if not isinstance(operation, hopper.SetRegisters):
            operation.detach()
    with pytest.raises(ProtocolError, match="is not proved"):  # nobody fills what mma waits for
        verify(kernel, H200)
    with pytest.raises(ProtocolError, match=r"load .*ends without having waited"):
        run(kernel)


def test_one_thread_does_not_wait_for_the_others():
    x = np.arange(256, dtype=np.float32)
    made = double.compile(x, x.copy(), 200, BLOCK=128, grid=(2,), launch_pdl=True)
    kernel = parse(str(made.asm["hopper"]))
    (wait,) = waits(kernel)
    one = hopper.OneThread(regions=[Region(Block())])
    Rewriter.insert_op(one, InsertPoint.before(wait))
    wait.detach()
    one.body.block.add_op(wait)
    with pytest.raises(ProtocolError, match=r"main comes to tile\.load before it has waited"):
        verify(kernel, H200)
    given = {"x": x, "out": x.copy(), "n": 200}
    with pytest.raises(ProtocolError, match=r"tile\.load of main .*may run before the kernels"):
        simulate(kernel, (2, 1, 1), given)


@pytest.mark.parametrize("where", ["above", "below"])
def test_no_wait_stands_outside_the_roles(where):
    kernel = lowered()
    block = kernel.body.block
    roles = [op for op in block.ops if isinstance(op, hopper.Role)]
    point = InsertPoint.before(roles[0]) if where == "above" else InsertPoint.at_end(block)
    with pytest.raises(TawaError, match=r"hopper\.grid_wait stands"):
        verify(moved(kernel, 0, point), H200)


def test_the_hint_may_be_missing():
    kernel = lowered()
    Rewriter.erase_op(only(kernel, hopper.LaunchDependents))
    assert verify(kernel, H200).ok


def test_mutants_of_the_wait():
    kernel = lowered()
    run(kernel)
    for mutant in mutants(kernel):
        if not isinstance(mutant.operation, hopper.GridWait) or mutant.harmless:
            continue
        for judge in (lambda broken: verify(broken, H200), run):
            with pytest.raises(TawaError):
                judge(mutant.make())


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

    block = launcher.Block(shape, 1, struct.Struct("<q"))
    *_, address, count = struct.unpack("<7I4xQQI4x", ctypes.string_at(block.config, 56))
    raw = ctypes.string_at(address, count * launcher._ATTRIBUTE.size) if count else b""
    return list(launcher._ATTRIBUTE.iter_unpack(raw))


def test_what_the_driver_is_told():
    assert attributes(LaunchShape(128, 0)) == []
    assert attributes(LaunchShape(128, 0, 2)) == [(4, 2, 1, 1)]
    assert attributes(LaunchShape(128, 0, early=True)) == [(6, 1, 0, 0)]
    assert attributes(LaunchShape(128, 0, 2, early=True)) == [(4, 2, 1, 1), (6, 1, 0, 0)]


def test_the_library_asks_for_it(monkeypatch):
    asked: list[object] = []
    run = recipe.Step.__call__

    def noted(step, arrays):
        asked.append(step.options.get("launch_pdl"))
        run(step, arrays)

    monkeypatch.setattr(recipe.Step, "__call__", noted)
    q = np.random.default_rng(0).standard_normal((1, 1, 64, 64)).astype(np.float16)
    usual = matmul_of(q[0, 0], q[0, 0]), attention(q, q, q)
    early = matmul_of(q[0, 0], q[0, 0], launch_pdl=True), attention(q, q, q, launch_pdl=True)
    for one, other in zip(usual, early):
        np.testing.assert_array_equal(one, other)
    assert asked == [None, None, True, True]
