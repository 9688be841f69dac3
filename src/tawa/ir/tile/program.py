"""The kernel, its place in the grid, and what its author promises, prints and checks."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntAttr, StringAttr, UnitAttr
from xdsl.irdl import (
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure

from tawa.ir.formats import EFFECT
from tawa.ir.operation import TawaOperation


@irdl_op_definition
class Kernel(TawaOperation):
    """A kernel, at every level of the pipeline.

    Meaning: the body runs once for each program of the grid; its block arguments are the kernel's
    run-time arguments in order. `arguments` holds one dictionary for each: `name`, and the facts of
    the specialization key (`divisible` = 16, or 8, when the integer or address is a multiple).
    `options` carries Triton's hints (num_warps, num_stages ...); `launch`, from lowering on, what
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
class Assume(TawaOperation):
    """A fact the author promises (i1), for the analyses."""

    name = "tile.assume"
    condition = operand_def()
    assembly_format = EFFECT


@irdl_op_definition
class Print(TawaOperation):
    """Print a prefix and values on the device (tl.device_print).

    With `hex` numbers are printed as their bits, in hexadecimal digits.
    """

    name = "tile.print"
    prefix = attr_def(StringAttr)
    hex = opt_attr_def(UnitAttr)
    values = var_operand_def()
    assembly_format = "$prefix `(` $values `)` attr-dict `:` type(operands)"


@irdl_op_definition
class Breakpoint(TawaOperation):
    """Stop the oracle in Python's debugger (`breakpoint()` in a kernel).

    `names` are the variables of `function`, one for each value; a tuple's stands for each item.
    """

    name = "tile.breakpoint"
    function = attr_def(StringAttr)
    names = attr_def(ArrayAttr[StringAttr])
    values = var_operand_def()
    assembly_format = "$function $names `(` $values `)` attr-dict `:` type(operands)"


@irdl_op_definition
class Assert(TawaOperation):
    """Stop the kernel with a message where the condition is false (tl.device_assert)."""

    name = "tile.assert"
    message = attr_def(StringAttr)
    condition = operand_def()
    assembly_format = EFFECT
