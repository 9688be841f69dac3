"""tawa.ppl beside NumPyro, BlackJAX and PyMC with nutpie on this CPU: NUTS over twelve models.

    PYTHONPATH=src:tests python benchmarks/ppl.py [--systems numpyro,...] [NAME ...] >> LINES
    PYTHONPATH=src:tests python benchmarks/ppl.py --table LINES

Each system and model runs in a process of its own, on one core, and in turns: tawa runs again
before each peer, and a ratio is that of two neighbours. Four chains of 1,000 draws after 1,000 of
warm-up (nutpie: its own 400), float64. A row's time is CPU seconds of the fastest of
`--runs` calls after the first, warm-up counted, compiling not: the first call less that is shown
apart. The effective sample size is ArviZ's bulk one, the smallest of all parameters' elements, on
everyone's draws; of eight schools those of theta, not of its standard values. What is not
installed, or takes longer than `--limit` CPU seconds, is said so in its place. `--table` makes the
table of such lines, the last of a system and model; of the two ways that NumPyro and BlackJAX run
chains, one after the other and all at once, it shows the faster.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import posteriordb_models as db
import ppl_models as models
import test_ppl_closed_forms as closed
from ppl_peers import CALLS, Call, Draws, Sizes
from tawa import ppl

RNG = np.random.default_rng(1)
X = RNG.normal(size=(200, 4))
LABELS = RNG.random(200) < 1 / (1 + np.exp(-(X @ [1.0, -0.5, 0.3, 0.0])))
PAIR = np.concatenate([RNG.normal(-1.0, 0.7, 60), RNG.normal(1.5, 0.7, 40)])


@ppl.model
def logistic(x, y):
    beta = ppl.repeat(x.shape[1], lambda: ppl.sample(ppl.Normal(0.0, 2.0)))
    ppl.map(lambda m, v: ppl.observe(ppl.BernoulliLogit(m), v), x @ beta, y)
    return beta


@ppl.model
def pair(y):
    weight = ppl.sample(ppl.Beta(2.0, 2.0))
    low = ppl.sample(ppl.Normal(-1.0, 0.3))
    high = ppl.sample(ppl.Normal(1.5, 0.3))
    scale = ppl.sample(ppl.HalfNormal(1.0))

    def term(share, v, at):
        return ppl.log(share / scale) - 0.5 * ((v - at) / scale) ** 2

    for v in y:
        ppl.factor(db.log_add(term(weight, v, low), term(1.0 - weight, v, high)))
    return low, high


def stored(name: str) -> tuple[Any, tuple[Any, ...]]:
    case = db.POSTERIORS[name]
    return case.model, case.arguments(db.data_of(name))


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "schools": (models.schools, (models.Y, models.SIGMA)),
    "mesquite": stored("mesquite-mesquite"),
    "logmesquite": stored("mesquite-logmesquite"),
    "logvolume": stored("mesquite-logmesquite_logvolume"),
    "kilpisjarvi": stored("kilpisjarvi_mod-kilpisjarvi"),
    "arma": stored("arma-arma11"),
    "garch": stored("garch-garch11"),
    "process": stored("gp_pois_regr-gp_regr"),
    "logistic": (logistic, (X, LABELS)),
    "pair": (pair, (PAIR,)),
    "mean": (closed.normal_mean, (closed.DATA,)),
    "rate": (closed.poisson_rate, (closed.COUNTS,)),
}


def tawa_call(name: str, given: tuple[Any, ...], sizes: Sizes) -> Call:
    model = CASES[name][0]

    def call(seed: int) -> Draws:
        options = {**sizes._asdict(), "seed": seed, "dtype": "float64", "threads": 1}
        return dict(ppl.infer(model, *given, method="nuts", **options).draws)

    return call


def least(name: str, draws: Draws) -> float:
    """Return the smallest effective sample size."""
    import arviz

    if "eta" in draws:
        draws["theta"] = draws["mu"][..., None] + draws["tau"][..., None] * draws.pop("eta")
    sizes = arviz.ess(arviz.convert_to_dataset(draws))
    return min(float(np.min(array.values)) for array in sizes.data_vars.values())


def measured(system: str, name: str, sizes: Sizes, runs: int) -> dict[str, Any]:
    """Return effective draws, CPU seconds, and the one by the other."""
    began = time.process_time()
    call = {**CALLS, "tawa": tawa_call}[system](name, CASES[name][1], sizes)
    call(1)
    first = time.process_time() - began
    times: list[float] = []
    found: list[float] = []
    draws: Draws = {}
    for seed in range(2, 2 + runs):
        began = time.process_time()
        draws = call(seed)
        times.append(time.process_time() - began)
        found.append(least(name, draws))
    size, seconds = float(np.mean(found)), min(times)
    facts = {"ess": round(size), "s": round(seconds, 4), "ess_per_s": round(size / seconds)}
    means = {k: [float(f"{m:.5g}") for m in v.mean((0, 1)).ravel()[:2]] for k, v in draws.items()}
    return {**facts, "compile_s": round(first - seconds, 2), "means": means}


def apart(system: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--one", system, "--runs", str(options.runs), name]
    command += [f"--{key}={getattr(options, key)}" for key in (*Sizes._fields, "limit")]
    one_thread = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | one_thread)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"failed": f"longer than {options.limit} CPU s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def table(lines: list[str]) -> str:
    """Return the rows in Markdown, and the geometric means of our rate over each peer's best."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for line in lines:
        facts = json.loads(line)
        row = rows.setdefault(facts["model"], {})
        row[facts["system"]] = facts | {"beside": row.get("tawa")}
    peers = list(dict.fromkeys(system.partition("-")[0] for system in CALLS))
    head = "| model | tawa: ESS | CPU s | ESS/s | compile s |"
    head += "".join(f" {peer}: ESS | CPU s | ESS/s | compile s | ratio |" for peer in peers)
    lines = [head, "|---" * head.count(" |") + "|"]
    ratios: dict[str, list[float]] = {peer: [] for peer in peers}
    keys = ("ess", "s", "ess_per_s", "compile_s")
    for name, row in rows.items():
        ours = row["tawa"]
        if "failed" in ours:
            lines.append(f"| {name} | {ours['failed']} |")
            continue
        cells = [name, *(str(ours[key]) for key in keys)]
        for peer in peers:
            found = [facts for system, facts in row.items() if system.partition("-")[0] == peer]
            ran = [facts for facts in found if "failed" not in facts]
            if not ran:
                cells += ["-"] * 4 + [found[0]["failed"] if found else "not run"]
                continue
            best = max(ran, key=lambda facts: facts["ess_per_s"])
            beside = best["beside"]
            ratio = beside["ess"] / beside["s"] / (best["ess"] / best["s"])
            ratios[peer].append(ratio)
            cells += [*(str(best[key]) for key in keys), f"{ratio:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    for peer, found in ratios.items():
        mean = float(np.exp(np.mean(np.log(found)))) if found else float("nan")
        losses = sum(ratio < 1 for ratio in found)
        lines.append(f"\n{peer}: geometric mean {mean:.2f} of {len(found)}, {losses} losses")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--systems", default=",".join(CALLS))
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--one", default="")
    parser.add_argument("--table", default="")
    options = parser.parse_args()
    if options.one:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        resource.setrlimit(resource.RLIMIT_CPU, (options.limit, options.limit))
        sizes = Sizes(options.chains, options.draws, options.warmup)
        print(json.dumps(measured(options.one, options.names[0], sizes, options.runs)))
        return
    if options.table:
        print(table(Path(options.table).read_text().splitlines()))
        return
    for name in options.names:
        for peer in options.systems.split(","):
            for system in dict.fromkeys(("tawa", peer)):
                facts = apart(system, name, options)
                print(json.dumps({"model": name, "system": system, **facts}), flush=True)


if __name__ == "__main__":
    main()
