"""Descriptors of windows: what a block is, at every level, and what is refused by name."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError, DescriptorError, LaunchError
from tawa.ir.build import KernelBuilder
from tawa.layouts.windows import Window, parse_window
from window_definition import drawn, seen


@tawa.jit
def see_1d(x_desc, out_ptr, first, channel, a, BM: tl.constexpr, BK: tl.constexpr):
    x = x_desc.load([first, channel], tap=a)
    tl.store(out_ptr + tl.arange(0, BM)[:, None] * BK + tl.arange(0, BK)[None, :], x)


@tawa.jit
def see_2d(x_desc, out_ptr, first, channel, a, b, BM: tl.constexpr, BK: tl.constexpr):
    x = x_desc.load([first, channel], tap=(a, b))
    tl.store(out_ptr + tl.arange(0, BM)[:, None] * BK + tl.arange(0, BK)[None, :], x)


@tawa.jit
def see_3d(x_desc, out_ptr, first, channel, a, b, c, BM: tl.constexpr, BK: tl.constexpr):
    x = x_desc.load([first, channel], tap=(a, b, c))
    tl.store(out_ptr + tl.arange(0, BM)[:, None] * BK + tl.arange(0, BK)[None, :], x)


KERNELS = {1: see_1d, 2: see_2d, 3: see_3d}


def describe(x, window, block, outside="zero"):
    return tawa.WindowDescriptor.over(x, window, block, outside)


@pytest.mark.parametrize("number", range(16))
def test_a_block_is_what_windows_see(number):
    random = np.random.default_rng(number)
    pixels, window = drawn(random)
    channels, block = 8 * int(random.integers(1, 6)), (64, 32)
    x = random.integers(1, 100, (*pixels, channels)).astype(np.float16)
    outside = ("zero", "nan")[number % 2]
    desc = describe(x, window, block, outside)
    total = pixels[0] * int(np.prod(window.counts(pixels[1:])))
    out = np.full(block, 55, np.float16)
    for _ in range(2):
        first, channel = int(random.integers(0, total + 3)), 8 * int(random.integers(0, 6))
        tap = tuple(int(random.integers(0, extent)) for extent in window.size)
        KERNELS[window.axes][(1,)](desc, out, first, channel, *tap, BM=64, BK=32)
        fill = np.nan if outside == "nan" else 0
        want = seen(x, window, first, channel, tap, block, fill)
        assert np.array_equal(out, want, equal_nan=True), (window, first, tap)


@tawa.jit
def product(x_desc, w_desc, out_ptr, BM: tl.constexpr):
    first = tl.program_id(0) * BM
    rows, columns = x_desc.counts
    pixels = x_desc.shape[0] * rows * columns
    acc = tl.zeros((BM, 64), tl.float32)
    for step in range(6):
        x = x_desc.load([first, 0], tap=(step // 2, step % 2))
        acc = tl.dot(x, w_desc.load([0, step * 64]).T, acc)
    at = first + tl.arange(0, BM)
    tl.store(out_ptr + at[:, None] * 64 + tl.arange(0, 64)[None, :], acc, (at < pixels)[:, None])


@pytest.mark.parametrize(("height", "pins"), [(512, {}), (128, {"specialize": False})])
def test_a_product_over_windows(height, pins):
    """In rings of a producer, of several copies, and in a kernel of one role."""
    random = np.random.default_rng(0)
    window = Window((3, 2), (2, 1), ((1, 0), (2, 1)), (1, 2))
    x = random.integers(-3, 4, (2, 31, 17, 64)).astype(np.float16)
    w = random.integers(-3, 4, (64, 6 * 64)).astype(np.float16)
    counts = window.counts((31, 17))
    total = 2 * int(np.prod(counts))
    out = np.full((total, 64), np.nan, np.float32)
    desc = describe(x, window, [height, 64])
    assert desc.counts == counts
    filters = tawa.TensorDescriptor.from_tensor(w, [64, 64])
    made = product[(-(-total // height),)](desc, filters, out, BM=height, **pins)
    assert ("  mma" in str(made)) == (not pins)
    taps = [seen(x, window, 0, 0, (a, b), (total, 64)) for a in range(3) for b in range(2)]
    want = np.concatenate([each.astype(np.float64) for each in taps], 1) @ w.astype(np.float64).T
    assert np.array_equal(out, want)


def test_pixels_are_found_before_the_loop_that_loads_them():
    """A division in each step takes a producer longer than the products of a small tile."""
    desc = describe(
        tawa.array((2, 31, 17, 64), "f16"), Window((3, 2), (2, 1), ((1, 0),) * 2, (1, 1)), [128, 64]
    )
    filters = tawa.TensorDescriptor.from_tensor(tawa.array((64, 384), "f16"), [64, 64])
    made = product.compile(desc, filters, tawa.array((960, 64), "f32"), BM=128, grid=(8,))
    before, loop = made.asm.text("cuda").split("role_load(", 1)[1].split("for (int step", 1)
    assert before.count(" /= ") == 2
    assert " /= " not in loop.split("tma_load_windows", 1)[0]


@tawa.jit
def shared(x_desc, w_desc, out_ptr, columns, steps):
    column = tl.program_id(0) * 64
    first = tl.program_id(1) * 128
    acc = tl.zeros((128, 64), tl.float32)
    for step in range(steps):
        x = x_desc.load([first, 0], tap=(step // 2, step % 2))
        acc = tl.dot(x, w_desc.load([column, step * 64]).T, acc)
    at = first + tl.arange(0, 128)
    tl.store(out_ptr + at[:, None] * columns + (column + tl.arange(0, 64))[None, :], acc)


def test_blocks_of_a_cluster_share_windows():
    random = np.random.default_rng(0)
    window = Window((2, 2), (1, 2), ((1, 0), (0, 1)), (1, 1))
    x = random.integers(-3, 4, (2, 13, 15, 64)).astype(np.float16)
    w = random.integers(-3, 4, (256, 4 * 64)).astype(np.float16)
    out = np.full((256, 256), np.nan, np.float32)
    filters = tawa.TensorDescriptor.from_tensor(w, [64, 64])
    made = shared[(4, 2)](describe(x, window, [128, 64]), filters, out, 256, 4, cluster=2)
    shares = [line for line in made.asm["hopper"].splitlines() if "multicast" in line]
    assert any("x_map" in line for line in shares)
    taps = [seen(x, window, 0, 0, (a, b), (256, 64)) for a in range(2) for b in range(2)]
    want = np.concatenate([each.astype(np.float64) for each in taps], 1) @ w.astype(np.float64).T
    assert np.array_equal(out, want)


def test_the_text_of_a_window_reads_back():
    for number in range(50):
        window = drawn(np.random.default_rng(number))[1]
        assert parse_window(str(window)) == window
    with pytest.raises(ValueError, match="not a window"):
        parse_window("3x3")


IMAGES = tawa.array((2, 20, 20, 16), "f16")


@pytest.mark.parametrize(
    ("why", "x", "window", "how"),
    [
        ("at most 8", IMAGES, 3, {"stride": (9, 1)}),
        ("at least 1", IMAGES, 3, {"stride": 0}),
        ("at least 1", IMAGES, (3, 0), {}),
        ("2 axes of pixels", IMAGES, (3, 3, 3),
         {"stride": (1,) * 3, "padding": (0,) * 3, "dilation": (1,) * 3}),
        ("differ in their axes", IMAGES, 3, {"stride": (1, 1, 1)}),
        ("the lower corner", IMAGES, 3, {"padding": 129}),
        ("the upper corner", IMAGES, 3, {"dilation": 65}),
        ("none fits", IMAGES, 21, {}),
        ("1 to 3 axes", tawa.array((2, 16), "f16"), (), {}),
        ("1 to 3 axes", tawa.array((2, 3, 3, 3, 3, 16), "f16"), 3, {}),
        ("the lower corner", tawa.array((2, 8, 8, 8, 16), "f16"), 3, {"padding": 17}),
        ("pixels into its window", tawa.array((2, 90, 8, 16), "f16"), 3,
         {"padding": ((0, 256), 0), "dilation": (128, 1)}),
    ],
)  # fmt: skip
def test_windows_that_are_not_counted(why, x, window, how):
    with pytest.raises(DescriptorError, match=why):
        tawa.WindowDescriptor(x, window, [64, 16], **how)
    if why == "1 to 3 axes":
        return
    with pytest.raises(DescriptorError, match="a block is"):
        tawa.WindowDescriptor(IMAGES, 3, [64, 16, 2])


def test_what_tma_does_not_step_over_is_refused_at_the_launch():
    odd = np.zeros((2, 9, 9, 3), np.float16)
    out = np.zeros((64, 32), np.float16)
    with pytest.raises(DescriptorError, match="multiples of 16 bytes, got 486"):
        see_2d[(1,)](tawa.WindowDescriptor(odd, 3, [64, 32]), out, 0, 0, 0, 0, BM=64, BK=32)
    images = np.zeros((2, 9, 9, 16), np.float16)
    desc = tawa.WindowDescriptor(images, 3, [64, 32])
    with pytest.raises(LaunchError, match="3x3 taps"):
        see_2d[(1,)](desc, out, 0, 0, 0, 3, BM=64, BK=32)
    with pytest.raises(LaunchError, match="counted from 0"):
        see_2d[(1,)](desc, out, -1, 0, 0, 0, BM=64, BK=32)


@tawa.jit
def no_tap(x_desc, y_desc, out_ptr):
    tl.store(out_ptr + tl.arange(0, 16), tl.sum(x_desc.load([0, 0]), 0))


@tawa.jit
def tap_outside(x_desc, y_desc, out_ptr):
    tl.store(out_ptr + tl.arange(0, 16), tl.sum(x_desc.load([0, 0], tap=(0, 3)), 0))


@tawa.jit
def one_number(x_desc, y_desc, out_ptr):
    tl.store(out_ptr + tl.arange(0, 16), tl.sum(x_desc.load([0, 0], tap=1), 0))


@tawa.jit
def tap_of_a_tile(x_desc, y_desc, out_ptr):
    tl.store(out_ptr + tl.arange(0, 16), tl.sum(y_desc.load([0, 0], tap=(0, 0)), 0))


@tawa.jit
def stored(x_desc, y_desc, out_ptr):
    x_desc.store([0, 0], y_desc.load([0, 0]))


@tawa.jit
def added(x_desc, y_desc, out_ptr):
    x_desc.atomic_add([0, 0], y_desc.load([0, 0]))


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (no_tap, "needs tap="), (tap_outside, "tap 3 lies outside a window of 3x3"),
        (one_number, "2 numbers"), (tap_of_a_tile, "taps are places in a window"),
        (stored, "TMA only loads"), (added, "TMA only loads"),
    ],
)  # fmt: skip
def test_kernels_that_are_refused(kernel, why):
    x = tawa.WindowDescriptor(IMAGES, 3, [64, 16])
    y = tawa.TensorDescriptor.from_tensor(tawa.array((64, 16), "f16"), [64, 16])
    with pytest.raises(DescriptorError, match=why):
        kernel.compile(x, y, tawa.array((16,), "f16"), grid=(1,))


@tawa.jit
def of_two(x_desc, y_desc, out_ptr, which):
    one = x_desc
    if which > 0:
        one = y_desc
    tl.store(out_ptr + tl.arange(0, 16), tl.sum(one.load([0, 0], tap=(0, 0)), 0))


def test_windows_are_not_chosen_by_control_flow():
    one, other = (tawa.WindowDescriptor(IMAGES, 3, [64, 16]) for _ in range(2))
    with pytest.raises(DescriptorError, match="control flow"):
        of_two.compile(one, other, tawa.array((16,), "f16"), 5, grid=(1,))


def test_kernels_without_source_and_programs():
    """What an array is described as follows from the type of the kernel's argument."""
    window = Window((2, 2), (2, 1), ((1, 0), (0, 0)), (1, 1))
    k = KernelBuilder("one_tap")
    x, y = k.descriptor("x", "f16", (64, 16), window=window), k.descriptor("y", "f16", (64, 16))
    assert len(x.counts) == 2
    assert len(x.shape) == 4
    y.store([0, 0], x.load([0, 0], tap=(1, 0), name="seen"), name="kept")
    made = tawa.compile_ir(k.finish())
    images = np.random.default_rng(0).integers(1, 9, (1, 9, 7, 16)).astype(np.float16)
    out = np.zeros((64, 16), np.float16)
    made[(1,)](describe(images, window, (64, 16)), tawa.TensorDescriptor.from_tensor(out, [64, 16]))
    want = seen(images, window, 0, 0, (1, 0), (64, 16))
    assert np.array_equal(out, want)
    again = np.zeros_like(out)
    step = tawa.Step(made, (1,), {"x": "images", "y": "again"})
    tawa.Program("see", ("images", "again"), (), (step,))(images, again)
    assert np.array_equal(again, want)
    with pytest.raises(DescriptorError, match="at most 8"):
        k.descriptor("z", "f16", (64, 16), window=Window((1,), (9,), ((0, 0),), (1,)))


def test_launchers_in_c_refuse_windows():
    from tawa.tools.aot.names import fields_of

    made = see_2d.compile(
        tawa.WindowDescriptor(IMAGES, 3, [64, 16]), tawa.array((64, 16), "f16"), 0, 0, 0, 0,
        BM=64, BK=16, grid=(1,),
    )  # fmt: skip
    with pytest.raises(ArgumentError, match="windows"):
        fields_of(made, set())
