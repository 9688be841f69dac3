# ruff: noqa: F821 - annotations of graphs are types of arrays
"""Shapes that nobody wrote: a step of a U-Net, its conditions, a module of torch, a fused function.

python examples/09_axon.py        (needs the extra: pip install 'tawa[axon]'; torch for its module)
"""

import numpy as np

from tawa import axon
from tawa.axon.fuse import fuse
from tawa.errors import AxonGuard


@axon.graph
def step(x: "f32[n, 4, h, w]", down: "f32[c, 4, 3, 3]", up: "f32[4, c, 3, 3]"):
    half = axon.relu(axon.conv(x, down, stride=2, pad=1))
    return axon.concat([x, axon.conv(axon.upsample(half, 2), up, pad=1)], axis=1)


def main():
    """Print what is inferred, run it, and break a condition on purpose."""
    draw = np.random.default_rng(0).standard_normal
    x, down, up = (draw(s).astype(np.float32) for s in ((1, 4, 8, 6), (8, 4, 3, 3), (4, 8, 3, 3)))
    print(step.scheme)
    print("result:", step(x, down, up).shape)
    try:
        step(x[:, :, 1:], down, up)  # seven rows
    except AxonGuard as error:
        print("refused:", error.what)

    norm = fuse(axon.load("fun norm g (x, r) = rms_norm g (x + r)").norm)
    rows, other, scale = draw((3, 40)), draw((3, 40)), draw(40)
    found = norm(scale, (rows, other))  # one kernel for all shapes, here in the simulator
    total = rows + other
    wanted = total / np.sqrt((total**2).mean(1, keepdims=True) + 1e-5) * scale
    print("fused, largest error:", f"{abs(found - wanted).max():.0e}")

    try:
        import torch
    except ImportError:
        return
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.ReLU())
    graph = axon.load_fx(module, dims={"input_1": "n 3 h w"})
    print("a module of torch:", graph)
    print("its shapes:", dict(graph.shapes))


if __name__ == "__main__":
    main()
