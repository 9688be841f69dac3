"""Forms of kernels: how the rows of a launch lie over threads, and what is known of its arrays.

A kernel is compiled once for a graph and a form, not for a shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

VECTOR, LANES = 16, 32  # bytes of an access, threads of a warp
HELD = 32  # elements of a row that a thread keeps in registers
ACCESSES = 16  # of those, how often a thread of a longer row reads an array before it computes
NARROW = 8  # elements that a thread keeps of a row that is narrow, of which it has ROWS
ROWS = 2  # whose lanes are half of a warp where that holds a row
BYTES = 32  # of each array that a thread has where nothing is reduced
FEW, MANY = 4, 16  # warps of a program of rows that a warp has, and the most
# How many columns a program has in registers, at most; longer rows are walked.
SPANS = NARROW * LANES // 2, NARROW * LANES, HELD * LANES, 4096, 8192


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a kernel: element type, which groups of rows it has, whether columns.

    `dense`: it has all, one element after the other. `alike`: its rows begin as many elements
    beyond 16 bytes as those of the other arrays that are so.
    """

    element: str
    bytes: int
    groups: tuple[bool, ...]
    columns: bool
    dense: bool
    alike: bool


@dataclass(frozen=True, slots=True)
class Form:
    """All that a kernel is made of, but for the graph.

    `even`: rows begin at 16 bytes, and have a multiple of 16 columns. `aligned`: so it is, or
    elements are counted, and dense arrays begin so, or some rows are alike. `span`: the columns
    that a program has in registers, None where it counts elements; `walks`: a row may be longer.
    `far`: there may be 2^31 elements and more.
    """

    arrays: tuple[Array, ...]
    outputs: tuple[Array, ...]
    even: bool
    aligned: bool
    span: int | None
    walks: bool
    far: bool

    @property
    def narrowest(self) -> int:
        """The bytes of the narrowest element that is read or written at each column."""
        return min([a.bytes for a in (*self.arrays, *self.outputs) if a.columns], default=4)

    @property
    def vector(self) -> int:
        """How many elements a lane reads at once: VECTOR bytes, where they are aligned."""
        return VECTOR // self.narrowest if self.aligned else 1

    @property
    def edges(self) -> bool:
        """Whether vectors leave elements at the ends: of each row, or of all that are counted."""
        return self.aligned and not self.even

    @property
    def held(self) -> int:
        """How many elements of a row a thread keeps."""
        if self.span is None:
            return BYTES // self.narrowest
        return min(HELD, ACCESSES * self.vector) if self.long else self.span // self.lanes

    @property
    def lanes(self) -> int:
        """The lanes of a warp that have a row."""
        return LANES // 2 if self.span == SPANS[0] else LANES

    @property
    def long(self) -> bool:
        """Whether all warps have a row."""
        return self.span is not None and self.span > HELD * LANES

    @property
    def warps(self) -> int:
        """The warps of a program.

        Rows that are read again are fewer at once by more warps each: the cache has to hold them.
        """
        if not self.long:
            return FEW
        again = self.walks and any(output.columns for output in self.outputs)
        return MANY if again or self.span is None else self.span // (LANES * self.held)

    @property
    def tile(self) -> tuple[int, int, int]:
        """How often a lane reads, and the rows and lanes of a tile."""
        kept = max(1, self.held // self.vector)
        if self.span is None or self.long:
            return kept, 1, LANES * self.warps
        together = ROWS if self.span <= NARROW * LANES else 1
        return kept, FEW * LANES // self.lanes * together, self.lanes


def form_of(
    arrays: Sequence[Array],
    outputs: int,
    even: bool,
    aligned: bool,
    width: int | None,
    elements: int,
) -> Form:
    """Return the form for rows of a width: one of five, for those that are aligned or not.

    `outputs` is how many of the arrays are results. There is one where nothing is reduced, for
    which the width is None; for 2^31 elements and more it is another.
    """
    span = None if width is None else next((n for n in SPANS if width <= n), SPANS[-1])
    walks, far = width is not None and width > SPANS[-1], width is None and elements >= 2**31
    given, results = tuple(arrays[:-outputs]), tuple(arrays[-outputs:])
    return Form(given, results, even, aligned, span, walks, far)


def reciprocal(divisor: int) -> tuple[int, int]:
    """Return (m, s) such that n // divisor is n * m >> s, in 63 bits, for n from 0 below 2^31.

    Granlund and Montgomery (PLDI 1994): with s = 31 + l and divisor <= 2^l, the error of m is less
    than the divisor, and so that of n * m less than 2^s.
    """
    shift = 31 + (divisor - 1).bit_length()
    return -(-(1 << shift) // divisor), shift
