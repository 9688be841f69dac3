"""Errors of the frontend about memory, helpers, arguments, and what a first kernel gets wrong."""

import re

import numpy as np
import pytest

import tawa.language as tl
from frontend_kernels import jit
from frontend_refusals import refused
from tawa.errors import (
    ArgumentError,
    DescriptorError,
    TypeMismatch,
    UnknownName,
    UnsupportedSyntax,
)
from tawa.frontend.signature import DescriptorArg

TILE = DescriptorArg("f16", (16, 16))


# --- memory ------------------------------------------------------------------------------------


def test_load_of_a_number():
    def kernel(n):
        tl.load(n)

    assert refused(TypeMismatch, kernel, n="i32").what == "an address is needed here, this is int32"


def test_other_without_mask():
    def kernel(x):
        tl.store(x, tl.load(x, other=0))

    assert refused(TypeMismatch, kernel, x="i32*").what == "tl.load got `other` without `mask`"


def test_store_of_a_wider_value():
    def kernel(x):
        tl.store(x, tl.arange(0, 8))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "the value of tl.store is int32[8], its pointer pointer<int32>"


def test_mask_of_numbers():
    def kernel(x):
        at = tl.arange(0, 8)
        tl.store(x + at, 1, mask=at)

    assert refused(TypeMismatch, kernel, x="i32*").what == (
        "a mask holds truth values, this is int32[8]"
    )


def test_descriptor_offsets():
    def kernel(a):
        a.store([0], a.load([0, 0]))

    error = refused(TypeMismatch, kernel, a=TILE)
    assert error.what == "1 offsets for a descriptor of fp16[16, 16]"


def test_descriptor_of_wide_offsets():
    def kernel(a, n):
        a.store([0, n], a.load([0, 0]))

    error = refused(TypeMismatch, kernel, a=TILE, n="i64")
    assert error.what == "an offset is int32, this is int64"
    assert error.remedy == "convert it with .to(tl.int32)"


def test_descriptor_block():
    def kernel(a):
        a.store([0, 0], a.load([0, 0]).reshape(8, 32))

    error = refused(TypeMismatch, kernel, a=TILE)
    assert error.what == "a tensor fp16[8, 32] does not fit a descriptor of fp16[16, 16]"


def test_descriptor_last_stride():
    def kernel(x, n, B: tl.constexpr):
        tl.make_tensor_descriptor(x, [n, n], [1, n], [B, B])

    error = refused(DescriptorError, kernel, x="f16*", n="i32", B=16)
    assert error.what == "the last stride of a descriptor is int32"
    assert "the last stride is the constant 1" in error.why


def test_descriptor_rows_too_short():
    def kernel(x, n):
        tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 4])

    error = refused(DescriptorError, kernel, x="f16*", n="i32")
    assert error.what == "rows of block_shape are 4 x fp16 = 8 bytes"
    assert error.remedy == "make the last extent of block_shape 8 or more"


def test_atomic_of_a_narrow_type():
    def kernel(x):
        tl.atomic_max(x, 1.0)

    assert refused(TypeMismatch, kernel, x="f16*").what == "atomic_max does not take fp16"


# --- helpers, reductions, arguments ------------------------------------------------------------


@jit
def inner(x):
    return tl.exp(x)


@jit
def middle(x):
    return inner(x) + 1


def test_the_call_chain():
    def kernel(x):
        tl.store(x, middle(tl.load(x)))

    error = refused(TypeMismatch, kernel, x="f16*")
    lines = [call.line for call in error.calls]
    assert error.place.line == inner.fn.__code__.co_firstlineno + 2
    assert lines == [
        middle.fn.__code__.co_firstlineno + 2,
        kernel.__code__.co_firstlineno + 1,
    ]
    assert len(re.findall("called from", str(error))) == 2


@jit
def endless(x):
    return endless(x)


def test_recursion():
    def kernel(x):
        tl.store(x, endless(1))

    assert refused(UnsupportedSyntax, kernel, x="i32*").what == "endless calls itself"


@jit
def counting(n: tl.constexpr):
    return counting(n + 1)


def test_a_call_that_only_constants_could_end():
    def kernel(x):
        tl.store(x, counting(0))

    error = refused(UnsupportedSyntax, kernel, x="i32*")
    assert error.what == "the calls in kernel have no end"


def test_returns_of_two_types():
    @jit
    def helper(x):
        if x > 0:
            return x
        return 1.5

    def kernel(x):
        tl.store(x, helper(tl.load(x)))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "helper returns int32 or fp32"


def test_combine_function_changes_type():
    @jit
    def combine(a, b):
        return (a + b).to(tl.float32)

    def kernel(x):
        tl.store(x, tl.reduce(tl.arange(0, 8), 0, combine))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "the combine function gives fp32"


def test_axis_outside():
    def kernel(x):
        tl.store(x, tl.sum(tl.arange(0, 8), axis=1))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "axis 1 is outside a tensor of 1 dimension"


def test_missing_argument():
    def kernel(x, B: tl.constexpr):
        tl.store(x, B)

    assert refused(ArgumentError, kernel, x="i32*").what == "kernel got no argument B"


def test_unknown_argument():
    def kernel(x):
        tl.store(x, 1)

    error = refused(ArgumentError, kernel, x="i32*", C=3)
    assert error.what == "kernel has no parameter C"


def test_run_time_value_for_a_constexpr():
    def kernel(x, B: tl.constexpr):
        tl.store(x, B)

    error = refused(ArgumentError, kernel, x="i32*", B="i32")
    assert error.what == "B is a tl.constexpr and got a value of the run"


# --- what a first kernel gets wrong ------------------------------------------------------------


def indexes_a_pointer(x):
    tl.store(x, x[tl.arange(0, 4)])


def compares_a_pointer(x):
    tl.store(x, 1, mask=x > 3)


def misspells_a_keyword(x):
    tl.store(x, tl.load(x, msk=True))


def transposes_as_triton_did(x):
    tile = tl.zeros((16, 16), tl.float16)
    tl.store(x, tl.sum(tl.dot(tile, tile, trans_b=True)))


def asks_for_the_library_as_triton_did(x):
    tl.store(x, tl.libdevice.erf(tl.load(x)))


def calls_what_the_language_has(x):
    tl.store(x, np.exp(tl.load(x)))


def takes_the_type_of_a_library(x):
    tl.store(x, tl.zeros((4,), int))


@pytest.mark.parametrize(
    ("kind", "kernel", "what", "remedy"),
    [
        (TypeMismatch, indexes_a_pointer, "a pointer<int32> is not indexed", "tl.load(pointer +"),
        (TypeMismatch, compares_a_pointer, "`>` does not take pointer<int32>", "pass a number"),
        (TypeMismatch, misspells_a_keyword, "unexpected keyword argument 'msk'", "mean mask?"),
        (TypeMismatch, transposes_as_triton_did, "'trans_b'", "pass tl.trans(b) for b"),
        (UnknownName, asks_for_the_library_as_triton_did, "libdevice", "it is tl.extra.libdevice"),
        (UnsupportedSyntax, calls_what_the_language_has, "exp cannot be called", "use tl.exp"),
        (TypeMismatch, takes_the_type_of_a_library, "must be a compile-time", "tl.float32"),
    ],
)
def test_first_mistakes(kind, kernel, what, remedy):
    error = refused(kind, kernel, x="i32*")
    assert what in error.what
    assert remedy in error.remedy
    assert error.place is not None
