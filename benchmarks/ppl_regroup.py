"""Regrouping of unlike lanes on a GPU, on and off: kernel times of programs with recursion.

    PYTHONPATH=src:tests python benchmarks/ppl_regroup.py [--lanes 1000000] [--turns 0,16,64]

A line for each program and number of turns (0: never): milliseconds of the kernel (the best of
three launches by CUDA events), whether its values are those of the first line, registers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import replace

import numpy as np

import ppl_models as models
from tawa import ppl
from tawa.ppl.emit import gpu
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.smc import Filter
from tawa.ppl.passes.handle import Handler


@ppl.model
def events(count):
    """A jump process with four kinds of events, each of them much work."""

    def go(k, x):
        if k < 1.0:
            return x
        u = ppl.sample(ppl.Uniform(0.0, 1.0))
        if u < 0.25:
            return go(k - 1.0, 0.5 * x + ppl.sample(ppl.Gamma(1.5 + 0.1 * x, 1.0)))
        if u < 0.5:
            return go(k - 1.0, 0.5 * x + ppl.sample(ppl.Beta(1.5 + 0.1 * x, 2.0)))
        if u < 0.75:
            return go(k - 1.0, 0.5 * x + float(ppl.sample(ppl.Poisson(1.0 + 0.1 * x))))
        return go(k - 1.0, abs(0.5 * x + ppl.sample(ppl.StudentT(3.0 + 0.1 * x, 0.0, 1.0))))

    return go(count, 0.0)


CASES = {
    "birth_death": (models.birth_death, (2.0, 0.6, 0.3), 256),
    "grammar 12": (models.grammar, (12.0,), 64),
    "grammar 20": (models.grammar, (20.0,), 128),
    "events": (events, (40.0,), 128),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", type=int, default=1_000_000)
    parser.add_argument("--turns", default="0,4,16,64,256")
    given = parser.parse_args()
    driver = gpu._driver()
    for name, (model, arguments, stack) in CASES.items():
        first = ""
        for turns in map(int, given.turns.split(",")):
            options = Options(particles=given.lanes, device="cuda", keep=("value",))
            options = replace(options, stack=stack, regroup=turns)
            with Filter(model, arguments, options, Handler, "importance") as particles:
                lanes, best = particles.lanes, float("inf")
                start, end = (gpu._call(driver.cuEventCreate, 0) for _ in range(2))
                for _ in range(3):
                    gpu._call(driver.cuEventRecord, start, gpu._stream())
                    lanes.launch(seed0=1, fresh=1)
                    gpu._call(driver.cuEventRecord, end, gpu._stream())
                    gpu._call(driver.cuEventSynchronize, end)
                    best = min(best, float(gpu._call(driver.cuEventElapsedTime, start, end)))
                particles.executable.check(lanes)
                names = ("kept_whole", "kept_real")
                held, other = (particles.records.rows(lanes, name) for name in names)
                held = other if model is events else held
                digest = hashlib.sha256(held.tobytes()).hexdigest()[:12]
                first = first or digest
                facts = {"program": name, "lanes": given.lanes, "turns": turns}
                facts |= {
                    "ms": round(best, 3),
                    "same": digest == first,
                    "mean": float(np.mean(held)),
                }
                facts["registers"] = lanes.kernel.attribute("NUM_REGS")
                print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
