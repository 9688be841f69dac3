"""Tensor maps: what TMA takes, what is refused with names and numbers, what the driver is told."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest

from tawa.codegen.parameters import TensorMapParameter
from tawa.errors import DescriptorError
from tawa.layouts.windows import Window
from tawa.runtime.tensor_map import Tensor, check, encode

ADDRESS = 0x7F0000000000


def parameter(dtype="bf16", box=(128, 64), swizzle=128, padding="zero", row=128):
    return TensorMapParameter("A", dtype, box, swizzle, padding, source="A", row=row)


def tensor(extents=(256, 128), strides=(128, 1), address=ADDRESS):
    return Tensor("A", address, extents, strides)


class Recorder:
    def __init__(self, code=0):
        self.code = code
        self.calls = []

    def __call__(self, at, kind, rank, address, extents, strides, box, ones, *modes):
        read = lambda where, size, count: list(  # noqa: E731
            ({4: ctypes.c_uint32, 8: ctypes.c_uint64}[size] * count).from_address(where)
        )
        self.calls.append(
            {
                "aligned": at % 64 == 0,
                "kind": kind,
                "rank": rank,
                "address": address,
                "extents": read(extents, 8, rank),
                "strides": read(strides, 8, max(rank - 1, 0)),
                "box": read(box, 4, rank),
                "steps": read(ones, 4, rank),
                "modes": modes,
            }
        )
        ctypes.memset(at, 0x5A, 128)
        return self.code

    encode_tiled = __call__

    def encode_im2col(self, at, kind, rank, address, extents, strides, *more):
        lower, upper, channels, pixels, steps, *modes = more
        read = lambda where, what, count: list((what * count).from_address(where))  # noqa: E731
        self.calls.append(
            {
                "extents": read(extents, ctypes.c_uint64, rank),
                "strides": read(strides, ctypes.c_uint64, rank - 1),
                "lower": read(lower, ctypes.c_int, rank - 2),
                "upper": read(upper, ctypes.c_int, rank - 2),
                "box": (channels, pixels),
                "steps": read(steps, ctypes.c_uint32, rank),
                "modes": tuple(modes),
            }
        )
        return self.code


def test_the_driver_gets_the_fastest_dimension_first():
    driver = Recorder()
    buffer = encode(parameter(), tensor(), driver)
    assert driver.calls == [
        {
            "aligned": True,
            "kind": 9,
            "rank": 2,
            "address": ADDRESS,
            "extents": [128, 256],
            "strides": [256],
            "box": [64, 128],
            "steps": [1, 1],
            "modes": (0, 3, 3, 0),
        }
    ]
    assert buffer.content() == b"\x5a" * 128


def test_numbers_are_the_drivers():
    driver = pytest.importorskip("cuda.bindings.driver")
    kinds = driver.CUtensorMapDataType
    names = {
        "u8": "UINT8",
        "f8e4m3": "UINT8",
        "u16": "UINT16",
        "u32": "UINT32",
        "i32": "INT32",
        "u64": "UINT64",
        "i64": "INT64",
        "f16": "FLOAT16",
        "f32": "FLOAT32",
        "f64": "FLOAT64",
        "bf16": "BFLOAT16",
    }
    for dtype, name in names.items():
        recorder = Recorder()
        encode(parameter(dtype, (16, 16), 0), tensor(), recorder)
        assert recorder.calls[0]["kind"] == getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
    for swizzle in (32, 64, 128):
        recorder = Recorder()
        encode(parameter("f16", (8, 16), swizzle), tensor(), recorder)
        expected = getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}B")
        assert recorder.calls[0]["modes"][1] == expected


def test_an_empty_tensor_has_no_map():
    driver = Recorder()
    empty = Tensor("A", 0, (128, 0), (1, 1))  # what torch says of a tensor with K = 0
    assert encode(parameter(), empty, driver).content() == bytes(128)
    assert driver.calls == []


def test_a_dimension_of_one_may_have_any_stride():
    driver = Recorder()
    encode(parameter(), tensor((1, 128), (3, 1)), driver)
    assert driver.calls[0]["strides"] == [16]


def test_windows_are_told_by_corners():
    window = Window((3, 5), (2, 1), ((1, 0), (2, 3)), (1, 2))
    driver = Recorder()
    images = Tensor("x", ADDRESS, (4, 20, 30, 64), (38400, 1920, 64, 1))
    encode(replace(parameter(), window=window), images, driver)
    assert driver.calls == [
        {
            "extents": [64, 30, 20, 4],
            "strides": [128, 3840, 76800],
            "lower": [-2, -1],
            "upper": [-5, -2],
            "box": (64, 128),
            "steps": [1, 1, 2, 1],
            "modes": (0, 3, 2, 0),
        }
    ]
    far = replace(images, extents=(1 << 24, 20, 30, 64))
    with pytest.raises(DescriptorError, match="windows"):
        encode(replace(parameter(), window=window), far, driver)
    with pytest.raises(DescriptorError, match="4 dimensions and its block_shape 2"):
        encode(parameter(), images, driver)


def test_padding_nan():
    driver = Recorder()
    encode(parameter(padding="nan"), tensor(), driver)
    assert driver.calls[0]["modes"][3] == 1


@pytest.mark.parametrize(
    ("parameter", "tensor", "text"),
    [
        (
            parameter(),
            tensor(strides=(65, 1)),
            r"A: TMA needs strides that are multiples of 16 bytes, got 130 \(65 x bf16\) along"
            r" dimension 0\n  do:  pad the rows of A to 72 elements",
        ),
        (parameter(), tensor(address=ADDRESS + 8), "base address .* 8 bytes past one"),
        (parameter(), tensor(strides=(1, 256)), "contiguous last dimension, got a stride of 256"),
        (parameter(box=(512, 64)), tensor(), "1 to 256 elements a dimension, got 512 along dim"),
        (
            parameter(box=(128, 4), swizzle=0),
            tensor(),
            r"multiples of 16 bytes, got 8 \(4 x bf16\)\n  do:  make the last entry of block_shape"
            " a multiple of 8",
        ),
        (parameter(box=(64, 128)), tensor(), "a box row of 256 bytes does not fit the swizzle"),
        (parameter(), tensor((1 << 32, 128)), "up to 2.32 - 1, got 4294967296 along dimension 0"),
        (parameter(), tensor(strides=(1 << 40, 1)), "up to 2.40 - 1 bytes, got 2199023255552"),
        (parameter(), tensor((2, 3, 4), (12, 4, 1)), "A has 3 dimensions and its block_shape 2"),
        (parameter("f8e4m3", (64, 128), padding="nan"), tensor(), "needs elements of f16, bf16"),
    ],
)
def test_what_tma_cannot_take(parameter, tensor, text):
    with pytest.raises(DescriptorError, match=text):
        check(parameter, tensor)


def test_a_refusal_of_the_driver_is_named():
    with pytest.raises(DescriptorError, match=r"no tensor map of A \(error 1\)"):
        encode(parameter(), tensor(), Recorder(1))


@pytest.mark.parametrize(
    ("row", "columns", "fetched"),
    [
        (128, 128, 3),  # 64 of 128 columns: L2 fetches what the next tile reads
        (256, 128, 2),  # two panels: the tile asks for all of a row
        (128, 64, 2),  # rows lie end to end
        (128, 136, 2),  # rows begin inside of lines: each asks for two
    ],
)
def test_what_a_miss_fetches(row, columns, fetched):
    driver = Recorder()
    encode(parameter(row=row), tensor((256, columns), (columns, 1)), driver)
    assert driver.calls[0]["modes"][2] == fetched
