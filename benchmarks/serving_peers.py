"""Who takes part in `serving.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import peers as who
from fa3 import Packing, vllm_call, vllm_library
from harness import ITEM_BYTES, Call, Missing
from peers import Offer
from serving_cases import Arrays, Decode, Packed, three


class TawaServing(who.Tawa):
    """tawa.kernels.attention: the variant it takes; it is not tuned where lengths change."""

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
        total, dim = case.starts[-1], case.head_dim

        def packed(heads: int) -> Any:
            strides = (total * heads * dim, dim, heads * dim, 1)
            return tawa.array((1, heads, total, dim), case.dtype, strides=strides)

        arrays = (packed(n) for n in (case.heads, case.kv_heads, case.kv_heads, case.heads))
        starts = tawa.array((len(case.starts),), "i32")
        return Arrays(*arrays, {"cu_seqlens": starts, "causal": case.causal})

    def bound(self, inputs: Any, case: Any) -> Any:
        from tawa.kernels.attention import bind

        return bind(*three(inputs), out=inputs.c, **inputs.more)

    def variants(self, case: Any) -> list[Any]:
        from tawa.kernels.attention import variants

        return list(variants(self.bound(self.stand_ins(case), case).problem))[:1]

    def launches(self, case: Any, variant: Any, inputs: Any) -> list[Any]:
        from tawa.kernels.attention import launches

        return launches(self.bound(inputs, case), variant)


class Copy(who.Plain):
    """A copy that moves as many bytes as decoding reads: what memory can do."""

    name = "copy"

    def offers(self, case: Any) -> Iterator[Offer]:
        if not isinstance(case, Decode):
            raise Missing("a copy bounds what reads much and computes little")
        import torch

        scratch: list[Any] = []
        count = int(case.bytes) // 2 // ITEM_BYTES[case.dtype]

        def bind(inputs: Arrays) -> Call:
            source = inputs.k.view(-1)[:count]
            if not scratch:
                scratch.append(torch.empty_like(source))
            return lambda: scratch[0].copy_(source)

        yield Offer("torch copy_", bind, bound=True)


class Sdpa(who.Plain):
    """torch's scaled_dot_product_attention, for dense decoding, through one of its backends."""

    def __init__(self, name: str, backend: str) -> None:
        self.name, self._backend = name, backend

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
                    found = scaled_dot_product_attention(*three(inputs), enable_gqa=grouped)
                inputs.c = found

            once()  # a backend that declines says so here
            return once

        yield Offer(self._backend.lower(), bind)


class Flash2Varlen(who.Plain):
    """FlashAttention-2 as torch ships it, for packed sequences."""

    name = "flash2"

    def offers(self, case: Any) -> Iterator[Offer]:
        if not isinstance(case, Packed):
            raise Missing("the operator without a batch is for packed sequences")
        import torch

        longest = max(case.lengths)
        attend = torch.ops.aten._flash_attention_forward

        def bind(inputs: Arrays) -> Call:
            q, k, v = (x[0].transpose(0, 1) for x in three(inputs))
            starts = inputs.more["cu_seqlens"]

            def once() -> None:
                found = attend(q, k, v, starts, starts, longest, longest, 0.0, case.causal, False)
                inputs.c = found[0].transpose(0, 1)[None]

            return once

        yield Offer("_flash_attention_forward", bind)


class FlashAttention3Serving(who.Plain):
    """FlashAttention-3 as the wheel of vllm has it (`TAWA_FA3` names its library).

    Keys lie as it wants them, (tokens, heads, head_dim). It splits the keys as it sees fit, and
    when decoding also after its scheduler looked at the lengths, whose time is not counted: vllm
    asks it once for all layers.
    """

    name = "fa3"

    def offers(self, case: Any) -> Iterator[Offer]:
        path = os.environ.get("TAWA_FA3", "")
        if not path:
            raise Missing("TAWA_FA3 is not set")
        if isinstance(case, Packed):
            yield Offer("packed", lambda inputs: _fa3_packed(path, case, inputs))
            return
        yield Offer("splits", lambda inputs: _fa3_decode(path, case, inputs, False))
        yield Offer("splits, scheduled", lambda inputs: _fa3_decode(path, case, inputs, True))
        yield Offer("one split", lambda inputs: _fa3_decode(path, case, inputs, False, 1))


def _fa3_packed(path: str, case: Packed, inputs: Arrays) -> Call:
    q, k, v, out = (x[0].transpose(0, 1) for x in (*three(inputs), inputs.c))
    starts, longest = inputs.more["cu_seqlens"], max(case.lengths)
    packing = Packing(starts, longest, starts, longest)
    return vllm_call(path, (q, k, v, out), packing, case.head_dim**-0.5, case.causal)


def _fa3_decode(path: str, case: Decode, inputs: Arrays, scheduled: bool, splits: int = 0) -> Call:
    import torch

    # (batch or pages, rows, heads, head_dim)
    k, v = (x.transpose(1, 2).contiguous() for x in (inputs.k, inputs.v))
    q, out = (x[:, :, 0] for x in (inputs.q, inputs.c))
    starts = torch.arange(case.batch + 1, device="cuda", dtype=torch.int32)
    lengths = torch.tensor(case.lengths, device="cuda", dtype=torch.int32)
    metadata = None
    if scheduled:
        sizes = (case.batch, 1, case.keys, case.heads, case.kv_heads, case.head_dim, case.head_dim)
        given = (q.dtype, lengths, starts, None, None, None, None, case.page or None, 0)
        # No mask, window or soft cap; any number of splits, heads packed as it likes.
        masks = (False, -1, -1, False, splits, None, 0)
        metadata = vllm_library(path).get_scheduler_metadata(*sizes, *given, *masks)
    table = inputs.more.get("block_table")
    packing = Packing(starts, 1, None, case.keys, lengths, table, metadata, splits)
    return vllm_call(path, (q, k, v, out), packing, case.head_dim**-0.5, False)


def everyone(most: int) -> list[Any]:
    return [
        TawaServing(most),
        Copy(),
        Sdpa("cudnn", "CUDNN_ATTENTION"),
        Sdpa("flash2_sdpa", "FLASH_ATTENTION"),
        Flash2Varlen(),
        FlashAttention3Serving(),
    ]
