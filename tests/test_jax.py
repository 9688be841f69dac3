"""`tawa.jax`: kernels inside `jax.jit`, in the simulator and by the handler of a driver that is a
stub: XLA calls the machine code, which calls us, and we run the simulator on XLA's memory.
"""

import ctypes
import struct
from types import SimpleNamespace

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import tawa.jax as tj  # noqa: E402
from tawa.jax import launches  # noqa: E402
from tawa.jax.calls import bind  # noqa: E402
from tawa.jax.handler import Addresses, Handler, version_of  # noqa: E402
from tawa.runtime import dispatch  # noqa: E402
from tawa.runtime.dtypes import numpy_dtype  # noqa: E402
from tawa.target import H200  # noqa: E402


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
def product(a, b, out, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(a.load([m, k]), b.load([k, n]), total)
    out.store([m, n], total.to(tl.float16))


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
    with pytest.raises(ArgumentError, match="out names sum"):
        tj.call(add, grid=over, out={"sum": x})
    with pytest.raises(ArgumentError, match="add does not store to y"):
        tj.call(add, grid=over, out={"y": x}, BLOCK=64)(x=x, out=x, n=64)
    with pytest.raises(ArgumentError, match="got 4 arguments"):
        plus(x, x, 64, 64)


# --- by the handler -----------------------------------------------------------------------------

STREAM = 0x57AE0
FUNCTION = 0xF00D


class Stub:
    """A driver whose launches run in the simulator, on the memory that they are handed."""

    def __init__(self):
        self.kernels, self.launches, self.maps, self.code, self.map_code = [], [], {}, 0, 0
        self._launch = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self.launched)
        kinds = ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, *[ctypes.c_void_p] * 5
        self._encode = ctypes.CFUNCTYPE(ctypes.c_int, *kinds, *[ctypes.c_uint] * 4)(self.encoded)
        self.launch_ex, self.encode_tiled = self._launch, self._encode
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
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (made._launch, made._encode)]
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
    assert one.grid == (3, 1, 1) and one.stream == STREAM
    assert (one.threads, one.shared) == (one.kernel.launch.threads, one.kernel.launch.shared)
    named = dict(zip((p.name if hasattr(p, "name") else p.expression for p in one.kernel.parameters), one.held))
    address = lambda each: struct.pack("<Q", each.unsafe_buffer_pointer())  # noqa: E731
    assert named["x"] == address(x) and named["y"] == address(y) and named["out"] == address(out)
    assert struct.unpack("<i4x", named["n"]) == (300,)
    launched(y, x)  # other addresses
    assert stub.launches[1].held[0] == address(y)
