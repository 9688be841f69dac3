"""What TMA can move: whose descriptors the host can encode, and which blocks."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, BlockArgument, SSAValue

from tawa.ir import tile
from tawa.ir.types import DescType, bit_width
from tawa.target import H200, Target


def is_host_made(desc: SSAValue) -> bool:
    """Tell whether a descriptor depends on the kernel's arguments only: the host can encode it."""
    match desc.owner:
        case Block():
            return isinstance(desc.owner.parent_op(), tile.Kernel)
        case tile.MakeDesc():
            return all(map(_is_host_known, desc.owner.operands))
        case _:
            return False


def _is_host_known(value: SSAValue) -> bool:
    match value:
        case BlockArgument():
            return isinstance(value.owner.parent_op(), tile.Kernel)
        case _ if isinstance(
            value.owner, (tile.Constant, tile.Elementwise, tile.Cast, tile.PtrAdd, tile.DescExtent)
        ):
            return all(map(_is_host_known, value.owner.operands))
        case _:
            return False


def block_objection(kind: Attribute, target: Target = H200) -> str:
    """Return why TMA does not move blocks of a descriptor type, or nothing."""
    assert isinstance(kind, DescType), "blocks are those of descriptors"
    row = kind.block_shape[-1] * max(8, bit_width(kind.element)) // 8
    if row % target.tma_alignment:
        return f"rows of the block are {row} bytes, not a multiple of {target.tma_alignment}"
    if len(kind.block_shape) > target.tma_rank:
        return f"{len(kind.block_shape)} dimensions, TMA has {target.tma_rank}"
    return ""


def padding_of(desc: SSAValue) -> str:
    """Return what is read outside of a descriptor's tensor, "zero" or "nan"."""
    match desc.owner:
        case tile.MakeDesc() as made:
            return made.padding.data
        case Block() as block if isinstance(kernel := block.parent_op(), tile.Kernel):
            found = kernel.arguments.data[block.args.index(desc)].data.get("padding")
            return found.data if isinstance(found, StringAttr) else "zero"
        case _:
            return "zero"
