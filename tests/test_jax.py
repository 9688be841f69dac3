"""`tawa.jax`: kernels inside `jax.jit`, in the simulator and by the handler of a driver that is a
stub: XLA calls the machine code, which calls us, and we run the simulator on XLA's memory.
"""

import ctypes
import dataclasses
import struct
from types import SimpleNamespace

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError, TypeMismatch

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import tawa.jax as tj  # noqa: E402
from attention_tiles import small_tiles  # noqa: E402
from covering import is_short  # noqa: E402
from tawa.jax import launches  # noqa: E402
from tawa.jax.handler import Addresses, Handler, version_of, words  # noqa: E402
from tawa.runtime import dispatch  # noqa: E402
from tawa.runtime.image import (  # noqa: E402
    COUNTERS,
    Distinct,
    Standing,
    Sum,
    complete,
    make_image,
)
from tawa.target import H200  # noqa: E402


def long(values):
    return pytest.param(*values, marks=pytest.mark.long)


@tawa.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)


@tawa.jit
def scale(x, by, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * by, mask=at < n)


@tawa.jit
def product_into(a, b, K, out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(a.load([m, k]), b.load([k, n]), total)
    rows, columns = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
    tl.store(out + rows[:, None] * 192 + columns[None, :], total.to(tl.float16))


def over(meta):
    return (tawa.cdiv(meta["n"], meta["BLOCK"]),)


def numbers(*shape, seed=0, dtype=np.float32):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


# --- in the simulator ---------------------------------------------------------------------------


def test_a_kernel_inside_jit_and_outside():
    x, y = numbers(300), numbers(300, seed=1)
    plus = tj.call(add, grid=over, out={"out": x}, BLOCK=128)
    np.testing.assert_array_equal(plus(x, y, 300), x + y)
    found = jax.jit(lambda x, y: plus(x, plus(x, y, n=300), n=300) * 2)(x, y)
    np.testing.assert_allclose(found, (2 * x + y) * 2, rtol=1e-6)
    with jax.disable_jit():
        np.testing.assert_array_equal(plus(x, y, 300), x + y)


def test_what_a_kernel_changes_is_returned_and_the_array_stays():
    x = numbers(200)
    before = np.array(x)
    doubled = tj.call(scale, grid=over, BLOCK=128)
    np.testing.assert_array_equal(jax.jit(lambda x: doubled(x, 2.0, 200))(x), 2 * before)
    np.testing.assert_array_equal(x, before)
    # 2 and 2.0 are equal and make different kernels: the integer may not find the float's.
    whole = jnp.arange(200, dtype=jnp.int32)
    np.testing.assert_array_equal(doubled(whole, 2, 200), 2 * np.arange(200))


def test_what_it_does_not_do_is_refused_by_name():
    x = numbers(64)
    plus = tj.call(add, grid=over, out={"out": x}, BLOCK=64)
    with pytest.raises(ArgumentError, match="no gradient of add"):
        jax.grad(lambda x: plus(x, x, 64).sum())(x)
    with pytest.raises(ArgumentError, match=r"no jax\.vmap of add"):
        jax.vmap(lambda x: plus(x, x, 64))(x[None])
    with pytest.raises(ArgumentError, match=r"jax\.export of a call of add"):
        jax.export.export(jax.jit(lambda x: plus(x, x, 64)))(x)
    with pytest.raises(ArgumentError, match="out is not a dictionary"):
        tj.call(add, grid=over, out=x)
    with pytest.raises(ArgumentError, match="out names sum"):
        tj.call(add, grid=over, out={"sum": x})
    with pytest.raises(ArgumentError, match="add does not store to y"):
        tj.call(add, grid=over, out={"y": x}, BLOCK=64)(x=x, out=x, n=64)
    with pytest.raises(ArgumentError, match="got 4 arguments"):
        plus(x, x, 64, 64)
    with pytest.raises(TypeMismatch) as caught:  # a number that jit traces is an array
        jax.jit(lambda x, n: tj.call(add, grid=(1,), out={"out": x}, BLOCK=64)(x, x, n))(x, 64)
    assert caught.value.__notes__[0].startswith("n: arrays of no dimension are pointers")


# --- by the handler -----------------------------------------------------------------------------

STREAM = 0x57AE8
FUNCTION = 0xF00D


class Stub:
    """A driver whose launches run in the simulator, on the memory that they are handed."""

    def __init__(self):
        self.kernels, self.launches, self.maps, self.code, self.map_code = [], [], {}, 0, 0
        self._launch = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self.launched)
        kinds = ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, *[ctypes.c_void_p] * 5
        self._encode = ctypes.CFUNCTYPE(ctypes.c_int, *kinds, *[ctypes.c_uint] * 4)(self.encoded)
        kinds = (*kinds, *[ctypes.c_uint] * 2, ctypes.c_void_p, *[ctypes.c_uint] * 4)
        self._encode_im2col = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(self.encoded_windows)
        self.launch_ex, self.encode_tiled = self._launch, self._encode
        self.encode_im2col = self._encode_im2col
        self.recent = SimpleNamespace(notes=[])

    def encoded(self, at, dtype, rank, address, sizes, strides, box, steps, *rest):
        assert at % 64 == 0
        words = lambda place, kind, count: list((kind * count).from_address(place))  # noqa: E731
        self.maps[bytes(struct.pack("<Q", len(self.maps) + 1))] = SimpleNamespace(
            dtype=dtype,
            address=address,
            sizes=words(sizes, ctypes.c_uint64, rank),
            strides=words(strides, ctypes.c_uint64, rank - 1),
            box=words(box, ctypes.c_uint32, rank),
            steps=words(steps, ctypes.c_uint32, rank),
            rest=rest,
        )
        ctypes.memmove(at, struct.pack("<Q", len(self.maps)) * 16, 128)
        return self.map_code

    def encoded_windows(self, at, dtype, rank, address, sizes, strides, low, high, *rest):
        channels, pixels, steps, *rest = rest
        corners = (ctypes.c_int * (rank - 2)).from_address
        count = len(self.maps)
        code = self.encoded(at, dtype, rank, address, sizes, strides, steps, steps, *rest)
        (made,) = list(self.maps.values())[count:]
        made.window = [*corners(low)], [*corners(high)], channels, pixels
        return code

    def launched(self, config, function, pointers, extra):
        words = struct.unpack("<7I4xQQI4x", ctypes.string_at(config, 56))
        kernel = self.kernels[function - FUNCTION]
        places = struct.unpack(
            f"<{len(kernel.parameters)}Q", ctypes.string_at(pointers, 8 * len(kernel.parameters))
        )
        held = [ctypes.string_at(place, 8) for place in places]
        found = SimpleNamespace(
            kernel=kernel,
            grid=words[:3],
            threads=words[3],
            shared=words[6],
            stream=words[7],
            attributes=ctypes.string_at(words[8], 64 * words[9]) if words[9] else b"",
            held=held,
            maps=[self.maps.get(each) for each in held],
        )
        self.launches.append(found)
        return self.code

    def enter(self, device):
        pass

    def leave(self):
        pass

    def describe(self, code):
        return str(code)

    def target(self, device):
        return H200

    def current_device(self):
        return 0


@pytest.fixture
def stub(monkeypatch):
    """Register the handler for the CPU: all but the stream is what XLA hands it."""
    made = Stub()

    class Loaded:
        def __init__(self, driver, cubin, entry, shape):
            driver.kernels.append(SimpleNamespace(entry=entry, shape=shape, cubin=cubin))
            self.function = FUNCTION + len(driver.kernels) - 1

        def prepare(self, device):
            pass

        def resident_blocks(self, device):
            return 5

    monkeypatch.setattr(dispatch, "connect", lambda: made)
    monkeypatch.setattr(launches, "connect", lambda: made)
    monkeypatch.setattr(launches, "LoadedKernel", Loaded)
    kernels = launches._Kernels()
    load = kernels.load

    def loaded(kernel, ordinals):
        found = load(kernel, ordinals)
        made.kernels[found.kernel.function - FUNCTION] = kernel
        return found

    monkeypatch.setattr(kernels, "load", loaded)
    monkeypatch.setattr(launches, "_KERNELS", kernels)
    addresses = [
        ctypes.cast(f, ctypes.c_void_p).value
        for f in (made._launch, made._encode, made._encode_im2col)
    ]
    header = launches.Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"
    handler = Handler(Addresses(*addresses), version_of(header))
    monkeypatch.setattr(launches, "handler", lambda: handler)
    code = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(handler.address)
    made.error = None

    def get_stream(asked):
        ctypes.c_uint64.from_address(asked + 24).value = made.stream
        return None

    stream = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(get_stream)
    made.stream = STREAM

    def handle(frame):
        size = ctypes.c_uint64.from_address(frame).value
        copied = ctypes.create_string_buffer(ctypes.string_at(frame, size), size)
        api = ctypes.c_uint64.from_address(frame + 16).value
        size = ctypes.c_uint64.from_address(api).value
        changed = ctypes.create_string_buffer(ctypes.string_at(api, size), size)
        struct.pack_into("<Q", changed, 80, ctypes.cast(stream, ctypes.c_void_p).value)
        struct.pack_into("<Q", copied, 16, ctypes.addressof(changed))
        return code(ctypes.addressof(copied))

    made.keep = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(handle), stream, handler
    target = f"tawa_launch_{id(made)}"
    capsule = jax.ffi.pycapsule(ctypes.cast(made.keep[0], ctypes.c_void_p))
    jax.ffi.register_ffi_target(target, capsule, platform="cpu")
    monkeypatch.setattr(launches, "TARGET", target)
    monkeypatch.setattr(launches, "_ordinals", lambda: [0])
    _KEPT.append(made)  # XLA knows its address for the life of the process
    dispatch.gpu_target.cache_clear()
    return made


_KEPT = []


def invocation_of(function, *arguments):
    """The launch that a call of `function` is, and its arrays."""
    jaxpr = jax.make_jaxpr(function)(*arguments)
    (equation,) = [each for each in jaxpr.eqns if each.primitive is launches.launch_p]
    return equation.params["invocation"]


def test_the_handler_hands_the_driver_what_a_launch_is(stub):
    x, y = numbers(300), numbers(300, seed=1)
    plus = tj.call(add, grid=over, out={"out": x}, BLOCK=128)
    asked = invocation_of(lambda x, y: plus(x, y, 300), x, y)
    launched = jax.jit(lambda x, y: launches.launch(x, y, invocation=asked))
    (out,) = launched(x, y)
    (one,) = stub.launches
    assert one.grid == (3, 1, 1)
    assert one.stream == STREAM
    assert (one.threads, one.shared) == (one.kernel.launch.threads, one.kernel.launch.shared)
    names = [getattr(p, "name", "") or p.expression for p in one.kernel.parameters]
    named = dict(zip(names, one.held))
    address = lambda each: struct.pack("<Q", each.unsafe_buffer_pointer())  # noqa: E731
    assert [named[each] for each in ("x", "y", "out")] == [address(each) for each in (x, y, out)]
    assert struct.unpack("<i4x", named["n"]) == (300,)
    launched(y, x)  # other addresses
    assert stub.launches[1].held[0] == address(y)


def test_what_is_changed_in_place_is_the_result(stub):
    x = numbers(200)
    doubled = tj.call(scale, grid=over, BLOCK=128)
    asked = invocation_of(lambda x: doubled(x, 2.0, 200), x)
    assert asked.changed == (0,)
    donated = jax.jit(lambda x: launches.launch(x, invocation=asked), donate_argnums=0)
    (out,) = donated(x)
    assert struct.pack("<Q", out.unsafe_buffer_pointer()) in stub.launches[0].held
    y = numbers(200)
    (kept,) = jax.jit(lambda y: launches.launch(y, invocation=asked))(y)
    assert struct.pack("<Q", kept.unsafe_buffer_pointer()) in stub.launches[1].held
    assert struct.pack("<Q", y.unsafe_buffer_pointer()) not in stub.launches[1].held


def test_a_grid_without_programs_launches_nothing(stub):
    x = numbers(200)
    plus = tj.call(add, grid=(0,), out={"out": x}, BLOCK=128)
    asked = invocation_of(lambda x: plus(x, x, 200), x)
    (out,) = jax.jit(lambda x: launches.launch(x, invocation=asked))(x)
    assert not stub.launches
    assert not out.any()


def test_tensor_maps_are_of_the_arrays_of_the_launch(stub):
    a, b = numbers(128, 64, dtype=np.float16), numbers(64, 192, dtype=np.float16, seed=1)
    sizes = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}

    def times(a, b):
        made = jax.ShapeDtypeStruct((128, 192), jnp.float16)
        take = tawa.TensorDescriptor
        call = tj.call(product_into, grid=(2, 3), out={"out": made}, **sizes)
        return call(take(a, a.shape, (64, 1), [64, 32]), take(b, b.shape, (192, 1), [32, 64]), 64)

    asked = invocation_of(times, a, b)
    (out,) = jax.jit(lambda a, b: launches.launch(a, b, invocation=asked))(a, b)
    (one,) = stub.launches
    by_address = {each.address: each for each in one.maps if each}
    assert set(by_address) >= {a.unsafe_buffer_pointer(), b.unsafe_buffer_pointer()}
    held = by_address[b.unsafe_buffer_pointer()]
    assert (held.sizes, held.strides, held.steps) == ([192, 64], [192 * 2], [1, 1])
    assert (held.dtype, held.box[1], 192 % held.box[0]) == (6, 32, 0)
    assert out.shape == (128, 192)
    found = jax.jit(times)(a, b)  # the same in the simulator
    expected = np.asarray(a, np.float32) @ np.asarray(b, np.float32)
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, rtol=1e-2, atol=2e-2)


def test_maps_of_windows_are_encoded_too(stub):
    """Of a convolution whose windows TMA counts: its stride differs by axis."""
    x = numbers(2 * 9 * 11 * 64, dtype=np.float16).reshape(2, 9, 11, 64)
    w = numbers(64 * 9 * 64, dtype=np.float16).reshape(64, 3, 3, 64)
    convolve = lambda x, w: tj.conv(x, w, stride=(2, 3), padding=((1, 1), (0, 2)))  # noqa: E731
    inside = jax.make_jaxpr(convolve)(x, w)
    while inside.eqns[0].primitive is not launches.launch_p:
        params = inside.eqns[0].params
        inside = params["call_jaxpr" if "call_jaxpr" in params else "call"]
    asked = inside.eqns[0].params["invocation"]
    jax.jit(lambda x, w: launches.launch(x, w, invocation=asked))(x, w)
    (one,) = stub.launches
    pairs = zip(one.kernel.parameters, one.maps, strict=True)
    ((parameter, made),) = [(p, m) for p, m in pairs if getattr(p, "window", None)]
    assert made.address == x.unsafe_buffer_pointer()
    assert made.sizes == [64, 11, 9, 2]
    assert made.strides == [64 * 2, 11 * 64 * 2, 9 * 11 * 64 * 2]
    assert made.steps == [1, 3, 2, 1]
    pixels, channels = parameter.box
    # Corners are of the first tap's places: before the images, and before their ends, by columns.
    assert made.window == ([0, -1], [0, -1], channels, pixels)
    swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[parameter.swizzle]
    assert made.rest[:2] == (0, swizzle)


def words_of(stub, **changes):
    """An image of one launch of `add`, changed, run through XLA; returns the call."""
    x = numbers(256)
    plus = tj.call(add, grid=over, out={"out": x}, BLOCK=128)
    asked = invocation_of(lambda x: plus(x, x, 256), x)
    device = SimpleNamespace(id=0)
    stand = [Standing(number, form, device, 0) for number, form in enumerate(asked.forms)]
    given = asked.on(stand)
    kernel = asked.kernel.compile(**given)
    stub.kernels.append(kernel)
    image = make_image([kernel], complete(kernel, given), (2,), [132])
    token = changes.pop("token", launches.handler().token)
    arrays = changes.pop("arrays", 2)
    table = changes.pop("counters", 0)
    image = dataclasses.replace(image, **changes)
    function = FUNCTION + len(stub.kernels) - 1
    found = words(image, arrays, function, table, token)
    return x, lambda x: jax.jit(lambda x: launches.foreign(x, invocation=asked, found=found))(x)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token": 5}, "compiled by another process"),
        ({"arrays": 3}, "another number of arrays"),
        ({"distinct": (Distinct((0, 0), ((0, 8), (4, 12)), "x, y meet"),)}, "x, y meet"),
        ({"aligned": ("stream",)}, "add: XLA's array stream is not aligned"),
    ],
)
def test_what_was_promised_is_looked_at_before_a_launch(stub, changes, message):
    x, run = words_of(stub, **changes)
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(run(x))
    assert not stub.launches


def test_bytes_side_by_side_are_apart(stub):
    x, run = words_of(stub, distinct=(Distinct((0, 0), ((0, 8), (8, 12)), "no"),))
    run(x)
    assert len(stub.launches) == 1


def test_what_the_driver_refuses_is_an_error_of_xlas(stub):
    x, run = words_of(stub)
    stub.code = 719
    with pytest.raises(Exception, match="the driver refused the launch, error 719"):
        jax.block_until_ready(run(x))


def test_each_stream_has_a_counter_of_its_own(stub):
    table = (ctypes.c_uint64 * COUNTERS)()
    x, run = words_of(stub, counters=ctypes.addressof(table), sums=(Sum(0, "counter", 7),))
    found = []
    for stream in (11, 0, 11, 12, 0):
        stub.stream = stream
        run(x)
        found.append(stub.launches[-1].grid[0])
    assert found == [7, 8, 7, 9, 8]


# --- the library --------------------------------------------------------------------------------


def near(found, expected, tolerance=2e-2):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(
            np.asarray(x, np.float32), np.asarray(y, np.float32), rtol=tolerance, atol=tolerance
        ),
        found,
        expected,
    )


def test_products_have_gradients():
    a, b = numbers(2, 16, 32, dtype=np.float16), numbers(32, 48, dtype=np.float16, seed=1)
    bias = numbers(48, dtype=np.float16, seed=2)

    def loss(multiply):
        return lambda *given: (multiply(*given).astype(jnp.float32) ** 2).mean()

    ours = lambda a, b, bias: tj.matmul(a, b, bias=bias, activation="gelu")  # noqa: E731
    theirs = lambda a, b, bias: jax.nn.gelu(a @ b + bias)  # noqa: E731
    near(jax.jit(ours)(a, b, bias), theirs(a, b, bias))
    near(*(jax.jit(jax.grad(loss(each), (0, 1, 2)))(a, b, bias) for each in (ours, theirs)))
    gradients = (jax.vmap(jax.grad(loss(each)), (0, None, None)) for each in (ours, theirs))
    near(*(jax.jit(each)(a, b, bias) for each in gradients))


def test_products_have_second_gradients():
    shapes = (2, 24, 16), (2, 16, 32), (2, 24, 32), (2, 24, 16)
    a, b, s, t = (numbers(*each, seed=place) for place, each in enumerate(shapes))

    def of(multiply):
        first = lambda a, b: (jnp.sin(multiply(a, b)) * s).sum()  # noqa: E731
        second = lambda a, b: sum(  # noqa: E731
            (x * y).sum() for x, y in zip(jax.grad(first, (0, 1))(a, b), (t, b * b), strict=True)
        )
        third = lambda a, b: (jax.grad(second)(a, b) * t).sum()  # noqa: E731
        return *jax.grad(second, (0, 1))(a, b), *jax.grad(third, (0, 1))(a, b)

    for found, expected in zip(of(tj.matmul), of(jnp.matmul), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    slope = jax.grad(lambda a: tj.matmul(a, b, activation="gelu").sum())
    with pytest.raises(ArgumentError, match="no gradient of matmul"):
        jax.grad(lambda a: slope(a).sum())(a)


def test_products_of_nothing():
    a, b = jnp.zeros((0, 32), jnp.float16), jnp.ones((32, 8), jnp.float16)
    assert tj.matmul(a, b).shape == (0, 8)
    assert tj.matmul(jnp.zeros((2, 0, 32), jnp.float16), b).shape == (2, 0, 8)
    total = lambda a: tj.matmul(a, b).astype(jnp.float32).sum()  # noqa: E731
    assert jax.grad(total)(a).shape == (0, 32)
    sums = tj.matmul(jnp.ones((4, 0), jnp.float16), jnp.ones((0, 8), jnp.float16), bias=b[0])
    np.testing.assert_array_equal(sums, jnp.ones((4, 8)))
    x, w = jnp.ones((3, 0, 6, 6, 8), jnp.float16), jnp.ones((8, 3, 3, 8), jnp.float16)
    total = lambda x, w: tj.conv(x, w).astype(jnp.float32).sum()  # noqa: E731
    of_x, of_w = jax.vmap(jax.grad(total, (0, 1)), (0, None))(x, w)
    assert of_x.shape == x.shape
    assert of_w.shape == (3, *w.shape)
    assert not of_w.any()
    keys = jnp.ones((1, 1, 0, 16), jnp.float16)
    with pytest.raises(ArgumentError, match="attention of arrays without elements"):
        tj.attention(jnp.ones((1, 1, 4, 16), jnp.float16), keys, keys)


def test_gradients_within_shard_map(small):
    """What varies over a mesh beside what does not: weights that are the same on all devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    a, w, bias = (numbers(*shape, dtype=np.float16) for shape in ((16, 32), (32, 16), (16,)))
    q, x, filters = (
        numbers(*shape, dtype=np.float16) for shape in ((1, 2, 16, 16), (1, 6, 6, 8), (8, 3, 3, 8))
    )
    sink = numbers(2)
    cases = (
        (lambda a, w, bias: tj.matmul(a, w, bias=bias, activation="gelu"), (a, w, bias)),
        (lambda q, sink: tj.attention(q, q, q, causal=True, sink=sink), (q, sink)),
        (lambda x, filters: tj.conv(x, filters, activation="relu"), (x, filters)),
        (lambda x, filters: tj.conv(x, filters), (x, filters)),
    )
    for function, given in cases:
        each = (jax.P("x"), *(jax.P(),) * (len(given) - 1))
        sharded = jax.shard_map(function, mesh=mesh, in_specs=each, out_specs=jax.P("x"))

        def gradients(call, given=given):
            total = lambda *given: (call(*given).astype(jnp.float32) ** 2).sum()  # noqa: E731
            return jax.jit(jax.grad(total, tuple(range(len(given)))))(*given)

        for found, expected in zip(gradients(sharded), gradients(function), strict=True):
            np.testing.assert_array_equal(found, expected)
    plus = tj.call(add, grid=over, out={"out": sink}, BLOCK=128)
    sharded = jax.shard_map(
        lambda x, y: plus(x, y, 2), mesh=mesh, in_specs=(jax.P("x"), jax.P()), out_specs=jax.P("x")
    )
    np.testing.assert_array_equal(jax.jit(sharded)(sink, sink), sink + sink)


def test_products_are_mapped():
    a, b = numbers(3, 16, 32, dtype=np.float16), numbers(3, 32, 16, dtype=np.float16, seed=1)
    near(jax.vmap(tj.matmul)(a, b), a @ b)
    near(jax.vmap(tj.matmul, (0, None))(a, b[0]), a @ b[0])
    one = jax.vmap(jax.grad(lambda a, b: tj.matmul(a, b).astype(jnp.float32).sum(), 1))(a, b)
    theirs = jax.vmap(jax.grad(lambda a, b: (a @ b).astype(jnp.float32).sum(), 1))
    near(one, jax.jit(theirs)(a, b))
    gelu = lambda a, b: jax.nn.gelu(a.astype(jnp.float32) @ b, approximate=False).sum()  # noqa: E731
    ours = lambda a, b: tj.matmul(a, b, activation="gelu").astype(jnp.float32).sum()  # noqa: E731
    near(*(jax.jit(jax.vmap(jax.grad(each), (0, None)))(a, b[0]) for each in (ours, gelu)))
    for rows, columns in ((b, 0), (b[0], None)):
        found = jax.vmap(tj.matmul, (0, columns))(a[:, :0], rows)
        assert found.shape == (3, 0, 16)


@pytest.fixture
def small(request):
    with small_tiles(roles=not is_short(request.config)):
        yield


def plain_attention(q, k, v):
    q, k, v = (each.astype(jnp.float32) for each in (q, k, v))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)


def test_attention_has_gradients_and_is_mapped(small):
    q, k, v = (numbers(2, 1, 2, 48, 64, dtype=np.float16, seed=seed) for seed in range(3))

    def loss(attend):
        return lambda *given: (attend(*given).astype(jnp.float32) ** 2).sum()

    ours = lambda q, k, v: tj.attention(q, k, v, causal=True)  # noqa: E731
    near(*(jax.jit(each)(q[0], k[0], v[0]) for each in (ours, plain_attention)))
    gradients = (jax.vmap(jax.grad(loss(each), (0, 1, 2))) for each in (ours, plain_attention))
    near(*(jax.jit(each)(q, k, v) for each in gradients))


def dropped_attention(q, k, v, bias, sink, weights):
    """Scores with a bias and a sink; what is left of the weights is given."""
    q, k, v = (each.astype(jnp.float32) for each in (q, k, v))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5 + bias
    ends = jnp.broadcast_to(sink[None, :, None, None], (*scores.shape[:3], 1))
    found = jax.nn.softmax(jnp.concatenate([scores, ends], -1), axis=-1)[..., :-1]
    return jnp.einsum("bhqk,bhkd->bhqd", found * weights, v)


def test_attention_with_bias_sink_and_dropout(small):
    q, k, v = (numbers(2, 2, 1, 32, 64, dtype=np.float16, seed=seed) for seed in range(3))
    bias, sink = numbers(2, 1, 1, 32, 32, seed=4), numbers(1, seed=5)
    key = jax.random.key(7)
    # By values that are columns of the identity, the weights themselves.
    eye = jnp.broadcast_to(jnp.eye(32, dtype=jnp.float16), (4, 1, 32, 32))
    seen = tj.attention(q.reshape(4, 1, 32, 64), k.reshape(4, 1, 32, 64), eye, dropout=0.4, key=key)
    weights = jnp.where(seen.reshape(2, 2, 1, 32, 32) > 0, 1 / 0.6, 0.0)
    assert 0.5 < float((weights > 0).mean()) < 0.7

    def ours(q, k, v, bias, sink):
        return tj.attention(q, k, v, bias=bias, sink=sink, dropout=0.4, key=key)

    given = q, k, v, bias, sink
    out, back = jax.vjp(jax.vmap(ours, (0, 0, 0, 0, None)), *given)
    exact = jax.vmap(dropped_attention, (0, 0, 0, 0, None, 0))

    @jax.jit
    def theirs(weight, *given):
        wide, exact_back = jax.vjp(lambda *given: exact(*given, weights), *given)
        return wide, exact_back(weight)

    near((out, back(v)), theirs(v.astype(jnp.float32), *given))
    with pytest.raises(ArgumentError, match=r"dropout 0\.4 without a key"):
        tj.attention(q[0], k[0], v[0], dropout=0.4)
    with pytest.raises(ArgumentError, match=r"jax\.vmap of attention over sink, key, alibi"):
        jax.vmap(lambda sink: tj.attention(q[0], k[0], v[0], sink=sink))(sink[None])


def scores_of(positions_q, positions_k, slope):
    return -slope * jnp.abs(positions_q[:, None] - positions_k[None, :])


@pytest.mark.long
def test_packed_attention_with_slopes(small):
    """Beside each sequence alone, the slopes as a bias."""
    q, k, v = (numbers(1, 2, 60, 64, dtype=np.float16, seed=seed) for seed in range(3))
    starts, slopes = jnp.array([0, 20, 20, 60], jnp.int32), jnp.array([0.5, 0.125])
    parts = [(0, 20), (20, 60)]

    def ours(q, k, v):
        return tj.attention(q, k, v, causal=True, alibi=slopes, cu_seqlens=starts)

    def theirs(q, k, v):
        found = []
        for low, high in parts:
            at = jnp.arange(high - low, dtype=jnp.float32)
            bias = jnp.stack([scores_of(at, at, slope) for slope in slopes])
            one = (each[:, :, low:high].swapaxes(1, 2) for each in (q, k, v))
            made = jax.nn.dot_product_attention(*one, bias[None], is_causal=True)
            found.append(made.swapaxes(1, 2))
        return jnp.concatenate(found, 2)

    weight = numbers(1, 2, 60, 64, seed=5)
    out, back = jax.vjp(jax.jit(ours), q, k, v)
    wide = [each.astype(jnp.float32) for each in (q, k, v)]
    exact, exact_back = jax.vjp(theirs, *wide)
    near((out, back(weight.astype(jnp.float16))), (exact, exact_back(weight)))
    both = tj.attention(q, k, v, causal=True, alibi=slopes, cu_seqlens=(starts, starts))
    near(both, out, 0)
    with pytest.raises(ArgumentError, match=r"vmap of attention over sink, key, alibi"):
        jax.vmap(lambda alibi: tj.attention(q, k, v, alibi=alibi))(slopes[None].repeat(2, 0))


@pytest.mark.parametrize(
    ("lengths", "how"),
    [
        long(((24, 40), {"is_causal": True, "bias": (2, 1, 24, 40)})),
        long(((24, 40), {"local_window_size": (9, 3), "mask": (1, 2, 24, 40)})),
        long(((40, 24), {"local_window_size": 20, "query_seq_lengths": (30, 40)})),
        long(((40, 24), {"is_causal": True, "key_value_seq_lengths": (24, 9), "scale": 0.3})),
        long(((24, 24), {"mask": (24, 1), "bias": (2, 2, 1, 1)})),
    ],
)
def test_dot_product_attention_is_jaxs(small, lengths, how):
    q = numbers(2, lengths[0], 2, 64, dtype=np.float16)
    k, v = (numbers(2, lengths[1], 2, 64, dtype=np.float16, seed=seed) for seed in (1, 2))
    how = dict(how)
    for name in ("bias", "mask"):
        if name in how:
            how[name] = numbers(*how[name], seed=3)
    if "mask" in how:
        how["mask"] = (how["mask"] > 0) | (jnp.arange(lengths[1])[None] == 0)
    for name in ("query_seq_lengths", "key_value_seq_lengths"):
        if name in how:
            how[name] = jnp.array(how[name], jnp.int32)
    # The gradient by one number for all scores is nothing but rounding.
    bias = how.pop("bias", jnp.zeros((2, 2, *lengths)))

    def run(attend, *given):
        return jax.vjp(lambda q, k, v, bias: attend(q, k, v, bias, **how), *given)

    out, back = run(tj.dot_product_attention, q, k, v, bias)
    wide = [each.astype(jnp.float32) for each in (q, k, v)]
    exact, exact_back = run(jax.nn.dot_product_attention, *wide, bias)
    weight = numbers(*out.shape, seed=4)
    near((out, back(weight.astype(out.dtype))), (exact, exact_back(weight)), 3e-2)


def test_dot_product_attention_of_other_forms(small):
    q = numbers(24, 1, 64, dtype=np.float16)
    found = tj.dot_product_attention(q, q, q, return_residual=True)
    near(found, jax.nn.dot_product_attention(q, q, q, return_residual=True))
    q, k = (numbers(2, n, 2, 64, dtype=np.float16, seed=n) for n in (24, 40))
    mask = (numbers(1, 2, 24, 40) > -1) | (jnp.arange(40) == 0)
    how = {"is_causal": True, "mask": mask, "bias": numbers(2, 1, 24, 40, seed=3)}
    how["query_seq_lengths"] = jnp.array([24, 9], jnp.int32)
    how["key_value_seq_lengths"] = jnp.array([20, 24], jnp.int32)
    wide = [each.astype(jnp.float32) for each in (q, k, k)]
    found = tj.dot_product_attention(q, k, k, **how)
    near(found, jax.jit(lambda *given: jax.nn.dot_product_attention(*given, **how))(*wide))
    q = q[0, :, :1]
    for how, message in (
        ({"implementation": "cudnn"}, "implementation='cudnn'"),
        ({"mask": jnp.ones((24, 24))}, "mask holds float32"),
        ({"local_window_size": (2, 0)}, "the last queries see no key"),
        ({"bias": jnp.ones((1, 1, 1, 24, 24))}, "bias has 5 axes"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tj.dot_product_attention(q, q[:9], q[:9], **how)


CONVOLUTIONS = [
    ((1, 5, 4, 8), (8, 2, 1, 8), {"stride": (2, 1), "padding": ((1, 0), (0, 2))}),
    long(((2, 9, 8, 8), (16, 3, 3, 4), {"stride": 2, "padding": ((1, 0), (0, 2)), "groups": 2})),
    long(((2, 12, 8), (16, 3, 8), {"padding": "same", "dilation": 2})),
    long(((1, 5, 6, 4, 3), (5, 2, 3, 1, 3), {"stride": (1, 2, 1), "padding": 1})),
]


def lax_convolution(x, w, stride=1, padding=0, dilation=1, groups=1):
    axes = x.ndim - 2
    each = lambda given: (given,) * axes if isinstance(given, int) else given  # noqa: E731
    pads = "SAME" if padding == "same" else padding
    pads = [(pads, pads)] * axes if isinstance(pads, int) else pads
    last = "N" + "DHW"[-axes:] + "C"
    kernel = "O" + "DHW"[-axes:] + "I"
    return jax.lax.conv_general_dilated(
        *(x, w, each(stride), pads, None, each(dilation), (last, kernel, last), groups)
    )


@pytest.mark.parametrize(("images", "filters", "how"), CONVOLUTIONS)
def test_convolutions_are_laxs_with_gradients(images, filters, how):
    x, w = (numbers(*each, dtype=np.float16, seed=n) for n, each in enumerate((images, filters)))
    bias = numbers(filters[0], dtype=np.float16, seed=2)
    wide = [each.astype(jnp.float32) for each in (x, w, bias)]

    def theirs(x, w, bias):
        return jax.nn.relu(lax_convolution(x, w, **how) + bias)

    ours = jax.jit(lambda x, w, bias: tj.conv(x, w, bias, activation="relu", **how))
    out, back = jax.vjp(ours, x, w, bias)
    exact, exact_back = jax.jit(lambda *given: jax.vjp(theirs, *given))(*wide)
    near(out, exact)
    weight = numbers(*out.shape, seed=3)
    near(back(weight.astype(out.dtype)), exact_back(weight), 5e-2)


@pytest.mark.long
def test_convolutions_have_second_gradients_and_are_mapped():
    x, w = numbers(2, 1, 5, 4, 8, dtype=np.float16), numbers(8, 2, 2, 8, dtype=np.float16, seed=1)

    def twice(convolve, x, w):
        def first(x):
            return (convolve(x, w).astype(jnp.float32) ** 2).mean()

        return (jax.grad(first)(x).astype(jnp.float32) ** 2).sum()

    given = x[0], w
    found = jax.grad(lambda x, w: twice(tj.conv, x, w), (0, 1))(*given)
    wide = [each.astype(jnp.float32) for each in given]
    near(found, jax.grad(lambda x, w: twice(lax_convolution, x, w), (0, 1))(*wide))
    loss = lambda convolve: lambda x, w: convolve(x, w).astype(jnp.float32).sum()  # noqa: E731
    found = jax.vmap(jax.grad(loss(tj.conv), (0, 1)), (0, None))(x, w)
    near(found, jax.vmap(jax.grad(loss(lax_convolution), (0, 1)), (0, None))(x, w), 5e-2)


@pytest.mark.parametrize(
    ("spec", "how"),
    [
        long((("NCHW", "OIHW", "NCHW"), {"padding": [(1, 2), (0, 1)], "lhs_dilation": (2, 1)})),
        long((("NHWC", "HWIO", "NCHW"), {"padding": "SAME_LOWER"})),
        long(
            (
                ("NWC", "WIO", "NWC"),
                {"padding": [(1, 2)], "lhs_dilation": (3,), "feature_group_count": 2},
            )
        ),
    ],
)
def test_conv_general_dilated_is_laxs(spec, how):
    sizes = {"N": 2, "C": 16, "H": 6, "W": 5}
    groups = how.get("feature_group_count", 1)
    window = {"O": 8, "I": 16 // groups, "H": 3, "W": 2}
    x = numbers(*(sizes[each] for each in spec[0]), dtype=np.float16)
    w = numbers(*(window[each] for each in spec[1]), dtype=np.float16, seed=1)
    given = {"window_strides": (1,) * (x.ndim - 2), "dimension_numbers": spec, **how}
    exact = jax.lax.conv_general_dilated(x.astype(jnp.float32), w.astype(jnp.float32), **given)
    near(tj.conv_general_dilated(x, w, **given), exact)


def test_conv_general_dilated_refuses_by_name():
    x, w = numbers(1, 8, 6, 6), numbers(8, 8, 3, 3)
    for how, message in (
        ({"batch_group_count": 2}, "batch_group_count=2"),
        ({"precision": jax.lax.Precision.HIGHEST}, "float32 with precision=HIGHEST"),
        ({"preferred_element_type": jnp.bfloat16}, "preferred_element_type=bfloat16"),
        (
            {"lhs_dilation": (2, 2), "window_strides": (2, 2), "padding": [(0, 0), (0, 0)]},
            "the former alone",
        ),
        ({"lhs_dilation": (2, 2)}, "padding='VALID' with lhs_dilation"),
        ({"lhs_dilation": (2, 2), "padding": [(3, 0), (0, 0)]}, "no further than 2"),
    ):
        given = {"window_strides": (1, 1), "padding": "VALID", **how}
        with pytest.raises(ArgumentError, match=message):
            tj.conv_general_dilated(x, w, **given)
    with pytest.raises(ArgumentError, match="no activation 'tanh'"):
        tj.conv(x, w, activation="tanh")
