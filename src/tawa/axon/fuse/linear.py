"""How a value is linear in a product: a scale and a bias for each channel, and what is added.

(x + b) f is f x + f b where f is finite: by an infinite one, the sum of infinities would be NaN
where the product has a sign. So it is shown that a factor is finite if the arrays are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tawa.axon.fuse.needs import below
from tawa.axon.fuse.ranges import finite, positive
from tawa.axon.fuse.trace import ALONG, Cuts, Node, Operand, Traced


@dataclass(frozen=True, slots=True)
class Sum:
    """scale * x + shift + residual, for a product x; None where there is none.

    Scale and shift are numbers, or have one for each channel; a residual has one for each element.
    """

    scale: Operand | None = None
    shift: Operand | None = None
    residual: Node | None = None

    def times(self, name: str, factor: Operand) -> Sum | None:
        """Return it times ("*") or over ("/") a number for each channel."""
        bounded = finite if name == "*" else positive
        if self.residual is not None or not (self.shift is None or bounded(factor)):
            return None

        def apply(value: Operand | None) -> Operand | None:
            if value is None or (name == "*" and value == 1):
                return None if value is None else factor
            return Node(name, (value, factor), "float32")

        return Sum(apply(self.scale), apply(self.shift))

    def plus(self, name: str, other: Sum) -> Sum | None:
        """Return its sum with another ("+"), or the difference ("-")."""
        if other.residual is not None and (self.residual is not None or name == "-"):
            return None

        def apply(one: Operand | None, two: Operand | None) -> Operand | None:
            if two is None or (one is None and name == "+"):
                return one if two is None else two
            return Node(name, (one, two), "float32") if one is not None else _negative(two)

        scale, shift = apply(self.scale, other.scale), apply(self.shift, other.shift)
        return Sum(scale, shift, self.residual or other.residual)


@dataclass(frozen=True, slots=True)
class Linear:
    """Finds how values are linear in a product `x`, whose axis `place` is the channels."""

    cuts: Cuts
    x: Traced
    place: int
    known: dict[Node, Sum | None] = field(default_factory=dict[Node, "Sum | None"])

    def arrays(self, value: Operand) -> tuple[Traced | None, Traced | None, Traced | None] | None:
        """Return the bias, the residual and the scale of a value, None where it is not linear.

        Bias and scale are [channels], the scale float32, and may be computed of arrays; they are
        None where they are 0 and 1, and so is a residual that is none.
        """
        found = self._sum(value)
        if found is None or found.scale is None:
            return None
        bias, scale = found.shift, None if found.scale == 1 else found.scale
        if bias is not None and not self._loads(bias):
            return None  # the library adds arrays, no numbers
        residual = None if found.residual is None else self.cuts.known[found.residual]
        return self._vector(bias, ""), residual, self._vector(scale, "float32")

    def _vector(self, value: Operand | None, dtype: str) -> Traced | None:
        """Return numbers for each channel as an array, of a type where one is wanted."""
        if value is None:
            return None
        channels = (self.x.axes[self.place].root,)
        if isinstance(value, Node) and value.name == "load":
            known = self.cuts.known[value]
            if self._is_vector(value) and dtype in ("", known.dtype):
                return Traced(value, channels, known.dtype, self.cuts)
        if not isinstance(value, Node) or value.name == "load":
            value = Node("*", (value, 1.0), "float32")
        return Traced(value, channels if self._loads(value) else (), "float32", self.cuts)

    def _loads(self, value: Operand) -> bool:
        return isinstance(value, Node) and bool(below(value))

    def _is_vector(self, load: Node) -> bool:
        """Tell whether an array has one number for each channel."""
        axes, channels = self.cuts.known[load].axes, self.x.axes[self.place].root
        own = [axis for axis in axes if axis.root is channels]
        return len(own) == 1 and all(axis.size == 1 for axis in axes if axis.root is not channels)

    def _sum(self, value: Operand) -> Sum | None:
        """Return a value as a sum, None where it is no such."""
        if not isinstance(value, Node):
            return Sum(shift=value)
        if value not in self.known:
            self.known[value] = self._sum_of(value)
        return self.known[value]

    def _sum_of(self, node: Node) -> Sum | None:
        if node is self.x.node:
            return Sum(scale=1.0)
        if node.name == "load":
            known = self.cuts.known[node]
            if self._is_vector(node) or all(axis.size == 1 for axis in known.axes):
                return Sum(shift=node)
            same = [axis.root for axis in known.axes] == [axis.root for axis in self.x.axes]
            return Sum(residual=node) if same and known.dtype == self.x.dtype else None
        parts: list[Sum] = []
        for operand in node.inputs:
            if node.name in ALONG or (part := self._sum(operand)) is None:
                return None
            parts.append(part)
        plain = [part.scale is None and part.residual is None for part in parts]
        match node.name, parts:
            case _ if all(plain):
                return Sum(shift=node)
            case "+" | "-", [one, other]:
                return one.plus(node.name, other)
            case "*", [one, other] if plain[0] and one.shift is not None:
                return other.times("*", one.shift)
            case "*" | "/", [one, other] if plain[1] and other.shift is not None:
                return one.times(node.name, other.shift)
            case "neg", [one] if one.residual is None:
                return Sum().plus("-", one)
            case _:
                return None


def _negative(value: Operand) -> Node:
    return Node("neg", (value,), "float32")
