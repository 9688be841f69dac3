"""What was launched last: what a fault that shows at a later call is told by.

A launcher notes numbers and addresses only, so that no array lives longer for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tawa.frontend.signature import ConstantArg, TupleArg
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.expressions import value_of

Note = tuple[CompiledKernel, tuple[str, ...], tuple[Any, ...], tuple[Any, ...]]
"""A launch: the kernel, the names of the facts, their values, the grid."""

_KEPT = 8


@dataclass(frozen=True, slots=True)
class Recent:
    """The latest launches of a process."""

    notes: deque[Note] = field(default_factory=lambda: deque[Note](maxlen=_KEPT))

    def __iter__(self) -> Iterator[str]:
        """Yield each launch as a line, the latest first."""
        for kernel, names, values, grid in reversed(tuple(self.notes)):
            facts = dict(zip(names, values))
            yield f"{kernel.name} on grid {tuple(grid)}: {', '.join(_spell(kernel, facts))}"


def _spell(kernel: CompiledKernel, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of a launch in the kernel's order."""
    for name, argument in kernel.signature.items():
        if isinstance(argument, (ConstantArg, TupleArg)):
            continue
        if (address := facts.get(f"{name}__at")) is None:
            value = value_of(name)
            yield f"{name} = {facts[value]!r}" if value in facts else name
            continue
        shape = facts.get(f"{name}__shape")
        extents = "" if shape is None else f"[{', '.join(map(str, shape))}]"
        yield f"{name} = {getattr(argument, 'dtype', '')}{extents} at {address:#x}"
