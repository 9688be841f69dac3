# JAX's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`dot_product_attention`, in the place of `jax.nn`'s."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tawa.errors import ArgumentError
from tawa.jax.library import attention


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """Return attention as `jax.nn.dot_product_attention` does.

    Query is [batch, length, heads, dim], key and value [batch, keys, key heads, dim], or all
    without a batch; f16 and bf16, dims to 256. Query i stands at key i: for the causal mask and the
    window. Bias and mask are broadcast to [batch, heads, length, keys]; bias has a gradient. Rows
    that see no key are zero, where JAX's are the mean of all values. With `return_residual` (out,
    log-sum-exp [batch, length, heads]), the latter without a gradient.

    Raises `ArgumentError` for an `implementation`, which is tawa's, and for a window on whose left
    some queries would see nothing.
    """
    if implementation is not None:
        raise ArgumentError(
            f"implementation={implementation!r}",
            why="the kernels are tawa's",
            remedy="leave it out, or call jax.nn.dot_product_attention",
        )
    query, key, value = (jnp.asarray(each) for each in (query, key, value))
    if query.ndim not in (3, 4) or {key.ndim, value.ndim} != {query.ndim}:
        raise ArgumentError(
            f"query, key, value have {query.ndim}, {key.ndim} and {value.ndim} axes",
            why="they are (batch, length, heads, dim) or (length, heads, dim)",
        )
    given = [each if each.ndim == 4 else each[None] for each in (query, key, value)]
    q, k, v = (each.swapaxes(1, 2) for each in given)
    queries, keys = q.shape[2], k.shape[2]
    added = None if bias is None else _four("bias", bias)
    if key_value_seq_lengths is not None:
        there = jnp.arange(keys) < jnp.asarray(key_value_seq_lengths)[:, None, None, None]
        added = _hide(added, there)
    if mask is not None:
        added = _hide(added, _four("mask", mask))
    left, right = _window(local_window_size)
    right = 0 if is_causal else right
    if right is not None and keys > queries + right:  # nobody sees what is behind
        keys = queries + right
        k, v = k[:, :, :keys], v[:, :, :keys]
        added = added if added is None or added.shape[-1] == 1 else added[..., :keys]
    # tawa's last query stands at the last key.
    left = None if left is None else left + keys - queries
    right = None if right is None else right + queries - keys
    if left is not None and left < 0:
        raise ArgumentError(
            f"local_window_size={local_window_size} of {queries} queries over {keys} keys",
            why="the last queries see no key",
            remedy="leave these queries out: their rows are zero",
        )
    if added is not None:
        added = jnp.broadcast_to(added, (*added.shape[:3], keys))
    options: dict[str, Any] = {"scale": scale, "return_lse": True, "bias": added}
    options["window"] = None if left is None and right is None else (left, right)
    out, lse = attention(q, k, v, **options)
    out, lse = out.swapaxes(1, 2), jax.lax.stop_gradient(lse.swapaxes(1, 2).astype(key.dtype))
    if query_seq_lengths is not None:
        real = jnp.arange(queries) < jnp.asarray(query_seq_lengths)[:, None]
        out = jnp.where(real[..., None, None], out, 0)
        lse = jnp.where(real[..., None], lse, -jnp.inf)
    if query.ndim == 3:
        out, lse = out[0], lse[0]
    return (out, lse) if return_residual else out


def _window(size: int | tuple[int, int] | None) -> tuple[int | None, int | None]:
    """Return how many keys before and after its own a query sees; None: all."""
    match size:
        case None:
            return None, None
        case (left, right):
            return left, right
        case _:
            return size, size


def _four(name: str, array: Any) -> Any:
    """Return what is added to scores, or hides them, with four axes."""
    array = jnp.asarray(array)
    if name == "mask" and array.dtype != jnp.bool_:
        raise ArgumentError(f"mask holds {array.dtype.name}", why="numbers are added by bias")
    if array.ndim > 4:
        raise ArgumentError(f"{name} has {array.ndim} axes", why="it has four at most")
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def _hide(bias: Any, seen: Any) -> Any:
    return jnp.where(seen, jnp.float32(0) if bias is None else bias, -jnp.inf)
