"""The door: tile IR made by calls, without Python source.

`KernelBuilder` builds a kernel from the operations of the language; `tawa.compile_ir` compiles it.
`docs/design/door.md` says what is promised. The frontend builds by the same functions.
"""

from __future__ import annotations

from tawa.ir.build.control import Branch, Loop
from tawa.ir.build.handles import Desc, Operand, Value
from tawa.ir.build.kernel import KernelBuilder
from tawa.ir.functions import FUNCTIONS

__all__ = ["FUNCTIONS", "Branch", "Desc", "KernelBuilder", "Loop", "Operand", "Value"]
