"""Global memory of the simulator: bounds, aliasing, strides, descriptors, atomics."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tawa import ir
from tawa.errors import ArgumentError, LaunchError
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.tile import run_tile

BF16 = np.dtype(ml_dtypes.bfloat16)
N = 8


def kernel(parameters: str, names: list[str], body: str):
    facts = ", ".join(f'{{name = "{name}"}}' for name in names)
    return ir.parse(
        f'"tile.kernel"() ({{\n^bb0({parameters}):\n{body}\n}}) '
        f'{{sym_name = "k", arguments = [{facts}], options = {{}}}} : () -> ()'
    )


def pointers(name: str, element: str, offsets: str = "%at") -> str:
    ptr = f"tensor<{N}x!tile.ptr<{element}>>"
    return (
        f"%{name}s = tile.splat %{name} : (!tile.ptr<{element}>) -> {ptr}\n"
        f"%{name}p = tile.ptr_add %{name}s, {offsets} : ({ptr}, tensor<{N}xi32>) -> {ptr}\n"
    )


COPY = kernel(
    "%x : !tile.ptr<f32>, %y : !tile.ptr<f32>, %n : i32, %shift : i32",
    ["x", "y", "n", "shift"],
    f"""
    %at = tile.arange {{start = #builtin.int<0>}} : tensor<{N}xi32>
    %ns = tile.splat %n : (i32) -> tensor<{N}xi32>
    %ss = tile.splat %shift : (i32) -> tensor<{N}xi32>
    %from = tile.elementwise "add"(%at, %ss) : (tensor<{N}xi32>, tensor<{N}xi32>) -> tensor<{N}xi32>
    %m = tile.elementwise "lt"(%at, %ns) : (tensor<{N}xi32>, tensor<{N}xi32>) -> tensor<{N}xi1>
    {pointers("x", "f32", "%from")}
    {pointers("y", "f32")}
    %v = "tile.load"(%xp, %m) {{operandSegmentSizes = array<i32: 1, 1, 0>}} :
      (tensor<{N}x!tile.ptr<f32>>, tensor<{N}xi1>) -> tensor<{N}xf32>
    tile.store %yp, %v : tensor<{N}x!tile.ptr<f32>>, tensor<{N}xf32>
    """,
)


def copy(x, y, n=N, shift=0):
    run_tile(COPY, (1, 1, 1), {"x": x, "y": y, "n": n, "shift": shift})


def test_masked_elements_are_poison():
    x, y = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    copy(x, y, 5)
    assert y[:5].tolist() == x[:5].tolist()
    assert np.isnan(y[5:]).all()


def test_a_masked_access_may_lie_outside():
    x, y = np.arange(3, dtype=np.float32), np.zeros(N, np.float32)
    copy(x, y, 3)
    with pytest.raises(LaunchError, match=r"tile\.load outside of argument x") as error:
        copy(x, y, 4)
    assert "element 3 of x, which spans elements 0 to 2" in str(error.value)


def test_a_store_outside_names_the_argument():
    with pytest.raises(LaunchError, match=r"tile\.store outside of argument y"):
        copy(np.zeros(N, np.float32), np.zeros(N - 1, np.float32))


def test_a_pointer_before_the_array():
    with pytest.raises(LaunchError, match="element -1 of x"):
        copy(np.zeros(N, np.float32), np.zeros(N, np.float32), N, -1)


def test_views_of_one_array_alias():
    memory = np.arange(2 * N, dtype=np.float32)
    copy(memory[:N], memory[2 : 2 + N])
    assert memory[:12].tolist() == [0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 10, 11]


def test_a_strided_array_is_its_memory():
    memory = np.arange(4 * N, dtype=np.float32)
    y = np.zeros(N, np.float32)
    copy(memory[::2], y)
    assert y.tolist() == list(range(N))
    copy(memory[::-1], y, 1)
    assert y[0] == memory[-1]
    with pytest.raises(LaunchError, match="spans elements -31 to 0"):
        copy(memory[::-1], y)
    matrix = np.arange(64, dtype=np.float32).reshape(8, 8)
    copy(matrix.T, y)
    assert y.tolist() == list(range(N))


def test_read_only_memory_cannot_be_stored_to():
    y = np.zeros(N, np.float32)
    y.flags.writeable = False
    with pytest.raises(LaunchError, match="argument y, which is read-only"):
        copy(np.zeros(N, np.float32), y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": np.zeros(N, np.float64)}, "x holds float64"),
        ({"x": 3}, "argument x is a int"),
        ({"n": "3"}, "argument n is a str"),
        ({"z": 3}, "no argument named z"),
    ],
)
def test_bad_arguments(arguments, message):
    good = {"x": np.zeros(N, np.float32), "y": np.zeros(N, np.float32), "n": N, "shift": 0}
    with pytest.raises(ArgumentError, match=message):
        run_tile(COPY, (1, 1, 1), good | arguments)
    del good["n"]
    with pytest.raises(ArgumentError, match="argument n is missing"):
        run_tile(COPY, (1, 1, 1), good)


def test_the_grid_has_three_extents():
    with pytest.raises(ArgumentError, match="grid"):
        run_tile(COPY, (1, 1, 1, 1), {})
    copied = np.zeros(N, np.float32)
    run_tile(COPY, (0,), {"x": copied, "y": copied, "n": 0, "shift": 0})


# --- atomics ------------------------------------------------------------------------------------


def atomic(function: str, element: str):
    ptr, tensor = f"tensor<{N}x!tile.ptr<{element}>>", f"tensor<{N}x{element}>"
    return kernel(
        f"%x : !tile.ptr<{element}>, %i : !tile.ptr<i32>, %v : !tile.ptr<{element}>, "
        f"%o : !tile.ptr<{element}>",
        ["x", "i", "v", "o"],
        f"""
        %at = tile.arange {{start = #builtin.int<0>}} : tensor<{N}xi32>
        {pointers("i", "i32")}
        {pointers("v", element)}
        {pointers("o", element)}
        %ii = "tile.load"(%ip) {{operandSegmentSizes = array<i32: 1, 0, 0>}} :
          (tensor<{N}x!tile.ptr<i32>>) -> tensor<{N}xi32>
        %vv = "tile.load"(%vp) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : ({ptr}) -> {tensor}
        {pointers("x", element, "%ii")}
        %old = "tile.atomic"(%xp, %vv) {{function = "{function}", order = "relaxed",
          scope = "gpu"}} : ({ptr}, {tensor}) -> {tensor}
        tile.store %op, %old : {ptr}, {tensor}
        """,
    )


@pytest.mark.parametrize(
    ("function", "step"),
    [("add", lambda a, b: a + b), ("max", max), ("min", min), ("exchange", lambda a, b: b)],
)
@pytest.mark.parametrize("repeat", [False, True])
def test_atomics_give_the_old_values(function, step, repeat):
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, N).astype(np.int32)
    places = rng.integers(0, 3, N) if repeat else rng.permutation(N)
    v = rng.integers(-9, 9, N).astype(np.int32)
    expected, old = x.copy(), np.zeros(N, np.int32)
    for k in range(N):
        old[k] = expected[places[k]]
        expected[places[k]] = step(old[k], v[k])
    out = np.zeros(N, np.int32)
    arguments = {"x": x, "i": places.astype(np.int32), "v": v, "o": out}
    run_tile(atomic(function, "i32"), (1, 1, 1), arguments)
    assert x.tolist() == expected.tolist()
    assert out.tolist() == old.tolist()


def test_float_atomics_round_each_step():
    x = np.array([256.0], BF16)
    ones, out = np.ones(N, BF16), np.zeros(N, BF16)
    arguments = {"x": x, "i": np.zeros(N, np.int32), "v": ones, "o": out}
    run_tile(atomic("add", "bf16"), (1, 1, 1), arguments)
    assert x[0] == 256.0


def test_compare_exchange_compares_bits():
    body = """
      %old = tile.compare_exchange %x, %e, %v {order = "acq_rel", scope = "gpu"} :
        (!tile.ptr<f32>, f32, f32) -> f32
      tile.store %o, %old : !tile.ptr<f32>, f32"""
    cas = kernel(
        "%x : !tile.ptr<f32>, %e : f32, %v : f32, %o : !tile.ptr<f32>", ["x", "e", "v", "o"], body
    )
    x, o = np.array([0.0], np.float32), np.zeros(1, np.float32)
    run_tile(cas, (1, 1, 1), {"x": x, "e": -0.0, "v": 1.0, "o": o})
    assert x[0] == 0.0
    run_tile(cas, (1, 1, 1), {"x": x, "e": 0.0, "v": 1.0, "o": o})
    assert (x[0], o[0]) == (1.0, 0.0)


# --- descriptors --------------------------------------------------------------------------------

BLOCK = "tensor<4x8xbf16>"
MOVE = kernel(
    f"%a : !tile.desc<{BLOCK}>, %b : !tile.desc<{BLOCK}>, %m : i32, %n : i32, %p : i32, %q : i32",
    ["a", "b", "m", "n", "p", "q"],
    f"""
    %t = tile.desc_load %a[%m, %n] : (!tile.desc<{BLOCK}>, i32, i32) -> {BLOCK}
    tile.desc_store %b[%p, %q], %t : !tile.desc<{BLOCK}>, i32, i32, {BLOCK}
    """,
)


def host(array, padding="zero", shape=None):
    strides = tuple(step // array.itemsize for step in array.strides)
    return HostDescriptor(array, shape or array.shape, strides, (4, 8), padding)


@pytest.mark.parametrize(("m", "n"), [(0, 0), (3, 5), (-2, -3), (6, 14), (100, 0), (0, -100)])
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_a_block_outside_reads_padding(m, n, padding):
    rng = np.random.default_rng(0)
    a = rng.integers(1, 9, (7, 16)).astype(BF16)
    b = np.zeros((4, 8), BF16)
    run_tile(MOVE, (1,), {"a": host(a, padding), "b": host(b), "m": m, "n": n, "p": 0, "q": 0})
    fill = np.nan if padding == "nan" else 0
    for i in range(4):
        for j in range(8):
            inside = 0 <= m + i < 7 and 0 <= n + j < 16
            expected = float(a[m + i, n + j]) if inside else fill
            np.testing.assert_equal(float(b[i, j]), expected)


@pytest.mark.parametrize(("p", "q"), [(0, 0), (5, 12), (-3, -7), (9, 9)])
def test_a_block_outside_is_dropped(p, q):
    a = np.arange(1, 33).reshape(4, 8).astype(BF16)
    b = np.zeros((7, 16), BF16)
    run_tile(MOVE, (1,), {"a": host(a), "b": host(b), "m": 0, "n": 0, "p": p, "q": q})
    expected = np.zeros((20, 30), BF16)
    expected[7 + p : 11 + p, 9 + q : 17 + q] = a
    assert (b == expected[7:14, 9:25]).all()


def test_descriptor_of_a_part_and_past_its_memory():
    memory = np.arange(160).reshape(10, 16).astype(BF16)
    part, b = memory[2:6, 4:12], np.zeros((4, 8), BF16)
    move = {"b": host(b), "m": 0, "n": 0, "p": 0, "q": 0}
    run_tile(MOVE, (1,), {"a": host(part), **move})
    assert (b == part).all()
    with pytest.raises(LaunchError, match=r"tile\.desc_load outside of argument a"):
        run_tile(MOVE, (1,), {"a": host(part, shape=(5, 8)), **(move | {"m": 1})})


def test_descriptor_arguments_are_checked():
    a = np.zeros((7, 16), BF16)
    wrong = HostDescriptor(a, (7, 16), (16, 1), (8, 8))
    good = {"a": host(a), "b": host(a), "m": 0, "n": 0, "p": 0, "q": 0}
    with pytest.raises(ArgumentError, match=r"argument b has blocks of \(8, 8\)"):
        run_tile(MOVE, (1,), good | {"b": wrong})
    with pytest.raises(ArgumentError, match="takes a tensor descriptor"):
        run_tile(MOVE, (1,), good | {"b": a})
    bad = HostDescriptor(a, (7, 16, 1), (16, 1), (4, 8))
    with pytest.raises(ArgumentError, match="3 extents and 2 strides"):
        run_tile(MOVE, (1,), good | {"b": bad})


# --- promises -----------------------------------------------------------------------------------


def test_assume_and_assert_are_checked(capsys):
    said = kernel(
        "%x : i32",
        ["x"],
        """
        %one = tile.constant {value = #builtin.int<1>} : i32
        tile.print "x is"(%x) : i32
        %is = tile.elementwise "eq"(%x, %one) : (i32, i32) -> i1
        tile.assert %is {message = "x must be 1"} : i1
        """,
    )
    run_tile(said, (1,), {"x": 1})
    assert capsys.readouterr().out == "pid (0, 0, 0) x is 1\n"
    with pytest.raises(LaunchError, match="device_assert failed: x must be 1"):
        run_tile(said, (1,), {"x": 2})
    promised = kernel("%x : i1", ["x"], "tile.assume %x : i1")
    with pytest.raises(LaunchError, match="promised fact is false"):
        run_tile(promised, (1,), {"x": False})
