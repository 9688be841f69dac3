"""`tawa.torch`: operators, gradients, what takes the place of torch's, in the simulator."""

import copy
import inspect
import shutil
import sys
import types
from functools import partial

import pytest

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError, MissingPackage
from tawa.kernels.matmul import matmul
from tawa.kernels.variants import Variant

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.library import opcheck  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402

import tawa.torch as tt  # noqa: E402
from attention_tiles import small_tiles  # noqa: E402
from covering import is_short  # noqa: E402
from torch_reference import attention as reference  # noqa: E402
from torch_reference import doubles, worst  # noqa: E402

OPS = torch.ops.tawa


@tawa.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)


def over(meta):
    return (tawa.cdiv(meta["n"], meta["BLOCK"]),)


def half(*shape, grad=False):
    return torch.randn(*shape).half().requires_grad_(grad)


@pytest.fixture(autouse=True, scope="module")
def _small_tiles(request):
    with small_tiles(roles=not is_short(request.config)):
        yield


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)
    torch._dynamo.reset()


def near(found, expected, tolerance=4e-3):
    torch.testing.assert_close(found.float(), expected.float(), rtol=tolerance, atol=tolerance)


# --- operators ----------------------------------------------------------------------------------


@pytest.mark.long
def test_opcheck_is_green_for_other_products():
    opcheck(OPS.matmul, (half(32, 64, grad=True), half(64, 32, grad=True)))
    opcheck(OPS.matmul, (half(64), half(2, 64, 16)))


def test_opcheck_is_green():
    both = half(2, 32, 64, grad=True), half(64, 32, grad=True), half(32, grad=True)
    opcheck(OPS.matmul, both, {"activation": "gelu"})
    given = half(32, 32), half(32, 64), half(64, 32), half(32), "silu"
    opcheck(OPS.matmul_activation_backward, given)
    q, k, v = (half(1, h, 40, d, grad=True) for h, d in ((1, 64), (1, 64), (1, 40)))
    dropped = {"dropout": 0.2, "rng": torch.tensor([3, 4])}
    opcheck(OPS.attention, (q, k, v), dropped)
    with torch.no_grad():
        out, lse = OPS.attention(q, k, v, **dropped)
        given = (each.detach() for each in (out, q, k, v, out, lse))
        opcheck(OPS.attention_backward, tuple(given), dropped)
        bias = half(1, 1, 40, 40)
        how = {"bias": bias, "bias_gradient": True}
        given = q, q, q, q, q, lse
        torch.library.opcheck(OPS.attention_backward, given, how, test_utils="test_faketensor")
        starts = torch.zeros(2, dtype=torch.int32)
        rows, cache = half(2, 1, 2, 64), torch.zeros(2, 8, 2, 64).half()
        opcheck(OPS.place, (rows, cache, None, None, False, starts, None, False, True))


def test_what_is_kept_for_a_gradient_is_looked_after():
    """Gradients that torch's own layers do not record: a changed operand is seen, hooks run."""
    x, w = half(4, 64, grad=True), half(32, 64, grad=True)
    y = tt.linear(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y.sum(), x)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        torch.autograd.grad(tt.linear(x, w).sum(), (x, w))
    assert [tuple(each.shape) for each in packed] == [(4, 64), (64, 32)]


def test_gradients_of_many_outputs_at_once():
    x, w, q = half(4, 64, grad=True), half(32, 64, grad=True), half(1, 1, 8, 64, grad=True)
    y, each = tt.linear(x, w), half(3, 4, 32)
    found = torch.autograd.grad(y, (x, w), each, is_grads_batched=True, retain_graph=True)
    for place, one in enumerate(each):
        for batch, want in zip(found, torch.autograd.grad(y, (x, w), one, retain_graph=True)):
            near(batch[place], want)
    seen = tt.scaled_dot_product_attention(q, q, q)
    with pytest.raises((ArgumentError, RuntimeError), match="attention_backward"):
        torch.autograd.grad(seen, q, half(2, 1, 1, 8, 64), is_grads_batched=True)


ACTIVATIONS = {
    "": lambda z: z,
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "silu": F.silu,
    "gelu": lambda z: F.gelu(z, approximate="tanh"),
}


# The two kernels load apart and finish alike.
@pytest.mark.parametrize(
    ("activation", "form"),
    [
        *((name, "descriptors") for name in list(ACTIVATIONS)[1:]),
        ("gelu", "pointers"),
        *(
            pytest.param(name, "pointers", marks=pytest.mark.long)
            for name in ("relu", "leaky_relu", "silu")
        ),
    ],
)
def test_an_activations_gradient_within_the_product(activation, form):
    a, b, bias, gradient = half(40, 64), half(64, 48), half(48), half(40, 48)
    variant = Variant(form, tawa.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}))
    if form == "pointers":
        variant.config.kwargs["GROUP_M"] = 8
    how = {"bias": bias, "activation": activation, "gradient": gradient}
    found = matmul(a, b, **how, variant=variant)
    z = (a.double() @ b.double() + bias.double()).requires_grad_()
    expected = torch.autograd.grad(ACTIVATIONS[activation](z), z, gradient.double())
    assert worst([found], expected) < 1e-3
    if activation == "gelu" and form == "pointers":
        more = half(2, 40, 64)
        again = matmul(more, b, **how | {"gradient": gradient.expand(2, 40, 48)})
        assert torch.equal(again[1], matmul(more[1], b, **how))
        for given, message in (
            (gradient[:, :4], "lies as the product does"),
            (gradient.double(), "gradient holds"),
        ):
            with pytest.raises(ArgumentError, match=message):
                matmul(a, b, **how | {"gradient": given})
        with pytest.raises(ArgumentError, match="gradient without an activation"):
            matmul(a, b, gradient=gradient)


# silu goes the way of gelu.
@pytest.mark.parametrize(
    "activation",
    [pytest.param(n, marks=pytest.mark.long if n == "silu" else ()) for n in ACTIVATIONS],
)
def test_gradients_of_products(activation):
    leaves = half(2, 16, 64, grad=True), half(64, 32, grad=True), half(32, grad=True)
    others = doubles(*leaves)
    weight = torch.randn(2, 16, 32)
    made = tt.matmul(leaves[0], leaves[1], bias=leaves[2], activation=activation)
    found = torch.autograd.grad((made * weight).sum(), leaves)
    exact = ACTIVATIONS[activation](others[0] @ others[1] + others[2])
    assert worst(found, torch.autograd.grad((exact * weight).sum(), others)) < 1e-2


@pytest.mark.parametrize(
    ("left", "right", "turned"),
    [
        ((2, 3, 16, 64), (1, 3, 32, 64), True),
        ((64,), (2, 64, 32), False),
        ((2, 16, 64), (64,), False),
        ((4, 16, 64), (1, 64, 32), False),
    ],
)
def test_gradients_of_products_of_any_shape(left, right, turned):
    leaves = half(*left, grad=True), half(*right, grad=True)
    others = doubles(*leaves)
    made = tt.matmul(leaves[0], leaves[1].mT if turned else leaves[1])
    exact = others[0] @ (others[1].mT if turned else others[1])
    # The gradient of a sum is expanded: all of its strides are zero.
    found = torch.autograd.grad(made.sum(), leaves)
    assert worst(found, torch.autograd.grad(exact.sum(), others)) < 1e-2


def test_gradients_with_scales_and_refusals():
    a, b = half(16, 64, grad=True), half(64, 32, grad=True)
    scale_a, scale_b = torch.rand(16) + 0.5, torch.rand(32) + 0.5
    made = tt.matmul(a, b, scale_a=scale_a, scale_b=scale_b)
    others = doubles(a, b)
    exact = others[0] @ others[1] * scale_a[:, None] * scale_b
    weight = torch.randn(16, 32)
    found = torch.autograd.grad((made * weight).sum(), (a, b))
    assert worst(found, torch.autograd.grad((exact * weight).sum(), others)) < 1e-2
    with pytest.raises(ArgumentError, match="no gradient by scale"):
        tt.matmul(a, b, scale_a=scale_a.requires_grad_(), scale_b=scale_b)


@pytest.mark.parametrize("activation", ["", "gelu", "relu"])
def test_second_gradients_of_products(activation):
    a, b = torch.randn(16, 32, requires_grad=True), torch.randn(32, 16, requires_grad=True)

    def second(made):
        (first,) = torch.autograd.grad(made.pow(2).sum(), a, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), (a, b))

    found = second(tt.matmul(a, b, activation=activation))
    expected = second(ACTIVATIONS[activation](a @ b))
    assert worst(found, [each.double() for each in expected]) < 1e-4


def test_gradients_of_attention():
    q, k, v = half(1, 2, 40, 64, grad=True), *(half(1, 1, 56, 64, grad=True) for _ in range(2))
    sink, bias = torch.randn(2, requires_grad=True), half(40, 56, grad=True)
    weight = torch.randn(1, 2, 40, 64)
    out, lse = tt.attention(q, k, v, causal=True, sink=sink, return_lse=True)
    found = torch.autograd.grad((out * weight).sum() + lse.sum(), (q, k, v, sink))
    *others, of_sink = doubles(q, k, v, sink)
    exact, exact_lse = reference(*others, causal=True, sink=of_sink)
    loss = (exact * weight).sum() + exact_lse.sum()
    assert worst(found, torch.autograd.grad(loss, (*others, of_sink))) < 1e-2
    # An expanded gradient has rows that share their memory. All heads of both sequences add to one
    # element of a mask.
    made = tt.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True)
    found = torch.autograd.grad(made.mean(1).sum(), (q, k, v, bias))
    *others, of_bias = doubles(q, k, v, bias)
    exact, _ = reference(*others, bias=of_bias)
    assert worst(found, torch.autograd.grad(exact.mean(1).sum(), (*others, of_bias))) < 1e-2


def test_gradients_lie_as_what_they_are_of():
    def train(x, weight):
        heads = tt.linear(x, weight).unflatten(-1, (2, 64)).transpose(1, 2)
        out = tt.linear(tt.attention(heads, heads, heads).transpose(1, 2).flatten(-2), weight)
        return torch.autograd.grad(out.sum(), (x, weight))

    x, weight = half(2, 40, 128, grad=True), half(128, 128, grad=True)
    graph = make_fx(train, tracing_mode="fake")(x, weight)
    # A step copies nothing between products and attention, nor a gradient to lie as its weight.
    assert "attention_backward" in graph.code
    assert "clone" not in graph.code
    (found,) = graph.graph.find_nodes(op="output")
    assert [each.meta["val"].stride() for each in found.args[0]] == [x.stride(), weight.stride()]


def test_a_window_is_one_with_and_without_gradients():
    q = half(1, 1, 40, 64)
    expected, _ = reference(*(each.detach() for each in doubles(q, q, q)), window=(4, 4))
    for window in (5, (4, 4), [4, 4]):  # one kernel each, compiled once
        near(tt.attention(q, q, q, window=window, return_lse=True)[0], expected)
        near(tt.attention(q.clone().requires_grad_(), q, q, window=window), expected)


def test_gradients_in_no_order_are_asked_for():
    # Heads side by side, columns, which TMA reads only from a copy, and heads that are expanded.
    q, k = half(1, 40, 2, 64).transpose(1, 2), half(1, 2, 64, 40).mT
    q, k, v = (each.requires_grad_() for each in (q, k, half(1, 1, 40, 64).expand(1, 2, -1, -1)))
    weight, fixed = torch.randn(1, 2, 40, 64), (q.detach(), v.detach())

    def gradients(**how):
        return torch.autograd.grad((tt.attention(q, k, v, **how) * weight).sum(), (q, k, v))

    found, same = gradients(deterministic=False), gradients()
    assert worst(found, [each.double() for each in same]) < 5e-3
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(each).detach() for each in (q, k, v)]
        out, lse = OPS.attention(*fakes)
        told = OPS.attention_backward(out, *fakes, out, lse)
    assert [each.stride() for each in told] == [each.stride() for each in found]
    by_columns = tt.attention(k.detach(), *fixed)
    assert torch.equal(by_columns, tt.attention(k.detach().contiguous(), *fixed))
    torch.use_deterministic_algorithms(True)
    try:
        for one, other in zip(gradients(deterministic=False), same, strict=True):
            assert torch.equal(one, other)
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_has_no_gradient_raises_by_name():
    q = half(1, 1, 8, 64, grad=True)
    lengths = torch.tensor([8], dtype=torch.int32)
    with pytest.raises(ArgumentError, match="no gradient of attention by alibi"):
        tt.attention(q, q, q, alibi=torch.ones(1, requires_grad=True))
    with pytest.raises(ArgumentError, match="no gradient of attention with lengths"):
        tt.attention(q, q, q, lengths=lengths)
    (first,) = torch.autograd.grad(tt.attention(q, q, q).sum(), q, create_graph=True)
    with pytest.raises(ArgumentError, match="no second gradient"):
        first.sum().backward()


def test_vmap_has_a_rule_or_refuses():
    a, b = half(3, 16, 64), half(64, 3, 32)
    found = torch.vmap(OPS.matmul, in_dims=(0, 1))(a, b)
    near(found, torch.einsum("imk,kin->imn", a.float(), b.float()), 2e-2)
    one = torch.vmap(lambda x: OPS.matmul(x, b[:, 0]))(half(3, 2, 16, 64))
    assert one.shape == (3, 2, 16, 32)
    q, k, bias = half(2, 1, 1, 8, 64, grad=True), half(1, 1, 8, 64), half(1, 1, 1, 8)
    made = torch.vmap(lambda x: OPS.attention(x, k, k, bias=bias)[0])(q)
    alone = [tt.attention(each, k, k, bias=bias) for each in q]
    near(made, torch.stack(alone))
    (found,) = torch.autograd.grad(made.sum(), q)
    near(found, torch.autograd.grad(torch.stack(alone).sum(), q)[0])
    slopes = torch.tensor([[0.5], [0.25]])
    k = half(2, 1, 8, 64)
    for given, axis in ((slopes, None), (slopes, 0), (torch.stack((slopes, 2 * slopes)), 0)):
        sloped = torch.vmap(lambda x, s: tt.attention(x, k, k, alibi=s), (0, axis))
        each = given.expand(2, 2, 1) if axis is None else given
        alone = [tt.attention(x, k, k, alibi=s) for x, s in zip(q.expand(2, 2, 1, 8, 64), each)]
        near(sloped(q.expand(2, 2, 1, 8, 64), given), torch.stack(alone))
    with pytest.raises(ArgumentError, match="attention over or with sink"):
        torch.vmap(lambda x: OPS.attention(k, k, k, sink=x)[0])(torch.ones(2, 1))
    bias = half(3, 32)
    made = torch.vmap(lambda x, y: OPS.matmul(x, b[:, 0], y))(a, bias)
    near(made, a.float() @ b[:, 0].float() + bias[:, None])
    made = torch.vmap(lambda x, y: OPS.matmul(x, b[:, 0], y))(a[:, 0], bias)
    near(made, a[:, 0].float() @ b[:, 0].float() + bias)
    eight = [each.to(torch.float8_e4m3fn) for each in (a[:, 0], b[:, 0].t())]
    wide = torch.vmap(lambda x, y: OPS.matmul(x, eight[1].t(), y))(eight[0], bias.bfloat16())
    assert wide.dtype is OPS.matmul(eight[0][0], eight[1].t()).dtype is torch.bfloat16
    with pytest.raises(ArgumentError, match="vmap over a bias with an activation"):
        torch.vmap(lambda x, y: OPS.matmul(x, b[:, 0], y, "gelu"))(a, bias)


def test_transforms_of_torch_func():
    plain = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)
    ).half()
    model, x = copy.deepcopy(plain), half(3, 16)
    tt.replace(model, verbose=False)

    def loss(parameters, x, net):
        return torch.func.functional_call(net, parameters, (x,)).float().square().sum()

    # The gradients of each sample, and their vectors.
    each = torch.vmap(torch.func.grad(loss), (None, 0, None))
    found, expected = (each(dict(net.named_parameters()), x, net) for net in (model, plain))
    for name, gradient in expected.items():
        near(found[name], gradient, 3e-2)
    # An ensemble, whose weights and biases are mapped.
    stacked = {name: torch.stack([y, -y]) for name, y in plain.named_parameters()}
    ensemble = torch.vmap(torch.func.functional_call, (None, 0, None))
    near(ensemble(model, stacked, (x,)), ensemble(plain, stacked, (x,)), 2e-2)
    w, q = half(8, 8, 3, 3), half(1, 2, 8, 16)
    image = half(2, 8, 6, 6)
    for ours, torchs, at in (
        (lambda w: tt.conv2d(image, w), lambda w: F.conv2d(image, w), w),
        (lambda q: tt.attention(q, q, q), lambda q: F.scaled_dot_product_attention(q, q, q), q),
        (lambda q: torch.vmap(tt.matmul)(q, q.mT), lambda q: q @ q.mT, q),
    ):
        summed = [lambda y, f=f: f(y).float().square().sum() for f in (ours, torchs)]
        near(*(torch.func.grad(each)(at) for each in summed), 3e-2)
        near(torch.func.functionalize(ours)(at), torchs(at), 2e-2)
        with torch.autocast("cpu", torch.float16):
            found = torch.func.grad(summed[0])(at.float())
        assert found.dtype == torch.float32
        near(found, torch.func.grad(summed[1])(at), 3e-2)
        with pytest.raises(ArgumentError, match="no gradient in forward mode"):
            torch.func.jvp(ours, (at,), (at,))
    cubed = [lambda y, f=f: f(y, w[0, 0]).pow(3).sum() for f in (tt.matmul, torch.matmul)]
    y = torch.randn(2, 3)
    w = w.float()
    near(*(torch.func.jacrev(torch.func.jacrev(each))(y) for each in cubed), 1e-3)
    traced = torch.compile(torch.func.grad(cubed[0]), fullgraph=True, backend="aot_eager")
    near(traced(y), torch.func.grad(cubed[1])(y), 1e-3)
    with torch.no_grad():  # the formula's own kernel, mapped
        a, b, c = half(2, 3, 16), half(16, 8), half(8)
        _, back = torch.func.vjp(
            lambda *each: tt.matmul(*each[:2], bias=each[2], activation="gelu"), a, b, c
        )
        _, torchs = torch.func.vjp(lambda a, b, c: F.gelu(a @ b + c, approximate="tanh"), a, b, c)
        dy = half(4, 2, 3, 8)
        for x, y in zip(torch.vmap(back)(dy), torch.vmap(torchs)(dy)):
            near(x, y, 3e-2)
    # The gradients of each sample, two sequences each, and that of a bias which they share.
    q, bias = half(3, 2, 2, 8, 16), half(1, 2, 8, 8)
    found, expected = (
        torch.vmap(
            torch.func.grad(lambda q, b, f=f: f(q, b).float().square().sum(), (0, 1)), (0, None)
        )(q, bias)
        for f in (
            lambda q, b: tt.attention(q, q, q, bias=b),
            lambda q, b: F.scaled_dot_product_attention(q, q, q, b),
        )
    )
    for x, y in zip(found, expected):
        near(x, y, 3e-2)


def test_autocast_casts_and_gradients_come_back_wide():
    a, b = torch.randn(16, 64, requires_grad=True), torch.randn(64, 16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = tt.matmul(a, b)
        q = torch.randn(1, 1, 8, 64)
        assert tt.attention(q, q, q).dtype == torch.bfloat16
    assert made.dtype == torch.bfloat16
    made.sum().backward()
    assert a.grad.dtype == torch.float32


def test_shapes_alone_are_of_one_device():
    """A meta tensor beside one with elements: what has none of its own is not made up."""
    a, b = half(16, 64), half(64, 32)
    q = half(1, 1, 8, 64)
    with pytest.raises(RuntimeError, match="a is on cpu, b on meta"):
        OPS.matmul(a, b.to("meta"))
    with pytest.raises(RuntimeError, match="on different devices"):
        OPS.attention(q, q.to("meta"), q)
    assert OPS.matmul(a.to("meta"), b.to("meta")).shape == (16, 32)
    for other, message in ((q[..., :4, :], "different lengths"), (q.bfloat16(), "different types")):
        with pytest.raises(RuntimeError, match=message):
            OPS.attention(*(each.to("meta") for each in (q, q, other)))
    with torch.device("meta"):
        layer, x = tt.Linear(64, 32), torch.ones(2, 64)
    assert layer(x).shape == (2, 32)
    y = q.to("meta")
    assert tt.scaled_dot_product_attention(y, y, y, is_causal=True).shape == q.shape


def test_no_columns_to_compare_are_refused_by_name():
    q = half(1, 1, 8, 0)
    with pytest.raises(ArgumentError, match="head_dim is 0"):
        tt.scaled_dot_product_attention(q, q, half(1, 1, 8, 64))
    assert tt.scaled_dot_product_attention(q, q, q).shape == q.shape


def test_operators_that_nothing_records_compute_at_once():
    """A compiled graph calls them so; whoever records or looks on still sees each of them."""
    a, b, grown = half(16, 64), half(64, 32), half(64, 32, grad=True)

    def layers(b):
        with pytest.raises(ArgumentError) as caught:
            OPS.matmul(a, b, None, "no such function")
        return [frame for frame in caught.traceback if "_library" in str(frame.path)]

    assert not layers(grown), "a gradient is recorded without torch's layers too"
    assert OPS.matmul(a, grown).grad_fn is not None
    with torch.no_grad():
        assert not layers(grown)
    assert not layers(b)

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names += (str(function),)
            return function(*args, **(kwargs or {}))

    with torch.no_grad(), Seen() as seen:
        OPS.matmul(a, grown)
    assert "tawa.matmul.default" in seen.names
    assert OPS.matmul(a, grown).requires_grad


@pytest.mark.parametrize("function", [OPS.matmul, tt.matmul])
def test_no_tangent_is_lost(function):
    """torch takes operators that have no rule for tangents to give zeros."""
    a, b = half(16, 64), half(64, 32)
    with pytest.raises(ArgumentError, match="forward mode"):
        torch.func.jvp(lambda x: function(x, b), (a,), (a,))
    with torch.autograd.forward_ad.dual_level():
        near(function(a, b), a.float() @ b.float())
        with torch.no_grad(), pytest.raises(ArgumentError, match="forward mode"):
            function(torch.autograd.forward_ad.make_dual(a, a), b)


def test_no_tangent_is_lost_by_operators_that_write():
    schema = "(Tensor x, Tensor y, Tensor out, SymInt n)"
    made = {"out": lambda x, y, n: torch.empty_like(x)}
    into = tt.op(f"tested::wrote{schema}", add, grid=over, BLOCK=256)
    fresh = tt.op(f"tested::gave{schema}", add, grid=over, BLOCK=256, out=made)
    x, out, cache = torch.randn(8), torch.zeros(8), half(1, 16, 1, 64)
    row, starts = half(1, 1, 1, 64), torch.tensor([3], dtype=torch.int32)

    def placed(row):
        OPS.place(row, cache, None, None, False, starts, None, False, True)

    for function, given in (
        (lambda x: into(x, x, out, 8), x),
        (lambda x: fresh(x, x, 8), x),
        (placed, row),
    ):
        with pytest.raises(ArgumentError, match="forward mode"):
            torch.func.jvp(function, (given,), (given,))
    before = cache._version
    placed(row)  # at once, and autograd knows of it
    assert cache._version > before
    assert torch.equal(cache[0, 3], row[0, 0])


@pytest.mark.parametrize("function", [OPS.matmul, tt.matmul])
def test_views_whose_sign_is_turned_are_read_as_they_are(function):
    a, b = half(16, 64), half(64, 32)
    near(function(torch._neg_view(a), b), -(a.float() @ b.float()))


def test_a_trace_holds_the_operator():
    a, b = half(16, 64), half(64, 32)
    traced = torch.jit.trace(lambda x: tt.matmul(x, b), (a,), check_trace=False)
    near(traced(2 * a), 2 * a.float() @ b.float(), 1e-2)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = tt.Linear(64, 64).half()

    def forward(self, x):
        y = self.layer(x).unsqueeze(1)
        return tt.scaled_dot_product_attention(y, y, y, is_causal=True)


def test_sharded_weights_train():
    """FSDP2 frees the memory of gathered weights, which a launch must leave torch's own."""
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available() or dist.is_initialized():
        pytest.skip("needs torch.distributed, and no process group of others")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        models = [
            torch.nn.Sequential(*(kind(32, 32) for _ in "ab"))
            for kind in (tt.Linear, torch.nn.Linear)
        ]
        models[1].load_state_dict(models[0].state_dict())
        x, found = half(8, 32), []
        for model in models:
            model.half()
            for layer in (*model, model):
                fsdp.fully_shard(layer)
            model(x).float().pow(2).sum().backward()
            found.append([each.grad.full_tensor() for each in model.parameters()])
        for ours, theirs in zip(*found, strict=True):
            near(ours, theirs)
    finally:
        dist.destroy_process_group()


def test_one_graph_export_and_checkpoint():
    from torch.utils.checkpoint import checkpoint

    model, x = Block(), half(2, 16, 64)
    expected = model(x)

    def gradient(run):
        model.zero_grad()
        run(x).float().pow(2).sum().backward()
        return model.layer.weight.grad.clone()

    own = gradient(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), expected)
    assert torch.equal(gradient(compiled), own)
    assert torch.equal(gradient(lambda y: checkpoint(model, y, use_reentrant=False)), own)
    sizes = ({0: torch.export.Dim("batch", min=2, max=16)},)
    program = torch.export.export(model, (x,), dynamic_shapes=sizes)
    targets = {str(node.target) for node in program.graph.nodes}
    assert {"tawa.matmul.default", "tawa.attention.default"} <= targets
    more = half(3, 16, 64)
    assert torch.equal(program.module()(more), model(more))


# --- in the place of torch's --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "keys", "how"),
    [
        (20, 33, {}),
        (20, 33, {"is_causal": True}),
        (33, 20, {"is_causal": True}),
        (20, 33, {"scale": 0.3}),
        (20, 33, {"attn_mask": (20, 33)}),
        (20, 33, {"attn_mask": (2, 20, 33)}),
        (20, 33, {"attn_mask": (2, 1, 20, 33)}),
        (20, 33, {"attn_mask": (20, 1)}),
    ],
)
def test_scaled_dot_product_attention_is_torchs(queries, keys, how):
    q, k, v = half(2, 2, queries, 64), half(2, 2, keys, 64), half(2, 2, keys, 64)
    if "attn_mask" in how:
        how = {"attn_mask": torch.rand(how["attn_mask"]) > 0.3}
        added = torch.randn(how["attn_mask"].shape).half()
        found = tt.scaled_dot_product_attention(q, k, v, attn_mask=added)
        near(found, F.scaled_dot_product_attention(q, k, v, attn_mask=added))
        seen = how["attn_mask"].expand(2, 2, queries, keys).any(-1, keepdim=True)
        found = tt.scaled_dot_product_attention(q, k, v, **how)
        # torch has NaN, or by another of its kernels zero, for rows without keys; we have zero.
        expected = F.scaled_dot_product_attention(q, k, v, **how)
        near(torch.where(seen, found, 0), torch.where(seen, expected, 0))
        assert not torch.where(seen, 0, found).any()
        return
    found = tt.scaled_dot_product_attention(q, k, v, **how)
    near(found, F.scaled_dot_product_attention(q, k, v, **how))


def test_scaled_dot_product_attention_of_other_forms():
    x = half(2, 10, 20)
    near(tt.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(x, x, x))
    x = half(2, 3, 2, 6, 8)
    for mask in (None, half(6, 6), half(2, 6, 6), half(3, 1, 6, 6), half(2, 1, 2, 6, 6)):
        for k in (x, x[:1], x[:, :1]):
            near(
                tt.scaled_dot_product_attention(x, k, k, mask),
                F.scaled_dot_product_attention(x, k, k, mask),
            )
    q, k = half(1, 4, 30, 64), half(1, 2, 30, 64)
    found = tt.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    near(found, F.scaled_dot_product_attention(q, k, k, enable_gqa=True))
    leaf = half(1, 1, 12, 20, grad=True)
    (found,) = torch.autograd.grad(tt.scaled_dot_product_attention(leaf, leaf, leaf).sum(), leaf)
    (other,) = doubles(leaf)
    exact = torch.autograd.grad(F.scaled_dot_product_attention(other, other, other).sum(), other)
    assert worst([found], exact) < 1e-2
    mask = torch.rand(12, 12) > 0.4
    mask[:, 0] = True
    made = tt.scaled_dot_product_attention(leaf, leaf, leaf, mask)
    (found,) = torch.autograd.grad(made.sum(), leaf)
    exact = F.scaled_dot_product_attention(other, other, other, mask)
    assert worst([found], torch.autograd.grad(exact.sum(), other)) < 1e-2
    for how, message in (
        ({"is_causal": True, "attn_mask": torch.ones(30, 30).bool()}, "=True and an attn_mask"),
        ({}, "query has 4 heads, key 2"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tt.scaled_dot_product_attention(q, k, k, **how)


def sdpa(q, k, v, **how):
    """torch's attention in FlashAttention's layout."""
    turned = (each.transpose(1, 2) for each in (q, k, v))
    return F.scaled_dot_product_attention(*turned, **how).transpose(1, 2)


def test_flash_attention_functions():
    q = half(2, 20, 2, 64)
    out, lse, _ = tt.flash_attn_func(q, q, q, causal=True, return_attn_probs=True)
    near(out, sdpa(q, q, q, is_causal=True))
    assert out.is_contiguous()
    assert lse.shape == (2, 2, 20)
    x, starts = half(20, 2, 64), torch.tensor([0, 7, 20], dtype=torch.int32)
    out = tt.flash_attn_varlen_func(x, x, x, starts, starts, 13, 13, causal=True)
    for low, high in ((0, 7), (7, 20)):
        part = x[None, low:high]
        near(out[low:high], sdpa(part, part, part, is_causal=True)[0])


def test_packed_operands_are_attended_to_as_they_lie():
    qkv, q = half(2, 20, 3, 2, 64, grad=True), half(2, 9, 2, 64)
    out = tt.flash_attn_qkvpacked_func(qkv, 0.0, None, True)
    near(out, sdpa(*qkv.unbind(2), is_causal=True))
    want = torch.autograd.grad(sdpa(*qkv.float().unbind(2), is_causal=True).sum(), qkv)
    near(torch.autograd.grad(out.float().sum(), qkv)[0], want[0])
    kv = qkv.detach()[:, :, 1:]
    near(tt.flash_attn_kvpacked_func(q, kv), sdpa(q, *kv.unbind(2)))
    rows, starts = qkv.detach().flatten(0, 1), torch.arange(3, dtype=torch.int32) * 20
    out = tt.flash_attn_varlen_qkvpacked_func(rows, starts, 20, causal=True)
    near(out.unflatten(0, (2, 20)), sdpa(*qkv.detach().unbind(2), is_causal=True))
    few = torch.arange(3, dtype=torch.int32) * 9
    out = tt.flash_attn_varlen_kvpacked_func(q.flatten(0, 1), rows[:, 1:], few, starts, 9, 20)
    near(out.unflatten(0, (2, 9)), sdpa(q, *kv.unbind(2)))


def test_slopes_of_each_batch_and_of_each_sequence():
    q, k, cache = half(2, 9, 2, 64, grad=True), half(2, 20, 2, 64), half(2, 30, 2, 64)
    slopes = torch.tensor([[0.1, 0.4], [0.6, 0.0]])
    out = tt.flash_attn_func(q, k, k, alibi_slopes=slopes)
    (found,) = torch.autograd.grad(out.float().sum(), q)
    few = tt.flash_attn_with_kvcache(q.detach(), cache, cache, alibi_slopes=slopes)
    starts = [torch.arange(3, dtype=torch.int32) * n for n in (9, 20)]
    flat = [each.detach().flatten(0, 1) for each in (q, k, k)]
    flat[0].requires_grad_()
    packed = tt.flash_attn_varlen_func(*flat, *starts, 9, 20, alibi_slopes=slopes)
    (of_packed,) = torch.autograd.grad(packed.float().sum(), flat[0])
    for batch, line in enumerate(slopes):
        one, of_keys = q[batch : batch + 1], k[batch : batch + 1]
        want = tt.flash_attn_func(one, of_keys, of_keys, alibi_slopes=line)
        (gradient,) = torch.autograd.grad(want.float().sum(), q)
        rows = slice(9 * batch, 9 * batch + 9)
        for made in (out[batch], packed[rows]):
            near(made, want[0])
        for made in (found[batch], of_packed[rows]):
            near(made, gradient[batch])
        of_cache = cache[batch : batch + 1]
        near(
            few[batch],
            tt.flash_attn_with_kvcache(one.detach(), *(of_cache,) * 2, alibi_slopes=line)[0],
        )
    with pytest.raises(ArgumentError, match=r"alibi is f32 \(3, 2\)"):
        tt.flash_attn_func(q, k, k, alibi_slopes=torch.ones(3, 2))


def test_dropout_is_torchs_to_seed():
    q, v = half(1, 20, 1, 64, grad=True), half(1, 20, 1, 40)

    def run(seed, again=lambda function, *given: function(*given)):
        torch.manual_seed(seed)
        out = again(lambda x: tt.flash_attn_func(x, x, v, 0.5), q)
        return out.detach(), torch.autograd.grad(out.float().square().sum(), q)[0]

    from torch.utils.checkpoint import checkpoint

    first, other = run(1), run(2)
    again = run(1, lambda *given: checkpoint(*given, use_reentrant=False))
    assert all(torch.equal(x, y) for x, y in zip(first, again))
    assert not torch.equal(first[0], other[0])
    assert first[0].shape == (1, 20, 1, 40)
    assert first[0].is_contiguous()


@pytest.mark.long
def test_packed_sequences_train():
    x, starts = half(20, 2, 64), torch.tensor([0, 7, 20], dtype=torch.int32)
    x.requires_grad_()
    out = tt.flash_attn_varlen_func(x, x, x, starts, starts, 13, 13, causal=True)
    (other,) = doubles(x)
    parts = [other[None, low:high] for low, high in ((0, 7), (7, 20))]
    exact = sum(sdpa(part, part, part, is_causal=True).sum() for part in parts)
    assert worst(torch.autograd.grad(out.sum(), x), torch.autograd.grad(exact, other)) < 1e-2


@pytest.mark.parametrize("paged", [False, True])
def test_flash_attention_over_a_cache(paged):
    table = torch.tensor([[0, 2, 5, 1], [3, 4, 6, 7]])
    held = [half(8, 16, 2, 64) if paged else half(2, 64, 2, 64) for _ in range(2)]
    q, k, v = half(2, 3, 2, 64), half(2, 3, 2, 64), half(2, 3, 2, 64)
    lengths = torch.tensor([5, 30])
    dense = [each[table].reshape(2, 64, 2, 64) if paged else each.clone() for each in held]
    for row, length in enumerate(lengths.tolist()):
        dense[0][row, length : length + 3], dense[1][row, length : length + 3] = k[row], v[row]
    how = {"block_table": table} if paged else {}
    out = tt.flash_attn_with_kvcache(q, *held, k, v, cache_seqlens=lengths, causal=True, **how)
    for row, length in enumerate(lengths.tolist()):
        one = q[row : row + 1], *(each[row : row + 1, : length + 3] for each in dense)
        near(out[row], sdpa(*one, attn_mask=torch.ones(3, length + 3).tril(length).bool())[0])
    if paged:
        held = [each[table].reshape(2, 64, 2, 64) for each in held]
    assert torch.equal(held[0], dense[0])
    assert torch.equal(held[1], dense[1])


def rotated(x, cos, sin, positions, interleaved):
    """x [length, heads, dim] in float64, turned by the angles of its positions."""
    x, width = x.double().clone(), 2 * cos.shape[1]
    cos, sin = (each[positions].double()[:, None] for each in (cos, sin))
    pairs = (slice(0, width, 2), slice(1, width, 2))
    pairs = pairs if interleaved else (slice(0, width // 2), slice(width // 2, width))
    a, b = (x[..., each].clone() for each in pairs)
    x[..., pairs[0]], x[..., pairs[1]] = a * cos - b * sin, a * sin + b * cos
    return x


@pytest.mark.parametrize(
    ("interleaved", "causal", "new", "paged"),
    [
        (True, True, 3, True),
        (False, False, 3, False),
        pytest.param(False, True, 1, False, marks=pytest.mark.long),
    ],
)
def test_a_cache_with_rotated_keys(interleaved, causal, new, paged):
    """Rotary embeddings of part of the columns, batches elsewhere in the cache, padding left."""
    held = [half(6, 64, 2, 64) for _ in range(2)]
    q, k, v = half(2, new, 4, 64), half(2, new, 2, 64), half(2, new, 4, 64)[:, :, ::2]
    angles = torch.rand(130, 24) * 6
    cos, sin = angles.cos().half(), angles.sin().half()
    lengths, where = torch.tensor([5, 9, 40], dtype=torch.int32)[::2], {}
    begin = torch.tensor([0, 0])
    if paged:
        table = torch.tensor([[5, 3], [2, 0]])
        where["block_table"] = table
    else:
        table, begin = torch.tensor([[4], [1]]), torch.tensor([2, 0], dtype=torch.int32)
        where |= {"cache_batch_idx": table[:, 0], "cache_leftpad": begin}
    dense = [each[table].flatten(1, 2).double() for each in held]
    how = {"causal": causal, "rotary_interleaved": interleaved, **where}
    compiled = torch.compile(tt.flash_attn_with_kvcache, fullgraph=True, backend="aot_eager")
    call = compiled if paged else tt.flash_attn_with_kvcache
    out, lse = call(q, *held, k, v, cos, sin, cache_seqlens=lengths, return_softmax_lse=True, **how)
    assert lse.shape == (2, 4, new)
    for row, length in enumerate(lengths.tolist()):
        at = torch.arange(length, length + new)
        dense[0][row, at] = rotated(k[row], cos, sin, at, interleaved)
        dense[1][row, at] = v[row].double()
        turned = rotated(q[row], cos, sin, at if causal else at * 0 + length, interleaved)
        mask = torch.ones(new, length + new).bool()
        mask = mask.tril(length) if causal else mask
        mask[:, : begin[row]] = False
        one = turned[None], *(each[row : row + 1, : length + new] for each in dense)
        near(out[row], sdpa(*one, attn_mask=mask, enable_gqa=True)[0], 4e-3)
    for each, expected in zip(held, dense):
        near(each[table].flatten(1, 2), expected, 4e-3)


def test_a_cache_refuses_by_name():
    q, held = half(2, 3, 2, 64), half(2, 64, 2, 64)
    cos, ends = half(64, 16), torch.tensor([5, 62])
    for how, message in (
        ({"rotary_cos": cos, "rotary_sin": cos}, "without new k and v"),
        ({"k": q, "v": q}, "without cache_seqlens"),
        ({"k": q, "v": q, "cache_seqlens": ends}, "new rows end at 65"),
        ({"k": q, "v": q, "cache_seqlens": 5, "rotary_cos": cos}, "go together"),
        (
            {"k": q, "v": q, "cache_seqlens": 5, "rotary_cos": cos[:9], "rotary_sin": cos[:9]},
            "each of the 64 rows",
        ),
        (
            {"k": q[:, :1], "v": q[:, :1], "cache_seqlens": 5, "causal": True}
            | {"rotary_cos": cos, "rotary_sin": cos},
            "each of the 66 rows",  # the last two queries may stand behind the cache
        ),
        ({"block_table": ends[:, None], "cache_batch_idx": ends}, "cache_batch_idx beside"),
        (
            {"k": q, "v": q, "cache_seqlens": 5, "cache_batch_idx": torch.tensor([0, 2])},
            "new rows lie in the pages 0 to 2",
        ),
        ({"k": q[..., :32], "v": q, "cache_seqlens": 5}, "2 heads of 32"),
        ({"k": half(2, 3, 2, 64, grad=True), "v": q, "cache_seqlens": 5}, "no gradient of flash"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tt.flash_attn_with_kvcache(q, held, held.clone(), **how)


def test_packed_queries_over_pages():
    q, pages = half(9, 4, 64), [half(6, 16, 2, 64) for _ in range(2)]
    starts, ends = (torch.tensor(each, dtype=torch.int32) for each in ([0, 1, 9], [0, 30, 48]))
    table = torch.tensor([[4, 1], [5, 0]])
    dense = [each[table].flatten(1, 2) for each in pages]
    how = {"causal": True, "block_table": table}
    out = tt.flash_attn_varlen_func(q, *pages, starts, ends, 8, 30, **how)
    for row, (new, length) in enumerate(((1, 30), (8, 18))):
        part = slice(*starts[row : row + 2].tolist())
        one = q[None, part], *(each[row : row + 1, :length] for each in dense)
        mask = torch.ones(new, length).tril(length - new).bool()
        near(out[part], sdpa(*one, attn_mask=mask, enable_gqa=True)[0])


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_aot_inductor_packs_a_module_and_loads_it(tmp_path):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(half(128, 128) / 8)

        def forward(self, x):
            heads = tt.linear(x, self.weight).unflatten(-1, (2, 64)).transpose(1, 2)
            out = tt.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
            out = F.silu(out.transpose(1, 2).flatten(-2))
            return tt.matmul(out, self.weight.t(), activation="gelu")

    model, x = Block(), half(2, 24, 128)
    with torch.no_grad():
        sizes = ({0: torch.export.Dim("batch", min=1, max=64)},)
        program = torch.export.export(model, (x,), dynamic_shapes=sizes)
        path = str(tmp_path / "block.pt2")
        made = torch._inductor.aoti_compile_and_package(program, package_path=path)
        loaded = torch._inductor.aoti_load_package(made)
        for each in (x, half(3, 24, 128)):
            assert torch.equal(loaded(each), model(each))


def test_replace_swaps_what_it_can_and_says_the_rest(capsys):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Conv1d(3, 3, 1), torch.nn.Linear(32, 8)
    ).half()
    model.append(torch.nn.Linear(8, 8).double())
    x = half(2, 3, 64)
    expected = model[:4](x)
    report = tt.replace(model)
    assert report.swapped == ("0 (Linear)", "3 (Linear)")
    assert [name for name, _ in report.left] == ["2 (Conv1d)", "4 (Linear)"]
    assert "torch.float64" in capsys.readouterr().out
    near(model[:4](x), expected)
    model[:4](x).float().sum().backward()
    assert model[0].weight.grad.shape == (32, 64)
    tt.conv.replace(model, verbose=False)
    traced = torch.fx.symbolic_trace(model[:4])
    assert "conv1d" in traced.code
    near(traced(x), expected)


def test_packages_are_named_where_they_are_missing(monkeypatch):
    for name in ("transformers", "triton", "triton.runtime.jit"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackage, match="pip install transformers"):
        tt.register_hugging_face()
    with pytest.raises(MissingPackage, match="pip install triton"), tt.replace_triton():
        pass


def test_hugging_faces_attention(monkeypatch):
    table = {}
    interface = types.SimpleNamespace(register=table.__setitem__)
    fake = types.SimpleNamespace(AttentionInterface=interface)
    monkeypatch.setitem(sys.modules, "transformers", fake)
    tt.register_hugging_face()
    layer = types.SimpleNamespace(is_causal=True)
    q, k, v = half(1, 4, 12, 64), half(1, 2, 12, 64), half(1, 2, 12, 64)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    out, _ = table["tawa"](layer, q, k, v, None, scaling=0.125)
    near(out, expected.transpose(1, 2))
    mask = torch.zeros(1, 1, 12, 12).half().masked_fill(~torch.ones(12, 12).tril().bool(), -6e4)
    near(table["tawa"](layer, q, k, v, mask, scaling=0.125)[0], expected.transpose(1, 2))
    with pytest.raises(ArgumentError, match="cu_seq_lens_q"):
        table["tawa"](layer, q, k, v, None, cu_seq_lens_q=mask)
    with pytest.raises(ArgumentError, match="sliding_window and no mask"):
        table["tawa"](layer, q, k, v, None, sliding_window=5)
    few = table["tawa"](layer, q[:, :, :7], k, v, None, scaling=0.125)[0]  # of a static cache
    near(few, expected[:, :, :7].transpose(1, 2))
    added = half(1, 4, 12, 12)
    seen = mask.new_zeros(()).where(mask == 0, float("-inf"))
    expected = F.scaled_dot_product_attention(q, k, v, added + seen, enable_gqa=True)
    for hidden in (None, mask, mask == 0):
        found = table["tawa"](layer, q, k, v, hidden, scaling=0.125, position_bias=added)[0]
        near(found, expected.transpose(1, 2))
    one, _ = table["tawa"](layer, q[:, :, :1], k, v, None, scaling=0.125)
    near(one, F.scaled_dot_product_attention(q[:, :, :1], k, v, enable_gqa=True).transpose(1, 2))


# --- a kernel as an operator --------------------------------------------------------------------


def counted(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def test_flops_are_counted_as_torchs_are():
    with FakeTensorMode():
        x, w = half(2, 40, 64, grad=True), half(32, 64, grad=True)
        q, k, v = half(2, 4, 40, 64, grad=True), *(half(2, 4, 56, d, grad=True) for d in (64, 32))
        images, filters = half(2, 16, 9, 9, grad=True), half(8, 16, 3, 3, grad=True)
        for ours, theirs, given in (
            (tt.linear, F.linear, (x, w)),
            (tt.attention, F.scaled_dot_product_attention, (q, k, v)),
            (tt.conv2d, F.conv2d, (images, filters)),
        ):

            def step(call, given=given):
                call(*given).sum().backward()

            found, expected = (counted(partial(step, call)) for call in (ours, theirs))
            if ours is tt.attention:  # values of a width of their own: torch keeps the scores
                expected += 2 * 2 * 4 * 40 * 56 * 64
            assert found == expected > 0
        grown = counted(lambda: tt.linear(x, w).mean())
        assert counted(lambda: tt.matmul(x, w.t(), activation="gelu").mean()) == grown
    starts = torch.tensor([0, 24, 40], dtype=torch.int32)
    flat = half(40, 2, 64)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(flat)
    packed = flop_registry[OPS.attention]
    turned = fake.transpose(0, 1)[None]
    assert packed(turned, turned, turned, cu_seqlens=starts) == 4 * 2 * 64 * (24**2 + 16**2)
    lengths = torch.tensor([5, 56], dtype=torch.int32)
    assert packed(q, k, v, lengths=lengths) == 2 * 4 * 40 * (5 + 56) * (64 + 32)


def test_a_kernel_becomes_an_operator():
    schema = "(Tensor x, Tensor y, Tensor out, SymInt n)"
    into = tt.op(f"tested::add_{schema}", add, grid=over, BLOCK=256)
    made = tt.op(
        f"tested::add{schema}",
        add,
        grid=over,
        out={"out": lambda x, y, n: torch.empty_like(x)},
        BLOCK=256,
    )
    assert into.__doc__ == "tested::add_(Tensor x, Tensor y, Tensor(a2!) out, SymInt n) -> ()"
    assert made.__doc__ == "tested::add(Tensor x, Tensor y, SymInt n) -> Tensor"
    x, y, out = torch.randn(1000), torch.randn(1000), torch.zeros(1000)
    into(x, y, out, 1000)
    assert torch.equal(out, x + y)
    assert torch.equal(made(x, y, 1000), x + y)
    opcheck(into.operator, (x, y, out, 1000))
    opcheck(made.operator, (x, y, 1000))

    def model(x, y):
        held = torch.empty_like(x)
        into(x, y, held, x.numel())
        return made(held, y * 2, x.numel())

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (1000, 700):
        a, b = x[:size].clone(), y[:size].clone()
        torch.testing.assert_close(compiled(a, b), a + 3 * b)
    asking = x.clone().requires_grad_()
    for call in (
        lambda: into(asking, y, out, 1000),
        lambda: made(asking, y, 1000),
        lambda: torch.ops.tested.add_(asking, y, out, 1000),
    ):
        with pytest.raises(ArgumentError, match="no gradient of tested"):
            call()
    made.operator.register_autograd(lambda ctx, grad: (grad, grad, None))
    made(asking, y, 1000).sum().backward()
    assert torch.equal(asking.grad, torch.ones(1000))


def test_a_name_that_is_defined_again_leaves_no_old_operator():
    schema = "tested::again(Tensor x, Tensor y, Tensor out, SymInt n)"
    made = {"out": lambda x, y, n: torch.empty_like(x)}
    old = tt.op(schema, add, grid=over, out=made, BLOCK=256)
    x = torch.randn(100)
    before = torch.compile(lambda x: old(x, x, 100), fullgraph=True, backend="aot_eager")
    assert torch.equal(before(x), x + x)
    new = tt.op(schema, add, grid=over, out=made, BLOCK=512)
    with pytest.raises(torch._dynamo.exc.Unsupported):  # its graph would call the new kernel
        before(x)
    assert torch.equal(new(x, x, 100), x + x)
    compiled = torch.compile(lambda x: new(x, x, 100), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), x + x)
    with pytest.raises(ArgumentError, match="tested::again is another operator by now"):
        old(x, x, 100)
    with pytest.raises(torch._dynamo.exc.Unsupported):  # as it is at what raises
        torch.compile(lambda x: old(x, x, 100), fullgraph=True, backend="aot_eager")(x)


def test_operators_that_do_not_fit_their_kernel_are_refused():
    with pytest.raises(ArgumentError, match="kernel's parameters are x, y, out, n, BLOCK"):
        tt.op("tested::wrong(Tensor y, Tensor x, Tensor out, SymInt n)", add, grid=over, BLOCK=8)
    with pytest.raises(ArgumentError, match="nothing gives a value for BLOCK"):
        tt.op("tested::less(Tensor x, Tensor y, Tensor out, SymInt n)", add, grid=over)
    made = {"x": lambda y, out, n: torch.empty_like(y)}
    schema = "tested::other(Tensor x, Tensor y, Tensor out, SymInt n)"
    with pytest.raises(ArgumentError, match="kernel stores to out"):
        tt.op(schema, add, grid=over, out=made, BLOCK=8)
    with pytest.raises(ArgumentError, match="is no schema"):
        tt.op("tested::add(", add, grid=over)


def test_tritons_kernels_are_taken_and_told(monkeypatch, capsys):
    class KernelInterface:
        def __getitem__(self, grid):
            return lambda *args, **keywords: self.ran.append(self.__name__)

    class Kernel(KernelInterface):
        def __init__(self, fn):
            self.fn, self.__name__, self.ran = fn, fn.__name__, []

    def unreadable(x, BLOCK: tl.constexpr):
        tl.store(x, eval("1"))

    module = types.ModuleType("triton.runtime.jit")
    module.KernelInterface = KernelInterface
    for name in ("triton", "triton.runtime"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)

    class CachingAutotuner:
        """As torch.compile has kernels: this one was compiled in another process, and tuned."""

        def __init__(self, fn):
            self._fn = fn
            self.fn = types.SimpleNamespace(fn=None)
            config = types.SimpleNamespace(kwargs={"BLOCK": 256}, num_warps=4, num_stages=1)
            self.launchers, self.triton_meta = [types.SimpleNamespace(config=config)], {}

        def _reload_kernel(self):
            kernel = Kernel(self._fn)
            constant = [each == "BLOCK" for each in inspect.signature(self._fn).parameters]
            names = zip(inspect.signature(self._fn).parameters, constant)
            kernel.params = [types.SimpleNamespace(name=n, is_constexpr=c) for n, c in names]
            return types.SimpleNamespace(fn=kernel)

        def _interpret_args_grid(self, args, config):
            return args, (-(-args[-1] // config.kwargs["BLOCK"]), 1, 1)

        def run(self, *args, stream, **keywords):
            self.ran = args, stream, keywords

    heuristics = types.ModuleType("torch._inductor.runtime.triton_heuristics")
    heuristics.CachingAutotuner = CachingAutotuner
    monkeypatch.setitem(sys.modules, heuristics.__name__, heuristics)
    good, bad = Kernel(add.fn), Kernel(unreadable)
    written, plain = CachingAutotuner(add.fn), CachingAutotuner.run
    x, out = torch.randn(1000), torch.empty(1000)
    before = KernelInterface.__getitem__
    with tt.replace_triton() as report:
        good[(4,)](x, x, out, 1000, BLOCK=256)
        bad[(1,)](x.to(torch.complex64), BLOCK=1)
        assert torch.equal(out, x + x)
        written.run(x, out, out, 1000, stream=7)
        assert not hasattr(written, "ran")
        written.run(x, out, out, 1000, stream=7, benchmark_run=True)
    assert written.ran[1:] == (7, {"benchmark_run": True})
    assert CachingAutotuner.run is plain
    assert torch.equal(out, x + x + x)
    assert KernelInterface.__getitem__ is before
    assert good.ran == []
    assert bad.ran == ["unreadable"]
    assert report.taken == {"add"}
    assert set(report.left) == {"unreadable"}
    assert "taken  add" in capsys.readouterr().out
