"""Fused functions: one kernel computes what NumPy does; what is not fused is named."""

from __future__ import annotations

import numpy as np
import pytest

import tawa.cypress as cy
from tawa import axon
from tawa.axon.fuse import fuse
from tawa.axon.fuse.forms import reciprocal
from tawa.axon.fuse.ranges import has_reciprocal
from tawa.axon.fuse.trace import Cuts
from tawa.cypress.kernels import gemm
from tawa.errors import AxonError, AxonGuard
from tawa.runtime import cubins

PROGRAM = """
fun soft x = softmax x
fun norm (g, b) x = layer_norm g b x
fun rms g (x, r) = let val y = x + r in (rms_norm g y, y) end
fun act b x = gelu (x + b)
fun loss x labels = cross_entropy x labels
fun centred x = x - mean_keep {axes = [-1]} x / cast (last x)
fun extremes x = (max {axis = -1} x, min {axis = -1} (neg x))
fun rows s x = where (x > 0.5) (square x * s) (sigmoid x)
fun spread x = var {axes = [-1]} x
fun twice x = softmax (tanh (softmax x * 9.0))
fun across x = softmax {axis = 0} x
fun heads x = softmax (heads {count = 2} x)
fun about_mean x = sum {axes = [-1]} (exp (x - mean_keep {axes = [-1]} x))
fun some (w, x) =
  sum {axes = [-1]} (exp (x - max_keep {axis = -1} (where (w > 0.5) x (x * 0.0 - 1.0e30))) * w)
fun shorter x = sum {axes = [-1]} (relu x)
"""
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def module() -> axon.Module:
    return axon.load(PROGRAM)


def floats(*shape: int, dtype: type = np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def same(fused, *arguments, tolerance: float = 2e-6) -> None:
    """Compare with NumPy's result of float64 arguments."""

    def exact(value):
        if isinstance(value, tuple):
            return tuple(map(exact, value))
        is_float = hasattr(value, "dtype") and value.dtype.kind == "f"
        return value.astype(np.float64) if is_float else value

    got, want = fused(*arguments), fused.function(*exact(arguments))
    pairs = list(zip(got, want)) if isinstance(got, tuple) else [(got, want)]
    for one, other in pairs:
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_named_functions_equal_numpy(module):
    for shape in ((5, 80), (2, 3, 33)):
        d = shape[-1]
        same(fuse(module.norm), (floats(d), floats(d)), floats(*shape))
        same(fuse(module.loss), floats(*shape), RNG.integers(-d, d, shape[:-1]))
    same(fuse(module.rms), floats(48), (floats(5, 48), floats(5, 48)))


@pytest.mark.short("soft", "spread")
@pytest.mark.parametrize("name", ["soft", "loss", "spread", "twice"])
def test_sums_of_long_rows_follow_what_they_depend_on(module, name):
    d = 9000
    x = floats(2, d)
    x[0] += 1000  # a sum of squares would lose all that is wanted
    x[1, : d - 5] -= 500
    given = (x, RNG.integers(-d, d, 2)) if name == "loss" else (x,)
    fused = fuse(module.functions[name])
    same(fused, *given, tolerance=3e-5)
    (kernel,) = fused.kernels.values()
    walks = 2 if name in ("soft", "twice") else 1  # one to reduce, one to store what is wide
    assert str(kernel.program).count("scf.for") == walks + (name == "twice")
    if name == "soft":
        x[1, : d - 5] = -np.inf
        same(fused, x, tolerance=1e-5)
        x[0] = -np.inf
        assert np.isnan(fused(x)[0]).all()


def test_exponentials_follow_no_reference_that_they_may_exceed(module):
    """They overflow for the reference so far, a mean or a mask's least number, not for the last."""
    d = 20000
    x = np.zeros((1, d), np.float32)
    x[0, :10000], x[0, 9900] = -120, 10
    same(fuse(module.functions["about_mean"]), x, tolerance=1e-5)
    kept = (np.arange(d) >= 15000).astype(np.float32)[None]
    same(fuse(module.functions["some"]), (kept, np.ones_like(kept)))


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("softmax x", True),
        ("x / sqrt (mean_keep {axes = [-1]} (square x) + 1e-5)", True),
        ("x / cast (last x)", True),
        ("x / 3.0", True),
        ("x / 1.0e-39", False),
        ("x / sum_keep {axes = [-1]} (abs x)", False),
        ("x / sqrt (mean_keep {axes = [-1]} (square x))", False),
        ("x / sqrt (mean_keep {axes = [-1]} x + 1e-5)", False),
        ("x / sum_keep {axes = [-1]} (exp (x - max_keep {axis = -1} (neg x)))", False),
    ],
)
def test_a_quotient_is_a_product_where_the_divisor_has_a_reciprocal(text, known):
    form = axon.load(f"fun form (x : f32[m, n]) = {text}").form
    node = form.run(Cuts().array([3, 40], "float32")).node
    assert (node.name, has_reciprocal(node.inputs[1])) == ("/", known)


def test_quotients_of_numbers_near_nothing():
    """Their divisors' reciprocals are infinite."""
    shares = fuse(axon.load("fun f x = x / sum_keep {axes = [-1]} (abs x)").f)
    x = np.full((2, 4), 2.0**-140, np.float32)
    np.testing.assert_array_equal(shares(x), np.full((2, 4), 0.25, np.float32))


def test_arrays_of_the_cpu_need_no_cubin(module, monkeypatch, tmp_path):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cubins, "start", lambda *_, **__: pytest.fail("built for a GPU"))
    same(fuse(module.act), floats(48), floats(3, 48))
    mapping = gemm.gemm(1, 64, 64, 32)
    a, b = np.ones((64, 32), np.float16), np.ones((32, 64), np.float16)
    cy.program(mapping)(c := np.zeros((64, 64), np.float16), a, b)
    assert (c == 32).all()


def test_rows_of_a_width_share_a_program(module):
    fused = fuse(module.soft)
    same(fused, floats(7))
    fused.kernels.clear()
    for rows, width in ((19, 64), (19, 63), (5, 240), (5, 272), (5, 271), (2, 1040)):
        same(fused, floats(rows, width))
    spans = [form.span for _, form in fused.kernels]
    assert spans == [128, 128, 256, 1024, 1024, 4096]


def test_a_kernel_is_for_all_shapes_of_an_alignment_class(module):
    fused = fuse(module.centred)
    for _ in range(25):
        batch = [int(n) for n in RNG.integers(1, 4, RNG.integers(1, 3))]
        same(fused, floats(*batch, int(RNG.integers(1, 70))))
    same(fused, floats(3, 64))
    assert len(fused.kernels) == 2
    for width in (272, 1040, 8208):  # beyond what a warp holds of rows, of one, and all warps
        same(fused, floats(2, width))
    assert len(fused.kernels) == 5


def test_elements_are_counted_through_rows_of_any_width(module, monkeypatch):
    """Where nothing is reduced: one kernel for aligned rows, one for others."""
    fused = fuse(module.act)
    for rows, width in ((9, 48), (2, 1040), (700, 16), (9, 47), (3, 1041), (720, 1), (1, 8209)):
        same(fused, floats(width), floats(rows, width))
    assert [form.even for _, form in fused.kernels] == [True, False]
    assert all(form.aligned for _, form in fused.kernels)
    same(fused, floats(48), floats(9, 64)[:, :48])  # rows that do not follow one another
    same(fused, floats(47), floats(16, 64)[:, :47])
    same(fused, floats(3), floats(16, 3))
    assert len(fused.kernels) == 4
    same(fused, floats(3), floats(16 * 3 + 1)[1:].reshape(16, 3))  # no vectors
    assert [form.aligned for _, form in fused.kernels][-1] is False
    wide = fuse(module.rows)
    for scale in ((5, 1, 3, 1), (1, 4, 3, 1), (5, 4, 1, 16)):
        same(wide, floats(*scale), floats(5, 4, 3, 16))
    plain = axon.fuse.launch.form_of
    monkeypatch.setattr(axon.fuse.launch, "form_of", lambda *given: plain(*given[:-1], 2**31))
    far = fuse(module.rows)
    same(far, floats(5, 1, 3, 1), floats(5, 4, 3, 16))
    ((_, form),) = far.kernels
    assert form.far


def test_rows_that_begin_anywhere_have_whole_vectors(module):
    """From where 16 bytes begin in each; what is beside them is read an element at a time."""
    fused = fuse(module.norm)
    for rows, width in ((5, 97), (3, 2), (40, 33), (3, 1041), (2, 8209)):
        for dtype, tolerance in ((np.float32, 2e-6), (np.float16, 2e-3)):
            weights = floats(width, dtype=dtype), floats(width, dtype=dtype)
            same(fused, weights, floats(rows, width, dtype=dtype), tolerance=tolerance)
    assert all(form.edges for _, form in fused.kernels)
    for kernel in fused.kernels.values():  # vectors by rows of one warp and of many
        (made,) = kernel._kernels.values()
        text = made.kernel.asm["cuda"]
        assert [f"{kind}.global.v4" in text for kind in ("ld", "st")] == [True, True]
    before = len(fused.kernels)
    same(fused, (floats(36), floats(36)), floats(7, 36))  # 16 bytes divide its rows: no other
    assert len(fused.kernels) == before
    text = "fun f (m, s) x = (sum {axes = [-1]} (where m x 0.0), x * s, max_keep {axis = -1} x)"
    scaled = fuse(axon.load(text).f)
    for columns in (slice(0, 41), slice(1, 42), slice(2, 51)):  # from other bytes on, of long rows
        x, kept = floats(3, 5, 53)[..., columns], (floats(3, 1, 53) > 0)[..., columns]
        same(scaled, (kept, floats(5, 1)), x)
    alike = [[each.alike for each in (*f.arrays, *f.outputs)] for _, f in scaled.kernels]
    assert all(sum(each) == 1 for each in alike), "rows of all arrays are of other lengths"


def test_quotients_by_a_factor_are_quotients():
    for divisor in (*range(1, 70), *map(int, RNG.integers(1, 2**31, 300)), 2**30, 2**31 - 1):
        factor, shift = reciprocal(divisor)
        places = [int(n) for n in RNG.integers(0, 2**31, 30)] + [0, 2**31 - 1]
        places += [n for k in (1, 2**31 // divisor) for n in (k * divisor - 1, k * divisor)]
        for place in places:
            assert place * factor < 2**63
            assert place >= 2**31 or place * factor < 2**63
            assert place >= 2**31 or place * factor >> shift == place // divisor


def test_broadcasting_rows_and_columns(module):
    fused = fuse(module.rows)
    for scale in ((7, 1), (1, 40), (40,), (3, 1, 1), (1,), ()):
        same(fused, floats(*scale), floats(3, 7, 40))
    same(fuse(module.extremes), floats(4, 30))
    nan = floats(2, 20)
    nan[1, 7] = np.nan
    assert np.isnan(fuse(module.extremes)(nan)[0]).tolist() == [False, True]
    assert fuse(module.shorter)(floats(3, 0)).tolist() == [0, 0, 0]
    assert fuse(module.soft)(floats(0, 5)).shape == (0, 5)


def test_narrow_and_wide_floats(module):
    half = floats(3, 48).astype(np.float16)
    got = fuse(module.soft)(half)
    assert got.dtype == np.float16
    want = module.soft(half.astype(np.float64))
    np.testing.assert_allclose(got, want, atol=1e-3)
    same(fuse(module.soft), floats(3, 48, dtype=np.float64), tolerance=1e-12)


def test_what_is_not_fused_is_named(module):
    with pytest.raises(AxonError, match=r"across is not one kernel(.|\n)*transpose"):
        fuse(module.across)(floats(3, 4))
    with pytest.raises(AxonError, match="reshape"):
        fuse(module.heads)(floats(3, 4, 8))
    with pytest.raises(AxonError, match=r"side by side(.|\n)*ascontiguousarray"):
        fuse(module.soft)(floats(6, 8)[:, ::2])
    with pytest.raises(AxonGuard, match=r"does not fit|cannot take"):
        fuse(module.norm)((floats(3), floats(3)), floats(2, 4))


def test_tensors_of_the_cpu_run_in_the_simulator(module):
    torch = pytest.importorskip("torch")
    given = torch.randn(3, 40, dtype=torch.bfloat16)
    got = fuse(module.soft)(given)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, torch.softmax(given.float(), -1).bfloat16(), atol=8e-3, rtol=0)
    torch.testing.assert_close(module.soft(given), got, atol=8e-3, rtol=0)


@pytest.mark.long
def test_every_operator_of_elements_equals_numpy():
    names = [
        *("neg", "abs", "sign", "square", "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh"),
        *("cosh", "tanh", "erf", "floor", "ceil", "round", "trunc", "relu", "relu6", "leaky_relu"),
        *("elu", "gelu", "silu", "mish", "sigmoid", "hardsigmoid", "hardswish", "softplus"),
        *("softsign", "dropout", "zeros_like", "ones_like", "identity"),
    ]
    positive = ["log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal"]
    pairs = ["add", "sub", "mul", "div", "maximum", "minimum", "atan2", "mod"]
    orders = ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]
    items = [f"{n} x" for n in names] + [f"{n} (abs x + 0.5)" for n in positive]
    items += [f"{n} x y" for n in pairs] + ["pow (abs x + 0.5) y", "clip 0.1 0.7 x"]
    items += [f"where ({n} x y) x (2.0 * y)" for n in orders]
    items += ["where (logical_or (x < y) (logical_not (isnan x))) x y"]
    module = axon.load(f"fun each x y = ({', '.join(items)})")
    same(fuse(module.each), floats(2, 40), floats(2, 40), tolerance=2e-5)


def test_integers_and_truth_values():
    module = axon.load(
        "fun counts i j = (mod i j, i < j, i + j, sum {axes = [-1]} i)\n"
        "fun pick c x = where c x 0.0"
    )
    whole = RNG.integers(-9, 9, (3, 20))
    got, want = fuse(module.counts)(whole, whole[:1] | 1), module.counts(whole, whole[:1] | 1)
    for one, other in zip(got, want):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    chosen, x = whole > 0, floats(3, 20)
    np.testing.assert_array_equal(fuse(module.pick)(chosen, x), np.where(chosen, x, 0))


def test_values_used_again_and_again_are_computed_once():
    module = axon.load("fun chain x = loop 7 (fn y => softmax (y + y)) x")
    fused = fuse(module.chain)
    assert fused(floats(2, 16)).shape == (2, 16)


def test_arrays_of_one_number_and_numbers_of_numpy():
    """Which have no row, and no memory."""
    found, x, one = axon.load("fun f b x = sigmoid (x + b)").f, floats(5), np.float32(0.5)
    for given in ((np.asarray(one), np.asarray(one)), (one, x), (x, one)):
        same(fuse(found), *given)


def test_numbers_have_the_type_of_the_float64_beside_them():
    """As in NumPy: 0.1 is not what float32 has of it."""
    module = axon.load("fun below x = where (x < 0.1) 1.0 0.0\nfun top x = maximum x 0.1")
    x = np.array([[0.1, np.float32(0.1), 0.2, 0.0]])
    for function in (module.below, module.top):
        fused = fuse(function)
        np.testing.assert_array_equal(fused(x), fused.function(x))


def test_an_item_of_each_row_is_read_by_its_number():
    """Whatever is computed of it, in rows of any length; numbers wrap."""
    text = """
    fun loss x labels = cross_entropy x labels
    fun taken (x, i) = take_along {axis = 1} (square x - max_keep {axis = -1} x) i
    fun twice (x, i) = sum {axes = [-1]} (exp (x - take_along {axis = -1} x i))
    """
    module = axon.load(text)
    for n, d in ((5, 7), (9, 96), (3, 9000)):
        x, index = floats(n, d), RNG.integers(-d, 2 * d, (n, 1))
        same(fuse(module.loss), x, index[:, 0], tolerance=1e-5)
        same(fuse(module.taken), (x, index))
        same(fuse(module.twice), (x * 0.1, index), tolerance=1e-5)
    with pytest.raises(AxonError, match="take_along"):
        fuse(module.taken)((floats(4, 6), RNG.integers(0, 6, (4, 2))))
