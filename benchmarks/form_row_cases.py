"""The cases of `forms.py` that the memory bounds: kernels of users at real sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import form_kernels as kernels
import form_rows
import form_walks
from form_cases import SMS, Array, Form, Tensors, whole, zeros


def memory() -> Iterator[Form]:
    """Yield kernels that the memory bounds."""
    rows = 8192

    def walk(label: str, kernel: Any, grid: int, wanted: Callable[[Tensors], Any], n: int) -> Form:
        arguments = {"x_ptr": Array((rows, n), "f32"), "o_ptr": Array((rows, n), "f32", zeros)}
        sizes = {"rows": rows} if grid != rows else {}
        return Form(
            label,
            kernel,
            (grid,),
            arguments | sizes | {"columns": n},
            {"BLOCK": 4096},
            ("o_ptr",),
            lambda t: [wanted(t["x_ptr"].double())],
            amount=8.0 * rows * n,
            dtype="f32",
            unit="GB/s",
        )

    for n in (4096, 3001):
        softmax = kernels.softmax_rows
        yield walk(f"softmax, rows of {n}", softmax, 4 * SMS, lambda x: x.softmax(1), n)
    yield walk("running sums", kernels.running_sums, rows, lambda x: x.cumsum(1), 4096)
    yield _layer_norm("layer norm", kernels.layer_norm, rows, 8192, 8192)
    yield _layer_norm("layer norm, walking", form_rows.layer_norm_walk, rows, 8192, 1024)
    yield _cross_entropy(2048, 128256)
    yield _softmax_walk(2048, 65536)
    yield _rms_norm(rows, 4096)
    yield _norm_gradient(rows, 4096)
    yield _swiglu(4096, 11008)
    yield _rotary(16384, 2048, 32, 128)
    yield _dropout(1 << 26)
    yield _quantize_groups(1 << 19, 128)
    yield _quantize_rows(8192, 8192)
    yield _best_of_rows(8192, 8192)
    yield _transpose(8192, 8192)
    yield _selective_scan(8, 1024, 8192)
    yield _embedding(16384, 32000, 4096)
    yield _embedding_gradient(8192, 4096, 4096)
    yield _column_sums(65536, 2048)
    yield _group_norm(32, 512, 4096, 32)
    yield _adam(1 << 25)
    yield _fused_points(16384)


def _layer_norm(label: str, kernel: Any, rows: int, n: int, block: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        from torch.nn.functional import layer_norm

        x, w, b = (t[name].double() for name in ("x_ptr", "w_ptr", "b_ptr"))
        return [layer_norm(x, (n,), w, b, 1e-5)]

    return Form(
        label,
        kernel,
        (rows,),
        {
            "x_ptr": Array((rows, n)),
            "w_ptr": Array((n,)),
            "b_ptr": Array((n,)),
            "o_ptr": Array((rows, n), fill=zeros),
            "columns": n,
            "eps": 1e-5,
        },
        {"BLOCK": block},
        ("o_ptr",),
        wanted,
        amount=4.0 * rows * n,
        unit="GB/s",
    )


def _cross_entropy(rows: int, n: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        import torch

        x, label = t["x_ptr"].double(), t["label_ptr"]
        grad = x.softmax(1)
        grad[torch.arange(rows, device="cuda"), label] -= 1
        return [torch.nn.functional.cross_entropy(x, label, reduction="none"), grad]

    return Form(
        "cross entropy and gradient",
        kernels.cross_entropy,
        (rows,),
        {
            "x_ptr": Array((rows, n), "bf16"),
            "label_ptr": Array((rows,), "i64", whole(0, n, rows)),
            "loss_ptr": Array((rows,), "f32", zeros),
            "grad_ptr": Array((rows, n), "bf16", zeros),
            "columns": n,
        },
        {"BLOCK": 16384},
        ("loss_ptr", "grad_ptr"),
        wanted,
        amount=6.0 * rows * n,
        dtype="bf16",
        unit="GB/s",
    )


def _form(
    label: str,
    kernel: Any,
    grid: tuple[int, ...],
    arguments: dict[str, Any],
    constants: dict[str, Any],
    wanted: Callable[[Tensors], list[Any]],
    amount: float,
    **more: Any,
) -> Form:
    """Return a form whose outputs are the arrays made of zeros."""
    out = [name for name, each in arguments.items() if isinstance(each, Array)]
    out = [name for name in out if arguments[name].fill is zeros]
    given = {"out": tuple(out), "dtype": "f16", "unit": "GB/s", **more}
    return Form(label, kernel, grid, arguments, constants, wanted=wanted, amount=amount, **given)


def _softmax_walk(rows: int, n: int) -> Form:
    return _form(
        "softmax, walking rows of 65536",
        form_rows.softmax_walk,
        (rows,),
        {"x_ptr": Array((rows, n)), "o_ptr": Array((rows, n), fill=zeros), "columns": n},
        {"BLOCK": 8192},
        lambda t: [t["x_ptr"].double().softmax(1)],
        6.0 * rows * n,
    )


def _rms_norm(rows: int, n: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        r = t["x_ptr"].double() + t["r_ptr"].double()
        scale = (r.square().mean(1, keepdim=True) + 1e-5).rsqrt()
        return [r, r * scale * t["w_ptr"].double()]

    return _form(
        "RMS norm of a sum",
        form_rows.rms_norm_added,
        (rows,),
        {
            "x_ptr": Array((rows, n), "bf16"),
            "r_ptr": Array((rows, n), "bf16"),
            "w_ptr": Array((n,), "bf16"),
            "o_ptr": Array((rows, n), "bf16", zeros),
            "columns": n,
            "eps": 1e-5,
        },
        {"BLOCK": n},
        wanted,
        8.0 * rows * n,
        out=("r_ptr", "o_ptr"),
        dtype="bf16",
    )


def _norm_gradient(rows: int, n: int) -> Form:
    programs = 2 * SMS

    def deviations(t: Tensors) -> Any:
        return (t["x_ptr"].double().square().mean(1) + 1e-5).rsqrt()

    def wanted(t: Tensors) -> list[Any]:
        x, w, dy, r = (t[name].double() for name in ("x_ptr", "w_ptr", "dy_ptr", "r_ptr"))
        along = (x * dy * w).mean(1, keepdim=True)
        r = r[:, None]
        dx = (dy * w - x * (along * r * r)) * r
        parts = [(dy * x * r)[first::programs].sum(0) for first in range(programs)]
        return [dx, _stack(parts)]

    return _form(
        "gradients of RMS norm",
        form_rows.norm_gradient,
        (programs,),
        {
            "x_ptr": Array((rows, n), "bf16"),
            "w_ptr": Array((n,), "bf16"),
            "dy_ptr": Array((rows, n), "bf16"),
            "r_ptr": Array((rows,), "f32", deviations),
            "dx_ptr": Array((rows, n), "bf16", zeros),
            "dw_ptr": Array((programs, n), "f32", zeros),
            "rows": rows,
            "columns": n,
        },
        {"BLOCK": n},
        wanted,
        6.0 * rows * n + 4.0 * programs * n,
        dtype="bf16",
    )


def _stack(parts: list[Any]) -> Any:
    import torch

    return torch.stack(parts)


def _swiglu(rows: int, n: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        left, right = t["x_ptr"].double().chunk(2, 1)
        return [left * left.sigmoid() * right]

    return _form(
        "SwiGLU",
        form_rows.swiglu,
        (rows, ceil(n / 1024)),
        {"x_ptr": Array((rows, 2 * n), "bf16"), "o_ptr": Array((rows, n), "bf16", zeros)}
        | {"columns": n},
        {"BLOCK": 1024},
        wanted,
        6.0 * rows * n,
        dtype="bf16",
    )


def _rotary(tokens: int, s: int, heads: int, d: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        a, b = t["q_ptr"].double().chunk(2, 2)
        cos, sin = (
            t[name].double().repeat(tokens // s, 1)[:, None] for name in ("cos_ptr", "sin_ptr")
        )
        return [_beside(a * cos - b * sin, b * cos + a * sin)]

    return _form(
        "rotary embedding",
        form_rows.rotary,
        (tokens,),
        {
            "q_ptr": Array((tokens, heads, d), "bf16"),
            "cos_ptr": Array((s, d // 2), "bf16"),
            "sin_ptr": Array((s, d // 2), "bf16"),
            "S": s,
        },
        {"H": heads, "D": d},
        wanted,
        4.0 * tokens * heads * d,
        out=("q_ptr",),
        dtype="bf16",
    )


def _beside(a: Any, b: Any) -> Any:
    import torch

    return torch.cat([a, b], 2)


def _dropout(n: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        return [_kept(n, 123) * t["x_ptr"].double() / 0.5]

    return _form(
        "dropout from a seed",
        form_rows.dropout,
        (n // 1024,),
        {"x_ptr": Array((n,)), "o_ptr": Array((n,), fill=zeros), "n": n, "p": 0.5, "seed": 123},
        {"BLOCK": 1024},
        wanted,
        4.0 * n,
    )


def _kept(n: int, seed: int) -> Any:
    """Return which of n elements `tl.rand` keeps at one half: philox of 10 rounds, its first word.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    import torch

    low = (1 << 32) - 1

    def product(a: Any, b: int) -> tuple[Any, Any]:
        """Return both words of a 64-bit product; halves of b keep every step below 2 ** 63."""
        top, bottom = a * (b >> 16), a * (b & 0xFFFF)
        top = top + (bottom >> 16)
        return top >> 16, ((top << 16) | (bottom & 0xFFFF)) & low

    c0 = torch.arange(n, device="cuda", dtype=torch.int64)
    c1 = c2 = c3 = torch.zeros_like(c0)
    k0, k1 = seed & low, seed >> 32
    for _ in range(10):
        high0, low0 = product(c0, 0xD2511F53)
        high1, low1 = product(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    signed = torch.where(c0 >= 1 << 31, c0 - (1 << 32), c0)
    positive = torch.where(signed < 0, -signed - 1, signed)
    return positive.float() * 4.6566127342e-10 > 0.5


def _quantize_groups(groups: int, group: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        import torch

        x = t["x_ptr"].view(groups, group).float()
        scale = x.abs().amax(1).clamp(min=1e-10) / 448.0
        return [(x / scale[:, None]).to(torch.float8_e4m3fn), scale]

    return _form(
        "fp8 by groups",
        form_rows.quantize_groups,
        (groups // 16,),
        {
            "x_ptr": Array((groups * group,), "bf16"),
            "o_ptr": Array((groups * group,), "e4m3", zeros),
            "s_ptr": Array((groups,), "f32", zeros),
        },
        {"GROUP": group, "BLOCK": 16},
        wanted,
        3.0 * groups * group + 4.0 * groups,
        dtype="e4m3",
    )


def _quantize_rows(rows: int, n: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        x = t["x_ptr"].float()
        scale = x.abs().amax(1) / 127.0
        q = x / scale[:, None]
        return [(q + q.sign() * 0.5).trunc(), scale]

    return _form(
        "int8 by rows",
        form_rows.quantize_rows,
        (rows,),
        {
            "x_ptr": Array((rows, n), "bf16"),
            "o_ptr": Array((rows, n), "i8", zeros),
            "s_ptr": Array((rows,), "f32", zeros),
            "columns": n,
        },
        {"BLOCK": n},
        wanted,
        3.0 * rows * n,
        dtype="bf16",
    )


def _best_of_rows(rows: int, n: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        return list(t["x_ptr"].max(1))

    return _form(
        "largest of rows",
        form_rows.best_of_rows,
        (rows,),
        {
            "x_ptr": Array((rows, n), "f32"),
            "o_ptr": Array((rows,), "f32", zeros),
            "i_ptr": Array((rows,), "i32", zeros),
            "columns": n,
        },
        {"BLOCK": n},
        wanted,
        4.0 * rows * n,
        dtype="f32",
    )


def _transpose(m: int, n: int) -> Form:
    return _form(
        "transpose",
        form_rows.transpose,
        (ceil(m / 64), ceil(n / 64)),
        {"x_ptr": Array((m, n)), "o_ptr": Array((n, m), fill=zeros), "M": m, "N": n},
        {"BM": 64, "BN": 64},
        lambda t: [t["x_ptr"].double().t()],
        4.0 * m * n,
    )


def _selective_scan(batch: int, steps: int, d: int) -> Form:
    def rates(_: Tensors) -> Any:
        import torch

        return torch.rand(batch, steps, d, device="cuda")

    def wanted(t: Tensors) -> list[Any]:
        import torch

        x, dt = t["x_ptr"].double(), t["dt_ptr"].double()
        decay = (dt * t["a_ptr"].double()).exp()
        h = torch.zeros(batch, d, device="cuda", dtype=torch.float64)
        out = torch.empty_like(x)
        for step in range(steps):
            h = h * decay[:, step] + dt[:, step] * x[:, step]
            out[:, step] = h
        return [out]

    return _form(
        "selective scan",
        form_rows.selective_scan,
        (ceil(d / 128), batch),
        {
            "x_ptr": Array((batch, steps, d), "bf16"),
            "dt_ptr": Array((batch, steps, d), "bf16", rates),
            "a_ptr": Array((d,), "f32", lambda t: -t["dt_ptr"][0, 0].float() - 0.1),
            "o_ptr": Array((batch, steps, d), "bf16", zeros),
            "T": steps,
            "D": d,
        },
        {"BD": 128},
        wanted,
        6.0 * batch * steps * d,
        dtype="bf16",
    )


def _embedding(rows: int, words: int, n: int) -> Form:
    return _form(
        "embedding",
        form_rows.embedding,
        (rows,),
        {
            "id_ptr": Array((rows,), "i64", whole(0, words, rows)),
            "w_ptr": Array((words, n), "bf16"),
            "o_ptr": Array((rows, n), "bf16", zeros),
            "columns": n,
        },
        {"BLOCK": 1024},
        lambda t: [t["w_ptr"][t["id_ptr"]]],
        4.0 * rows * n,
        dtype="bf16",
    )


def _embedding_gradient(rows: int, words: int, n: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        import torch

        out = torch.zeros(words, n, device="cuda", dtype=torch.float64)
        return [out.index_add_(0, t["id_ptr"], t["g_ptr"].double())]

    return _form(
        "embedding, gradient by atomics",
        form_rows.embedding_gradient,
        (rows, ceil(n / 1024)),
        {
            "id_ptr": Array((rows,), "i64", whole(0, words, rows)),
            "g_ptr": Array((rows, n), "bf16"),
            "o_ptr": Array((words, n), "f32", zeros),
            "columns": n,
        },
        {"BLOCK": 1024},
        wanted,
        2.0 * rows * n + 8.0 * min(rows, words) * n,
        dtype="bf16",
        start=0.0,
    )


def _column_sums(m: int, n: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        x = t["x_ptr"].double()
        return [x.sum(0), x.square().sum(0)]

    return _form(
        "sums of columns",
        form_rows.column_sums,
        (n // 128, 32),
        {
            "x_ptr": Array((m, n), "bf16"),
            "s_ptr": Array((n,), "f32", zeros),
            "q_ptr": Array((n,), "f32", zeros),
            "M": m,
            "N": n,
        },
        {"BM": 32, "BN": 128},
        wanted,
        2.0 * m * n,
        dtype="bf16",
        start=0.0,
    )


def _group_norm(batch: int, channels: int, pixels: int, groups: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        from torch.nn.functional import group_norm

        x, w, b = (t[name].double() for name in ("x_ptr", "w_ptr", "b_ptr"))
        return [group_norm(x, groups, w, b, 1e-5)]

    return _form(
        "group norm",
        form_rows.group_norm,
        (batch * groups,),
        {
            "x_ptr": Array((batch, channels, pixels), "bf16"),
            "w_ptr": Array((channels,), "bf16"),
            "b_ptr": Array((channels,), "bf16"),
            "o_ptr": Array((batch, channels, pixels), "bf16", zeros),
            "size": channels // groups * pixels,
            "C": channels,
            "HW": pixels,
            "GROUPS": groups,
            "eps": 1e-5,
        },
        {"BLOCK": 4096},
        wanted,
        4.0 * batch * channels * pixels,
        dtype="bf16",
    )


def _adam(n: int) -> Form:
    rate, beta1, beta2, eps, decay = 1e-3, 0.9, 0.95, 1e-8, 0.1

    def moments(_: Tensors) -> Any:
        import torch

        return torch.rand(n, device="cuda")

    def wanted(t: Tensors) -> list[Any]:
        w, g, m, v = (t[name].double() for name in ("w_ptr", "g_ptr", "m_ptr", "v_ptr"))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        w = w * (1 - rate * decay) - rate * m / (v.sqrt() + eps)
        return [w, m, v, w]

    return _form(
        "AdamW",
        form_rows.adam,
        (n // 1024,),
        {
            "w_ptr": Array((n,), "f32"),
            "g_ptr": Array((n,), "bf16"),
            "m_ptr": Array((n,), "f32"),
            "v_ptr": Array((n,), "f32", moments),
            "o_ptr": Array((n,), "bf16", zeros),
            "n": n,
            "rate": rate,
            "beta1": beta1,
            "beta2": beta2,
            "eps": eps,
            "decay": decay,
        },
        {"BLOCK": 1024},
        wanted,
        28.0 * n,
        out=("w_ptr", "m_ptr", "v_ptr", "o_ptr"),
        dtype="bf16",
    )


def _fused_points(rows: int) -> Form:
    n, block = 4096, 1024
    return Form(
        "fused points",
        form_walks.fused_points,
        (rows * n // block,),
        {
            "x_ptr": Array((rows, n)),
            "r_ptr": Array((rows,), "f32"),
            "w_ptr": Array((n,)),
            "b_ptr": Array((n,)),
            "o_ptr": Array((rows, n), fill=zeros),
            "total": rows * n,
        },
        {"BLOCK": block},
        ("o_ptr",),
        lambda t: [
            t["x_ptr"].double() * t["r_ptr"].double()[:, None] * t["w_ptr"].double()
            + t["b_ptr"].double()
        ],
        amount=4.0 * rows * n,
        unit="GB/s",
    )
