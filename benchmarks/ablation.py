"""What each part of the compiler is worth: for GEMM at large K, and for attention.

    python benchmarks/ablation.py steps      no specialization, + roles, + two cooperative
                                             warpgroups, + large tile, + persistent, + D and P
    python benchmarks/ablation.py map        time over D and P; which pairs the planner refuses
                                             beside which are refused, or hang, when forced
    python benchmarks/ablation.py lines      lines of user code
    python benchmarks/ablation.py passes     compile time by phase
    python benchmarks/ablation.py all        these four
    python benchmarks/ablation.py attention  attention, step by step (ablation_attention.py)

`--dry` compiles everything and times nothing: no GPU is needed. Writes ablation.json to --out,
ablation_attention.json for attention.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import peers as who
import report
from gemm import summary
from harness import (
    TOLERANCE,
    Candidate,
    Case,
    Inputs,
    Reference,
    Stopwatch,
    Timing,
    check,
    make_inputs,
    measure,
)
from tawa.errors import TawaError
from tawa.target import H200

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Step:
    """A configuration of the one plain kernel: tile and pins."""

    label: str
    options: Mapping[str, Any]


def tile(rows: int, columns: int) -> dict[str, int]:
    return who.tile_of(rows, columns, 64)


STEPS = (
    Step("no specialization", tile(128, 128) | {"specialize": False}),
    Step(
        "+ roles",
        tile(128, 128) | {"consumers": 1, "depth": 2, "mma_depth": 1, "persistent": False},
    ),
    Step(
        "+ two cooperative warpgroups",
        tile(128, 128) | {"consumers": 2, "depth": 2, "mma_depth": 1, "persistent": False},
    ),
    Step(
        "+ large tile",
        tile(128, 256) | {"consumers": 2, "depth": 2, "mma_depth": 1, "persistent": False},
    ),
    Step(
        "+ persistent",
        tile(128, 256) | {"consumers": 2, "depth": 2, "mma_depth": 1, "persistent": True},
    ),
    Step("+ D and P of the planner", tile(128, 256) | {"consumers": 2, "persistent": True}),
)


def launch_of(case: Case, inputs: Inputs, options: Mapping[str, Any]) -> Any:
    """Return the launch of the plain descriptor kernel with these options."""
    import tawa
    from tawa.kernels.prepare import bind, prepare
    from tawa.kernels.variants import Variant

    sizes = {name: value for name, value in options.items() if name.startswith("BLOCK_")}
    operands = bind(inputs.a, who.swapped(inputs.b), inputs.c)
    (launch,) = prepare(operands, Variant("descriptors", tawa.Config(sizes)))
    pins = {name: value for name, value in options.items() if name not in sizes}
    return replace(launch, options=dict(launch.options) | pins)


def steps(case: Case, dry: bool) -> list[dict[str, Any]]:
    """Take the steps of GEMM beside torch.mm."""
    return take(case, STEPS, launch_of, who.placeholders(case), who.Torch(), dry)


def take(
    case: Any,
    each: Sequence[Step],
    launch: Callable[[Any, Any, Mapping[str, Any]], Any],
    stand_in: Any,
    baseline: Any,
    dry: bool,
) -> list[dict[str, Any]]:
    """Compile every step and, unless `dry`, let all take turns with the only offer of a peer.

    `launch` binds a case, inputs and a step's options; `stand_in` are inputs without a GPU.
    """
    rows: list[dict[str, Any]] = []
    built: list[Step] = []
    for step in each:
        try:
            compiled = launch(case, stand_in, step.options).compile()
        except TawaError as error:
            rows.append({"step": step.label, "declined": str(error)})
            print(f"{step.label}: DECLINED {error}", flush=True)
            continue
        built.append(step)
        rows.append({"step": step.label, "what": summary(compiled), "ms": times_of(compiled)})
        print(f"{step.label:<30} {summary(compiled)}", flush=True)
    if dry:
        return rows
    sets = case.make_inputs()
    reference = case.reference(sets[0])
    watch = Stopwatch()
    timings: list[Timing] = []
    for step in built:
        calls = [launch(case, inputs, step.options) for inputs in sets]
        candidate = Candidate(step.label, calls)
        error = check(case, reference, sets[0], candidate)
        if not error < TOLERANCE[case.dtype]:
            print(f"{step.label}: WRONG, relative error {error:.2g}", flush=True)
        timings.append(Timing(step.label, candidate, error, 1))
    (offer,) = baseline.offers(case)
    peer = Candidate(offer.label, [offer.bind(inputs) for inputs in sets])
    name = f"{baseline.name}.{offer.label}"
    timings.append(Timing(name, peer, check(case, reference, sets[0], peer), 1))
    measure(watch, timings)
    by_step = {row["step"]: row for row in rows}
    for timing in timings:
        row = by_step.setdefault(timing.peer, {"step": timing.peer})
        row |= timing.row(case)
        print(f"{timing.peer:<30} {row['tflops']:8.1f} TFLOP/s  error {timing.error:.1e}")
    return list(by_step.values())


def times_of(compiled: Any) -> dict[str, float]:
    return {phase: round(seconds * 1e3, 2) for phase, seconds in compiled.timings.items()}


def depth_map(
    case: Case, dry: bool, sizes: Mapping[str, int], most_d: int = 8, most_p: int = 4
) -> list[dict[str, Any]]:
    """Try every pair of D and P: what the planner says, what happens when it is forced."""
    base = verdict(case, sizes)[1].plan
    sets = [] if dry else make_inputs(case)
    reference = None if dry else Reference(case, sets[0])
    rows: list[dict[str, Any]] = []
    for depth in range(1, most_d + 1):
        # How the store leaves decides how much memory is left: as the planner has it at this depth.
        _, found = verdict(case, dict(sizes) | {"depth": depth, "mma_depth": 1})
        base = base if found is None else found.plan
        for groups in range(1, most_p + 1):
            pins = {"depth": depth, "mma_depth": groups}
            row: dict[str, Any] = {"tile": list(sizes.values())[:2], "D": depth, "P": groups}
            row["planner"] = verdict(case, dict(sizes) | pins)[0]
            row["forced"] = force(case, sizes, base, depth, groups)
            if row["planner"] == "ok" and reference is not None:
                row |= time_one(case, sets, reference, dict(sizes) | pins)
            rows.append(row)
            tflops = f"{row['tflops']:.0f}" if row.get("tflops") else ""
            print(f"D={depth} P={groups} {tflops:>5} planner: {row['planner'][:60]}", flush=True)
    show_map(rows)
    return rows


def verdict(case: Case, options: Mapping[str, Any]) -> tuple[str, Any]:
    """Return "ok" or who refused and why, and the compiled kernel if there is one."""
    try:
        compiled = launch_of(case, who.placeholders(case), options).compile()
    except TawaError as error:
        return f"{type(error).__name__}: {error.what}", None
    # Depth of products that the passes did not carry out, though the plan says so.
    unmet = [each for each in compiled.declined if each.feature.startswith("mma_depth")]
    return (f"lowering: {unmet[0].reason}" if unmet else "ok"), compiled


def force(case: Case, sizes: Mapping[str, int], base: Any, depth: int, groups: int) -> str:
    """Return what happens to a plan with these depths that the planner did not choose.

    The plan goes past the planner's choice; memory, lowering and the proof judge it.
    """
    plan = replace(
        base,
        arefs=tuple(replace(aref, depth=depth) for aref in base.arefs),
        loops=tuple(replace(loop, mma_depth=groups) for loop in base.loops),
    )
    return verdict(case, dict(sizes) | {"plan": plan})[0]


def time_one(
    case: Case, sets: list[Inputs], reference: Reference, options: Mapping[str, Any]
) -> dict[str, Any]:
    candidate = Candidate("", [launch_of(case, inputs, options) for inputs in sets])
    error = check(case, reference, sets[0], candidate)
    timing = Timing("tawa", candidate, error, 1)
    measure(Stopwatch(), [timing], rounds=1, runs=9, warm_ms=15.0)
    return {"tflops": round(case.flops / timing.ms / 1e9, 1), "rel_err": error}


def show_map(rows: list[dict[str, Any]]) -> None:
    """Print the map: TFLOP/s or "ok" where feasible, else who refused: p(lanner), f(orced)."""
    depths = sorted({row["D"] for row in rows})
    print("\nP \\ D " + "".join(f"{depth:>8}" for depth in depths))
    for groups in sorted({row["P"] for row in rows}):
        cells: list[str] = []
        for depth in depths:
            (row,) = (r for r in rows if r["D"] == depth and r["P"] == groups)
            planner, forced = row["planner"] == "ok", row["forced"] == "ok"
            fine = f"{row['tflops']:.0f}" if row.get("tflops") else "ok"
            refused = ("" if planner else "p") + ("" if forced else "f")
            cells.append(f"{refused or fine:>8}")
        print(f"{groups:>5} " + "".join(cells))
    print("p: refused by the planner; f: forced, refused by memory, lowering or the proof")
    agree = sum((row["planner"] == "ok") == (row["forced"] == "ok") for row in rows)
    print(f"planner and what happens agree on {agree} of {len(rows)} pairs")


def lines() -> list[dict[str, Any]]:
    """Count lines of code of the user's kernels: no comments, docstrings or blank lines."""
    import ast

    from tawa.kernels import gemm

    rows: list[dict[str, Any]] = []
    for name in (
        "matmul_descriptors",
        "matmul_pointers",
        "matmul_persistent",
        "matmul_batched",
        "matmul_epilogue",
    ):
        tree = ast.parse(inspect.getsource(getattr(gemm, name).fn))
        function = tree.body[0]
        assert isinstance(function, ast.FunctionDef)
        if ast.get_docstring(function) is not None:
            function.body = function.body[1:]
        function.decorator_list = []
        count = len(ast.unparse(function).splitlines())
        rows.append({"kernel": name, "lines": count})
        print(f"{name:<28} {count:3d} lines")
    return rows


def passes(case: Case) -> list[dict[str, Any]]:
    """Compile each step anew, nothing on disk, and print milliseconds by phase."""
    from tawa.runtime.jit import JitFunction

    rows: list[dict[str, Any]] = []
    for step in (STEPS[0], *STEPS):  # the first warms the process
        launch = launch_of(case, who.placeholders(case), step.options)
        anew = JitFunction(launch.kernel.fn)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TAWA_CACHE_DIR"] = folder
            try:
                compiled = anew.compile(*launch.arguments, grid=launch.grid, **launch.options)
            except TawaError:
                continue
        phases = times_of(compiled)
        rows.append({"step": step.label, "ms": phases})
        listed = "  ".join(f"{phase} {ms:.0f}" for phase, ms in phases.items())
        print(f"{step.label:<30} {listed}  ms")
    return rows[1:]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("steps", "map", "lines", "passes", "all", "attention"))
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--size", type=int, default=8192, help="M and N")
    parser.add_argument("--k", type=int, default=16384)
    parser.add_argument("--dry", action="store_true", help="compile only; needs no GPU")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.what == "attention":
        import ablation_attention

        return save(ablation_attention.run(options.dry), "ablation_attention", options)
    problem = Case(options.dtype, options.size, options.size, options.k)
    wanted = ("steps", "map", "lines", "passes") if options.what == "all" else (options.what,)
    found: dict[str, Any] = {"case": str(problem), "budget": H200.shared_per_block}
    for what in wanted:
        print(f"\n== {what}", flush=True)
        match what:
            case "steps":
                found[what] = steps(problem, options.dry)
            case "map":
                found[what] = depth_map(problem, options.dry, tile(128, 256), most_d=5)
                found[what] += depth_map(problem, options.dry, tile(128, 128))
            case "lines":
                found[what] = lines()
            case _:
                found[what] = passes(problem)
    return save(found, "ablation", options)


def save(found: Mapping[str, Any], name: str, options: argparse.Namespace) -> int:
    """Write what was found beside where it was found; return the exit status."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}{'_dry' if options.dry else ''}.json"
    path.write_text(
        json.dumps({"environment": report.environment()} | dict(found), indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
