"""How loops nest: the sites of choices, by what stands inside of them."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, Operation

from tawa.simulator.proof.configuration import Site
from tawa.simulator.proof.decode import Decoder


def has_steps(block: Block, decoder: Decoder) -> bool:
    """Tell whether a block holds an operation with an effect the proof follows."""
    inside = decoder.census.inside(block)
    return any(type(inner) in decoder.rules and not _is_control(inner) for inner in inside)


def _is_control(operation: Operation) -> bool:
    return isinstance(operation, (scf.ForOp, scf.IfOp, scf.WhileOp))


def _loops_inside(block: Block, decoder: Decoder) -> list[scf.ForOp | scf.WhileOp]:
    return [
        inner
        for inner in decoder.census.of(scf.ForOp, scf.WhileOp, within=block)
        if any(has_steps(region.block, decoder) for region in inner.regions if region.blocks)
    ]


def site_of(operation: Operation, block: Block, decoder: Decoder) -> Site:
    """Return the site of a loop: how deep it nests."""
    site = nesting_of(operation, block, decoder)
    if isinstance(operation, scf.WhileOp):
        return Site(operation, "while around" if site.kind == "around" else "while")
    return site


def nesting_of(operation: Operation, block: Block, decoder: Decoder) -> Site:
    """Return the site of a loop whose trips follow from its bounds."""
    loops = _loops_inside(block, decoder)
    if not has_steps(block, decoder):
        return Site(operation, "pure")
    if not loops:
        return Site(operation, "inner")
    nested = any(_loops_inside(loop.regions[-1].block, decoder) for loop in loops)
    return Site(operation, "around" if nested else "outer")


def is_pure(loop: Operation, decoder: Decoder) -> bool:
    """Tell whether nothing in a loop has an effect the proof follows."""
    return not any(has_steps(region.block, decoder) for region in loop.regions if region.blocks)


def is_around(loop: Operation, decoder: Decoder) -> bool:
    """Tell whether a loop has loops inside that turn rings."""
    return bool(_loops_inside(loop.regions[-1].block, decoder))
