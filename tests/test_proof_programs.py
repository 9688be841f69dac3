"""Programs of a persistent kernel are independent, accesses within one are not: the proof numbers
programs as each role's loop over them counts, though an instance takes every second one only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from xdsl.dialects.builtin import DictionaryAttr
from xdsl.ir import Operation

import tawa.language as tl
from tawa.errors import ProtocolError
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, ScalarArg
from tawa.ir import tile
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.simulator.proof import prove
from tawa.simulator.proof.globals import GlobalMemory
from tawa.simulator.proof.machine import Agent
from tawa.target import H200


def in_place(a_desc, b_desc, d_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    before = d_desc.load([0, 0])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    d_desc.store([0, 0], (acc + before.to(tl.float32)).to(tl.float16))


def lowered(**pins: object) -> tile.Kernel:
    blocks = {"a_desc": (64, 32), "b_desc": (32, 64), "d_desc": (64, 64)}
    signature = {name: DescriptorArg("f16", block) for name, block in blocks.items()}
    constants = {"BM": 64, "BN": 64, "BK": 32}
    signature |= {"K": ScalarArg("i32")}
    signature |= {name: ConstantArg(value) for name, value in constants.items()}
    kernel = build(in_place, signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = plan_for(kernel, H200, Pins(persistent=True, **pins))
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return kernel


PINS: dict[str, dict[str, Any]] = {
    "one role": {},
    "two instances": {"arrangement": "pingpong", "consumers": 2},
    "three instances": {"arrangement": "pingpong", "consumers": 3},
    "dynamic walk": {"walk": "dynamic"},
    "pairs of blocks": {"cluster": 2},
    "two instances in pairs": {"cluster": 2, "arrangement": "pingpong", "consumers": 2},
}


@pytest.mark.parametrize("name", PINS)
def test_a_load_runs_ahead_of_the_store_of_an_earlier_program(name: str) -> None:
    assert prove(lowered(**PINS[name]), H200).ok


@pytest.mark.parametrize("name", PINS)
def test_it_does_not_run_ahead_in_a_loop_of_the_program(name: str) -> None:
    """The same loops, were they the author's: nothing says that their trips are independent."""
    kernel = lowered(**PINS[name])
    assert kernel.launch is not None
    facts = {name: fact for name, fact in kernel.launch.data.items() if name != "persistent"}
    kernel.launch = DictionaryAttr(facts)
    with pytest.raises(ProtocolError, match="nothing orders them"):
        prove(kernel, H200)


@pytest.mark.parametrize("name", PINS)
def test_a_store_must_know_of_the_load_of_its_own_program(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is accepted since the store waits for what was loaded, not since programs are apart."""
    monkeypatch.setattr(GlobalMemory, "_ordered", lambda self, before, after: False)
    with pytest.raises(ProtocolError, match="may still read: nothing orders them"):
        prove(lowered(**PINS[name]), H200)


@pytest.mark.parametrize("name", PINS)
def test_each_role_counts_the_programs_it_computes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[dict[str, list[int]]] = []  # of the first block
    make, keep = GlobalMemory.__init__, GlobalMemory.access

    def begin(self: GlobalMemory, *args: Any) -> None:
        make(self, *args)
        runs.append({})

    def note(
        self: GlobalMemory, agent: Agent, operation: Operation, event: int, box: Any, program: int
    ) -> None:
        keep(self, agent, operation, event, box, program)
        if agent.block == 0:
            runs[-1].setdefault(agent.label, []).append(program)

    monkeypatch.setattr(GlobalMemory, "__init__", begin)
    monkeypatch.setattr(GlobalMemory, "access", note)
    prove(lowered(**PINS[name]), H200)
    instances = int(PINS[name].get("consumers", 1))
    longest = max(runs, key=lambda run: len(next(iter(run.values()), ())))
    (loaded, *others) = [longest[label] for label in sorted(longest)]
    assert len(loaded) > 2 * instances
    steps = {after - before for before, after in pairwise(loaded)}
    assert len(steps) == 1
    assert len(others) == instances
    for instance, programs in enumerate(others):
        assert programs == loaded[instance::instances]
