"""Attention forward beside its peers, on one GPU, in one run.

    python benchmarks/attention.py --section d128,d128_causal --dtype f16
    python benchmarks/attention.py --section all --budget 560
    python benchmarks/attention.py --section all --dry      (compiles everything, times nothing)
    python benchmarks/attention.py --section d128,d256 --dtype e4m3    (beside our own f16)

Hidden size 2048 and 16k tokens in all, at sequence lengths from 512 to 16k; flops are
4 * batch * heads * length^2 * head_dim, half of them under a causal mask. How figures are made is
said in harness.py; errors are measured on a sample of heads, and every output must be finite.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gemm
import peers as who
from fa3 import FlashAttention3
from harness import OUTPUT, Call, Case, Missing, empty_inputs, torch_dtype
from peers import Offer
from triton_peers import TritonPeer

HIDDEN, TOKENS = 2048, 16384
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
SECTIONS = {
    f"d{dim}{'_causal' if causal else ''}": (dim, causal)
    for dim in (64, 128, 256)
    for causal in (False, True)
}
SAMPLED_HEADS = 4
NARROW = {"e4m3": "f8e4m3"}
"""Types of 8 bits, by the names tawa has for them."""


@dataclass(slots=True)
class Arrays:
    """One set of tensors on the GPU, (batch, heads, length, head_dim).

    `out` is for peers that write in place; `c` is what is checked: `out`, or what a peer returned.
    """

    q: Any
    k: Any
    v: Any
    out: Any
    c: Any = None

    def to_write(self) -> Any:
        """Return the output of a peer that writes in place, and let it be checked."""
        self.c = self.out
        return self.out


@dataclass(frozen=True, slots=True)
class Attention:
    """One problem of the benchmark: head_dim, sequence length, mask."""

    dtype: str
    head_dim: int
    length: int
    causal: bool
    label: str = ""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return TOKENS // self.length, HIDDEN // self.head_dim, self.length, self.head_dim

    @property
    def flops(self) -> float:
        batch, heads, length, dim = self.sizes
        return 4.0 * batch * heads * length * length * dim / (2 if self.causal else 1)

    @property
    def shape(self) -> str:
        return f"S{self.length}"

    @property
    def group(self) -> str:
        return f"{self.dtype} D{self.head_dim} {'causal' if self.causal else 'full'}"

    def __str__(self) -> str:
        return f"{self.group} {self.shape}"

    def make_inputs(self) -> list[Arrays]:
        """Return two sets of random normal arrays: each alone exceeds the L2 cache."""
        import torch

        generator = torch.Generator(device="cuda")
        generator.manual_seed(1234)
        kind = torch_dtype(self.dtype)

        def normal() -> Any:
            wide = torch.float16 if self.dtype in NARROW else kind
            empty = torch.empty(self.sizes, device="cuda", dtype=wide)
            return empty.normal_(generator=generator).to(kind)

        def output() -> Any:
            return torch.empty(self.sizes, device="cuda", dtype=torch_dtype(OUTPUT[self.dtype]))

        return [Arrays(normal(), normal(), normal(), output()) for _ in "ab"]

    def reference(self, inputs: Arrays) -> Reference:
        return Reference(self, inputs)


class Reference:
    """Attention in float64 of a few heads of one set, held in float32."""

    def __init__(self, case: Attention, inputs: Arrays) -> None:
        batch, heads, *_ = case.sizes
        pairs = batch * heads
        steps = [i * (pairs - 1) / (SAMPLED_HEADS - 1) for i in range(SAMPLED_HEADS)]
        chosen = sorted({round(step) for step in steps})
        places = [divmod(pair, heads) for pair in chosen]
        self._want = {at: _head(case, inputs, at).float() for at in places}
        self._norm = math.sqrt(sum(float(x.double().norm()) ** 2 for x in self._want.values()))

    def error(self, out: Any) -> float:
        """Return the relative Frobenius error over the sample; NaN if any output is not finite."""
        if not bool(out.isfinite().all()):
            return math.nan
        total = sum(
            float((out[at].double() - want.double()).norm()) ** 2 for at, want in self._want.items()
        )
        return math.sqrt(total) / self._norm


def _head(case: Attention, inputs: Arrays, at: tuple[int, int]) -> Any:
    """Return one head in float64, in blocks of rows."""
    import torch

    q, k, v = (each[at].double() for each in (inputs.q, inputs.k, inputs.v))
    columns = torch.arange(case.length, device=q.device)
    parts: list[Any] = []
    for start in range(0, case.length, 2048):
        scores = q[start : start + 2048] @ k.t() / math.sqrt(case.head_dim)
        if case.causal:
            rows = torch.arange(start, start + scores.shape[0], device=q.device)
            scores.masked_fill_(columns[None, :] > rows[:, None], -math.inf)
        parts.append(torch.softmax(scores, -1) @ v)
    return torch.cat(parts)


# --- peers --------------------------------------------------------------------------------------


class TawaAttention(who.Tawa):
    """tawa.kernels.attention: every variant it would try, and a few it would not."""

    def stand_ins(self, case: Any) -> Arrays:
        import tawa

        kinds = (*[case.dtype] * 3, OUTPUT[case.dtype])
        return Arrays(*(tawa.array(case.sizes, NARROW.get(kind, kind)) for kind in kinds))

    def bound(self, inputs: Any, case: Any) -> Any:
        from tawa.kernels.attention import bind

        return bind(inputs.q, inputs.k, inputs.v, causal=case.causal, out=inputs.to_write())

    def variants(self, case: Any) -> list[Any]:
        from tawa.kernels.attention import Variant, variants

        found = list(variants(self.bound(self.stand_ins(case), case).problem))
        extra = [replace(found[0], pins=(*found[0].pins, ("schedule", "fine")))]
        if case.head_dim == 128:
            extra += [Variant(128, 64, case.causal, pins) for pins in ((), _TURNS)]
        return [*found, *extra][: self.most]

    def launches(self, case: Any, variant: Any, inputs: Any) -> list[Any]:
        from tawa.kernels.attention import prepare

        return [prepare(self.bound(inputs, case), variant)]


_TURNS = (("arrangement", "pingpong"),)


class TawaHalf(TawaAttention):
    """The same problem of 8-bit arrays in f16: what narrow operands are worth."""

    name = "tawa_f16"

    def offers(self, case: Any) -> Iterator[Offer]:
        if case.dtype not in NARROW:
            raise Missing("the arrays are no narrower")
        wide = replace(case, dtype="f16")
        for offer in super().offers(wide):
            yield Offer(offer.label, _widened(offer.bind), offer.warm)

    def stand_ins(self, case: Any) -> Arrays:
        return super().stand_ins(replace(case, dtype="f16"))


def _widened(bind: Callable[[Any], Call]) -> Callable[[Any], Call]:
    def bound(inputs: Arrays) -> Call:
        half = Arrays(*(each.half() for each in (inputs.q, inputs.k, inputs.v, inputs.out)))
        call = bind(half)

        def once() -> None:
            call()
            inputs.c = half.c

        return once

    return bound


class Sdpa(who.Plain):
    """torch's scaled_dot_product_attention through one of its backends."""

    def __init__(self, name: str, backend: str) -> None:
        self.name, self._backend = name, backend

    def offers(self, case: Attention) -> Iterator[Offer]:
        if case.dtype in NARROW:
            raise Missing("takes no 8-bit arrays")
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, self._backend)
        attend = torch.nn.functional.scaled_dot_product_attention

        def bind(inputs: Arrays) -> Call:
            def once() -> Any:
                with sdpa_kernel(backend):
                    return attend(inputs.q, inputs.k, inputs.v, is_causal=case.causal)

            once()  # a backend that declines says so here
            return _Into(once, inputs)

        yield Offer(self._backend.lower(), bind)


class _Into:
    """Calls what returns a new array; the array becomes the set's output, so that it is checked."""

    def __init__(self, call: Call, inputs: Arrays) -> None:
        self._call, self._inputs = call, inputs

    def __call__(self) -> None:
        self._inputs.c = self._call()


class TritonAttention(TritonPeer):
    """tawa.kernels.flash.attention_forward, the very same text, through Triton.

    With Triton's own warp specialization and without: whichever is faster counts.
    """

    name = "triton"

    def stand_ins(self, case: Any) -> Any:
        shapes = Case(case.dtype, TOKENS, HIDDEN, 64)  # tensors of as many elements
        return Arrays(*(empty_inputs(shapes).c.view(case.sizes) for _ in range(4)))

    def variants(self, case: Any) -> Iterator[tuple[str, Any]]:
        tiles = [(128, 128, 8), (128, 64, 8), (128, 64, 4)]
        if case.head_dim == 256:
            tiles = [(128, 64, 8), (64, 64, 4), (128, 32, 8)]
        for rows, columns, warps in tiles:
            for stages in (2, 3):
                for split in (True, False) if case.causal else (False,):
                    label = f"{rows}x{columns} stages={stages} warps={warps} split={split}"
                    yield label, (rows, columns, split, stages, warps, False)
                yield f"{label} specialized", (rows, columns, False, stages, warps, True)

    def launch(self, case: Any, variant: Any, inputs: Any) -> tuple[Any, Any, Any, Any]:
        from triton.tools.tensor_descriptor import TensorDescriptor

        from tawa.kernels.attention import Variant, bind, prepare
        from twin import twin

        rows, columns, split, stages, warps, specialized = variant
        operands = bind(inputs.q, inputs.k, inputs.v, causal=case.causal, out=inputs.to_write())
        ours = prepare(operands, Variant(rows, columns, split))
        blocks = [[1, 1, rows, case.head_dim], [1, 1, columns, case.head_dim]]
        maps = [
            TensorDescriptor.from_tensor(array, blocks[index in (1, 2)])
            for index, array in enumerate((inputs.q, inputs.k, inputs.v, inputs.out))
        ]
        own = set(twin(ours.kernel).arg_names)  # the other options are pins of our plans
        options = {name: value for name, value in ours.options.items() if name in own}
        options |= {"num_stages": stages, "num_warps": warps}
        return twin(ours.kernel, specialized), ours.grid, (*maps, *ours.arguments[4:]), options


def everyone(most: int) -> list[Any]:
    return [
        TawaAttention(most),
        TawaHalf(most),
        Sdpa("cudnn", "CUDNN_ATTENTION"),
        Sdpa("flash2", "FLASH_ATTENTION"),
        TritonAttention(),
        FlashAttention3(),
    ]


def cases_of(sections: str, dtypes: str, only: str) -> list[Attention]:
    """Return the cases of comma-separated sections and dtypes whose text matches `only`."""
    names: Sequence[str] = [*SECTIONS] if sections == "all" else sections.split(",")
    cases = [
        Attention(dtype, SECTIONS[name][0], length, SECTIONS[name][1])
        for name in names
        for dtype in dtypes.split(",")
        for length in LENGTHS
    ]
    return [case for case in cases if re.search(only, str(case))]


if __name__ == "__main__":
    names = ["all", *SECTIONS]
    title = "Attention forward"
    suite = gemm.Suite(
        title, __doc__ or "", names, ("f16", "bf16", *NARROW), ("all", "f16"), cases_of, everyone
    )
    sys.exit(gemm.main(suite))
