"""Reading the arguments of a handler: constants of a kind, tensors, lists of either."""

from __future__ import annotations

from collections.abc import Sequence

from tawa.errors import TypeMismatch
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.values import Const, Tensor, Tuple, Value, describe, known
from tawa.language.dtypes import dtype

NONE = Const(None)


def is_none(value: Value) -> bool:
    """Tell whether an argument was left out or is None."""
    return isinstance(value, Const) and value.value is None


def integer(c: Context, value: Value, what: str) -> int:
    """Return a compile-time integer; raises TypeMismatch naming `what` it is."""
    value = known(value)
    if isinstance(value, Const) and isinstance(value.value, (int, bool)):
        return int(value.value)
    if isinstance(value, Const) and isinstance(value.value, float) and value.value.is_integer():
        return int(value.value)
    raise _not_constant(c, value, what, "integer")


def _not_constant(c: Context, value: Value, what: str, kind: str) -> TypeMismatch:
    remedy = "mark it `: tl.constexpr`, as a parameter or where it is assigned"
    if isinstance(value, Const):
        remedy = f"pass an {kind}" if kind[0] in "aeiou" else f"pass a {kind}"
        remedy += " of the language: tl.float32" if kind == "element type" else ""
    return c.builder.mismatch(
        f"{what} must be a compile-time {kind}, this is {describe(value)}",
        why="shapes, axes and options are part of the compiled code",
        remedy=remedy,
    )


def sequence(value: Value) -> tuple[Value, ...]:
    """Return the items of a tuple, or the value alone."""
    return value.items if isinstance(value, Tuple) else (value,)


def integers(c: Context, value: Value, what: str) -> tuple[int, ...]:
    """Return compile-time integers, given as a tuple or one alone."""
    return tuple(integer(c, item, what) for item in sequence(value))


def spread(value: Value) -> Value:
    """Return the tuple in ``f(x, (1, 2))`` and ``f(x, 1, 2)`` alike, from the variadic part."""
    items = sequence(value)
    return items[0] if len(items) == 1 and isinstance(items[0], Tuple) else value


def shape(c: Context, value: Value) -> tuple[int, ...]:
    """Return the shape of a tensor; raises TypeMismatch or ShapeUnsupported."""
    extents = integers(c, value, "the extent of a tensor")
    arithmetic.check_shape(c.builder, extents)
    return extents


def flag(c: Context, value: Value, what: str) -> bool:
    """Return a compile-time truth value."""
    value = known(value)
    if isinstance(value, Const):
        return bool(value.value)
    raise _not_constant(c, value, what, "truth value")


def text(c: Context, value: Value, what: str, allowed: Sequence[str] = ()) -> str:
    """Return a compile-time string, "" for None; `allowed` lists the valid ones."""
    if is_none(value):
        return ""
    if not isinstance(value, Const) or not isinstance(value.value, str):
        raise _not_constant(c, value, what, "string")
    if allowed and value.value not in ("", *allowed):
        raise c.builder.mismatch(
            f"{what} cannot be {value.value!r}", why=f"it is one of {', '.join(map(repr, allowed))}"
        )
    return value.value


def element(c: Context, value: Value, what: str = "the element type") -> dtype:
    """Return a dtype; of a block's type, as block pointers point to, that of its elements."""
    if isinstance(value, Const) and isinstance(value.value, dtype):
        return value.value.scalar
    raise _not_constant(c, value, what, "element type")


def tensor(c: Context, value: Value, name: str) -> Tensor:
    """Return a tensor with a shape; raises TypeMismatch."""
    if isinstance(value, Tensor) and value.is_block:
        return value
    raise c.builder.mismatch(f"{name} takes a tensor, this is {describe(value)}")


def axis_of(c: Context, value: Value, rank: int) -> int:
    """Return an axis counted from the front; raises TypeMismatch outside the rank."""
    axis = integer(c, value, "an axis")
    if not -rank <= axis < rank:
        raise c.builder.mismatch(
            f"axis {axis} is outside a tensor of {rank} dimension{'s' * (rank != 1)}",
            why=f"axes are {-rank} to {rank - 1}",
        )
    return axis % rank
