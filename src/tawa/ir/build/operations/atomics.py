"""Atomic operations on memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.operations.memory import element_of
from tawa.ir.build.values import Tensor, Value, ir_type
from tawa.language.dtypes import dtype

_ORDERS = ("acquire", "release", "acq_rel", "relaxed")
_SCOPES = ("gpu", "cta", "sys")


def _how(c: Context, order: Value, scope: Value) -> dict[str, str]:
    return {
        "order": arg.text(c, order, "sem", _ORDERS) or "acq_rel",
        "scope": arg.text(c, scope, "scope", _SCOPES) or "gpu",
    }


def _check_type(c: Context, function: str, element: dtype) -> None:
    """Refuse element types that memory has no such operation for (PTX ISA, "atom")."""
    short = element.primitive_bitwidth < 32
    half = element.is_floating() and element.primitive_bitwidth == 16
    if element.is_floating() and function in ("and", "or", "xor"):
        why = "bits are those of integers"
    elif short and not (half and function == "add"):
        why = "memory has it for 32 and 64 bits, and the addition for 16-bit floats"
    else:
        return
    raise c.builder.mismatch(
        f"atomic_{function} does not take {element.name}",
        why=why,
        remedy="use an array of tl.float32 or tl.int32",
    )


def _address(c: Context, pointer: Value) -> Tensor:
    tensor = arithmetic.to_tensor(c.builder, pointer)
    element_of(c, tensor)
    return tensor


def _atomic(
    function: str, c: Context, pointer: Value, value: Value, mask: Value, sem: Value, scope: Value
) -> Value:
    address = _address(c, pointer)
    element = element_of(c, address)
    _check_type(c, function, element)
    operand = arithmetic.converted(c.builder, value, element, address.shape)
    bound = None
    if not arg.is_none(mask):
        truth = arithmetic.to_bool(c.builder, mask)
        bound = arithmetic.broadcast_to(c.builder, truth, address.shape)
    kind = ir_type(element, address.shape)
    return c.builder.op(
        tile.Atomic, [address, operand, bound], kind, function=function, **_how(c, sem, scope)
    )


def atomic_cas(
    c: Context, pointer: Value, expected: Value, value: Value, sem: Value, scope: Value
) -> Value:
    """Emit a compare and exchange."""
    address = _address(c, pointer)
    element = element_of(c, address)
    if element.primitive_bitwidth not in (16, 32, 64):
        raise c.builder.mismatch(
            f"atomic_cas does not take {element.name}", why="memory compares 16, 32 or 64 bits"
        )
    operands = [
        arithmetic.converted(c.builder, part, element, address.shape) for part in (expected, value)
    ]
    kind = ir_type(element, address.shape)
    return c.builder.op(tile.CompareExchange, [address, *operands], kind, **_how(c, sem, scope))


OPERATIONS: dict[str, Callable[..., Value]] = {
    "atomic_cas": atomic_cas,
    **{
        f"atomic_{name}": partial(_atomic, function)
        for name, function in {
            "xchg": "exchange",
            "add": "add",
            "max": "max",
            "min": "min",
            "and": "and",
            "or": "or",
            "xor": "xor",
        }.items()
    },
}
