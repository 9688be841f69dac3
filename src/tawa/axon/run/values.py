"""The types of values."""

from __future__ import annotations

from typing import Any

from tawa.axon.shapes.words import Source, Span
from tawa.axon.syntax.tree import TypeNode
from tawa.axon.types.kinds import ElementVar, Int, Product, Tensor, Text, Type
from tawa.axon.types.unify import Unifier
from tawa.errors import AxonGuard
from tawa.integers import constant

NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "bool",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8",
}  # fmt: skip
DTYPES = {short: long for long, short in NAMES.items()}


def type_of(value: Any, unifier: Unifier) -> Type:
    """Return the type of an argument; raises AxonGuard for what no program takes."""
    if isinstance(value, tuple | list):
        items: Any = value  # pyright: ignore[reportUnknownVariableType]
        return Product(tuple([type_of(item, unifier) for item in items]))
    match value:
        case bool() | int():
            return Int(constant(int(value)))
        case float():
            return Tensor(ElementVar("float", unifier.fresh.number()), ())
        case str():
            return Text()
        case _ if hasattr(value, "inferred"):
            place = Span(1, 1, 2)
            return unifier.instantiate(value.inferred.scheme, Source(0, value.name, place, place))
        case _:
            pass
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    name = NAMES.get(str(dtype).removeprefix("torch."))
    if getattr(value, "untyped", False):  # `library/untyped.py`
        name = ElementVar("number", unifier.fresh.number())
    if shape is None or name is None:
        raise AxonGuard(
            f"{type(value).__name__} is no argument of a program",
            remedy="pass arrays, numbers, tuples of them, or functions of a program",
        )
    return Tensor(name, tuple([constant(int(size)) for size in shape]))


def key_of(value: Any) -> Any:
    """Return what of a value decides its guards."""
    match value:
        case tuple() | list():
            return tuple([key_of(item) for item in value])  # pyright: ignore
        case _ if hasattr(value, "shape"):
            return tuple(value.shape), str(value.dtype)
        case _ if hasattr(value, "inferred"):
            return value  # kept, so that no other takes its place
        case float():
            return "float", repr(value)  # 0.0 equals -0.0, and NaN nothing
        case _:
            return type(value).__name__, value


def converted(value: Any, kind: TypeNode) -> Any:
    """Return an array as what it is said to be, where its element type is: a cast, zeros, iota."""
    if kind.kind != "tensor" or kind.name not in DTYPES:
        return value
    import numpy as np

    from tawa.axon.library.untyped import fixed

    given = fixed(value if hasattr(value, "astype") else np.asarray(value))
    if str(given.dtype).removeprefix("torch.") == DTYPES[kind.name]:
        return given
    try:
        with np.errstate(all="ignore"):
            return given.astype(DTYPES[kind.name])
    except TypeError:
        raise AxonGuard(
            f"NumPy has no arrays of {kind.name}", remedy="pass tensors of torch"
        ) from None


def others(value: Any) -> list[Any]:
    """Return the arrays in a value that are not NumPy's."""
    if isinstance(value, tuple | list):
        return [each for item in value for each in others(item)]  # pyright: ignore
    import numpy as np

    known = not hasattr(value, "shape") or hasattr(value, "__array_ufunc__")
    known = known or isinstance(value, np.generic)  # a number: what a sum of NumPy's gives
    return [] if known else [value]
