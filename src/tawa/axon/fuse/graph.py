"""The graph of a kernel: nodes that are computed alike are one, with their depth and width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tawa.axon.fuse.trace import ALONG, REDUCTIONS, Axis, Node, refused


class Graph:
    """The nodes that outputs need, inputs first, and the axis that is the columns.

    `leaves` are read, as arguments of these numbers; by default those that are arguments.
    """

    def __init__(
        self, outputs: Sequence[Node], last: Axis, leaves: Mapping[Node, Node] | None = None
    ) -> None:
        self._leaves = leaves or {}
        self._known: dict[tuple[object, ...], Node] = {}
        self._same: dict[Node, Node] = {}
        self.outputs = [self._add(node) for node in outputs]
        self.nodes = list(self._known.values())
        reduced = [node.axis for node in self.nodes if node.name in ALONG]
        self.columns = (reduced[0] if reduced else None) or last.root
        if any(axis is not self.columns for axis in reduced):
            raise refused(self.nodes[-1].name, "it reduces along two axes")
        self.depth: dict[Node, int] = {}
        self.wide: dict[Node, bool] = {}
        for node in self.nodes:
            inputs = [each for each in node.inputs if isinstance(each, Node)]
            reduces = node.name in REDUCTIONS
            self.depth[node] = max([self.depth[each] for each in inputs], default=0) + reduces
            own = self.columns in [axis.root for axis in node.axes]
            self.wide[node] = node.name not in ALONG and (
                own or any(self.wide[each] for each in inputs)
            )
        self.sizes = list(dict.fromkeys(node.axis for node in self.nodes if node.name == "size"))

    def _add(self, node: Node) -> Node:
        """Return the one node that computes what this one does, after those it needs."""
        if node in self._same:
            return self._same[node]
        if node in self._leaves:
            self._same[node] = self._add(self._leaves[node])
            return self._same[node]
        inputs = tuple([self._add(e) if isinstance(e, Node) else e for e in node.inputs])
        told = [each if isinstance(each, Node) else repr(each) for each in inputs]
        axis = node.axis and node.axis.root
        key = (node.name, *told, node.dtype, axis, node.argument)
        made = self._known.setdefault(key, replace(node, inputs=inputs, axis=axis))
        self._same[node] = made
        return made

    @property
    def text(self) -> str:
        """What tells the kernels of two graphs apart."""
        number = {node: index for index, node in enumerate(self.nodes)}

        def shown(node: Node) -> str:
            inputs = [f"%{number[e]}" if isinstance(e, Node) else repr(e) for e in node.inputs]
            size = self.sizes.index(node.axis) if node.name == "size" else ""
            return f"{node.name} {inputs} {node.dtype} {node.argument} {size}"

        return "\n".join([*map(shown, self.nodes), str([number[node] for node in self.outputs])])
