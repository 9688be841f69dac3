"""Triton kernels of public packages through tawa: each that the packages' own wrappers launch.

    pip install --no-deps triton==3.6.0 -r benchmarks/third_party.txt
    python benchmarks/third_party.py                      # compiles; needs no GPU
    python benchmarks/third_party.py --gpu                # runs, compares and times as well
    python benchmarks/third_party.py --packages fla,mine --cases my_cases.py

Each package runs in processes of its own, which are started again after a launch that ends one or
takes longer than `--limit` seconds. A launch is compiled by Triton and by tawa from one function
and one set of arguments; on a GPU both run on copies of the same memory, and every array that the
launch could reach is compared. `--cases` names a file with another `PACKAGES`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).parent
# The largest relative error (Frobenius) between two right results, by element type.
CLOSE = {"float32": 5e-3, "float64": 1e-6, "float16": 5e-3, "bfloat16": 2e-2}


@dataclass
class Row:
    """One launch. Seconds are of compiling; microseconds of running, medians."""

    package: str
    call: str
    kernel: str
    product: bool = False
    compiled: bool = False
    specialized: bool = False
    seconds: float = 0.0
    triton: str = ""  # why Triton does not compile it; empty where it does
    triton_seconds: float = 0.0
    reason: str = ""  # why it does not compile, or is not specialized
    right: bool | None = None
    error: float = 0.0
    fell_back: bool = False  # a guard of its launch refused the kernel, and the ordinary one ran
    us: float = 0.0
    triton_us: float = 0.0
    options: str = ""  # warps, stages and constants
    cpu_seconds: float = 0.0  # of `seconds`, of all threads
    phases: dict[str, float] = field(default_factory=dict[str, float])  # of `seconds`


# --- one launch -----------------------------------------------------------------------------


def compile_both(row: Row, launch: Any) -> None:
    """Fill in what compiling shows; nothing is launched."""
    import tawa

    began = time.perf_counter()
    try:
        assembly = triton_compiled(launch)
        row.product = bool(re.search(r"\btt\.dot|tt\.dot_scaled", assembly))
    except Exception as error:
        row.triton = short(error)
    row.triton_seconds = time.perf_counter() - began
    began, began_cpu = time.perf_counter(), time.process_time()
    try:
        made = tawa.jit(launch.fn).compile(**launch.values, **launch.options, grid=launch.grid)
        row.compiled, row.specialized = True, made.plan.specialized
        row.phases = {name: round(seconds, 3) for name, seconds in made.timings.items()}
        if not row.specialized and row.product:
            row.reason = why_ordinary(made)
    except Exception as error:
        row.reason = short(error)
    row.seconds, row.cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu


@contextlib.contextmanager
def nothing_kept() -> Iterator[None]:
    """Let neither compiler find what it compiled before: packages share kernels."""
    with (
        tempfile.TemporaryDirectory() as empty,
        patch.dict(os.environ, TAWA_CACHE_DIR=empty, TRITON_ALWAYS_COMPILE="1"),
    ):
        yield


def triton_compiled(launch: Any) -> str:
    """Compile a launch by Triton for sm_90 and return its first form; needs no GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile, make_backend
    from triton.runtime.jit import create_function_from_signature

    fn, target = launch.fn, GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    bind = create_function_from_signature(fn.signature, fn.params, backend)
    options = {"debug": False, **launch.options}
    bound, facts, more = bind(**launch.values, **options)
    chosen, signature, constants, attributes = fn._pack_args(backend, options, bound, facts, more)
    source = ASTSource(fn, signature, constants, attributes)
    return compile(source, target=target, options=chosen.__dict__).asm["ttir"]


def why_ordinary(made: Any) -> str:
    lines = [" ".join(line.split()) for line in str(made).splitlines()]
    told = (line for line in lines if "declined" in line or "specialization" in line)
    return next(told, "")[:160]


def short(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:300]


def run_both(row: Row, launch: Any) -> None:
    """Run through Triton and tawa on copies of the same memory; compare and time."""
    import torch

    import tawa

    kernel, given = tawa.jit(launch.fn), {**launch.values, **launch.options}
    ours, theirs = kernel[launch.grid], launch.fn[launch.grid]
    memory = storages(launch.values)
    before = [m.clone() for m in memory]

    def ran(call: Callable[..., object]) -> list[Any]:
        for place, value in zip(memory, before):
            place.copy_(value)
        call(**given)
        torch.cuda.synchronize()
        return [m.clone() for m in memory]

    wanted, found = ran(theirs), ran(ours)
    errors = [difference(v, w, f) for v, w, f in zip(views(launch.values), wanted, found)]
    row.error = max((e for e, _ in errors), default=0.0)
    row.right = all(e <= bound for e, bound in errors)
    row.triton_us, row.us = timed(lambda: theirs(**given), lambda: ours(**given))
    row.fell_back = (
        kernel[launch.grid](**given).plan != kernel.compile(**given, grid=launch.grid).plan
    )
    for place, value in zip(memory, before):
        place.copy_(value)


def views(values: Any) -> list[Any]:
    """Return one tensor for each piece of memory that a launch's arguments reach."""
    import torch

    found: dict[int, Any] = {}
    pending = list(values.values())
    while pending:
        value = pending.pop()
        value = getattr(value, "base", value)  # descriptors and reinterpreted tensors
        if isinstance(value, (tuple, list)):
            pending += value
        elif isinstance(value, torch.Tensor):
            found.setdefault(value.untyped_storage().data_ptr(), value)
    return list(found.values())


def storages(values: Any) -> list[Any]:
    """Return the bytes that a launch's arguments reach, each piece of memory once."""
    import torch

    def bytes_of(view: Any) -> Any:
        storage = view.untyped_storage()
        return torch.empty(0, dtype=torch.uint8, device=view.device).set_(storage)

    return [bytes_of(view) for view in views(values)]


def difference(view: Any, wanted: Any, found: Any) -> tuple[float, float]:
    """Return the relative error of found bytes as elements of `view`'s type, and its bound."""
    import torch

    kind = str(view.dtype).removeprefix("torch.")
    bound = 8e-2 if kind.startswith("float8") else CLOSE.get(kind, 0.0)
    if torch.equal(wanted, found):
        return 0.0, bound
    if not bound:
        return float((wanted != found).float().mean()), 0.0
    w, f = (x.view(view.dtype).double() for x in (wanted, found))
    if not torch.equal(w.isfinite(), f.isfinite()):
        return math.inf, bound
    w, f = (x.nan_to_num(0.0, 0.0, 0.0) for x in (w, f))
    return float((w - f).norm() / w.norm().clamp_min(1e-30)), bound


def timed(*calls: Callable[[], object]) -> tuple[float, ...]:
    """Return the median time (us) of each call, in turns, behind a flush of the L2 cache."""
    import torch

    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(25):
        for call, kept in zip(calls, times):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(2_000_000)  # 1 ms, in which the launch is queued
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if turn >= 5:
                kept.append(start.elapsed_time(end) * 1e3)
    return tuple(statistics.median(kept) for kept in times)


# --- one package, in a process of its own ---------------------------------------------------


class TooLong(BaseException):
    """A launch took longer than the limit; no `except Exception` of what it stops takes it."""


def work(package: str, options: argparse.Namespace) -> None:
    """Append a line to `out` for each launch of a package; of each kernel and types one."""
    from third_party_capture import capture

    cases, out = Path(options.cases), Path(options.out)
    gpu, limit, skip = options.gpu, options.limit, set(json.loads(options.skip))
    wanted = re.compile(options.calls)

    def late(*signal: object) -> None:
        raise TooLong(f"longer than {limit} s")

    signal.signal(signal.SIGPROF, late)  # of the processor: other work does not count
    label = ""
    kernels: set[str] = {name.rsplit(" ", 1)[-1] for name in skip}
    found: list[Any] = []

    def judge(launch: Any) -> None:
        if f"{label} {launch.place}" in skip or (options.first and launch.place in kernels):
            return
        kernels.add(launch.place)
        row = Row(package, label, launch.place, options=launch.constants)
        say(out, {"begin": f"{label} {launch.place}"})
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            with contextlib.nullcontext() if gpu else nothing_kept():
                compile_both(row, launch)
            if gpu and row.compiled and not row.triton:
                run_both(row, launch)
        except TooLong as error:
            row.compiled, row.reason = False, str(error)
        except Exception as error:
            row.right, row.reason = False, short(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        say(out, asdict(row))

    calls = None
    seen: set[object] = set()
    while True:
        found.clear()
        with capture(judge if gpu else found.append, seen, not gpu):
            calls = calls or named(cases)[package]()
            label, call = next(calls, ("", None))
            if call is None:
                break
            if f"call {label}" in skip or not wanted.search(label):
                continue
            say(out, {"begin": f"call {label}"})
            try:
                call()
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(place.filename).name}:{place.lineno}"
                say(out, {"call": label, "failed": short(error), "where": where})
        for launch in found:
            judge(launch)
    say(out, {"end": package})


def named(path: Path) -> dict[str, Callable[[], Iterator[tuple[str, Callable[[], object]]]]]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PACKAGES


def say(out: Path, record: dict[str, Any]) -> None:
    with out.open("a") as file:
        file.write(json.dumps(record) + "\n")


# --- all packages ---------------------------------------------------------------------------


def collect(package: str, options: argparse.Namespace) -> tuple[list[Row], list[str]]:
    """Run a package's calls; a process that dies is started anew, past what ended it."""
    rows: dict[str, Row] = {}
    failed: dict[str, str] = {}
    out = Path(options.out).with_suffix(f".{package}.jsonl")
    out.unlink(missing_ok=True)
    skip: set[str] = set()
    for _ in range(20):
        words = [sys.executable, __file__, "--work", package, "--cases", options.cases]
        words += ["--limit", str(options.limit), "--out", str(out), "--skip", json.dumps([*skip])]
        words += ["--calls", options.calls]
        log = out.with_suffix(".log")
        with log.open("a") as file:
            try:
                subprocess.run(
                    words + ["--gpu"] * options.gpu + ["--first"] * options.first,
                    stdout=file,
                    stderr=file,
                    timeout=options.package_limit,
                )
            except subprocess.TimeoutExpired:
                failed["(all)"] = f"stopped after {options.package_limit} s"
        records = (
            [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        )
        for record in records:
            if "kernel" in record:
                rows[f"{record['call']} {record['kernel']}"] = Row(**record)
            elif "failed" in record:
                failed[record["call"]] = f"{record['failed']} ({record['where']})"
        if not records:
            failed["(import)"] = log.read_text()[-300:]
        if not records or "end" in records[-1] or "(all)" in failed:
            break
        begun = next(r["begin"] for r in reversed(records) if "begin" in r)
        failed[begun] = "the process ended here"
        skip |= {begun} | set(rows)
    return list(rows.values()), [f"{call}: {text}" for call, text in failed.items()]


def mean(values: list[float]) -> float:
    values = [value for value in values if value]  # of what was stopped there is no time
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def report(rows: list[Row], failed: dict[str, list[str]], gpu: bool) -> str:
    """Return the tables: one line a package, then each launch that fails or loses."""
    lines = [
        "package                    launches kernels compile special. products   tawa  triton (s)"
    ]
    for package in dict.fromkeys(row.package for row in rows):
        own = [row for row in rows if row.package == package]
        both = [row for row in own if not row.triton]
        lines.append(
            f"{package:26} {len(own):8} {len({r.kernel for r in own}):7} "
            f"{sum(r.compiled for r in own):7} {sum(r.specialized for r in own):8} "
            f"{sum(r.product for r in own):8} {mean([r.seconds for r in both]):6.2f} "
            f"{mean([r.triton_seconds for r in both]):6.2f}"
        )
    sound = [row for row in rows if not row.triton]
    done = sum(row.compiled for row in sound)
    lines += [
        "",
        f"{done} of {len(sound)} launches that Triton compiles: {done / max(1, len(sound)):.1%}",
    ]
    refused = [row for row in sound if not row.compiled]
    lines += [f"  {r.package} {r.kernel} [{r.call}] {r.reason}" for r in refused]
    broken = [row for row in rows if row.triton]
    lines += ["", f"{len(broken)} that Triton does not compile"]
    lines += [
        f"  {r.kernel} tawa {'yes' if r.compiled else r.reason[:80]}; {r.triton[:120]}"
        for r in broken
    ]
    slow = sorted(rows, key=lambda r: -r.seconds)[:10]
    quick = sum(row.seconds <= 2 * row.triton_seconds for row in sound)
    lines += [
        "",
        f"{quick} within twice Triton's time; longest to compile (s, of them CPU; Triton's)",
    ]
    for r in slow:
        lines.append(
            f"  {r.seconds:5.1f} {r.cpu_seconds:5.1f} {r.triton_seconds:5.1f} {r.kernel} [{r.call}]"
        )
        lines.append("    " + ", ".join(f"{name} {s:.2f}" for name, s in r.phases.items()))
    ordinary = [row for row in rows if row.product and row.compiled and not row.specialized]
    lines += ["", f"{len(ordinary)} with products are ordinary kernels"]
    lines += [f"  {r.kernel} [{r.call}] {r.reason}" for r in ordinary]
    if gpu:
        lines += compared(rows)
    lines += ["", "calls that the packages' wrappers did not finish"]
    lines += [f"  {package} {text[:200]}" for package, texts in failed.items() for text in texts]
    return "\n".join(lines) + "\n"


def compared(rows: list[Row]) -> list[str]:
    ran = [row for row in rows if row.us]
    lines = [
        "",
        f"{sum(bool(r.right) for r in rows)} right, {sum(r.right is False for r in rows)} not",
    ]
    lines += [
        f"  WRONG {r.kernel} [{r.call}] {r.error:.2g} {r.reason}" for r in rows if r.right is False
    ]
    for title, own in (
        ("with products", [r for r in ran if r.product]),
        ("without", [r for r in ran if not r.product]),
    ):
        ratios = [r.triton_us / r.us for r in own]
        lines.append(
            f"{title}: {len(own)}, geometric mean {mean(ratios):.3f} of Triton's speed, "
            f"{sum(x >= 0.95 for x in ratios)} at 0.95 or more"
        )
    lines += ["", "launches whose guards sent them to the ordinary kernel"]
    lines += [f"  {r.kernel} [{r.call}]" for r in ran if r.fell_back]
    lines += ["", "slower than Triton (ratio, us, Triton's us)"]
    for r in sorted(ran, key=lambda r: r.triton_us / r.us):
        if r.triton_us / r.us < 0.95:
            lines.append(
                f"  {r.triton_us / r.us:5.2f} {r.us:9.1f} {r.triton_us:9.1f} "
                f"{'special.' if r.specialized else 'ordinary'} {r.kernel} [{r.call}] {r.reason}"
                f" {r.options}"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packages", help="separated by commas; all")
    parser.add_argument("--cases", default=str(HERE / "third_party_cases.py"))
    parser.add_argument("--calls", default="", help="a regular expression of calls' labels; all")
    parser.add_argument("--gpu", action="store_true", help="run, compare and time")
    parser.add_argument("--first", action="store_true", help="one launch of each kernel")
    parser.add_argument("--limit", type=int, default=120, help="processor seconds a launch")
    parser.add_argument("--package-limit", type=int, default=3600, help="seconds a process")
    parser.add_argument("--out", default="third_party.txt")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--skip", default="[]", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work, options)
    chosen = options.packages.split(",") if options.packages else [*named(Path(options.cases))]
    rows: list[Row] = []
    failed: dict[str, list[str]] = {}
    for package in chosen:
        more, failed[package] = collect(package, options)
        rows += more
        print(f"{package}: {len(more)} launches", file=sys.stderr, flush=True)
    text = report(rows, failed, options.gpu)
    Path(options.out).write_text(text)
    Path(options.out).with_suffix(".json").write_text(
        json.dumps([asdict(row) for row in rows], indent=0)
    )
    print(text, end="")


if __name__ == "__main__":
    main()
