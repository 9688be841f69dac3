"""Peers in C++ that `native/build.sh` builds from their public sources, called through ctypes.

`TAWA_PEERS` names the folder of the libraries. FlashAttention-3 is the original (head_dim 64 and
128, f16, dense batches); CUTLASS's convolutions are its implicit GEMM for Hopper, forward, no
groups, in the tiles that `native/cutlass_conv.cu` lists.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_float, c_int, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from harness import Call, Missing


@cache
def _library(name: str) -> ctypes.CDLL:
    folder = os.environ.get("TAWA_PEERS", "")
    path = Path(folder) / f"lib{name}.so"
    if not folder or not path.exists():
        raise Missing(f"TAWA_PEERS names no folder with {path.name} (native/build.sh builds it)")
    return ctypes.CDLL(str(path))


def flash_attention3(q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    """Return a call of FlashAttention-3 that returns its output, (batch, heads, length, head_dim).

    Takes f16 arrays of that shape, and copies them once to the order of axes that it is called in.
    Raises `Missing` where the library or the head_dim is not built.
    """
    import torch

    forward = _library("fa3").fa3_forward
    batch, heads, length, dim = q.shape
    if dim not in (64, 128) or q.dtype != torch.float16:
        raise Missing(f"head_dim {dim} of {q.dtype} is not built")
    arrays = [each.transpose(1, 2).contiguous() for each in (q, k, v)]
    out = torch.empty_like(arrays[0])
    lse = torch.empty(batch, heads, length, device="cuda")
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    pointers = [c_void_p(each.data_ptr()) for each in (*arrays, out, lse, counter)]
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    numbers = [batch, length, heads, dim, int(causal), c_float(dim**-0.5), sms]

    def call(held: Any = (arrays, lse, counter)) -> Any:
        stream = c_void_p(torch.cuda.current_stream().cuda_stream)
        if forward(*pointers, *numbers, stream):
            raise RuntimeError(f"FlashAttention-3 is not built for head_dim {dim}")
        return out.transpose(1, 2)

    return call


class _Geometry(ctypes.Structure):
    """`Geometry` of `native/cutlass_conv.cu`."""

    _fields_ = tuple(
        (name, c_int)
        for name in ("n", "h", "w", "c", "co", "fh", "fw", "stride", "padding", "dilation")
    )


def cutlass_convolutions(
    x: Any, w: Any, y: Any, stride: int, padding: int, dilation: int
) -> Iterator[tuple[str, Call]]:
    """Yield a call of each tile of CUTLASS's that takes a convolution, by its name.

    x is (n, h, w, c), w (co, fh, fw, c), y (n, ho, wo, co), dense, all f16 or all bf16. Raises
    `Missing` where the library of the type is not built.
    """
    import torch

    kind = {torch.float16: "half_t", torch.bfloat16: "bfloat16_t"}[x.dtype]
    library = _library(f"cutlass_conv_{kind}")
    library.cutlass_conv_name.restype = c_char_p
    library.cutlass_conv_prepare.restype = c_void_p
    geometry = _Geometry(*x.shape, *w.shape[:3], stride, padding, dilation)
    pointers = [c_void_p(each.data_ptr()) for each in (x, w, y)]
    which = 0
    while name := library.cutlass_conv_name(which):
        made = library.cutlass_conv_prepare(which, *pointers, byref(geometry))

        def call(which: int = which, made: int | None = made, held: Any = (x, w, y)) -> None:
            stream = c_void_p(torch.cuda.current_stream().cuda_stream)
            if status := library.cutlass_conv_launch(which, c_void_p(made), stream):
                raise RuntimeError(f"CUTLASS's status {status}")

        if made:
            yield name.decode(), call
        which += 1
