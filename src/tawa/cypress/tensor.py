"""Tensors in tasks: a type for annotations, and handles that only partitions take apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tawa.cypress.machine import Level
from tawa.cypress.place import here
from tawa.cypress.size import Int
from tawa.errors import MappingError, Place
from tawa.language.dtypes import dtype


@dataclass(frozen=True, slots=True)
class TensorType:
    """What a parameter is declared to be: an element type, None where any will do, and a rank.

    Of rank 0 is a number of the call, `divisible` by 8 or 16 where it says so.
    """

    element: dtype | None
    rank: int
    divisible: int = 1


@dataclass(frozen=True, slots=True)
class Held:
    """What of an operand of wgmma, "A", "B", "BT" or "C", each processor of a level holds."""

    instruction: str
    operand: str
    level: Level

    def __str__(self) -> str:
        """Return the instruction and the operand."""
        return f"{self.instruction} {self.operand}"


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One part of a tensor: of a partition, at an index."""

    of: Tensor
    block: tuple[Int, ...]
    index: tuple[Int, ...]
    held: Held | None = None  # of a partition for wgmma
    dropped: tuple[int, ...] = ()  # dimensions of extent 1 that the part does not have


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of a task: a parameter, one that the variant makes, or a piece of another.

    `Tensor[element, rank]` is the type that annotations of parameters are. Extents of `shape` are
    numbers or sizes that a call knows. An inner variant cannot read elements; leaves do.
    """

    name: str
    element: dtype
    shape: tuple[Int, ...]
    piece: Piece | None = None
    bound: Tensor | None = None  # of a parameter: what the launch gave
    place: Place | None = None

    def __class_getitem__(cls, what: Any) -> TensorType:
        """Return the type of tensors of an element type and a rank."""
        match what:
            case (dtype() | None as element, int() as rank) if 0 <= rank <= 5:
                return TensorType(element, rank)
            case (dtype() as element, 0, 1 | 8 | 16 as divisible):
                return TensorType(element, 0, divisible)
            case _:
                raise MappingError(
                    f"Tensor[{what!r}] is no type of tensors",
                    place=here(),
                    remedy="write Tensor[f16, 2]: an element type, and a rank of 0 to 5",
                )

    def _touch(self, *_: Any) -> Any:
        raise MappingError(
            f"an inner variant touches elements of {self.name}",
            place=here(),
            why="inner variants only partition tensors and launch tasks",
            remedy="compute in a leaf, and take parts by cy.blocks",
        )

    __getitem__ = __setitem__ = __iter__ = __len__ = __bool__ = _touch
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __neg__ = _touch

    @property
    def local(self) -> Tensor:
        """The parameter or made tensor of this variant that this is a part of."""
        return self.piece.of.local if self.piece else self

    @property
    def root(self) -> Tensor:
        """The tensor that this is a part of: of the program, or made by a variant."""
        local = self.local
        return local.bound.root if local.bound is not None else local

    @property
    def path(self) -> tuple[Piece, ...]:
        """The pieces from the root down to this one."""
        if self.piece is not None:
            return (*self.piece.of.path, self.piece)
        return self.bound.path if self.bound is not None else ()

    @property
    def dims(self) -> tuple[int, ...]:
        """Of each dimension, which one of the root it is."""
        return [*self.steps][-1][1]

    @property
    def steps(self) -> Iterator[tuple[Piece | None, tuple[int, ...]]]:
        """The pieces from the root down, each with the root's dimensions that are left of it."""
        dims = tuple(range(len(self.root.shape)))
        yield None, dims
        for piece in self.path:
            dims = tuple(dim for d, dim in enumerate(dims) if d not in piece.dropped)
            yield piece, dims

    @property
    def offsets(self) -> tuple[Int, ...]:
        """Where this begins in the root, in elements."""
        at: list[Int] = [0] * len(self.root.shape)
        above: tuple[int, ...] = ()
        for piece, dims in self.steps:
            if piece is not None and not piece.held:
                for dim, i, b in zip(above, piece.index, piece.block, strict=True):
                    at[dim] = at[dim] + i * b
            above = dims
        return tuple(at)

    @property
    def box(self) -> tuple[Int, ...]:
        """The shape in the root: 1 for each dimension that this does not have."""
        kept = dict(zip(self.dims, self.shape, strict=True))
        return tuple(kept.get(dim, 1) for dim in range(len(self.root.shape)))

    def __str__(self) -> str:
        """Return the expression by which the variant names it."""
        if self.piece is None:
            return self.name
        return f"{self.name}[{', '.join(map(str, self.piece.index))}]"
