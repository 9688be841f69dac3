"""tawa.ppl against the stored draws of posteriordb: a row of a table for each posterior.

    TAWA_POSTERIORDB=CHECKOUT PYTHONPATH=src:tests python benchmarks/ppl_posteriordb.py [NAME ...]

CHECKOUT is a clone of stan-dev/posteriordb: its data are read there. Errors are in Monte Carlo
standard errors of both sides together, the largest of a posterior's quantities; seconds are of a
whole call, compiling included.
"""

from __future__ import annotations

import argparse
import time

import posteriordb_models as db
from tawa.errors import TawaError


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(db.POSTERIORS))
    parser.add_argument("--draws", type=int, default=1500)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--metric", choices=("diagonal", "dense"), default="dense")
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("draws", "warmup", "chains", "metric")}
    print("| posterior | mean | deviation | ess | R-hat | divergent | s |")
    print("|---|---|---|---|---|---|---|")
    for name in options.names:
        began = time.perf_counter()
        try:
            post = db.sample(name, method="nuts", seed=1, **sizes)
        except TawaError as error:
            print(f"| {name} | {type(error).__name__}: {error} |", flush=True)
            continue
        rows = db.compare(name, post)
        mean, deviation = max(row[1] for row in rows), max(row[2] for row in rows)
        cells = [name, f"{mean:.2f}", f"{deviation:.2f}", f"{min(row[3] for row in rows):.0f}"]
        cells += [f"{post.rhat():.3f}", str(post.divergences), f"{time.perf_counter() - began:.1f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
