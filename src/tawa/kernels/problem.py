"""A product's problem and a variant that solves it: what is chosen, and what the choice reads."""

from __future__ import annotations

from dataclasses import dataclass

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
    aligned: bool = True  # every base and stride fits TMA
    scales: str = ""
    bias: bool = False
    activation: str = ""
    precision: str = ""  # of float32: "ieee" or "tf32"
    gradient: bool = False  # the activation's, by what it takes, instead of its value
    shared: str = ""  # "a" or "b": of a batch, the operand that is the same for all

    @property
    def plain(self) -> bool:
        """Whether nothing happens between the product and the store."""
        return not (self.scales or self.bias or self.activation)


@dataclass(frozen=True, slots=True)
class Variant:
    """A form ("descriptors", "pointers", "split", "split_once", "stream") and its configuration."""

    form: str
    config: tawa.Config
    splits: int = 1

    def __str__(self) -> str:
        """Return the form, the tile and the pins in one line."""
        values = self.config.all_kwargs()
        tile = "x".join(str(values[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
        rest = {name: value for name, value in values.items() if not name.startswith("BLOCK_")}
        if self.splits > 1:
            rest["splits"] = self.splits
        return " ".join([self.form, tile, *(f"{name}={value}" for name, value in rest.items())])


def tile_sizes(rows: int, columns: int, depth: int) -> dict[str, int]:
    """Return a tile as meta-parameters."""
    return {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}
