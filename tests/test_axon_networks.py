"""Networks of torch with symbolic sizes: shapes, guards and numbers are those of torch."""

from __future__ import annotations

import copy
import random
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from axon_networks import MORE, NETWORKS, UNet  # noqa: E402
from tawa import axon  # noqa: E402
from tawa.axon.fuse import compile  # noqa: E402
from tawa.axon.load.torch_graphs import trace  # noqa: E402
from tawa.errors import AxonError, AxonGuard  # noqa: E402

EVERY = [*NETWORKS, *[pytest.param(name, marks=pytest.mark.long) for name in MORE]]


class Recorder(torch.fx.Interpreter):
    """Notes the shape of each array that is computed, in order."""

    def run_node(self, n):
        found = super().run_node(n)
        if isinstance(found, torch.Tensor) and n.op not in ("placeholder", "output", "get_attr"):
            self.seen.append((n.meta.get("path", n.name).replace(".", "_"), tuple(found.shape)))
        return found


def broadcast(*sizes):
    return next((size for size in sizes if size != 1), 1)


@pytest.mark.parametrize("name", EVERY)
def test_shapes_and_numbers_are_those_of_torch(name):
    torch.manual_seed(0)
    rng = random.Random(name)
    make, dims, draw, guards = (NETWORKS | MORE)[name]
    module = make().eval()
    graph = axon.load_fx(module, dims=dims)
    if guards is not None:
        assert [guard.text for guard in graph.guards] == guards
    traced, shapes = torch.fx.GraphModule(module, trace(module)), graph.shapes
    sizes_only = copy.deepcopy(traced).to("meta")  # shapes cost nothing there
    for turn in range(8):
        x = draw(rng)
        recorder = Recorder(sizes_only)
        recorder.seen = []
        with torch.no_grad():
            recorder.run(x.to("meta"))
        named = dict(zip(next(iter(dims.values())).split(), x.shape))
        for (node, shape), (own, text) in zip(recorder.seen, shapes.items(), strict=True):
            known = {"min": min, "max": max, "broadcast": broadcast, **named}
            assert own.startswith(node)
            assert tuple(eval(text, known)) == shape, node
        if turn == 0:
            with torch.no_grad():
                wanted = traced(x).numpy()
            np.testing.assert_allclose(graph(x.numpy()), wanted, rtol=1e-3, atol=1e-5)


def test_a_graph_refuses_what_torch_refuses():
    module = UNet().eval()
    graph = axon.load_fx(module, dims={"x": "n 3 h w"})
    assert re.fullmatch(r"graph of 1 inputs and \d+ weights, requires h .*", repr(graph))
    with pytest.raises(AxonError, match=r"names y, which is no input\n  why: the inputs are x$"):
        axon.load_fx(module, dims={"y": "n 3 h w"})
    with pytest.raises(AxonGuard, match="h"):
        graph(np.zeros((1, 3, 12, 16), np.float32))
    with pytest.raises(RuntimeError):
        module(torch.zeros(1, 3, 12, 16))


def test_a_fault_is_found_at_its_node():
    module = UNet().eval()
    module.up[1] = torch.nn.ConvTranspose2d(15, 4, 2, 2)
    with pytest.raises(AxonError) as caught:
        axon.load_fx(module, dims={"x": "n 3 h w"})
    text = str(caught.value)
    assert text.startswith("<UNet>:")
    assert "up_1 = conv_transpose2d(cat, " in text
    assert "axon_networks.py:60: y = torch.cat([up(y), kept.pop()], 1)" in text
    assert "axis 1 is 16" in text
    assert "axis 0 is 15" in text or "15 is wanted" in text


EXPORTED = {  # inputs that are no special case of `torch.export`
    "unet": (2, 3, 16, 24), "bert": (2, 5), "vit": (2, 3, 12, 16), "pointnet": (2, 3, 5),
    "whisper": (2, 5, 9), "resnet18": (2, 3, 33, 40), "convnext": (2, 3, 12, 16),
}  # fmt: skip
QUICK = ("unet", "pointnet")


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in EXPORTED]
)
def test_exported_programs_are_what_modules_are(name):
    """With the guards of the module, not of the example; so is a program in core operators."""
    torch.manual_seed(0)
    make, dims, _, _ = (NETWORKS | MORE)[name]
    module, shape, (sizes,) = make().eval(), EXPORTED[name], dims.values()
    words = name in ("bert",)
    x = torch.randint(0, 10, shape) if words else torch.rand(shape)
    free = {i: torch.export.Dim.AUTO for i, n in enumerate(sizes.split()) if not n.isdigit()}
    program = torch.export.export(module, (x,), dynamic_shapes=(free,))
    traced = axon.load_fx(module, dims=dims)
    other = [size + (axis in free and size > 3) * 8 for axis, size in enumerate(shape)]
    y = torch.randint(0, 10, other) if words else torch.rand(other)
    with torch.no_grad():
        wanted = module(y).numpy()
    for each in (program, program.run_decompositions()):
        graph = axon.load_export(each, dims=dims)
        assert {guard.text for guard in graph.guards} == {guard.text for guard in traced.guards}
        np.testing.assert_allclose(graph(y.numpy()), wanted, rtol=1e-3, atol=1e-5)


class Pieces(torch.nn.Module):
    """Operators that take arrays apart, put them together and move them."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm((4, 6), eps=1e-3)
        self.group = torch.nn.GroupNorm(2, 4, eps=1e-2)
        self.one = torch.nn.InstanceNorm1d(4, affine=True)
        self.rms = torch.nn.RMSNorm(6)
        self.act = torch.nn.Sequential(
            torch.nn.LeakyReLU(0.3), torch.nn.ELU(2.0), torch.nn.GELU("tanh")
        )
        self.same = torch.nn.Conv1d(4, 4, 4, padding="same")

    def forward(self, x):
        x = self.act(self.rms(self.one(self.group(self.norm(x)))))
        a, b, c = x.split([1, 2, 1], dim=1)
        p, q = x.chunk(2, dim=-1)
        y = torch.cat([c, b, a], 1) + self.same(x)[:, :, -6:] * x[..., :1]
        z = torch.nn.functional.pad(p, (1, 2))[:, None, 1:, :6].squeeze(1)
        first, second = x.max(dim=1)[0], x.amax((1, 2), keepdim=True)
        best = x.max(2).indices.unsqueeze(-1) + (x.min(2).values > 2).long()[..., None]
        heads = x.view(-1, 2, 2, 6)
        mixed = torch.nn.functional.scaled_dot_product_attention(
            heads, heads, heads, is_causal=True
        )
        rolled = torch.roll(x, (1, -1), (1, 2)).masked_fill(x > 0.5, -1.0)
        u, v = y.unbind(2)[0], q.T.permute(2, 1, 0) if q.dim is None else q.flip(1)
        total = y[:, 1:] + z + first[:, None] + second - 2 * rolled.clamp(min=0.0)[:, -3:]
        total = total + mixed.flatten(1).reshape(-1, 4, 6)[:, 1:] + u[:, 1:, None]
        wide, sums = x.expand(x.size(0), 4, -1), torch.logsumexp(v, 2)
        return total, sums, x.var(2, unbiased=False), wide, best


def test_operators_one_by_one():
    torch.manual_seed(1)
    module, x = Pieces().eval(), torch.rand(3, 4, 6)
    with torch.no_grad():
        wanted = module(x)
    for found, each in zip(
        axon.load_fx(module, dims={"x": "n 4 6"})(x.numpy()), wanted, strict=True
    ):
        np.testing.assert_allclose(found, each.numpy(), rtol=1e-4, atol=1e-5)


def test_what_is_not_supported_is_named():
    module = torch.nn.Sequential(torch.nn.LSTM(3, 4))
    with pytest.raises(AxonError, match="LSTM is not supported"):
        axon.load_fx(module)
    module = torch.nn.Sequential(torch.nn.MaxPool2d(2, stride=3, ceil_mode=True))
    with pytest.raises(AxonError, match="this pool with ceil_mode is not supported"):
        axon.load_fx(module)

    class Solves(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    with pytest.raises(AxonError, match=r"inv is not supported") as caught:
        axon.load_fx(Solves())
    assert "test_axon_networks.py" in str(caught.value)
    assert "return torch.linalg.inv(x)" in str(caught.value)


class Given(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def dropped(x):
    x = x * 1
    torch.nn.functional.relu(x, inplace=True)
    x.add_(1).mul_(2)
    return x + 1


def behind_a_view(x):
    x = x * 1
    x[:, 0].mul_(0.0)
    return x


@pytest.mark.parametrize(
    "function",
    [
        dropped,
        lambda x: x[:1, :1].squeeze((-2, -1)),
        lambda x: x.narrow(1, -2, 2),
        lambda x: x.narrow(1, -3, 2),
        lambda x: x.sum(dim=[]),
    ],
)
def test_exported_functions_give_what_torch_gives(function):
    x = torch.randn(4, 6)
    module = Given(function)
    graph = axon.load_export(torch.export.export(module, (x,)))
    np.testing.assert_allclose(graph(x.numpy()), module(x).numpy(), rtol=1e-5)


def test_writes_to_arrays_are_followed_in_traced_modules():
    x = torch.randn(4, 6)
    np.testing.assert_allclose(axon.load_fx(Given(dropped))(x.numpy()), dropped(x).numpy())


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (behind_a_view, "mul_ in place"),
        (lambda x: x + torch.rand(6), "rand is not supported"),
        (
            lambda x: x.reshape(2, 2, 6)[x.argmax(1)[:2], :, x.argmax(1)[:2]],
            "an index of arrays apart",
        ),
        (lambda x: x[:, x[0] > 0], "an index by truth values of another axis"),
        (lambda x: x.argmax(1) & 1, "logical_and` wants bool"),
        (lambda x: x.argmax(1).view(torch.float64), "view"),
        (lambda x: behind(x, lambda y: y[:, :4].diagonal(dim1=0, dim2=1)), "add_ in place"),
        (lambda x: behind(x, lambda y: y.movedim(0, 1)), "add_ in place"),
        (lambda x: behind(x, lambda y: y.unflatten(1, (2, 3))), "add_ in place"),
    ],
)
def test_what_torch_computes_otherwise_is_refused(function, what):
    x = torch.randn(4, 6)
    with pytest.raises(AxonError, match=what):
        axon.load_export(torch.export.export(Given(function), (x,)))


def behind(x, view):
    y = x * 1
    view(y).add_(1)
    return y


def ordered(x, i):
    """The least numbers of types, nan, equal numbers; types of which neither holds the other."""
    least, x = (i * 64 - 128).to(torch.int8), x.masked_fill(x > 1, torch.nan)
    bytes_ = i.to(torch.uint8)
    return (
        *(each.min(1).values for each in (x, i, least, bytes_)),
        *(each.amax((0, -1)) for each in (x, i, least, bytes_)),
        *(each.amin((1, 0), keepdim=True) for each in (x, i, least, bytes_)),
        *(torch.sort(each, descending=True).values for each in (x, i, least, bytes_)),
        *(torch.sort(i, stable=True, dim=0, descending=d).indices for d in (True, False)),
        *(torch.topk(each, 2).values for each in (x, least, bytes_)),
        *((least.to(torch.uint8) == least), x.half() == x.to(torch.bfloat16)),
    )


def casts(x, i):
    mask = (x > 0) & ~(x > 1) | (x < -1)
    return (
        *(x.to(torch.int64), x.long(), x.half(), x.double(), x.bool(), i.float(), i.to(x)),
        *(x * mask, x + i[..., None], i / 2, i * 0.5, x.sum(1) + i.type_as(x).sum(1, keepdim=True)),
        *(torch.where(mask, x, 0.0), mask.sum(-1), i == i.float(), torch.full_like(x, 2)),
        *(x.new_ones(2, 3), torch.zeros_like(i), x.to(torch.bfloat16).float()),
    )


def products(x, i):
    y, h = torch.ones(6, 3) * 0.1, x.view(2, 2, 2, 6)
    return (
        *(torch.einsum("bij,bkj->bik", x, x), torch.einsum("bhid,bhjd->bhij", h, h)),
        *(
            torch.einsum("bij->ib", x),
            torch.einsum("...ij,...kj->...ik", x, x[0]),
            torch.einsum("bii->bi", x[:, :, :4]),
            torch.einsum("bij,jk", x, y),
            torch.einsum("bi,bj->ij", i, i),
        ),
        *(
            torch.einsum("abcd,bd,ce->ea", h, x[0, :2], x[1, :2]),
            x @ torch.arange(6.0),
            x[0, 0] @ y,
        ),
        *(x[0, 0] @ x[0, 1], torch.addmm(x[0, :, :3], x[1], y, beta=2, alpha=0.5)),
        torch.nn.functional.scaled_dot_product_attention(x, x, x, torch.ones(4, 4).bool().tril(-1)),
    )


def pieces(x, i):
    f = torch.nn.functional
    return (
        *(x.repeat(2, 1, 3), x.repeat(3, 1, 1, 2), x.tile((2, 1)), x.repeat_interleave(2, 1)),
        *(
            x.flatten(0, 1),
            x.flatten(-3, -2),
            x.unflatten(-1, (2, -1)),
            x.movedim(0, 2),
            x[:, [0, 2]],
        ),
        *(x.triu(1), x.tril(-1), x.diagonal(dim1=-2, dim2=-1), x.unfold(-1, 3, 2), x[..., None, 1]),
        *(x.sort(1, descending=True)[0], x.topk(2)[0], x.topk(3, 1, False)[1], x.argsort(-1)),
        *(
            x.gather(1, i[..., None].expand(2, 4, 6)),
            f.one_hot(i, 5),
            x[:, i[0]],
            x + torch.arange(1, 7),
        ),
        *(
            f.pad(x, (1, 2), value=0.5),
            f.interpolate(x, size=9),
            f.max_pool1d(x, 2, ceil_mode=True),
        ),
        f.max_pool1d(x[..., :5], 3, 2, 1, ceil_mode=True),
    )


def numbers(x, i):
    f, p = torch.nn.functional, x.abs() + 0.1
    return (
        *(x.std(-1), x.var((0, 1)), x.var(), x.norm(dim=-1), f.normalize(x, dim=-1), x.prod(1)),
        *(x.max(), x.amin(), (x > 0).any(1, keepdim=True), torch.add(x, p, alpha=2), x % 2),
        *(
            f.selu(x),
            f.celu(x, 0.7),
            f.prelu(x, torch.tensor([0.2])),
            f.logsigmoid(x),
            f.softmin(x, 1),
        ),
        *(
            f.group_norm(x, 2),
            torch.addcmul(x, p, x, value=0.5),
            torch.lerp(x, p, 0.3),
            x.clamp_min(0),
        ),
        *(torch.fmod(x, p), torch.logaddexp(x, p), torch.erfc(x), (x / (x > 9)).isinf(), i // 2),
        *(
            torch.div(x, p, rounding_mode="trunc"),
            x.softmax(1, dtype=torch.float32),
            i.sum(),
            x.mean(),
        ),
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("function", [casts, products, pieces, numbers, ordered])
def test_exported_operators_are_those_of_torch(function):
    """In value and element type; in core operators too."""
    torch.manual_seed(2)
    x, i = torch.randn(2, 4, 6), torch.randint(0, 4, (2, 4))

    class Two(torch.nn.Module):
        def forward(self, x, i):
            return function(x, i)

    program, wanted = torch.export.export(Two(), (x, i)), function(x, i)
    for each in (program, program.run_decompositions()):
        found = axon.load_export(each)(x, i)
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            torch.testing.assert_close(
                one, other, rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda m, p=place: f"{p}: {m}"
            )


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_module_of_bfloat16():
    """Of which NumPy has no arrays: weights stay tensors."""
    torch.manual_seed(3)
    t = torch.nn
    layers = t.Embedding(9, 8), t.Linear(8, 8), t.GELU(), t.LayerNorm(8, elementwise_affine=False)
    module = t.Sequential(*layers, t.Linear(8, 3)).to(torch.bfloat16).eval()
    i = torch.randint(0, 9, (2, 5))
    with torch.no_grad():
        wanted = module(i)
    exported = axon.load_export(torch.export.export(module, (i,)))
    for graph in (exported, axon.load_fx(module)):
        torch.testing.assert_close(graph(i), wanted, rtol=5e-2, atol=5e-2)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({**NETWORKS, **MORE}))
def test_networks_compiled_are_those_of_torch(name):
    """Convolutions of float32 go through tf32."""
    make, dims, draw_input, _ = {**NETWORKS, **MORE}[name]
    torch.manual_seed(0)
    net, x = make().eval(), draw_input(random.Random(0))
    compiled = compile(axon.load_fx(net, dims=dims))
    with torch.no_grad():
        wanted = net(x)
    torch.testing.assert_close(compiled(x), wanted, rtol=0, atol=5e-3 * float(wanted.abs().max()))


def around(x, i):
    f, x = torch.nn.functional, x[:, None]
    return (
        *(f.pad(x, (2, 1, 0, 3), m) for m in ("reflect", "replicate", "circular")),
        *(f.avg_pool2d(x, 3, 2, 1, count_include_pad=False), torch.roll(x, 3)),
        *(
            f.interpolate(x, scale_factor=2, mode="bilinear", align_corners=c)
            for c in (False, True)
        ),
        *(f.interpolate(x, (3, 9), mode="bilinear"), f.interpolate(x[0], 4, mode="linear")),
        *(x[:, :, [0, -1], [[2], [1]]], x[0, 0].T),
        *(
            torch.meshgrid(x[0, 0, 0], x[0, 0, :, 0], x[:, 0, 0, 0], indexing=how)[n]
            for how in ("ij", "xy")
            for n in range(3)
        ),
        *(torch.diff(x), torch.diff(x, 2, dim=2, prepend=x[:, :, :1])),
    )


def test_inputs_that_are_no_arrays():
    class Two(torch.nn.Module):
        def forward(self, x, y, by):
            return x * 2 if y is None else x + y, by

    x = torch.randn(3)
    program = torch.export.export(Two(), (x, None, torch.ones(2)))
    for one, other in zip(axon.load_export(program)(x, torch.ones(2)), (x * 2, torch.ones(2))):
        torch.testing.assert_close(one, other)
    sized = torch.export.export(
        Two(), (x, x, 3), dynamic_shapes=(None, None, torch.export.Dim.AUTO)
    )
    with pytest.raises(AxonError, match="the input by, which is no array"):
        axon.load_export(sized)


def test_an_index_by_truth_values():
    """Of the first axes, whose sizes are those of the index; what it gives has its own size."""
    x, module = torch.randn(4, 5, 2), Given(lambda x: (x[x[..., 0] > 0], x[(x > 1).any(2).any(1)]))
    graph = axon.load_export(torch.export.export(module, (x,)), dims={"x": "n m 2"})
    for one, other in zip(graph(x), module(x), strict=True):
        torch.testing.assert_close(one, other)
    masked = axon.load("fun f (m, x) = masked m x").f
    with pytest.raises(AxonGuard, match="axis 1"):
        masked((np.ones((4, 3), bool), x.numpy()))


@pytest.mark.parametrize("load", ["fx", "export"])
def test_items_around_and_between_items(load):
    """Paddings by items, means of them alone, lines between them, and indices of several arrays."""
    x, module = torch.randn(2, 4, 6), Given(lambda x: around(x, None))
    exported = load == "export"
    graph = (
        axon.load_export(torch.export.export(module, (x,))) if exported else axon.load_fx(module)
    )
    for one, other in zip(graph(x), module(x), strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(AxonGuard, match="cannot take"):
        axon.load_fx(Given(lambda x: torch.nn.functional.pad(x, (3, 3), "reflect")))(x[..., :3])
