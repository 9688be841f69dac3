"""The cases of `forms.py` whose kernels have block pointers (form_blocks.py)."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import form_blocks as kernels
from form_cases import Array, Form, Tensors, form_product, zeros


def products() -> Iterator[Form]:
    """Yield products of block pointers and gated linear attention by chunks."""
    yield _product(8192, 8192, 2048, 128)
    yield _product(8192, 8192, 2048, 256)
    yield _states(8, 2048, 16, 128)
    yield _outputs(8, 2048, 16, 128)


def _product(m: int, n: int, k: int, bn: int) -> Form:
    label = f"product of block pointers, 128 x {bn}"
    grid, tile = (ceil(m / 128) * ceil(n / bn),), {"BM": 128, "BN": bn, "BK": 64}
    return form_product(label, kernels.block_product, grid, (m, n, k), **tile, GROUP=8)


_CHUNK = 64


def _gates(batch: int, t: int, heads: int) -> Any:
    """Return a fill of sums of logarithms of gates, anew in each chunk."""

    def fill(_: Tensors) -> Any:
        import torch

        steps = torch.rand(batch, t // _CHUNK, _CHUNK, heads, device="cuda") * -0.1
        return steps.cumsum(2).view(batch, t, heads)

    return fill


def _states_of(t: Tensors, chunks: int) -> Any:
    """Return the states before all chunks, [batch, chunks, heads, K, V]."""
    import torch

    k, v, g = (t[name].double() for name in ("k_ptr", "v_ptr", "g_ptr"))
    k, v, g = (x.unflatten(1, (chunks, _CHUNK)) for x in (k, v, g))
    last = g[:, :, -1:]
    added = torch.einsum("bcthk,bcthv->bchkv", k, v * torch.exp(last - g)[..., None])
    kept = torch.exp(last[:, :, 0])[..., None, None]
    states = [torch.zeros_like(added[:, 0])]
    for chunk in range(chunks - 1):
        states.append(states[-1] * kept[:, chunk] + added[:, chunk])
    return torch.stack(states, 1)


def _states(batch: int, t: int, heads: int, d: int) -> Form:
    chunks = t // _CHUNK
    return Form(
        "gated linear attention, states",
        kernels.gated_states,
        (d // 64, d // 64, batch * heads),
        {
            "k_ptr": Array((batch, t, heads, d), "bf16", scale=0.1),
            "v_ptr": Array((batch, t, heads, d), "bf16"),
            "g_ptr": Array((batch, t, heads), "f32", _gates(batch, t, heads)),
            "h_ptr": Array((batch, chunks, heads, d, d), "bf16", zeros),
            "T": t,
        },
        {"H": heads, "K": d, "V": d, "BT": _CHUNK, "BK": 64, "BV": 64},
        ("h_ptr",),
        lambda tensors: [_states_of(tensors, chunks)],
        amount=2.0 * batch * t * heads * d * d,
        dtype="bf16",
    )


def _outputs(batch: int, t: int, heads: int, d: int) -> Form:
    chunks, scale = t // _CHUNK, d**-0.5

    def wanted(tensors: Tensors) -> list[Any]:
        import torch

        q, k, v, g = (tensors[name].double() for name in ("q_ptr", "k_ptr", "v_ptr", "g_ptr"))
        q, k, v, g = (x.unflatten(1, (chunks, _CHUNK)) for x in (q, k, v, g))
        before = torch.einsum("bcthk,bchkv->bcthv", q, tensors["h_ptr"].double())
        scores = torch.einsum("bcthk,bcshk->bchts", q, k)
        gates = g.transpose(2, 3)
        scores = scores * torch.exp(gates[..., :, None] - gates[..., None, :])
        within = torch.einsum("bchts,bcshv->bcthv", scores.tril(), v)
        return [((before * torch.exp(g)[..., None] + within) * scale).flatten(1, 2)]

    return Form(
        "gated linear attention, outputs",
        kernels.gated_outputs,
        (d // 64, chunks, batch * heads),
        {
            "q_ptr": Array((batch, t, heads, d), "bf16"),
            "k_ptr": Array((batch, t, heads, d), "bf16", scale=0.1),
            "v_ptr": Array((batch, t, heads, d), "bf16"),
            "h_ptr": Array((batch, chunks, heads, d, d), "bf16"),
            "g_ptr": Array((batch, t, heads), "f32", _gates(batch, t, heads)),
            "o_ptr": Array((batch, t, heads, d), "bf16", zeros),
            "scale": scale,
            "T": t,
        },
        {"H": heads, "K": d, "V": d, "BT": _CHUNK, "BK": 64, "BV": 64},
        ("o_ptr",),
        wanted,
        # What a chunk takes of itself is counted in full, though half of it is hidden.
        amount=2.0 * batch * t * heads * (d * d + 2 * _CHUNK * d),
        dtype="bf16",
    )
