"""From the arguments of a call to a signature: types, constants, divisibility, and refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tawa
from runtime_fakes import GpuArray
from tawa.errors import ArgumentError, DescriptorError
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.plan.pins import Pins
from tawa.runtime.arrays import CPU, NOWHERE, Device, host_array, look
from tawa.runtime.dtypes import bf16_bits, dtype_name, numpy_dtype
from tawa.runtime.kernel import KernelFunction
from tawa.runtime.specialize import bind, derive_signature, signature_key


class constexpr:
    def __init__(self, value):
        self.value = value


class dtype:
    def __init__(self, name):
        self.name = name


def add(x, y, n, BLOCK: constexpr, bias=None):
    pass


ADD = KernelFunction(add)


def signature(*args, kernel=ADD, **keywords):
    return derive_signature(kernel, bind(kernel, args, keywords).values)


def test_signature_of_pointers_ints_and_constants():
    x, y = GpuArray((64,)), GpuArray((64,), address=0x7F0000000004)
    assert signature(x, y, 64, 32) == {
        "x": PointerArg("f32", divisible=True),
        "y": PointerArg("f32", divisible=False),
        "n": ScalarArg("i32", divisible=True),
        "BLOCK": ConstantArg(32),
        "bias": ConstantArg(None),
    }


@pytest.mark.parametrize(
    ("value", "argument"),
    [
        (1, ConstantArg(1)),
        (0, ScalarArg("i32", True)),
        (17, ScalarArg("i32")),
        (1000, ScalarArg("i32", by_eight=True)),
        (-8, ScalarArg("i32", by_eight=True)),
        (1004, ScalarArg("i32")),
        (-(2**31), ScalarArg("i32", True)),
        (2**31, ScalarArg("i64", True)),
        (2**63 + 1, ScalarArg("u64")),
        (True, ScalarArg("i1")),
        (1.0, ScalarArg("f32")),
        (np.int64(48), ScalarArg("i32", True)),
        (np.float32(0.5), ScalarArg("f32")),
        (np.bool_(True), ScalarArg("i1")),
        (None, ConstantArg(None)),
        (constexpr(7), ConstantArg(7)),
    ],
)
def test_numbers(value, argument):
    assert signature(GpuArray((1,)), GpuArray((1,)), value, 32)["n"] == argument


def test_annotated_types_hold_and_are_never_constants():
    def kernel(a, b, c, d, e):
        pass

    types = (dtype("int64"), dtype("fp16"), "tl.float64", int, "tl.constexpr")
    kernel.__annotations__ = dict(zip("abcde", types))
    found = signature(1, 2.0, 3.0, 1, 5, kernel=KernelFunction(kernel))
    assert list(found.values()) == [
        ScalarArg("i64"),
        ScalarArg("f16"),
        ScalarArg("f64"),
        ConstantArg(1),
        ConstantArg(5),
    ]


def test_do_not_specialize():
    def kernel(x, n, m):
        pass

    plain = KernelFunction(kernel, do_not_specialize=["n", 0])
    assert list(signature(GpuArray((16,)), 1, 1, kernel=plain).values()) == [
        PointerArg("f32"),
        ScalarArg("i32"),
        ConstantArg(1),
    ]
    unaligned = KernelFunction(kernel, do_not_specialize_on_alignment=["x", "n"])
    assert list(signature(GpuArray((16,)), 16, 16, kernel=unaligned).values()) == [
        PointerArg("f32"),
        ScalarArg("i32"),
        ScalarArg("i32", True),
    ]


def test_descriptors_ours_and_tritons():
    ours = tawa.TensorDescriptor.from_tensor(tawa.array((64, 32), "bf16"), [16, 32], "nan")
    triton = type("TensorDescriptor", (), {"__module__": "triton.tools.tensor_descriptor"})()
    triton.base, triton.shape, triton.strides = GpuArray((64, 32), "float16"), [64, 32], [32, 1]
    triton.block_shape, triton.padding = [8, 32], "zero"
    found = signature(ours, triton, 16, 32)
    assert found["x"] == DescriptorArg("bf16", (16, 32), "nan")
    assert found["y"] == DescriptorArg("f16", (8, 32), "zero")


def test_descriptors_are_mutable():
    descriptor = tawa.TensorDescriptor.from_tensor(tawa.array((64, 32), "bf16"), [1, 1])
    descriptor.block_shape = [32, 16]
    assert signature(descriptor, None, 16, 32)["x"] == DescriptorArg("bf16", (32, 16))


def test_equal_constants_of_different_types_differ():
    keys = {signature_key({"n": ConstantArg(value)}) for value in (1, 1.0, True)}
    assert len(keys) == 3


def test_constants_of_numpy_are_numbers():
    found = signature(0, 0, 0, np.int64(32), bias=np.float32(0.5))
    assert found["BLOCK"] == ConstantArg(32)
    assert type(found["BLOCK"].value) is int
    assert found["bias"] == ScalarArg("f32")


def test_options_pins_and_modes():
    call = bind(ADD, (0, 0, 0, 0), {"num_warps": 8, "depth": {"a": 4}, "strict": True})
    assert call.options == {"num_warps": 8}
    assert call.pins == Pins(depth={"a": 4})
    assert call.strict


def test_a_parameter_named_like_an_option_is_both():
    def kernel(x, num_stages: constexpr):
        pass

    call = bind(KernelFunction(kernel), (0,), {"num_stages": 4})
    assert call.values["num_stages"] == 4
    assert call.options == {"num_stages": 4}


@pytest.mark.parametrize(
    ("args", "keywords", "text"),
    [
        ((0,), {}, "add needs 'y', 'n', 'BLOCK', which the call does not give"),
        ((0, 0, 0, 0, 0, 0), {}, "add got 6 positional arguments"),
        ((0, 0, 0, 0), {"x": 0}, "add got 'x' twice"),
        ((0, 0, 0, 0), {"num_warp": 0}, "did you mean 'num_warps'"),
        ((0, 0, 0), {"BLOK": 0}, "add does not know 'BLOK'"),
        ((0, 0, 0, 0), {"num_warps": 3}, "add got num_warps=3"),
        ((0, 0, 0, 0), {"num_warps": 0}, "add got num_warps=0"),
        ((0, 0, 0, 0), {"num_warps": 4.0}, "add got num_warps=4.0"),
        ((0, 0, 0, 0), {"num_stages": -1}, "add got num_stages=-1"),
        ((0, 0, 0, 0), {"arch": "sm80"}, "add got arch='sm80'"),
    ],
)
def test_misfits_name_the_arguments(args, keywords, text):
    with pytest.raises(ArgumentError, match=text):
        bind(ADD, args, keywords)


@pytest.mark.parametrize(
    ("n", "block", "text"),
    [
        ("s", 32, "the argument 'n' is a str"),
        (1 << 64, 32, "'n' = 18446744073709551616 does not fit 64 bits"),
        (1, np.zeros(3), "the constexpr 'BLOCK' got an array"),
        (np.zeros(2, "complex64"), 32, "the element type complex64 has no counterpart"),
    ],
)
def test_bad_values(n, block, text):
    with pytest.raises(ArgumentError, match=text):
        signature(GpuArray((1,)), GpuArray((1,)), n, block)


def test_variadic_kernels_are_refused():
    def kernel(*pointers):
        pass

    with pytest.raises(ArgumentError, match=r"kernel has a parameter \*pointers"):
        bind(KernelFunction(kernel), (), {})


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("torch.bfloat16", "bf16"),
        ("fp8e4nv", "f8e4m3"),
        (np.dtype("float16"), "f16"),
        (np.dtype(ml_dtypes.float8_e5m2), "f8e5m2"),
        (np.dtype(bool), "i1"),
        (dtype("int1"), "i1"),
        ("u32", "u32"),
    ],
)
def test_dtype_names(spelling, name):
    assert dtype_name(spelling) == name
    assert dtype_name(numpy_dtype(name)) == name


@pytest.mark.parametrize("look_at", [look, lambda x: dtype_name(x.dtype)])
def test_another_byte_order_is_refused_with_a_remedy(look_at):
    array = np.arange(4, dtype=">f4")
    with pytest.raises(ArgumentError, match="float32 in the byte order of other machines") as error:
        look_at(array)
    assert 'x.astype(x.dtype.newbyteorder("="))' in error.value.remedy
    assert look(array.astype(array.dtype.newbyteorder("="))).dtype == "f32"


def test_bf16_rounds_to_even():
    values = np.array([1.0, 1.00390625, 1.01171875, -3.3, 1e38, np.inf], np.float32)
    expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert [bf16_bits(float(value)) for value in values] == expected.tolist()
    assert bf16_bits(float("nan")) & 0x7F80 == 0x7F80
    assert bf16_bits(float("nan")) & 0x7F


def test_views_of_numpy_and_placeholders():
    array = np.zeros((4, 6), np.float32)[:, ::2]
    view = look(array)
    assert (view.dtype, view.shape, view.strides, view.device) == ("f32", (4, 3), (6, 2), CPU)
    assert view.address == array.ctypes.data
    view = look(tawa.array((4, 8), "fp16", strides=(16, 1)))
    assert (view.dtype, view.strides, view.device) == ("f16", (16, 1), NOWHERE)


def test_views_of_gpu_arrays():
    view = look(GpuArray((4, 8), "bfloat16", device=3, strides=(16, 1)))
    assert (view.dtype, view.strides) == ("bf16", (16, 1))
    assert view.device == Device("cuda", 3)


class Capsule:
    """An array that speaks only DLPack, on the CPU."""

    def __init__(self, array):
        self.array = array
        self.dtype = array.dtype
        self.shape = array.shape

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_views_through_dlpack():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    view = look(Capsule(array))
    assert (view.dtype, view.shape, view.device) == ("f32", (3, 4), CPU)
    assert view.address == array.ctypes.data
    assert np.shares_memory(host_array(Capsule(array)), array)


def test_placeholder_errors():
    with pytest.raises(ArgumentError, match="2 dimensions has 1 strides"):
        tawa.array((2, 3), "f16", strides=(1,))
    with pytest.raises(ArgumentError, match="no counterpart"):
        tawa.array((2, 3), "complex64")


def test_descriptor_errors():
    with pytest.raises(DescriptorError, match="differ in length"):
        tawa.TensorDescriptor(tawa.array((2, 3), "f16"), [2, 3], [3, 1], [2])
    with pytest.raises(DescriptorError, match="padding='one'"):
        tawa.TensorDescriptor(tawa.array((2,), "f16"), [2], [1], [2], "one")
