"""The tile dialect: what a kernel means, one statement after the other.

Values are scalars, pointers, descriptors and tensors without layout, thread or memory. Control flow
is xDSL's `scf` (for, if, while). Scalar and tensor arithmetic is one operation, `Elementwise`: its
function is a row of the table in `tawa.ir.functions`; all its operands have the same shape.
After layouts are chosen the same operations appear in hopper IR on tensors with an encoding.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute
from xdsl.irdl import (
    AttrSizedOperandSegments,
    attr_def,
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

from tawa.ir.operation import (
    EFFECT,
    PLAIN,
    Computation,
    Source,
    TawaOperation,
    Unary,
    dialect,
    operand_of,
)
from tawa.ir.types import DescType, PtrType, Real, WindowAttr


class Kernel(TawaOperation):
    """A kernel, at every level of the pipeline.

    Meaning: the body runs once for each program of the grid; its block arguments are the kernel's
    run-time arguments in order. `arguments` holds one dictionary for each: `name`, and the facts of
    the specialization key (`divisible` = 16, or 8, when the integer or address is a multiple).
    `options` carries Triton's hints (num_warps, num_stages ...); `launch`, from lowering on, what
    the launcher needs: threads, shared bytes, cluster, persistent, early.
    """

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


class Constant(Source):
    """A scalar constant, or a tensor filled with one. `value` is an IntAttr or Real."""

    value = attr_def(Attribute)


class ProgramId(Source):
    """The index of this program along `axis` of the grid (i32)."""

    axis = attr_def(IntAttr)


class NumPrograms(Source):
    """The number of programs along `axis` of the grid (i32)."""

    axis = attr_def(IntAttr)


class Arange(Source):
    """The tensor [start, start + 1, ..., start + n - 1] of i32, n from the result type."""

    start = attr_def(IntAttr)


class Splat(Unary):
    """A tensor filled with one scalar."""


class ExpandDims(Unary):
    """Insert a dimension of extent 1 at `axis`."""

    axis = attr_def(IntAttr)


class Broadcast(Unary):
    """Repeat along the dimensions of extent 1; the rank does not change."""


class Reshape(Unary):
    """The same elements in row-major order under another shape."""


class Transpose(Unary):
    """Permute dimensions: dimension i of the result is dimension `permutation[i]` of the value."""

    permutation = attr_def(ArrayAttr[IntAttr])


class Split(Computation):
    """Two tensors from the last dimension of extent 2 (tl.split)."""

    value = operand_def()
    first = result_def()
    second = result_def()


class Join(Computation):
    """Stack two tensors along a new last dimension of extent 2 (tl.join)."""

    first = operand_def()
    second = operand_def()
    result = result_def()


class Elementwise(Computation):
    """Apply a function of `tawa.ir.functions` to each element.

    `function` names the row: "add", "fma", "exp2", "less", "select" ... Signedness and width come
    from the element types; operands and result have one shape (scalars: none). `skip_ones` of a
    "mul": a warp whose second factors are all one does nothing. `natural` of an integer "idiv" or
    "irem": neither operand is ever negative, and the divisor is positive and one of few values.
    `within` of an integer: the least and the greatest number it may be, computed without wrapping;
    a launch that would pass them is refused.
    """

    function = attr_def(StringAttr)
    skip_ones = opt_attr_def(UnitAttr)
    natural = opt_attr_def(UnitAttr)
    within = opt_attr_def(ArrayAttr[IntAttr])
    inputs = var_operand_def()
    result = result_def()
    assembly_format = "$function `(` $inputs `)` attr-dict `:` functional-type(operands, results)"


class _InlinePtx(TawaOperation, declared=False):
    """The fields of both operations of inline PTX."""

    text = attr_def(StringAttr)
    constraints = attr_def(StringAttr)
    pack = attr_def(IntAttr)
    inputs = var_operand_def()
    res = var_result_def()
    assembly_format = (
        "$text $constraints `(` $inputs `)` attr-dict `:` functional-type(operands, results)"
    )


class Asm(_InlinePtx):
    """Apply inline PTX to `pack` elements at a time of tensors of one shape, or to scalars.

    `text` is PTX in which ``$0``, ``$1`` ... are the registers that `constraints` lists, results
    first: "=r", "=h", "=l", "=f", "=d", then the same without "=", or the number of the result
    whose register an input begins in. Elements of less than 32 bits lie side by side in a register,
    as many of the `pack` as fit. "~memory" at the end: memory is read or written.
    """

    traits = traits_def(Pure())


class AsmEffect(_InlinePtx):
    """Inline PTX as `tile.asm`, that must run as often as it stands there, in its order."""


class Cast(Unary):
    """Convert each element to another type (nearest even; integers wrap, fp8 saturates).

    A float becomes an integer towards zero, saturated, NaN 0; of 8 and 16 bits the low ones of
    that to i32. Of NaN and a type of 64 bits: the integer's highest bit alone (PTX ISA, "cvt").
    """


class Bitcast(Unary):
    """Read the bits of each element as another type of the same width."""


class PtrAdd(Computation):
    """Move a pointer, or each pointer of a tensor, by a number of elements."""

    pointer = operand_def()
    offset = operand_def()
    result = result_def()


class Load(TawaOperation):
    """Load from a pointer or a tensor of pointers; where `mask` is false, `other` (or anything)."""

    pointer = operand_def()
    mask = opt_operand_def()
    other = opt_operand_def()
    cache = opt_attr_def(StringAttr)
    eviction = opt_attr_def(StringAttr)
    volatile = opt_attr_def(BoolAttr)
    result = result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(MemoryReadEffect())


class Store(TawaOperation):
    """Store to a pointer or a tensor of pointers where `mask` is true."""

    pointer = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    cache = opt_attr_def(StringAttr)
    eviction = opt_attr_def(StringAttr)
    assembly_format = "$pointer `,` $value (`,` $mask^)? attr-dict `:` type(operands)"


class Atomic(TawaOperation):
    """Read, modify and write memory as one step; gives the old value.

    `function` is add, max, min, and, or, xor, exchange; `order` relaxed, acquire, release, acq_rel;
    `scope` gpu, cta or sys.
    """

    function = attr_def(StringAttr)
    pointer = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    order = attr_def(StringAttr)
    scope = attr_def(StringAttr)
    result = result_def()


class CompareExchange(TawaOperation):
    """Write `value` where memory equals `expected`, as one step; gives the old value."""

    pointer = operand_def()
    expected = operand_def()
    value = operand_def()
    order = attr_def(StringAttr)
    scope = attr_def(StringAttr)
    result = result_def()
    assembly_format = PLAIN


class MakeDesc(TawaOperation):
    """Describe a tensor in global memory: base pointer, extents and strides (elements, i64)."""

    base = operand_of(PtrType)
    extents = var_operand_def()
    strides = var_operand_def()
    padding = attr_def(StringAttr)  # "zero" or "nan"
    result = result_def(DescType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())


class DescExtent(Computation):
    """The extent (`what` = "extent") or stride ("stride") of a descriptor's dimension `axis`.

    `what` = "base" is the address of its first element, a pointer (`axis` is 0); "count" how many
    windows an image has along its spatial axis `axis`.
    """

    desc = operand_of(DescType)
    what = attr_def(StringAttr)
    axis = attr_def(IntAttr)
    result = result_def()


class DescLoad(TawaOperation):
    """Load the block at `offsets`; elements outside the tensor read as the padding.

    The result has the descriptor's block shape. Of windows, `offsets` are the first window and
    channel, then, by spatial axis, the tap, and then the windows of an image.
    """

    desc = operand_of(DescType)
    offsets = var_operand_def()
    eviction = opt_attr_def(StringAttr)
    result = result_def()
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$desc `[` $offsets `]` attr-dict `:` functional-type(operands, results)"


class DescStore(TawaOperation):
    """Store a block at `offsets`; elements outside the tensor are dropped."""

    desc = operand_of(DescType)
    offsets = var_operand_def()
    value = operand_def()
    assembly_format = "$desc `[` $offsets `]` `,` $value attr-dict `:` type(operands)"


class DescAtomic(TawaOperation):
    """Combine a block into memory at `offsets` (add, max, min, and, or, xor); nothing returned."""

    function = attr_def(StringAttr)
    desc = operand_of(DescType)
    offsets = var_operand_def()
    value = operand_def()
    assembly_format = "$function $desc `[` $offsets `]` `,` $value attr-dict `:` type(operands)"


class Dot(Computation):
    """The matrix product a @ b + acc, of shapes [.., M, K] and [.., K, N], accumulated in `acc`.

    `precision` is the meaning of fp32 operands: `tawa.ir.precision`.
    `max_imprecise` is Triton's max_num_imprecise_acc for fp8 (0: full fp32 accumulation).
    """

    a = operand_def()
    b = operand_def()
    acc = operand_def()
    precision = attr_def(StringAttr)
    max_imprecise = attr_def(IntAttr)
    result = result_def()


class Reduce(TawaOperation):
    """Combine along `axis`, which disappears. The body takes two elements (of each operand: a
    tuple reduction has several) and yields their combination with `tile.yield`.
    """

    inputs = var_operand_def()
    axis = attr_def(IntAttr)
    body = region_def("single_block")
    res = var_result_def()
    traits = traits_def(Pure())


class Scan(TawaOperation):
    """Inclusive prefix combination along `axis`; the body as in `Reduce`."""

    inputs = var_operand_def()
    axis = attr_def(IntAttr)
    reverse = opt_attr_def(BoolAttr)
    body = region_def("single_block")
    res = var_result_def()
    traits = traits_def(Pure())


class Gather(Computation):
    """Elements of `value` chosen along `axis` by `index`, whose shape the result has.

    In the other dimensions a result's element comes from its own place. An index outside the
    extent, a power of two, is taken modulo the extent.
    """

    value = operand_def()
    index = operand_def()
    axis = attr_def(IntAttr)
    result = result_def()


class Histogram(Computation):
    """How often each of 0, 1 .. n - 1 stands in a row of integers; n is the result's last extent.

    The last dimension is counted along. Elements outside count nowhere, nor do those whose `mask`
    is false.
    """

    value = operand_def()
    mask = opt_operand_def()
    result = result_def()
    assembly_format = "$value (`,` $mask^)? attr-dict `:` functional-type(operands, results)"


class Yield(TawaOperation):
    """End the body of a reduce or scan with the combined elements."""

    values = var_operand_def()
    traits = traits_def(IsTerminator())
    assembly_format = "($values^ `:` type($values))? attr-dict"


class Assume(TawaOperation):
    """A fact the author promises (i1), for the analyses."""

    condition = operand_def()
    assembly_format = EFFECT


class Print(TawaOperation):
    """Print a prefix and values on the device (tl.device_print).

    With `hex` numbers are printed as their bits, in hexadecimal digits.
    """

    prefix = attr_def(StringAttr)
    hex = opt_attr_def(UnitAttr)
    values = var_operand_def()
    assembly_format = "$prefix `(` $values `)` attr-dict `:` type(operands)"


class Breakpoint(TawaOperation):
    """Stop the oracle in Python's debugger (`breakpoint()` in a kernel).

    `names` are the variables of `function`, one for each value; a tuple's stands for each item.
    """

    function = attr_def(StringAttr)
    names = attr_def(ArrayAttr[StringAttr])
    values = var_operand_def()
    assembly_format = "$function $names `(` $values `)` attr-dict `:` type(operands)"


class Assert(TawaOperation):
    """Stop the kernel with a message where the condition is false (tl.device_assert)."""

    message = attr_def(StringAttr)
    condition = operand_def()
    assembly_format = EFFECT


Tile = dialect("tile", vars(), [PtrType, DescType, Real, WindowAttr])
