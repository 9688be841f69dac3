"""`tawa.torch` on a GPU: gradients, CUDA graphs, checkpoint, inductor, AOTInductor, DDP, FSDP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)

from torch.nn import functional as F  # noqa: E402

import tawa.torch as tt  # noqa: E402
from tawa.kernels.attention_backward import (  # noqa: E402
    ARRAYS,
    attention_backward,
    bind_gradients,
    variants,
)
from tawa.kernels.matmul import matmul  # noqa: E402
from torch_reference import attention as reference  # noqa: E402
from torch_reference import doubles  # noqa: E402


def drawn(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).requires_grad_(grad)


def worst(found, expected):
    return max(
        float((x.double() - y.double()).norm() / y.double().norm())
        for x, y in zip(found, expected, strict=True)
    )


@tawa.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)


@pytest.mark.parametrize("dims", [(256, 256), (192, 128), (64, 128)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_attention_of_wide_and_unequal_heads_trains(dims, causal, groups):
    torch.manual_seed(0)
    q, k, v = (
        drawn(2, heads, 700, dim, grad=True)
        for heads, dim in ((4, dims[0]), (4 // groups, dims[0]), (4 // groups, dims[1]))
    )
    weight = drawn(2, 4, 700, dims[1])
    made = tt.attention(q, k, v, causal=causal)
    found = torch.autograd.grad(made, (q, k, v), weight)
    wide = [each.detach().double().requires_grad_() for each in (q, k, v)]
    exact = F.scaled_dot_product_attention(*wide, is_causal=causal, enable_gqa=groups > 1)
    expected = torch.autograd.grad(exact, wide, weight.double())
    assert worst([made, *found], [exact, *expected]) < 8e-3


@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (256, 256), (192, 128)])
def test_dropout_is_the_function_of_seed_and_offset_that_it_says(dims):
    torch.manual_seed(0)
    rng = torch.tensor([2**61 + 12345, 77], device="cuda")
    q, k = (drawn(2, 2, n, dims[0], grad=True) for n in (300, 260))
    v, weight = drawn(2, 2, 260, dims[1], grad=True), drawn(2, 2, 300, dims[1])
    made = tt.attention(q, k, v, dropout=0.25, rng=rng)
    found = torch.autograd.grad(made, (q, k, v), weight)
    leaves = doubles(*(each.cpu() for each in (q, k, v)))
    exact, _ = reference(*leaves, dropout=0.25, rng=rng.cpu())
    expected = torch.autograd.grad(exact, leaves, weight.cpu().double())
    pairs = [each.cpu() for each in (made, *found)], [exact, *expected]
    assert worst(*pairs) < 8e-3


@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((1, 1, 1, 520), 64),
        ((2, 1, 300, 520), 64),
        ((2, 1, 300, 520), 128),
        ((1, 4, 300, 520), 256),
    ],
)
def test_a_bias_has_a_gradient(shape, dim):
    torch.manual_seed(0)
    q, grad = drawn(2, 4, 300, dim, grad=True), drawn(2, 4, 300, dim)
    k, v = (drawn(2, 2, 520, dim, grad=True) for _ in range(2))
    bias = drawn(*shape, grad=True)
    made = tt.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True)
    found = torch.autograd.grad(made, (q, k, v, bias), grad)
    leaves = doubles(q, k, v, bias)
    exact = F.scaled_dot_product_attention(*leaves, enable_gqa=True)
    assert worst(found, torch.autograd.grad(exact, leaves, grad.double())) < 1e-2


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "silu", "gelu"])
@pytest.mark.parametrize(("rows", "columns"), [(4096, 4096), (200, 1000), (8, 4096), (77, 33)])
def test_the_gradient_of_an_activation_within_the_product(activation, rows, columns):
    a, b, bias, grad = drawn(rows, 512), drawn(512, columns), drawn(columns), drawn(rows, columns)
    b = b / 16
    found = matmul(a, b, bias=bias, activation=activation, gradient=grad)
    z = a.double() @ b.double() + bias.double()
    slope = {
        "relu": lambda z: (z > 0).double(),
        "leaky_relu": lambda z: torch.where(z >= 0, 1.0, 0.01).double(),
    }.get(activation)
    if slope is None:
        z.requires_grad_()
        value = F.silu(z) if activation == "silu" else F.gelu(z, approximate="tanh")
        (derivative,) = torch.autograd.grad(value.sum(), z)
    else:
        derivative = slope(z)
    assert worst([found], [derivative * grad.double()]) < 8e-3


class Block(torch.nn.Module):
    """Attention and a layer, as a model has them."""

    def __init__(self, layer=tt.Linear, attend=tt.scaled_dot_product_attention):
        super().__init__()
        self.into, self.out = layer(256, 3 * 256), layer(256, 256)
        self.attend = attend

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.into(x).view(batch, length, 3, 4, 64).permute(2, 0, 3, 1, 4)
        seen = self.attend(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).reshape(batch, length, 256))


def models():
    torch.manual_seed(0)
    ours = Block().cuda().bfloat16()
    theirs = Block(torch.nn.Linear, F.scaled_dot_product_attention).cuda().bfloat16()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def gradients(run, model, x):
    model.zero_grad()
    run(x).float().pow(2).mean().backward()
    return [each.grad.clone() for each in model.parameters()]


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"causal": True},
        {"causal": True, "window": (100, None)},
        {"causal": True, "softcap": 30.0},
        {"causal": True, "alibi": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(("queries", "keys", "groups"), [(700, 700, 1), (300, 520, 4)])
def test_attentions_gradients(dim, how, queries, keys, groups):
    torch.manual_seed(0)
    how = dict(how)
    if how.get("alibi"):
        how["alibi"] = torch.rand(4, device="cuda") * 0.1
    q, grad = drawn(2, 4, queries, dim, grad=True), drawn(2, 4, queries, dim)
    k, v = (drawn(2, 4 // groups, keys, dim, grad=True) for _ in range(2))
    out = tt.attention(q, k, v, **how)
    found = torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)
    again = torch.autograd.grad(out, (q, k, v), grad)
    assert all(torch.equal(x, y) for x, y in zip(found, again))
    leaves = [each.detach().double().requires_grad_() for each in (q, k, v)]
    scores = leaves[0] @ leaves[1].repeat_interleave(groups, 1).mT / dim**0.5
    if cap := how.get("softcap"):
        scores = cap * torch.tanh(scores / cap)
    rows = torch.arange(queries, device="cuda")[:, None] + keys - queries
    columns = torch.arange(keys, device="cuda")[None]
    if "alibi" in how:
        scores = scores - how["alibi"].double()[:, None, None] * (rows - columns).abs()
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device="cuda")
    if how.get("causal"):
        hidden |= columns > rows
    if "window" in how:
        hidden |= columns < rows - how["window"][0]
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    exact = weights @ leaves[2].repeat_interleave(groups, 1)
    assert worst(found, torch.autograd.grad(exact, leaves, grad.double())) < 1e-2


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_in_any_order(dim, causal):
    """Those of the sums that are the fastest, and of the one launch that adds to dq."""
    torch.manual_seed(0)
    grad, q, k, v = (drawn(2, 4, n, dim) for n in (500, 500, 700, 700))
    out, lse = tt.attention(q, k, v, causal=causal, return_lse=True)
    given = grad, q, k, v, out, lse
    same = attention_backward(*given, causal=causal)
    how = {"causal": causal, "deterministic": False}
    assert worst(attention_backward(*given, **how), same) < 4e-3
    if dim <= 128:
        arrays = dict.fromkeys(ARRAYS) | dict(zip(ARRAYS, given))
        problem = bind_gradients(arrays, {"causal": causal}).forward.problem
        for each in variants("all", problem):
            assert worst(attention_backward(*given, **how, variants=(each,)), same) < 4e-3


def test_a_training_step_is_torchs():
    ours, theirs = models()
    x = drawn(2, 384, 256)
    assert worst([ours(x)], [theirs(x)]) < 2e-2
    assert worst(gradients(ours, ours, x), gradients(theirs, theirs, x)) < 3e-2


def test_float32_follows_torchs_precision():
    a, b = torch.randn(512, 1024, device="cuda"), torch.randn(1024, 512, device="cuda")
    exact = a.double() @ b.double()
    assert worst([matmul(a, b)], [exact]) < 4e-6
    torch.set_float32_matmul_precision("high")
    try:
        assert 1e-5 < worst([matmul(a, b)], [exact]) < 2e-3
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_door_refuses_on_the_gpu_too():
    a = drawn(64, 64)
    for _ in range(3):
        matmul(a, a)
    with pytest.raises(ArgumentError, match="requires a gradient"):
        matmul(a.clone().requires_grad_(), a)
    with pytest.raises(ArgumentError, match="sparse"):
        matmul(a.to_sparse(), a)
    with pytest.raises(ArgumentError, match="functionalize"):
        matmul(torch._to_functional_tensor(a), a)
    with pytest.raises(ArgumentError, match="inside a transform"):
        torch.vmap(lambda x: matmul(x, a))(drawn(2, 64, 64))
    wide = torch.randn(64, 64, device="cuda")
    for _ in range(3):
        matmul(wide, wide)
    with pytest.raises(ArgumentError, match="sign"):
        matmul(torch._neg_view(wide), wide)
    weight = torch.ones(64, 64, device="cuda", requires_grad=True)
    out = torch.ones(64, 64, device="cuda")
    loss = (out * weight).sum()
    matmul(wide, wide, out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_cuda_graph_of_a_training_step():
    model, _ = models()
    held = drawn(2, 256, 256)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            gradients(model, model, held)
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = model(held).float().pow(2).mean()
        loss.backward()
    fresh = drawn(2, 256, 256)
    held.copy_(fresh)
    graph.replay()
    found = [each.grad.clone() for each in model.parameters()]
    assert worst(found, gradients(model, model, fresh)) == 0


def test_checkpoint_recomputes_the_same():
    from torch.utils.checkpoint import checkpoint

    model, _ = models()
    x = drawn(2, 256, 256)
    own = gradients(model, model, x)
    again = gradients(lambda y: checkpoint(model, y, use_reentrant=False), model, x)
    assert all(torch.equal(one, other) for one, other in zip(own, again))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor_takes_one_graph(mode):
    model, _ = models()
    x = drawn(2, 256, 256)
    own = gradients(model, model, x)
    torch._dynamo.reset()
    try:
        compiled = torch.compile(model, fullgraph=True, mode=mode)
        for _ in range(3):
            found = gradients(compiled, model, x)
    except Exception as error:
        if "compiler" in str(error).lower() and "not found" in str(error).lower():
            pytest.skip(f"inductor needs a C++ compiler: {error}")
        raise
    assert worst(found, own) < 1e-2


PLAIN = """
import sys, torch
x = torch.ones(2, 64, device="cuda")
with torch.no_grad():
    program = torch.export.export(torch.nn.Linear(64, 64).cuda(), (x,))
    path = torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
    torch._inductor.aoti_load_package(path)(x)
"""


def test_aot_inductor_loads_what_it_packs(tmp_path):
    plain = [sys.executable, "-c", PLAIN, str(tmp_path / "plain.pt2")]
    if subprocess.run(plain, capture_output=True, timeout=150).returncode:
        pytest.skip("AOTInductor does not pack and load torch's own Linear here")
    model, _ = models()
    x = drawn(2, 256, 256)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
        try:
            path = torch._inductor.aoti_compile_and_package(
                program, package_path=str(tmp_path / "model.pt2")
            )
        except Exception as error:
            pytest.skip(f"AOTInductor needs a C++ compiler: {str(error)[:200]}")
        assert worst([torch._inductor.aoti_load_package(path)(x)], [model(x)]) < 1e-2


@pytest.mark.parametrize("new", [1, 40])
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_cache_with_rotated_keys_and_left_padding(new, interleaved):
    held = [drawn(5, 1000, 2, 128) for _ in range(2)]
    q, k, v = drawn(2, new, 8, 128), drawn(2, new, 2, 128), drawn(2, new, 2, 128)
    angles = torch.rand(1000, 32, device="cuda") * 6
    cos, sin = angles.cos(), angles.sin()
    ends, begin, where = (torch.tensor(x, device="cuda") for x in ([900, 37], [100, 5], [4, 1]))
    dense = [each[where].double() for each in held]

    def turn(x, at):
        x, (c, s) = x.double().clone(), (each[at].double()[:, None] for each in (cos, sin))
        both = (slice(0, 64, 2), slice(1, 64, 2)) if interleaved else (slice(32), slice(32, 64))
        a, b = (x[..., each].clone() for each in both)
        x[..., both[0]], x[..., both[1]] = a * c - b * s, a * s + b * c
        return x

    out = tt.flash_attn_with_kvcache(
        *(q, *held, k, v, cos, sin, ends, where, begin),
        causal=True,
        rotary_interleaved=interleaved,
    )
    for row, end in enumerate(ends.tolist()):
        at = torch.arange(end, end + new, device="cuda")
        dense[0][row, at], dense[1][row, at] = turn(k[row], at), v[row].double()
        rows = slice(int(begin[row]), end + new)
        one = turn(q[row], at)[None], *(each[row : row + 1, rows] for each in dense)
        exact, _ = reference(*(each.transpose(1, 2).cpu() for each in one), causal=True)
        assert worst([out[row : row + 1].cpu()], [exact.transpose(1, 2)]) < 2e-2
    assert worst([each[where] for each in held], dense) < 1e-2


def test_a_kernel_as_an_operator_in_one_graph():
    made = tt.op(
        "gpu_tested::add(Tensor x, Tensor y, Tensor out, SymInt n)",
        add,
        grid=lambda meta: (tawa.cdiv(meta["n"], meta["BLOCK"]),),
        out={"out": lambda x, y, n: torch.empty_like(x)},
        BLOCK=1024,
    )
    x, y = torch.randn(5000, device="cuda"), torch.randn(5000, device="cuda")
    run = torch.compile(lambda a, b: made(a, b, a.numel()) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(run(x, y), (x + y) * 2)


def test_long_sequences_and_many_heads():
    q, k, v, grad = (drawn(1, 2, 16384, 128) for _ in range(4))
    out, lse = tt.attention(q, k, v, causal=True, return_lse=True)
    found = attention_backward(grad, q, k, v, out, lse, causal=True)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    theirs = F.scaled_dot_product_attention(*leaves, is_causal=True)
    assert worst(found, torch.autograd.grad(theirs, leaves, grad)) < 1e-2


def test_gradients_of_each_sample():
    layer = torch.nn.Linear(256, 128, device="cuda", dtype=torch.bfloat16)
    x = drawn(4, 64, 256)

    def loss(weight, x, linear):
        return linear(x, weight, layer.bias.detach()).float().square().sum()

    each = torch.vmap(torch.func.grad(loss), (None, 0, None))
    found, expected = (each(layer.weight.detach(), x, f) for f in (tt.linear, F.linear))
    assert worst([found], [expected]) < 1e-2


# --- two GPUs -----------------------------------------------------------------------------------

two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def _train(rank, kind, port, results):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=2)
    model, theirs = models()
    torch.manual_seed(rank)
    x = drawn(2, 256, 256)
    if kind == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
        other = torch.nn.parallel.DistributedDataParallel(theirs, device_ids=[rank])
    else:
        from torch.distributed.fsdp import fully_shard

        wrapped, other = fully_shard(model), fully_shard(theirs)
    losses = []
    for each in (wrapped, other):
        descent = torch.optim.SGD(each.parameters(), lr=0.5)
        for _ in range(3):
            descent.zero_grad()
            loss = each(x).float().pow(2).mean()
            loss.backward()
            descent.step()
        losses.append(loss.item())
    results[rank] = losses
    torch.distributed.destroy_process_group()


@two
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_gpus_train_as_torchs_own(kind):
    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = mp.get_context("spawn").Manager().dict()
    mp.spawn(_train, (kind, port, results), nprocs=2)
    for ours, theirs in results.values():
        assert abs(ours - theirs) < 2e-2 * abs(theirs)


@two
@pytest.mark.filterwarnings("error:The CUDA Graph is empty")
def test_data_on_a_device_that_is_not_current():
    a = torch.randn(128, 128, device="cuda:1").half()
    with torch.cuda.device(0):
        found = tt.matmul(a, a)
        q = torch.randn(1, 2, 100, 64, device="cuda:1").half().requires_grad_()
        tt.attention(q, q, q).float().sum().backward()
    assert found.device == q.grad.device == a.device
    assert worst([found], [a.double() @ a.double()]) < 1e-2


@two
@pytest.mark.filterwarnings("error:The CUDA Graph is empty")
def test_two_gpus_in_threads_of_one_process():
    """Each thread works on its own GPU; neither makes it the current one."""

    def work(index):
        torch.manual_seed(index)
        a = torch.randn(256, 256, device=f"cuda:{index}").half()
        q = torch.randn(1, 2, 200, 64, device=a.device).half().requires_grad_()
        out = tt.attention(q, q, q, causal=True)
        (grad,) = torch.autograd.grad(out.float().sum(), q)
        products = [tt.matmul(a, a) for _ in range(50)]
        assert all(torch.equal(products[0], each) for each in products)
        (leaf,) = doubles(q)
        exact = F.scaled_dot_product_attention(leaf, leaf, leaf, is_causal=True)
        (expected,) = torch.autograd.grad(exact.sum(), leaf)
        pairs = (products[0], a.double() @ a.double()), (out, exact), (grad, expected)
        return max(worst([found], [wide]) for found, wide in pairs)

    with ThreadPoolExecutor(2) as threads:
        assert max(threads.map(work, range(2))) < 1e-2


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("x", "w", "how"),
    [
        ((8, 64, 56, 56), (128, 64, 3, 3), {"padding": 1}),
        ((8, 3, 224, 224), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
        ((4, 64, 28, 28), (64, 16, 3, 3), {"padding": "same", "groups": 4}),
    ],
)
def test_convolutions_with_gradients(kind, x, w, how):
    torch.manual_seed(0)
    x, w, bias = (
        torch.randn(*shape, device="cuda", dtype=kind).requires_grad_() for shape in (x, w, w[:1])
    )
    grad = torch.randn_like(F.conv2d(x, w, bias, **how))
    found = torch.autograd.grad(tt.conv2d(x, w, bias, **how), (x, w, bias), grad)
    wide = [each.detach().double().requires_grad_() for each in (x, w, bias)]
    expected = torch.autograd.grad(F.conv2d(*wide, **how), wide, grad.double())
    assert worst(found, expected) < 1e-2
    with torch.no_grad():
        assert worst([tt.conv2d(x, w, bias, **how)], [F.conv2d(*wide, **how)]) < 5e-3


def test_a_network_of_convolutions_compiles():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2, padding=1),
    )
    model = model.cuda().bfloat16().to(memory_format=torch.channels_last)
    x = drawn(4, 3, 32, 32).to(memory_format=torch.channels_last)
    expected = model(x)
    assert len(tt.conv.replace(model, verbose=False).swapped) == 2
    found = torch.compile(model, fullgraph=True)(x)
    assert worst([found], [expected]) < 1e-2
    found.float().square().mean().backward()
    assert all(each.grad.isfinite().all() for each in model.parameters())
