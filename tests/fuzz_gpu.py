"""Random kernels on the GPU: compiled on all cores, launched in processes of their own, and every
array compared with the oracle's bit for bit.

    python tests/fuzz_gpu.py --first 50000 --seconds 60 --write benchmarks/results
    python tests/fuzz_gpu.py --kernels 20219,20368 --seconds 60

`--seconds` is for compiling, where no GPU is needed: `--only compile` and `--only launch` part the
two, over one folder (`--work`). A kernel that hangs is killed, and the next go on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import Pool, TimeoutError
from pathlib import Path
from typing import Any

import numpy as np

from fuzz_case import Case
from fuzz_kernels import case_of, wishes_of
from fuzz_run import commit, keywords, reason_of
from tawa.errors import (
    BuildError,
    InternalError,
    OverBudget,
    PlanError,
    ProtocolError,
    TawaError,
    UnprovedProtocol,
)
from tawa.runtime.dispatch import guards_hold, simulate_stage
from tawa.runtime.grid import launches
from tawa.runtime.jit import JitFunction

PATIENCE = 20.0
"""Seconds without a word after which a process is taken to hang; the first takes the longest."""
DEVICES = 6
"""Processes that launch at a time."""
WRONG = ("wrong", "hang", "failed")


def launched(number: int, pinned: bool) -> Case:
    """Return a case with its pins, or with its hints alone."""
    case = case_of(number)
    return case if pinned else replace(case, options=wishes_of(case.options))


# --- without a GPU --------------------------------------------------------------------------------


def compiled(number: int, work: Path) -> dict[str, Any]:
    """Compile a kernel into the cache, and keep what the oracle makes of its arguments."""
    found: dict[str, Any] = {"kernel": number}
    try:
        return found | _compiled(number, work)
    except TawaError as error:
        fault = isinstance(error, InternalError | ProtocolError)
        fault = fault and not isinstance(error, UnprovedProtocol)
        return {**found, "verdict": "fault" if fault else "declined", "reason": reason_of(error)}
    except Exception as error:  # a fault of the compiler: told, and the run goes on
        return {**found, "verdict": "fault", "reason": f"{type(error).__name__}: {error}"[:300]}


def _compiled(number: int, work: Path) -> dict[str, Any]:
    case, refused = launched(number, True), ""
    try:
        made = _build(case)
    except (PlanError, OverBudget, BuildError) as error:
        refused = reason_of(error)
        case = launched(number, False)
        made = _build(case)
    data = case.data()
    try:
        simulate_stage(made.asm.program("tile"), case.given(data), case.grid, "tile")
    except Exception as error:  # no reason of the compiler's, whatever its class
        reason = f"the oracle: {type(error).__name__}: {error}"[:300]
        return {"verdict": "fault", "reason": reason}
    arrays = {name: np.asarray(x, np.float32) for name, x in data.items() if hasattr(x, "shape")}
    np.savez(work / f"{number}.npz", **arrays)
    return {"verdict": "compiled", "refused": refused, "specialized": made.plan.specialized}


def _build(case: Case) -> Any:
    """Compile what a launch of the case runs; a grid it cannot run on is refused here."""
    kernel = JitFunction(case.function())
    given = case.given(case.data())
    made = kernel.compile(*given.values(), **keywords(case))
    if not guards_hold(made, given, case.grid):
        made = kernel.compile_plain(*given.values(), **keywords(case))
    launches(made, case.grid)
    return made


class Compiling:
    """Compiles the kernel of a number."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def __call__(self, number: int) -> dict[str, Any]:
        return compiled(number, self.work)


def compile_all(numbers: list[int], options: argparse.Namespace) -> None:
    """Compile kernels, those that are done within the time."""
    options.work.mkdir(parents=True, exist_ok=True)
    stop = time.monotonic() + options.seconds
    with (
        (options.work / "compiled.jsonl").open("w") as log,
        Pool(options.jobs, maxtasksperchild=40) as pool,
    ):
        results = pool.imap_unordered(Compiling(options.work), numbers)
        try:
            while True:
                one = results.next(timeout=max(0.1, stop - time.monotonic()))
                log.write(json.dumps(one) + "\n")
        except (StopIteration, TimeoutError):
            pool.terminate()


# --- with one -------------------------------------------------------------------------------------


def tensor(array: np.ndarray[Any, Any]) -> Any:
    """Return a copy of an array on the GPU."""
    import torch

    kinds = {
        "bfloat16": torch.bfloat16,
        "float8_e4m3fn": torch.float8_e4m3fn,
        "float8_e5m2": torch.float8_e5m2,
    }
    if array.dtype.name in kinds:
        raw = array.view(np.uint8 if array.itemsize == 1 else np.int16)
        return torch.from_numpy(raw.copy()).cuda().view(kinds[array.dtype.name])
    return torch.from_numpy(array.copy()).cuda()


def launch(found: dict[str, Any], work: Path) -> tuple[str, str]:
    """Launch a compiled kernel; return "equal", "wrong" or "failed", and what there is to say."""
    import torch

    number = found["kernel"]
    case = launched(number, not found["refused"])
    wanted = np.load(work / f"{number}.npz")
    data = {k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in case.data().items()}
    try:
        JitFunction(case.function())[case.grid](
            *case.given(data).values(), **case.constants, **case.options
        )
        torch.cuda.synchronize()
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"[:600]
    for name in wanted.files:
        got, want = data[name].to(torch.float32).cpu().numpy(), wanted[name]
        wrong = (got != want) & ~(np.isnan(got) & np.isnan(want))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            text = f"{name}{list(at)} is {got[at]}, the oracle's is {want[at]}"
            return "wrong", f"{text}; {int(wrong.sum())} of {wrong.size} differ"
    return "equal", ""


def launch_some(work: Path, numbers: list[int]) -> None:
    """Launch kernels in this process: a line before each, and one after."""
    for found in prepared(work):
        if found["kernel"] in numbers:
            print(json.dumps({"kernel": found["kernel"], "verdict": "hang"}), flush=True)
            verdict, reason = launch(found, work)
            line = {"kernel": found["kernel"], "verdict": verdict, "reason": reason}
            print(json.dumps(line), flush=True)
            if verdict == "failed" and ("CUDA" in reason or "Fault" in reason):
                return  # nothing runs on a device context that has failed


def prepared(work: Path) -> list[dict[str, Any]]:
    """Return what became of the kernels that were compiled in a folder, by number."""
    lines = (work / "compiled.jsonl").read_text().splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda found: found["kernel"])


class Watched:
    """A process that launches kernels, and the next one after what hung or failed."""

    def __init__(self, numbers: list[int], log: Path, work: Path) -> None:
        self.left = numbers
        self.log = log
        self.work = work
        log.write_text("")
        self._start()

    def _start(self) -> None:
        listed = ",".join(map(str, self.left))
        command = [sys.executable, __file__, "--child", listed, "--work", str(self.work)]
        with self.log.open("a") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        self.size, self.seen = -1, time.monotonic()

    def runs(self) -> bool:
        """Tell whether there is something left; go on where a process has ended or hangs."""
        size = self.log.stat().st_size
        if size != self.size:
            self.size, self.seen = size, time.monotonic()
        ended = self.process.poll() is not None
        if not ended and time.monotonic() - self.seen < PATIENCE:
            return True
        self.stop()
        tried = set(self.results())
        left = [number for number in self.left if number not in tried]
        if not left or len(left) == len(self.left):
            return False
        self.left = left
        self._start()
        return True

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def results(self) -> dict[int, dict[str, Any]]:
        """The last word on each kernel that was begun."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return {one["kernel"]: one for one in map(json.loads, lines)}


def launch_all(options: argparse.Namespace) -> dict[str, Any]:
    """Launch all kernels that were compiled; return the run as JSON."""
    known = prepared(options.work)
    numbers = [found["kernel"] for found in known if found["verdict"] == "compiled"]
    started = time.monotonic()
    parts = [numbers[at::DEVICES] for at in range(DEVICES) if numbers[at::DEVICES]]
    watched = [
        Watched(part, options.work / f"launched.{at}.log", options.work)
        for at, part in enumerate(parts)
    ]
    running = list(watched)
    while running and time.monotonic() - started < options.patience:
        running = [one for one in running if one.runs()]
        time.sleep(0.02)
    for one in running:
        one.stop()
    results: dict[int, dict[str, Any]] = {}
    for one in watched:
        results |= one.results()
    if running:  # what was under way when the time was over has not been judged
        results = {n: one for n, one in results.items() if one["verdict"] != "hang"}
    return facts(known, results, options, time.monotonic() - started)


# --- what came of it ------------------------------------------------------------------------------


def facts(
    known: list[dict[str, Any]],
    results: dict[int, dict[str, Any]],
    options: argparse.Namespace,
    seconds: float,
) -> dict[str, Any]:
    """The run as JSON."""
    verdicts = Counter(one["verdict"] for one in results.values())
    reasons = {
        kind: dict(Counter(f["reason"] for f in known if f["verdict"] == kind).most_common())
        for kind in ("declined", "fault")
    }
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": options.commit or commit(),
        "numbers": [known[0]["kernel"], known[-1]["kernel"]],
        "kernels": len(known),
        "pins refused": sum(bool(found.get("refused")) for found in known),
        "specialized": sum(bool(found.get("specialized")) for found in known),
        "launched": len(results),
        **{kind: verdicts[kind] for kind in ("equal", *WRONG)},
        "seconds": round(seconds, 1),
        **reasons,
        "counterexamples": [
            {**one, "case": str(launched(one["kernel"], True))}
            for one in results.values()
            if one["verdict"] in WRONG
        ],
        "faults": [f for f in known if f["verdict"] == "fault"],
    }


def page(found: dict[str, Any]) -> str:
    """The run as a page."""
    lines = [
        f"# Random kernels on an H200, {found['date']}",
        "",
        f"Kernels {found['numbers'][0]} to {found['numbers'][1]} of `tests/fuzz_kernels.py` "
        f"(`case_of`) by `tests/fuzz_gpu.py`, at {found['commit']}: compiled with NVRTC, launched",
        "in child processes, every array compared bit for bit with the oracle.",
        "",
        "| | |",
        "|---|---:|",
        f"| kernels compiled or declined | {found['kernels']:,} |",
        f"| launched | {found['launched']:,} |",
        f"| of these specialized | {found['specialized']:,} |",
        f"| equal to the oracle bit for bit | {found['equal']:,} |",
        f"| wrong | {found['wrong']:,} |",
        f"| hangs | {found['hang']:,} |",
        f"| failed at the launch or on the device | {found['failed']:,} |",
        f"| declined with a named reason | {sum(found['declined'].values()):,} |",
        f"| faults of the compiler | {sum(found['fault'].values()):,} |",
    ]
    for kind in ("declined", "fault"):
        if found[kind]:
            lines += ["", f"{kind.capitalize()}, by reason (numbers replaced by N):", ""]
            lines += [f"- {count}: {reason}" for reason, count in found[kind].items()]
    for item in found["counterexamples"]:
        lines += ["", f"Kernel {item['kernel']}, {item['verdict']}: {item.get('reason', '')}", ""]
        lines += ["```", item["case"], "```"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Compile, launch, or both; return 1 where a kernel was wrong, hung, failed or is a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, help="the number of the first kernel")
    parser.add_argument("--count", type=int, default=5000, help="kernels, at most")
    parser.add_argument("--kernels", default="", help="these numbers, before those from --first on")
    parser.add_argument("--seconds", type=float, default=60, help="for compiling")
    parser.add_argument("--patience", type=float, default=600, help="seconds for all launches")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    parser.add_argument("--only", choices=("compile", "launch"), help="one of the two parts")
    parser.add_argument("--work", type=Path, default=Path("out/fuzz_gpu"), help="a folder")
    parser.add_argument("--commit", default="", help="where the tree is no repository")
    parser.add_argument("--write", type=Path, help="the folder of the page and its JSON")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        launch_some(options.work, [int(number) for number in options.child.split(",")])
        return 0
    if options.only != "launch":
        listed = [int(number) for number in options.kernels.split(",") if number]
        first, count = options.first or 0, options.count
        more = range(first, first + count) if options.first is not None or not listed else ()
        compile_all([*listed, *more], options)
    if options.only == "compile":
        return 0
    found = launch_all(options)
    text = page(found)
    if options.write is not None:
        name = f"fuzz-gpu-{found['date']}"
        (options.write / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        (options.write / f"{name}.md").write_text(text)
    print(text)
    return int(any(found[kind] for kind in WRONG) or bool(found["faults"]))


if __name__ == "__main__":
    sys.exit(main())
