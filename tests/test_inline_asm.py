"""Inline PTX: what the simulator computes, how operands lie in registers, what NVRTC takes."""

import re

import numpy as np
import pytest

import tawa
import tawa.language as tl
from asm_cases import CASES, COUNT, Case, apply, arguments, check, meta
from frontend_kernels import of
from tawa.analysis.roles import partition
from tawa.errors import LaunchError, TypeMismatch
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_simulator_has_the_definition(case: Case) -> None:
    taken, made = arguments(case)
    compiled = apply[1,](*taken, *made, **meta(case))  # NVRTC takes it, too
    assert "inline_" in compiled.asm["cuda"]
    check(case, taken, made[: case.results])


@tawa.jit
def rows(x, y, B: tl.constexpr, C: tl.constexpr):
    """Inputs are broadcast; a scalar is one; results go on into a reduction."""
    at = tl.arange(0, B)[:, None] * C + tl.arange(0, C)[None, :]
    scale = tl.load(x + B * C)
    least = tl.inline_asm_elementwise(
        "min.f32 $0, $1, $2;", "=f,f,f", [tl.load(x + at), scale], tl.float32, True, 1
    )
    doubled = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [scale], tl.float32, True, 1)
    tl.store(y + tl.arange(0, B), tl.sum(least, 1) + doubled)


def test_operands_are_broadcast():
    x = np.random.default_rng(0).integers(-9, 9, 16 * 32 + 1).astype(np.float32)
    y = np.zeros(16, np.float32)
    rows[1,](x, y, B=16, C=32)
    tile, scale = x[:-1].reshape(16, 32), x[-1]
    assert np.array_equal(y, np.minimum(tile, scale).sum(1) + 2 * scale)


@tawa.jit
def clocked(x, y, n, B: tl.constexpr):
    begun = tl.extra.cuda.globaltimer()
    o = tl.arange(0, B)
    total = 0.0
    for i in range(n + tl.minimum(tl.extra.cuda.smid(), 0)):
        total += tl.sum(tl.load(x + i * B + o))
    tl.store(y + o, total + (tl.extra.cuda.globaltimer() < begun))


def test_the_clock_runs_forward_and_threads_agree_on_what_decides_a_loop():
    x, y = np.arange(192, dtype=np.float32), np.zeros(64, np.float32)
    compiled = clocked[1,](x, y, 3, B=64)
    assert np.array_equal(y, np.full(64, x.sum()))
    assert "told_in_main" in compiled.asm["cuda"]  # by the thread that asked for the number


@tawa.jit
def unknown(x, B: tl.constexpr):
    o = tl.arange(0, B)
    made = tl.inline_asm_elementwise(
        "activemask.b32 $0; add.u32 $0, $0, $1;", "=r,r", [tl.load(x + o)], tl.int32, True, 1
    )
    tl.store(x + o, made)


def test_what_the_simulator_does_not_know_it_names_and_a_gpu_still_builds():
    x = np.zeros(64, np.int32)
    assert "activemask" in unknown.compile(x, B=64).asm["cuda"]
    with pytest.raises(LaunchError, match=r"activemask\.b32") as caught:
        unknown[1,](x, B=64)
    assert "tl.inline_asm_elementwise(" in str(caught.value)


@tawa.jit
def widened(x, out, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r, r", [tl.load(x + o)], tl.int64, True, 1)
    tl.store(out + o, v)
    first = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r, r", [tl.load(x)], tl.int64, True, 1)
    tl.store(out + B, first)


def test_a_result_may_be_wider_than_its_register():
    """Barriers between GPUs give their result the type of an address, in 32 bits."""
    x, out = np.arange(-8, 56, dtype=np.int32), np.zeros(65, np.int64)
    widened[1,](x, out, B=64)
    np.testing.assert_array_equal(out, [*x.view(np.uint32), x.view(np.uint32)[0]])
    assert "(u64)made" in widened.compile(x, out, B=64).asm["cuda"]


@pytest.mark.parametrize(
    ("asm", "constraints", "inputs", "pack", "message"),
    [
        ("add.u32 $0, $1, $3;", "=r,r,r", 2, 1, "$3 names no register: the constraints list 3"),
        ("mov.b32 $0, $1;", "=r,r", 2, 1, "the constraints list 1 inputs, and 2 registers"),
        ("mov.b32 $0, $1;", "=r", 1, 1, "the constraints list 0 inputs, and 1 registers"),
        ("mov.b32 $0, $1;", "=x,r", 1, 1, "the constraint 'x' is not known"),
        (
            "mov.b32 $0, $1;",
            "=h,r",
            1,
            1,
            "a register of class 'h' has 16 bits, and",
        ),
        ("mov.b32 $0, $1;", "=r,3", 1, 1, "the constraint '3' names no result"),
        ("mov.b32 $0, $1;", "=r,r", 1, 3, "pack is 3, and a power of two is needed"),
        ("mov.b32 $0, $1; // \xe9\n\xe9", "=r,r", 1, 1, "PTX is written in ASCII"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_stands(asm, constraints, inputs, pack, message):
    arrays = [tawa.array((COUNT,), "i32")] * 5
    options = {"ASM": asm, "CONSTRAINTS": constraints, "KIND": tl.int32, "RESULTS": 1}
    with pytest.raises(TypeMismatch, match=re.escape(message)) as caught:
        apply.compile(*arrays, INPUTS=inputs, PACK=pack, B=COUNT, **options)
    assert "tl.inline_asm_elementwise(" in str(caught.value)


def wrapped(x, _semantic=None):
    """How libraries wrap it: Triton's compiler hands `_semantic` to such functions."""
    return tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1,
        _semantic=_semantic,
    )  # fmt: skip


wrapped = tawa.jit(wrapped)


@tawa.jit
def gelu(x, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(x + o)
    tl.store(x + o, 0.5 * v * (1 + wrapped(v)))


def test_wrappers_of_libraries():
    x = np.linspace(-3, 3, 64).astype(np.float32)
    expected = 0.5 * x * (1 + np.tanh(x))
    gelu[1,](x, B=64)
    assert np.allclose(x, expected, atol=2**-10)


@tawa.jit
def product(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    low = tl.inline_asm_elementwise(
        "cvt.rn.relu.f16x2.f32 $0, $2, $1;", "=r,f,f", [acc], tl.float16, True, 2
    )
    c_desc.store([row, column], low)


def test_a_specialized_kernel_ends_in_inline_ptx():
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((128, 128)).astype(np.float16), draw((128, 128)).astype(np.float16)
    c = np.empty((128, 128), np.float16)
    desc = tawa.TensorDescriptor.from_tensor
    arrays = desc(a, [128, 64]), desc(b, [64, 128]), desc(c, [128, 128])
    compiled = product[1, 1](*arrays, 128, BM=128, BN=128, BK=64)
    assert compiled.plan.specialized
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32), 0)
    assert np.allclose(c, expected, atol=2**-5, rtol=2**-9)


@pytest.mark.parametrize(
    ("asm", "kept"),
    [
        ("bar.sync 0; mov.u32 $0, 0;", False),
        ("barrier.cta.sync 0; mov.u32 $0, 0;", False),
        ("mov.u32 $0, %tid.x;", False),
        ("mov.u32 $0, %ntid.x;", False),
        ("{.reg .pred p; setp.eq.u32 p, 0, 1; @p exit; mov.u32 $0, 0;}", False),
        ("setmaxnreg.dec.sync.aligned.u32 40; mov.u32 $0, 0;", False),
        ("bar.warp.sync 0xffffffff; mov.u32 $0, 0;", True),
        ("mov.u32 $0, %laneid;", True),
    ],
)
def test_ptx_of_the_whole_block_leaves_no_warps_to_load(asm, kept):
    """A barrier of all threads would wait for warps that only load, for ever."""

    def kernel(a, b, c, K, ASM: tl.constexpr):
        acc = tl.zeros((64, 64), tl.float32)
        for k in range(0, K, 64):
            acc = tl.dot(a.load([0, k]), b.load([k, 0]), acc)
        seen = tl.inline_asm_elementwise(ASM, "=r", [], tl.int32, False, 1)
        tl.store(c, tl.sum(acc) + seen)

    tile = DescriptorArg("f16", (64, 64))
    signature = of(a=tile, b=tile, c="f32*", K="i32") | {"ASM": ConstantArg(asm)}
    found = partition(build(kernel, signature, {}))
    assert bool(found.payloads) == kept
    assert kept or "waits for all threads of the block" in found.declined[0][1]
