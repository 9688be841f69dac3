"""How long compiling takes, by phase, beside Triton on the same source. Needs no GPU.

    python benchmarks/compile_time.py --out benchmarks/results

Warm: the process has compiled something else before; the caches on disk are empty. NVRTC works
while the proof runs: its phase is what is waited for it then. Fresh: a new process, imports
included, from bytecode as an installed package has it. Hit: the kernel is on disk, the process is
new to it. Triton compiles for the same target with the same tile through its own `compile`; it is
left out where it is not installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import peers as who
import report
from harness import Case, Inputs

HERE = Path(__file__).resolve().parent
CASE = Case("bf16", 8192, 8192, 4096)
SIZES = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}


# A GEMM from descriptors, as a program of its own: seconds in all, and those after the imports.
PROGRAM = f"""
import time
start = time.perf_counter()
import tawa
from tawa.kernels.prepare import bind, prepare
from tawa.kernels.variants import Variant
a = tawa.array(({CASE.m}, {CASE.k}), "bf16")
b = tawa.array(({CASE.k}, {CASE.n}), "bf16", strides=(1, {CASE.k}))
(launch,) = prepare(bind(a, b), Variant("descriptors", tawa.Config({SIZES})))
made = time.perf_counter()
launch.compile()
end = time.perf_counter()
print(end - start, end - made)
"""


def launches(case: Case = CASE) -> dict[str, Any]:
    """Return a launch of each kernel form, over placeholders."""
    import tawa
    from tawa.kernels.prepare import Launch, bind, prepare
    from tawa.kernels.variants import Variant

    inputs = who.placeholders(case)
    operands = bind(inputs.a, who.swapped(inputs.b), inputs.c)
    finished = bind(inputs.a, who.swapped(inputs.b), inputs.c, activation="silu")
    plain = tawa.Config(SIZES)
    (descriptors,) = prepare(operands, Variant("descriptors", plain))
    (pointers,) = prepare(operands, Variant("pointers", tawa.Config(SIZES | {"GROUP_M": 8})))
    (epilogue,) = prepare(finished, Variant("descriptors", plain))
    found: dict[str, Launch] = {"descriptors": descriptors, "pointers": pointers}
    found["persistent"] = persistent_launch(case, inputs)
    found["epilogue"] = epilogue
    return found


def persistent_launch(case: Case, inputs: Inputs) -> Any:
    from tawa import TensorDescriptor
    from tawa.kernels.gemm import matmul_persistent
    from tawa.kernels.prepare import Launch

    values = SIZES | {"GROUP_M": 8, "SUBTILES": 1}
    grid, arguments, options = who.persistent(case, values, inputs, TensorDescriptor.from_tensor)
    return Launch(matmul_persistent, grid, arguments, options)


def ours(rounds: int) -> list[dict[str, Any]]:
    """Compile each form `rounds` times from scratch in this process; medians by phase."""
    from tawa.runtime import nvrtc
    from tawa.runtime.compiler import compile_kernel
    from tawa.runtime.request import Request
    from tawa.runtime.specialize import bind

    assemble, texts = nvrtc.build, itertools.count()

    def anew(text: str, *args: Any, **options: Any) -> Any:
        return assemble(f"{text}\n__device__ int text_{next(texts)};\n", *args, **options)

    nvrtc.build = anew  # newer NVRTC keeps what it built, by the text
    rows: list[dict[str, Any]] = []
    for form, launch in launches().items():
        jit = launch.kernel
        request: Request = jit._request(bind(jit.kernel, launch.arguments, launch.options))
        walls: list[float] = []
        phases: dict[str, list[float]] = {}
        for _ in range(rounds + 1):
            with tempfile.TemporaryDirectory() as folder:  # cubins of equal text are kept as well
                os.environ["TAWA_CACHE_DIR"] = folder
                began = time.perf_counter()
                compiled = compile_kernel(request)
                walls.append(time.perf_counter() - began)
            for phase, seconds in compiled.timings.items():
                phases.setdefault(phase, []).append(seconds)
        rows.append(row("tawa", form, walls, phases, "nvrtc"))
    nvrtc.build = assemble
    return rows


def row(
    who_: str, form: str, walls: list[float], phases: Mapping[str, list[float]], binary: str
) -> dict[str, Any]:
    """Return medians in ms without the first round, which warms the process."""
    medians = {name: round(statistics.median(s[1:] or s) * 1e3, 2) for name, s in phases.items()}
    found = {
        "compiler": who_,
        "form": form,
        "first_ms": round(walls[0] * 1e3, 1),
        "warm_ms": round(statistics.median(walls[1:] or walls) * 1e3, 1),
        "own_ms": round(sum(ms for name, ms in medians.items() if name != binary), 1),
        "phases_ms": medians,
    }
    listed = "  ".join(f"{name} {ms:.0f}" for name, ms in medians.items())
    print(
        f"{who_:<7} {form:<12} first {found['first_ms']:7.0f}  warm {found['warm_ms']:7.0f}"
        f"  without the assembler {found['own_ms']:6.0f} ms   ({listed})",
        flush=True,
    )
    return found


def fresh(rounds: int = 3) -> dict[str, float]:
    """Return ms of a new process that compiles one GEMM: nothing on disk, then a disk hit.

    `first_hit_ms` is the part of the latter after the imports: what a call costs that finds its
    kernel on disk and nothing in memory.
    """
    cold: list[tuple[float, ...]] = []
    hits: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as bytecode:
        known = {name: text for name, text in os.environ.items() if "BYTECODE" not in name}
        known["PYTHONPYCACHEPREFIX"] = bytecode
        for number in range(rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                environment = known | {"TAWA_CACHE_DIR": folder}
                for found in (cold, hits, hits, hits) if number else ([],):
                    found.append(run_program(PROGRAM, environment))
    result = {
        "fresh_ms": statistics.median(whole for whole, _ in cold),
        "fresh_hit_ms": statistics.median(whole for whole, _ in hits),
        "first_hit_ms": statistics.median(part for _, part in hits),
        "hit_ms": disk_hit(),
    }
    print("  ".join(f"{name} {value:.1f}" for name, value in result.items()))
    return result


def run_program(program: str, environment: Mapping[str, str]) -> tuple[float, ...]:
    """Run Python text in a process of its own; return the seconds that it prints, in ms."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(float(seconds) * 1e3 for seconds in done.stdout.split())


def disk_hit() -> float:
    """Return ms to find a kernel on disk in a process that has the compiler loaded."""
    from tawa.runtime.jit import JitFunction

    launch = launches()["descriptors"]
    launch.compile()
    times: list[float] = []
    for _ in range(7):
        again = JitFunction(launch.kernel.fn)
        began = time.perf_counter()
        again.compile(*launch.arguments, grid=launch.grid, **launch.options)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def theirs(rounds: int) -> list[dict[str, Any]]:
    """Compile the same sources with Triton for sm_90, by its own stages."""
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        from twin import twin
    except ImportError as error:
        print(f"triton: not compared ({error})")
        return []
    from tawa.kernels import gemm

    target = GPUTarget("cuda", 90, 32)
    rows: list[dict[str, Any]] = []
    for form, (kernel, types, constants, warps) in triton_forms(gemm).items():
        function = twin(kernel)
        signature = {
            name: "constexpr" if name in constants else types[name] for name in function.arg_names
        }
        aligned = {
            (index,): [["tt.divisibility", 16]]
            for index, name in enumerate(function.arg_names)
            if name in types and not types[name].startswith("tensordesc")
        }
        source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
        walls: list[float] = []
        for _ in range(rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                triton.knobs.cache.dir = folder
                began = time.perf_counter()
                triton.compile(source, target, options={"num_warps": warps, "num_stages": 3})
                walls.append(time.perf_counter() - began)
        rows.append(row("triton", form, walls, {"all": walls}, "ptxas"))
    return rows


def triton_forms(gemm: Any) -> dict[str, tuple[Any, dict[str, str], dict[str, Any], int]]:
    """Return kernel, argument types, constants and warps of each form, as launched above."""

    def block(rows: int, columns: int) -> str:
        return f"tensordesc<bf16[{rows}, {columns}]>"

    m, n, k = SIZES.values()
    maps = {"a_desc": block(m, k), "b_desc": block(n, k), "c_desc": block(m, n)}
    ints = {"M": "i32", "N": "i32", "K": "i32"}
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16")
    strides = dict.fromkeys(("stride_am", "stride_bn", "stride_cm"), "i32")
    turned = {"TRANS_A": False, "TRANS_B": True}
    nothing = {"scale_a_ptr": None, "scale_b_ptr": None, "bias_ptr": None}
    finish = {"SCALES": "", "BIAS": False, "ACTIVATION": "silu"}
    unit = {"stride_ak": 1, "stride_bk": 1, "stride_cn": 1, "ACTIVATION": "", "GROUP_M": 8}
    walk = {"GROUP_M": 8, "PROGRAMS": 132, "SUBTILES": 1, "FLATTEN": False}
    return {
        "descriptors": (gemm.matmul_descriptors, maps | {"K": "i32"}, SIZES | turned, 8),
        "pointers": (gemm.matmul_pointers, pointers | ints | strides, SIZES | unit, 8),
        "persistent": (
            gemm.matmul_persistent,
            maps | ints,
            SIZES | walk | {"WARP_SPECIALIZE": False},
            8,
        ),
        "epilogue": (gemm.matmul_epilogue, maps | ints, SIZES | turned | finish | nothing, 8),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    sections: dict[str, Callable[[], Any]] = {
        "tawa": lambda: ours(options.rounds),
        "processes": fresh,
        "triton": lambda: theirs(options.rounds),
    }
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    found = {name: run() for name, run in sections.items()}
    options.out.mkdir(parents=True, exist_ok=True)
    payload = {"environment": report.environment()} | found
    (options.out / "compile_time.json").write_text(json.dumps(payload, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
