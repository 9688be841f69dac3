# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`flash_attn_with_kvcache`: new keys and values into a cache, rotated, and attention over it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tawa.errors import ArgumentError
from tawa.kernels.rotary import place_rows
from tawa.torch.dispatch import finish
from tawa.torch.functional import attention, flash_options

# Elements of a program's tile, where there are as many.
_TILE = 4096


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Return attention of q [batch, length, heads, dim] over a cache, as flash_attn does.

    The cache is [batch, rows, heads, dim], its batch `cache_batch_idx[b]` where that is given, or
    with `block_table` [pages, rows of a page, heads, dim]. Batch b has the rows from
    `cache_leftpad[b]` to `cache_seqlens[b]`; new `k` and `v` [batch, length, heads, dim] are
    written into it, in place, from there on. With `rotary_cos` and `rotary_sin` [positions, half of
    the columns to rotate] new k and q are rotated by the rows where they stand, q under neither a
    causal mask nor a window by row `cache_seqlens[b]` alone. `num_splits` is chosen here.

    Raises `ArgumentError` for gradients, for a table beside `cache_batch_idx` or `cache_leftpad`,
    for rotation without new keys, and on the CPU for rows that the cache does not have; on a GPU
    such are not written.
    """
    given = (q, k_cache, v_cache, k, v)
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in given):
        raise ArgumentError(
            "no gradient of flash_attn_with_kvcache",
            why="caches are for inference",
            remedy="call it under torch.no_grad()",
        )
    if (k is None) != (v is None):
        raise ArgumentError("k and v go together")
    if block_table is not None:
        for name, each in (("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):
            if each is not None:
                raise ArgumentError(
                    f"{name} beside block_table", why="the table says where all keys lie"
                )
    elif cache_batch_idx is not None:  # each batch has one page
        block_table = cache_batch_idx[:, None]
    options = flash_options(0.0, softmax_scale, causal, window_size, softcap, alibi_slopes)
    ends: Tensor | None = None
    if isinstance(cache_seqlens, int):
        ends = torch.full((q.shape[0],), cache_seqlens, dtype=torch.int32, device=q.device)
    elif cache_seqlens is not None:
        ends = cache_seqlens.to(torch.int32)
    if k is not None and v is not None:
        if ends is None:
            raise ArgumentError(
                "new k and v without cache_seqlens", why="it says where they are written"
            )
        apart = causal or options["window"] is not None
        rows = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
        if apart:  # queries behind the last new key have positions of their own
            rows += max(0, q.shape[1] - k.shape[1])
        angles = _angles(q, rows, rotary_cos, rotary_sin)
        cached = (ends, block_table, True, True)
        place(k, k_cache, *angles, rotary_interleaved, *cached)
        place(v, v_cache, None, None, False, *cached)
        if angles[0] is not None:
            turned = torch.empty(q.shape, dtype=q.dtype, device=q.device)
            place(q, turned, *angles, rotary_interleaved, ends, None, apart, False)
            q = turned
        ends = ends + k.shape[1]
    elif rotary_cos is not None or rotary_sin is not None:
        raise ArgumentError(
            "rotary_cos and rotary_sin without new k and v",
            why="as in flash_attn, where new keys are rotated while they are written",
        )
    out, lse = attention(
        *(each.transpose(1, 2) for each in (q, k_cache, v_cache)),
        **options,
        lengths=ends,
        leftpad=None if cache_leftpad is None else cache_leftpad.to(torch.int32),
        block_table=None if block_table is None else block_table.to(torch.int32),
        return_lse=True,
    )
    out = out.transpose(1, 2)
    return (out, lse) if return_softmax_lse else out


def _angles(
    q: Tensor, rows: int, cos: Tensor | None, sin: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return cos and sin, of `rows` rows or more, as the kernel reads them."""
    if cos is None and sin is None:
        return None, None
    if cos is None or sin is None:
        raise ArgumentError("rotary_cos and rotary_sin go together")
    fits = cos.dim() == 2 and cos.shape == sin.shape and cos.dtype == sin.dtype
    if not fits or cos.shape[0] < rows or 2 * cos.shape[1] > q.shape[-1]:
        raise ArgumentError(
            f"rotary_cos is {cos.dtype} {tuple(cos.shape)}, rotary_sin {sin.dtype}"
            f" {tuple(sin.shape)}",
            why=f"both have one type and shape: a row for each of the {rows} rows of a batch's"
            " cache and for queries behind it, and half as many columns as are rotated, at most"
            f" {q.shape[-1] // 2}",
        )
    return cos.contiguous(), sin.contiguous()


@torch.library.custom_op("tawa::place", mutates_args=("y",))
def place(
    x: Tensor,
    y: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    interleaved: bool,
    starts: Tensor,
    table: Tensor | None,
    apart: bool,
    cache: bool,
) -> None:
    """Store x [batch, length, heads, dim], rotated where angles are given, to y, as
    `tawa.kernels.rotary.place_rows` does.
    """
    batch, length, heads, dim = x.shape
    if y.shape[2:] != x.shape[2:]:
        raise ArgumentError(
            f"new rows have {heads} heads of {dim}, the cache {tuple(y.shape[2:])}",
            why="a row has the heads and the head_dim of those beside it",
        )
    if y.stride(-1) != 1:
        raise ArgumentError(f"a cache has strides {y.stride()}", why="its rows must be contiguous")
    if 0 in x.shape:
        return
    x = x if x.stride(-1) == 1 else x.contiguous()
    starts = starts.contiguous()
    table = table if table is None or table.stride(-1) == 1 else table.contiguous()
    rows = y.shape[1] * (1 if table is None else table.shape[1])
    if cache and x.device.type == "cpu":
        _check_places(starts, length, rows, y, table)
    columns = 1 << (dim - 1).bit_length()
    block = 1 if length == 1 else max(1, _TILE // columns)
    place_rows[(-(-length // block), heads, batch)](
        *(x, y, cos, sin, starts, table),
        *(length, dim, *((0, 0) if cos is None else (cos.shape[1], cos.shape[0]))),
        *(y.shape[1], rows, y.shape[0], 0 if table is None else table.stride(0)),
        *(x.stride(0), x.stride(1), x.stride(2), y.stride(0), y.stride(1), y.stride(2)),
        ROTATE=cos is not None,
        INTERLEAVED=interleaved,
        APART=apart,
        CACHE=cache,
        BLOCK=block,
        COLUMNS=columns,
    )


@place.register_fake
def _place_fake(*_: Any) -> None:
    return None


finish(place)


def _check_places(
    starts: Tensor, length: int, rows: int, cache: Tensor, table: Tensor | None
) -> None:
    """Raise ArgumentError where new rows have no place in a cache on the CPU."""
    most = int(starts.max()) + length
    if int(starts.min()) < 0 or most > rows:
        raise ArgumentError(
            f"new rows end at {most}, from {int(starts.min())} on", why=f"a batch has {rows} rows"
        )
    if table is None:
        return
    where = (starts[:, None].long() + torch.arange(length)) // cache.shape[1]
    named = table.long().gather(1, where)
    if bool(((named < 0) | (named >= cache.shape[0])).any()):
        raise ArgumentError(
            f"new rows lie in the pages {int(named.min())} to {int(named.max())}",
            why=f"the cache has pages 0 to {cache.shape[0] - 1}",
        )
