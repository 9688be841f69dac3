"""Results of every form of the shipped GEMM kernels against float64, on the GPU or simulated.

    python benchmarks/right.py                       all groups on the GPU
    python benchmarks/right.py --group tails,types   some of them
    python benchmarks/right.py --dry                 compile only: plan and resources, no GPU
    python benchmarks/right.py --simulate            small shapes in the simulator

Each trial gets fresh random inputs and a poisoned output, runs three times, and must give the same
bits each time and a relative Frobenius error within its type's rounding.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import runner
from gemm import summary
from harness import OUTPUT, TOLERANCE
from tawa.errors import TawaError

KINDS = {"e4m3": "f8e4m3", "e5m2": "f8e5m2"}


@dataclass(frozen=True, slots=True)
class Trial:
    """A product and the way to compute it; `options` holds the tile and pins."""

    label: str
    m: int
    n: int
    k: int
    dtype: str = "bf16"
    form: str = "descriptors"
    options: dict[str, Any] = field(default_factory=dict)
    batch: int = 1
    trans_a: bool = False
    trans_b: bool = True
    splits: int = 1
    whole: int = 0
    bias: bool = False
    activation: str = ""
    scales: str = ""

    def __str__(self) -> str:
        lead = f"{self.batch}x" if self.batch > 1 else ""
        turned = ("T" if self.trans_a else "N") + ("T" if self.trans_b else "N")
        return f"{self.label}: {self.dtype} {turned} {lead}{self.m}x{self.n}x{self.k}"


def tile(rows: int, columns: int, depth: int = 64, **pins: Any) -> dict[str, Any]:
    return {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth} | pins


SMALL = tile(128, 128)
LARGE = tile(128, 256)
TAILS = [(128, 256, 64), (1, 8, 8), (200, 328, 72), (130, 264, 640), (384, 512, 1024)]


def basic() -> Iterator[Trial]:
    for dtype in ("f16", "bf16"):
        for m, n, k in [(128, 256, 64), (256, 512, 192), (384, 768, 1024)]:
            yield Trial("basic", m, n, k, dtype, options=LARGE)
            yield Trial("basic", m, n, k, dtype, options=SMALL, trans_b=False)


def tails() -> Iterator[Trial]:
    for m, n, k in TAILS:
        for options in (LARGE, tile(64, 128), tile(128, 192), tile(256, 128)):
            yield Trial("tails", m, n, k, options=options)


def turned() -> Iterator[Trial]:
    for trans_a in (False, True):
        for trans_b in (False, True):
            for options in (SMALL, LARGE):
                case = Trial("turned", 264, 520, 200, "f16", options=options)
                yield replace(case, trans_a=trans_a, trans_b=trans_b)


def types() -> Iterator[Trial]:
    for dtype, depth in (("e4m3", 128), ("e5m2", 128), ("f32", 32)):
        for m, n, k in [(128, 256, 128), (200, 336, 272), (256, 512, 1024)]:
            yield Trial("types", m, n, k, dtype, options=tile(128, 128, depth))
            yield Trial("types", m, n, k, dtype, options=tile(128, 256, depth))


def pins() -> Iterator[Trial]:
    case = Trial("", 384, 512, 704)
    for pinned in (
        {"specialize": False},
        {"persistent": False},
        {"persistent": True, "group": 4},
        {"consumers": 1},
        {"consumers": 2},
        {"depth": 2, "mma_depth": 1},
        {"depth": 2, "mma_depth": 2},
        {"depth": 4, "mma_depth": 1},
        {"depth": 4, "mma_depth": 3},
        {"store": "registers"},
        {"parts": 2},
        {"cluster": 2},
    ):
        label = "pins " + " ".join(f"{name}={value}" for name, value in pinned.items())
        yield replace(case, label=label, options=SMALL | pinned)


def sizes() -> Iterator[Trial]:
    for rows, columns, depth in (
        (64, 64, 64),
        (64, 256, 64),
        (128, 64, 64),
        (128, 192, 64),
        (192, 128, 64),
        (256, 128, 64),
        (128, 128, 32),
        (128, 128, 128),
        (16, 128, 64),
        (32, 64, 32),
        (64, 8, 64),
    ):
        yield Trial(
            f"tile {rows}x{columns}x{depth}", 320, 400, 328, options=tile(rows, columns, depth)
        )


def pointers() -> Iterator[Trial]:
    grouped = SMALL | {"GROUP_M": 8}
    for m, n, k in [*TAILS, (129, 257, 65), (512, 512, 0)]:
        for trans_b in (False, True):
            yield Trial("pointers", m, n, k, form="pointers", options=grouped, trans_b=trans_b)
    yield Trial("pointers", 200, 300, 400, form="pointers", options=grouped, activation="gelu")


def device() -> Iterator[Trial]:
    for m, n, k in [*TAILS, (512, 512, 0)]:
        for trans_b in (False, True):
            yield Trial("device", m, n, k, form="device", options=SMALL, trans_b=trans_b)


def persistent() -> Iterator[Trial]:
    for m, n, k in [*TAILS, (2048, 2304, 192)]:
        for parts in (1, 2):
            options = SMALL | {"GROUP_M": 8, "PROGRAMS": 8, "SUBTILES": parts}
            yield Trial(f"persistent/{parts}", m, n, k, form="persistent", options=options)
    options = SMALL | {"GROUP_M": 8, "PROGRAMS": 8, "FLATTEN": True}
    yield Trial("persistent flat", 640, 768, 320, form="persistent", options=options)


def batched() -> Iterator[Trial]:
    for trans_a in (False, True):
        for trans_b in (False, True):
            case = Trial("batched", 200, 264, 136, batch=3, options=SMALL)
            yield replace(case, trans_a=trans_a, trans_b=trans_b)


def epilogue() -> Iterator[Trial]:
    case = Trial("epilogue", 200, 264, 320, options=SMALL)
    for activation in ("relu", "leaky_relu", "silu", "gelu"):
        yield replace(case, activation=activation)
    yield replace(case, bias=True)
    yield replace(case, bias=True, activation="silu")
    fp8 = replace(case, dtype="e4m3", n=272, options=tile(128, 128, 128))
    yield replace(fp8, scales="tensor")
    yield replace(fp8, scales="row", bias=True)


def split() -> Iterator[Trial]:
    for splits in (2, 3, 5):
        for m in (16, 200):
            yield Trial("split", m, 264, 1352, form="split", splits=splits, options=tile(64, 128))
    case = Trial("split", 64, 264, 1024, form="split", splits=4, options=tile(64, 128))
    yield replace(case, bias=True, activation="relu")


def last_wave() -> Iterator[Trial]:
    for m, n, k, whole in [(640, 640, 448, 13), (200, 1160, 1032, 7), (1152, 1280, 200, 88)]:
        case = Trial("last wave", m, n, k, form="split", splits=2, whole=whole, options=SMALL)
        yield case
        yield replace(case, bias=True, activation="relu")


GROUPS: dict[str, Callable[[], Iterator[Trial]]] = {
    "basic": basic,
    "tails": tails,
    "turned": turned,
    "types": types,
    "pins": pins,
    "sizes": sizes,
    "pointers": pointers,
    "device": device,
    "persistent": persistent,
    "batched": batched,
    "epilogue": epilogue,
    "split": split,
    "last wave": last_wave,
}


class Arrays:
    """Makes arrays for a backend: "gpu" (torch), "cpu" (NumPy) or "none" (placeholders)."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._seed = 0

    def normal(self, shape: tuple[int, ...], dtype: str, turned: bool = False) -> Any:
        """Return random values, stored transposed where `turned`."""
        stored = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        if self.where == "none":
            import tawa
            from peers import swapped

            array = tawa.array(stored, KINDS.get(dtype, dtype))
            return swapped(array) if turned else array
        self._seed += 1
        array = self._gpu(stored, dtype) if self.where == "gpu" else self._cpu(stored, dtype)
        return array.swapaxes(-1, -2) if turned else array

    def _gpu(self, shape: tuple[int, ...], dtype: str) -> Any:
        import torch

        from harness import torch_dtype

        generator = torch.Generator(device="cuda")
        generator.manual_seed(self._seed)
        wide = torch.empty(shape, device="cuda", dtype=torch.float32)
        return wide.normal_(generator=generator).to(torch_dtype(dtype))

    def _cpu(self, shape: tuple[int, ...], dtype: str) -> Any:
        import numpy

        from tawa.runtime.dtypes import numpy_dtype

        values = numpy.random.default_rng(self._seed).standard_normal(shape, numpy.float32)
        return values.astype(numpy_dtype(KINDS.get(dtype, dtype)))

    def poisoned(self, shape: tuple[int, ...], dtype: str) -> Any:
        array = self.normal(shape, dtype)
        if self.where == "gpu":
            array.fill_(math.nan)
        elif self.where == "cpu":
            array[...] = math.nan
        return array

    def wide(self, array: Any) -> Any:
        return array.double() if self.where == "gpu" else array.astype("float64")

    def sync(self) -> None:
        if self.where == "gpu":
            import torch

            torch.cuda.synchronize()


@dataclass(slots=True)
class Bound:
    """A trial's arrays and launches."""

    a: Any
    b: Any
    c: Any
    bias: Any
    scale_a: Any
    scale_b: Any
    launches: list[Any]


def bind_trial(trial: Trial, make: Arrays) -> Bound:
    import tawa
    from tawa.kernels.prepare import bind, prepare
    from tawa.kernels.variants import Variant

    lead = (trial.batch,) if trial.batch > 1 else ()
    a = make.normal((*lead, trial.m, trial.k), trial.dtype, trial.trans_a)
    b = make.normal((*lead, trial.k, trial.n), trial.dtype, trial.trans_b)
    c = make.poisoned((*lead, trial.m, trial.n), OUTPUT[trial.dtype])
    bias = make.normal((trial.n,), OUTPUT[trial.dtype]) if trial.bias else None
    scale_a = scale_b = None
    if trial.scales:
        counts = (1, 1) if trial.scales == "tensor" else (trial.m, trial.n)
        scale_a, scale_b = (make.normal((count,), "f32") for count in counts)
    bound = Bound(a, b, c, bias, scale_a, scale_b, [])
    if trial.form in ("device", "persistent"):
        bound.launches = [_special(trial, bound)]
        return bound
    operands = bind(
        a,
        b,
        c,
        bias=bias,
        activation=trial.activation,
        scale_a=scale_a,
        scale_b=scale_b,
    )
    variant = Variant(trial.form, tawa.Config({}, **trial.options), trial.splits, whole=trial.whole)
    bound.launches = prepare(operands, variant)
    return bound


def _special(trial: Trial, bound: Bound) -> Any:
    """Return the launch of a kernel that `prepare` does not choose by itself."""
    from tawa import TensorDescriptor
    from tawa.kernels import gemm
    from tawa.kernels.prepare import Launch

    rows, columns = trial.options["BLOCK_M"], trial.options["BLOCK_N"]
    sizes = (trial.m, trial.n, trial.k)
    grid = (-(-trial.m // rows), -(-trial.n // columns))
    if trial.form == "device":
        arguments = (bound.a, bound.b, bound.c, *sizes)
        turned = {"TRANS_B": trial.trans_b}
        return Launch(gemm.matmul_device_descriptors, grid, arguments, trial.options | turned)
    depth, parts = trial.options["BLOCK_K"], trial.options.get("SUBTILES", 1)
    make = TensorDescriptor.from_tensor
    stored = bound.b if not hasattr(bound.b, "swapaxes") else bound.b.swapaxes(-1, -2)
    if stored is bound.b:
        from peers import swapped

        stored = swapped(bound.b)
    maps = (
        make(bound.a, [rows, depth]),
        make(stored, [columns, depth]),
        make(bound.c, [rows, columns // parts]),
    )
    programs = (trial.options["PROGRAMS"],)
    return Launch(gemm.matmul_persistent, programs, (*maps, *sizes), trial.options)


def expected(trial: Trial, bound: Bound, make: Arrays) -> Any:
    """Return the float64 result."""
    want = make.wide(bound.a) @ make.wide(bound.b)
    if trial.scales:
        scale_a, scale_b = make.wide(bound.scale_a), make.wide(bound.scale_b)
        want = want * scale_a.reshape(-1, 1) * scale_b.reshape(1, -1)
    if bound.bias is not None:
        want = want + make.wide(bound.bias)
    return activated(want, trial.activation)


def activated(x: Any, activation: str) -> Any:
    """Apply an activation in float64, for torch and NumPy alike."""
    if activation == "relu":
        return x * (x > 0)
    if activation == "leaky_relu":
        return x * (x >= 0) + 0.01 * x * (x < 0)
    if activation == "silu":
        return x / (1 + _exp(-x))
    if activation == "gelu":
        return x / (1 + _exp(-1.5957691216057308 * (x + 0.044715 * x**3)))
    return x


def _exp(x: Any) -> Any:
    if hasattr(x, "exp"):
        return x.exp()
    import numpy

    return numpy.exp(x)


def run(trial: Trial, make: Arrays, repeats: int = 3) -> dict[str, Any]:
    """Run a trial; return its row."""
    bound = bind_trial(trial, make)
    results: list[Any] = []
    for _ in range(repeats):
        if make.where == "gpu":
            bound.c.fill_(math.nan)
        else:
            bound.c[...] = math.nan
        for launch in bound.launches:
            launch()
        make.sync()
        results.append(make.wide(bound.c).copy() if make.where == "cpu" else bound.c.clone())
    want = expected(trial, bound, make)
    off = make.wide(bound.c) - want
    norm = float((want * want).sum()) ** 0.5
    error = float((off * off).sum()) ** 0.5 / (norm or 1.0)
    steady = all(bool((again == results[0]).all()) for again in results[1:])
    good = error < TOLERANCE[trial.dtype]
    return {"trial": str(trial), "ok": good and steady, "rel_err": error, "steady": steady}


def attempt(trial: Trial, make: Arrays) -> dict[str, Any]:
    """Compile, and run where there is data; an error of the compiler becomes a row."""
    began = time.perf_counter()
    try:
        if make.where == "none":
            compiled = [launch.compile() for launch in bind_trial(trial, make).launches]
            facts = "; ".join(map(summary, compiled))
            row = {"trial": str(trial), "ok": True, "what": facts}
        else:
            row = run(trial, make, 3 if make.where == "gpu" else 1)
    except TawaError as error:
        row = {"trial": str(trial), "ok": False, "error": f"{type(error).__name__}: {error}"}
    row["options"] = " ".join(f"{name}={value}" for name, value in trial.options.items())
    row["seconds"] = round(time.perf_counter() - began, 3)
    return row


def show(row: dict[str, Any]) -> None:
    note = row.get("error") or row.get("what") or f"relative error {row['rel_err']:.1e}"
    if not row.get("steady", True):
        note += ", NOT STEADY"
    verdict = "ok  " if row["ok"] else "BAD "
    print(f"{verdict} {row['trial']}  [{row['options']}]  {note}  ({row['seconds']} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group", default=",".join(GROUPS))
    parser.add_argument("--dry", action="store_true", help="compile only; needs no GPU")
    parser.add_argument("--simulate", action="store_true", help="run in the simulator")
    parser.add_argument("--most", type=int, default=0, help="trials of each group, 0: all")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="compile ahead in that many processes")
    parser.add_argument("--part", default="0/1", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.jobs > 1:
        command = [str(Path(__file__).resolve()), "--group", options.group, "--dry"]
        took = runner.warm_up(command, options.jobs, 300.0, flag="--part")
        print(f"compiled ahead in {took:.0f} s by {options.jobs} processes", flush=True)
        if options.dry:
            return 0
    part, parts = map(int, options.part.split("/"))
    make = Arrays("none" if options.dry else "cpu" if options.simulate else "gpu")
    rows: list[dict[str, Any]] = []
    for group in options.group.split(","):
        trials = list(GROUPS[group]())
        for trial in trials[: options.most or None][part::parts]:
            row = attempt(trial, make) | {"group": group}
            show(row)
            rows.append(row)
            if options.json:
                options.json.write_text(json.dumps({"rows": rows}, indent=1))
    bad = sum(not row["ok"] for row in rows)
    print(f"{len(rows) - bad} of {len(rows)} right")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
