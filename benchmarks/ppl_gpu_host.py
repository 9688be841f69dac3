"""Where a call of `ppl.infer` on the GPU spends its time outside of the kernel.

    PYTHONPATH=src:tests python benchmarks/ppl_gpu_host.py [NAME ...]

For each model, hmc (100 draws of 12 steps) and nuts (150 + 100 draws) of 4,096 chains, a line with
milliseconds of the second and third call, of each function of the driver in the third one (the
wait for the kernel is `cuCtxSynchronize`), of the copies from the device with what they wait for,
and of the rest, which is Python. Functions that run on several threads are not counted apart.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from typing import Any

from ppl import CASES
from tawa import ppl
from tawa.ppl.emit import gpu

METHODS: dict[str, dict[str, Any]] = {
    "hmc": {"draws": 100, "warmup": 0, "steps": 12, "step_size": 0.05},
    "nuts": {"draws": 100, "warmup": 150},
}


def main() -> None:
    """Measure the models that are named."""
    spent: Counter[str] = Counter()
    call, fetch = gpu._call, gpu.Staging.fetch

    def timed(name: str, function: Any, *args: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args)
        finally:
            if threading.current_thread() is threading.main_thread():
                spent[name] += time.perf_counter() - began

    gpu._call = lambda function, *args: timed(function.__name__, call, function, *args)
    gpu.Staging.fetch = lambda *args: timed("fetch", fetch, *args)
    for name in sys.argv[1:] or ["schools", "rate"]:
        model, given = CASES[name]
        for method, options in METHODS.items():
            facts: dict[str, Any] = {"model": name, "method": method}
            for seed in (1, 2, 3):
                spent.clear()
                began = time.perf_counter()
                options |= {"chains": 4096, "device": "cuda"}
                ppl.infer(model, *given, method=method, seed=seed, **options)
                facts[f"call_{seed}_ms"] = round(1e3 * (time.perf_counter() - began), 3)
            copies = spent.pop("cuMemcpyDtoH", 0.0)  # a part of `fetch`
            rest = facts["call_3_ms"] - 1e3 * sum(spent.values())
            facts |= {key: round(1e3 * s, 3) for key, s in spent.most_common()}
            print(json.dumps(facts | {"bus_ms": round(1e3 * copies, 3), "rest": round(rest, 3)}))


if __name__ == "__main__":
    main()
