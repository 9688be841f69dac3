"""The cases of `forms.py`: kernels of users at real sizes, their inputs and references."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, prod
from typing import Any

import form_attention
import form_kernels as kernels
import form_walks
from harness import ITEM_BYTES, L2_BYTES, torch_dtype

Tensors = dict[str, Any]
SMS = 132


@dataclass(frozen=True, slots=True)
class Array:
    """An argument in memory: `fill(tensors made before it)` gives its values, else normal ones."""

    shape: tuple[int, ...]
    dtype: str = "f16"
    fill: Callable[[Tensors], Any] | None = None
    scale: float = 1.0

    @property
    def bytes(self) -> int:
        return prod(self.shape) * {"i8": 1, "i32": 4, "i64": 8, **ITEM_BYTES}[self.dtype]

    def make(self, made: Tensors) -> Any:
        import torch

        integers = {"i8": torch.int8, "i32": torch.int32, "i64": torch.int64}
        dtype = integers.get(self.dtype) or torch_dtype(self.dtype)
        if self.fill is zeros:
            return torch.zeros(self.shape, device="cuda", dtype=dtype)
        if self.fill is not None:
            return self.fill(made).to("cuda", dtype)
        return (torch.randn(self.shape, device="cuda") * self.scale).to(dtype)


@dataclass(slots=True)
class Outputs:
    """What a kernel writes; `start` is what it must find there, None where it does not look.

    `found` are copies of what it reads and then overwrites, by their place among the tensors.
    """

    tensors: list[Any]
    start: float | None
    found: Mapping[int, Any] = field(default_factory=dict[int, Any])

    def fill_(self, value: float) -> None:
        for index, tensor in enumerate(self.tensors):
            if index in self.found:
                tensor.copy_(self.found[index])
            elif self.start is None:
                tensor.fill_(value if tensor.is_floating_point() else -1)
            else:
                tensor.fill_(self.start)


@dataclass(slots=True)
class Set:
    """One set of tensors by name, and the outputs among them."""

    tensors: Tensors
    c: Outputs


class Wanted:
    """The right outputs of one set."""

    def __init__(self, tensors: list[Any]) -> None:
        self._tensors = [tensor.double() for tensor in tensors]

    def error(self, outputs: Outputs) -> float:
        """Return the largest relative Frobenius error; NaN where anything is not finite."""
        errors = [
            float((got.double().view_as(want) - want).norm() / want.norm())
            for got, want in zip(outputs.tensors, self._tensors)
        ]
        return math.nan if any(map(math.isnan, errors)) else max(errors)


@dataclass(frozen=True, slots=True)
class Form:
    """One kernel at one size: what it is launched with, and what it should make.

    `arguments` are in the order of the kernel's parameters; arrays whose names begin with an
    underscore are made, but reached through others. `amount` is operations, or bytes where `unit`
    is GB/s.
    """

    label: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    out: tuple[str, ...]
    wanted: Callable[[Tensors], list[Any]]
    amount: float
    dtype: str = "f16"
    unit: str = "TFLOP/s"
    start: float | None = None

    @property
    def flops(self) -> float:
        """Operations, or bytes times the thousand by which GB/s exceed TFLOP/s."""
        return self.amount * (1e3 if self.unit == "GB/s" else 1.0)

    @property
    def shape(self) -> str:
        return self.label

    @property
    def group(self) -> str:
        return "products" if self.unit == "TFLOP/s" else "memory"

    def __str__(self) -> str:
        return self.label

    def make_inputs(self, most: int = 8) -> list[Set]:
        """Return sets that together exceed the L2 cache, at least two, at most `most`."""
        import torch

        torch.manual_seed(1234)
        size = sum(each.bytes for each in self.arguments.values() if isinstance(each, Array))
        sets: list[Set] = []
        for _ in range(min(most, max(2, ceil(L2_BYTES / size)))):
            made: Tensors = {}
            for name, each in self.arguments.items():
                made[name] = each.make(made) if isinstance(each, Array) else each
            written = [made[name] for name in self.out]
            read = {
                index: made[name].clone()
                for index, name in enumerate(self.out)
                if self.arguments[name].fill is not zeros
            }
            sets.append(Set(made, Outputs(written, self.start, read)))
        return sets

    def reference(self, inputs: Set) -> Wanted:
        return Wanted(self.wanted(inputs.tensors))

    def passed(self, tensors: Mapping[str, Any]) -> list[Any]:
        """Return the kernel's arguments among `tensors`, in order."""
        return [tensors[name] for name in self.arguments if not name.startswith("_")]


def zeros(_: Tensors) -> None:
    """The fill of what is only written: `Array.make` takes zeros for it."""


def whole(low: int, high: int, *shape: int) -> Callable[[Tensors], Any]:
    """Return a fill of whole numbers from `low` up to, not including, `high`."""

    def fill(_: Tensors) -> Any:
        import torch

        return torch.randint(low, high, shape, device="cuda", dtype=torch.int64)

    return fill


def products() -> Iterator[Form]:
    """Yield kernels with products."""
    yield _int8(4096, 8192, 4096)
    yield _int4("int4 weights, 64 rows", 64, 8192, 4096, 64)
    yield _int4("int4 weights, 4096 rows", 4096, 8192, 4096, 128)
    yield _block_scaled("fp8 by blocks, tiles of 64", 4096, 7168, 4096, 64)
    yield _block_scaled("fp8 by blocks, tiles of 128", 4096, 7168, 4096, 128)
    yield _in_groups(_block_scaled("fp8 by blocks, in groups", 4096, 7168, 4096, 128))
    yield _walking(_block_scaled("fp8 by blocks, own walk", 4096, 7168, 4096, 128))
    yield _own_walk("product, own walk, 128 x 128", 8192, 8192, 2048, 128)
    yield _own_walk("product, own walk, 128 x 256", 8192, 8192, 2048, 256)
    yield _split_sums(256, 1024, 16384, 8)
    yield _experts(4096, 2, 16, 4096, 2048)
    yield _many_products(
        ((1024, 1024, 1024), (512, 2048, 1024), (256, 4096, 2048), (2048, 512, 512))
    )
    yield _convolution(32, 56, 56, 128, 256)
    yield _chunk_states(64, 256, 32, 64, 128)
    yield _low_rank(4096, 4096, 4096, 16)
    for d, narrow in ((64, 32), (64, 64), (128, 32)):
        for causal in (False, True):
            yield _gradients(64, 2048, d, narrow, causal)


def _tiles(m: int, n: int, bm: int, bn: int) -> tuple[int, int]:
    return ceil(m / bm), ceil(n / bn)


def _int8(m: int, n: int, k: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        product = t["a_ptr"].double() @ t["b_ptr"].double().t()
        return [product * t["as_ptr"].double()[:, None] * t["bs_ptr"].double()]

    return Form(
        "int8 with scales",
        kernels.int8_product,
        _tiles(m, n, 128, 128),
        {
            "a_ptr": Array((m, k), "i8", whole(-127, 128, m, k)),
            "b_ptr": Array((n, k), "i8", whole(-127, 128, n, k)),
            "as_ptr": Array((m,), "f32"),
            "bs_ptr": Array((n,), "f32"),
            "c_ptr": Array((m, n), "bf16", zeros),
            "M": m,
            "N": n,
            "K": k,
        },
        {"BM": 128, "BN": 128, "BK": 128},
        ("c_ptr",),
        wanted,
        amount=2.0 * m * n * k,
        dtype="bf16",
    )


def _int4(label: str, m: int, n: int, k: int, bm: int) -> Form:
    group, all_words = 128, (-(2**31), 2**31)

    def wanted(t: Tensors) -> list[Any]:
        import torch

        shift = 4 * torch.arange(8, device="cuda")
        weights = ((t["b_ptr"][:, None, :] >> shift[:, None]) & 15).reshape(k, n)
        points = ((t["z_ptr"][:, :, None] >> shift) & 15).reshape(k // group, n)
        scales = t["s_ptr"]
        # In f16, as the kernel has it: the rounding of weights is part of the format.
        whole = weights.half() * scales.repeat_interleave(group, 0)
        whole -= (points.half() * scales).repeat_interleave(group, 0)
        return [t["a_ptr"].double() @ whole.double()]

    return Form(
        label,
        kernels.int4_product,
        _tiles(n, m, 128, bm),
        {
            "a_ptr": Array((m, k)),
            "b_ptr": Array((k // 8, n), "i32", whole(*all_words, k // 8, n)),
            "s_ptr": Array((k // group, n), scale=0.01),
            "z_ptr": Array((k // group, n // 8), "i32", whole(*all_words, k // group, n // 8)),
            "c_ptr": Array((m, n), fill=zeros),
            "M": m,
            "N": n,
            "K": k,
        },
        {"GROUP": group, "BM": bm, "BN": 128, "BK": 64},
        ("c_ptr",),
        wanted,
        amount=2.0 * m * n * k,
    )


def _block_scaled(label: str, m: int, n: int, k: int, bm: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        a = t["a_ptr"].double() * t["as_ptr"].double().repeat_interleave(128, 1)
        scales = t["bs_ptr"].double().repeat_interleave(128, 0).repeat_interleave(128, 1)
        return [a @ (t["b_ptr"].double() * scales).t()]

    return Form(
        label,
        kernels.block_scaled_product,
        _tiles(m, n, bm, 128),
        {
            "a_ptr": Array((m, k), "e4m3"),
            "b_ptr": Array((n, k), "e4m3"),
            "as_ptr": Array((m, k // 128), "f32"),
            "bs_ptr": Array((n // 128, k // 128), "f32"),
            "c_ptr": Array((m, n), "bf16", zeros),
            "M": m,
            "N": n,
            "K": k,
        },
        {"BM": bm, "BN": 128, "BK": 128},
        ("c_ptr",),
        wanted,
        amount=2.0 * m * n * k,
        dtype="e4m3",
    )


def _in_groups(form: Form) -> Form:
    return replace(form, kernel=form_walks.block_scaled_groups, grid=(prod(form.grid),))


def _walking(form: Form) -> Form:
    return replace(form, kernel=form_walks.own_walk_scaled, grid=(SMS,))


def form_product(
    label: str, kernel: Any, grid: tuple[int, ...], sizes: tuple[int, int, int], **constants: int
) -> Form:
    """Return the form of C[M, N] = A[M, K] B[K, N] in f16; `sizes` are M, N and K."""
    m, n, k = sizes
    arrays = {
        "a_ptr": Array((m, k)),
        "b_ptr": Array((k, n)),
        "c_ptr": Array((m, n), fill=zeros),
    }
    return Form(
        label,
        kernel,
        grid,
        arrays | {"M": m, "N": n, "K": k},
        constants,
        ("c_ptr",),
        lambda t: [t["a_ptr"].double() @ t["b_ptr"].double()],
        amount=2.0 * m * n * k,
    )


def _own_walk(label: str, m: int, n: int, k: int, bn: int) -> Form:
    tile = {"BM": 128, "BN": bn, "BK": 64}
    kernel = form_walks.own_walk
    return form_product(label, kernel, (SMS,), (m, n, k), **tile, GROUP=8, PROGRAMS=SMS)


def _split_sums(m: int, n: int, k: int, split: int) -> Form:
    grid, tile = (*_tiles(m, n, 128, 128), split), {"BM": 128, "BN": 128, "BK": 64}
    label, kernel = "split-K by atomics", kernels.split_sums
    form = form_product(label, kernel, grid, (m, n, k), **tile, SPLIT=split)
    sums = Array((m, n), "f32", zeros)
    return replace(form, arguments={**form.arguments, "c_ptr": sums}, start=0.0)


def _experts(tokens: int, top: int, count: int, n: int, k: int) -> Form:
    """Rows of every expert fill whole blocks; places past them name the token after the last."""
    block = 64
    most = tokens * top + count * (block - 1)
    blocks = ceil(most / block)

    def order(t: Tensors) -> Any:
        import torch

        places = torch.full((blocks * block,), tokens * top, device="cuda", dtype=torch.int64)
        at = 0
        for expert in range(count):
            rows = (t["_of"] == expert).nonzero().flatten()
            places[at : at + len(rows)] = rows
            at += ceil(len(rows) / block) * block
        return places

    def owners(t: Tensors) -> Any:
        import torch

        sizes = torch.bincount(t["_of"], minlength=count)
        each = (sizes + block - 1) // block
        named = torch.arange(count, device="cuda").repeat_interleave(each)
        return torch.nn.functional.pad(named, (0, blocks - len(named)))

    def used(t: Tensors) -> Any:
        import torch

        sizes = torch.bincount(t["_of"], minlength=count)
        return (((sizes + block - 1) // block).sum() * block)[None]

    def wanted(t: Tensors) -> list[Any]:
        import torch

        x = t["x_ptr"].repeat_interleave(top, 0).double()
        out = torch.zeros(tokens * top, n, device="cuda", dtype=torch.float64)
        for expert in range(count):
            rows = (t["_of"] == expert).nonzero().flatten()
            out[rows] = x[rows] @ t["w_ptr"][expert].double().t()
        return [out * t["gate_ptr"].double()[:, None]]

    return Form(
        "mixture of experts",
        kernels.experts,
        (ceil(n / 128), blocks),
        {
            "_of": Array((tokens * top,), "i64", whole(0, count, tokens * top)),
            "x_ptr": Array((tokens, k), "bf16"),
            "w_ptr": Array((count, n, k), "bf16", scale=0.05),
            "o_ptr": Array((tokens * top, n), "bf16", zeros),
            "gate_ptr": Array((tokens * top,), "f32"),
            "token_ptr": Array((blocks * block,), "i32", order),
            "expert_ptr": Array((blocks,), "i32", owners),
            "used_ptr": Array((1,), "i32", used),
            "N": n,
            "K": k,
            "TOKENS": tokens,
        },
        {"TOP": top, "BM": block, "BN": 128, "BK": 64},
        ("o_ptr",),
        wanted,
        amount=2.0 * tokens * top * n * k,
        dtype="bf16",
    )


def _many_products(sizes: tuple[tuple[int, int, int], ...]) -> Form:
    """All A lie in one array, one after the other, all B and all C likewise."""

    def pool(of: Callable[[int, int, int], int]) -> tuple[int, list[int]]:
        lengths = [of(*each) for each in sizes]
        return sum(lengths), [sum(lengths[:i]) for i in range(len(lengths))]

    pools = {
        "_a": pool(lambda m, n, k: m * k),
        "_b": pool(lambda m, n, k: k * n),
        "_c": pool(lambda m, n, k: m * n),
    }

    def table(name: str) -> Callable[[Tensors], Any]:
        def fill(t: Tensors) -> Any:
            import torch

            first = t[name].data_ptr()
            return torch.tensor([first + 2 * at for at in pools[name][1]])

        return fill

    def list_sizes(_: Tensors) -> Any:
        import torch

        return torch.tensor(sizes).flatten()

    def wanted(t: Tensors) -> list[Any]:
        import torch

        found: list[Any] = []
        for (m, n, k), a_at, b_at in zip(sizes, pools["_a"][1], pools["_b"][1]):
            a = t["_a"][a_at : a_at + m * k].view(m, k)
            b = t["_b"][b_at : b_at + k * n].view(k, n)
            found.append((a.double() @ b.double()).flatten())
        return [torch.cat(found)]

    count = len(sizes)
    return Form(
        "tables of pointers",
        kernels.many_products,
        (SMS,),
        {
            "_a": Array((pools["_a"][0],)),
            "_b": Array((pools["_b"][0],)),
            "_c": Array((pools["_c"][0],), fill=zeros),
            "a_table": Array((count,), "i64", table("_a")),
            "b_table": Array((count,), "i64", table("_b")),
            "c_table": Array((count,), "i64", table("_c")),
            "size_ptr": Array((3 * count,), "i32", list_sizes),
            "count": count,
        },
        {"BM": 128, "BN": 128, "BK": 64},
        ("_c",),
        wanted,
        amount=sum(2.0 * m * n * k for m, n, k in sizes),
    )


def _convolution(images: int, h: int, w: int, ci: int, co: int) -> Form:
    pixels = images * h * w

    def wanted(t: Tensors) -> list[Any]:
        import torch

        x = t["x_ptr"].view(images, h, w, ci).permute(0, 3, 1, 2).double()
        filters = t["w_ptr"].view(3, 3, ci, co).permute(3, 2, 0, 1).double()
        out = torch.nn.functional.conv2d(x, filters, padding=1)
        return [out.permute(0, 2, 3, 1)]

    return Form(
        "convolution 3 x 3",
        kernels.convolution,
        _tiles(pixels, co, 128, 128),
        {
            "x_ptr": Array((pixels, ci)),
            "w_ptr": Array((9 * ci, co), scale=0.05),
            "o_ptr": Array((pixels, co), fill=zeros),
            "H": h,
            "W": w,
            "TOTAL": pixels,
        },
        {"CI": ci, "CO": co, "KH": 3, "KW": 3, "BM": 128, "BN": 128, "BK": 64},
        ("o_ptr",),
        wanted,
        amount=18.0 * pixels * ci * co,
    )


def _chunk_states(chunks: int, length: int, heads: int, p: int, state: int) -> Form:
    steps = chunks * length

    def sums(t: Tensors) -> Any:
        rates = t["dt_ptr"].view(heads, chunks, length)
        return (-rates.cumsum(-1)).view(heads, steps)

    def rates(_: Tensors) -> Any:
        import torch

        return torch.rand(heads, steps, device="cuda") * 0.1

    def wanted(t: Tensors) -> list[Any]:
        import torch

        kept = t["sum_ptr"].double().view(heads, chunks, length)
        weight = torch.exp(kept[..., -1:] - kept)
        weight = weight * t["dt_ptr"].double().view(heads, chunks, length)
        x = t["x_ptr"].double().view(chunks, length, heads, p)
        b = t["b_ptr"].double().view(chunks, length, state)
        return [torch.einsum("clhp,cln,hcl->chpn", x, b, weight)]

    return Form(
        "state-space chunks",
        kernels.chunk_states,
        (state // 128, chunks, heads),
        {
            "x_ptr": Array((steps, heads * p), "bf16"),
            "b_ptr": Array((steps, state), "bf16"),
            "dt_ptr": Array((heads, steps), "f32", rates),
            "sum_ptr": Array((heads, steps), "f32", sums),
            "o_ptr": Array((chunks * heads * p, state), "bf16", zeros),
            "HEADS": heads,
            "STATE": state,
        },
        {"LENGTH": length, "P": p, "BN": 128, "BK": 64},
        ("o_ptr",),
        wanted,
        amount=2.0 * steps * heads * p * state,
        dtype="bf16",
    )


def _low_rank(m: int, n: int, k: int, rank: int) -> Form:
    def wanted(t: Tensors) -> list[Any]:
        x, w, a, b = (t[name].double() for name in ("x_ptr", "w_ptr", "a_ptr", "b_ptr"))
        return [x @ w + 2.0 * (x @ a) @ b]

    return Form(
        "a low-rank product beside one",
        kernels.low_rank_beside,
        _tiles(m, n, 128, 128),
        {
            "x_ptr": Array((m, k)),
            "w_ptr": Array((k, n), scale=0.05),
            "a_ptr": Array((k, rank), scale=0.05),
            "b_ptr": Array((rank, n)),
            "o_ptr": Array((m, n), fill=zeros),
            "N": n,
            "K": k,
            "scale": 2.0,
        },
        {"R": rank, "BM": 128, "BN": 128, "BK": 64},
        ("o_ptr",),
        wanted,
        amount=2.0 * m * n * k,
    )


def _gradients(heads: int, s: int, d: int, narrow: int, causal: bool) -> Form:
    shape, scale = (heads, s, d), d**-0.5

    def attended(t: Tensors, given: Any = None) -> tuple[Any, Any, list[Any]]:
        """Return row sums, outputs and, for gradients `given`, those of q, k and v."""
        import torch

        q, k, v = (t[name].float().requires_grad_() for name in ("q_ptr", "k_ptr", "v_ptr"))
        scores = q @ k.transpose(1, 2) * scale
        if causal:
            hidden = torch.ones(s, s, device="cuda", dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        out = scores.softmax(-1) @ v
        if given is not None:
            out.backward(given.float())
        grads = [each.grad for each in (q, k, v)]
        return scores.detach().logsumexp(-1), out.detach(), grads

    def lse(t: Tensors) -> Any:
        return attended(t)[0] * math.log2(math.e)

    def delta(t: Tensors) -> Any:
        return (attended(t)[1] * t["do_ptr"].float()).sum(-1)

    inputs = {name: Array(shape, scale=0.5) for name in ("q_ptr", "k_ptr", "v_ptr", "do_ptr")}
    sums = {
        "lse_ptr": Array((heads, s), "f32", lse),
        "delta_ptr": Array((heads, s), "f32", delta),
    }
    outputs = {name: Array(shape, fill=zeros) for name in ("dq_ptr", "dk_ptr", "dv_ptr")}
    kind = "causal" if causal else "full"
    return Form(
        f"gradients D{d} {kind}, {narrow}",
        form_attention.attention_gradients,
        (s // 128, heads),
        inputs | sums | outputs | {"scale": scale, "S": s},
        {"D": d, "CAUSAL": causal, "WIDE": 128, "NARROW": narrow},
        ("dq_ptr", "dk_ptr", "dv_ptr"),
        lambda t: attended(t, t["do_ptr"])[2],
        amount=10.0 * heads * s * s * d / (2 if causal else 1),
    )
