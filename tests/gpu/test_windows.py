"""Windows through TMA on the GPU: the driver's maps and the hardware's counting, by definition."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

import tawa  # noqa: E402
import tawa.language as tl  # noqa: E402
from instructions import BARRIER, FILLED, swizzled  # noqa: E402
from tawa.codegen.parameters import TensorMapParameter  # noqa: E402
from tawa.codegen.wrappers import barriers, tma  # noqa: E402
from tawa.codegen.wrappers.core import PRELUDE, closure  # noqa: E402
from tawa.layouts.windows import Window  # noqa: E402
from tawa.runtime import cubins  # noqa: E402
from tawa.runtime.compiled import LaunchShape  # noqa: E402
from tawa.runtime.driver import LoadedKernel, connect  # noqa: E402
from tawa.runtime.tensor_map import Tensor, encode  # noqa: E402
from window_definition import drawn, seen  # noqa: E402

SHARED = 32768
GEOMETRIES = 500
KINDS = {"f16": np.float16, "f32": np.float32, "u8": np.uint8}


@cache
def loader(axes: int) -> LoadedKernel:
    """A kernel that loads one box of windows, at coordinates and taps that it is told."""
    load = tma.tma_load(axes + 2, windows=True)
    wrappers = (barriers.SHARED_ADDRESS, *BARRIER, load)
    texts = [each.text for each in closure({each.head: each for each in wrappers})]
    numbers = ", ".join(f"at[{index}]" for index in range(2 * axes + 2))
    entry = f"""\
extern "C" __global__ void __launch_bounds__(32, 1)
see(const __grid_constant__ TensorMap map, const int* at, unsigned char* result, const u32 bytes) {{
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 shared = shared_address(memory);
  if (threadIdx.x == 0) {{ barrier_init(shared + {FILLED}, 1); fence_barrier_init(); }}
  block_sync();
  if (threadIdx.x == 0) {{
    barrier_expect(shared + {FILLED}, bytes);
    tma_load_windows_{axes + 2}d(shared, &map, shared + {FILLED}, {numbers});
  }}
  barrier_wait(shared + {FILLED}, 0);
  for (u32 i = threadIdx.x; i < bytes; i += 32) result[i] = memory[i];
}}"""
    cubin = cubins.build("\n\n".join([PRELUDE, *texts, entry, ""]), "see")
    kernel = LoadedKernel(connect(), cubin.data, "see", LaunchShape(32, SHARED, 1))
    kernel.prepare(0)
    return kernel


def see(x: np.ndarray, parameter: TensorMapParameter, numbers: list[int]) -> np.ndarray:
    """Load a box on the GPU: the bytes of shared memory."""
    driver, window = connect(), parameter.window
    assert window is not None
    placed = torch.from_numpy(x.view(np.uint8).ravel().copy()).cuda()
    steps = tuple(step // x.itemsize for step in x.strides)
    tensor = Tensor("x", placed.data_ptr(), x.shape, steps)
    buffer = encode(parameter, tensor, driver)
    at = torch.tensor(numbers, dtype=torch.int32, device="cuda")
    count = parameter.box[0] * parameter.box[1] * x.itemsize
    result = torch.full((count,), 0x55, dtype=torch.uint8, device="cuda")
    words = [ctypes.c_uint64(each.data_ptr()) for each in (at, result)]
    words.append(ctypes.c_uint64(count))
    addresses = [buffer.address, *map(ctypes.addressof, words)]
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    cu: Any = driver.cu
    config = cu.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 32, 1, 1
    config.sharedMemBytes = SHARED
    function = cu.CUfunction(loader(window.axes).function)
    driver.call("cuLaunchKernelEx", config, function, ctypes.addressof(table), 0)
    torch.cuda.synchronize()
    return result.cpu().numpy()


@pytest.mark.parametrize("part", range(10))
def test_random_geometries(part: int) -> None:
    torch.zeros(1, device="cuda")  # makes the context current
    for number in range(part, GEOMETRIES, 10):
        random = np.random.default_rng(number)
        pixels, window = drawn(random)
        dtype = str(random.choice(list(KINDS)))
        size = np.dtype(KINDS[dtype]).itemsize
        swizzle = int(random.choice((0, 32, 64, 128)))
        unit = 16 // size
        channels = unit * int(random.integers(1, 6))
        width = unit * (swizzle // 16 or int(random.integers(1, 5)))
        block = (8 * int(random.integers(1, 17)), width)
        x = random.integers(1, 100, (*pixels, channels)).astype(KINDS[dtype])
        total = pixels[0] * int(np.prod(window.counts(pixels[1:])))
        first = int(random.integers(0, total + 3))
        channel = unit * int(random.integers(0, channels // unit + 1))
        tap = tuple(int(random.integers(0, extent)) for extent in window.size)
        want = seen(x, window, first, channel, tap, block)
        image, *at = np.unravel_index(first, (pixels[0] + 4, *window.counts(pixels[1:])))
        place = [int(a) * s - p for a, s, (p, _) in zip(at, window.stride, window.padding)]
        numbers = [channel, *place[::-1], int(image)]
        numbers += [t * apart for t, apart in zip(tap, window.dilation)][::-1]
        parameter = TensorMapParameter("x", dtype, block, swizzle, "zero", "x", window=window)
        found = see(x, parameter, numbers)
        lands = swizzled(np.arange(want.nbytes), swizzle)
        expected = np.empty(want.nbytes, np.uint8)
        expected[lands] = want.view(np.uint8).ravel()
        told = f"{number}: {x.shape} {dtype}, {window}, {first} {channel} {tap}, {block} {swizzle}"
        assert np.array_equal(found, expected), told


EDGES = [
    ((1, 70000, 16), Window((1,), (1,), ((32768, 0),), (1,)), 0),
    ((1, 70000, 16), Window((2,), (1,), ((0, 0),), (32768,)), 100),
    ((1, 300, 4, 16), Window((1, 1), (1, 1), ((128, 0), (0, 0)), (1, 1)), 520),
    ((1, 300, 4, 16), Window((2, 1), (8, 1), ((0, 0), (0, 127)), (128, 1)), 3),
    ((1, 40, 4, 4, 16), Window((2, 1, 1), (1, 1, 1), ((16, 15), (0, 0), (0, 0)), (31, 1, 1)), 9),
    ((1, 2, 2, 40, 16), Window((1, 1, 2), (1, 1, 1), ((0, 0),) * 3, (1, 1, 16)), 2),
]


@pytest.mark.parametrize(("shape", "window", "first"), EDGES)
def test_the_ends_of_the_ranges(shape: tuple[int, ...], window: Window, first: int) -> None:
    assert not window.objection
    torch.zeros(1, device="cuda")
    x = np.random.default_rng(0).integers(1, 100, shape).astype(np.float16)
    tap = tuple(extent - 1 for extent in window.size)
    _, *at = np.unravel_index(first, (1, *window.counts(shape[1:-1])))
    place = [int(a) * s - p for a, s, (p, _) in zip(at, window.stride, window.padding)]
    numbers = [0, *place[::-1], 0, *window.taps[::-1]]
    parameter = TensorMapParameter("x", "f16", (32, 16), 0, "zero", "x", window=window)
    want = seen(x, window, first, 0, tap, (32, 16))
    assert np.array_equal(see(x, parameter, numbers).view(np.float16).reshape(32, 16), want)


@tawa.jit
def gather_taps(x_desc, out_ptr, tiles, TAPS: tl.constexpr, FW: tl.constexpr, BM: tl.constexpr):
    first = tl.program_id(0) * BM
    for step in range(TAPS):
        tile = x_desc.load([first, 0], tap=(step // FW, step % FW))
        row = step * tiles * BM + first + tl.arange(0, BM)
        tl.store(out_ptr + row[:, None] * 64 + tl.arange(0, 64)[None, :], tile)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("number", range(4))
def test_descriptors(number: int, padding: str) -> None:
    """From the language: several copies (512 windows), a channel tail, rings that go round."""
    random = np.random.default_rng(1000 + number)
    while True:
        pixels, window = drawn(random)
        if window.axes == 2:
            break
    x = torch.randn(*pixels, 40 + 8 * number, device="cuda").half()
    asked = {"stride": window.stride, "padding": window.padding, "dilation": window.dilation}
    desc = tawa.WindowDescriptor(x, window.size, [512, 64], outside=padding, **asked)
    taps = int(np.prod(window.size))
    tiles = -(-pixels[0] * int(np.prod(desc.counts)) // 512)
    out = torch.full((taps, tiles * 512, 64), 55.0, device="cuda", dtype=torch.float16)
    gather_taps[(tiles,)](desc, out, tiles, TAPS=taps, FW=window.size[1], BM=512)
    held, outside = x.cpu().numpy(), np.nan if padding == "nan" else 0
    for step in range(taps):
        tap = divmod(step, window.size[1])
        want = seen(held, window, 0, 0, tap, (tiles * 512, 64), outside)
        # Channels beyond the last are outside of the images as well.
        assert np.array_equal(out[step].cpu().numpy(), want, equal_nan=True), (step, window)
