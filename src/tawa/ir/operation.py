"""What every operation of our dialects is derived from."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.irdl.operations import (
    AfterVariadicSingleAccessor,
    BeforeVariadicSingleAccessor,
    UniqueVariadicAccessor,
    VarIRConstruct,
)


class _Kind(ABCMeta):
    """Types whose instances are known by their type: asking an abstract class takes twice as long,
    and passes ask hundreds of thousands of times.

    Operands and results are read by name at once: the accessors that xDSL's decorator sets make a
    view of all operands first, which takes four times as long.
    """

    __instancecheck__ = type.__instancecheck__

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, _reader(value) or value)


def _reader(accessor: object) -> property | None:
    """Return what reads what one of xDSL's accessors does, None where that takes a look at more
    than the operands or the results.
    """
    item: Any = tuple[SSAValue, ...].__getitem__
    match accessor:
        case BeforeVariadicSingleAccessor(idx=place):
            pass
        case AfterVariadicSingleAccessor(idx=place, num_defs=count):
            place -= count
        case UniqueVariadicAccessor(idx=0, num_defs=1, construct=VarIRConstruct.OPERAND):
            return property(lambda op: op._operands)
        case _:
            return None
    match accessor.construct:
        case VarIRConstruct.OPERAND:
            return property(lambda op: item(op._operands, place))
        case VarIRConstruct.RESULT:
            return property(lambda op: item(op.results, place))
        case _:
            return None


class TawaOperation(IRDLOperation, metaclass=_Kind):
    """An operation of one of our dialects; no class registers as one."""
