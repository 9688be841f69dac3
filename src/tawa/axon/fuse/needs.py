"""Which arrays of a traced program are in memory, and what they are computed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tawa.axon.fuse.trace import Cuts, Node, Step, Traced


def demanded(cuts: Cuts, wanted: Sequence[Node], instead: Mapping[Node, Step]) -> list[Node]:
    """Return the arrays that are in memory: those that steps read and make, in their order."""
    found: dict[Node, None] = {}
    left, seen = list(wanted), set[Node]()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        found[node] = None
        step = instead.get(node) or cuts.of.get(node)
        if step is not None:
            left += [each.node for each in traced_in(step.inputs)]
        else:
            left += below(node)
    order = {node: place for place, node in enumerate(cuts.known)}
    return sorted(found, key=order.__getitem__)


def below(root: Node) -> list[Node]:
    """Return the arrays of arguments and steps that a value is computed from."""
    seen, left = set[Node](), [root]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            if node.name != "load" or node is root:
                left += [each for each in node.inputs if isinstance(each, Node)]
    return [node for node in seen if node.name == "load"]


def traced_in(value: Any) -> Iterator[Traced]:
    """Yield the traced arrays in a value."""
    if isinstance(value, Traced):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            yield from traced_in(each)
