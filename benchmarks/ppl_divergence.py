"""What regrouping of unlike lanes could save on a GPU: counted on traces, no GPU needed.

    PYTHONPATH=src:tests python benchmarks/ppl_divergence.py

A program with recursion is a machine of blocks. A warp runs, one after another, the blocks that its
lanes are at: `plain` counts these turns. `regrouped` is what they would be if all lanes were sorted
by block before each, `full` if every turn had 32 lanes. `every T`: the turns where lanes that still
run are sorted before each T-th, and how many warps of records that copies.
"""

from __future__ import annotations

import json

import ppl_models as models
from tawa import ppl
from tawa.ppl.ir import interpret
from tawa.ppl.ir.core import Op

WARP, LANES = 32, 1024


@ppl.model
def grammar(depth):
    u = ppl.sample(ppl.Uniform(0.0, 1.0))
    if depth < 1.0:
        return 1
    if u < 0.4:
        return grammar(depth - 1.0) + grammar(depth - 1.0)
    if u < 0.6:
        return 1 + grammar(depth - 1.0)
    return 1


def traces(model, *given) -> list[list[int]]:
    """Return the numbers of the blocks that each lane runs."""
    found: dict[int, list[int]] = {}
    plain = interpret._Lane.operation

    def operation(self, op: Op, env):
        if op.code == "switch":
            found.setdefault(self.lane, []).append(int(env[op.operands[0]]))
        return plain(self, op, env)

    interpret._Lane.operation = operation
    try:
        ppl.infer(model, *given, method="importance", draws=LANES, device="interpreter", stack=2000)
    finally:
        interpret._Lane.operation = plain
    return [found[lane] for lane in sorted(found)]


def turns(warp: list[list[int]], step: int) -> int:
    """Return how many blocks a warp runs, one after another, at a step of its lanes."""
    return len({lane[step] for lane in warp if step < len(lane)})


def every(lanes: list[list[int]], period: int) -> tuple[int, int]:
    """Return the turns, and the warps of records copied, where each so-manieth step sorts."""
    found = copied = 0
    for first in range(0, max(map(len, lanes)), period):
        live = sorted((lane for lane in lanes if first < len(lane)), key=lambda lane: lane[first])
        groups = [live[k : k + WARP] for k in range(0, len(live), WARP)]
        copied += len(groups)
        found += sum(turns(g, s) for g in groups for s in range(first, first + period))
    return found, copied


def main() -> None:
    for model, given in ((models.birth_death, (2.0, 0.6, 0.3)), (grammar, (12.0,))):
        lanes = traces(model, *given)
        steps = range(max(map(len, lanes)))
        warps = [lanes[k : k + WARP] for k in range(0, LANES, WARP)]
        plain = sum(turns(warp, s) for warp in warps for s in steps)
        regrouped = 0
        for s in steps:
            at = [x[s] for x in lanes if s < len(x)]
            regrouped += sum(-(-at.count(block) // WARP) for block in set(at))
        facts = {"plain": plain, "regrouped": regrouped, "full": sum(map(len, lanes)) // WARP}
        facts |= {f"every {n}": every(lanes, n) for n in (1, 4, 16, 64)}
        print(json.dumps({"model": model.name, "longest": len(steps), **facts}), flush=True)


if __name__ == "__main__":
    main()
