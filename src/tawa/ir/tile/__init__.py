"""The tile dialect: what a kernel means, one statement after the other.

Values are scalars, pointers, descriptors and tensors without layout, thread or memory. Control flow
is xDSL's `scf` (for, if, while). Scalar and tensor arithmetic is one operation, `Elementwise`: its
function is a row of the table in `tawa.ir.functions`; all its operands have the same shape.
After layouts are chosen the same operations appear in hopper IR on tensors with an encoding.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from tawa.ir.tile.combine import Dot, Gather, Histogram, Reduce, Scan, Yield
from tawa.ir.tile.descriptors import DescAtomic, DescExtent, DescLoad, DescStore, MakeDesc
from tawa.ir.tile.elements import Arange, Asm, AsmEffect, Bitcast, Cast, Constant, Elementwise
from tawa.ir.tile.memory import Atomic, CompareExchange, Load, PtrAdd, Store
from tawa.ir.tile.program import Assert, Assume, Breakpoint, Kernel, NumPrograms, Print, ProgramId
from tawa.ir.tile.shapes import Broadcast, ExpandDims, Join, Reshape, Splat, Split, Transpose
from tawa.ir.types import DescType, PtrType, Real, WindowAttr

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
        Asm,
        AsmEffect,
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
        Breakpoint,
        Assert,
    ],
    [PtrType, DescType, Real, WindowAttr],
)
