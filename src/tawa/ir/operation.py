"""What every operation of our dialects is derived from."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any, cast

from xdsl.irdl import IRDLOperation
from xdsl.irdl.operations import (
    BeforeVariadicSingleAccessor,
    UniqueVariadicAccessor,
    VarIRConstruct,
)

_AT = cast("Any", tuple).__getitem__  # without the tuple's own in Python, which asks for slices


class _Operand(BeforeVariadicSingleAccessor):
    def __get__(self, obj: Any, objtype: type | None = None) -> Any:
        return _AT(obj._operands, self.idx)


class _Result(BeforeVariadicSingleAccessor):
    def __get__(self, obj: Any, objtype: type | None = None) -> Any:
        return _AT(obj.results, self.idx)


class _Operands(UniqueVariadicAccessor):
    def __get__(self, obj: Any, objtype: type | None = None) -> Any:
        return obj._operands


class _Kind(ABCMeta):
    """Types whose instances are known by their type: asking an abstract class takes twice as long,
    and passes ask hundreds of thousands of times.

    Operands and results are read by name as often. The accessors that xDSL's decorator sets make a
    view of all operands first, which takes four times as long; those that need none are replaced.
    """

    __instancecheck__ = type.__instancecheck__

    def __setattr__(cls, name: str, value: object) -> None:
        match value:
            case BeforeVariadicSingleAccessor(construct=VarIRConstruct.OPERAND as kind, idx=place):
                value = _Operand(kind, place)
            case BeforeVariadicSingleAccessor(construct=VarIRConstruct.RESULT as kind, idx=place):
                value = _Result(kind, place)
            case UniqueVariadicAccessor(
                construct=VarIRConstruct.OPERAND as kind, idx=0, num_defs=1
            ):
                value = _Operands(kind, 0, 1)
            case _:
                pass
        super().__setattr__(name, value)


class TawaOperation(IRDLOperation, metaclass=_Kind):
    """An operation of one of our dialects; no class registers as one."""
