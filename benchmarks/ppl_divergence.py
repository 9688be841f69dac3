"""What regrouping of unlike lanes could save on a GPU: counted on traces, no GPU needed.

    PYTHONPATH=src:tests python benchmarks/ppl_divergence.py

A program with recursion is a machine of blocks. A warp runs, one after another, the blocks that its
lanes are at: `plain` counts these turns. `regrouped` is what they would be if all lanes were sorted
by block before each, `full` if every turn had 32 lanes. Copies of records are not counted.
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


def main() -> None:
    for model, given in ((models.birth_death, (2.0, 0.6, 0.3)), (grammar, (12.0,))):
        lanes = traces(model, *given)
        steps = range(max(map(len, lanes)))
        warps = [lanes[k : k + WARP] for k in range(0, LANES, WARP)]
        plain = sum(len({x[s] for x in warp if s < len(x)}) for warp in warps for s in steps)
        regrouped = 0
        for s in steps:
            at = [x[s] for x in lanes if s < len(x)]
            regrouped += sum(-(-at.count(block) // WARP) for block in set(at))
        facts = {"plain": plain, "regrouped": regrouped, "full": sum(map(len, lanes)) // WARP}
        print(json.dumps({"model": model.name, "longest": len(steps), **facts}), flush=True)


if __name__ == "__main__":
    main()
