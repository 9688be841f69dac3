"""Each tile operation's rule against NumPy, on a grid of values."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tawa import ir
from tawa.ir.functions import FUNCTIONS
from tawa.simulator.decode import Decoder
from tawa.simulator.dot import dot, to_tf32
from tawa.simulator.rules import RULES
from tawa.simulator.values import convert

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)
SPELL = {
    "bool": "i1",
    "int8": "i8",
    "int32": "i32",
    "int64": "i64",
    "uint8": "ui8",
    "uint32": "ui32",
    "uint64": "ui64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "float32": "f32",
    "float64": "f64",
}
FLOATS = [-2.5, -1.0, -0.0, 0.0, 0.3, 1.0, 7.75, 1e4, np.inf, -np.inf, np.nan]
INTEGERS = [-7, -1, 0, 1, 2, 5, 100]


def spell(value) -> str:
    element = SPELL[str(value.dtype)]
    shape = "x".join(map(str, np.shape(value)))
    return f"tensor<{shape}x{element}>" if shape else element


def evaluate(line: str, *arguments):
    """Run one operation, `line`, on arguments %0, %1, ...; return its results."""
    names = [f"%{chr(97 + i)}" for i in range(len(arguments))]
    signature = ", ".join(f"{n} : {spell(a)}" for n, a in zip(names, arguments))
    facts = ", ".join(f'{{name = "{n[1:]}"}}' for n in names)
    kernel = ir.parse(
        f'"tile.kernel"() ({{\n^bb0({signature}):\n{line}\n}}) '
        f'{{sym_name = "k", arguments = [{facts}], options = {{}}}} : () -> ()'
    )
    decoder = Decoder(RULES)
    for value, content in zip(kernel.body.block.args, arguments):
        decoder.constant(value, content)
    step = decoder.steps(kernel.body.block.ops)
    frame = decoder.frame(None)
    with np.errstate(all="ignore"):
        step.run(frame)
    results = [frame.values[decoder.number(r)] for r in kernel.body.block.last_op.results]
    return results if len(results) > 1 else results[0]


def apply(name: str, *operands, result=None):
    kinds = ", ".join(spell(o) for o in operands)
    out = spell(np.empty(np.shape(operands[-1]), result or operands[0].dtype))
    names = ", ".join(f"%{chr(97 + i)}" for i in range(len(operands)))
    return evaluate(f'%r = tile.elementwise "{name}"({names}) : ({kinds}) -> {out}', *operands)


def same(left, right) -> None:
    left, right = np.asarray(left), np.asarray(right)
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    wide = [x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (left, right)]
    np.testing.assert_array_equal(*wide)


def pairs(values, dtype):
    grid = np.array([(a, b) for a in values for b in values], np.float64)
    return grid[:, 0].astype(dtype), grid[:, 1].astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64], ids=str)
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", np.add),
        ("sub", np.subtract),
        ("mul", np.multiply),
        ("div", np.divide),
        ("min", np.fmin),
        ("max", np.fmax),
        ("min_nan", np.minimum),
        ("max_nan", np.maximum),
        ("frem", np.fmod),
    ],
)
def test_binary_float(name, function, dtype):
    a, b = pairs(FLOATS, np.dtype(dtype))
    wide = np.float64 if dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        expected = function(a.astype(wide), b.astype(wide)).astype(dtype)
    same(apply(name, a, b), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "and", "or", "xor", "min", "max"])
def test_binary_integer_wraps(name, dtype):
    a, b = pairs([abs(v) if np.dtype(dtype).kind == "u" else v for v in INTEGERS], dtype)
    python = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
        "min": min,
        "max": max,
    }[name]
    bits = np.dtype(dtype).itemsize * 8
    exact = [python(int(x), int(y)) % 2**bits for x, y in zip(a, b)]
    unsigned = np.array(exact, f"u{bits // 8}")
    same(apply(name, a, b), unsigned.view(dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=str)
def test_division_is_that_of_c(dtype):
    a, b = pairs(INTEGERS, dtype)
    b[b == 0] = 3
    quotient = np.array([math.trunc(int(x) / int(y)) for x, y in zip(a, b)], dtype)
    same(apply("idiv", a, b), quotient)
    same(apply("irem", a, b), a - quotient * b)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64], ids=str)
def test_upper_half_of_a_product(dtype):
    limits = np.iinfo(dtype)
    a, b = (
        np.array([limits.max, limits.min, 3, 1 << 20], dtype),
        np.array([7, 9, 5, 1 << 30], dtype),
    )
    bits = np.dtype(dtype).itemsize * 8
    expected = [int(x) * int(y) >> bits for x, y in zip(a, b)]
    same(apply("mulhi", a, b), np.array(expected, dtype))


def test_shift_right_follows_the_sign():
    a = np.array([-8, 8], np.int32)
    two = np.array([2, 2], np.int32)
    same(apply("shr", a, two), np.array([-2, 2], np.int32))
    u = a.view(np.uint32)
    same(apply("shr", u, two.view(np.uint32)), u >> np.uint32(2))


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32, BF16], ids=str)
def test_comparison(name, dtype):
    values = [abs(v) for v in INTEGERS] if np.dtype(dtype).kind == "u" else INTEGERS
    a, b = pairs(values, np.dtype(dtype))
    function = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }[name]
    wide = np.float64 if np.dtype(dtype) == BF16 else dtype
    same(apply(name, a, b, result=np.bool_), function(a.astype(wide), b.astype(wide)))


@pytest.mark.parametrize("dtype", [np.float32, BF16], ids=str)
@pytest.mark.parametrize(
    "name",
    ["exp", "exp2", "log", "log2", "sin", "cos", "tanh", "sqrt", "sqrt_rn", "floor", "ceil", "abs"],
)
def test_unary_float(name, dtype):
    x = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.75], np.float32).astype(dtype)
    function = getattr(np, name.removesuffix("_rn"))
    same(apply(name, x), function(x.astype(np.float32)).astype(dtype))


def test_erf_and_rsqrt():
    x = np.array([[0.25, 1.0], [2.0, 4.0]], np.float32)
    same(apply("erf", x), np.vectorize(math.erf)(x).astype(np.float32))
    same(apply("rsqrt", x), np.float32(1) / np.sqrt(x))


def test_select_keeps_bits():
    c = np.array([True, False, True])
    a = np.array([1.0, np.nan, -0.0], np.float32).astype(BF16)
    b = np.array([2.0, 3.0, 4.0], np.float32).astype(BF16)
    kinds = f"{spell(c)}, {spell(a)}, {spell(b)}"
    out = evaluate(f'%r = tile.elementwise "select"(%a, %b, %c) : ({kinds}) -> {spell(a)}', c, a, b)
    same(out.view(np.uint16), np.where(c, a.view(np.uint16), b.view(np.uint16)))


def test_fma_rounds_once():
    a = np.array([1 + 2**-12], np.float32)
    c = np.array([-1 - 2**-11], np.float32)
    kinds = ", ".join([spell(a)] * 3)
    out = evaluate(f'%r = tile.elementwise "fma"(%a, %b, %c) : ({kinds}) -> {spell(a)}', a, a, c)
    assert out[0] == np.float32(2**-24)


def test_every_row_of_the_table_runs_on_scalars_and_tiles():
    for function in FUNCTIONS.values():
        kind = np.float32 if function.cuda_float else np.int32
        if function.name == "select":
            continue
        operands = [np.array([2, 3], kind)] * function.arity
        result = np.bool_ if function.result == "bool" else kind
        with np.errstate(invalid="ignore"):  # 2 has no arc sine
            tile = apply(function.name, *operands, result=result)
            scalar = apply(function.name, *[o[0] for o in operands], result=result)
        assert isinstance(scalar, np.generic), function.name
        np.testing.assert_array_equal(tile[0], scalar, err_msg=function.name)


# --- conversions --------------------------------------------------------------------------------


def cast(value, dtype):
    out = spell(np.empty(np.shape(value), dtype))
    return evaluate(f"%r = tile.cast %a : ({spell(value)}) -> {out}", value)


@pytest.mark.parametrize("target", [np.int32, np.int64, np.uint32], ids=str)
def test_float_to_integer_truncates_and_saturates(target):
    x = np.array([-3.9, -0.5, 0.5, 3.9, 1e30, -1e30, np.inf, -np.inf], np.float32)
    limits = np.iinfo(target)
    exact = [max(limits.min, min(limits.max, _trunc(v))) for v in x]
    same(cast(x, target), np.array(exact, target))


def _trunc(value) -> int:
    if math.isinf(value):
        return 2**70 if value > 0 else -(2**70)
    return math.trunc(float(value))


def test_integers_wrap():
    x = np.array([-1, 255, 256, 2**31 - 1], np.int32)
    same(cast(x, np.int8), np.array([-1, -1, 0, -1], np.int8))
    same(cast(x, np.uint8), np.array([255, 255, 0, 255], np.uint8))
    same(cast(x, np.bool_), np.array([True, True, True, True]))
    same(cast(np.array([256, 0], np.int32), np.bool_), np.array([True, False]))


@pytest.mark.parametrize(("target", "limit"), [(E4M3, 448.0), (E5M2, 57344.0)], ids=str)
def test_fp8_saturates(target, limit):
    x = np.array([1e9, -1e9, np.inf, -np.inf, 1.06, np.nan], np.float32)
    out = cast(x, target).astype(np.float32)
    assert out[:4].tolist() == [limit, -limit, limit, -limit]
    assert out[4] == 1.0
    assert np.isnan(out[5])


def test_one_rounding_from_f64_and_integers():
    # 1 + 2^-8 lies in the middle of two bf16 numbers; a little more must round up, though f32
    # rounds the little away.
    middle = 1 + 2**-8
    assert cast(np.array([middle + 2**-40]), BF16).astype(np.float64)[0] == 1 + 2**-7
    assert cast(np.array([middle]), BF16).astype(np.float64)[0] == 1.0
    big = np.array([2**24 + 2**16 + 1], np.int32)
    assert cast(big, BF16).astype(np.float64)[0] == 2**24 + 2**17
    assert cast(np.array([-(2**24) - 2**16 - 1], np.int32), BF16).astype(np.float64)[0] == -(
        2**24 + 2**17
    )


def test_convert_keeps_scalars_scalar():
    assert isinstance(convert(np.float32(1.5), BF16), np.generic)
    assert isinstance(convert(np.float32(1.5), np.dtype(np.int32)), np.generic)
    with np.errstate(over="ignore"):
        assert convert(np.float64(1e300), np.dtype(np.float16)) == np.inf


def test_bitcast():
    x = np.array([[1.0, -0.0]], np.float32)
    out = evaluate(f"%r = tile.bitcast %a : ({spell(x)}) -> tensor<1x2xi32>", x)
    same(out, x.view(np.int32))
    one = evaluate("%r = tile.bitcast %a : (f32) -> i32", np.float32(1.0))
    assert one == 0x3F800000


# --- shapes -------------------------------------------------------------------------------------

INT = "#builtin.int"


def test_shape_operations():
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    kind = spell(x)
    shaped = {
        f"tile.expand_dims %a {{axis = {INT}<1>}} : ({kind}) -> tensor<2x1x3xi32>": x[:, None],
        f"tile.reshape %a : ({kind}) -> tensor<3x2xi32>": x.reshape(3, 2),
        f"tile.transpose %a {{permutation = [{INT}<1>, {INT}<0>]}} : ({kind}) -> "
        "tensor<3x2xi32>": x.T,
        f"tile.arange {{start = {INT}<3>}} : tensor<5xi32>": np.arange(3, 8, dtype=np.int32),
        f"tile.constant {{value = {INT}<-1>}} : tensor<2xui8>": np.array([255, 255], np.uint8),
        'tile.constant {value = #tile.real<"0.1">} : f32': np.float32(0.1),
    }
    for line, expected in shaped.items():
        same(evaluate(f"%r = {line}", x), expected)
    row = x[:1]
    out = evaluate(f"%r = tile.broadcast %a : ({spell(row)}) -> tensor<4x3xi32>", row)
    same(out, np.repeat(row, 4, axis=0))
    same(
        evaluate("%r = tile.splat %a : (i32) -> tensor<2x2xi32>", np.int32(7)),
        np.full((2, 2), 7, np.int32),
    )


def test_join_and_split_are_inverse():
    a, b = np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32)
    joined = evaluate(
        "%r = tile.join %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4x2xf32>", a, b
    )
    same(joined, np.stack([a, b], axis=-1))
    first, second = evaluate(
        "%r, %s = tile.split %a : (tensor<4x2xf32>) -> (tensor<4xf32>, tensor<4xf32>)", joined
    )
    same(first, a)
    same(second, b)


def reduction(kind: str, x, axis: int, body: str, extra: str = "") -> str:
    element = SPELL[str(x.dtype)]
    shape = list(x.shape)
    if kind == "reduce":
        del shape[axis]
    out = spell(np.empty(shape, x.dtype))
    return (
        f'%r = "tile.{kind}"(%a) ({{\n^bb0(%x : {element}, %y : {element}):\n{body}\n}}) '
        f"{{axis = {INT}<{axis}>{extra}}} : ({spell(x)}) -> {out}"
    )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(5, 8), (1, 3), (7, 1)])
def test_reduce_and_scan(axis, shape):
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    add = '%z = tile.elementwise "add"(%x, %y) : (f32, f32) -> f32\n tile.yield %z : f32'
    same(evaluate(reduction("reduce", x, axis, add), x), x.sum(axis=axis))
    same(evaluate(reduction("scan", x, axis, add), x), x.cumsum(axis=axis))
    backwards = np.flip(np.flip(x, axis).cumsum(axis=axis), axis)
    same(evaluate(reduction("scan", x, axis, add, ", reverse = true"), x), backwards)


def test_reduce_to_a_scalar_and_keep_the_order():
    # first(x, y) = x is associative and not commutative: the result is the first element.
    x = np.array([3, 1, 2, 9, 4], np.int32)
    assert evaluate(reduction("reduce", x, 0, "tile.yield %x : i32"), x) == 3
    assert evaluate(reduction("reduce", x, 0, "tile.yield %y : i32"), x) == 4


def test_reduce_a_pair_finds_the_first_maximum():
    x = np.array([[3, 9, 1, 9], [5, 5, 5, 5]], np.float32)
    index = np.broadcast_to(np.arange(4, dtype=np.int32), (2, 4))
    body = """
      %gt = tile.elementwise "gt"(%x, %y) : (f32, f32) -> i1
      %eq = tile.elementwise "eq"(%x, %y) : (f32, f32) -> i1
      %lt = tile.elementwise "lt"(%i, %j) : (i32, i32) -> i1
      %tie = tile.elementwise "and"(%eq, %lt) : (i1, i1) -> i1
      %left = tile.elementwise "or"(%gt, %tie) : (i1, i1) -> i1
      %v = tile.elementwise "select"(%left, %x, %y) : (i1, f32, f32) -> f32
      %k = tile.elementwise "select"(%left, %i, %j) : (i1, i32, i32) -> i32
      tile.yield %v, %k : f32, i32"""
    line = (
        f'%r, %s = "tile.reduce"(%a, %b) ({{\n^bb0(%x : f32, %i : i32, %y : f32, %j : i32):{body}'
        f"\n}}) {{axis = {INT}<1>}} : "
        "(tensor<2x4xf32>, tensor<2x4xi32>) -> (tensor<2xf32>, tensor<2xi32>)"
    )
    values, places = evaluate(line, x, index)
    same(values, np.array([9, 5], np.float32))
    same(places, np.array([1, 0], np.int32))


def test_reduce_with_control_flow_in_its_body():
    x = np.array([[1, 5], [7, 2], [3, 3]], np.int32)
    body = """
      %gt = tile.elementwise "gt"(%x, %y) : (i32, i32) -> i1
      %v = scf.if %gt -> (i32) { scf.yield %x : i32 } else { scf.yield %y : i32 }
      tile.yield %v : i32"""
    same(evaluate(reduction("reduce", x, 0, body), x), x.max(axis=0))


# --- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, BF16, E4M3, E5M2, np.int8, np.float32], ids=str)
def test_dot_of_small_integers_is_exact(dtype):
    rng = np.random.default_rng(1)
    a = rng.integers(-3, 4, (2, 16, 72)).astype(dtype)
    b = rng.integers(-3, 4, (2, 72, 8)).astype(dtype)
    kind = np.int32 if dtype == np.int8 else np.float32
    acc = rng.integers(-5, 5, (2, 16, 8)).astype(kind)
    expected = a.astype(np.float64) @ b.astype(np.float64) + acc
    for precision in ("tf32", "tf32x3", "ieee"):
        same(dot(a, b, acc, precision), expected.astype(kind))


def test_dot_accumulates_step_by_step_in_f32():
    # 2^24 + 1 + 1: within one step of sixteen the ones add up, across steps each is rounded away.
    a = np.zeros((1, 32), np.float16)
    b = np.ones((32, 1), np.float16)
    acc = np.full((1, 1), 2**24, np.float32)
    a[0, :2] = 1
    assert dot(a, b, acc)[0, 0] == 2**24 + 2
    a[0, 1], a[0, 16] = 0, 1
    assert dot(a, b, acc)[0, 0] == 2**24


def test_dot_does_not_depend_on_how_it_is_cut():
    rng = np.random.default_rng(2)
    a = rng.standard_normal((128, 64)).astype(BF16)
    b = rng.standard_normal((64, 96)).astype(BF16)
    acc = rng.standard_normal((128, 96)).astype(np.float32)
    whole = dot(a, b, acc)
    parts = [dot(a[i : i + 32], b, acc[i : i + 32]) for i in range(0, 128, 32)]
    same(whole, np.concatenate(parts))


def test_tf32_precisions():
    rng = np.random.default_rng(3)
    a = rng.standard_normal((16, 64)).astype(np.float32)
    b = rng.standard_normal((64, 16)).astype(np.float32)
    acc = np.zeros((16, 16), np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = {p: np.abs(dot(a, b, acc, p) - exact).max() for p in ("tf32", "tf32x3", "ieee")}
    assert 1e-4 < error["tf32"] < 4e-2
    assert error["tf32x3"] < 1e-5
    assert error["ieee"] < 1e-5
    assert to_tf32(np.array([1 + 2**-10 + 2**-11], np.float32))[0] == 1 + 2**-10
