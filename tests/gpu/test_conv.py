"""Convolutions on the GPU against float64, between bands of memory that nothing may touch."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

from torch.nn import functional as F  # noqa: E402

import tawa  # noqa: E402
from tawa.errors import ArgumentError  # noqa: E402
from tawa.kernels.conv import conv2d, conv3d, filters  # noqa: E402
from tawa.kernels.conv_geometry import Geometry  # noqa: E402
from tawa.kernels.conv_gradients import (  # noqa: E402  # noqa: E402
    conv2d_input_gradient,
    conv2d_weight_gradient,
    conv3d_input_gradient,
    conv3d_weight_gradient,
    input_launches,
    input_variants,
)
from tawa.kernels.conv_operands import bind  # noqa: E402
from tawa.kernels.conv_variants import FORMS, refused, variants  # noqa: E402

LAST = torch.channels_last
BAND = 4096  # elements
MARK = 77.0

GEOMETRIES = [
    Geometry(3, 15, 17, 64, 72, 3, 3),
    Geometry(3, 15, 17, 64, 72, 3, 2, padding=(1, 1, 1, 1)),
    Geometry(3, 16, 18, 64, 128, 3, 3, (2, 2), (1, 1, 1, 1)),
    Geometry(3, 15, 17, 64, 128, 3, 3, (2, 2), (1, 1, 1, 1)),
    Geometry(2, 15, 17, 24, 40, 3, 3, padding=(2, 2, 2, 2), dilation=(2, 2)),
    Geometry(2, 15, 17, 128, 192, 3, 3, padding=(1, 1, 1, 1), groups=4),
    Geometry(5, 37, 41, 3, 64, 7, 7, (2, 2), (3, 3, 3, 3)),
    Geometry(3, 18, 32, 3, 48, 3, 5),
    Geometry(3, 15, 17, 64, 21, 3, 3, (2, 1)),
    Geometry(1, 5, 5, 512, 512, 3, 3),
    Geometry(1, 11, 3, 16, 24, 3, 3, (4, 1)),
    Geometry(130, 3, 3, 32, 64, 3, 3),
    Geometry(3, 33, 31, 96, 96, 7, 7, padding=(3, 3, 3, 3), groups=96),
    Geometry(2, 17, 15, 64, 128, 3, 3, (2, 2), (1, 1, 1, 1), groups=16),
    Geometry(4, 5, 5, 64, 64, 3, 3, (3, 4), (2, 2, 2, 2), (2, 1)),
]


def normal(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    made = torch.randn(*shape, device="cuda", dtype=torch.float32)
    return made.to(dtype).to(memory_format=LAST)


def between_bands(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all memory, and an output in channels_last within it that holds NaN."""
    n, c, h, w = shape
    count = n * c * h * w
    memory = torch.full((count + 2 * BAND,), MARK, device="cuda", dtype=dtype)
    inside = memory[BAND : BAND + count]
    inside.fill_(float("nan"))
    return memory, inside.view(n, h, w, c).permute(0, 3, 1, 2)


def untouched(memory: torch.Tensor) -> bool:
    return bool((memory[:BAND] == MARK).all() and (memory[-BAND:] == MARK).all())


def error(found: torch.Tensor, want: torch.Tensor) -> float:
    return float((found.double() - want).norm() / want.norm())


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "how",
    [
        {"padding": 1},
        {"stride": (2, 1, 3), "padding": (1, 0, 2), "dilation": (1, 2, 1)},
        {"stride": 2, "dilation": 2},
    ],
)
def test_volumes(how: dict, groups: int) -> None:
    last = torch.channels_last_3d
    x = torch.randn(2, 64, 9, 11, 10, device="cuda").half().to(memory_format=last)
    w = torch.randn(96, 64 // groups, 3, 2, 3, device="cuda").half().to(memory_format=last)
    bias = torch.randn(96, device="cuda").half()
    y = conv3d(x, w, bias, groups=groups, activation="relu", **how)
    left, right = x.double().requires_grad_(), w.double().requires_grad_()
    plain = F.conv3d(left, right, groups=groups, **how)
    want = (plain + bias.double()[:, None, None, None]).relu()
    assert y.shape == want.shape
    assert error(y, want) < 2e-3
    dy = torch.randn(plain.shape, device="cuda").half().to(memory_format=last)
    plain.backward(dy.double())
    dx = conv3d_input_gradient(tuple(x.shape), w, dy, groups=groups, **how)
    assert error(dx, left.grad) < 2e-3
    dw = conv3d_weight_gradient(x, tuple(w.shape), dy, groups=groups, **how)
    assert error(dw, right.grad) < 2e-3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("g", GEOMETRIES, ids=str)
def test_every_form(g: Geometry, form: str) -> None:
    x, w = normal(g.n, g.c, g.h, g.w), normal(g.co, g.channels, g.fh, g.fw)
    asked = bind(*(tawa.array(tuple(each.permute(0, 2, 3, 1).shape), "f16") for each in (x, w)), g)
    if reason := refused(form, asked.problem):
        pytest.skip(reason)
    how = {"stride": g.stride, "dilation": g.dilation, "groups": g.groups}
    sides = (g.padding[0], g.padding[2])
    want = F.conv2d(x.double(), w.double(), padding=sides, **how)
    bias, residual = torch.randn(g.co, device="cuda").half(), normal(*want.shape)
    for variant in variants(asked.problem, form, most=3):
        memory, out = between_bands(tuple(want.shape), torch.float16)
        conv2d(x, w, padding=sides, out=out, variant=variant, **how)
        assert error(out, want) < 2e-3, str(variant)
        assert untouched(memory)
        conv2d(
            x, w, bias, padding=sides, out=out, residual=residual, activation="relu",
            variant=variant, **how,
        )  # fmt: skip
        full = (want + bias.double()[:, None, None] + residual.double()).relu()
        assert error(out, full) < 2e-3, str(variant)
        assert untouched(memory)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_types(dtype: torch.dtype) -> None:
    x, w = normal(2, 64, 15, 17).to(dtype), normal(72, 64, 3, 3).to(dtype)
    y = conv2d(x, w, padding=1, out_dtype="f32")
    want = F.conv2d(x.double(), w.double(), padding=1)
    assert error(y, want) < 2e-3


@pytest.mark.parametrize("g", GEOMETRIES, ids=str)
def test_gradients(g: Geometry) -> None:
    x, w = normal(g.n, g.c, g.h, g.w), normal(g.co, g.channels, g.fh, g.fw)
    how = {"stride": g.stride, "padding": (g.padding[0], g.padding[2])}
    how |= {"dilation": g.dilation, "groups": g.groups}
    left, right = x.double().requires_grad_(), w.double().requires_grad_()
    y = F.conv2d(left, right, **how)
    dy = normal(*y.shape)
    if g.co * 2 % 16:  # TMA steps over channels of dy
        with pytest.raises(ArgumentError, match="bytes apart"):
            conv2d_input_gradient(tuple(x.shape), w, dy, **how)
        with pytest.raises(ArgumentError, match=f"dy has {g.co} channels"):
            conv2d_weight_gradient(x, tuple(w.shape), dy, **how)
        return
    y.backward(dy.double())
    assert error(conv2d_input_gradient(tuple(x.shape), w, dy, **how), left.grad) < 2e-3
    first = conv2d_weight_gradient(x, tuple(w.shape), dy, **how)
    assert error(first, right.grad) < 2e-3
    assert torch.equal(first, conv2d_weight_gradient(x, tuple(w.shape), dy, **how))


@pytest.mark.parametrize("stride", [1, 2])
def test_groups_side_by_side_spoil_only_their_own(stride: int) -> None:
    """An Inf or NaN of a group reaches no other, though filters are filled up with zeros."""
    g = Geometry(2, 17, 15, 64, 128, 3, 3, (stride, stride), (1, 1, 1, 1), groups=16)
    x, w = normal(g.n, g.c, g.h, g.w), normal(g.co, g.channels, g.fh, g.fw)
    how = {"stride": stride, "padding": 1, "groups": g.groups}
    asked = bind(x.permute(0, 2, 3, 1), w.permute(0, 2, 3, 1), g).problem
    dy = normal(g.n, g.co, g.ho, g.wo)
    for array in (x, dy):
        array[1, 5, 3, 4], array[0, 63, -1, -1] = torch.nan, torch.inf
    left, right = x.cpu().double().requires_grad_(), w.cpu().double()
    y = F.conv2d(left, right, **how)
    (back,) = torch.autograd.grad(y, left, dy.cpu().double())
    found = {"y": (conv2d(x, w, variant=variants(asked, "merged")[0], **how), y)}
    lies = [each.permute(0, 2, 3, 1) for each in (dy, w)]
    for variant in input_variants(g, *lies):
        dx = torch.empty(g.images, device="cuda", dtype=torch.float16)
        if variant.form == "merged":
            for launch in input_launches(g, *lies, dx, variant):
                launch()
            found[f"dx {variant}"] = dx.permute(0, 3, 1, 2), back
    assert len(found) > 1
    for name, (got, want) in found.items():
        want = want.detach().cuda()
        finite = want.isfinite()
        assert torch.equal(got.isnan(), want.isnan()), name
        assert torch.equal(got.isinf(), want.isinf()), name
        assert error(got[finite], want[finite]) < 2e-3, name


@pytest.mark.parametrize("padding", [0, 1])
def test_pixels_side_by_side_spoil_only_their_own(padding: int) -> None:
    """An Inf or NaN reaches the windows that see it, in place and in a copy."""
    g = Geometry(3, 20, 32, 3, 64, 3, 3, padding=(padding,) * 4)
    x, w = normal(g.n, g.c, g.h, g.w), normal(g.co, g.c, 3, 3)
    x[1, 2, 7, 9], x[2, 0, -1, -1], x[0, 1, 0, 12] = torch.nan, torch.inf, -torch.inf
    want = F.conv2d(x.cpu().double(), w.cpu().double(), padding=padding).cuda()
    asked = bind(x.permute(0, 2, 3, 1), w.permute(0, 2, 3, 1), g).problem
    for variant in variants(asked, "neighbours", most=8):
        y = conv2d(x, w, padding=padding, variant=variant)
        finite = want.isfinite()
        assert torch.equal(y.isnan(), want.isnan()), str(variant)
        assert torch.equal(y.isinf(), want.isinf()), str(variant)
        assert error(y[finite], want[finite]) < 2e-3, str(variant)


def test_the_tuner_and_packed_filters() -> None:
    x, w = normal(4, 64, 30, 30), normal(64, 64, 3, 3)
    want = F.conv2d(x.double(), w.double())
    held = filters(w)
    for _ in range(3):
        assert error(conv2d(x, w), want) < 2e-3
        assert error(conv2d(x, held, method="im2win"), want) < 2e-3


def test_in_a_graph() -> None:
    x, w = normal(4, 64, 30, 30), normal(64, 64, 3, 3)
    conv2d(x, w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = conv2d(x, w)
    x.copy_(normal(4, 64, 30, 30))
    graph.replay()
    assert error(y, F.conv2d(x.double(), w.double())) < 2e-3
