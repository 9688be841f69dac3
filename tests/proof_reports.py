"""A broken kernel for each way a protocol can fail, and the report a reader gets of it.

    python tests/proof_reports.py        # writes the reports anew

`BROKEN` names the rule, the sample and the mutant; the reports stand in `data/proof_reports.txt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mutants import mutants
from proof_kernels import KERNELS
from tawa.errors import ProtocolError
from tawa.simulator.proof import prove
from tawa.target import H200

FILE = Path(__file__).parent / "data" / "proof_reports.txt"

# (rule, kernel, kind of the mutant, operation, which of them)
BROKEN: tuple[tuple[str, str, str, str, int], ...] = (
    ("no hang", "sample gemm", "drop", "expect", 0),
    ("no hang", "sample gemm_persistent", "flip phase", "wait", 0),
    ("no hang", "sample gemm", "drop", "set_registers", 0),
    ("no race", "sample gemm", "drop", "wait", 1),
    ("no race", "sample gemm", "drop", "named_barrier", 1),
    ("proxy fence", "sample gemm", "drop", "proxy_fence", 0),
    ("early release", "sample gemm", "drop", "wgmma_wait", 0),
    ("early release", "sample gemm_persistent", "drop", "bulk_wait", 0),
    ("one phase at a time", "sample gemm", "flip phase", "wait", 1),
    ("arrivals of one phase", "sample gemm", "drop", "wait", 0),
    ("arrival count", "sample gemm", "by=warp", "arrive", 0),
    ("barrier initialised", "sample gemm", "drop", "block_sync", 0),
    ("barrier fenced", "sample gemm", "drop", "fence_barrier_init", 0),
    ("buffers in place", "sample gemm", "offset+16", "shared", 0),
    ("maps fit their views", "sample gemm", "swizzle=64", "tensor_map", 0),
    ("nothing is left", "sample gemm", "drop", "arrive", 0),
    ("nothing is left", "sample gemm", "read", "bulk_wait", 0),
    ("accumulators at rest", "sample gemm", "drop", "wgmma_wait", 1),
    ("accumulators written first", "codegen matmul_nn", "always adds", "wgmma", 0),
    ("wgmma fence", "sample gemm", "drop", "wgmma_fence", 0),
    ("wgmma commit", "sample gemm", "drop", "wgmma_commit", 0),
    ("all threads of a warp", "sample gemm", "by=thread", "arrive", 0),
    ("named barrier", "sample gemm", "threads=96", "named_barrier", 0),
    ("bulk groups", "sample gemm", "drop", "bulk_commit", 0),
    ("register budget", "sample gemm", "drop", "set_registers", 1),
    ("peers alive", "sample gemm_cluster", "drop", "cluster_sync", 1),
)


def report(kernel: str, kind: str, operation: str, place: int) -> str:
    """Return the error's text of a mutant, by its place among its like."""
    found = [
        mutant
        for mutant in mutants(KERNELS[kernel]())
        if mutant.kind == kind and mutant.operation.name == f"hopper.{operation}"
    ]
    try:
        prove(found[place].make(), H200)
    except ProtocolError as error:
        return str(error)
    return "accepted"


def reports() -> Iterator[str]:
    """Yield the reports, each under a line that says what was broken."""
    for rule, kernel, kind, operation, place in BROKEN:
        text = report(kernel, kind, operation, place)
        yield f"=== {rule}: {kind} {operation} {place} of {kernel}\n{text}\n"


if __name__ == "__main__":
    FILE.write_text("\n".join(reports()))
