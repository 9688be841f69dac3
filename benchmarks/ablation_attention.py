"""What each part of the compiler is worth in attention, one kernel text throughout.

Run by ``python benchmarks/ablation.py attention``: no specialization, roles, the coarse pipeline
(products of two tiles of keys at once), turns at the tensor cores, persistence with the longest
tiles first, masked tiles in a loop of their own, and three warpgroups instead of two. The steps of
a case take turns with cuDNN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablation import Step, take
from attention import Arrays, Attention, Sdpa, TawaAttention
from tawa.kernels.attention import Variant, bind, prepare

LENGTH = 4096
TURNS = {"arrangement": "pingpong"}
DYNAMIC = {"walk": "dynamic"}


def of_tile(rows: int, columns: int, **pins: Any) -> dict[str, Any]:
    """Return the options of a step: a tile of queries and keys, `split`, and pins."""
    return {"rows": rows, "columns": columns, "split": False} | pins


ROLES = {"schedule": "none", "persistent": False}
COARSE = {"schedule": "coarse"}
ONCE = {"persistent": False}
FULL = (
    Step("no specialization", of_tile(128, 128, specialize=False)),
    Step("+ roles", of_tile(128, 128, **ROLES)),
    Step("+ coarse pipeline", of_tile(128, 128, **COARSE, **ONCE)),
    Step("+ ping-pong", of_tile(128, 128, **COARSE, **ONCE, **TURNS)),
    Step("+ persistent", of_tile(128, 128, **COARSE, **TURNS, walk="forward")),
)
STEPS: dict[tuple[int, bool], tuple[Step, ...]] = {
    (128, False): FULL,
    (128, True): (
        *FULL,
        Step("+ longest tiles first", of_tile(128, 128, **TURNS, **DYNAMIC)),
        Step("+ causal split", of_tile(128, 128, **TURNS, **DYNAMIC) | {"split": True}),
    ),
    (64, False): (
        Step("two warpgroups", of_tile(128, 128)),
        Step("two in turns", of_tile(128, 128, **TURNS)),
        Step("three warpgroups", of_tile(192, 128)),
        Step("three in turns", of_tile(192, 128, **TURNS)),
    ),
}


def launch_of(case: Attention, inputs: Arrays, options: Mapping[str, Any]) -> Any:
    """Return the launch of the plain kernel with a step's tile and pins."""
    pins = dict(options)
    rows, columns, split = (pins.pop(name) for name in ("rows", "columns", "split"))
    operands = bind(inputs.q, inputs.k, inputs.v, causal=case.causal, out=inputs.to_write())
    return prepare(operands, Variant(rows, columns, split, tuple(pins.items())))


def run(dry: bool, length: int = LENGTH) -> dict[str, Any]:
    """Return the rows of every case's steps."""
    found: dict[str, Any] = {}
    for (dim, causal), each in STEPS.items():
        case = Attention("f16", dim, length, causal)
        print(f"\n== {case}", flush=True)
        stand_in = TawaAttention(1).stand_ins(case)
        cudnn = Sdpa("cudnn", "CUDNN_ATTENTION")
        found[str(case)] = take(case, each, launch_of, stand_in, cudnn, dry)
    return found
