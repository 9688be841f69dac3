"""Copies of images with channels last: `tawa.axon.fuse.turn` beside torch's, one GPU.

    python benchmarks/axon_turn.py

Both take turns, medians; calls are replayed from CUDA graphs. GB/s are of bytes read and written.
"""

from __future__ import annotations

import json
from functools import partial

import torch

from layer_runs import in_turns, time_calls
from tawa.axon.fuse.turn import turning

LAST, FIRST = (0, 2, 3, 1), (0, 1, 2, 3)
SHAPES = {"block": (32, 128, 28, 28), "image": (32, 3, 224, 224), "wide": (8, 512, 64, 64)}


def main() -> None:
    """Print a line of JSON for each shape and way."""
    for name, shape in SHAPES.items():
        for order in (LAST, FIRST):
            x = torch.randn(shape, device="cuda").half()
            kind = torch.contiguous_format if order == LAST else torch.channels_last
            x = x.contiguous(memory_format=kind)
            wanted = torch.channels_last if order == LAST else torch.contiguous_format
            copy, theirs = turning(x, order), partial(x.contiguous, memory_format=wanted)
            made = copy(x)
            assert torch.equal(made, x), "it turns"
            assert made.stride() == theirs().stride()
            calls = {"tawa": time_calls(partial(copy, x), 0.1), "torch": time_calls(theirs, 0.1)}
            spent = in_turns(calls)
            rate = {title: round(2 * x.nbytes / ms / 1e6) for title, ms in spent.items()}
            facts = {"shape": name, "order": order, "ms": spent, "GB/s": rate}
            print(json.dumps({**facts, "device": torch.cuda.get_device_name()}), flush=True)


if __name__ == "__main__":
    main()
