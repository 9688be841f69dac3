"""Whole programs compiled: kernels between products of the library compute what `run/` does."""

from __future__ import annotations

import math
import operator
import random

import numpy as np
import pytest

from tawa import axon
from tawa.axon.fuse import compile, fuse, turn
from tawa.axon.fuse.linear import Linear
from tawa.axon.fuse.plan import Plan
from tawa.axon.fuse.trace import Cuts, Node
from tawa.errors import AxonError, AxonGuard
from tawa.runtime.arrays import look

PROGRAM = """
fun mlp (w1, b1, w2, b2) x = softmax (linear (relu (linear x w1 + b1)) w2 + b2)
fun attend (q, k, v) =
  let val s = matmul q (transpose k) * rsqrt (cast_like q (last q))
  in matmul (softmax s) v end
fun block (g, wq, wk, wv, wo, h, w1, w2) x =
  let val y = rms_norm g x
      fun part w = heads {count = 2} (linear y w)
      val z = x + linear (unheads (attend (part wq, part wk, part wv))) wo
      val u = rms_norm h z
  in z + linear (silu (linear u w1)) w2 end
fun resnet (w1, m, v, s, t, w2, b) x =
  let val y = relu (batch_norm m v s t (conv {pad = 1} w1 x))
  in relu (conv {pad = 1} w2 y + unsqueeze {axis = -1} (unsqueeze {axis = -1} b) + x) end
fun across x = softmax {axis = 0} x + softmax x
fun scaled x =
  let val d = rsqrt (sum {axes = [1]} (square x))
  in unsqueeze {axis = 1} d * x * d - transpose x end
fun norms (s, t) x = relu (group_norm {groups = 2} s t x) + instance_norm x
fun moves x =
  let val (a, b) = split {axis = 1} x
  in concat [exp b, max_pool {size = 3, stride = 1, pad = 1} a] 1 end
fun items x =
  let val last_ = fold (fn a => fn r => tanh (a + r)) (sum {axes = [0]} x) x
  in (last_, map softmax x, iota (last x) + x) end
fun twice (w, x) = let val y = matmul x w in (relu y, y, sum_all y, last y) end
fun shared (w, x, y) = let val z = tanh (x * y + x) in (linear z w, linear (relu z) w + z) end
fun wide (w, x) = linear x w
fun less (b, w) x = unsqueeze {axis = -1} b - conv w x * 2.0
fun again (b, w) x =
  let val c = unsqueeze {axis = -1} b
      val y = conv w x / (c + 2.0) + c
  in y - c * y end
fun shifted (m, w) x = relu (linear x w - (m + 3.0))
fun pools x = loop 5 (max_pool {size = 3, stride = 1, pad = 1}) x
fun both (w, x, r) = exp (r + square (x - r)) + conv {pad = 1} w r
fun some x = nonzero x
fun contracted (a, b) = einsum "bqhd,bkhd->bhqk" a b
fun traced a = einsum "ii" a
"""
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def module() -> axon.Module:
    return axon.load(PROGRAM)


def draw(*shape: int, dtype: type = np.float32):
    return (RNG.standard_normal(shape) / np.sqrt(shape[-1])).astype(dtype)


def flat(value):
    return [each for item in value for each in flat(item)] if isinstance(value, tuple) else [value]


def same(function, *arguments, tolerance: float = 3e-6) -> list[str]:
    """Compare with the language's own result of float64 arguments; return the plan's steps."""

    def exact(value):
        if isinstance(value, tuple):
            return tuple(map(exact, value))
        return value.astype(np.float64) if value.dtype.kind == "f" else value

    compiled = compile(function)
    got, want = flat(compiled(*arguments)), flat(function(*map(exact, arguments)))
    for one, other in zip(got, want, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    return [str(step).partition(" [")[0] for step in compiled.plan(*arguments).steps]


def test_a_perceptron_is_two_products_and_a_kernel(module):
    given = (draw(16, 32), draw(32), draw(32, 8), draw(8)), draw(5, 16)
    assert same(module.mlp, *given) == ["relu(matmul + bias)", "matmul", "kernel"]


def test_a_block_of_a_transformer(module):
    torch = pytest.importorskip("torch")
    half, square = np.float16, [(16, 16)] * 4
    weights = [draw(16, dtype=half), *(draw(*each, dtype=half) for each in square)]
    weights += [draw(16, dtype=half), draw(16, 24, dtype=half), draw(24, 16, dtype=half)]
    x = draw(1, 8, 16, dtype=half)
    steps = same(module.block, tuple(weights), x, tolerance=2e-3)
    kept = [step for step in steps if step not in ("reshape", "transpose")]
    products = ["kernel", "matmul", "matmul", "matmul", "attention", "matmul"]
    assert kept == [*products, "kernel", "silu(matmul)", "matmul", "kernel"]
    compiled = compile(module.block)
    got = compiled(tuple(map(torch.from_numpy, weights)), torch.from_numpy(x))
    assert got.dtype == torch.float16
    np.testing.assert_array_equal(got.numpy(), compiled(tuple(weights), x))


def test_a_block_of_a_residual_network(module):
    half, c = np.float16, 8
    vectors = [draw(c, dtype=half) for _ in range(4)]
    vectors[1] = np.abs(vectors[1])
    given = (draw(c, c, 3, 3, dtype=half), *vectors, draw(c, c, 3, 3, dtype=half), vectors[0])
    steps = same(module.resnet, given, draw(2, c, 4, 6, dtype=half), tolerance=1e-2)
    kept = [step for step in steps if step not in ("reshape", "unsqueeze")]
    turned = ["turn", "turn", "relu(scale * conv + bias)", "turn"]
    assert kept == ["kernel", *turned, "relu(conv + bias + residual)"]


def test_what_is_linear_in_a_product_is_its_scale_and_bias(module):
    """However it is written; vectors that it needs are computed beside it."""
    c, x = 8, draw(2, 8, 3)
    b, w = draw(c), draw(c, c, 1)
    steps = same(module.less, (b, w), x, tolerance=5e-3)
    assert steps == ["unsqueeze", "constant", "reshape", "turn", "scale * conv + bias"]
    steps = same(module.again, (b, w), x, tolerance=5e-3)
    assert steps == ["unsqueeze", "kernel", "turn", "scale * conv + bias"]
    assert same(module.shifted, (b, draw(16, c)), draw(9, 16))[-1] == "relu(matmul + bias)"


class Residual:
    """Makes a block of torch; its weights are constants of the graph that is read from it."""

    def __new__(cls, c: int):
        torch = pytest.importorskip("torch")

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv1, self.conv2 = (torch.nn.Conv2d(c, c, 3, 1, 1) for _ in range(2))
                self.norm1, self.norm2 = (torch.nn.BatchNorm2d(c) for _ in range(2))

            def forward(self, x):
                y = torch.relu(self.norm1(self.conv1(x)))
                return torch.relu(self.norm2(self.conv2(y)) + x)

        block = Block().eval()
        for norm in (block.norm1, block.norm2):
            torch.nn.init.normal_(norm.running_mean)
            torch.nn.init.uniform_(norm.running_var, 0.5, 2)
        return block.half()


def test_arrays_are_turned_once_and_weights_when_the_plan_is_made(monkeypatch):
    """Both norms are folded, and x, which two steps want with channels last, is turned by one."""
    torch = pytest.importorskip("torch")
    block = Residual(8)
    net = compile(axon.load_fx(block, dims={"x": "n 8 h w"}))
    x = torch.randn(2, 8, 4, 5).half()
    got = net(x)
    with torch.no_grad():
        torch.testing.assert_close(got, block(x), rtol=2e-2, atol=2e-2)
    turned = dict(net._turned)
    steps = [str(step) for step in net.plan(x).steps if not str(step).startswith("reshape")]
    assert [step for step in steps if not step.endswith(", once")] == [
        "turn [2, 8, 4, 5] by [0, 2, 3, 1]",
        "relu(scale * conv + bias) [2, 8, 4, 5]",
        "relu(scale * conv + bias + residual) [2, 8, 4, 5]",
    ]
    assert steps.count("kernel [8], [8], once") == 2
    near = x.to(memory_format=torch.channels_last)
    assert "turn [2, 8, 4, 5]" not in str(net.plan(near))
    torch.testing.assert_close(net(near), got, rtol=0, atol=0)
    assert [id(each) for each in net._turned.values()] == [id(each) for each in turned.values()]

    def made_again(*_: object) -> None:
        pytest.fail("a call decides nothing that its kind of arguments decides")

    for place in ("plan.look", "schedule.Task.bind", "launch.Launch.bind", "launch.build"):
        monkeypatch.setattr(f"tawa.axon.fuse.{place}", made_again)
    net(x)


def test_what_is_kept_is_not_what_callers_get(module):
    """A result that weights alone decide is a copy: callers may write to it."""
    torch = pytest.importorskip("torch")

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x + self.w, torch.exp(self.w), self.w

    net = compile(axon.load_fx(Scaled(), dims={"x": "n 4"}))
    x = torch.zeros(2, 4)
    for _ in range(3):
        total, found, weight = net(x)
        torch.testing.assert_close(total, torch.ones(2, 4))
        torch.testing.assert_close(found, torch.full((4,), np.e))
        found.zero_()
        weight.zero_()


def test_no_array_is_held_longer_than_it_is_read(module, monkeypatch):
    held: list[int] = []
    plain = Plan._do

    def do(plan: Plan, *given: object, **options: bool) -> range:
        held.append(sum(each is not None for each in plan._held))
        return plain(plan, *given, **options)

    monkeypatch.setattr(Plan, "_do", do)
    x = draw(1, 2, 3, 4)
    net = compile(module.pools)
    np.testing.assert_array_equal(net(x), module.pools(x))
    assert held == [1, 1, 1, 1, 1], "as the plan is made: what was made last"
    lines = [line.split() for line in net.plan(x).code.splitlines()[2:-1]]
    read, dropped = lines[::2], lines[1::2]
    assert [each[-2].split("((")[1] for each in read] == ["x0,", "x1,", "x2,", "x3,", "x4,"]
    assert [each[0] for each in dropped] == ["x0", "x1", "x2", "x3", "x4"], "by calls"


def test_a_kernel_turns_the_fewest_elements(module):
    """Two arrays lie with channels first, one with channels last: that is turned, and no other."""
    w, x = draw(4, 4, 3, 3), draw(2, 4, 3, 5)
    compiled = compile(module.both)
    last = np.ascontiguousarray(draw(2, 4, 3, 5).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    given = (w, x, last)
    np.testing.assert_allclose(compiled(given), module.both(given), rtol=5e-3, atol=5e-3)
    turned = [str(each) for each in compiled.plan(given).steps if str(each).startswith("turn")]
    assert turned == ["turn [4, 4, 3, 3] by [0, 2, 3, 1]", "turn [2, 4, 3, 5] by [0, 2, 3, 1]"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_arrays_are_turned_through_tiles(dtype):
    x = draw(2, 5, 13, 7, dtype=dtype)
    for order in ((0, 2, 3, 1), (0, 1, 2, 3)):
        view = look(x)
        groups = turn._groups(view, order)
        turned = turn._turned(x, view, order, groups)(x)
        np.testing.assert_array_equal(turned, x)
        assert turned.transpose(order).flags.c_contiguous
        x = turned
    assert turn._groups(look(x), (0, 2, 1, 3)) is None, "rows stay rows"
    assert turn._groups(look(x[..., ::2]), (0, 2, 3, 1)) is None, "no items lie side by side"
    assert turn._groups(look(x[:, :, :0]), (0, 2, 3, 1)) is None


def test_axes_that_are_no_single_one_are_apart(module):
    """Each is refused by `fuse`: two axes reduced, a diagonal, other orders."""
    same(module.across, draw(5, 6))
    same(module.scaled, draw(6, 6))
    same(module.norms, (draw(4), draw(4)), draw(2, 4, 3, 5))


def test_moves_and_functions_of_items_are_steps(module):
    assert "max_pool" in same(module.moves, draw(1, 4, 3, 2))
    same(module.items, draw(3, 4))


def test_what_several_need_is_computed_once(module):
    """A product that is a result is no part of another; a sum that two read is stored."""
    steps = same(module.twice, (draw(8, 16), draw(4, 8)))
    assert steps.count("matmul") == 1
    steps = same(module.shared, (draw(8, 8), draw(4, 8), draw(4, 8)))
    assert steps == ["kernel", "matmul", "matmul", "kernel"]


def test_an_equation_of_two_arrays_is_a_product(module):
    steps = same(module.contracted, (draw(2, 3, 2, 4), draw(2, 5, 2, 4)))
    assert "matmul" in steps
    assert "einsum" not in steps
    assert same(module.traced, draw(3, 3)) == ["einsum"]


def test_types_that_the_library_does_not_take(module):
    whole = (RNG.integers(-4, 4, (4, 3)), RNG.integers(-4, 4, (2, 4)))
    same(module.wide, whole)
    same(module.wide, (draw(4, 3, dtype=np.float64), draw(2, 4, dtype=np.float64)), tolerance=0)


def test_what_is_not_compiled_is_named(module):
    torch = pytest.importorskip("torch")
    with pytest.raises(AxonError, match=r"`nonzero` cannot be compiled(.|\n)*depends on data"):
        compile(module.some)(draw(3))
    with pytest.raises(AxonGuard, match="requires a gradient"):
        compile(module.wide)((torch.ones(2, 3, requires_grad=True), torch.ones(4, 2)))
    asking = torch.ones(2, 3, requires_grad=True)
    for made in (fuse, compile):
        function = made(axon.load("fun f x = exp x + 1.0").f)
        with torch.no_grad():
            assert torch.allclose(function(asking), torch.exp(asking) + 1.0)
        with pytest.raises(AxonGuard, match="requires a gradient"):
            function(asking)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(torch.ones(2, 3), torch.ones(2, 3))
            with pytest.raises(AxonGuard, match="requires a gradient"):
                function(dual)
    with pytest.raises(AxonGuard, match="cannot take"):
        compile(module.wide)((draw(2, 3), draw(4, 3)))


def test_numbers_that_are_equal_and_compute_otherwise_have_plans_of_their_own():
    for made in (fuse, compile):
        function = made(axon.load("fun f (x, n) = x / n").f)
        x = np.array([1.0, -2.0], np.float32)
        with np.errstate(divide="ignore"):
            for number in (0.0, -0.0, 2.0, 2, math.nan, math.nan):
                np.testing.assert_array_equal(function((x, number)), x / np.float32(number))


def test_weights_are_those_of_when_the_graph_was_imported():
    """What a plan has computed of weights, or turned, would not follow the module's."""
    torch = pytest.importorskip("torch")
    layers = torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
    net = torch.nn.Sequential(*layers).eval()
    graph = axon.load_fx(net)
    function, x = compile(graph), torch.randn(1, 8, 5, 5)
    compiled, eager = function(x), graph(x)
    with torch.no_grad():
        for each in (*net.parameters(), *net.buffers()):
            each.add_(1)
    assert torch.equal(function(x), compiled)
    assert torch.equal(graph(x), eager)


def test_a_norm_that_may_divide_by_nothing_is_not_folded(module):
    """A variance of 0 without `eps` gives infinities of the sign that x less its mean has."""
    text = "fun f (w, m, v, s, t) x = batch_norm {eps = EPS} m v s t (conv w x)"
    x, w = draw(2, 4, 3), np.eye(4, dtype=np.float32)[:, :, None]
    m, v, s, t = (draw(4) for _ in range(4))
    v = np.float32([0, 1, 2, 0])
    for eps, folded in (("0.0", False), ("0.5", True)):
        function = axon.load(text.replace("EPS", eps)).f
        compiled, given = compile(function), (w, m, v, s, t)
        with np.errstate(all="ignore"):
            want = function(given, x)
        np.testing.assert_allclose(compiled(given, x), want, rtol=5e-3, atol=5e-3)
        assert ("scale * conv" in str(compiled.plan(given, x))) == folded
    assert np.isinf(function(given, x)).any() != folded


def test_arrays_of_numpy_beside_tensors_become_tensors(module):
    torch = pytest.importorskip("torch")
    function = axon.load("fun f (w, x) = tanh (x - w)").f
    w, x = draw(8, 8), draw(3, 8)
    for a, b in ((torch.tensor(w), x), (w, torch.tensor(x)), (w[::-1, ::-1], torch.tensor(x))):
        want = module.shared((a, b, x[:, ::-1]))
        for one, other in zip(compile(module.shared)((a, b, x[:, ::-1])), want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(fuse(function)((a[0], b)), function((a[0], b)))


def test_an_imported_network_is_compiled():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.LayerNorm(4),
        torch.nn.Linear(4, 6),
        torch.nn.GELU("tanh"),
    ).eval()
    compiled = compile(axon.load_fx(net, dims={"input": "n 3 h w"}))
    x = torch.randn(2, 3, 7, 6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=5e-3, atol=5e-3)
    assert "relu(conv + bias)" in str(compiled.plan(x))
    assert "gelu(matmul + bias)" in str(compiled.plan(x))


def test_random_expressions_that_are_linear_are_found():
    """What is found equals the expression; what is made of sums and vectors alone is found."""
    drawn, found = random.Random(0), 0
    for _ in range(200):
        cuts = Cuts()
        x, r = (cuts.array((2, 3, 4), "float32") for _ in range(2))
        a, b = (cuts.array((3, 1), "float32") for _ in range(2))
        arrays = {each.node: draw(*map(int, each.shape)) + 2 for each in (x, r, a, b)}
        value, residuals = x, 0
        for _ in range(drawn.randint(1, 6)):
            vector = drawn.choice([a, b, a * b, np.exp(a) - 1.5, 0.5])
            act = drawn.choice(["+", "-", "from", "*", "/", "neg", "more"])
            match act:
                case "more":
                    value, residuals = value + r, residuals + 1
                case "neg":
                    value = -value
                case "from":
                    value = vector - value
                case "-" | "+" | "*" | "/":
                    value = getattr(operator, NAMES[act])(value, vector)
        parts = Linear(cuts, x, 1).arrays(value.node)
        if parts is None:
            continue
        found += 1
        bias, residual, scale = (0 if p is None else valued(p.node, arrays) for p in parts)
        scale = 1 if parts[2] is None else scale
        want = valued(value.node, arrays)
        got = scale * arrays[x.node] + bias + residual
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
        assert residuals <= 1
    assert found > 70


NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "neg": "neg"}


def valued(node, arrays):
    """Return the value of a traced expression, or of a number."""
    if not isinstance(node, Node):
        return node
    if node in arrays:
        return arrays[node]
    given = [valued(each, arrays) for each in node.inputs]
    return np.exp(*given) if node.name == "exp" else getattr(operator, NAMES[node.name])(*given)
