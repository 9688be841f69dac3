"""What kernels of other people say in ways that Triton takes: constants, indices, array views."""

import copy
import functools
import subprocess
import sys
from types import SimpleNamespace
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError, TypeMismatch, UnknownName, UnsupportedSyntax


@tawa.jit
def half(n):
    return n // 2


@tawa.jit
def flip_lowest(x, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(x + o)
    kind: tl.constexpr = tl.core.get_int_dtype(bitwidth=v.dtype.primitive_bitwidth, signed=True)
    tl.store(x + o, (v.to(kind, bitcast=True) ^ 1).to(v.dtype, bitcast=True))


@pytest.mark.parametrize("kind", [np.float32, np.int16, np.float64])
def test_get_int_dtype_by_keywords(kind):
    x = np.arange(1, 17).astype(kind)
    bits = f"int{8 * x.itemsize}"
    expected = (x.view(bits) ^ 1).view(kind)
    flip_lowest[1,](x, B=16)
    assert np.array_equal(x, expected)


@tawa.jit
def constants(x, s: tl.constexpr, H: tl.constexpr, B: tl.constexpr):
    T: tl.constexpr = tl.cdiv(s * 3, H)
    M: tl.constexpr = tl.minimum(tl.maximum(s, H), 64)
    L: tl.constexpr = half(B)
    for i in tl.static_range(tl.cdiv(H, s)):
        tl.store(x + i * M + tl.arange(0, L), T)
    tl.store(x + M - 1 + tl.arange(0, tl.cdiv(B, 8)), tl.cdiv(7.0, 2.0) if False else L)


def test_functions_of_constants_are_constants():
    x = np.zeros(128, np.int32)
    constants[1,](x, s=8, H=16, B=16)
    expected = np.zeros(128, np.int32)
    expected[0:8] = expected[16:24] = 2  # cdiv(24, 16), in two iterations 16 apart
    expected[15:17] = 8
    assert np.array_equal(x, expected)


@tawa.jit
def declared(x, n, B: tl.constexpr):
    T: tl.constexpr = tl.cdiv(n, 2)
    tl.store(x + tl.arange(0, B), T)


def test_what_a_run_gives_may_have_the_annotation():
    x = np.zeros(16, np.int32)
    declared[1,](x, 5, B=16)
    assert np.array_equal(x, np.full(16, 3))


@tawa.jit
def masked(x, n, B: tl.constexpr):
    o = tl.arange(0, B)
    c = tl.program_id(0) < n
    tl.store(x + tl.program_id(0) * B + o, 1.0, mask=(o < 5) & c[:, None] & c[None] & c[:])


def test_a_scalar_is_indexed():
    x = np.zeros(32, np.float32)
    masked[2,](x, 1, B=16)
    assert np.array_equal(np.flatnonzero(x), np.arange(5))


@tawa.jit
def after_loop(x, n, B: tl.constexpr):
    o = tl.arange(0, B)
    s = tl.zeros((B,), tl.float32)
    for i in range(n):
        s += tl.load(x + i * B + o)
    p = x + i * B + o
    q = p + 1  # noqa: F841
    tl.store(x + o, s)


@tawa.jit
def index_read(x, n, B: tl.constexpr):
    o = tl.arange(0, B)
    for i in range(n):
        tl.store(x + o, i)
    p = x + i * B + o
    if n > 3:
        tl.store(p, 2.0)


def test_an_index_after_its_loop_may_stand_in_dead_code():
    x = np.arange(48, dtype=np.float32)
    expected = x.reshape(3, 16).sum(axis=0)
    after_loop[1,](x, 3, B=16)
    assert np.array_equal(x[:16], expected)


def test_an_index_that_is_read_after_its_loop_is_refused_where_it_stands():
    with pytest.raises(UnknownName, match="i has no value here") as caught:
        index_read.compile(tawa.array((16,), "f32"), 5, B=16)
    assert "p = x + i * B + o" in str(caught.value)


class TensorWrapper:
    """What ``triton.reinterpret`` makes: an array, and the type that it is read as."""

    __module__ = "triton.runtime.jit"

    def __init__(self, base, dtype):
        self.base, self.dtype = base, dtype


@tawa.jit
def widen(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(y + o, tl.load(x + o).to(tl.float32))


@pytest.mark.parametrize("kind", [tl.float8e5, tl.float8e4nv, tl.int8])
def test_reinterpreted_arrays(kind):
    bits = np.arange(0, 64, dtype=np.uint8)
    names = {"fp8e5": ml_dtypes.float8_e5m2, "fp8e4nv": ml_dtypes.float8_e4m3fn, "int8": np.int8}
    y = np.zeros(64, np.float32)
    for _ in range(2):  # compiled, then from what is remembered
        y[:] = -1
        widen[1,](TensorWrapper(bits, kind), y, B=64)
        assert np.array_equal(y, bits.view(names[kind.name]).astype(np.float32))


def test_a_reinterpretation_to_another_width_is_refused():
    with pytest.raises(ArgumentError, match="an array of u8 is reinterpreted as f16"):
        widen[1,](TensorWrapper(np.zeros(64, np.uint8), tl.float16), np.zeros(64, np.float32), B=64)


class Window:
    """A pointer as Triton takes it: some memory, read under a shape and strides of its own."""

    def __init__(self, base, shape, steps, offset=0):
        self.base, self.dtype, self.shape, self._steps = base, base.dtype, shape, steps
        self.device = CPU_DEVICE
        self._at = base.ctypes.data + offset * base.itemsize

    def data_ptr(self):
        return self._at

    def stride(self):
        return self._steps


class Bare:
    """The least that Triton takes."""

    def __init__(self, base):
        self.base, self.dtype, self.device = base, base.dtype, CPU_DEVICE

    def data_ptr(self):
        return self.base.ctypes.data


CPU_DEVICE = SimpleNamespace(type="cpu")


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_what_has_a_type_and_an_address_is_an_array(kind):
    x, y = np.arange(128).astype(kind), np.zeros(64, np.float32)
    widen[1,](Window(x, (64,), (1,), 7), y, B=64)
    assert np.array_equal(y, np.arange(7, 71, dtype=np.float32))
    made = widen.compile(Bare(x), y, B=64)
    assert made.plan is not None
    with pytest.raises(ArgumentError, match="a pointer without a shape"):
        widen[1,](Bare(x), y, B=64)


@tl.constexpr
def highest_bit(bits):
    bits = bits.value if isinstance(bits, tl.constexpr) else bits
    return 1 << (bits - 1)


@tawa.jit
def with_sign(x, B: tl.constexpr):
    o = tl.arange(0, B)
    bit: tl.constexpr = highest_bit(x.dtype.element_ty.primitive_bitwidth)
    tl.store(x + o, tl.load(x + o) | tl.full((), value=bit, dtype=tl.uint32))


def test_a_constexpr_that_is_a_function_runs_in_python():
    x = np.arange(32, dtype=np.uint32)
    with_sign[1,](x, B=32)
    assert np.array_equal(x, np.arange(32, dtype=np.uint32) | np.uint32(1 << 31))


def test_every_module_may_be_imported_before_the_first_compile():
    script = """
import importlib, pkgutil, tawa
import tawa.language as tl
for found in pkgutil.walk_packages(tawa.__path__, "tawa."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
for name in ("codegen", "frontend", "simulator", "runtime", "kernels", "passes", "plan"):
    package = getattr(tawa, name)
    for public in getattr(package, "__all__", ()):
        assert public not in {m.name for m in pkgutil.iter_modules(package.__path__)}, public
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def tritons(x):
    return x.no_such_attribute


tritons.__module__ = "triton.language.extra.cuda.utils"
tritons = tawa.jit(tritons)


@tawa.jit
def calls_tritons(x):
    tl.store(x, tritons(tl.load(x)))


def test_text_of_triton_that_does_not_compile_is_refused_at_the_users_call():
    with pytest.raises(UnsupportedSyntax, match=r"utils\.tritons cannot be called so") as caught:
        calls_tritons.compile(tawa.array((4,), "i32"))
    said = str(caught.value).splitlines()
    assert "tl.store(x, tritons(tl.load(x)))" in said[2]
    assert any("has no attribute no_such_attribute" in line for line in said)


class Pair(NamedTuple):
    first: tl.constexpr
    second: tl.constexpr


@tl.constexpr_function
def total(pair):
    return pair.first + pair.second


@tawa.jit
def grown(values):
    return tl.tuple([value + 1 for value in values])


@tawa.jit
def tuples(x, values):
    pair = tl.tuple((1, 2))
    if values == (5, values[1], 7) and values != (5, 6, 8) and values != (5, 6):
        tl.store(x + 7, (values, 1) == ((5, 6, 7), 1))
    more = grown(values) + (total(Pair(3, 4)), pair == (1, 2))  # noqa: RUF005  # pyright: ignore[reportOperatorIssue]
    for i in tl.static_range(len(more)):
        tl.store(x + i, more[i])


def test_tuples_are_made_and_reach_functions_of_constants():
    x = np.zeros(8, np.int32)
    tuples[1,](x, (5, 6, 7))
    assert x.tolist() == [6, 7, 8, 7, 1, 0, 0, 1]


@tawa.jit
def sought(x, n):
    one = tl.make_block_ptr(x, (8,), (1,), (0,), (4,), (0,))
    other = tl.make_block_ptr(x, (8,), (1,), (4,), (4,), (0,))
    tl.store(x, 5 in (n, 3))
    tl.store(x + 1, 6 in (n, 3))
    tl.store(x + 2, n not in (1, 5))
    tl.store(x + 3, (n, 1) in ((4, 1), (5, 1)))
    tl.store(x + 4, (one, 1) == (other, 1))
    tl.store(x + 5, (one, 1) == (one, 1))
    if 5 not in (1, 5):
        tl.static_assert(False)


def test_what_is_in_a_tuple_is_decided_in_the_run():
    """Two descriptions of memory are equal if they are the same."""
    x = np.full(6, 9, np.int32)
    sought[1,](x, 5)
    assert x.tolist() == [1, 0, 0, 1, 0, 1]


@tawa.jit
def answered(x, y, n):
    if hasattr(x, "dtype") and x.dtype.is_ptr() and not hasattr(n, "nothing"):
        tl.store(y, hasattr((x, n), "first"))
        tl.store(y + 1, hasattr(n, "dtype"))
        row = tl.arange(0, 4)
        tl.store(y + 2, hasattr(row, "T"))
        tl.store(y + 3, hasattr(row[:, None], "T"))


def test_values_of_the_run_are_asked_for_attributes():
    y = np.full(4, 9, np.int32)
    answered[1,](np.zeros(1, np.float32), y, 7)
    assert y.tolist() == [0, 1, 0, 1]


@tl.constexpr_function
def type_behind(x):
    if isinstance(x, tl.tensor):
        return x.dtype.element_ty
    elif isinstance(x, tl.tensor_descriptor):
        return x.dtype
    else:
        raise ValueError(f"no type of {type(x)}")


@tl.constexpr_function
def one_more(n):
    return n + 1


@tawa.jit
def typed(x, y, n, MORE: tl.constexpr):
    described = tl.make_tensor_descriptor(x, [8, 16], [16, 1], [8, 16])
    tl.static_assert(type_behind(x) == tl.float16)
    tl.static_assert(type_behind(described) == tl.float16)
    tl.store(y, tl.full((), 1, type_behind(y)))
    if MORE:
        tl.store(y, one_more(n))


def test_functions_of_compile_time_are_asked_for_the_types_of_values():
    """A value itself, which only the run knows, is refused by the function's name."""
    y = np.zeros(1, np.float32)
    typed[1,](np.zeros((8, 16), np.float16), y, 3, MORE=False)
    assert y[0] == 1
    with pytest.raises(TypeMismatch, match="one_more runs at compile time"):
        typed.compile_to_run(np.zeros((8, 16), np.float16), y, 3, MORE=True)


@tawa.jit
def limits(x, out, B: tl.constexpr):
    o = tl.arange(0, B)
    M: tl.constexpr = torch.iinfo(torch.int16).max
    v = tl.load(x + o)
    tl.store(out + o, tl.where(v > 0, -torch.finfo(torch.float32).max, M))


def test_what_a_type_holds():
    x = np.array([1, -1] * 8, np.float32)
    out = np.zeros(16, np.float32)
    limits[1,](x, out, B=16, extern_libs={"libdevice": "/a/path/libdevice.10.bc"})
    assert np.array_equal(out, np.where(x > 0, np.finfo(np.float32).min, 32767))


class Sizes:
    """A class with an attribute that Python's own classes do not describe."""

    BLOCK = 16

    @functools.cached_property
    def rows(self):
        return 3


@tawa.jit
def of_a_class(x):
    tl.store(x + tl.arange(0, Sizes.BLOCK), 1)


def test_a_class_with_a_cached_property():
    x = np.zeros(20, np.int32)
    of_a_class[1,](x)
    assert x.sum() == 16


@tawa.jit
def moved(x, out, n, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(out + o, tl.load(x + o, mask=o < n))


def test_what_host_code_asks_a_compiled_kernel():
    made = moved.warmup(torch.float16, torch.float16, 64, B=64, grid=(1,))
    assert made.signature["x"].dtype == "f16"
    assert 0 < made.n_regs < 64
    assert made.n_spills == 0
    assert (made.metadata.shared, made.metadata.num_warps % 4) == (0, 0)


@tawa.jit
def multiplied(x, y, out, K, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        one = tl.load(x + i[:, None] * K + k + i[None, :])
        total = tl.dot(one, tl.load(y + (k + i)[:, None] * B + i[None, :]), total)
    tl.store(out + i[:, None] * B + i[None, :], total.to(tl.float16))


def test_registers_of_a_kernel_with_roles():
    """Host code divides the registers of a multiprocessor by them."""
    halves = [torch.float16] * 3
    made = multiplied.warmup(*halves, 256, B=64, grid=(1,))
    assert len(made.resources.roles) > 1
    assert made.n_regs == made.resources.registers_at_launch > 0
    assert made.n_spills == 0


@tawa.jit
def tripled(x, y, n, B: tl.constexpr, num_stages: tl.constexpr, factor: tl.constexpr = 3):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def test_a_compiled_kernel_is_launched_as_tritons():
    """As the tutorial of a softmax does: compile, count what fits, launch that."""
    x, y = np.ones(200, np.float32), np.zeros(200, np.float32)
    made = tripled.warmup(x, y, 200, B=128, num_stages=2, factor=5, num_warps=8, grid=(1,))
    made._init_handles()
    assert made[2, 1, 1](x, y, 200, 128, 2).launch.threads == 256
    assert y.sum() == 1000
    ran = made[2,](x, y, n=7)  # other facts: another kernel of the same options
    assert (y.sum(), ran.launch.threads) == (1000, 256)
    y[:] = 0
    made[1,](x, y, 200, factor=2)
    assert y.sum() == 256
    assert made[1,](x, y, 200, num_warps=4).launch.threads == 128


def test_compiled_kernels_of_tuples_are_launched_with_tuples():
    @tawa.jit
    def kernel(pair, B: tl.constexpr):
        tl.store(pair[0] + tl.arange(0, B), pair[1])

    x = np.zeros(4, np.int32)
    kernel.warmup((x, 3), B=4, grid=(1,))[1,]((x, 5))
    assert x.tolist() == [5] * 4


def test_kernels_are_copied():
    assert copy.copy(moved).arg_names == moved.arg_names


def test_run_and_hooks_of_a_kernel():
    @tawa.jit
    def filled(x, B: tl.constexpr):
        tl.store(x + tl.arange(0, B), B)

    x, seen = np.zeros(4, np.int32), list[object]()
    filled.add_pre_run_hook(lambda *args, **named: seen.append((args[0] is x, named)))
    filled.run(x, B=4, grid=(1,), warmup=True)
    assert (x.sum(), seen) == (0, [])
    filled.run(x, B=4, grid=lambda meta: (meta["B"] // 4,), warmup=False)
    assert (x.sum(), seen) == (16, [(True, {"B": 4})])
    filled.warmup(x, B=4, num_warps=2, specialize=False, grid=(1,))[1,](x)
    assert seen.pop() == (True, {"B": 4, "num_warps": 2, "specialize": False})
    tuned = tawa.autotune([tawa.Config({"B": 2})], key=[])(filled)
    x[:] = 0
    tuned.run(x, grid=(1,), warmup=False)
    assert x.tolist() == [2, 2, 0, 0]
    assert filled.cache_key == filled.text_digest


@pytest.mark.parametrize("name", ["preload", "device_caches", "create_binder", "src"])
def test_what_is_of_tritons_launches_alone_is_refused_by_name(name):
    with pytest.raises(AttributeError, match=f"has no {name}: .*(kernel|process)"):
        getattr(moved, name)


@tawa.jit
def folded(x):
    if x.shape[0] == 1:
        return x
    else:
        one, other = x.reshape((x.shape[0] // 2, 2)).split()
        return folded(one) + folded(other)


@tawa.jit
def powered(x, n: tl.constexpr):
    if n == 0:
        return x * 0 + 1
    return x * powered(x, n - 1)


@tawa.jit
def recursive(x, out, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(out + tl.arange(0, 1), folded(v))
    tl.store(out + 1 + tl.arange(0, B), powered(v, 3))


def test_functions_call_themselves_on_smaller_shapes_and_constants():
    x, out = np.arange(16, dtype=np.int32), np.zeros(17, np.int32)
    recursive[1,](x, out, B=16)
    assert out[0] == x.sum()
    assert np.array_equal(out[1:], x**3)


@tawa.jit
def turned(x, a: tl.constexpr, b: tl.constexpr):
    return x if a < b else turned(x=x + 1, b=a, a=b)


@tawa.jit
def turning(out, n):
    tl.store(out, turned(x=n, a=4, b=3))


def test_arguments_by_name_that_change_places_are_other_arguments():
    out = np.zeros(1, np.int32)
    turning[1,](out, 5)
    assert out[0] == 6
