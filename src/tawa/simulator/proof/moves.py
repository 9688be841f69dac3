"""Values that are passed on: what a loop carries from trip to trip, what a condition results in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from xdsl.ir import SSAValue

from tawa.ir import tile
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.places import reader
from tawa.simulator.proof.registers import Name, Register

Move: TypeAlias = Callable[[list[Any]], None]
"""What passes the values on, in an environment, that a loop carries or a condition results in."""


def moves(
    decoder: Decoder, targets: tuple[SSAValue, ...], origins: tuple[SSAValue, ...]
) -> Move | None:
    """Return what passes carried values on, of those that the proof follows; None where it follows
    none.

    A tensor that becomes a constant has no origin: it has registers of its own, which threads fill
    there and then, though the constant is one value.
    """
    pairs = [
        (
            decoder.number(target),
            -1 if _is_filled(decoder, target, origin) else decoder.number(origin),
        )
        for target, origin in zip(targets, origins, strict=True)
        if target in decoder.needed or target in decoder.tracked
    ]
    return _move(pairs) if pairs else None


def _is_filled(decoder: Decoder, target: SSAValue, origin: SSAValue) -> bool:
    return target in decoder.tracked and isinstance(origin.owner, tile.Constant)


def _move(pairs: list[tuple[int, int]]) -> Move:
    """Return what sets places to what others hold, all at once."""
    places = [target for target, _ in pairs]
    filled = [target for target, origin in pairs if origin < 0]
    # What is filled is passed on as it was, and replaced then.
    read = reader(tuple(target if origin < 0 else origin for target, origin in pairs))

    def move(env: list[Any]) -> None:
        for place, value in zip(places, read(env)):
            env[place] = value
        for place in filled:
            env[place] = Name(Register())

    return move
