"""The same elements under another shape."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from tawa.ir.formats import PLAIN
from tawa.ir.operation import TawaOperation


@irdl_op_definition
class Splat(TawaOperation):
    """A tensor filled with one scalar."""

    name = "tile.splat"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class ExpandDims(TawaOperation):
    """Insert a dimension of extent 1 at `axis`."""

    name = "tile.expand_dims"
    value = operand_def()
    axis = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Broadcast(TawaOperation):
    """Repeat along the dimensions of extent 1; the rank does not change."""

    name = "tile.broadcast"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Reshape(TawaOperation):
    """The same elements in row-major order under another shape."""

    name = "tile.reshape"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Transpose(TawaOperation):
    """Permute dimensions: dimension i of the result is dimension `permutation[i]` of the value."""

    name = "tile.transpose"
    value = operand_def()
    permutation = attr_def(ArrayAttr[IntAttr])
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Split(TawaOperation):
    """Two tensors from the last dimension of extent 2 (tl.split)."""

    name = "tile.split"
    value = operand_def()
    first = result_def()
    second = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN


@irdl_op_definition
class Join(TawaOperation):
    """Stack two tensors along a new last dimension of extent 2 (tl.join)."""

    name = "tile.join"
    first = operand_def()
    second = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = PLAIN
