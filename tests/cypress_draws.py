"""Random mappings of the six programs, with the freedoms that each of them took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

import tawa.cypress as cy
from tawa.cypress import NONE, REGISTER, SHARED, WARP, WARPGROUP
from tawa.cypress.kernels import attention, dual, gemm, sums
from tawa.cypress.size import evaluate, sizes_of
from tawa.errors import MappingError, OverBudget, PlanError
from tawa.runtime.arrays import row_major
from tawa.simulator import simulate
from tawa.simulator.memory import HostDescriptor

PROGRAMS = ("gemm", "batched", "dual", "sums", "fa2", "fa3")
FREEDOMS = (
    *("tunables", "WGS 1", "WGS 2", "WGS 3", "WGS 4", "columns", "no roles"),
    *("depth without roles", "depth for all"),
    *("depth by tensor", "pipeline auto", "one tile a block", "group", "cluster", "walk"),
    *(
        "turns",
        "tiles",
        "coarse",
        "A in registers",
        "A in shared",
        "sums in shared",
        "from registers",
        "by stage",
        "ceiling",
        "blocks of threads",
    ),
)
I, T16, T32 = cy.Instance, cy.Tensor[cy.f16, 2], cy.Tensor[cy.f32, 2]


@cy.inner("add", reads="R A", writes="R")
def add_parted(R: T32, A: T16, *, M: int, N: int):
    r, a = (cy.blocks(t, (t.shape[0] // M, t.shape[1] // N)) for t in (R, A))
    for i, j in cy.prange(M, N):
        cy.launch("add", r[i, j], a[i, j])


def by_threads(mapping: cy.Mapping, groups: int, warps: int, lanes: int) -> cy.Mapping:
    """Part the running sums of rows over warps and threads in grids of so many rows."""
    leaf = mapping["add"]
    above = [NONE if each == REGISTER else each for each in leaf.mems]
    made: list[cy.Instance] = []
    calls = ("add", "add_warps", "add_lanes", "add_leaf")
    grids = ((groups, 1), (warps, 4 // warps), (lanes, 32 // lanes))
    for n, (level, grid) in enumerate(zip((cy.BLOCK, WARPGROUP, WARP), grids, strict=True)):
        mems, tunables = above if n == 0 else leaf.mems, dict(zip("MN", grid, strict=True))
        made.append(I(calls[n], add_parted, level, mems, tunables, calls=[calls[n + 1]]))
    made.append(I("add_leaf", leaf.variant, cy.THREAD, leaf.mems))
    others = [each for each in mapping.instances if each is not leaf]
    return cy.Mapping([*others, *made], mapping.ceiling)


@dataclass
class Draws:
    """What was drawn so far: freedoms, and mappings that were refused, by the refusal."""

    freedoms: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def program(self, name: str, random: Random, *, compiled: bool = True) -> cy.Program:
        """Return a legal program, and one that the compiler takes where it is to be `compiled`;
        other draws are counted.
        """
        while True:
            mapping, taken = draw(name, random)
            try:
                program = cy.program(mapping)
                if compiled:
                    program.compile()
            except (MappingError, OverBudget, PlanError) as refusal:
                self.refused[f"{type(refusal).__name__}: {refusal.what}"] += 1
                continue
            self.freedoms.update(taken)
            return program


def draw(name: str, random: Random) -> tuple[cy.Mapping, set[str]]:
    """Return a mapping of a program, that may be illegal, and the freedoms that it takes."""
    attends = name in ("fa2", "fa3")
    groups = random.choice((1, 2, 3, 4))
    rows = 64 * groups * (1 if attends else random.choice((1, 2)))
    columns = random.choice((32, 48, 64) if attends else (8, 16, 24, 64))
    taken = {"tunables", f"WGS {groups}"}
    if attends:
        causal = random.random() < 0.5
        mapping = attention.attention(name, groups, rows, columns, 64, causal)
        loads, product = ("K", "V"), "product"
    else:
        make: Any = {"dual": dual.dual, "sums": sums.sums}.get(name, gemm.gemm)
        more: dict[str, Any] = {"batched": True} if name == "batched" else {}
        if make is gemm.gemm and groups > 1 and random.random() < 0.4:
            more["split"] = "columns"
            rows, columns = 64 * random.choice((1, 2)), columns * groups
            taken.add("columns")
        mapping = make(WGS=groups, U=rows, V=columns, W=random.choice((16, 32, 64)), **more)
        loads = {"dual": ("A", "B1", "B2")}.get(name, ("A", "B"))
        product = "tile"
    block: dict[str, Any] = {"specialize": random.random() < 0.8, "pipeline": 1, "turns": False}
    block |= {"persistent": False, "group": 8}
    if not block["specialize"]:
        block["pipeline"] = random.randint(1, 4)
        taken.add("no roles" if block["pipeline"] == 1 else "depth without roles")
    else:
        way = random.choice(("depth for all", "depth by tensor", "pipeline auto"))
        taken.add(way)
        depths = {each: random.randint(2, 4) for each in loads}
        auto = {"pipeline auto": cy.auto, "depth by tensor": depths}
        block["pipeline"] = auto.get(way, random.randint(1, 8))
        if random.random() < 0.6:
            # Without a walk the grid would have to be a multiple of the cluster.
            block |= {"persistent": True, "group": random.randint(0, 8)}
            block["cluster"] = random.choice((1, 1, 2))
            taken |= {"group"} | ({"cluster"} if block["cluster"] == 2 else set())
            if not attends and random.random() < 0.4:
                block["tiles"] = random.choice((2, 3))
                taken.add("tiles")
            if random.random() < 0.3:
                block["walk"] = random.choice(("serpentine", "dynamic"))
                taken.add("walk")
        else:
            taken.add("one tile a block")
        if attends and groups == 2 and random.random() < 0.5:
            block["turns"] = True
            taken.add("turns")
        if attends and random.random() < 0.5:
            block["schedule"] = "coarse"
            taken.add("coarse")
    mapping = mapping.with_("block", **block)
    if random.random() < 0.3:
        taken.add("A in shared" if attends else "A in registers")
        above = [NONE, SHARED, SHARED]
        for part in (product, f"{product}_wg", f"{product}_warp"):
            mapping = mapping.with_(part, mems=above)
        last = SHARED if attends else REGISTER
        mapping = mapping.with_(f"{product}_leaf", mems=[REGISTER, last, SHARED])
    if random.random() < 0.2:
        taken.add("sums in shared")
        mapping = mapping.with_(product, mems=[SHARED, *mapping[product].mems[1:]])
        if name == "sums":
            mapping = mapping.with_("add", mems=[SHARED, SHARED])
        if attends:
            mapping = mapping.with_("softmax", mems=[REGISTER, SHARED, SHARED, SHARED, REGISTER])
    store = "finish" if attends else "copy"
    way = random.choice(("from registers", "by stage"))
    taken.add(way)
    mapping = mapping.with_(store, stage=SHARED if way == "by stage" else None)
    if random.random() < 0.3:
        taken.add("ceiling")
        ceiling = random.choice((48, 64, 96, 128, 160)) * 1024
        mapping = cy.Mapping(mapping.instances, ceiling)
    if name == "sums" and random.random() < 0.4:
        taken.add("blocks of threads")
        mapping = by_threads(mapping, groups, random.choice((1, 2, 4)), random.choice((4, 8, 16)))
    return mapping, taken


def tensors(name: str, mapping: cy.Mapping, random: Random) -> tuple[list[Any], list[Any]]:
    """Return outputs and inputs, with tails, and loops of no iteration or one among them."""
    rng = np.random.default_rng(random.randrange(2**32))
    if name in ("fa2", "fa3"):
        heads, length = random.randint(1, 3), 8 * random.choice((1, 2, 8, 9, 25))
        q, k, v = (rng.standard_normal((heads, length, 64)).astype(np.float16) for _ in "qkv")
        return [np.ones_like(q)], [q, k, v]

    def integers(*shape: int) -> Any:
        return rng.integers(-2, 3, shape).astype(np.float16)

    m, n = (8 * random.randint(1, 20) for _ in range(2))
    k = 8 * random.choice((0, 1, 2, 8, 9, 20))
    lead = (random.randint(1, 3),) if name == "batched" else ()
    outputs = [np.ones((*lead, m, n), np.float16)]
    inputs = [integers(*lead, m, k), integers(*lead, k, n)]
    if name == "dual":
        inputs.append(integers(k, n))
    if name == "sums":
        width = dict(mapping["host"].tunables)["V"]
        outputs.append(np.ones((-(-n // width), m), np.float32))
    return outputs, inputs


def agree(name: str, program: cy.Program, random: Random) -> None:
    """Run in the simulator and sequentially: equal, bit for bit where sums have one order."""
    compare(name, program, tensors(name, program.mapping, random), program)


def agree_before_plans(name: str, program: cy.Program, random: Random) -> None:
    """Run what is made of a mapping before there are roles: its events, in any order, and the tile
    IR that they become.
    """

    def oracle(*arrays: Any) -> None:
        named = dict(zip(program.parameters, arrays, strict=True))
        given = {
            each.name: HostDescriptor(
                named[each.tensor],
                named[each.tensor].shape,
                row_major(named[each.tensor].shape),
                each.block,
            )
            for each in program.emitted.arguments
        }
        grid = tuple(evaluate(extent, sizes_of(named)) for extent in program.events.grid)
        simulate(program.emitted.kernel, (*grid, 1, 1)[:3], given, level="tile")

    given = tensors(name, program.mapping, random)
    compare(name, program, given, lambda *arrays: program.interpret(*arrays, seed=1), oracle)


def compare(
    name: str,
    program: cy.Program,
    given: tuple[list[Any], list[Any]],
    *ways: Callable[..., None],
) -> None:
    """Run in some ways and sequentially, from the same outputs."""
    outputs, inputs = given
    wanted = [each.copy() for each in outputs]
    program.sequential(*wanted, *inputs)
    for run in ways:
        found = [each.copy() for each in outputs]
        run(*found, *inputs)
        for ours, theirs in zip(found, wanted, strict=True):
            if name in ("fa2", "fa3"):
                np.testing.assert_allclose(ours, theirs, atol=2e-3)
            else:
                np.testing.assert_array_equal(ours, theirs)
