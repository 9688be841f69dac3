"""The specialized program in slow motion: a timeline of loads, products and waits.

python examples/03_trace.py [FILE]      then open FILE in ui.perfetto.dev (no GPU needed)
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import tawa
from tawa.kernels.gemm import matmul_descriptors
from tawa.tools.arguments import busy


def main(path):
    random = np.random.default_rng(0)
    a = random.standard_normal((128, 512)).astype(np.float16)
    b = random.standard_normal((512, 128)).astype(np.float16)
    c = np.full((128, 128), np.nan, dtype=np.float16)
    describe = tawa.TensorDescriptor.from_tensor
    timeline = tawa.simulate(
        matmul_descriptors,
        describe(a, [128, 64]),
        describe(b, [64, 128]),
        describe(c, [128, 128]),
        512,
        grid=(1, 1),
        timeline=path,
        BLOCK_M=128,
        BLOCK_N=128,
        BLOCK_K=64,
        depth=3,
    )
    for track, spent in busy(timeline).items():
        work, wait = spent["work"], spent["wait"]
        print(f"{track:<24} works {work:6.0f}, waits {wait:6.0f} of {timeline.end:.0f} ns")
    print(f"timeline in {path}")


if __name__ == "__main__":
    default = Path(tempfile.gettempdir()) / "tawa_gemm.trace.json"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
