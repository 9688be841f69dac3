"""The GEMM of examples/08_cypress.py under its mappings, beside our tile kernel and torch.mm.

    python benchmarks/cypress.py --size 4096,8192

Peers take turns in one run, on one GPU, each timed by `do_bench`; TFLOP/s of the median.
"""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "08_cypress.py"


def peers(torch: Any) -> dict[str, Any]:
    """Return what is timed: functions of C, A and B."""
    import tawa.cypress as cy
    from tawa.kernels.matmul import matmul

    found: dict[str, Any] = {
        "torch.mm": lambda c, a, b: torch.mm(a, b, out=c),
        "tawa.kernels.matmul": lambda c, a, b: matmul(a, b),
    }
    for name, mapping in runpy.run_path(str(EXAMPLE))["mappings"](256):
        found[name] = cy.program(mapping)
    return found


def main() -> None:
    """Print a table."""
    import torch

    from tawa.testing import do_bench

    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="4096,8192")
    sizes = [int(size) for size in parser.parse_args().size.split(",")]
    run = peers(torch)
    print(torch.cuda.get_device_name())
    for size in sizes:
        a, b, c = (torch.randn(size, size, device="cuda").half() for _ in "abc")
        for name, function in run.items():
            took = do_bench(lambda f=function, o=(c, a, b): f(*o), return_mode="median")
            print(f"{size:6} {name:28} {2 * size**3 / took / 1e9:7.0f} TFLOP/s")


if __name__ == "__main__":
    main()
