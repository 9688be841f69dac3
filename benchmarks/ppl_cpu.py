"""tawa.ppl on this CPU: leapfrogs a second of CPU time of eight schools, and the first call.

PYTHONPATH=src:tests python benchmarks/ppl_cpu.py [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import ppl_models as models
from tawa import ppl
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.chains import program_of
from tawa.ppl.infer.execute import Executable
from tawa.ppl.infer.options import Options


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    began = time.process_time()
    ppl.infer(models.schools, models.Y, models.SIGMA, method="nuts", chains=4, draws=10, warmup=10)
    print(json.dumps({"first_call_s": round(time.process_time() - began, 2)}))
    for method, options in (
        ("hmc", Options(chains=64, draws=500, warmup=100, steps=12, step_size=0.35, seed=1)),
        ("nuts", Options(chains=64, draws=500, warmup=500, seed=1)),
    ):
        lowered = lower(models.schools, (models.Y, models.SIGMA), options.dtype)
        composed = program_of(lowered, options, method)
        executable = Executable(composed.program, "cpu")
        given = composed.arguments(options.seed)
        best, leaps = float("inf"), 0
        for _ in range(4):  # the first one compiles
            began = time.process_time()
            buffers = executable.run(given, composed.rows, options.chains, threads)
            best = min(best, time.process_time() - began)
            leaps = int(buffers["leapfrogs"].astype(np.int64).sum())
        say = {"method": method, "threads": threads, "seconds": round(best, 3)}
        print(json.dumps({**say, "leapfrogs_per_s": f"{leaps / best:.3g}"}))


if __name__ == "__main__":
    main()
