"""Every hopper kernel of the tests, by name: what the proof is measured on and mutants are made of.

`MAKERS[name]()` lowers one, from its Python source or tile IR, by the pipeline a compile runs;
`KERNELS[name]()` is a copy of what was lowered once in the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import counted_kernels as counted
import tawa.cypress as cy
import test_lower_copy_async as copies
import test_lower_instances as instances
import test_lower_pingpong as pingpong
from codegen_kernels import ATTENTION, ORDINARY, attention, matmul_nn, matmul_nt, matmul_tt
from frontend_kernels import of
from library_kernels import LIBRARY
from lower_kernels import CASES, Case, lowered, product
from tawa.cypress.kernels import dual, gemm, sums
from tawa.cypress.kernels.attention import attention as attention_tasks
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg
from tawa.ir import parse, tile
from tawa.kernels.prepare import Launch
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
from tawa.runtime.specialize import bind, derive_signature
from tawa.target import H200
from tile_shapes import SHAPES, text_of
from told_kernels import TOLD

DATA = Path(__file__).parent / "data"
Make = Callable[[], tile.Kernel]


def lower(kernel: tile.Kernel, pins: Pins) -> tile.Kernel:
    """Lower tile IR to hopper IR under the first plan of the planner."""
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    pipeline.run((*pipeline.REASSOCIATE, *pipeline.EXPAND), kernel, Plan(), H200)
    plan = rank_plans(kernel, H200, pins)[0]
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return kernel


def _function(function: Any, signature: Any, **pins: Any) -> tile.Kernel:
    return lower(build(function, signature, {}), Pins(**pins))


def _case(case: Case) -> tile.Kernel:
    return lower(build(case.function, case.signature, case.options), case.pins)


def _sample(name: str) -> tile.Kernel:
    return parse((DATA / f"{name}.hopper.mlir").read_text())


def _shape(name: str, **pins: Any) -> tile.Kernel:
    return lower(parse(text_of(name)), Pins(**pins))


def of_launch(launch: Launch) -> tuple[str, Make, Pins]:
    """Return what builds the tile IR that a launch of the library compiles, with a key that is its
    own, and its pins."""
    jit = launch.kernel
    call = bind(jit.kernel, launch.arguments, dict(launch.options))
    signature = derive_signature(jit.kernel, call.values)
    key = f"{jit.fn.__module__} {jit.kernel.name} {signature} {call.options} {call.pins}"
    return key, partial(build, jit.fn, signature, call.options), call.pins


def _launch(name: str) -> tile.Kernel:
    """Lower a launch of the library."""
    item = LIBRARY[name]
    _, make, pins = of_launch(item.launches(None)[item.index])
    return lower(make(), pins)


def codegen_products() -> Iterator[tuple[str, Any, Any]]:
    """Name, function and signature of the products that code generation is tested on."""
    tiles = {"a_desc": (128, 64), "b_desc": (64, 128), "c_desc": (128, 128)}
    for function in (matmul_nn, matmul_nt, matmul_tt):
        blocks = dict(tiles)
        if function is not matmul_nn:
            blocks["b_desc"] = (128, 64)
        if function is matmul_tt:
            blocks["a_desc"] = (64, 128)
        described = {name: DescriptorArg("bf16", block) for name, block in blocks.items()}
        signature = of(**described, K="i32/16", BM=128, BN=128, BK=64)
        yield f"codegen {function.__name__}", function, signature


def _codegen() -> Iterator[tuple[str, Make]]:
    for name, function, signature in codegen_products():
        yield name, partial(_function, function, signature)
    yield "codegen attention", partial(_function, attention, ATTENTION)
    for name, (function, signature) in ORDINARY.items():
        yield f"codegen {name}", partial(_function, function, signature)


PLANS = {
    "cluster": product(bn=256, cluster=2),
    "cluster of four": product(m=520, n=300, cluster=4),
    "cluster not persistent": product(m=200, cluster=2, persistent=False),
    "cluster in groups": product(m=520, n=300, cluster=2, group=2),
    "not persistent": product(persistent=False),
    "depth 2": product(depth=2),
    "depth 5": product(bn=64, depth=5, mma_depth=3),
    "early": replace(product(), options={"launch_pdl": True}),
    "early ordinary": replace(product(specialize=False), options={"launch_pdl": True}),
}


def _special() -> Iterator[tuple[str, Make]]:
    for function in (instances.gemm, instances.residual, instances.twice):
        for depth in (1, 2):
            name = f"instances {function.__name__} depth {depth}"
            yield name, partial(instances._lowered, function, depth=depth)
    yield "instances three", partial(instances._lowered, consumers=3, depth=2)
    for function in (pingpong.attention, pingpong.filtered):
        for schedule in ("none", "fine", "coarse")[: 3 if function is pingpong.attention else 2]:
            name = f"turns {function.__name__} {schedule}"
            yield name, partial(_turns, function, schedule=schedule, depth=2)
    yield "turns not persistent", partial(_turns, pingpong.attention, persistent=False)
    yield "turns three", partial(_turns, pingpong.attention, bm=192, depth=2)
    for function in copies.KERNELS:
        yield f"copies {function.__name__}", partial(_copies, function)
    yield "copies depth 4", partial(_copies, copies.gather, depth=4)
    yield (
        "copies paged",
        partial(_function, copies.paged, copies.paged_signature()),
    )
    for name, case in PLANS.items():
        yield f"plan {name}", partial(_case, case)
    for function in (counted.up_to, counted.up_to_and_with):
        yield f"while {function.__name__}", partial(counted.lowered, function)
    for name, (function, signature) in TOLD.items():
        yield name, partial(_function, function, signature)


def _turns(function: Any, bm: int = 128, **pins: Any) -> tile.Kernel:
    return pingpong._lowered(function, bm, **pins)[0]


def _copies(function: Any, **pins: Any) -> tile.Kernel:
    return copies.lowered(function, **pins).clone()


def _registry() -> Iterator[tuple[str, Make]]:
    for path in sorted(DATA.glob("*.hopper.mlir")):
        name = path.name.removesuffix(".hopper.mlir")
        yield f"sample {name}", partial(_sample, name)
    for name in CASES:
        yield name, lambda name=name: lowered(name)[0].clone()
    for name in SHAPES:
        yield f"shape {name}", partial(_shape, name)
        yield f"shape {name} ordinary", partial(_shape, name, specialize=False)
    yield from _codegen()
    yield from _special()
    for name in LIBRARY:
        yield name, partial(_launch, name)


MAKERS: dict[str, Make] = dict(_registry())


_LAUNCHED: dict[str, tuple[tile.Kernel, tile.Kernel]] = {}


def lowered_launch(launch: Launch) -> tuple[tile.Kernel, tile.Kernel]:
    """The tile IR that a launch of the library compiles, and what it is lowered to, once in a
    process: nobody changes them."""
    key, make, pins = of_launch(launch)
    if key not in _LAUNCHED:
        oracle = make()
        _LAUNCHED[key] = oracle, lower(oracle.clone(), pins)
    return _LAUNCHED[key]


@cache
def _kept(name: str) -> tile.Kernel:
    if (item := LIBRARY.get(name)) is not None:
        return lowered_launch(item.launches(None)[item.index])[1]
    return MAKERS[name]()


def _copy(name: str) -> tile.Kernel:
    return _kept(name).clone()


KERNELS: dict[str, Make] = {name: partial(_copy, name) for name in MAKERS}


def _program(make: Callable[..., cy.Mapping], *sizes: Any, **more: Any) -> tile.Kernel:
    """Lower a task program under its own plan."""
    emitted = cy.program(make(*sizes, **more)).emitted
    return lower(emitted.kernel.clone(), Pins(plan=emitted.plan))


_PLAIN = {"pipeline": {"Q": 1, "K": 3, "V": 3}, "turns": False, "specialize": False} | {
    "causal": True,
    "persistent": False,
}
TASKS: dict[str, Make] = {
    "tasks gemm": partial(_program, gemm.gemm, 2, 128, 64, 32, 3),
    "tasks batched": partial(_program, gemm.gemm, 1, 64, 64, 32, 2, batched=True, tiles=2),
    "tasks dual": partial(_program, dual.dual, 2, 128, 64, 32, 2),
    "tasks sums": partial(_program, sums.sums, 2, 128, 64, 32, 2),
    "tasks fa2": partial(_program, attention_tasks, "fa2", 2, 128, 64, 64, True, turns=False),
    "tasks fa3": partial(_program, attention_tasks, "fa3", 2, 128, 64, 64),
    "tasks fa2 plain": partial(_program, attention_tasks, "fa2", 1, 64, 16, 64, **_PLAIN),
}
"""The task programs, which few tests but that of the mutants take."""


@cache
def text(name: str) -> str:
    """Return the hopper IR of a kernel as text, printed once in a process."""
    return str(_kept(name))


_FLASH = ("flash 64", "flash 128 causal split", "flash 256 causal split in turns")

_NAMES = """
sample attention, sample gemm, sample gemm_persistent, rows of 1024, matmul 128x256,
matmul BK 128, matmul BK 32, matmul depth 3, matmul in 3 unequal parts, matmul ordinary,
matmul f32 out, matmul nt, matmul fp8, matmul fp8 tn, matmul fp8 runs of 32, matmul tf32 nn,
matmul 32x64, computed operands, matmul 2 warps, made here, sums in f16, turn, two products,
no loop, attention fp8, many tiles, many tiles split, add, running sum, counter, shape gemm,
shape gemm ordinary, shape two dots in sequence ordinary,
shape load used by a dot and by arithmetic,
shape load used by a dot and by arithmetic ordinary, shape loop-invariant load,
shape two loops sharing a load, shape two loops sharing a load ordinary,
shape three nested loops, shape three nested loops ordinary,
shape operand computed in registers, shape operand computed in registers ordinary,
shape loop without a dot ordinary, shape dot without a loop, shape no load ordinary,
shape stores to what it later loads ordinary, shape updates in place,
shape updates in place ordinary, codegen matmul_nn, codegen matmul_nt, codegen matmul_tt,
codegen softmax, instances gemm depth 2, instances residual depth 1,
instances residual depth 2, instances twice depth 1, turns attention none,
turns filtered none, turns filtered fine, copies banded, copies depth 4,
plan cluster not persistent, plan not persistent, plan depth 5, while up_to_and_with,
told chooses, told writes, library descriptors 0, library few rows, library batched,
library scales, conv filters' gradient rows, conv input gradient merged, conv taps,
conv split 1, conv im2win 0, conv im2win 1, conv im2win 2, flash 64, flash 128 causal split,
attention window, attention softcap, attention few queries
"""
COVERED = frozenset(" ".join(name.split()) for name in _NAMES.split(","))
"""Kernels whose instructions, and operations with what they are in and take, occur in others."""


def shortened() -> list[Any]:
    """All names, for a test's parameters; `make long` alone goes through what others have too."""
    more = {
        *COVERED,
        *(name for name in KERNELS if name.startswith("flash ") and name not in _FLASH),
    }
    more.add("attention packed over a cache")
    long = pytest.mark.long
    return [pytest.param(name, marks=long) if name in more else name for name in KERNELS]


__all__ = [
    *("COVERED", "KERNELS", "MAKERS", "TASKS"),
    *("lower", "lowered_launch", "shortened", "text"),
]
