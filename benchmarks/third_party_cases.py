"""Calls of other packages' Python wrappers: what makes them launch their Triton kernels.

`PACKAGES` maps a package's import name to a function that yields `(label, call)`; a call makes its
own tensors, on ``cuda`` (`third_party_capture` says what that is without a GPU), and runs forward
and, where something needs a gradient, backward. Nothing here knows a kernel.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from third_party_inductor import inductor

Calls = Iterator[tuple[str, Callable[[], object]]]
BF16, F32, F16, I32, I64 = torch.bfloat16, torch.float32, torch.float16, torch.int32, torch.int64


def rand(*shape: int, dtype: torch.dtype = BF16, grad: bool = True) -> torch.Tensor:
    made = torch.randn(*shape, device="cuda").to(dtype)
    return made.requires_grad_(grad)


def below(bound: int, *shape: int, dtype: torch.dtype = I64) -> torch.Tensor:
    return torch.randint(0, bound, shape, device="cuda").to(dtype)


def both_ways(call: Callable[..., Any], *args: Any, **keywords: Any) -> None:
    """Call, and run backward from every result that has a gradient."""
    results = call(*args, **keywords)
    results = results if isinstance(results, (tuple, list)) else (results,)
    roots = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.randn_like(r) for r in roots])


def function(module: str, *names: str) -> Callable[..., Any]:
    """Import `module` and return the attribute that `names` lead to."""
    found: Any = importlib.import_module(module)
    for name in names:
        found = getattr(found, name)
    return found


def by_name(make: dict[str, Callable[[], Any]], call: Callable[..., Any], **more: Any) -> None:
    """Call with the tensors that `make` has for the names of the required parameters."""
    required = {
        name: make[name]()
        for name, parameter in inspect.signature(call).parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        and name not in more
    }
    both_ways(call, **required, **more)


# --- packages -------------------------------------------------------------------------------


def liger_kernel() -> Calls:
    def apply(module: str, name: str, *args: Callable[[], Any], **keywords: Any) -> Any:
        made = function(f"liger_kernel.ops.{module}", name)
        return partial(lambda: both_ways(made.apply, *(a() for a in args), **keywords))

    def const(value: Any) -> Callable[[], Any]:
        return lambda: value

    def x(*shape: int, **k: Any) -> Callable[[], torch.Tensor]:
        return lambda: rand(*shape, **k)

    def labels(n: int, bound: int) -> Callable[[], torch.Tensor]:
        return lambda: below(bound, n)

    def head(q: int = 16, k: int = 4) -> tuple[Any, ...]:
        angles = lambda: rand(1, 512, 128, grad=False)  # noqa: E731
        return x(2, q, 512, 128), x(2, k, 512, 128), angles, angles

    wide, weight = x(512, 4096), x(4096)
    nothing, eps = const(None), const(1e-6)
    logits = x(512, 8192)
    log_q = lambda: rand(512, 8192).detach().log_softmax(-1).requires_grad_()  # noqa: E731
    soft = lambda: rand(512, 8192, grad=False).softmax(-1)  # noqa: E731
    for casting in ("llama", "gemma", "none"):
        mode = const(casting)
        norm = apply("rms_norm", "LigerRMSNormFunction", wide, weight, eps, const(0.0), mode)
        yield f"rms_norm {casting}", norm
    yield (
        "rms_norm short",
        apply("rms_norm", "LigerRMSNormFunction", x(65536, 128), x(128), eps, const(0.0)),
    )
    yield (
        "fused_add_rms_norm",
        apply("fused_add_rms_norm", "LigerFusedAddRMSNormFunction", wide, wide, weight, eps),
    )
    yield "layer_norm", apply("layer_norm", "LigerLayerNormFunction", wide, weight, weight, eps)
    yield "poly_norm", apply("poly_norm", "LigerPolyNormFunction", wide, x(3), x(1))
    yield (
        "group_norm",
        apply(
            "group_norm",
            "LigerGroupNormFunction",
            x(4, 64, 1024, dtype=F32),
            x(64, dtype=F32),
            x(64, dtype=F32),
            const(64),
            const(8),
            eps,
        ),
    )
    yield "geglu", apply("geglu", "LigerGELUMulFunction", wide, wide)
    yield "swiglu", apply("swiglu", "LigerSiLUMulFunction", wide, wide)
    yield "relu_squared", apply("relu_squared", "LigerReLUSquaredFunction", wide)
    yield "dyt", apply("dyt", "LigerDyTFunction", wide, x(1), weight, weight)
    yield "softmax", apply("softmax", "LigerSoftmaxFunction", wide)
    yield "softmax wide", apply("softmax", "LigerSoftmaxFunction", x(64, 50000))
    yield (
        "sparsemax",
        apply("sparsemax", "LigerSparsemaxFunction", x(512, 1024, dtype=F32), const(-1)),
    )
    yield "rope", apply("rope", "LigerRopeFunction", *head())
    yield (
        "llama4_rope",
        lambda: both_ways(
            function("liger_kernel.ops.llama4_rope", "LigerLlama4RopeFunction", "apply"),
            rand(2, 512, 16, 128),
            rand(2, 512, 4, 128),
            torch.polar(torch.ones(512, 64), torch.ones(512, 64)),
        ),
    )
    yield (
        "mrope",
        lambda: both_ways(
            function("liger_kernel.ops.qwen2vl_mrope", "LigerQwen2VLMRopeFunction", "apply"),
            rand(2, 16, 512, 128),
            rand(2, 4, 512, 128),
            rand(3, 2, 512, 128, grad=False),
            rand(3, 2, 512, 128, grad=False),
            [16, 24, 24],
        ),
    )
    cross = partial(apply, "cross_entropy", "LigerCrossEntropyFunction", logits)
    yield "cross_entropy", cross(labels(512, 8192), nothing)
    yield (
        "cross_entropy all",
        cross(
            labels(512, 8192),
            x(8192, dtype=F32, grad=False),
            const(-100),
            const(1e-4),
            const(0.1),
            const("mean"),
            const(30.0),
            const(True),
        ),
    )
    yield "kl_div", apply("kl_div", "LigerKLDivLossFunction", log_q, soft)
    yield "jsd", apply("jsd", "LigerJSDFunction", log_q, log_q, nothing, const(0.5))
    yield "tvd", apply("tvd", "LigerTVDLossFunction", soft, soft)
    yield (
        "fused_ce_tvd",
        apply("fused_ce_tvd", "LigerFusedCETVDFunction", logits, logits, labels(512, 8192)),
    )
    yield (
        "fused_linear_cross_entropy",
        apply(
            "fused_linear_cross_entropy",
            "LigerFusedLinearCrossEntropyFunction",
            x(512, 1024),
            x(8192, 1024),
            labels(512, 8192),
        ),
    )
    yield (
        "fused_linear_jsd",
        apply(
            "fused_linear_jsd",
            "LigerFusedLinearJSDFunction",
            x(512, 512),
            x(8192, 512),
            x(512, 512),
            x(8192, 512),
            labels(512, 8192),
        ),
    )
    yield (
        "grpo",
        lambda: both_ways(
            function("liger_kernel.ops.grpo_loss", "GrpoLossFunction", "apply"),
            rand(4, 129, 8192),
            rand(4, 128, dtype=F32, grad=False),
            rand(4, 128, dtype=F32, grad=False),
            below(8192, 4, 128),
            rand(4, dtype=F32, grad=False),
            torch.ones(4, 128, device="cuda", dtype=I32),
            0.9,
            0.04,
            0.2,
            0.2,
            False,
        ),
    )
    yield (
        "multi_token_attention",
        apply(
            "multi_token_attention",
            "LigerMultiTokenAttentionFunction",
            x(2, 4, 128, 128, dtype=F32),
            x(4, 4, 3, 3, dtype=F32),
            nothing,
            const(1),
            const(1),
        ),
    )
    near = partial(apply, "fused_neighborhood_attention", "LigerFusedNeighborhoodAttentionFunction")
    yield "neighborhood", near(*(x(2, 4, 256, 64) for _ in range(3)))
    yield (
        "attn_res",
        apply("attn_res", "LigerAttnResFunction", x(4, 2, 128, 1024), x(1024), x(1024), eps),
    )
    yield (
        "modulated_rms_norm",
        apply(
            "modulated_rms_norm",
            "LigerModulatedRMSNormFunction",
            x(2, 256, 1024),
            x(1024),
            x(2, 1024),
            x(2, 1024),
            eps,
        ),
    )
    yield (
        "mlp",
        apply(
            "mlp", "LigerMLPFunction", x(2, 256, 1024), x(2048, 1024), x(2048, 1024), x(1024, 2048)
        ),
    )
    yield (
        "fused_moe",
        lambda: both_ways(
            function("liger_kernel.ops.fused_moe", "LigerFusedMoEFunction", "apply"),
            rand(256, 512),
            rand(8, 1024, 512),
            rand(8, 512, 512),
            below(8, 256, 2, dtype=I32),
            rand(256, 2, dtype=F32),
        ),
    )
    yield "mhc_pre", apply("mhc", "LigerMHCPreFunction", x(256, 4, 1024), x(256, 4, dtype=F32))
    yield (
        "mhc_post_res",
        apply(
            "mhc",
            "LigerMHCPostResFunction",
            x(256, 4, 1024),
            x(256, 1024),
            x(256, 4, dtype=F32),
            x(256, 4, 4, dtype=F32),
        ),
    )


def fla() -> Calls:
    """Each operation of the package by the names of its parameters, at two head sizes."""
    import fla.ops

    def tensors(t: int, h: int, d: int) -> dict[str, Callable[[], Any]]:
        wide = lambda: rand(2, t, h, d)  # noqa: E731
        unit = lambda: F.normalize(rand(2, t, h, d, grad=False), dim=-1).requires_grad_()  # noqa: E731
        gate = lambda: F.logsigmoid(rand(2, t, h, d, dtype=F32).detach()).requires_grad_()  # noqa: E731
        scalar = lambda: F.logsigmoid(rand(2, t, h, dtype=F32).detach()).requires_grad_()  # noqa: E731
        share = lambda: rand(2, t, h).detach().sigmoid().requires_grad_()  # noqa: E731
        names = dict.fromkeys(("q", "v", "r", "s", "x", "w", "u", "a", "b", "p"), wide)
        names |= {"k": unit, "g": scalar, "gk": gate, "gv": gate, "beta": share, "p": unit}
        names |= {"layer_idx": lambda: 1, "num_layers": lambda: 12, "g_atk": scalar}
        names |= {"beta_atk": share, "delta": share, "eta": share, "log_alpha": scalar}
        names |= {"log_mu": scalar, "lamb": lambda: rand(h, d).detach().sigmoid().requires_grad_()}
        names |= {"level_scales": lambda: rand(2, t, h, 12, dtype=F32)}
        names |= {"num_householder": lambda: 1, "gate": gate, "readout": wide}
        norm = {"q_norm_weight": lambda: rand(d), "k_norm_weight": lambda: rand(d)}
        names |= norm | {"q_norm_eps": lambda: 1e-6, "k_norm_eps": lambda: 1e-6}
        return names

    wide_gates = {
        "chunk_gla",
        "chunk_kda",
        "fused_recurrent_kda",
        "chunk_gdn2",
        "chunk_precond_kda",
    }
    wide_gates |= {"fused_recurrent_hgrn", "fused_recurrent_precond_kda", "parallel_wall_attn"}
    wide_gates |= {"fused_recurrent_gdn2", "chunk_gsa", "fused_recurrent_gsa"}
    names = [n for n in dir(fla.ops) if n.startswith(("chunk_", "fused_", "parallel_"))]
    for d in (64, 128):
        for name in names:
            call = getattr(fla.ops, name)
            if name in (
                "parallel_nsa",
                "parallel_wall_attn_decode",
                "fused_attnres",
            ) or not callable(call):
                continue
            make = tensors(256, 4, d)
            if name in wide_gates:
                make["g"] = make["gate"]
            if "dplr" in name or "rwkv" in name or "iplr" in name:
                make |= {
                    "a": make["k"],
                    "b": make["k"],
                    "w": make["gate"],
                    "u": lambda d=d: rand(4, d),
                }
            if name in ("chunk_gdn2", "fused_recurrent_gdn2"):
                make |= {"b": make["q"], "w": make["q"]}
            if "hgrn" in name:
                make = {"x": lambda d=d: rand(2, 256, d), "g": lambda d=d: rand(2, 256, d)}
            if "based" in name:
                make |= {"q": lambda: rand(2, 256, 4, 16), "k": lambda: rand(2, 256, 4, 16)}
            if "path_attn" in name:
                exact = lambda f: f().detach().float().requires_grad_()  # noqa: E731
                make |= {n: partial(exact, make[n]) for n in ("w", "beta")}
            if "gsa" in name or "abc" in name:
                make["s"] = make["g"] = lambda d=d: rand(2, 256, 4, 64)
            yield f"{name} {d}", partial(by_name, make, call)
    yield (
        "parallel_nsa",
        lambda: both_ways(
            fla.ops.parallel_nsa,
            rand(1, 512, 32, 64),
            rand(1, 512, 2, 64),
            rand(1, 512, 2, 64),
            g_slc=rand(1, 512, 32),
            g_swa=rand(1, 512, 32),
            block_indices=below(8, 1, 512, 2, 4),
            block_counts=4,
            block_size=64,
        ),
    )
    ragged = {"cu_seqlens": lambda: torch.tensor([0, 100, 256], device="cuda", dtype=I64)}
    for name in ("chunk_gated_delta_rule", "chunk_gla", "chunk_delta_rule", "parallel_attn"):
        make = {
            n: partial(lambda f: f().detach()[:1].requires_grad_(), f)
            for n, f in tensors(256, 4, 64).items()
            if n in ["q", "k", "v", "g", "beta", "gate"]
        }
        if name in wide_gates:
            make["g"] = make["gate"]
        yield (
            f"{name} ragged",
            lambda name=name, make=make: by_name(
                make, getattr(fla.ops, name), cu_seqlens=ragged["cu_seqlens"]()
            ),
        )
    for name in ("swish", "logsigmoid", "sigmoid"):
        fwd = function("fla.modules.activations.ops", f"{name}_fwd")
        bwd = function("fla.modules.activations.ops", f"{name}_bwd")
        yield (
            name,
            partial(
                lambda f, b: (
                    f(rand(512, 1024, grad=False)),
                    b(rand(512, 1024, grad=False), rand(512, 1024, grad=False)),
                ),
                fwd,
                bwd,
            ),
        )
    norms = {
        "layer_norm": "layernorm",
        "rms_norm": "layernorm",
        "l2norm": "l2norm",
    }
    for name, module in norms.items():
        call = function(f"fla.modules.{module}", name)
        make = {
            "x": lambda: rand(512, 1024),
            "weight": lambda: rand(1024),
            "bias": lambda: rand(1024),
        }
        yield name, partial(by_name, make, call)
    conv = function("fla.modules.causal_conv1d.ops", "causal_conv1d")
    yield (
        "causal_conv1d",
        lambda: both_ways(conv, rand(2, 256, 512), rand(512, 4), activation="silu"),
    )
    loss = function("fla.modules.fused_cross_entropy.ops", "cross_entropy_loss")
    yield "cross_entropy", lambda: both_ways(loss, rand(512, 8192), below(8192, 512))
    linear = function("fla.modules", "FusedLinearCrossEntropyLoss")
    yield (
        "linear_cross_entropy",
        lambda: both_ways(linear(), rand(512, 1024), below(8192, 512), rand(8192, 1024)),
    )
    pool = function("fla.ops.utils.pooling", "mean_pooling")
    yield "mean_pooling", lambda: both_ways(pool, rand(2, 256, 4, 64), 64)
    for name in ("cumsum", "solve_tril"):
        module = importlib.import_module(f"fla.ops.utils.{name}")
        if name == "cumsum":
            for inner in ("chunk_local_cumsum", "chunk_global_cumsum"):
                call = getattr(module, inner)
                more = {"chunk_size": 64} if "local" in inner else {}
                for shape in ((2, 256, 4), (2, 256, 4, 64)):
                    x = partial(rand, *shape, dtype=F32, grad=False)
                    yield (
                        f"{inner} {len(shape)}",
                        partial(lambda c, x, m: c(x(), **m), call, x, more),
                    )
        else:
            for size in (16, 32, 64):
                yield (
                    f"solve_tril {size}",
                    partial(
                        lambda c, n: c(rand(2, 256, 4, n, dtype=F32, grad=False)),
                        module.solve_tril,
                        size,
                    ),
                )


def conch() -> Calls:
    def op(path: str, name: str) -> Callable[..., Any]:
        return function(f"conch.ops.{path}", name)

    def cache(dtype: torch.dtype = F16) -> tuple[torch.Tensor, ...]:
        # (blocks, tokens of a block, heads, width): 16 blocks hold the 200 tokens of a sequence
        key, value = (rand(64, 16, 4, 128, dtype=dtype, grad=False) for _ in range(2))
        return key, value

    yield (
        "gelu_tanh_and_mul",
        lambda: op("activation.gelu_tanh_and_mul", "gelu_tanh_and_mul")(
            rand(512, 2048, grad=False)
        ),
    )
    yield (
        "silu_and_mul",
        lambda: op("activation.silu_and_mul", "silu_and_mul")(rand(512, 2048, grad=False)),
    )
    x, w = (lambda: rand(512, 1024, grad=False)), (lambda: rand(1024, grad=False))
    yield "rms_norm", lambda: op("normalization.rms_norm", "rms_norm")(x(), w(), 1e-6)
    yield (
        "fused_add_rms_norm",
        lambda: op("normalization.rms_norm", "fused_add_rms_norm")(x(), x(), w(), 1e-6),
    )
    yield (
        "gemma_rms_norm",
        lambda: op("normalization.gemma_rms_norm", "gemma_rms_norm")(x(), w(), 1e-6),
    )
    yield (
        "fp8",
        lambda: op("quantization.fp8", "scaled_fp8_quant")(x(), torch.ones(1, device="cuda")),
    )
    yield (
        "int8",
        lambda: op("quantization.int8", "scaled_int8_quant")(x(), torch.ones(1, device="cuda")),
    )
    bnb = "quantization.bitsandbytes.functional"
    for kind in ("fp4", "nf4"):
        yield f"quantize {kind}", lambda kind=kind: op(bnb, "quantize_4bit")(x(), quant_type=kind)
        yield (
            f"dequantize {kind}",
            lambda kind=kind: op(bnb, "dequantize_4bit")(
                *op(bnb, "quantize_4bit")(x(), quant_type=kind), quant_type=kind
            ),
        )
    yield (
        "rotary",
        lambda: op("embedding.rotary_embedding", "rotary_embedding")(
            torch.arange(512, device="cuda"),
            rand(512, 2048, grad=False),
            rand(512, 512, grad=False),
            128,
            rand(4096, 128, grad=False),
        ),
    )
    for softcap in (0.0, 30.0):
        yield (
            f"paged_attention {softcap}",
            lambda softcap=softcap: op("attention.paged_attention", "paged_attention")(
                rand(4, 16, 128, dtype=F16, grad=False),
                *cache(),
                below(64, 4, 16, dtype=I32),
                torch.full((4,), 200, device="cuda", dtype=I32),
                softcap=softcap,
            ),
        )
    for causal in (False, True):
        yield (
            f"varlen_attention {causal}",
            lambda causal=causal: op("attention.varlen_attention", "varlen_attention")(
                rand(400, 16, 128, dtype=F16, grad=False),
                *cache(),
                torch.tensor([0, 100, 200, 300, 400], device="cuda", dtype=I32),
                100,
                torch.full((4,), 200, device="cuda", dtype=I32),
                200,
                below(64, 4, 16, dtype=I32),
                causal=causal,
            ),
        )
    yield (
        "scaled_gemm",
        lambda: op("quantization.gemm", "scaled_gemm")(
            below(100, 256, 512, dtype=torch.int8),
            below(100, 512, 512, dtype=torch.int8),
            torch.ones(256, 1, device="cuda"),
            torch.ones(512, 1, device="cuda"),
            F16,
        ),
    )
    yield (
        "nms",
        lambda: op("vision.nms", "nms")(
            rand(512, 4, dtype=F32, grad=False).abs(), rand(512, dtype=F32, grad=False), 0.5
        ),
    )
    yield (
        "bev_pool",
        lambda: op("vision.bev_pool", "bev_pool")(
            rand(1024, 64, dtype=F32, grad=False),
            # A cell of its own for each interval of 8 points: (x, y, z, batch).
            torch.arange(1024, device="cuda").div(8, rounding_mode="floor")[:, None].to(I32)
            // torch.tensor([16, 1, 128, 128], device="cuda", dtype=I32)
            % torch.tensor([16, 16, 1, 1], device="cuda", dtype=I32),
            torch.arange(0, 1024, 8, device="cuda").to(I32),
            torch.full((128,), 8, device="cuda", dtype=I32),
            1,
            1,
            16,
            16,
        ),
    )
    yield (
        "copy_blocks",
        lambda: op("vllm.copy_blocks", "copy_blocks")(
            [cache()[0]], [cache()[0]], torch.tensor([[0, 1], [2, 3]], device="cuda")
        ),
    )
    yield (
        "reshape_and_cache",
        lambda: op("vllm.reshape_and_cache", "reshape_and_cache")(
            rand(32, 4, 128, dtype=F16, grad=False),
            rand(32, 4, 128, dtype=F16, grad=False),
            *cache(),
            torch.arange(32, device="cuda"),
        ),
    )


def cut_cross_entropy() -> Calls:
    call = function("cut_cross_entropy", "linear_cross_entropy")
    for softcap in (None, 30.0):
        for shift in (False, True):
            yield (
                f"cce softcap={softcap} shift={shift}",
                lambda softcap=softcap, shift=shift: both_ways(
                    call,
                    rand(2, 256, 512),
                    rand(4096, 512),
                    below(4096, 2, 256),
                    softcap=softcap,
                    shift=shift,
                ),
            )


def sageattention() -> Calls:
    core = importlib.import_module("sageattention.core")

    def heads(d: int) -> list[torch.Tensor]:
        return [rand(2, 8, 512, d, dtype=F16, grad=False) for _ in range(3)]

    for d in (64, 96, 128):
        for causal in (False, True):
            yield (
                f"sageattn {d} {causal}",
                lambda d=d, causal=causal: core.sageattn(*heads(d), is_causal=causal),
            )
    starts = lambda: torch.tensor([0, 200, 512], device="cuda", dtype=I32)  # noqa: E731
    for causal in (False, True):
        yield (
            f"varlen {causal}",
            lambda causal=causal: core.sageattn_varlen(
                *(rand(512, 8, 64, dtype=F16, grad=False) for _ in range(3)),
                starts(),
                starts(),
                312,
                312,
                is_causal=causal,
            ),
        )


def adasplash() -> Calls:
    import adasplash as package

    for name in ("adasplash_v1", "adasplash_no_block_mask", "adasplash_v2"):
        for d in (64, 128):
            yield (
                f"{name} {d}",
                lambda name=name, d=d: both_ways(
                    getattr(package, name), *(rand(2, 4, 512, d) for _ in range(3))
                ),
            )
    for name in ("triton_entmax_v1", "triton_entmax_v2", "triton_sparsemax", "triton_entmax15"):
        yield name, lambda name=name: both_ways(getattr(package, name), rand(256, 2048, dtype=F32))


def torchnorm() -> Calls:
    import torchnorm as package

    layers = {"RMSNorm": (1024,), "LayerNorm": (1024,)}
    for name, args in layers.items():
        yield (
            name,
            lambda name=name, args=args: both_ways(
                getattr(package, name)(*args).to("cuda"), rand(512, 1024, dtype=F32)
            ),
        )
    yield (
        "GroupNorm",
        lambda: both_ways(package.GroupNorm(8, 64).to("cuda"), rand(4, 64, 32, 32, dtype=F32)),
    )


def torchao() -> Calls:
    quant = importlib.import_module("torchao.kernel.blockwise_quantization")
    a = lambda: rand(256, 1024, grad=False)  # noqa: E731
    yield "act_quant", lambda: quant.fp8_blockwise_act_quant(a())
    yield "weight_quant", lambda: quant.fp8_blockwise_weight_quant(rand(512, 1024, grad=False))
    yield (
        "weight_dequant",
        lambda: quant.fp8_blockwise_weight_dequant(
            *quant.fp8_blockwise_weight_quant(rand(512, 1024, grad=False))
        ),
    )
    yield (
        "fp8_gemm",
        lambda: quant.blockwise_fp8_gemm(
            *quant.fp8_blockwise_act_quant(a()),
            *quant.fp8_blockwise_weight_quant(rand(512, 1024, grad=False)),
        ),
    )
    i8 = lambda *s: below(100, *s, dtype=torch.int8)  # noqa: E731
    mm = importlib.import_module("torchao.prototype.quantized_training.int8_mm")
    yield (
        "scaled_int8_mm",
        lambda: mm.scaled_int8_mm_cuda(
            i8(256, 512), i8(512, 512), rand(256, grad=False), rand(512, grad=False)
        ),
    )
    training = importlib.import_module("torchao.prototype.blockwise_fp8_training.kernels")
    for name in (
        "act_quant_lhs",
        "act_quant_rhs",
        "act_quant_transposed_lhs",
        "weight_quant_rhs",
        "weight_quant_transposed_rhs",
    ):
        yield (
            name,
            lambda name=name: getattr(training, f"triton_fp8_blockwise_{name}")(
                rand(512, 1024, grad=False)
            ),
        )
    for name in ("triton_fp8_sdpa_quantize", "triton_fp8_hadamard_sdpa_quantize"):
        module = (
            "triton_hadamard_qkv_quantization" if "hadamard" in name else "triton_qkv_quantization"
        )
        yield (
            name,
            lambda name=name, module=module: function(
                f"torchao.prototype.attention.quantization.{module}", name
            )(*(rand(2, 8, 512, 64, grad=False) for _ in range(3))),
        )
    for name in ("bsr_dense_addmm",):
        bsr = importlib.import_module("torchao.kernel.bsr_triton_ops")
        yield (
            name,
            lambda name=name, bsr=bsr: getattr(bsr, name)(
                torch.zeros(256, 256, dtype=F16),
                torch.eye(256, dtype=F16).to_sparse_bsr((32, 32)),
                rand(256, 256, dtype=F16, grad=False),
            ),
        )


def late_interaction_kernels() -> Calls:
    import late_interaction_kernels as package

    for name in ("maxsim", "maxsim_scores", "maxsim_forward"):
        if (call := getattr(package, name, None)) is not None:
            for d in (64, 128):
                yield (
                    f"{name} {d}",
                    lambda call=call, d=d: both_ways(call, rand(8, 32, d), rand(8, 180, d)),
                )


def flash_kmeans() -> Calls:
    call = function("flash_kmeans.kmeans_triton_impl", "batch_kmeans_Euclid")
    yield "kmeans", lambda: call(rand(2, 4096, 64, dtype=F16, grad=False), 128, max_iters=1)


def trinix() -> Calls:
    names = {
        "geglu": (512, 2048),
        "mish": (512, 1024),
        "quickgelu": (512, 1024),
        "reglu": (512, 2048),
    }
    names |= {"squared_relu": (512, 1024), "swigelu": (512, 2048)}
    for name, shape in names.items():
        module = importlib.import_module(f"trinix.kernels.{name}_kernel")
        for inner, made in vars(module).items():
            if (
                inspect.isclass(made)
                and issubclass(made, torch.autograd.Function)
                and made.__module__ == module.__name__
            ):
                yield (
                    inner,
                    partial(lambda made, shape: both_ways(made.apply, rand(*shape)), made, shape),
                )
    attention = importlib.import_module("trinix.kernels.attention_kernel")
    for inner, made in vars(attention).items():
        if (
            inspect.isclass(made)
            and issubclass(made, torch.autograd.Function)
            and made is not torch.autograd.Function
        ):
            for causal in (False, True):
                yield (
                    f"{inner} {causal}",
                    partial(
                        lambda made, causal: both_ways(
                            made.apply,
                            *(rand(2, 4, 512, 64, dtype=F16) for _ in range(3)),
                            causal,
                            0.125,
                        ),
                        made,
                        causal,
                    ),
                )


def flag_gems() -> Calls:
    """The operators of torch that the package replaces, by the kind of their arguments."""
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    import flag_gems as package

    one = [
        "abs",
        "cos",
        "exp",
        "exp2",
        "gelu",
        "isnan",
        "log",
        "neg",
        "reciprocal",
        "relu",
        "rsqrt",
        "sigmoid",
        "silu",
        "sin",
        "tanh",
        "erf",
        "sqrt",
        "softplus",
        "ceil",
        "atan",
        "acos",
    ]
    two = [
        "add",
        "mul",
        "sub",
        "true_divide",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "pow_tensor_tensor",
        "atan2",
        "fmin",
        "logaddexp",
    ]
    whole = [
        "sum",
        "mean",
        "max",
        "min",
        "argmax",
        "argmin",
        "all",
        "any",
        "amax",
        "prod",
        "std",
        "var_mean",
        "nonzero",
        "cumsum",
        "sort",
    ]
    ops = package.ops

    def call(name: str, *args: Any, **keywords: Any) -> Callable[[], object] | None:
        found = getattr(ops, name, None)
        return None if found is None else lambda: found(*(a() for a in args), **keywords)

    x = lambda: rand(512, 1024, grad=False)  # noqa: E731
    f = lambda: rand(512, 1024, dtype=F32, grad=False)  # noqa: E731
    cases: list[tuple[str, Callable[[], object] | None]] = []
    cases += [(name, call(name, x)) for name in one]
    cases += [(name, call(name, x, x)) for name in two]
    cases += [(name, call(name, f)) for name in whole]
    last = lambda: -1  # noqa: E731
    for name in (
        "sum_dim",
        "mean_dim",
        "max_dim",
        "min_dim",
        "argmax",
        "amax",
        "cumsum",
        "sort",
        "prod_dim",
        "all_dim",
    ):
        dims = (lambda: [1]) if name in ("sum_dim", "mean_dim", "amax") else last
        cases.append((f"{name} last", call(name, f, dims)))
    for name in ("softmax", "log_softmax"):
        cases.append((name, call(name, f, last)))
    cases += [
        ("topk", call("topk", f, lambda: 16)),
        ("mm", call("mm", x, lambda: rand(1024, 768, grad=False))),
    ]
    cases += [
        (
            "addmm",
            call("addmm", lambda: rand(768, grad=False), x, lambda: rand(1024, 768, grad=False)),
        ),
        (
            "bmm",
            call(
                "bmm", lambda: rand(4, 256, 512, grad=False), lambda: rand(4, 512, 256, grad=False)
            ),
        ),
        ("mv", call("mv", x, lambda: rand(1024, grad=False))),
        ("outer", call("outer", lambda: rand(512, grad=False), lambda: rand(512, grad=False))),
        (
            "layer_norm",
            call(
                "layer_norm",
                x,
                lambda: [1024],
                lambda: rand(1024, grad=False),
                lambda: rand(1024, grad=False),
            ),
        ),
        ("rms_norm", call("rms_norm", x, lambda: [1024], lambda: rand(1024, grad=False))),
        (
            "group_norm",
            call(
                "group_norm",
                lambda: rand(4, 64, 256, grad=False),
                lambda: rand(64, grad=False),
                lambda: rand(64, grad=False),
                lambda: 4,
                lambda: 64,
                lambda: 256,
                lambda: 8,
            ),
        ),
        (
            "embedding",
            call("embedding", lambda: rand(1000, 256, grad=False), lambda: below(1000, 512)),
        ),
        ("index_select", call("index_select", x, lambda: 1, lambda: below(1024, 128))),
        ("gather", call("gather", f, lambda: 1, lambda: below(1024, 512, 64))),
        ("masked_fill", call("masked_fill", x, lambda: below(2, 512, 1024).bool(), lambda: 0.5)),
        ("triu", call("triu", x)),
        ("tril", call("tril", x)),
        ("flip", call("flip", x, lambda: [1])),
        ("cat", call("cat", lambda: [x(), x()])),
        ("stack", call("stack", lambda: [x(), x()])),
        ("arange", call("arange", lambda: 1024)),
        ("clamp", call("clamp", x, lambda: -1.0, lambda: 1.0)),
        ("dropout", call("dropout", x, lambda: 0.5, lambda: True)),
        ("isin", call("isin", lambda: below(100, 512), lambda: below(100, 64))),
        ("unique", call("_unique2", lambda: below(100, 512))),
        ("vector_norm", call("vector_norm", f)),
        (
            "conv2d",
            call("conv2d", lambda: rand(2, 16, 32, 32), lambda: rand(32, 16, 3, 3), lambda: None),
        ),
        (
            "scaled_dot_product_attention",
            call("scaled_dot_product_attention", *(lambda: rand(2, 8, 512, 64, dtype=F16),) * 3),
        ),
        ("multinomial", call("multinomial", lambda: f().abs(), lambda: 4, lambda: True)),
        ("repeat", call("repeat", x, lambda: (2, 2))),
        ("diag", call("diag", lambda: rand(512, grad=False))),
        (
            "upsample_nearest2d",
            call("upsample_nearest2d", lambda: rand(2, 8, 32, 32, grad=False), lambda: (64, 64)),
        ),
    ]
    yield from ((name, made) for name, made in cases if made is not None)


PACKAGES: dict[str, Callable[[], Calls]] = {
    f.__name__: f
    for f in (
        liger_kernel,
        fla,
        conch,
        cut_cross_entropy,
        sageattention,
        adasplash,
        torchnorm,
        torchao,
        late_interaction_kernels,
        flash_kmeans,
        trinix,
        flag_gems,
        inductor,
    )
}
