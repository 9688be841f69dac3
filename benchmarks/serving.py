"""Attention as a server calls it: one query a sequence, and packed sequences of many lengths.

    python benchmarks/serving.py --section decode,paged,varlen,varlen_causal
    python benchmarks/serving.py --section all --dry      (compiles everything, times nothing)

Decoding is bound by memory: its figures are GB/s of keys and values read, and the peer `copy` moves
as many bytes, half of them read and half written, which is the bound. `varlen` has TFLOP/s, by the
sum over sequences of 4 * heads * length^2 * head_dim, half of it under a causal mask. How figures
are made is said in harness.py; errors are of every sequence's sample of heads.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import gemm
import peers as who
from harness import Call, Missing, torch_dtype
from peers import Offer

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
    """One query for each of `batch` sequences; `page` rows to a page of keys, 0 without pages."""

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    keys: int
    page: int = 0
    dtype: str = "f16"
    label: str = ""
    unit: str = "GB/s"

    @property
    def flops(self) -> float:
        """Bytes read, times the thousand by which GB/s of a rate exceed TFLOP/s."""
        return 1e3 * self.bytes

    @property
    def bytes(self) -> float:
        return 4.0 * self.batch * self.kv_heads * self.keys * self.head_dim

    @property
    def shape(self) -> str:
        return f"B{self.batch} H{self.heads}/{self.kv_heads} S{self.keys}"

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
            q, k, v = normal(*rows), normal(*held), normal(*held)
            more: dict[str, Any] = {}
            if self.page:
                table = torch.randperm(held[0], device="cuda").int().view(self.batch, -1)
                lengths = torch.full((self.batch,), self.keys, device="cuda", dtype=torch.int32)
                more = {"block_table": table, "lengths": lengths}
            sets.append(Arrays(q, k, v, torch.empty_like(q), more))
        return sets

    def reference(self, inputs: Arrays) -> Sampled:
        parts: list[tuple[Any, Any]] = []
        for head in {0, self.heads - 1}:
            at = (self.batch - 1, head * self.kv_heads // self.heads)
            if self.page:
                pages = inputs.more["block_table"][at[0]].long()
                k, v = (x[pages, at[1]].flatten(0, 1) for x in (inputs.k, inputs.v))
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
        return f"{self.dtype} D{self.head_dim} varlen {'causal' if self.causal else 'full'}"

    def __str__(self) -> str:
        return f"{self.group} {self.label}"

    @property
    def starts(self) -> tuple[int, ...]:
        return (0, *accumulate(self.lengths))

    def make_inputs(self) -> list[Arrays]:
        import torch

        starts = torch.tensor(self.starts, device="cuda", dtype=torch.int32)
        shape = (self.starts[-1], self.heads, self.head_dim)

        def turned(array: Any) -> Any:
            return array.transpose(0, 1)[None]

        return [
            Arrays(
                *(turned(normal(*shape)) for _ in range(3)),
                turned(torch.empty(shape, device="cuda", dtype=torch_dtype(self.dtype))),
                {"cu_seqlens": starts, "causal": self.causal},
            )
            for _ in range(2)
        ]

    def reference(self, inputs: Arrays) -> Sampled:
        parts: list[tuple[Any, Any]] = []
        for begin, length in zip(self.starts, self.lengths):
            rows = slice(begin, begin + length)
            for head in {0, self.heads - 1}:
                at = (0, head, rows)
                parts.append((at, attended(*(x[at] for x in _three(inputs)), self.causal)))
        return Sampled(parts)


def _three(inputs: Arrays) -> tuple[Any, Any, Any]:
    return inputs.q, inputs.k, inputs.v


# --- peers --------------------------------------------------------------------------------------


class TawaServing(who.Tawa):
    """tawa.kernels.attention: the variant it would take, and the others."""

    def stand_ins(self, case: Any) -> Arrays:
        import tawa

        if isinstance(case, Decode):
            q, held = case.sizes
            more: dict[str, Any] = {}
            if case.page:
                table = tawa.array((case.batch, case.keys // case.page), "i32")
                more = {"block_table": table, "lengths": tawa.array((case.batch,), "i32")}
            arrays = (tawa.array(shape, case.dtype) for shape in (q, held, held, q))
            return Arrays(*arrays, more)
        total, heads, dim = case.starts[-1], case.heads, case.head_dim
        strides = (total * heads * dim, dim, heads * dim, 1)
        shape = (1, heads, total, dim)
        arrays = (tawa.array(shape, case.dtype, strides=strides) for _ in range(4))
        starts = tawa.array((len(case.starts),), "i32")
        return Arrays(*arrays, {"cu_seqlens": starts, "causal": case.causal})

    def bound(self, inputs: Any, case: Any) -> Any:
        from tawa.kernels.attention import bind

        return bind(*_three(inputs), out=inputs.c, **inputs.more)

    def variants(self, case: Any) -> list[Any]:
        from tawa.kernels.attention import variants

        return list(variants(self.bound(self.stand_ins(case), case).problem))[: self.most]

    def launches(self, case: Any, variant: Any, inputs: Any) -> list[Any]:
        from tawa.kernels.attention import launches

        return launches(self.bound(inputs, case), variant)


class Copy:
    """A copy that moves as many bytes as decoding reads: what memory can do."""

    name = "copy"

    def stand_ins(self, case: Any) -> None:
        return None

    def failures(self) -> tuple[type[Exception], ...]:
        return (RuntimeError,)

    def offers(self, case: Any) -> Iterator[Offer]:
        if not isinstance(case, Decode):
            raise Missing("a copy bounds what reads much and computes little")
        import torch

        scratch: list[Any] = []

        def bind(inputs: Arrays) -> Call:
            if not scratch:
                scratch.append(torch.empty_like(inputs.k))
            return lambda: scratch[0].copy_(inputs.k)

        yield Offer("torch copy_", bind, bound=True)


class Sdpa:
    """torch's scaled_dot_product_attention, for dense decoding, through one of its backends."""

    def __init__(self, name: str, backend: str) -> None:
        self.name, self._backend = name, backend

    def stand_ins(self, case: Any) -> None:
        return None

    def failures(self) -> tuple[type[Exception], ...]:
        return (RuntimeError,)

    def offers(self, case: Any) -> Iterator[Offer]:
        if not isinstance(case, Decode) or case.page:
            raise Missing("SDPA takes dense arrays of one length")
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        backend = getattr(SDPBackend, self._backend)
        grouped = case.heads != case.kv_heads

        def bind(inputs: Arrays) -> Call:
            def once() -> None:
                with sdpa_kernel(backend):
                    found = scaled_dot_product_attention(*_three(inputs), enable_gqa=grouped)
                inputs.c = found

            once()  # a backend that declines says so here
            return once

        yield Offer(self._backend.lower(), bind)


class Flash2Varlen:
    """FlashAttention-2 as torch ships it, for packed sequences."""

    name = "flash2"

    def stand_ins(self, case: Any) -> None:
        return None

    def failures(self) -> tuple[type[Exception], ...]:
        return (RuntimeError,)

    def offers(self, case: Any) -> Iterator[Offer]:
        if not isinstance(case, Packed):
            raise Missing("the operator without a batch is for packed sequences")
        import torch

        longest = max(case.lengths)
        attend = torch.ops.aten._flash_attention_forward

        def bind(inputs: Arrays) -> Call:
            q, k, v = (x[0].transpose(0, 1) for x in _three(inputs))
            starts = inputs.more["cu_seqlens"]

            def once() -> None:
                found = attend(q, k, v, starts, starts, longest, longest, 0.0, case.causal, False)
                inputs.c = found[0].transpose(0, 1)[None]

            return once

        yield Offer("_flash_attention_forward", bind)


def everyone(most: int) -> list[Any]:
    return [
        TawaServing(most),
        Copy(),
        Sdpa("cudnn", "CUDNN_ATTENTION"),
        Sdpa("flash2_sdpa", "FLASH_ATTENTION"),
        Flash2Varlen(),
    ]


# --- cases --------------------------------------------------------------------------------------

# batch, heads, kv_heads, head_dim, keys
DECODED = (
    (1, 32, 8, 128, 131072),
    (4, 32, 8, 128, 32768),
    (16, 32, 8, 128, 8192),
    (64, 32, 8, 128, 4096),
    (128, 32, 8, 128, 2048),
    (32, 16, 16, 128, 4096),
    (64, 64, 8, 64, 4096),
    (16, 32, 8, 256, 4096),
)
LENGTHS = {
    "equal 512": (512,) * 32,
    "equal 2048": (2048,) * 8,
    "halving": (8192, 4096, 2048, 1024, 512, 256, 128, 64, 64),
    "ramp": tuple(range(64, 1056, 31)),
    "skewed": (1, 3, 100, 37, 5000, 77, 2, 9000, 650),
}
SECTIONS = ("decode", "paged", "varlen", "varlen_causal")


def cases_of(sections: str, dtypes: str, only: str) -> list[Any]:
    """Return the cases of comma-separated sections and dtypes whose text matches `only`."""
    names = SECTIONS if sections == "all" else sections.split(",")
    cases: list[Any] = []
    for dtype in dtypes.split(","):
        if "decode" in names:
            cases += [Decode(*sizes, dtype=dtype) for sizes in DECODED]
        if "paged" in names:
            cases += [
                Decode(*sizes, page=page, dtype=dtype)
                for sizes in DECODED[:4]
                for page in (256, 64, 16)
            ]
        for name, causal in (("varlen", False), ("varlen_causal", True)):
            if name in names:
                cases += [
                    Packed(label, lengths, heads, dim, causal, dtype)
                    for dim, heads in ((128, 16), (64, 32))
                    for label, lengths in LENGTHS.items()
                ]
    return [case for case in cases if re.search(only, str(case))]


if __name__ == "__main__":
    suite = gemm.Suite(
        "Attention of a server",
        __doc__ or "",
        ["all", *SECTIONS],
        ("f16", "bf16"),
        ("all", "f16"),
        cases_of,
        everyone,
    )
    sys.exit(gemm.main(suite))
