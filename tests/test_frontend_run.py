"""Compiled kernels give NumPy's results in the sequential simulator."""

import ml_dtypes
import numpy as np
import pytest

import frontend_kernels as kernels
import tawa.language as tl
from frontend_kernels import jit, of
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.tile import run_tile

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


def whole(rng, shape, dtype="f16"):
    """Small integers: every order of sums gives the same bits."""
    return rng.integers(-3, 4, shape).astype(DTYPES[dtype])


def desc(array, block):
    strides = tuple(step // array.itemsize for step in array.strides)
    return HostDescriptor(array, array.shape, strides, block)


def host(signature, **arrays):
    """Bind arrays to a signature's descriptor arguments."""
    blocks = {name: entry.block_shape for name, entry in signature.items() if name in arrays}
    return {name: desc(array, blocks[name]) for name, array in arrays.items()}


def run(function, signature, grid=(1, 1, 1), options=None, **arguments):
    kernel = build(function, signature, options or {})
    run_tile(kernel, (*grid, 1, 1)[:3], arguments)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def close(found, expected):
    np.testing.assert_allclose(
        np.asarray(found, np.float64), np.asarray(expected, np.float64), rtol=2e-2, atol=2e-2
    )


def product(a, b):
    return a.astype(np.float32) @ b.astype(np.float32)


def test_host_descriptors(rng):
    a, b = whole(rng, (40, 80), "bf16"), whole(rng, (80, 24), "bf16")
    c = np.zeros((40, 24), ml_dtypes.bfloat16)
    arguments = host(kernels.HOST_DESCRIPTORS, a_desc=a, b_desc=b, c_desc=c)
    run(kernels.host_descriptors, kernels.HOST_DESCRIPTORS, (3, 2), K=80, **arguments)
    np.testing.assert_array_equal(c, product(a, b).astype(c.dtype))


def test_made_descriptors(rng):
    a, b = whole(rng, (33, 48)), whole(rng, (20, 48))
    c = np.zeros((33, 20), np.float16)
    run(
        kernels.made_descriptors,
        kernels.MADE_DESCRIPTORS,
        (3, 2),
        a_ptr=a,
        b_ptr=b,
        c_ptr=c,
        M=33,
        N=20,
        K=48,
    )
    np.testing.assert_array_equal(c, product(a, b.T).astype(c.dtype))


@pytest.mark.parametrize("activation", ["leaky", ""])
def test_pointers(rng, activation):
    a, b = whole(rng, (40, 37)), whole(rng, (37, 50))
    c = np.full((40, 50), np.nan, np.float16)
    signature = kernels.POINTERS | of(ACTIVATION=f"={activation}")
    run(
        kernels.pointers,
        signature,
        (12,),
        a_ptr=a,
        b_ptr=b,
        c_ptr=c,
        M=40,
        N=50,
        K=37,
        stride_am=37,
        stride_bk=50,
        stride_cm=50,
    )
    expected = product(a, b)
    if activation:
        expected = np.where(expected >= 0, expected, np.float32(0.01) * expected)
    np.testing.assert_array_equal(c, expected.astype(np.float16))


@pytest.mark.parametrize("flatten", [True, False])
def test_persistent(rng, flatten):
    a, b = whole(rng, (48, 64), "bf16"), whole(rng, (64, 32), "bf16")
    c = np.zeros((48, 32), ml_dtypes.bfloat16)
    signature = kernels.PERSISTENT | of(FLATTEN=flatten)
    arguments = host(signature, a_desc=a, b_desc=b, c_desc=c)
    run(kernels.persistent, signature, (3,), M=48, N=32, K=64, **arguments)
    np.testing.assert_array_equal(c, product(a, b).astype(c.dtype))


def test_batched(rng):
    a, b = whole(rng, (2, 16, 32)), whole(rng, (2, 32, 16))
    c = np.zeros((2, 16, 16), np.float16)
    arguments = host(kernels.BATCHED, a_desc=a, b_desc=b, c_desc=c)
    run(kernels.batched, kernels.BATCHED, (1, 1, 2), K=32, **arguments)
    np.testing.assert_array_equal(c, product(a, b).astype(c.dtype))


def test_epilogue(rng):
    a, b = whole(rng, (16, 32), "bf16"), whole(rng, (32, 16), "bf16")
    bias, c = rng.normal(size=16).astype(np.float32), np.zeros((16, 16), ml_dtypes.bfloat16)
    arguments = host(kernels.EPILOGUE, a_desc=a, b_desc=b, c_desc=c)
    run(kernels.epilogue, kernels.EPILOGUE, bias_ptr=bias, **arguments)
    x = product(a, b) + bias
    close(c, x / (1 + np.exp(-x)))


def test_attention(rng):
    q = rng.normal(size=(32, 16)).astype(np.float16)
    k, v = (rng.normal(size=(64, 16)).astype(np.float16) for _ in range(2))
    o = np.zeros((32, 16), np.float16)
    arguments = host(kernels.ATTENTION, q_desc=q, k_desc=k, v_desc=v, o_desc=o)
    run(kernels.attention, kernels.ATTENTION, (2,), length=64, scale=0.25, **arguments)
    scores = product(q, k.T) * 0.25
    weights = np.exp(scores - scores.max(1, keepdims=True))
    close(o, weights / weights.sum(1, keepdims=True) @ v.astype(np.float32))


def test_block_pointers(rng):
    def kernel(x_ptr, out_ptr, rows, columns, B: tl.constexpr):
        source = tl.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (0, 0), (B, B), (1, 0))
        target = tl.make_block_ptr(out_ptr, (rows, columns), (columns, 1), (0, 0), (B, B), (1, 0))
        for _ in range(0, columns, B):
            x = tl.load(source, boundary_check=(0, 1), padding_option="zero")
            tl.store(target, x + 1, boundary_check=(0, 1))
            source = tl.advance(source, (0, B))
            target = tl.advance(target, [0, B])

    x, out = whole(rng, (5, 21), "f32"), np.zeros((5, 21), np.float32)
    signature = of(x_ptr="f32*", out_ptr="f32*", rows="i32", columns="i32", B=8)
    run(kernel, signature, x_ptr=x, out_ptr=out, rows=5, columns=21)
    np.testing.assert_array_equal(out, x + 1)


def test_early_return_and_while():
    from frontend_shapes import CASES

    function, signature = CASES["early_return"]
    x = np.arange(6, dtype=np.float32)
    run(function, signature, (6,), x_ptr=x, n=5, limit=2.0)
    np.testing.assert_array_equal(x, [0, 0, 1, 2, 3, 5])
    function, signature = CASES["while_loop"]
    x = np.array([1, 2, 3, -1, 9], np.float32)
    run(function, signature, x_ptr=x, n=5)
    np.testing.assert_array_equal(x, [6, 5, 3, -1, 9])


def test_backward_loop_and_static_range():
    def kernel(out_ptr, n, WAYS: tl.constexpr):
        place = 0
        for i in range(n, 0, -2):
            tl.store(out_ptr + place, i)
            place += 1
        for way in tl.static_range(len(WAYS)):
            if WAYS[way] == "double":
                place = place * 2
            elif WAYS[way] == "add":
                place += 100
        tl.store(out_ptr + 7, place)

    out = np.zeros(8, np.int32)
    signature = of(out_ptr="i32*", n="i32", WAYS=("double", "add", "none"))
    run(kernel, signature, out_ptr=out, n=7)
    np.testing.assert_array_equal(out, [7, 5, 3, 1, 0, 0, 0, 108])


@jit
def first_of(a, b):
    if a > b:
        return a, 1
    return b, 0


def test_helper_with_two_returns_and_short_circuit():
    def kernel(x_ptr, n):
        larger, which = first_of(tl.load(x_ptr), tl.load(x_ptr + 1))
        tl.store(x_ptr + 2, larger)
        tl.store(x_ptr + 3, which)
        # Out of bounds unless the left side guards the load.
        if n < 4 and tl.load(x_ptr + n) > 0:
            tl.store(x_ptr, 77)
        if not (0 <= n < 4) or tl.load(x_ptr + n) > 0:
            tl.store(x_ptr + 1, 88)

    x = np.array([3, 5, 0, 9], np.int32)
    run(kernel, of(x_ptr="i32*", n="i32"), x_ptr=x, n=1000)
    np.testing.assert_array_equal(x, [3, 88, 5, 0])


def test_reductions(rng):
    @jit
    def smaller(a, b):
        return tl.where(a < b, a, b)

    def kernel(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
        rows, columns = tl.arange(0, R), tl.arange(0, C)
        x = tl.load(x_ptr + rows[:, None] * C + columns[None, :])
        tl.store(out_ptr + rows, tl.sum(x, 1))
        tl.store(out_ptr + R + rows, x.max(axis=1))
        tl.store(out_ptr + 2 * R + rows, tl.reduce(x, 1, smaller))
        tl.store(out_ptr + 3 * R + rows, tl.argmax(x, 1))
        value, index = tl.min(x, 1, return_indices=True)
        tl.store(out_ptr + 4 * R + rows, value * 100 + index)
        tl.store(out_ptr + 5 * R + rows, tl.cumsum(tl.sum(x, axis=1, keep_dims=True).reshape(R)))
        tl.store(out_ptr + 6 * R + rows, tl.sum(x))
        tl.store(out_ptr + 7 * R + rows, tl.xor_sum(x.to(tl.int32), 1))

    x = whole(rng, (8, 16), "f32")
    out = np.zeros((8, 8), np.float32)
    run(kernel, of(x_ptr="f32*", out_ptr="f32*", R=8, C=16), x_ptr=x, out_ptr=out)
    bits = np.bitwise_xor.reduce(x.astype(np.int32), 1)
    expected = [
        x.sum(1),
        x.max(1),
        x.min(1),
        x.argmax(1),
        x.min(1) * 100 + x.argmin(1),
        np.cumsum(x.sum(1)),
        np.full(8, x.sum()),
        bits,
    ]
    np.testing.assert_array_equal(out, np.stack(expected))


def test_softmax_and_elements(rng):
    def kernel(x_ptr, out_ptr, C: tl.constexpr):
        at = tl.arange(0, C)
        x = tl.load(x_ptr + at)
        tl.store(out_ptr + at, tl.softmax(x))
        tl.store(out_ptr + C + at, tl.sigmoid(x))
        tl.store(out_ptr + 2 * C + at, tl.clamp(x, -0.5, 0.5))
        tl.store(out_ptr + 3 * C + at, tl.sqrt(tl.abs(x)) + tl.exp(x) * tl.erf(x))
        tl.store(out_ptr + 4 * C + at, tl.math.fma(x, x, 1.0) / 3)
        tl.store(out_ptr + 5 * C + at, tl.extra.libdevice.tanh(x) + tl.cos(x) - tl.floor(x))

    x, out = rng.normal(size=16).astype(np.float32), np.zeros((6, 16), np.float32)
    run(kernel, of(x_ptr="f32*", out_ptr="f32*", C=16), x_ptr=x, out_ptr=out)
    e = np.exp(x - x.max())
    erf = np.vectorize(__import__("math").erf)
    expected = [
        e / e.sum(),
        1 / (1 + np.exp(-x)),
        x.clip(-0.5, 0.5),
        np.sqrt(np.abs(x)) + np.exp(x) * erf(x),
        (x * x + 1) / 3,
        np.tanh(x) + np.cos(x) - np.floor(x),
    ]
    np.testing.assert_allclose(out, np.stack(expected), rtol=1e-5, atol=1e-6)


def test_shapes(rng):
    def kernel(x_ptr, out_ptr):
        at = tl.arange(0, 16)
        x = tl.load(x_ptr + at)
        pairs = x.reshape(2, 8).permute(1, 0)
        low, high = pairs.split()
        tl.store(out_ptr + at, tl.interleave(low, high))
        tl.store(out_ptr + 16 + at, tl.cat(high, low))
        tl.store(out_ptr + 32 + at, tl.join(low, high).trans().ravel())
        y = tl.broadcast_to(x[None, :], (4, 16))
        tl.store(out_ptr + 48 + at, y.sum(0) * tl.zeros_like(x) + tl.full((16,), 3, tl.float32))

    x, out = np.arange(16, dtype=np.float32), np.zeros((4, 16), np.float32)
    run(kernel, of(x_ptr="f32*", out_ptr="f32*"), x_ptr=x, out_ptr=out)
    halves = x.reshape(2, 8)
    expected = [halves.T.ravel(), np.roll(x, 8), x, np.full(16, 3)]
    np.testing.assert_array_equal(out, np.stack(expected))


def test_swizzle2d_visits_every_tile_once():
    def kernel(out_ptr, rows, columns):
        i, j = tl.program_id(0) // columns, tl.program_id(0) % columns
        row, column = tl.swizzle2d(i, j, rows, columns, 2)
        tl.store(out_ptr + row * columns + column, tl.program_id(0))

    out = np.full(15, -1, np.int32)
    signature = of(out_ptr="i32*", rows="i32", columns="i32")
    run(kernel, signature, (15,), out_ptr=out, rows=5, columns=3)
    assert sorted(out) == list(range(15))
    assert list(out[:6]) == [0, 2, 4, 1, 3, 5]


def test_atomics():
    def kernel(x_ptr):
        at = tl.arange(0, 4)
        tl.atomic_add(x_ptr + at, 2, mask=at < 3)
        tl.atomic_max(x_ptr + at, 3)
        old = tl.atomic_cas(x_ptr + 4, 0, 7)
        tl.atomic_xchg(x_ptr + 5, old + 1, sem="acquire", scope="cta")

    x = np.zeros(6, np.int32)
    run(kernel, of(x_ptr="i32*"), (2,), x_ptr=x)
    np.testing.assert_array_equal(x, [5, 5, 5, 3, 7, 8])


def test_descriptor_shape_strides_and_atomics():
    def kernel(x_desc, out_ptr):
        tl.store(out_ptr, x_desc.shape[0] + x_desc.shape[1])
        tl.store(out_ptr + 1, x_desc.strides[0])
        x_desc.atomic_add([0, 0], tl.full(x_desc.block_shape, 1, tl.float32))

    x, out = np.zeros((3, 8), np.float32), np.zeros(2, np.int64)
    signature = of(x_desc=DescriptorArg("f32", (4, 8)), out_ptr="i64*")
    run(kernel, signature, x_desc=desc(x, (4, 8)), out_ptr=out)
    assert list(out) == [11, 8]
    assert x.sum() == 24


def test_compile_time_python():
    LIMIT = tl.constexpr(3)

    @tl.constexpr_function
    def sizes(n):
        return [n * i for i in range(1, 4)]

    def kernel(out_ptr, SCALE: tl.constexpr = 2, NAME: tl.constexpr = None):
        total: tl.constexpr = sum([s for s in sizes(SCALE) if s > SCALE])
        tl.static_assert(total == 10, f"total is {total:>3}")
        tl.store(out_ptr, total + LIMIT)
        if NAME is None and isinstance(SCALE, int) and hasattr(tl.float16, "name"):
            tl.store(out_ptr + 1, max(SCALE, 5) - min(LIMIT, 2))
        if tl.float16.primitive_bitwidth == 16 and out_ptr.dtype.element_ty == tl.int32:
            tl.store(out_ptr + 2, -7 // 2)
            tl.store(out_ptr + 3, tl.program_id(0) - 7 // 2)

    out = np.zeros(4, np.int32)
    run(kernel, of(out_ptr="i32*"), out_ptr=out)
    np.testing.assert_array_equal(out, [13, 3, -4, -3])


def test_type_promotion_at_run_time():
    """Integer division truncates; a bf16 block keeps its type against a Python number."""

    def kernel(x_ptr, out_ptr, n):
        tl.store(out_ptr, (n - 7) // 2)
        tl.store(out_ptr + 1, (n - 7) % 2)
        x = tl.load(x_ptr + tl.arange(0, 8))
        tl.static_assert((x * 2).dtype == tl.bfloat16)
        tl.static_assert((x * 2.5).dtype == tl.bfloat16)
        tl.static_assert((x / 2).dtype == tl.float32)
        tl.static_assert((x * n).dtype == tl.float32)
        tl.static_assert((x > 1).dtype == tl.int1)
        tl.static_assert((n * 1.0).dtype == tl.float32)
        tl.static_assert((n + n.to(tl.int64)).dtype == tl.int64)
        tl.static_assert((n + n.to(tl.uint32)).dtype == tl.uint32)
        tl.static_assert((n / n).dtype == tl.float32)
        tl.static_assert(n.dtype.is_int() and not x.type.scalar.is_fp8())
        tl.store(out_ptr + 2, tl.max(x, 0).to(tl.int32))

    x, out = np.arange(8).astype(ml_dtypes.bfloat16), np.zeros(3, np.int32)
    run(kernel, of(x_ptr="bf16*", out_ptr="i32*", n="i32"), x_ptr=x, out_ptr=out, n=2)
    np.testing.assert_array_equal(out, [-2, -1, 7])


def test_loops_keep_tuples_and_descriptors():
    def kernel(a_desc, b_desc, out_ptr, n):
        pair = (0, 1)
        current = a_desc
        for i in range(n):
            pair = (pair[1], pair[0] + pair[1])
            current = b_desc if i % 2 == 0 else a_desc
        tl.store(out_ptr, pair[0])
        tl.store(out_ptr + 1, tl.max(current.load([0, 0]).to(tl.int32)))

    a, b = np.full((8, 8), 3, np.float16), np.full((8, 8), 5, np.float16)
    out = np.zeros(2, np.int32)
    tile = DescriptorArg("f16", (8, 8))
    signature = of(a_desc=tile, b_desc=tile, out_ptr="i32*", n="i32")
    run(kernel, signature, a_desc=desc(a, (8, 8)), b_desc=desc(b, (8, 8)), out_ptr=out, n=7)
    assert list(out) == [13, 5]


def test_pointers_from_memory_and_nan():
    def kernel(table_ptr, x_ptr, out_ptr):
        a_ptr = (x_ptr.to(tl.int64) + 4).to(tl.pointer_type(tl.float32))
        x = tl.load(a_ptr + tl.arange(0, 2))
        tl.store(out_ptr + tl.arange(0, 2), tl.maximum(x, 1.0))
        kept = tl.maximum(x, 1.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(out_ptr + 2 + tl.arange(0, 2), kept)
        tl.store(table_ptr, x_ptr.dtype.element_ty.primitive_bitwidth)

    x, out = np.array([7, np.nan, 5], np.float32), np.zeros(4, np.float32)
    table = np.zeros(1, np.int64)
    signature = of(table_ptr="i64*", x_ptr="f32*", out_ptr="f32*")
    run(kernel, signature, table_ptr=table, x_ptr=x, out_ptr=out)
    np.testing.assert_array_equal(out, [1, 5, np.nan, 5])
    assert table[0] == 32
