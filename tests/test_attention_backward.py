"""The gradients of attention beside float64 autograd, through the simulator and the proof."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tawa.errors import ArgumentError

torch = pytest.importorskip("torch")

import tawa  # noqa: E402
from attention_tiles import PLAIN  # noqa: E402
from covering import is_short  # noqa: E402
from tawa.kernels.attention import Variant, attention  # noqa: E402
from tawa.kernels.attention_backward import (  # noqa: E402
    ARRAYS,
    attention_backward,
    bind_gradients,
    parts,
    prepare,
    variants,
)
from torch_reference import attention as reference  # noqa: E402
from torch_reference import doubles, worst  # noqa: E402

# batch, heads, heads that share keys, queries, keys, head dims of keys and of values, options
CASES = {
    "full": (1, 2, 1, 160, 200, (64, 64), {}),
    "causal, rows without keys, shared heads": (2, 2, 2, 96, 72, (64, 64), {"causal": True}),
    "causal, more keys": (1, 1, 1, 72, 200, (128, 128), {"causal": True}),
    "window, shared heads": (1, 2, 2, 100, 130, (64, 64), {"window": (16, 9)}),
    "soft cap": (1, 1, 1, 50, 70, (64, 64), {"softcap": 20.0}),
    "slopes, window": (
        *(1, 2, 1, 70, 70, (64, 64)),
        {"alibi": True, "window": (30, None), "causal": True},
    ),
    "odd width, loss by lse": (1, 1, 1, 33, 17, (40, 40), {"lse": True}),
    "slopes of each batch": (2, 2, 1, 40, 70, (64, 64), {"alibi": True}),
    "wide": (1, 1, 1, 70, 90, (256, 256), {"causal": True}),
    "wider keys, shared heads": (1, 2, 2, 40, 50, (192, 128), {}),
    "dropout, shared heads": (2, 2, 2, 40, 72, (64, 64), {"dropout": 0.3}),
    "dropout, wide": (1, 2, 1, 70, 50, (192, 72), {"dropout": 0.2, "causal": True}),
    "wider values": (1, 1, 1, 40, 40, (64, 136), {"softcap": 9.0, "lse": True}),
}
LONGER = (
    *("window, shared heads", "causal, more keys", "soft cap", "slopes, window"),
    *("wide", "wider values", "dropout, shared heads", "dropout, wide"),
)
# Queries by keys of dq, then of the sums over queries: no more than fits the registers.
SMALL = Variant(64, 64), Variant(32, 64), Variant(32, 64)


@pytest.fixture
def small(request):
    """`SMALL`; in the short run without roles, which those of the library's own tiles have."""
    pins = PLAIN if is_short(request.config) else ()
    return tuple(replace(each, pins=pins) for each in SMALL)


def gradients(name, deterministic, tiles, dtype=torch.bfloat16):
    """Return the gradients of a case, and those of float64 autograd."""
    batch, heads, groups, queries, keys, dims, options = CASES[name]
    options = dict(options)
    torch.manual_seed(len(name))

    def drawn(count, length, dim):
        return torch.randn(batch, count, length, dim).to(dtype)

    q, grad = (drawn(heads, queries, dim) for dim in dims)
    k, v = (drawn(heads // groups, keys, dim) for dim in dims)
    grad_lse = torch.randn(batch, heads, queries) if options.pop("lse", False) else None
    if options.get("alibi"):
        options["alibi"] = torch.rand(batch, heads) * 0.3
    if options.get("dropout"):
        options["rng"] = torch.tensor([-(2**62) + 123456789, 2**33 + 5])
    out, lse = attention(q, k, v, return_lse=True, variant=tiles and SMALL[0], **options)
    how = {"grad_lse": grad_lse, "deterministic": deterministic, "variants": tiles}
    found = attention_backward(grad, q, k, v, out, lse, **how, **options)
    leaves = doubles(q, k, v)
    of_out, of_lse = reference(*leaves, **options)
    loss = (of_out * grad.double()).sum()
    if grad_lse is not None:
        loss = loss + (of_lse * grad_lse.double()).sum()
    assert all(torch.isfinite(each).all() for each in found)
    return found, torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in LONGER else ()) for n in CASES]
)
@pytest.mark.parametrize("tiles", ["small", pytest.param("chosen", marks=pytest.mark.long)])
@pytest.mark.short(
    "small-causal, rows without keys, shared heads",
    "small-odd width, loss by lse",
    "small-wider keys, shared heads",
)
def test_gradients_are_those_of_float64(name, tiles):
    assert worst(*gradients(name, True, SMALL if tiles == "small" else None)) < 1e-2


WIDE = ("wide", "wider keys, shared heads", "dropout, wide")
QUICK = ("full", "dropout, shared heads")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.long) for n in CASES if n not in WIDE],
)
def test_gradients_in_no_order_are_those_of_float64(name):
    found = bound(*CASES[name][5], causal=False)
    first = next(variants("all", found.forward.problem))
    assert worst(*gradients(name, False, (first,))) < 1e-2


@pytest.mark.parametrize("name", WIDE)
def test_heads_too_wide_for_no_order_have_one(name):
    problem = bound(*CASES[name][5], causal=False).forward.problem
    assert parts(problem, deterministic=False) == parts(problem) == ("queries", "dk", "dv")


def test_gradients_of_wide_heads_in_any_order():
    found, expected = gradients("wider keys, shared heads", False, SMALL)
    assert worst(found, expected) < 1e-2


def test_keys_past_the_end_add_nothing_to_dq(small):
    """Their scores are zero, which is more than those of all keys by more than float32 holds."""
    q, k = (x * torch.ones(1, 1, n, 64).half() for x, n in ((-30.0, 8), (1.0, 20)))
    v, grad = torch.randn(1, 1, 20, 64).half(), torch.randn(1, 1, 8, 64).half()
    out, lse = attention(q, k, v, return_lse=True, variant=small[0])
    assert lse.max() < -200
    how = {"deterministic": False, "variants": small}
    found = attention_backward(grad, q, k, v, out, lse, **how)
    assert all(torch.isfinite(each).all() for each in found)


@pytest.mark.parametrize("deterministic", [True, False], ids=["same", "no order"])
@pytest.mark.parametrize(
    "causal", [False, pytest.param(True, marks=pytest.mark.long)], ids=["full", "causal"]
)
def test_packed_sequences_have_the_gradients_of_each(causal, deterministic, small):
    torch.manual_seed(2)
    how = {"causal": causal}
    if causal or not deterministic:
        how |= {"dropout": 0.4, "rng": torch.tensor([7, 9])}
    of_q, of_k = (0, 30, 30, 110), (0, 40, 50, 97)
    shapes = (2, 110, 40), (1, 97, 40), (1, 97, 72), (2, 110, 72)
    q, k, v, grad = (torch.randn(1, *shape).half() for shape in shapes)
    starts = tuple(torch.tensor(each, dtype=torch.int32) for each in (of_q, of_k))
    out, lse = attention(q, k, v, **how, cu_seqlens=starts, variant=small[0], return_lse=True)
    tiles = {"deterministic": deterministic, "variants": small}
    found = attention_backward(grad, q, k, v, out, lse, **how, **tiles, cu_seqlens=starts)
    leaves = doubles(q, k, v)
    loss = 0
    for place, ((a, b), (c, d)) in enumerate(zip(pairwise(of_q), pairwise(of_k))):
        part = leaves[0][:, :, a:b], *(each[:, :, c:d] for each in leaves[1:])
        made, _ = reference(*part, **how, sequence=place)
        loss = loss + (made * grad[:, :, a:b].double()).sum()
    assert worst(found, torch.autograd.grad(loss, leaves)) < 1e-2


@pytest.mark.parametrize(
    ("shape", "queries", "how"),
    [
        ((1, 1, 1, 60), 80, {}),
        pytest.param((2, 1, 40, 60), 40, {"dropout": 0.3}, marks=pytest.mark.long),
        pytest.param((1, 4, 40, 60), 40, {"softcap": 9.0}, marks=pytest.mark.long),
        pytest.param(
            (2, 4, 70, 60), 70, {"causal": True, "window": (20, 0)}, marks=pytest.mark.long
        ),
    ],
    ids=str,
)
def test_a_bias_hides_and_shifts_and_has_a_gradient(shape, queries, how, small):
    torch.manual_seed(3)
    how = how | ({"rng": torch.tensor([5, 6])} if "dropout" in how else {})
    q, grad = (torch.randn(2, 4, queries, 64).half() for _ in range(2))
    k, v = (torch.randn(2, 2, 60, 64).half() for _ in range(2))
    bias = torch.randn(shape).masked_fill(torch.rand(shape) > 0.7, -torch.inf)
    out, lse = attention(q, k, v, bias=bias, return_lse=True, variant=small[0], **how)
    tiles = {"bias_gradient": True, "variants": (*small[:2], small[0])}
    found = attention_backward(grad, q, k, v, out, lse, bias=bias, **tiles, **how)
    leaves = doubles(q, k, v, bias)
    exact, _ = reference(*leaves[:3], bias=leaves[3], **how)
    expected = torch.autograd.grad((exact * grad.double()).sum(), leaves)
    assert found[3].dtype == torch.float32
    assert worst(found, expected) < 1e-2


def bound(dim, width, causal, bias=False):
    arrays = dict.fromkeys(ARRAYS)
    arrays |= {n: tawa.array((1, 4, 512, dim), "bf16") for n in ("q", "k")}
    arrays |= {n: tawa.array((1, 4, 512, width), "bf16") for n in ("grad", "v", "out")}
    arrays |= {"lse": tawa.array((1, 4, 512), "f32")}
    arrays["bias"] = tawa.array((1, 1, 512, 512), "bf16") if bias else None
    how = {"causal": causal, "deterministic": dim + width > 256, "bias_gradient": bias}
    return bind_gradients(arrays, how)


def test_gradients_of_the_reference_are_its_differences():
    torch.manual_seed(6)
    q, k, v = doubles(*(torch.randn(1, 2, n, 4) for n in (3, 5, 5)))
    bias, sink = doubles(torch.randn(1, 1, 3, 5), torch.randn(2))

    def both(q, k, v, bias, sink):
        how = {"window": (2, 1), "softcap": 3.0, "alibi": torch.tensor([0.1, 0.3])}
        return reference(q, k, v, bias=bias, sink=sink, **how)

    assert torch.autograd.gradcheck(both, (q, k, v, bias, sink))


def test_lse_of_one_head_is_dense_whatever_it_is_a_part_of():
    arrays = dict.fromkeys(ARRAYS)
    arrays |= {n: tawa.array((1, 1, 64, 64), "f16") for n in ("grad", "q", "k", "v", "out")}
    arrays["lse"] = tawa.array((1, 1, 64), "f32", strides=(128, 64, 1))
    bind_gradients(arrays, {})
    arrays["lse"] = tawa.array((1, 1, 64), "f32", strides=(128, 64, 2))
    with pytest.raises(ArgumentError, match="lse is f32"):
        bind_gradients(arrays, {})


@pytest.mark.parametrize("part", ["queries", "keys", "all", "bias"])
@pytest.mark.parametrize("dim", [64, pytest.param(128, marks=pytest.mark.long)])
def test_the_first_tiles_are_specialized_and_proved(part, dim):
    found = bound(dim, dim, causal=True, bias=part == "bias")
    first = next(variants(part, found.forward.problem))
    kernel = prepare(part, found, first)[0].compile()
    assert len(kernel.plan.roles) > 1
    assert kernel.proof.ok
    assert kernel.resources.local_in_loops == 0
    if part == "all":  # what others add to stays in L2
        evicted = {store.store.partition("@")[0]: store.eviction for store in kernel.plan.stores}
        assert evicted == {"dq_desc": "", "dk_desc": "first", "dv_desc": "first"}


@pytest.mark.parametrize("dims", [(192, 128), (256, 256)])
@pytest.mark.long
def test_sums_of_wide_heads_are_proved_and_do_not_spill(dims):
    found = bound(*dims, causal=True)
    for part in parts(found.forward.problem):
        kernel = prepare(part, found, next(variants(part, found.forward.problem)))[-1].compile()
        assert kernel.proof.ok
        assert part == "dk" or "spills: 0 bytes" in str(kernel)


def test_nothing_to_sum_gives_zeros():
    q, k = torch.ones(1, 2, 8, 64).half(), torch.ones(1, 2, 0, 64).half()
    dq, dk, dv = attention_backward(q, q, k, k, torch.zeros_like(q), torch.zeros(1, 2, 8))
    assert not dq.any()
    assert dk.shape == dv.shape == k.shape


def test_the_same_is_dropped_whatever_the_tiles_and_a_gradient_is_the_same_again(small):
    torch.manual_seed(4)
    q, k, v, grad = (torch.randn(1, 1, n, 64).half() for n in (40, 24, 24, 40))
    how = {"dropout": 0.5, "rng": torch.tensor([1, 2])}
    out, lse = attention(q, k, v, return_lse=True, variant=small[0], **how)
    leaves = doubles(q, k, v)
    exact, _ = reference(*leaves, **how)
    assert worst([out], [exact.detach()]) < 1e-2

    first, again = (
        attention_backward(grad, q, k, v, out, lse, variants=small, **how) for _ in range(2)
    )
    assert all(torch.equal(x, y) for x, y in zip(first, again))
    expected = torch.autograd.grad((exact * grad.double()).sum(), leaves)
    assert worst(first, expected) < 1e-2
    none = attention(q, k, v, dropout=1.0, rng=torch.tensor([1, 2]), variant=small[0])
    assert not none.any()
    with pytest.raises(ArgumentError, match=r"dropout 0\.5 without rng"):
        attention(q, k, v, dropout=0.5)
    with pytest.raises(ArgumentError, match=r"dropout is 1\.5"):
        attention(q, k, v, dropout=1.5, rng=how["rng"])
    with pytest.raises(ArgumentError, match="dropout beside block_table, lengths"):
        attention(q, k, v, lengths=torch.tensor([5]), **how)


def test_what_has_no_gradient_is_refused_by_name():
    def call(q, **how):
        lse = how.pop("lse", torch.zeros(q.shape[:3]))
        attention_backward(q, q, q, q, q, lse, **how)

    with pytest.raises(ArgumentError, match="head_dim is 264"):
        call(torch.zeros(1, 1, 8, 264).half())
    q = torch.zeros(1, 1, 8, 64).to(torch.float8_e4m3fn)
    o = torch.zeros(1, 1, 8, 64).bfloat16()
    with pytest.raises(ArgumentError, match="for f8e4m3"):
        attention_backward(o, q, q, q, o, torch.zeros(1, 1, 8))
    with pytest.raises(ArgumentError, match="gradient of a bias, and no bias"):
        call(torch.zeros(1, 1, 8, 64).half(), bias_gradient=True)
    with pytest.raises(ArgumentError, match="lse is f32"):
        call(torch.zeros(1, 1, 8, 64).half(), lse=torch.zeros(1, 1, 9))
