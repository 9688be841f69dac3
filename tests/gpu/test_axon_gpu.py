"""Programs of `tawa.axon` with tensors of a GPU: operator by operator, and fused."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

from axon_networks import MORE, NETWORKS  # noqa: E402
from tawa import axon  # noqa: E402
from tawa.axon.fuse import compile, fuse  # noqa: E402
from tawa.axon.fuse.turn import turning  # noqa: E402
from tawa.errors import LaunchError  # noqa: E402


def test_a_network_computes_where_its_input_is():
    make, dims, draw, _ = NETWORKS["unet"]
    module = make().eval()
    graph, x = axon.load_fx(module, dims=dims), draw(random.Random(0))
    found = graph(x.cuda())
    assert found.is_cuda
    with torch.no_grad():
        torch.testing.assert_close(
            found.cpu(), module(x), rtol=1e-2, atol=1e-3
        )  # convolves by tf32


def test_what_is_made_of_no_array_is_there_too():
    f = axon.load("fun f x i = (iota (last x) + cast x, gather {axis = 0} x i, zeros [3])").f
    x, i = torch.randn(5, 7, device="cuda"), torch.tensor([0, 3], device="cuda")
    found = f(x, i)
    assert all(each.is_cuda for each in found)
    torch.testing.assert_close(found[0], torch.arange(7, device="cuda") + x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(70, 96), (33, 197), (64, 197), (5, 1000), (3, 9001), (700, 1)])
def test_fused_functions_of_all_forms(shape, dtype):
    module = axon.load("fun soft x = softmax x\nfun act b x = gelu (x + b)")
    x, b = torch.randn(shape, device="cuda", dtype=dtype), torch.randn(shape[-1], device="cuda")
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    wanted = torch.softmax(x.double(), -1)
    torch.testing.assert_close(fuse(module.soft)(x).double(), wanted, rtol=bound, atol=bound)
    wanted = torch.nn.functional.gelu(x.double() + b.to(dtype).double())
    found = fuse(module.act)(b.to(dtype), x).double()
    torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize(
    "name", ["mixer", "bert", "vit", "unet", "swin", "llama", "convnext", "lstm"]
)
def test_networks_compiled_are_those_of_torch(name):
    """Convolutions and products of float32 go through tf32 in both."""
    make, dims, draw, _ = {**NETWORKS, **MORE}[name]
    torch.manual_seed(0)
    net, x = make().eval(), draw(random.Random(0))
    with torch.no_grad():
        wanted = net(x)
    found = compile(axon.load_fx(net, dims=dims))(x.cuda())
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), wanted, rtol=0, atol=5e-3 * float(wanted.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8, torch.bool])
@pytest.mark.parametrize("shape", [(2, 128, 28, 28), (3, 3, 50, 41), (1, 70, 9, 1), (300, 2, 5, 3)])
def test_arrays_are_turned(shape, dtype):
    x = torch.randint(-9, 9, shape, device="cuda").to(dtype)
    for order in ((0, 2, 3, 1), (0, 1, 2, 3)):
        turned = turning(x, order)(x)
        assert torch.equal(turned, x)
        assert turned.permute(order).is_contiguous()
        x = turned


def test_a_call_is_captured_once_its_plan_is_made():
    """What a plan keeps would lie in the graph's memory, and be computed by its replays only."""
    torch.manual_seed(0)
    conv, norm = torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
    module = torch.nn.Sequential(conv, norm, torch.nn.ReLU()).eval()
    net = compile(axon.load_fx(module, dims={"input_1": "n 8 h w"}))
    module, x = module.cuda(), torch.randn(2, 8, 12, 10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(LaunchError, match="CUDA graph capture"), torch.cuda.graph(graph):
        net(x)
    with torch.no_grad():
        wanted = module(x)
    torch.testing.assert_close(net(x), wanted, rtol=1e-2, atol=1e-2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = net(x)
    x.neg_()
    graph.replay()
    with torch.no_grad():
        torch.testing.assert_close(found, module(x), rtol=1e-2, atol=1e-2)
