"""How many threads a chain of hmc and nuts is best on a GPU: kernel times of 1 to 32.

    PYTHONPATH=src:tests python benchmarks/ppl_gpu_threads.py [--chains 4096] [NAME ...]

A line for each model, method and number of threads: milliseconds of the kernel (the best of three
launches by CUDA events; hmc of 100 draws of 12 equal leapfrogs, nuts of 150 + 100 draws), its
registers, and whether its draws are those of the first line. `chosen` is what a run would take.
Each line is a process of its own: all compile side by side, and get the GPU one after the other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys

from ppl import CASES
from tawa.ppl.emit import gpu
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.chains import program_of
from tawa.ppl.infer.execute import Executable
from tawa.ppl.infer.options import Options

METHODS = {
    "hmc": {"draws": 100, "warmup": 0, "steps": 12, "step_size": 0.05},
    "nuts": {"draws": 100, "warmup": 150},
}


def work(name: str, method: str, threads: int, chains: int) -> None:
    """Compile, wait for a line, and measure."""
    model, given = CASES[name]
    options = Options(chains=chains, device="cuda", seed=1, **METHODS[method])
    composed = program_of(lower(model, given, options.dtype), options, method)
    executable = Executable(composed.program, "cuda")
    text = gpu.ptx(executable.kernel(threads))
    gpu.ptx = lambda _: text
    print("ready", flush=True)
    sys.stdin.readline()
    chosen = gpu.threads_of_a_lane(chains, executable.kernel, shared=executable.shared)
    gpu.threads_of_a_lane = lambda *_, **__: threads
    driver, best = gpu._driver(), float("inf")
    with executable.on(composed.arguments(1), composed.rows, chains, long=True) as lanes:
        start, end = (gpu._call(driver.cuEventCreate, 0) for _ in range(2))
        for _ in range(3):
            gpu._call(driver.cuEventRecord, start, gpu._stream())
            lanes.launch()
            gpu._call(driver.cuEventRecord, end, gpu._stream())
            gpu._call(driver.cuEventSynchronize, end)
            best = min(best, float(gpu._call(driver.cuEventElapsedTime, start, end)))
        draws = hashlib.sha256(lanes.rows("kept").tobytes()).hexdigest()[:12]
        facts = {"model": name, "method": method, "chains": chains, "threads": threads}
        facts |= {"ms": round(best, 3), "registers": lanes.kernel.attribute("NUM_REGS")}
        print(json.dumps(facts | {"draws": draws, "chosen": chosen}), flush=True)


def main() -> None:
    """Start a process for each line, and let them measure in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=["logistic", "pair"])
    parser.add_argument("--chains", type=int, default=4096)
    parser.add_argument("--threads", default="1,2,4,8,16,32")
    parser.add_argument("--one", default="")
    options = parser.parse_args()
    if options.one:
        name, method, threads = options.one.split(",")
        work(name, method, int(threads), options.chains)
        return
    pipe = subprocess.PIPE
    command = [sys.executable, __file__, f"--chains={options.chains}", "--one"]
    workers = [
        subprocess.Popen([*command, f"{name},{method},{t}"], stdin=pipe, stdout=pipe, text=True)
        for name in options.names
        for method in METHODS
        for t in options.threads.split(",")
    ]
    ready = [worker.stdout.readline() for worker in workers]
    for worker, said in zip(workers, ready, strict=True):
        if said.strip() == "ready":
            print(worker.communicate("go\n", timeout=30)[0].strip(), flush=True)


if __name__ == "__main__":
    main()
