"""Kernels that the memory bounds: what is computed once, where threads meet, how many blocks."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.codegen.generate import generate
from tawa.ir.text import text_of
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.runtime import cubins, nvrtc
from tawa.runtime.compiler import Job, _share, compile_kernel
from tawa.runtime.crash import Steps
from tawa.runtime.request import Request
from tawa.runtime.resident import more_resident
from tawa.target import H200
from tawa.verify import verify

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


@tawa.jit
def layer_norm(x_ptr, w_ptr, o_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row = tl.program_id(0) * columns
    x = tl.load(x_ptr + row + at, mask=inside, other=0.0).to(tl.float32)
    apart = tl.where(inside, x - tl.sum(x, 0) / columns, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / columns + 1e-5)
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(o_ptr + row + at, (apart * scale * w).to(o_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def largest(x_ptr, o_ptr, columns, BLOCK: tl.constexpr):
    """One reduction in a loop: its buffer is written again right after it was read."""
    row = tl.program_id(0) * columns
    top = float("-inf")
    for start in range(0, columns, BLOCK):
        top = tl.maximum(top, tl.max(tl.load(x_ptr + row + start + tl.arange(0, BLOCK)), 0))
    tl.store(o_ptr + tl.program_id(0), top)


@tawa.jit
def softmax_sum(x_ptr, o_ptr, columns, BLOCK: tl.constexpr):
    """Two reductions in a loop: each keeps the other's buffer apart."""
    row = tl.program_id(0) * columns
    top = float("-inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row + start + tl.arange(0, BLOCK))
        new = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), 0)
        top = new
    tl.store(o_ptr + tl.program_id(0), tl.log(total) + top)


@tawa.jit
def scan_rows(x_ptr, o_ptr, steps, columns, BLOCK: tl.constexpr):
    """A loop that reads one array and writes another."""
    at = tl.arange(0, BLOCK)
    h = tl.zeros((BLOCK,), tl.float32)
    for t in range(0, steps):
        h = 0.5 * h + tl.load(x_ptr + t * columns + at)
        tl.store(o_ptr + t * columns + at, h)


@tawa.jit
def scaled_groups(x_ptr, o_ptr, s_ptr, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = at[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + place)
    scale = tl.max(tl.abs(x), 1)
    tl.store(o_ptr + place, x / scale[:, None])
    tl.store(s_ptr + at, scale)


def meetings(compiled) -> int:
    return len(re.findall(r"hopper\.named_barrier", compiled.asm.text("hopper")))


def norm_arguments(columns: int, rows: int = 3):
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((rows, columns)).astype(np.float16)
    w = rng.standard_normal(columns).astype(np.float16)
    return x, w, np.zeros_like(x), columns


def test_reductions_meet_once_each() -> None:
    compiled = layer_norm.compile(*norm_arguments(1024), grid=(3,), BLOCK=1024, num_warps=8)
    # One for each reduction, one before the store, whose array may be one that is read.
    assert meetings(compiled) == 3


def test_a_lone_reduction_in_a_loop_meets_twice() -> None:
    rows = np.random.default_rng(0).standard_normal((2, 2048)).astype(np.float32)
    out = np.zeros(2, np.float32)
    settings = {"grid": (2,), "BLOCK": 512, "num_warps": 4}
    # Once more behind the loop, where the last iteration stands.
    assert meetings(largest.compile(rows, out, 2048, **settings)) == 2 + 1
    tawa.simulate(largest, rows, out, 2048, **settings)
    np.testing.assert_array_equal(out, rows.max(1))


@pytest.mark.parametrize("seed", range(3))
def test_two_reductions_in_a_loop_meet_once_each(seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((2, 2048)).astype(np.float32)
    out = np.zeros(2, np.float32)
    settings = {"grid": (2,), "BLOCK": 512, "num_warps": 4}
    assert meetings(softmax_sum.compile(rows, out, 2048, **settings)) == 2 + 2
    tawa.simulate(softmax_sum, rows, out, 2048, seed=seed, **settings)
    np.testing.assert_allclose(out, np.log(np.exp(rows).sum(1)), rtol=1e-5)


@pytest.mark.parametrize(("columns", "copies"), [(1008, True), (1001, False)])
def test_a_mask_is_asked_once_for_a_vector(columns: int, copies: bool) -> None:
    compiled = layer_norm.compile(*norm_arguments(columns), grid=(3,), BLOCK=2048, num_warps=4)
    found = re.search(r"inside\[part \* 8 \+ 7\] = inside\[part \* 8\]", compiled.asm["cuda"])
    assert (found is not None) == copies


@pytest.mark.parametrize("columns", [1008, 1001, 16])
def test_the_norm_is_right(columns: int) -> None:
    x, w, out, _ = norm_arguments(columns)
    tawa.simulate(layer_norm, x, w, out, columns, grid=(3,), BLOCK=1024, num_warps=4)
    wide = x.astype(np.float64)
    apart = wide - wide.mean(1, keepdims=True)
    want = apart / np.sqrt((apart**2).mean(1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(out, want, rtol=3e-3, atol=3e-3)


@needs_nvrtc
def test_a_block_more_where_registers_allow() -> None:
    arguments = [tawa.array((64, 8192), "f16"), tawa.array((8192,), "f16")]
    arguments += [tawa.array((64, 8192), "f16"), 8192]
    compiled = layer_norm.compile(*arguments, grid=(64,), BLOCK=8192, num_warps=8)
    used = compiled.resources.roles[0].used
    assert used is not None
    assert compiled.resources.spills == 0
    assert compiled.launch.blocks == compiled.plan.blocks
    assert H200.blocks_resident(256, used, compiled.launch.shared) * 256 >= 1024
    # Built again for a number of blocks it is what lowering by such a plan gives.
    request = Request(layer_norm.fn, "", compiled.signature, {}, Pins(), H200)
    shared = _share(Job(request, Steps()), compiled, replace(compiled.plan, blocks=3))()
    assert shared is not None
    assert verify(shared.asm.program("hopper")).ok
    lowered = compiled.asm.program("aref").clone()
    pipeline.run(pipeline.HOPPER, lowered, replace(compiled.plan, blocks=3), H200)
    assert shared.asm.text("hopper") == text_of(lowered)
    assert shared.asm.text("cuda") == generate(lowered).text
    assert shared.launch.blocks == shared.plan.blocks == 3


@pytest.mark.parametrize(
    ("first", "outcomes", "taken", "built"),
    [
        (40, {}, 1, []),  # enough of them are resident
        (92, {8: (64, 0)}, 8, [8]),  # the most that are wanted
        (155, {5: (96, 0)}, 5, [5]),  # of 155 registers 80 are too few for most kernels
        (150, {4: (128, 96), 5: (96, 728)}, 1, [5, 4]),
        (123, {5: (96, 0), 7: (72, 300)}, 5, [7, 5]),
        (73, {7: (53, 0), 8: (52, 8)}, 7, [8, 7]),
        (92, {6: (80, 0), 8: None}, 6, [8, 6]),  # NVRTC refuses
    ],
)
def test_the_most_blocks_are_built_first(first, outcomes, taken, built) -> None:
    """Registers and spills of kernels of 128 threads, as ptxas gave them."""

    def kernel(plan: Plan, used: int, spills: int) -> SimpleNamespace:
        resources = SimpleNamespace(roles=[SimpleNamespace(used=used)], spills=spills)
        return SimpleNamespace(plan=plan, launch=launch, resources=resources)

    launch = SimpleNamespace(threads=128, shared=0)
    begun: list[int] = []

    def share(plan: Plan):
        if plan.blocks not in begun:
            begun.append(plan.blocks)
        found = outcomes[plan.blocks]
        return lambda: found and kernel(plan, *found)

    compiled = layer_norm.compile_to_run(*norm_arguments(16), grid=(3,), BLOCK=16, num_warps=1)
    tile = compiled.asm.program("aref")
    made = more_resident(kernel(Plan(), first, 0), tile, H200, Pins(), share)
    assert made.plan.blocks == taken
    assert begun == built


@needs_nvrtc
def test_the_most_blocks_are_built_beside_the_kernel_itself(monkeypatch) -> None:
    """Before it is known what ptxas makes of it, where it is likely to take more registers."""
    begun: list[int] = []
    start = cubins.start

    def count(source, **settings):
        begun.append(int(re.findall(r"__launch_bounds__\(\d+, (\d+)\)", source.text)[0]))
        return start(source, **settings)

    monkeypatch.setattr(cubins, "start", count)
    for columns, warps, wanted in ((1024, 4, [1]), (16384, 16, [1, 2])):
        arguments = [tawa.array((64, columns), "f16"), tawa.array((columns,), "f16")]
        arguments += [tawa.array((64, columns), "f16"), columns]
        options = {"num_warps": warps}
        lowered = layer_norm.compile_to_run(*arguments, grid=(64,), BLOCK=columns, **options)
        request = Request(layer_norm.fn, "", lowered.signature, options, Pins(), H200)
        begun.clear()
        made = compile_kernel(request)
        assert begun == wanted
        assert made.plan.blocks == wanted[-1]


def test_blocks_that_registers_leave_room_for() -> None:
    assert H200.blocks_resident(256, 80, 0) == 3
    assert H200.blocks_resident(256, 64, 0) == 4
    assert H200.blocks_resident(128, 163, 0) == 3
    assert H200.blocks_resident(512, 32, 0) == 4
    assert H200.blocks_resident(256, 32, 100_000) == 2
    assert H200.blocks_resident(1024, 255, 0) == 0


def test_warps_that_memory_asks_for() -> None:
    for columns, threads in ((1024, 128), (4096, 128), (8192, 256), (16384, 512)):
        arguments = [tawa.array((8, columns), "f16"), tawa.array((columns,), "f16")]
        arguments += [tawa.array((8, columns), "f16"), columns]
        compiled = layer_norm.compile(*arguments, grid=(8,), BLOCK=columns)
        assert compiled.launch.threads == threads


def test_tiles_that_nothing_overlaps_go_by_threads() -> None:
    x = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    out, scales = np.zeros_like(x), np.zeros(64, np.float32)
    settings = {"grid": (4,), "GROUP": 128, "BLOCK": 16}
    compiled = scaled_groups.compile(x, out, scales, **settings)
    assert "tma" not in compiled.asm.text("hopper")
    assert not compiled.guards
    assert any("no product" in note.reason for note in compiled.declined)
    tawa.simulate(scaled_groups, x, out, scales, **settings)
    np.testing.assert_array_equal(scales, abs(x).max(1))
    np.testing.assert_allclose(out, x / abs(x).max(1)[:, None], rtol=1e-6)


def scanned(x: np.ndarray) -> np.ndarray:
    h, rows = np.zeros_like(x[0]), []
    for row in x:
        h = np.float32(0.5) * h + row
        rows.append(h)
    return np.array(rows)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_a_loop_reads_ahead_of_what_it_stores(steps: int) -> None:
    x = np.random.default_rng(steps).standard_normal((max(steps, 1), 256)).astype(np.float32)
    out = np.zeros_like(x)
    compiled = scan_rows.compile(x, out, steps, 256, grid=(1,), BLOCK=256)
    assert [guard.condition for guard in compiled.guards] == ["disjoint(x_ptr, o_ptr)"]
    text = compiled.asm["cuda"]
    loop = text[text.index("for (int t =") :]
    assert loop.index("global_load") < loop.index("global_store")
    assert text.index("global_load", text.index("void role_main")) < text.index("for (int t =")
    tawa.simulate(scan_rows, x, out, steps, 256, grid=(1,), BLOCK=256)
    np.testing.assert_array_equal(out, scanned(x[:steps]) if steps else np.zeros_like(x))


def test_arrays_that_overlap_get_the_kernel_that_reads_in_order() -> None:
    memory = np.random.default_rng(0).standard_normal((6, 256)).astype(np.float32)
    want = memory.copy()
    for t in range(5):  # each iteration reads what the one before wrote
        want[t + 1] = sum(np.float32(0.5) ** (t - i) * want[i] for i in range(t + 1))
    scan_rows[(1,)](memory[:5], memory[1:], 5, 256, BLOCK=256)
    np.testing.assert_allclose(memory, want, rtol=1e-6)


@tawa.jit
def step(w_ptr, g_ptr, o_ptr, n, BLOCK: tl.constexpr):
    """Wide elements are written, narrow ones read and written."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, mask=at < n) - 0.5 * tl.load(g_ptr + at, mask=at < n).to(tl.float32)
    tl.store(w_ptr + at, w, mask=at < n)
    tl.store(o_ptr + at, w.to(o_ptr.dtype.element_ty), mask=at < n)


@tawa.jit
def added_rows(g_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o_ptr + at % n, tl.load(g_ptr + at).to(tl.float32))


def test_a_vector_is_of_the_widest_that_is_written() -> None:
    wide, narrow = tawa.array((4096,), "f32"), tawa.array((4096,), "bf16")
    text = step.compile(wide, narrow, narrow, 4096, grid=(4,), BLOCK=1024)
    layouts = set(re.findall(r'"1024 [^"]*"', text.asm.text("hopper")))
    assert all("r[4:(1)" in layout for layout in layouts)
    text = added_rows.compile(narrow, wide, 1024, grid=(4,), BLOCK=1024)
    layouts = set(re.findall(r'"1024 [^"]*"', text.asm.text("hopper")))
    assert all("r[4:(1)" in layout for layout in layouts)
