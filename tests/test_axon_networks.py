"""Networks of torch with symbolic sizes: shapes, guards and numbers are those of torch."""

from __future__ import annotations

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from axon_networks import MORE, NETWORKS, UNet  # noqa: E402
from tawa import axon  # noqa: E402
from tawa.errors import AxonError, AxonGuard  # noqa: E402

EVERY = [*NETWORKS, *[pytest.param(name, marks=pytest.mark.long) for name in MORE]]


class Recorder(torch.fx.Interpreter):
    def run_node(self, n):
        found = super().run_node(n)
        if isinstance(found, torch.Tensor) and n.op not in ("placeholder", "output", "get_attr"):
            self.seen[n.name] = tuple(found.shape)
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
    traced, shapes = torch.fx.symbolic_trace(module), graph.shapes
    for turn in range(8):
        x = draw(rng)
        recorder = Recorder(traced)
        recorder.seen = {}
        with torch.no_grad():
            wanted = recorder.run(x).numpy()
        named = dict(zip(next(iter(dims.values())).split(), x.shape))
        for node, shape in recorder.seen.items():
            text = shapes.get(node, shapes.get(f"{node}_"))
            assert (
                tuple(eval(text, {"min": min, "max": max, "broadcast": broadcast}, named)) == shape
            ), node
        if turn == 0:
            np.testing.assert_allclose(graph(x.numpy()), wanted, rtol=1e-3, atol=1e-5)


def test_a_graph_refuses_what_torch_refuses():
    module = UNet().eval()
    graph = axon.load_fx(module, dims={"x": "n 3 h w"})
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
    assert "up_1 = up.1(cat)" in text
    assert "axis 1 is 16" in text
    assert "axis 0 is 15" in text or "15 is wanted" in text


def test_what_is_not_supported_is_named():
    module = torch.nn.Sequential(torch.nn.LSTM(3, 4))
    with pytest.raises(AxonError, match="LSTM is not supported"):
        axon.load_fx(module)
