"""The tile dialect: what a kernel means, one statement after the other.

Values are scalars, pointers, descriptors and tensors without layout, thread or memory. Control flow
is xDSL's `scf` (for, if, while). Scalar and tensor arithmetic is one operation, `Elementwise`: its
function is a row of the table in `tawa.ir.functions`; all its operands have the same shape.
After layouts are chosen the same operations appear in hopper IR on tensors with an encoding.

Length: one operation after the other; a dialect is read from one page.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import (
    AttrSizedOperandSegments,
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, MemoryReadEffect, NoTerminator, Pure

from tawa.ir.operation import TawaOperation
from tawa.ir.types import DescType, PtrType, Real

_PLAIN = "operands attr-dict `:` functional-type(operands, results)"
_EFFECT = "operands attr-dict `:` type(operands)"


@irdl_op_definition
class Kernel(TawaOperation):
    """A kernel, at every level of the pipeline.

    Meaning: the body runs once for each program of the grid; its block arguments are the kernel's
    run-time arguments in order. `arguments` holds one dictionary for each: `name`, and the facts of
    the specialization key (`divisible` = 16, or 8, when the integer or address is a multiple).
    `options` carries Triton's wishes (num_warps, num_stages ...); `launch`, from lowering on, what
    the launcher needs: threads, shared bytes, cluster, persistent, early.
    """

    name = "tile.kernel"
    sym_name = attr_def(StringAttr)
    arguments = attr_def(ArrayAttr[DictionaryAttr])
    options = attr_def(DictionaryAttr)
    launch = opt_attr_def(DictionaryAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())

    @property
    def argument_names(self) -> list[str]:
        """Names of the run-time arguments."""
        return [str(facts.data["name"].data) for facts in self.arguments]  # pyright: ignore


@irdl_op_definition
class Constant(TawaOperation):
    """A scalar constant, or a tensor filled with one. `value` is an IntAttr or Real."""

    name = "tile.constant"
    value = attr_def(Attribute)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class ProgramId(TawaOperation):
    """The index of this program along `axis` of the grid (i32)."""

    name = "tile.program_id"
    axis = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class NumPrograms(TawaOperation):
    """The number of programs along `axis` of the grid (i32)."""

    name = "tile.num_programs"
    axis = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class Arange(TawaOperation):
    """The tensor [start, start + 1, ..., start + n - 1] of i32, n from the result type."""

    name = "tile.arange"
    start = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


@irdl_op_definition
class Splat(TawaOperation):
    """A tensor filled with one scalar."""

    name = "tile.splat"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class ExpandDims(TawaOperation):
    """Insert a dimension of extent 1 at `axis`."""

    name = "tile.expand_dims"
    value = operand_def()
    axis = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Broadcast(TawaOperation):
    """Repeat along the dimensions of extent 1; the rank does not change."""

    name = "tile.broadcast"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Reshape(TawaOperation):
    """The same elements in row-major order under another shape."""

    name = "tile.reshape"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Transpose(TawaOperation):
    """Permute dimensions: dimension i of the result is dimension `permutation[i]` of the value."""

    name = "tile.transpose"
    value = operand_def()
    permutation = attr_def(ArrayAttr[IntAttr])
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Split(TawaOperation):
    """Two tensors from the last dimension of extent 2 (tl.split)."""

    name = "tile.split"
    value = operand_def()
    first = result_def()
    second = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Join(TawaOperation):
    """Stack two tensors along a new last dimension of extent 2 (tl.join)."""

    name = "tile.join"
    first = operand_def()
    second = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Elementwise(TawaOperation):
    """Apply a function of `tawa.ir.functions` to each element.

    `function` names the row: "add", "fma", "exp2", "less", "select" ... Signedness and width come
    from the element types; operands and result have one shape (scalars: none). `skip_ones` of a
    "mul": a warp whose second factors are all one does nothing. `natural` of an integer "idiv" or
    "irem": neither operand is ever negative, and the divisor is positive and one of few values.
    """

    name = "tile.elementwise"
    function = attr_def(StringAttr)
    skip_ones = opt_attr_def(UnitAttr)
    natural = opt_attr_def(UnitAttr)
    inputs = var_operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$function `(` $inputs `)` attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class Cast(TawaOperation):
    """Convert each element to another type (nearest even; integers wrap, fp8 saturates)."""

    name = "tile.cast"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Bitcast(TawaOperation):
    """Read the bits of each element as another type of the same width."""

    name = "tile.bitcast"
    value = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class PtrAdd(TawaOperation):
    """Move a pointer, or each pointer of a tensor, by a number of elements."""

    name = "tile.ptr_add"
    pointer = operand_def()
    offset = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Load(TawaOperation):
    """Load from a pointer or a tensor of pointers; where `mask` is false, `other` (or anything)."""

    name = "tile.load"
    pointer = operand_def()
    mask = opt_operand_def()
    other = opt_operand_def()
    cache = opt_attr_def(StringAttr)
    eviction = opt_attr_def(StringAttr)
    volatile = opt_attr_def(BoolAttr)
    result = result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(MemoryReadEffect())


@irdl_op_definition
class Store(TawaOperation):
    """Store to a pointer or a tensor of pointers where `mask` is true."""

    name = "tile.store"
    pointer = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    cache = opt_attr_def(StringAttr)
    eviction = opt_attr_def(StringAttr)
    assembly_format = "$pointer `,` $value (`,` $mask^)? attr-dict `:` type(operands)"


@irdl_op_definition
class Atomic(TawaOperation):
    """Read, modify and write memory as one step; gives the old value.

    `function` is add, max, min, and, or, xor, exchange; `order` relaxed, acquire, release, acq_rel;
    `scope` gpu, cta or sys.
    """

    name = "tile.atomic"
    function = attr_def(StringAttr)
    pointer = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    order = attr_def(StringAttr)
    scope = attr_def(StringAttr)
    result = result_def()


@irdl_op_definition
class CompareExchange(TawaOperation):
    """Write `value` where memory equals `expected`, as one step; gives the old value."""

    name = "tile.compare_exchange"
    pointer = operand_def()
    expected = operand_def()
    value = operand_def()
    order = attr_def(StringAttr)
    scope = attr_def(StringAttr)
    result = result_def()
    assembly_format = _PLAIN


@irdl_op_definition
class MakeDesc(TawaOperation):
    """Describe a tensor in global memory: base pointer, extents and strides (elements, i64)."""

    name = "tile.make_desc"
    base = operand_def(PtrType)
    extents = var_operand_def()
    strides = var_operand_def()
    padding = attr_def(StringAttr)  # "zero" or "nan"
    result = result_def(DescType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())


@irdl_op_definition
class DescExtent(TawaOperation):
    """The extent (`what` = "extent") or stride ("stride") of a descriptor's dimension `axis`.

    `what` = "base" is the address of its first element, a pointer (`axis` is 0).
    """

    name = "tile.desc_extent"
    desc = operand_def(DescType)
    what = attr_def(StringAttr)
    axis = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class DescLoad(TawaOperation):
    """Load the block at `offsets`; elements outside the tensor read as the padding.

    The result has the descriptor's block shape.
    """

    name = "tile.desc_load"
    desc = operand_def(DescType)
    offsets = var_operand_def()
    eviction = opt_attr_def(StringAttr)
    result = result_def()
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$desc `[` $offsets `]` attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class DescStore(TawaOperation):
    """Store a block at `offsets`; elements outside the tensor are dropped."""

    name = "tile.desc_store"
    desc = operand_def(DescType)
    offsets = var_operand_def()
    value = operand_def()
    assembly_format = "$desc `[` $offsets `]` `,` $value attr-dict `:` type(operands)"


@irdl_op_definition
class DescAtomic(TawaOperation):
    """Combine a block into memory at `offsets` (add, max, min, and, or, xor); nothing returned."""

    name = "tile.desc_atomic"
    function = attr_def(StringAttr)
    desc = operand_def(DescType)
    offsets = var_operand_def()
    value = operand_def()
    assembly_format = "$function $desc `[` $offsets `]` `,` $value attr-dict `:` type(operands)"


@irdl_op_definition
class Dot(TawaOperation):
    """The matrix product a @ b + acc, of shapes [.., M, K] and [.., K, N], accumulated in `acc`.

    `precision` is the meaning of fp32 operands: `tawa.ir.precision`.
    `max_imprecise` is Triton's max_num_imprecise_acc for fp8 (0: full fp32 accumulation).
    """

    name = "tile.dot"
    a = operand_def()
    b = operand_def()
    acc = operand_def()
    precision = attr_def(StringAttr)
    max_imprecise = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Reduce(TawaOperation):
    """Combine along `axis`, which disappears. The body takes two elements (of each operand: a
    tuple reduction has several) and yields their combination with `tile.yield`.
    """

    name = "tile.reduce"
    inputs = var_operand_def()
    axis = attr_def(IntAttr)
    body = region_def("single_block")
    res = var_result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Scan(TawaOperation):
    """Inclusive prefix combination along `axis`; the body as in `Reduce`."""

    name = "tile.scan"
    inputs = var_operand_def()
    axis = attr_def(IntAttr)
    reverse = opt_attr_def(BoolAttr)
    body = region_def("single_block")
    res = var_result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Gather(TawaOperation):
    """Elements of `value` chosen along `axis` by `index`, whose shape the result has.

    In the other dimensions a result's element comes from its own place. An index outside the
    extent, a power of two, is taken modulo the extent.
    """

    name = "tile.gather"
    value = operand_def()
    index = operand_def()
    axis = attr_def(IntAttr)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = _PLAIN


@irdl_op_definition
class Histogram(TawaOperation):
    """How often each of 0, 1 .. n - 1 stands in a row of integers; n is the result's last extent.

    The last dimension is counted along. Elements outside count nowhere, nor do those whose `mask`
    is false.
    """

    name = "tile.histogram"
    value = operand_def()
    mask = opt_operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$value (`,` $mask^)? attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class Yield(TawaOperation):
    """End the body of a reduce or scan with the combined elements."""

    name = "tile.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator())
    assembly_format = "($values^ `:` type($values))? attr-dict"


@irdl_op_definition
class Assume(TawaOperation):
    """A fact the author promises (i1), for the analyses."""

    name = "tile.assume"
    condition = operand_def()
    assembly_format = _EFFECT


@irdl_op_definition
class Print(TawaOperation):
    """Print a prefix and values on the device (tl.device_print)."""

    name = "tile.print"
    prefix = attr_def(StringAttr)
    values = var_operand_def()
    assembly_format = "$prefix `(` $values `)` attr-dict `:` type(operands)"


@irdl_op_definition
class Assert(TawaOperation):
    """Stop the kernel with a message where the condition is false (tl.device_assert)."""

    name = "tile.assert"
    message = attr_def(StringAttr)
    condition = operand_def()
    assembly_format = _EFFECT


Tile = Dialect(
    "tile",
    [
        Kernel,
        Constant,
        ProgramId,
        NumPrograms,
        Arange,
        Splat,
        ExpandDims,
        Broadcast,
        Reshape,
        Transpose,
        Split,
        Join,
        Elementwise,
        Cast,
        Bitcast,
        PtrAdd,
        Load,
        Store,
        Atomic,
        CompareExchange,
        MakeDesc,
        DescExtent,
        DescLoad,
        DescStore,
        DescAtomic,
        Dot,
        Reduce,
        Scan,
        Gather,
        Histogram,
        Yield,
        Assume,
        Print,
        Assert,
    ],
    [PtrType, DescType, Real],
)
