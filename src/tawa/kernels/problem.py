"""A product's problem and a variant that solves it: what is chosen, and what the choice reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import tawa


@dataclass(frozen=True, slots=True)
class Problem:
    """What a choice depends on: C[batch, m, n] = A[batch, m, k] @ B[batch, k, n]."""

    m: int
    n: int
    k: int
    dtype: str
    out: str
    batch: int = 1
    trans_a: bool = False
    trans_b: bool = False
    unaligned: str = ""  # those of a, b and c (output, gradient) whose base or stride TMA refuses
    off_lines: str = ""  # those of a and b whose rows begin inside of lines of 128 bytes
    scales: str = ""
    bias: bool = False
    activation: str = ""
    precision: str = ""  # of float32: "ieee" or "tf32"
    gradient: bool = False  # the activation's, by what it takes, instead of its value
    shared: str = ""  # "a" or "b": of a batch, the operand that is the same for all

    @property
    def aligned(self) -> bool:
        """Whether TMA can serve all arrays."""
        return not self.unaligned

    def lined_up(self, names: str) -> Problem:
        """Return the problem of operands of which `names` were copied to rows on whole lines."""
        gone = str.maketrans("", "", names)
        unaligned, off_lines = self.unaligned.translate(gone), self.off_lines.translate(gone)
        return replace(self, unaligned=unaligned, off_lines=off_lines)

    @property
    def plain(self) -> bool:
        """Whether nothing happens between the product and the store."""
        return not (self.scales or self.bias or self.activation)


@dataclass(frozen=True, slots=True)
class Variant:
    """A form ("descriptors", "pointers", "split", "split_once") and its configuration.

    `splits` programs share the sum of a tile, of those beyond the first `whole`. `copied`: these of
    a and b are copied first, so that their rows begin on whole lines.
    """

    form: str
    config: tawa.Config
    splits: int = 1
    copied: str = ""
    whole: int = 0

    def __str__(self) -> str:
        """Return the form, the tile and the pins in one line."""
        values = self.config.all_kwargs()
        tile = "x".join(str(values[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
        rest = {name: value for name, value in values.items() if not name.startswith("BLOCK_")}
        if self.splits > 1:
            rest["splits"] = self.splits
        if self.whole:
            rest["whole"] = self.whole
        if self.copied:
            rest["copied"] = self.copied
        return " ".join([self.form, tile, *(f"{name}={value}" for name, value in rest.items())])


def tile_sizes(rows: int, columns: int, depth: int) -> dict[str, int]:
    """Return a tile as meta-parameters."""
    return {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}
