"""`tawa.jax` on a GPU. The handler's machine code with the real driver, called as XLA calls it
(needs llvmlite and torch, not jax); and the whole of it where jax has a CUDA backend.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import types
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import tawa
import tawa.language as tl
from tawa.runtime.descriptors import like
from tawa.runtime.driver import LoadedKernel, connect
from tawa.runtime.image import Standing, complete, make_image

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)
pytest.importorskip("llvmlite")
# Jax would take three quarters of the memory, which processes beside this one need.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.fixture(scope="module")
def handlers():
    """The module of the handler, without jax where there is none."""
    try:
        import jax  # noqa: F401
    except ImportError:
        package = types.ModuleType("tawa.jax")
        package.__path__ = [str(Path(tawa.__file__).parent / "jax")]
        sys.modules["tawa.jax"] = package
    from tawa.jax import handler

    return handler


@tawa.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)


@tawa.jit
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    m, n = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, K, D):
        total = tl.dot(a.load([m, k]), b.load([k, n]), total)
    c.store([m, n], total.to(tl.bfloat16))


class Frame:
    """XLA's call frame for arrays and words, as its ``c_api.h`` has it."""

    def __init__(self, arrays, words, stream):
        def created(given):
            place = ctypes.c_uint64.from_address(given + 16).value
            self.error = ctypes.string_at(place).decode()
            return 1

        def asked(given):
            ctypes.c_uint64.from_address(given + 24).value = stream
            return None

        self.error = ""
        kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        self._kept = kind(created), kind(asked)
        create, get = (ctypes.cast(each, ctypes.c_void_p).value for each in self._kept)
        self._api = self._room(
            struct.pack("<2Q2Q2iQ5Q", 88, 0, 24, 0, 0, 3, 0, create, 0, 0, 0, get)
        )
        buffers = [
            self._room(struct.pack("<2Qi4xQqQ", 48, 0, 11, each.data_ptr(), 0, 0))
            for each in arrays
        ]
        places = self._room(struct.pack(f"<{len(buffers)}Q", *buffers))
        held = self._room(struct.pack(f"<{len(words)}q", *words))
        array = self._room(struct.pack("<i4x2Q", 5, len(words), held))
        attributes = self._room(struct.pack("<Q", array))
        kinds = self._room(struct.pack("<2i", 1, 1))
        self.address = self._room(
            struct.pack("<4Qi4x", 176, 0, self._api, 0, 3)
            + struct.pack("<2Qq2Q", 40, 0, len(buffers), 0, places)
            + struct.pack("<2Qq2Q", 40, 0, 0, 0, 0)
            + struct.pack("<2Qq3Q", 48, 0, 1, kinds, 0, attributes)
            + struct.pack("<Q", 0)
        )

    def _room(self, data):
        buffer = ctypes.create_string_buffer(data, len(data))
        self._kept = (*self._kept, buffer)
        return ctypes.addressof(buffer)


def launched(handlers, kernel, grid, arguments, arrays, **meta):
    """Launch by the handler on torch's current stream; returns its error."""
    driver = connect()
    numbers = {each.data_ptr(): number for number, each in enumerate(arrays)}
    device = SimpleNamespace(id=0)

    def stand(value):
        base = getattr(value, "base", value)
        if not isinstance(base, torch.Tensor):
            return value
        form = Standing(numbers[base.data_ptr()], like(base), device, 0)
        if base is value:
            return form
        value.shape, value.strides = tuple(value.shape), tuple(value.strides)
        return value.of(form)

    given = dict(zip(kernel.arg_names, map(stand, arguments)))
    compiled = kernel.compile(**given, **meta)
    loaded = LoadedKernel(driver, compiled.cubin, compiled.entry, compiled.launch)
    loaded.prepare(0)
    blocks = loaded.resident_blocks(0)
    image = make_image([compiled], complete(compiled, given), grid, [blocks])
    table = (ctypes.c_uint64 * 4096)()
    addresses = [
        ctypes.cast(each, ctypes.c_void_p).value
        for each in (driver.launch_ex, driver.encode_tiled, driver.encode_im2col)
    ]
    made = handlers.Handler(handlers.Addresses(*addresses), (0, 3))
    counters = ctypes.addressof(table) if image.counted else 0
    words = handlers.words(image, len(arrays), loaded.function, counters, made.token)
    stream = torch.cuda.current_stream().cuda_stream
    frame = Frame(arrays, words, stream)
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(made.address)
    for _ in range(2):
        call(frame.address)
    torch.cuda.synchronize()
    return frame.error


def test_the_handler_launches_pointers(handlers):
    x, y = torch.randn(2, 5000, device="cuda").unbind(0)
    y = y.clone()
    out = torch.empty_like(x)
    with torch.cuda.stream(torch.cuda.Stream()):
        error = launched(handlers, add, (40,), (x, y, out, 5000), [x, y, out], BLOCK=128)
    assert not error
    torch.testing.assert_close(out, x + y)


def test_the_handler_encodes_tensor_maps(handlers):
    a, b = (torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    describe = tawa.TensorDescriptor.from_tensor
    described = [describe(each, block) for each, block in ((a, [128, 64]), (b, [64, 128]))]
    given = (*described, describe(c, [128, 128]), 1024)
    error = launched(handlers, product, (8, 8), given, [a, b, c], M=128, N=128, D=64)
    assert not error
    torch.testing.assert_close(c, a @ b, rtol=2e-2, atol=1e-1)


# --- with jax -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jax():
    found = pytest.importorskip("jax")
    try:
        found.devices("cuda")
    except RuntimeError:
        pytest.skip("jax has no CUDA backend here")
    return found


def off(jnp, ours, theirs):
    """Return the relative error (Frobenius)."""
    wide = [jnp.asarray(each, jnp.float32) for each in (ours, theirs)]
    return float(jnp.linalg.norm(wide[0] - wide[1]) / jnp.linalg.norm(wide[1]))


def test_calls_inside_jit(jax):
    import tawa.jax as tj

    jnp = jax.numpy
    x = jnp.arange(5000, dtype=jnp.float32)
    plus = tj.call(add, grid=(40,), out={"out": x}, BLOCK=128)
    found = jax.jit(lambda x: plus(x, plus(x, x, 5000) + 1, 5000))(x)
    assert bool((found == 3 * x + 1).all())


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_products_and_attention_with_gradients(jax, kind):
    import tawa.jax as tj

    jnp = jax.numpy
    keys = jax.random.split(jax.random.key(0), 5)
    a, b = (jax.random.normal(each, (512, 512)).astype(kind) for each in keys[:2])

    worst = partial(off, jnp)

    def loss(multiply):
        return lambda a, b: (multiply(a, b).astype(jnp.float32) ** 2).mean()

    ours = jax.jit(jax.grad(loss(tj.matmul), (0, 1)))(a, b)
    theirs = jax.jit(jax.grad(loss(jnp.matmul), (0, 1)))(a, b)
    assert max(map(worst, ours, theirs)) < 1e-2
    q, k, v = (jax.random.normal(each, (2, 4, 300, 128)).astype(kind) for each in keys[2:])

    def plain(q, k, v):
        turned = (each.swapaxes(1, 2) for each in (q, k, v))
        return jax.nn.dot_product_attention(*turned, is_causal=True).swapaxes(1, 2)

    def squares(attend):
        return lambda *given: (attend(*given).astype(jnp.float32) ** 2).sum()

    attend = lambda q, k, v: tj.attention(q, k, v, causal=True)  # noqa: E731
    ours = jax.jit(jax.grad(squares(attend), (0, 1, 2)))(q, k, v)
    theirs = jax.jit(jax.grad(squares(plain), (0, 1, 2)))(q, k, v)
    assert max(map(worst, ours, theirs)) < 2e-2


def test_convolutions_and_attention_by_jaxs_own_names(jax):
    import tawa.jax as tj

    jnp, lax = jax.numpy, jax.lax
    keys = jax.random.split(jax.random.key(1), 5)
    x = jax.random.normal(keys[0], (2, 20, 18, 64)).astype("float16")
    w = jax.random.normal(keys[1], (3, 3, 64, 128)).astype("float16")
    how = {"window_strides": (2, 2), "padding": "SAME"}
    how["dimension_numbers"] = ("NHWC", "HWIO", "NHWC")

    def squares(call):  # a mean's gradients would be subnormal in float16
        return lambda *given: (call(*given).astype(jnp.float32) ** 2).sum()

    def both(ours, theirs, given):
        """Return the errors of the value and of the gradients."""
        places = tuple(range(len(given)))
        made = [jax.jit(call)(*given) for call in (ours, theirs)]
        slopes = [jax.jit(jax.grad(squares(call), places))(*given) for call in (ours, theirs)]
        return [off(jnp, *made), *map(partial(off, jnp), *slopes)]

    convolve = [
        lambda x, w, call=call: call(x, w, **how)
        for call in (tj.conv_general_dilated, lax.conv_general_dilated)
    ]
    assert max(both(*convolve, (x, w))) < 1e-2
    q, k, v = (jax.random.normal(key, (2, 200, 4, 64)).astype("float16") for key in keys[2:])
    attend = [
        lambda q, k, v, call=call: call(q, k, v, is_causal=True)
        for call in (tj.dot_product_attention, jax.nn.dot_product_attention)
    ]
    assert max(both(*attend, (q, k, v))) < 1e-2


def test_gradients_within_shard_map(jax):
    """Over all GPUs there are: rows of the first operand, and weights that all of them have."""
    import numpy as np

    import tawa.jax as tj

    jnp, devices = jax.numpy, jax.devices("cuda")
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    keys = jax.random.split(jax.random.key(3), 2)
    a, w = (jax.random.normal(key, (512, 512)).astype("bfloat16") for key in keys)
    parts = (jax.P("x"), jax.P())
    multiply = jax.shard_map(tj.matmul, mesh=mesh, in_specs=parts, out_specs=jax.P("x"))

    def gradients(call):
        total = lambda a, w: (call(a, w).astype(jnp.float32) ** 2).mean()  # noqa: E731
        return jax.jit(jax.grad(total, (0, 1)))(a, w)

    for ours, theirs in zip(gradients(multiply), gradients(jnp.matmul), strict=True):
        assert off(jnp, ours, theirs) < 1e-2


def test_a_call_runs_where_its_arrays_are(jax):
    """On the second of two GPUs, and on both in turn."""
    import tawa.jax as tj

    if len(jax.devices("cuda")) < 2:
        pytest.skip("needs two GPUs")
    jnp = jax.numpy
    multiply = jax.jit(tj.matmul)
    for index in (1, 0, 1):
        device = jax.devices("cuda")[index]
        a, b = (
            jax.device_put(
                jax.random.normal(jax.random.key(n), (256, 256)).astype("float16"), device
            )
            for n in range(2)
        )
        found = multiply(a, b)
        assert found.devices() == {device}
        assert off(jnp, found, a @ b) < 1e-2
