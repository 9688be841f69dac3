"""What the operations of our dialects are derived from, and dialects made of them."""

from __future__ import annotations

import re
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast

from xdsl.dialects.builtin import BoolAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Dialect, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.irdl.operations import (
    BeforeVariadicSingleAccessor,
    UniqueVariadicAccessor,
    VarIRConstruct,
)
from xdsl.traits import Pure

A = TypeVar("A", bound=Attribute)

PLAIN = "operands attr-dict `:` functional-type(operands, results)"
"""The text of most operations with results."""

EFFECT = "operands attr-dict `:` type(operands)"
"""The text of most without."""

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
    """An operation of one of our dialects; no class registers as one.

    A class is an operation as soon as it is declared, named after itself and its module: `TmaLoad`
    of `hopper` is `hopper.tma_load`. One with `declared=False` holds what several have in common.
    """

    def __init_subclass__(cls, *, declared: bool = True) -> None:
        super().__init_subclass__()
        if declared:
            word = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
            cls.name = f"{cls.__module__.rpartition('.')[2]}.{word}"
            irdl_op_definition(cls)

    @classmethod
    def make(
        cls,
        *operands: SSAValue | Sequence[SSAValue] | None,
        results: Sequence[Attribute | Sequence[Attribute]] = (),
        regions: Sequence[Region] = (),
        attributes: Mapping[str, Attribute | int | str | None] = MappingProxyType({}),
        **told: Attribute | int | str | None,
    ) -> Self:
        """Return an operation: an operand, and the type of a result, for each that is declared.

        `told` are attributes, as `attributes` are: numbers, texts and truth values as they are;
        None leaves one out.
        """
        named = {name: _attribute(value) for name, value in {**told, **attributes}.items()}
        return cls.build(operands=operands, result_types=results, attributes=named, regions=regions)


def _attribute(value: Attribute | int | str | None) -> Attribute | None:
    match value:
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return IntAttr(value)
        case str():
            return StringAttr(value)
        case _:
            return value


def operand_of(kind: type[A]) -> SSAValue[A]:
    """Declare an operand of a type, as which its users see it."""
    return cast("SSAValue[A]", operand_def(kind))


class Computation(TawaOperation, declared=False):
    """Makes its results of its operands, and does nothing else."""

    traits = traits_def(Pure())
    assembly_format = PLAIN


class Unary(Computation, declared=False):
    """Makes one value of another."""

    value = operand_def()
    result = result_def()


class Source(TawaOperation, declared=False):
    """Makes a value of nothing."""

    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"


class Statement(TawaOperation, declared=False):
    """Takes and makes no values."""

    assembly_format = "attr-dict"


def dialect(name: str, members: Mapping[str, object], types: Sequence[type[Attribute]]) -> Dialect:
    """Return the dialect of `types` and of all operations among the `members` of a module, in the
    order in which they are declared there.
    """
    kinds = [kind for kind in members.values() if isinstance(kind, _Kind) and "name" in vars(kind)]
    return Dialect(name, cast("list[type[Operation]]", kinds), list(types))
