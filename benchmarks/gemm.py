"""GEMM beside its peers, on one GPU, in one run.

    python benchmarks/gemm.py --section gemm_k --dtype f16,bf16
    python benchmarks/gemm.py --section gemm_sq,gemm_llm --dtype bf16 --budget 300
    python benchmarks/gemm.py --section gemm_odd --dtype bf16 --peers '^(torch|quack|tawa)$'
    python benchmarks/gemm.py --section gemm_k --dtype bf16 --dry     (compiles, times nothing)

How figures are made is said in harness.py. Writes a table, JSON and a chart to --out.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers as who
import report
import runner
import triton_peers
from harness import Case, Missing

HERE = Path(__file__).resolve().parent
LLAMA = {
    "8b qkv": (6144, 4096),
    "8b o": (4096, 4096),
    "8b gate+up": (28672, 4096),
    "8b down": (4096, 14336),
    "70b qkv": (10240, 8192),
    "70b o": (8192, 8192),
    "70b gate+up": (57344, 8192),
    "70b down": (8192, 28672),
}
STORED: dict[str, dict[str, bool]] = {
    "": {},
    "B by rows": {"b_rows": True},
    "A by columns": {"a_columns": True, "b_rows": True},
}
# Sizes off powers of two: rows that are no multiples of 128 bytes or of 16, few tiles, few rows,
# waves of tiles that end just begun, and operands stored the other way round.
ODD = {
    "": (
        (5000, 5000, 5000),
        (5000, 5000, 5120),
        (5120, 5120, 5120),
        (3072, 768, 1000),
        (3000, 3000, 3000),
        (1000, 1000, 1000),
        (1280, 1280, 1280),
        (1536, 3072, 4096),
        (2304, 4096, 2304),
        (4096, 11008, 4096),
        (4096, 4096, 11008),
        (2048, 5632, 2048),
        (1536, 8960, 1536),
        (48, 5120, 5120),
        (200, 6400, 1600),
        (384, 3584, 18944),
        (4100, 4100, 4100),
        (4096, 50257, 768),
    ),
    "B by rows": ((5120, 5120, 5120), (5000, 5000, 5000), (2560, 2560, 10240)),
    "A by columns": ((6400, 1600, 3000), (3584, 3584, 4000), (2560, 10240, 2000)),
}
SECTIONS: dict[str, list[tuple[int, int, int, int, str]]] = {
    "gemm_odd": [(1, *shape, stored) for stored, shapes in ODD.items() for shape in shapes],
    "gemm_k": [(1, 8192, 8192, k, "") for k in (256, 512, 1024, 2048, 4096, 8192, 16384)],
    "gemm_sq": [
        (1, size, size, size, "") for size in (1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
    ],
    "gemm_llm": [(1, m, n, k, name) for m in (16, 64, 512, 4096) for name, (n, k) in LLAMA.items()],
    "bmm": [
        (64, 1024, 1024, 1024, ""),
        (16, 2048, 2048, 2048, ""),
        (8, 4096, 4096, 4096, ""),
        (256, 512, 512, 512, ""),
        (128, 1024, 1024, 128, ""),
    ],
}
DTYPES = ("f16", "bf16", "e4m3", "f32")


def cases_of(sections: str, dtypes: str, only: str) -> list[Case]:
    """Return the cases of comma-separated sections and dtypes whose text matches `only`."""
    return [
        case
        for section in sections.split(",")
        for dtype in dtypes.split(",")
        for batch, m, n, k, label in SECTIONS[section]
        if re.search(only, str(case := _case(dtype, m, n, k, batch, label)))
    ]


def _case(dtype: str, m: int, n: int, k: int, batch: int, label: str) -> Case:
    """Return a case; a label that says how operands are stored is part of its shape."""
    if label in STORED:
        return Case(dtype, m, n, k, batch, **STORED[label])
    return Case(dtype, m, n, k, batch, label)


def everyone(most: int) -> list[Any]:
    return [
        who.Torch(),
        who.TorchRows(),
        who.CublasLtBest(),
        who.Quack(),
        who.Tawa(most),
        who.TawaPointers(most),
        who.TawaPersistent(),
        triton_peers.TritonPointers(),
        triton_peers.TritonPersistent(),
        triton_peers.TritonSpecialized(),
        triton_peers.TritonBatched(),
    ]


def dry(cases: Sequence[Case], peers: Sequence[Any]) -> int:
    """Compile every configuration of tawa's peers; print plan and resources. Needs no GPU."""
    failed = 0
    for case in cases:
        for peer in peers:
            if isinstance(peer, who.Tawa):
                failed += _dry_peer(case, peer)
    return failed


def _dry_peer(case: Case, peer: who.Tawa) -> int:
    inputs = peer.stand_ins(case)
    try:
        variants = peer.variants(case)
    except Missing as reason:
        print(f"{case} {peer.name}: {reason}")
        return 0
    failed = 0
    for variant in variants:
        began = time.perf_counter()
        try:
            compiled = [launch.compile() for launch in peer.launches(case, variant, inputs)]
        except peer.failures() as error:
            failed += 1
            print(f"{case} {peer.name} {variant}\n    DECLINED {error}", flush=True)
            continue
        took = time.perf_counter() - began
        print(f"{case} {peer.name} {variant}  ({took:.2f} s)", flush=True)
        for each in compiled:
            print(f"    {summary(each)}", flush=True)
    return failed


def summary(compiled: Any) -> str:
    """Return one line of a compiled kernel: roles, rings, loops, memory, proof."""
    plan, resources = compiled.plan, compiled.resources
    roles = " ".join(
        f"{role.label}:{role.instances}x{role.warps}w/{role.registers}r" for role in plan.roles
    )
    rings = " ".join(f"{aref.label}:D{aref.depth}" for aref in plan.arefs)
    loops = " ".join(f"P{loop.mma_depth}" for loop in plan.loops)
    facts = [
        compiled.name,
        roles or f"ordinary, {plan.warps} warps",
        rings,
        loops,
        f"cluster {plan.cluster}" if plan.cluster > 1 else "",
        "persistent" if plan.persistent else "",
        f"{resources.shared} B shared",
        f"spills {resources.spills}",
        "proved" if compiled.proof.ok else "NOT PROVED",
    ]
    return ", ".join(fact for fact in facts if fact)


@dataclass(frozen=True, slots=True)
class Suite:
    """What a benchmark's command line runs: its cases by section and dtype, and its peers."""

    title: str
    about: str
    sections: Sequence[str]
    dtypes: Sequence[str]
    default: tuple[str, str]
    cases_of: Callable[[str, str, str], list[Any]]
    everyone: Callable[[int], list[Any]]


def main(suite: Suite | None = None) -> int:
    """Run a benchmark by its command line: GEMM's, or that of `suite`."""
    if suite is None:
        default = ("gemm_k", "bf16")
        suite = Suite("GEMM", __doc__ or "", [*SECTIONS], DTYPES, default, cases_of, everyone)
    parser = argparse.ArgumentParser(
        description=suite.about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--section", default=suite.default[0], help=f"of {', '.join(suite.sections)}"
    )
    parser.add_argument("--dtype", default=suite.default[1], help=f"of {', '.join(suite.dtypes)}")
    parser.add_argument("--only", default="", help="regular expression on the case's text")
    parser.add_argument("--peers", default="", help="regular expression on the peers' names")
    parser.add_argument(
        "--skip", default="", help="peers (or PEER::CONFIGURATION) to leave out; by ;"
    )
    parser.add_argument("--most", type=int, default=12, help="variants of tawa's to try")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--budget", type=float, default=540, help="seconds for the whole run")
    parser.add_argument("--stall", type=float, default=45, help="seconds before a peer is dropped")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--name", default="", help="of the files written; by default the sections")
    parser.add_argument("--dry", action="store_true", help="compile only; needs no GPU")
    parser.add_argument("--warm", default="", help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = suite.cases_of(options.section, options.dtype, options.only)
    skipped = frozenset(options.skip.split(";"))
    peers = [
        peer
        for peer in suite.everyone(options.most)
        if re.search(options.peers, peer.name) and peer.name not in skipped
    ]
    if options.dry:
        return 1 if dry(cases, peers) else 0
    limits = runner.Limits(options.budget, options.rounds, options.runs, options.stall)
    name = options.name or "_".join((options.section + "," + options.dtype).split(","))
    options.out.mkdir(parents=True, exist_ok=True)
    rows_path = options.out / f"{name}.jsonl"
    if options.warm:
        part, parts = map(int, options.warm.split("/"))
        runner.warm(cases, peers, part, parts)
        return 0
    if options.worker:
        runner.work(cases, peers, limits, rows_path, options.worker, options.start, skipped)
        return 0
    rows_path.unlink(missing_ok=True)
    rows_path.touch()
    began = time.monotonic()
    command = [str(Path(sys.argv[0]).resolve()), *sys.argv[1:]]
    warmed = runner.warm_up(command, options.jobs, 0.4 * options.budget)
    print(f"compiled ahead in {warmed:.0f} s by {options.jobs} processes", flush=True)
    left = runner.Limits(
        options.budget - (time.monotonic() - began), options.rounds, options.runs, options.stall
    )
    runner.supervise(command, cases, left, rows_path)
    facts = {"compiled_ahead_s": warmed}
    report.write(options.out, name, report.read_rows(rows_path), facts, suite.title)
    rows_path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
