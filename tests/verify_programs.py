"""Kernels lowered together with what the check keeps of their aref programs."""

from __future__ import annotations

from functools import cache

from lower_kernels import CASES
from tawa import ir
from tawa.frontend import build
from tawa.ir import tile
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
from tawa.target import H200
from tawa.verify import Program, program_of
from tile_shapes import text_of


def lower_with_program(kernel: tile.Kernel, pins: Pins) -> tuple[tile.Kernel, Program]:
    """Lower tile IR in place under the planner's first plan, as a compile does."""
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    pipeline.run((*pipeline.REASSOCIATE, *pipeline.EXPAND), kernel, Plan(), H200)
    plan = rank_plans(kernel, H200, pins)[0]
    pipeline.run(pipeline.SEQUENCE, kernel, plan, H200)
    program = program_of(kernel, plan.cluster)
    pipeline.run((*pipeline.ROLES, *pipeline.HOPPER), kernel, plan, H200)
    return kernel, program


@cache
def lowered_shape(name: str, specialize: bool = True) -> tuple[tile.Kernel, Program]:
    """Return a kernel of the shapes, lowered once; whoever changes it takes a clone."""
    return lower_with_program(ir.parse(text_of(name)), Pins(specialize=specialize))


@cache
def lowered_case(name: str) -> tuple[tile.Kernel, Program]:
    """Return a kernel of `lower_kernels`, lowered once; whoever changes it takes a clone."""
    case = CASES[name]
    return lower_with_program(build(case.function, case.signature, case.options), case.pins)
