"""First contact with a GPU: the hand-written hopper IR of one GEMM, launched without the runtime.

    python benchmarks/first_contact.py right      results against float64 at several shapes
    python benchmarks/first_contact.py speed      TFLOP/s beside torch.mm
    python benchmarks/first_contact.py --dry      generate and build only, no GPU

Nothing here knows the frontend, the passes or the launcher: what fails here is code generation.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import raw_launch
from harness import (
    TOLERANCE,
    Candidate,
    Case,
    Inputs,
    Reference,
    Stopwatch,
    Timing,
    make_inputs,
    measure,
    synchronize,
)

SAMPLE = Path(__file__).resolve().parents[1] / "tests" / "data" / "gemm.hopper.mlir"
BLOCK_M, BLOCK_N = 128, 256
SHAPES = [
    (128, 256, 64),
    (128, 256, 128),
    (128, 256, 192),
    (128, 256, 640),
    (128, 256, 4096),
    (256, 512, 256),
    (1024, 1024, 4096),
    (200, 328, 192),
    (1, 8, 64),
    (130, 264, 72),
    (128, 256, 8),
    (384, 768, 0),
    (4096, 4096, 640),
]
SPEED = [(8192, 8192, 1024), (8192, 8192, 4096)]


def grid_of(case: Case) -> tuple[int, int, int]:
    return (-(-case.m // BLOCK_M), -(-case.n // BLOCK_N), 1)


def bind(kernel: raw_launch.Loaded, case: Case, inputs: Inputs) -> Any:
    arguments = {"a_desc": inputs.a, "b_desc": inputs.b, "c_desc": inputs.c, "K": case.k}
    return kernel.bind(grid_of(case), arguments)


def right(kernel: raw_launch.Loaded) -> list[dict[str, object]]:
    """Compare with float64; print the first wrong places, which tell a layout fault from a race."""
    rows: list[dict[str, object]] = []
    for m, n, k in SHAPES:
        case = Case("bf16", m, n, k, b_rows=True)
        inputs = make_inputs(case, most=2)[0]
        inputs.c.fill_(float("nan"))
        launch = bind(kernel, case, inputs)
        launch()
        synchronize()
        if k == 0:
            error = float(inputs.c.double().norm())  # NaN where unwritten
        else:
            error = Reference(case, inputs).error(inputs.c)
        ok = error < TOLERANCE["bf16"]
        rows.append({"check": f"right {case}", "ok": ok, "rel_err": error})
        print(f"{'ok  ' if ok else 'BAD '} {case}  relative error {error:.2e}", flush=True)
        if not ok:
            show_wrong(case, inputs)
        else:
            rows.append(repeat(case, inputs, launch))
    return rows


def repeat(case: Case, inputs: Inputs, launch: Any, times: int = 20) -> dict[str, object]:
    """Launch again and again: a race shows as a result that changes."""
    import torch

    first = inputs.c.clone()
    same = True
    for _ in range(times):
        inputs.c.fill_(float("nan"))
        launch()
        synchronize()
        same = same and bool(torch.equal(inputs.c, first))
    if not same:
        print(f"BAD  {case}  result changes from launch to launch", flush=True)
    return {"check": f"repeat {case}", "ok": same}


def show_wrong(case: Case, inputs: Inputs) -> None:
    want = inputs.a.double() @ inputs.b.double()
    have = inputs.c.double()
    bad = ~((have - want).abs() <= 0.02 * want.abs() + 0.05 * max(1, case.k) ** 0.5)
    where = bad.nonzero()
    print(f"     {where.shape[0]} of {have.numel()} wrong, {int(have.isnan().sum())} not written")
    for row, column in where[:6].tolist():
        print(f"     c[{row},{column}] = {have[row, column]:.4f}, want {want[row, column]:.4f}")
    rows, columns = bad.any(1).nonzero().flatten(), bad.any(0).nonzero().flatten()
    if rows.numel():
        print(f"     rows {rows[:16].tolist()} columns {columns[:16].tolist()}")


def speed(kernel: raw_launch.Loaded) -> list[dict[str, object]]:
    import torch

    watch = Stopwatch()
    rows: list[dict[str, object]] = []
    for m, n, k in SPEED:
        case = Case("bf16", m, n, k, b_rows=True)
        sets = make_inputs(case)
        reference = Reference(case, sets[0])
        ours = Candidate("sample", [bind(kernel, case, each) for each in sets])

        def peer(each: Inputs) -> Any:
            return lambda: torch.mm(each.a, each.b, out=each.c)

        theirs = Candidate("mm", [peer(each) for each in sets])
        timings = []
        for name, candidate in (("tawa", ours), ("torch.mm", theirs)):
            sets[0].c.fill_(float("nan"))
            candidate.calls[0]()
            synchronize()
            timings.append(Timing(name, candidate, reference.error(sets[0].c), 1))
        measure(watch, timings)
        for timing in timings:
            row = timing.row(case)
            row["ok"] = timing.error < TOLERANCE["bf16"]
            row["check"] = f"speed {case} {timing.peer}"
            rows.append(row)
        mine, other = rows[-2]["tflops"], rows[-1]["tflops"]
        print(f"{case}: tawa {mine}, torch.mm {other} TFLOP/s, SM {rows[-1]['sm_mhz']} MHz")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", nargs="?", choices=("right", "speed"), default="right")
    parser.add_argument("--ir", type=Path, default=SAMPLE, help="the hopper IR to build")
    parser.add_argument("--dry", action="store_true", help="generate and build only")
    parser.add_argument("--source", type=Path, help="write the generated CUDA here")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    built = raw_launch.build(options.ir)
    print(
        f"{built.name}: {len(built.source.splitlines())} lines of CUDA in "
        f"{built.generate_s * 1e3:.0f} ms, cubin of {len(built.cubin)} bytes in "
        f"{built.build_s * 1e3:.0f} ms, {built.threads} threads, "
        f"{built.shared} bytes shared, spills {built.spills}"
    )
    if options.source:
        options.source.write_text(built.source)
    if options.dry:
        return 0
    kernel = raw_launch.Loaded(built)
    rows = {"right": right, "speed": speed}[options.check](kernel)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
