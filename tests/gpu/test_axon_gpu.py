"""Programs of `tawa.axon` with tensors of a GPU: operator by operator, and fused."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

from axon_networks import MORE, NETWORKS  # noqa: E402
from tawa import axon  # noqa: E402
from tawa.axon.fuse import compile, fuse  # noqa: E402


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
