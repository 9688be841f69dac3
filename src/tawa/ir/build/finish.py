"""From a block to a verified kernel: facts on arguments, options, and no dead values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DictionaryAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
)
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.traits import is_side_effect_free

from tawa.errors import ArgumentError
from tawa.ir import tile, verify
from tawa.ir.types import Real


def finish(
    name: str, block: Block, facts: Sequence[DictionaryAttr], options: Mapping[str, object]
) -> tile.Kernel:
    """Return the kernel whose body is `block`, verified and without dead values.

    `facts` are those of the block's arguments, in order (`facts_of`).
    """
    remove_dead(block)
    kernel = tile.Kernel.make(
        regions=[Region([block])],
        sym_name=name,
        arguments=ArrayAttr(facts),
        options=option_attributes(options),
    )
    verify(kernel)
    return kernel


def facts_of(
    name: str, divisible: int = 1, padding: str = "zero", ragged: bool = False
) -> DictionaryAttr:
    """Return what is known of an argument: `divisible` by 16 or 8, a descriptor's padding, and
    whether its rows end inside 16 bytes.
    """
    found: dict[str, Attribute] = {"name": StringAttr(name)}
    if divisible > 1:
        found["divisible"] = IntAttr(divisible)
    if padding != "zero":
        found["padding"] = StringAttr(padding)
    if ragged:
        found["ragged"] = IntAttr(1)
    return DictionaryAttr(found)


def option_attributes(options: Mapping[str, object]) -> DictionaryAttr:
    """Return Triton's options as an attribute; None ones are left out."""
    found: dict[str, Attribute] = {}
    for name, value in options.items():
        match value:
            case None:
                pass
            case bool():
                found[name] = BoolAttr.from_bool(value)
            case int():
                found[name] = IntAttr(value)
            case float():
                found[name] = Real(value)
            case str():
                found[name] = StringAttr(value)
            case _:
                raise ArgumentError(
                    f"the option {name} is {value!r}",
                    why="options are numbers, truth values and strings",
                )
    return DictionaryAttr(found)


def options_of(kernel: tile.Kernel) -> dict[str, bool | int | float | str]:
    """Return the options of a kernel, which `option_attributes` made attributes."""
    found: dict[str, bool | int | float | str] = {}
    for name, value in kernel.options.data.items():
        match value:
            case IntAttr() | Real() | StringAttr():
                found[name] = value.data
            case IntegerAttr():
                found[name] = value.value.data != 0
            case _:
                raise TypeError(f"the option {name} is {value}")
    return found


def remove_dead(block: Block) -> None:
    """Remove operations that compute what nothing reads, last first, in nested blocks too."""
    for operation in reversed(list(block.ops)):
        for region in operation.regions:
            for inner in region.blocks:
                remove_dead(inner)
        if _is_dead(operation):
            operation.detach()
            operation.erase()


def _is_dead(operation: Operation) -> bool:
    if not operation.results or any(result.first_use for result in operation.results):
        return False
    return is_side_effect_free(operation)
