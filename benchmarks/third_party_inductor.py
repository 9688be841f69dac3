"""Kernels that `torch.compile` writes (Inductor's), captured as those of packages are.

`inductor()` yields `(label, call)` as the functions of `third_party_cases` do: small models under
torch.compile, forward and backward. `launches(found, pretend)` is a context in which each launch of
a kernel of Inductor's is handed to `found`; with `pretend` Inductor writes kernels for an H100 that
is not there (`third_party_capture.pretended_gpu`), nothing runs, and of several configurations the
first is taken. It stands on Inductor's own names, which torch 2.11 and 2.13 have.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from tawa.torch.triton import launch_of

COMPILE = torch.compile  # the real one: the context of captures puts another in its place
BF16, F32, F64, I64 = torch.bfloat16, torch.float32, torch.float64, torch.int64
PLAIN = {name: getattr(torch.Tensor, name) for name in ("device", "is_cuda", "get_device")}
Calls = Iterator[tuple[str, Callable[[], object]]]
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
# No library's products and convolutions, so that the templates of Inductor's are what is left.
TEMPLATES = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
}


# --- launches -------------------------------------------------------------------------------


@contextlib.contextmanager
def launches(
    found: Callable[[Any, Mapping[str, Any], tuple[int, ...], Mapping[str, Any]], None],
    pretend: bool,
) -> Iterator[None]:
    """Hand the kernel, values by name, grid and options of each launch to `found`."""
    from torch._inductor import config, select_algorithm
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner as Kernel

    plain = Kernel.run

    def run(kernel: Any, *args: Any, stream: Any, **keywords: Any) -> Any:
        if not pretend:
            if not kernel.launchers:
                kernel.precompile()
            if len(kernel.launchers) > 1:
                kernel.autotune_to_one_config(*args)
        if not keywords.get("benchmark_run", False):
            chosen = kernel.configs[0] if pretend else kernel.launchers[0].config
            found(*launch_of(kernel, args, chosen))  # before it runs: it may count in its memory
        return None if pretend else plain(kernel, *args, stream=stream, **keywords)

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(Kernel, "run", run))
        # In this process: a worker keeps the function and hands over the binary.
        stack.enter_context(config.patch(force_disable_caches=True, compile_threads=1))
        if pretend:
            stack.enter_context(patch.object(Kernel, "precompile", lambda *args, **options: None))
            stack.enter_context(pretended_inductor())
        # Of a template's configurations a few are timed, and without a GPU none.
        step = 10**6 if pretend else 7
        select_algorithm.add_preprocessing_fn(lambda choices: choices[::step])
        try:
            yield
        finally:
            select_algorithm.clear_preprocessing_fns()


@contextlib.contextmanager
def pretended_inductor() -> Iterator[None]:
    """Let Inductor believe in the GPU that `third_party_capture.pretended_gpu` describes."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.runtime import triton_helpers

    def answer(value: Any) -> Callable[..., Any]:
        return lambda *args, **options: value

    runtime = ("getDevice", "setDevice", "exchangeDevice", "maybeExchangeDevice")
    interface: dict[str, Any] = dict.fromkeys(("current_device", "get_raw_stream"), answer(0))
    interface["is_bf16_supported"] = answer(True)
    # That of torch.cuda is patched, and this class took it before.
    interface["get_device_properties"] = lambda *args: torch.cuda.get_device_properties(*args)
    with contextlib.ExitStack() as stack:
        for name in (*runtime, "getCurrentRawStream"):
            stack.enter_context(patch.object(torch._C, f"_cuda_{name}", answer(0), create=True))
        for name, call in interface.items():
            stack.enter_context(patch.object(CudaInterface, name, staticmethod(call)))
        stack.enter_context(patch.object(triton_helpers, "set_driver_to_gpu", answer(None)))
        random = torch.get_rng_state()
        stack.enter_context(patch.object(torch.cuda, "get_rng_state", answer(random)))
        stack.enter_context(patch.object(torch.cuda, "set_rng_state", answer(None)))
        empty = torch._C._dynamo.guards, "_empty_strided_cuda"
        stack.enter_context(patch.object(*empty, zeros_strided, create=True))
        lend_device_guard()
        yield


def zeros_strided(size: tuple[int, ...], stride: tuple[int, ...], dtype: Any) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype).zero_()


def lend_device_guard() -> None:
    """Give CUDA the device guard of tensors without memory, which does nothing.

    A torch without CUDA has none, and views and copies of fake tensors ask for it.
    """
    cuda, meta = 1, 14  # c10::DeviceType
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (meta + 1)).in_dll(library, GUARDS)
    guards[cuda] = guards[cuda] or guards[meta]


def moved(value: Any) -> Any:
    """Return a device or a fake tensor of the CPU's as CUDA's; what is neither as it is."""
    if isinstance(value, torch.device):
        return torch.device("cuda", 0) if value.type == "cpu" else value
    if not isinstance(value, FakeTensor) or value.device.type != "cpu":
        return value
    with value.fake_mode:
        size, stride = value.shape, value.stride()
        return torch.empty_strided(size, stride, dtype=value.dtype, device="cuda")


def as_if_on_gpu(graph: Any, inputs: Sequence[Any], **options: Any) -> Any:
    """Compile a graph of operators that was traced on the CPU for CUDA.

    Tracing for CUDA needs a torch with CUDA, for the sake of autograd; what follows does not.
    """
    from torch._inductor.compile_fx import compile_fx_inner
    from torch.fx.node import map_aggregate
    from torch.utils._pytree import tree_map

    for module in graph.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.args = map_aggregate(node.args, moved)
                node.kwargs = map_aggregate(node.kwargs, moved)
                node.meta = {key: tree_map(moved, value) for key, value in node.meta.items()}
            module.recompile()
    return compile_fx_inner(graph, [moved(value) for value in inputs], **options)


@contextlib.contextmanager
def cpu_is_cpu() -> Iterator[None]:
    """Take back what `pretended_gpu` says of tensors, for who traces."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.overrides._pop_mode_temporarily())
        for name in ("device", "is_cuda", "get_device"):
            stack.enter_context(patch.object(torch.Tensor, name, PLAIN[name]))
        engine = torch.autograd.graph._engine_run_backward
        stack.enter_context(patch.object(torch.autograd, "_engine_run_backward", engine))
        # Attention's gradients are for CUDA alone.
        flex = importlib.import_module("torch.nn.attention.flex_attention")
        stack.enter_context(patch.object(flex, "_validate_device", lambda *args: None))
        yield


# --- models ---------------------------------------------------------------------------------


def compiled(
    function: Callable[..., Any], *make: Callable[[], Any], dynamic: bool = False, **options: Any
) -> Callable[[], None]:
    """Return a call of a function under torch.compile, and of its gradients where it has any."""

    def call() -> None:
        values = [made() for made in make]
        pretended = torch.overrides._len_torch_function_stack()
        with cpu_is_cpu() if pretended else contextlib.nullcontext():
            backend = partial(inductor_backend, bool(pretended), options)
            torch._dynamo.reset()
            results = COMPILE(function, dynamic=dynamic, backend=backend)(*values)
            results = results if isinstance(results, (tuple, list)) else (results,)
            roots = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
            if roots:
                torch.autograd.backward(roots, [torch.ones_like(r) for r in roots])

    return call


def inductor_backend(pretended: bool, options: Any, graph: Any, inputs: Any) -> Any:
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    inner = as_if_on_gpu if pretended else compile_fx_inner
    return compile_fx(graph, inputs, inner_compile=inner, config_patches=options)


def tensor(
    *shape: int, dtype: torch.dtype = BF16, grad: bool = False
) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape, device="cuda").to(dtype).requires_grad_(grad)


def below(bound: int, *shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, bound, shape, device="cuda")


def inductor() -> Calls:
    """Pointwise chains, reductions, norms, losses, scans, and the templates of products."""
    weight = partial(tensor, grad=True)
    x = weight(512, 4096)
    yield "gelu chain", compiled(lambda x, w: F.gelu(x) * w + torch.tanh(x), x, weight(4096))
    yield (
        "layer_norm",
        compiled(lambda x, w, b: F.layer_norm(x, (4096,), w, b), x, *([weight(4096)] * 2)),
    )
    yield "rms_norm residual", compiled(rms_norm, x, x, weight(4096))
    yield "softmax short", compiled(lambda x: x.softmax(-1), weight(4096, 512))
    yield "softmax long", compiled(lambda x: x.float().softmax(-1), weight(64, 50257))
    yield "cross_entropy", compiled(F.cross_entropy, weight(512, 32000), below(32000, 512))
    yield (
        "batch_norm",
        compiled(batch_norm, weight(32, 64, 28, 28, dtype=F32), *([weight(64, dtype=F32)] * 2)),
    )
    yield "group_norm", compiled(lambda x: F.group_norm(x, 32), weight(16, 256, 32, 32))
    yield "dropout", compiled(lambda x: F.dropout(x, 0.3), x)
    yield "sums", compiled(reductions, tensor(1024, 2048, dtype=F32))
    yield "whole", compiled(lambda x: (x.sum(), x.amax(), x.var()), tensor(4_000_000, dtype=F32))
    yield "columns", compiled(lambda x: (x.sum(0), x.amax(0), x.std(0)), tensor(8192, 300))
    yield "argmax", compiled(lambda x: (x.argmax(-1), x.argmin(0), x.max(-1)), tensor(512, 1000))
    yield (
        "scans",
        compiled(
            lambda x: (x.cumsum(-1), x.cumprod(-1), x.cummax(-1)), tensor(64, 2048, dtype=F32)
        ),
    )
    yield "long scan", compiled(lambda x: x.cumsum(0), tensor(1_000_000, dtype=F32))
    yield "logcumsumexp", compiled(lambda x: x.logcumsumexp(-1), tensor(64, 1024, dtype=F32))
    yield "sort", compiled(lambda x: x.sort(-1), tensor(256, 256, dtype=F32))
    yield (
        "transposed",
        compiled(lambda x, y: x.t().contiguous() + y, tensor(1000, 700), tensor(700, 1000)),
    )
    yield (
        "cat and pad",
        compiled(lambda x, y: F.pad(torch.cat([x, y], 1), (3, 5)), *([tensor(300, 500)] * 2)),
    )
    yield "embedding", compiled(F.embedding, below(1000, 8, 512), weight(1000, 768))
    yield (
        "gather",
        compiled(lambda x, i: x.gather(1, i) * 2, tensor(512, 1000), below(1000, 512, 64)),
    )
    yield (
        "scatter",
        compiled(
            lambda x, i, v: x.index_add(0, i, v),
            tensor(100, 64, dtype=F32),
            below(100, 5000),
            tensor(5000, 64, dtype=F32),
        ),
    )
    yield "rotary", compiled(rotary, tensor(2, 16, 512, 128), tensor(512, 128), tensor(512, 128))
    yield "functions", compiled(functions, tensor(10_000, dtype=F32))
    yield "functions f64", compiled(functions, tensor(10_000, dtype=F64))
    yield "integers", compiled(integers, below(1000, 10_000), below(31, 10_000))
    yield (
        "bucketize",
        compiled(
            lambda x, b: torch.bucketize(x, b),
            tensor(10_000, dtype=F32),
            lambda: torch.linspace(-2, 2, 33, device="cuda"),
        ),
    )
    yield "interpolate", compiled(upsample, tensor(2, 16, 50, 50, dtype=F32))
    yield "max_pool", compiled(lambda x: F.max_pool2d(x, 3, 2, 1), weight(8, 64, 56, 56))
    yield "fp8 quantize", compiled(quantize, tensor(512, 1024))
    yield (
        "dynamic",
        compiled(
            lambda x, w: F.gelu(x).sum(-1, keepdim=True) * w,
            tensor(300, 777),
            tensor(777),
            dynamic=True,
        ),
    )
    yield "adam", adam
    yield "block", block
    yield from templates()


def rms_norm(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor) -> Any:
    x = x + residual
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w, x


def batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


def reductions(x: torch.Tensor) -> Any:
    return (
        x.sum(-1), x.mean(-1), x.var(-1), x.norm(dim=-1), x.prod(-1), x.amin(-1),
        (x > 3).any(-1), (x > -5).all(-1), x.logsumexp(-1),
    )  # fmt: skip


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def functions(x: torch.Tensor) -> Any:
    y = x.abs() + 0.5
    return (
        x.sin() + x.cos() + x.tan().atan() + torch.asin(x.clamp(-1, 1)) + x.sinh().asinh(),
        y.log() + y.log2() + y.log10() + y.log1p() + x.expm1() + x.exp2() + x.erf() + x.erfc(),
        torch.lgamma(y) + y.pow(2.3) + y.sqrt() + y.rsqrt() + torch.erfinv(x.clamp(-0.9, 0.9)),
        torch.fmod(x, y) + torch.remainder(x, y) + torch.atan2(x, y) + torch.hypot(x, y),
        torch.round(x) + torch.floor(x) + torch.ceil(x) + torch.trunc(x) + torch.sign(x),
        torch.copysign(x, y) + torch.nextafter(x, y) + torch.signbit(x) + torch.isnan(x),
        torch.special.i0(x) + torch.sigmoid(x) + F.softplus(x) + F.silu(x) + F.elu(x),
        torch.frexp(x)[0], torch.where(x > 0, x, y).to(torch.int32),
    )  # fmt: skip


def integers(a: torch.Tensor, b: torch.Tensor) -> Any:
    c = (b + 1).to(torch.int32)
    return (
        a // c, a % c, -a // c, torch.div(-a, c, rounding_mode="trunc"), a << (b % 8), a >> (b % 8),
        a & b, a | b, a ^ b, ~a, a.to(torch.uint8) + 3, a.to(torch.int16) * 2, a.bool() ^ b.bool(),
        a / c, (a % 7) ** 3, a.to(torch.float16),
    )  # fmt: skip


def upsample(x: torch.Tensor) -> Any:
    return (
        F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
        F.avg_pool2d(x, 3, 2, 1),
        F.adaptive_avg_pool2d(x, (7, 7)),
    )


def quantize(x: torch.Tensor) -> Any:
    scale = x.float().abs().amax(-1, keepdim=True) / 448
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def adam() -> None:
    """A step of an optimizer over several parameters: one kernel of many parts."""
    weights = [torch.randn(*shape, device="cuda") for shape in ((64, 64), (300,), (100, 33))]
    for w in weights:
        w.grad = torch.randn_like(w)
    compiled(torch.optim.AdamW(weights, lr=1e-3, foreach=True).step)()


class Block(nn.Module):
    """A layer of a transformer without its attention; products are the library's."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.gate = (nn.Linear(width, 4 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def block() -> None:
    with torch.device("cuda"):
        model = Block().to(BF16)
    compiled(model, tensor(512, 1024, grad=True))()


def templates() -> Calls:
    """Inductor's own kernels of products, convolutions and attention."""
    make = partial(compiled, **TEMPLATES)
    a, b = tensor(1024, 1024), tensor(1024, 1024)
    yield "mm", make(torch.mm, a, b)
    yield "mm transposed", make(lambda a, b: torch.mm(a, b.t()), a, b)
    yield "mm odd", make(torch.mm, tensor(1000, 520), tensor(520, 777))
    yield "mm f32", make(torch.mm, tensor(512, 512, dtype=F32), tensor(512, 512, dtype=F32))
    yield "addmm gelu", make(lambda a, b, c: F.gelu(torch.addmm(c, a, b)), a, b, tensor(1024))
    yield "mm residual norm", make(lambda a, b, c: rms_norm(a @ b, c, c[0]), a, b, a)
    yield "mm of sums", make(lambda a, b: (a.relu() + 1) @ b, a, b)
    yield "bmm", make(torch.bmm, tensor(16, 256, 256), tensor(16, 256, 256))
    yield "mm int8", make(torch._int_mm, *([lambda: below(100, 256, 256)().to(torch.int8)] * 2))
    yield (
        "conv",
        make(
            lambda x, w: F.relu(F.conv2d(x, w, padding=1)),
            tensor(8, 64, 56, 56),
            tensor(64, 64, 3, 3),
        ),
    )
    yield "mm dynamic", make(torch.mm, tensor(1000, 512), tensor(512, 768), dynamic=True)
    q, k = tensor(2, 8, 1024, 64, grad=True), tensor(2, 2, 1024, 64, grad=True)
    yield "flex", compiled(flex, q, q, q)
    yield "flex causal", compiled(flex_causal, q, q, q)
    yield "flex alibi, grouped", compiled(flex_alibi, q, k, k)
    yield (
        "flex decoding",
        compiled(flex_alibi, tensor(2, 8, 1, 64), *([tensor(2, 2, 1024, 64)] * 2)),
    )


def flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, k, v)


def flex_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    causal = lambda b, h, m, n: m >= n  # noqa: E731
    mask = create_block_mask(causal, None, None, q.shape[2], k.shape[2], device=q.device)
    return flex_attention(q, k, v, block_mask=mask)


def flex_alibi(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    def bias(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
        return score + (n - m) * torch.exp2(-(h + 1.0))

    return flex_attention(q, k, v, score_mod=bias, enable_gqa=True)
