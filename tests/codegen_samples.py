"""Kernels at hopper level that code generation is tested on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xdsl.dialects.builtin import BoolAttr, DictionaryAttr

from tawa.frontend import build
from tawa.frontend.signature import Argument
from tawa.ir import parse, tile
from tawa.passes import pipeline
from tawa.passes.simplify import simplify_kernel
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.target import H200
from tile_shapes import text_of

DATA = Path(__file__).parent / "data"


def worked_example() -> tile.Kernel:
    """The GEMM written by hand at hopper level."""
    return parse((DATA / "gemm.hopper.mlir").read_text())


def shape(name: str, pins: Pins | None = None, *, early: bool = False) -> tile.Kernel:
    """One of the shapes of programs, lowered."""
    kernel = parse(text_of(name))
    if early:
        kernel.attributes["options"] = DictionaryAttr({"launch_pdl": BoolAttr.from_bool(True)})
    simplify_kernel(kernel)
    return lowered(kernel, pins)


def compiled(
    function: object, signature: Mapping[str, Argument], pins: Pins | None = None
) -> tile.Kernel:
    """A Python kernel, lowered."""
    kernel = build(function, signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    return lowered(kernel, pins)


def lowered(kernel: tile.Kernel, pins: Pins | None = None) -> tile.Kernel:
    plan = plan_for(kernel, H200, pins if pins is not None else Pins())
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return kernel
