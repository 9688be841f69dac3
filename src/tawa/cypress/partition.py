"""Partitions: `blocks` of equal shape, and the parts that `wgmma` gives to warps and threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tawa.cypress.machine import THREAD, WARP, Auto, Level
from tawa.cypress.place import here, names_at
from tawa.cypress.size import Int, Size, cdiv, combine, divides, key
from tawa.cypress.tensor import Held, Piece, Tensor
from tawa.errors import MappingError


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Parts of a tensor, in a `grid` of indices: `partition[i, j]` is one."""

    tensor: Tensor
    block: tuple[Int, ...]
    grid: tuple[Int, ...]
    held: Held | None = None
    name: str = ""
    dropped: tuple[int, ...] = ()

    def __getitem__(self, index: Any) -> Tensor:
        """Return the part at an index; parts past the end of a tensor read as zero."""
        given = cast("tuple[Any, ...]", index if isinstance(index, tuple) else (index,))
        if len(given) != len(self.grid):
            raise MappingError(
                f"{self.name} has {len(self.grid)} dimensions, the index {len(given)}",
                place=here(),
                why=f"it parts {self.tensor} into a grid of {self.grid}",
            )
        at = tuple(combine("+", each, 0) for each in given)
        # Of blocks of a run-time extent only the first is known to be whole.
        first = [
            not self.held and isinstance(b, Size) and key(b) != key(e)
            for b, e in zip(self.block, self.tensor.shape, strict=True)
        ]
        for each, extent, only in zip(at, self.grid, first, strict=False):
            outside = only if isinstance(each, Size) else each < 0
            beyond = isinstance(each, int) and isinstance(extent, int) and each >= extent
            if outside or beyond:
                raise MappingError(
                    f"{self.name} has no part {each}",
                    place=here(),
                    why=f"its grid is {self.grid}",
                )
        part = Piece(self.tensor, self.block, at, self.held, self.dropped)
        shape = tuple(n for d, n in enumerate(self.block) if d not in self.dropped)
        return Tensor(self.name, self.tensor.element, shape, part, place=here())


def blocks(tensor: Tensor, shape: Sequence[Int | None]) -> Partition:
    """Part a tensor into blocks of `shape`; the last of a dimension may pass its end.

    Inside of a variant all blocks are whole: what passes the end of the program's tensor reads as
    zero and is never stored. A block inside of a block must divide it; of a block whose extent only
    a call knows there is the first. None is an extent of 1, and
    parts do not have that dimension: ``blocks(A, (None, 64, 64))[b, i, j]`` is a matrix. Raises
    MappingError.
    """
    place = here()
    given = tuple(1 if extent is None else extent for extent in shape)
    dropped = tuple(dim for dim, extent in enumerate(shape) if extent is None)
    if len(given) != len(tensor.shape):
        raise MappingError(
            f"blocks of {len(given)} dimensions of {tensor}, which has {len(tensor.shape)}",
            place=place,
        )
    whole = tuple(combine("+", each, 0) for each in given)
    for dim, (extent, block) in enumerate(zip(tensor.shape, whole, strict=True)):
        if isinstance(block, int) and block < 1:
            raise MappingError(
                f"blocks of {tensor} have the extent {block}",
                place=place,
                why="a block has an element or more",
            )
        if key(extent) == key(block) or _to_the_end(tensor, dim):
            continue
        if isinstance(block, int) and divides(block, extent):
            continue
        raise MappingError(
            f"blocks of {block} do not divide {extent}, the extent of {tensor}",
            place=place,
            why="the last would reach into the next block of the tensor above",
            remedy="make one a multiple of the other",
        )
    grid = tuple(
        1 if key(e) == key(b) or isinstance(b, Size) else cdiv(e, b)
        for e, b in zip(tensor.shape, whole, strict=True)
    )
    return Partition(tensor, whole, grid, None, _named(place, tensor), dropped)


def _to_the_end(tensor: Tensor, dim: int) -> bool:
    """Tell whether a dimension of a part is a whole one of a tensor of the program."""
    at = tensor.dims[dim]
    whole = tensor.root.shape[at]
    if not isinstance(whole, Size):
        return not tensor.path
    above: tuple[int, ...] = ()
    for piece, dims in tensor.steps:
        if piece is not None and key(piece.block[above.index(at)]) != key(whole):
            return False
        above = dims
    return True


@dataclass(frozen=True, slots=True)
class Wgmma:
    """The instruction ``wgmma.m64nNk16``, by its shape."""

    m: int
    n: int | Auto
    k: int

    def __str__(self) -> str:
        """Return the name and shape."""
        return f"wgmma {self.m}x{self.n}x{self.k}"


def wgmma(m: int, n: int | Auto, k: int) -> Wgmma:
    """Return the instruction of a shape: m = 64, n a multiple of 8 up to 256, k = 16.

    With `auto` for n it is as wide as the tile that is parted for it.

    Source: PTX ISA, "wgmma.mma_async", shapes of .f16 and .bf16.
    """
    if m != 64 or k != 16 or not (isinstance(n, Auto) or (n % 8 == 0 and 8 <= n <= 256)):
        raise MappingError(
            f"there is no wgmma of {m}x{n}x{k}",
            place=here(),
            why="of 16-bit elements m is 64, k is 16, n a multiple of 8 up to 256",
        )
    return Wgmma(m, n, k)


def mma(tensor: Tensor, instruction: Wgmma, level: Level, at: str) -> Partition:
    """Part an operand of wgmma over the warps of a warpgroup, or the threads of a warp.

    `at` is "A", "B" or "C", or "BT" for B as its transpose lies. By WARP, A and C are parted into
    4 by rows and B is shared. By THREAD C is parted into fragments (PTX ISA, "Register
    fragments"), A and B are shared. The shape of a fragment is that of the warp's part.
    """
    place = here()
    if level not in (WARP, THREAD) or at not in ("A", "B", "BT", "C") or len(tensor.shape) != 2:
        raise MappingError(
            f"{tensor} cannot be parted for {instruction} at {at!r} over {level}",
            place=place,
            why='operands are matrices "A", "B" or "BT", and "C", parted over WARP, then THREAD',
        )
    rows, columns = tensor.shape
    wide_at = rows if at == "BT" else columns
    if isinstance(instruction.n, Auto) and isinstance(wide_at, int):
        width = wgmma(instruction.m, wide_at, 16).n if at != "A" else 8
        instruction = Wgmma(instruction.m, width, instruction.k)
    assert isinstance(instruction.n, int)
    by_rows = 4 if level == WARP and at in "AC" else 1
    need = {
        "A": (instruction.m, instruction.k),
        "B": (instruction.k, instruction.n),
        "BT": (instruction.n, instruction.k),
    }
    tall, wide = need.get(at, (instruction.m, instruction.n))
    tall = tall // 4 if level == THREAD and at in "AC" else tall
    fits = isinstance(rows, int) and isinstance(columns, int)
    if not fits or combine("%", rows, tall) != 0 or combine("%", columns, wide) != 0:
        raise MappingError(
            f"{tensor} is {rows}x{columns}, {at} of {instruction} is {tall}x{wide} for {level}",
            place=place,
            why="a part is a whole number of instructions",
        )
    if at != "A" and key(wide_at) != key(instruction.n):
        raise MappingError(
            f"{tensor} has {wide_at} {'rows' if at == 'BT' else 'columns'}, and is parted for"
            f" {instruction}",
            place=place,
            why="a warpgroup's product is one instruction wide",
            remedy=f"write wgmma(64, {wide_at}, 16), or make the tile {instruction.n} wide",
        )
    block = (combine("//", rows, by_rows), columns)
    held = Held(str(instruction), at, level)
    return Partition(tensor, block, (4 if level == WARP else 32,), held, _named(place, tensor))


def _named(place: Any, tensor: Tensor) -> str:
    (name,) = names_at(place, 1, "")
    return name if name != "0" else tensor.name.lower()
