"""FlashAttention-3 as a peer of `attention.py`, from whichever build of it is at hand.

Three builds are known: the original from `native/build.sh` (`TAWA_PEERS`, f16, head_dim 64 and
128), the package `flash_attn_interface` (dense arrays), and the library inside the wheel of vllm
0.20 (`TAWA_FA3` names its file, `_vllm_fa3_C.abi3.so`), which takes batches of variable length
only, and is slower than the others at short lengths. Those at hand are offered, by these names.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from harness import OUTPUT, Call, Missing, torch_dtype
from native_peers import flash_attention3
from peers import Offer, Plain


class Outputs(Protocol):
    """A set of arrays (batch, heads, length, head_dim) whose `c` is the output to be checked."""

    q: Any
    k: Any
    v: Any
    c: Any


class FlashAttention3(Plain):
    """FlashAttention-3; missing where neither build is there."""

    name = "fa3"

    def offers(self, case: Any) -> Iterator[Offer]:
        path, folder = os.environ.get("TAWA_FA3", ""), os.environ.get("TAWA_PEERS", "")
        if folder:
            yield Offer("original", _original(case))
        if path:
            yield Offer("vllm", _vllm(path, case))
        if path or folder:
            return
        try:
            import flash_attn_interface  # noqa: F401
        except ImportError:
            what = "flash_attn_interface is not installed, TAWA_FA3 and TAWA_PEERS are not set"
            raise Missing(what) from None
        yield Offer("flash_attn_func", _package(case))


def _original(case: Any) -> Any:
    def bind(inputs: Outputs) -> Call:
        forward = flash_attention3(inputs.q, inputs.k, inputs.v, case.causal)

        def once() -> None:
            inputs.c = forward()

        return once

    return bind


def _package(case: Any) -> Any:
    from flash_attn_interface import flash_attn_func

    def bind(inputs: Outputs) -> Call:
        q, k, v = (x.transpose(1, 2).contiguous() for x in (inputs.q, inputs.k, inputs.v))

        def once() -> None:
            found = flash_attn_func(q, k, v, causal=case.causal)
            inputs.c = (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

        return once

    return bind


def _vllm(path: str, case: Any) -> Any:
    import torch

    batch, heads, length, dim = case.sizes

    def bind(inputs: Outputs) -> Call:
        rows = torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device="cuda")
        dense = [x.transpose(1, 2).contiguous() for x in (inputs.q, inputs.k, inputs.v)]
        q, k, v = (x.view(batch * length, heads, dim) for x in dense)
        out = torch.empty_like(q, dtype=torch_dtype(OUTPUT[case.dtype]))
        packed = Packing(rows, length, rows, length)
        forward = vllm_call(path, (q, k, v, out), packed, dim**-0.5, case.causal)

        def once() -> None:
            forward()
            inputs.c = out.view(batch, length, heads, dim).transpose(1, 2)

        return once

    return bind


@dataclass(frozen=True, slots=True)
class Packing:
    """Where sequences lie: starts and the longest of the queries, starts or lengths of the keys.

    `table` names pages of keys; `metadata` is what the library's scheduler found out beforehand;
    `splits` 0 lets it choose.
    """

    starts: Any
    longest: int
    key_starts: Any
    longest_keys: int
    lengths: Any = None
    table: Any = None
    metadata: Any = None
    splits: int = 1


def vllm_library(path: str) -> Any:
    """Return the operators of the library inside vllm's wheel."""
    import torch

    ctypes.CDLL(path)  # registers torch.ops._vllm_fa3_C
    return torch.ops._vllm_fa3_C  # pyright: ignore[reportAttributeAccessIssue]


def vllm_call(path: str, arrays: Any, packing: Packing, scale: float, causal: bool) -> Call:
    """Return the call that writes `arrays[3]`: attention of q, k, v, (tokens, heads, head_dim)."""
    forward = vllm_library(path).fwd
    q, k, v, out = arrays
    where = (packing.starts, packing.key_starts, None, None, packing.lengths)
    longest = (packing.longest, packing.longest_keys)
    # No other queries, rotary embedding or scales of fp8; no window or soft cap.
    arguments = (q, k, v, None, None, None, out, *where, *longest, packing.table, *[None] * 8)
    window = (scale, causal, -1, -1, 0.0, True)
    after = (packing.metadata, packing.splits, None, 0, None, 1, 0, None)

    def once() -> None:
        forward(*arguments, *window, *after)

    return once
