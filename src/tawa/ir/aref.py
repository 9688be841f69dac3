"""The aref dialect: roles, and the asynchronous references that are the only link between them.

A kernel in aref IR is scalar set-up, then `Create`s, then one `Role` for each role; inside it the
tile dialect goes on meaning what it means. Operational rules: Tawa (arXiv:2510.14719) section 3.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.irdl import (
    attr_def,
    operand_def,
    opt_attr_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import NoTerminator

from tawa.ir.operation import EFFECT, PLAIN, TawaOperation, dialect, operand_of
from tawa.ir.types import ArefType, SlotType, i32


class Create(TawaOperation):
    """Make a ring of `depth` slots, all free. `name` is the payload's variables and line (a+b@12).

    Becomes: one buffer for each tile of the payload and two arrays of mbarriers, filled and freed.
    """

    label = attr_def(StringAttr)
    depth = attr_def(IntAttr)
    result = result_def(ArefType)
    assembly_format = "$label attr-dict `:` type($result)"


class Role(TawaOperation):
    """The program of one role. All roles start together; the kernel ends when all have ended.

    `label` is what it does (load, mma, ...); `instances` R copies take different programs or tiles
    (1 when absent), each with its own index in block argument 0 (i32).
    """

    label = attr_def(StringAttr)
    warps = attr_def(IntAttr)
    registers = opt_attr_def(IntAttr)
    instances = opt_attr_def(IntAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())


class PutEnter(TawaOperation):
    """Wait until the next slot is free and give it to the producer."""

    aref = operand_of(ArefType)
    slot = result_def(SlotType)
    assembly_format = PLAIN


class PutExit(TawaOperation):
    """Publish a slot holding `values`, effective when the work that makes them is complete."""

    slot = operand_of(SlotType)
    values = var_operand_def()
    assembly_format = "$slot `(` $values `)` attr-dict `:` type(operands)"


class GetEnter(TawaOperation):
    """Wait until the next slot is filled and lend its values."""

    aref = operand_of(ArefType)
    values = var_result_def()
    assembly_format = PLAIN


class GetExit(TawaOperation):
    """Free the oldest borrowed slot, effective when all work that reads it is complete."""

    aref = operand_of(ArefType)
    assembly_format = EFFECT


class GetSkip(TawaOperation):
    """Pass over the next `count` (i32) fillings, of those that there are: another instance of the
    role takes and frees them.

    A ring that is skipped in has one instance for each filling; only that one frees it.
    """

    aref = operand_of(ArefType)
    count = operand_def(i32)
    assembly_format = "$aref `,` $count attr-dict `:` type(operands)"


class Turn(TawaOperation):
    """Instances of a role take turns, in the order of their index. `kind` "take" waits until the
    instance before has passed the turn, "pass" gives it to the next one. `instance` says whose turn
    it is, once instances are roles.
    """

    kind = attr_def(StringAttr)
    instance = opt_attr_def(IntAttr)
    assembly_format = "$kind attr-dict"


Aref = dialect("aref", vars(), [ArefType, SlotType])
