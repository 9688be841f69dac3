"""Convolutions of `tawa.torch`, in the simulator."""

import pickle

import pytest

from tawa.errors import ArgumentError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.library import opcheck  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tawa.torch as tt  # noqa: E402

OPS = torch.ops.tawa
PLAIN = [1, 1], [0, 0, 0, 0], [1, 1]
DEEP = [1, 1, 1], [0] * 6, [1, 1, 1]


def half(*shape, grad=False):
    made = torch.randn(*shape).half()
    if len(shape) == 4:
        made = made.contiguous(memory_format=torch.channels_last)
    return made.requires_grad_(grad)


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)
    torch._dynamo.reset()


def near(found, expected, tolerance=5e-3):
    for x, y in zip(found, expected, strict=True):
        scale = float(y.detach().double().abs().max())
        torch.testing.assert_close(x.double(), y.double(), rtol=0, atol=tolerance * scale)


def gradients(function, *given):
    leaves = [each.detach().double().requires_grad_() for each in given]
    return torch.autograd.grad(function(*leaves).square().sum(), leaves)


QUICK = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("utils", [QUICK, pytest.param(None, marks=pytest.mark.long)])
def test_opcheck_is_green(utils):
    how = {} if utils is None else {"test_utils": utils}
    x, w = half(2, 8, 6, 6, grad=True), half(16, 8, 3, 3, grad=True)
    opcheck(OPS.conv2d, (x, w, half(16, grad=True), *PLAIN, 1, "relu"), **how)
    dy = half(2, 16, 4, 4, grad=True)
    opcheck(OPS.conv2d_backward_input, (dy, w, [6, 6], *PLAIN), **how)
    opcheck(OPS.conv2d_backward_weight, (dy, x, [3, 3], *PLAIN), **how)
    x, w = half(1, 8, 2, 3, 3, grad=True), half(8, 8, 1, 2, 2, grad=True)
    opcheck(OPS.conv3d, (x, w, half(8, grad=True), *DEEP), **how)
    if utils is None:
        dy = half(1, 8, 2, 2, 2, grad=True)
        opcheck(OPS.conv3d_backward_input, (dy, w, [2, 3, 3], *DEEP))
        opcheck(OPS.conv3d_backward_weight, (dy, x, [1, 2, 2], *DEEP))


@pytest.mark.parametrize(
    ("x", "w", "how"),
    [
        ((2, 3, 9, 9), (10, 3, 3, 3), {"stride": 2, "padding": 1}),  # a network's first layer
        ((1, 16, 8, 8), (16, 8, 1, 3), {"padding": "same", "groups": 2}),
    ],
)
@pytest.mark.short("x0-w0-how0")
def test_it_is_torchs_with_gradients(x, w, how):
    x, w, bias = half(*x, grad=True), half(*w, grad=True), half(w[0], grad=True)
    found = tt.conv2d(x, w, bias, activation="silu", **how)
    plain = lambda x, w, bias: F.silu(F.conv2d(x, w, bias, **how))  # noqa: E731
    near([found], [plain(*(each.double() for each in (x, w, bias)))])
    ours = torch.autograd.grad(found.square().sum(), (x, w, bias))
    near(ours, gradients(plain, x, w, bias), 2e-2)
    with torch.no_grad():
        near([tt.conv2d(x[0], w, bias, **how)], [F.conv2d(x[0], w, bias, **how)])


def test_functions_are_pickled_by_name():
    for axes in (1, 2, 3):
        for name in (f"conv{axes}d", f"conv_transpose{axes}d"):
            assert pickle.loads(pickle.dumps(getattr(tt, name))) is getattr(tt, name)


def test_volumes_are_torchs_with_gradients():
    """Three channels in and ten out, which are filled up; a stride on one axis."""
    x, w, bias = (
        half(1, 3, 3, 4, 4, grad=True),
        half(10, 3, 2, 2, 2, grad=True),
        half(10, grad=True),
    )
    how = {"stride": (1, 2, 1), "padding": (1, 0, 1)}
    found = tt.conv3d(x, w, bias, **how)
    assert found.is_contiguous(memory_format=torch.channels_last_3d)
    wide = [each.detach().double() for each in (x, w, bias)]
    near([found], [F.conv3d(*wide, **how)])
    ours = torch.autograd.grad(found.square().sum(), (x, w, bias))
    near(ours, gradients(lambda *each: F.conv3d(*each, **how), x, w, bias), 2e-2)
    with torch.no_grad():
        near([tt.conv3d(x[0], w, padding="same")], [F.conv3d(wide[0][0], wide[1], padding="same")])
    with pytest.raises(ArgumentError, match="lower corner"):
        tt.conv3d(x, w, padding=17)
    with pytest.raises(ArgumentError, match="4 bytes"):
        tt.conv3d(half(1, 4, 3, 3, 3, grad=True), half(4, 2, 2, 2, 2), groups=2)


@pytest.mark.parametrize(
    ("convolve", "plain", "shapes"),
    [
        (tt.conv2d, F.conv2d, ((1, 8, 5, 5), (8, 8, 3, 3))),
        (tt.conv3d, F.conv3d, ((1, 8, 2, 3, 3), (8, 8, 1, 2, 2))),
    ],
)
@pytest.mark.short("conv2d-conv2d-shapes0")
def test_second_gradients_are_right(convolve, plain, shapes):
    x, w = (half(*shape, grad=True) for shape in shapes)

    def penalty(convolve, x, w):
        (dx,) = torch.autograd.grad(convolve(x, w).square().sum() / 8, x, create_graph=True)
        return torch.autograd.grad(dx.square().sum() / 8, (x, w))

    wide = [each.detach().double().requires_grad_() for each in (x, w)]
    near(penalty(convolve, x, w), penalty(plain, *wide), 2e-2)


class Subclass(nn.Conv2d):
    pass


def test_layers_are_swapped_and_compile():
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1, padding_mode="reflect"),
        nn.Conv1d(4, 4, 3),
        nn.Conv3d(4, 4, 3),
        Subclass(4, 4, 3),
    ).half()
    x, signal = half(1, 8, 6, 6), half(2, 4, 9)
    expected = model[0](x), model[1](signal)
    report = tt.conv.replace(model, verbose=False)
    assert report.swapped == ("0 (Conv2d)", "1 (Conv1d)", "2 (Conv3d)")
    assert report.left == (("3 (Subclass)", "Subclass may do more than nn.Conv2d"),)
    assert type(model[0]) is tt.Conv2d
    near([model[0](x), model[1](signal)], expected)
    compiled = torch.compile(model[0], backend="aot_eager", fullgraph=True)
    loss = compiled(x).float().square().sum()
    loss.backward()
    near([compiled(x)], expected[:1])
    assert model[0].weight.grad.shape == (16, 8, 3, 3)
    mapped = torch.vmap(lambda x: OPS.conv2d(x, model[0].weight.detach(), None, *PLAIN))
    assert mapped(half(8, 6, 6)[None, None].expand(2, 1, -1, -1, -1)).shape == (2, 1, 16, 4, 4)


@pytest.mark.parametrize("axes", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))])
def test_transposed_layers_are_torchs_with_gradients(axes):
    kind, window = getattr(nn, f"ConvTranspose{axes}d"), 2 if axes == 2 else 3
    how = {"stride": 2, "padding": window - 2, "groups": 2 if axes == 1 else 1}
    layer = kind(8, 16, window, **how).half()
    x = half(2, 8, *(3, 4, 3)[:axes], grad=True)
    plain = kind(8, 16, window, **how).double()
    plain.load_state_dict(layer.state_dict())
    size = [2 * n for n in x.shape[2:]]
    other = x.detach().double().requires_grad_()
    exact = plain(other, output_size=size)
    expected = torch.autograd.grad(exact.square().sum(), (other, *plain.parameters()))
    report = tt.conv.replace(network := nn.Sequential(layer), verbose=False)
    assert report.swapped == (f"0 (ConvTranspose{axes}d)",)
    run = torch.compile(network[0], fullgraph=True, backend="aot_eager")
    found = run(x, output_size=size)
    near([found], [exact])
    made = torch.autograd.grad(found.float().square().sum(), (x, *network.parameters()))
    near(made, expected, 1e-2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network[0].float()(x.float()).dtype == torch.bfloat16
    with pytest.raises(ArgumentError, match="below the stride"):
        tt.conv_transpose2d(half(1, 8, 4, 4), half(8, 8, 3, 3), output_padding=1)


def test_autocast_and_tf32(monkeypatch):
    x, w = torch.randn(1, 8, 5, 5), torch.randn(8, 8, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert tt.conv2d(x, w).dtype is torch.bfloat16
    near([tt.conv2d(x, w)], [F.conv2d(x, w)])
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with pytest.raises(ArgumentError, match="allow_tf32 = False"):
        tt.conv2d(x, w)


def test_what_has_no_gradient_is_refused_at_the_call():
    x, w = half(1, 8, 9, 9, grad=True), half(8, 8, 3, 3)
    with pytest.raises(ArgumentError, match="no gradient of the activation 'relu6'"):
        tt.conv2d(x, w, activation="relu6")
    with pytest.raises(ArgumentError, match="images have 5 axes"):
        tt.conv2d(x[None], w)
    assert tt.conv2d(x, half(8, 2, 3, 3), groups=4).requires_grad
