"""What a server asks of attention: the cases of `serving.py`, their inputs and references."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from harness import torch_dtype

L2_BYTES = 160e6


@dataclass(slots=True)
class Arrays:
    """One set of tensors; `c` is the output that is checked, `more` the options of `attention`."""

    q: Any
    k: Any
    v: Any
    c: Any
    more: dict[str, Any]


class Sampled:
    """Attention in float64 of some sequences and heads of one set, as (place in c, wanted)."""

    def __init__(self, parts: Sequence[tuple[Any, Any]]) -> None:
        self._parts = parts
        self._norm = math.sqrt(sum(float(want.norm()) ** 2 for _, want in parts))

    def error(self, out: Any) -> float:
        """Return the relative Frobenius error over the sample; NaN if any output is not finite."""
        if not bool(out.isfinite().all()):
            return math.nan
        total = sum(float((out[at].double() - want).norm()) ** 2 for at, want in self._parts)
        return math.sqrt(total) / self._norm


def attended(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Return attention of [queries, dim] to [keys, dim] in float64."""
    import torch

    scores = q.double() @ k.double().t() / math.sqrt(q.shape[-1])
    if causal:
        rows, columns = scores.shape
        seen = torch.ones_like(scores, dtype=torch.bool).tril(columns - rows)
        scores.masked_fill_(~seen, -math.inf)
    return scores.softmax(-1) @ v.double()


def normal(*shape: int, dtype: str = "f16") -> Any:
    import torch

    return torch.randn(*shape, device="cuda", dtype=torch_dtype(dtype))


@dataclass(frozen=True, slots=True)
class Decode:
    """One query for each of `batch` sequences; `page` rows to a page of keys, 0 without pages.

    With `shortest`, of a paged case, sequences have lengths from that to `keys`, evenly.
    """

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    keys: int
    page: int = 0
    shortest: int = 0
    dtype: str = "f16"
    label: str = ""
    unit: str = "GB/s"

    @property
    def lengths(self) -> tuple[int, ...]:
        """Keys of each sequence."""
        if not self.shortest:
            return (self.keys,) * self.batch
        step = (self.keys - self.shortest) / max(1, self.batch - 1)
        # 7 is prime to the powers of two that batches are: long and short ones come mixed.
        return tuple(self.shortest + round(i * 7 % self.batch * step) for i in range(self.batch))

    @property
    def flops(self) -> float:
        """Bytes read, times the thousand by which GB/s of a rate exceed TFLOP/s."""
        return 1e3 * self.bytes

    @property
    def bytes(self) -> float:
        return 4.0 * self.kv_heads * self.head_dim * sum(self.lengths)

    @property
    def shape(self) -> str:
        keys = f"{self.shortest}..{self.keys}" if self.shortest else str(self.keys)
        return f"B{self.batch} H{self.heads}/{self.kv_heads} S{keys}"

    @property
    def group(self) -> str:
        paged = f", pages of {self.page}" if self.page else ""
        return f"{self.dtype} D{self.head_dim} decode{paged}"

    def __str__(self) -> str:
        return f"{self.group} {self.shape}"

    @property
    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of q and of k or v."""
        q = (self.batch, self.heads, 1, self.head_dim)
        if not self.page:
            return q, (self.batch, self.kv_heads, self.keys, self.head_dim)
        pages = self.batch * self.keys // self.page
        return q, (pages, self.kv_heads, self.page, self.head_dim)

    def make_inputs(self) -> list[Arrays]:
        """Return sets that together exceed the L2 cache, at least two."""
        import torch

        sets: list[Arrays] = []
        for _ in range(max(2, min(8, math.ceil(L2_BYTES / self.bytes)))):
            rows, held = self.sizes
            q, k, v = (normal(*shape, dtype=self.dtype) for shape in (rows, held, held))
            more: dict[str, Any] = {}
            if self.page:
                table = torch.randperm(held[0], device="cuda").int().view(self.batch, -1)
                lengths = torch.tensor(self.lengths, device="cuda", dtype=torch.int32)
                more = {"block_table": table, "lengths": lengths}
            sets.append(Arrays(q, k, v, torch.empty_like(q), more))
        return sets

    def reference(self, inputs: Arrays) -> Sampled:
        parts: list[tuple[Any, Any]] = []
        for head in {0, self.heads - 1}:
            at = (self.batch - 1, head * self.kv_heads // self.heads)
            if self.page:
                pages = inputs.more["block_table"][at[0]].long()
                held = (x[pages, at[1]].flatten(0, 1) for x in (inputs.k, inputs.v))
                k, v = (x[: self.lengths[at[0]]] for x in held)
            else:
                k, v = inputs.k[at], inputs.v[at]
            place = (at[0], head)
            parts.append((place, attended(inputs.q[place], k, v)))
        return Sampled(parts)


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences of `lengths`, one after the other, all heads beside one another in memory."""

    label: str
    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool
    dtype: str = "f16"
    unit: str = "TFLOP/s"

    @property
    def flops(self) -> float:
        whole = sum(4.0 * self.heads * length**2 * self.head_dim for length in self.lengths)
        return whole / 2 if self.causal else whole

    @property
    def shape(self) -> str:
        return f"{len(self.lengths)} of {min(self.lengths)}..{max(self.lengths)}"

    @property
    def group(self) -> str:
        heads = f"{self.heads}/{self.kv_heads}"
        return (
            f"{self.dtype} D{self.head_dim} H{heads} varlen {'causal' if self.causal else 'full'}"
        )

    def __str__(self) -> str:
        return f"{self.group} {self.label}"

    @property
    def starts(self) -> tuple[int, ...]:
        return (0, *accumulate(self.lengths))

    def make_inputs(self) -> list[Arrays]:
        import torch

        starts = torch.tensor(self.starts, device="cuda", dtype=torch.int32)

        def packed(heads: int) -> Any:
            held = normal(self.starts[-1], heads, self.head_dim, dtype=self.dtype)
            return held.transpose(0, 1)[None]

        sets: list[Arrays] = []
        for _ in range(2):
            q, k, v = packed(self.heads), packed(self.kv_heads), packed(self.kv_heads)
            more = {"cu_seqlens": starts, "causal": self.causal}
            sets.append(Arrays(q, k, v, packed(self.heads), more))
        return sets

    def reference(self, inputs: Arrays) -> Sampled:
        parts: list[tuple[Any, Any]] = []
        for begin, length in zip(self.starts, self.lengths):
            rows = slice(begin, begin + length)
            for head in {0, self.heads - 1}:
                at = (0, head, rows)
                keys = (0, head * self.kv_heads // self.heads, rows)
                found = attended(inputs.q[at], inputs.k[keys], inputs.v[keys], self.causal)
                parts.append((at, found))
        return Sampled(parts)


def three(inputs: Arrays) -> tuple[Any, Any, Any]:
    return inputs.q, inputs.k, inputs.v
