"""What the precisions of an fp32 product mean (`input_precision` of `tl.dot`, as in Triton).

"tf32" is one product of the upper 19 bits, "ieee" one fused multiply-add for each k. The others
take a number as a sum of parts in a narrow type and multiply the parts that count; an infinity has
no such parts, and gives NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

TF32_MASK = 0xFFFFE000
"""The bits of an fp32 number that the tensor cores read."""


@dataclass(frozen=True, slots=True)
class Split:
    """A product of fp32 made of products of narrow parts.

    `parts` of the type `narrow` make a number; `terms` are the pairs of parts (of a, of b) that are
    multiplied, added in this order; `step` is the K of one instruction.
    """

    narrow: Literal["tf32", "bf16"]
    parts: int
    terms: tuple[tuple[int, int], ...]
    step: int


SPLITS: Mapping[str, Split] = MappingProxyType(
    {
        "tf32x3": Split("tf32", 2, ((1, 0), (0, 1), (0, 0)), 8),
        "bf16x3": Split("bf16", 2, ((1, 0), (0, 1), (0, 0)), 16),
        "bf16x6": Split("bf16", 3, ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0)), 16),
    }
)

PRECISIONS = ("tf32", "ieee", *SPLITS)
"""What `input_precision` may be."""
