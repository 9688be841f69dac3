"""Attention on the GPU: the forms its authors write, every option, packed, paged and decoding."""

import math
from pathlib import Path

import pytest

import attention_kernels as forms
import tawa
from tawa.kernels.attention import Variant

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)


def attention(*arrays, **options):
    """Call `attention` with the first variant that builds: what is fastest is timed elsewhere."""
    from tawa.kernels.attention import Tuner
    from tawa.kernels.attention import attention as attend

    class First(Tuner):
        def settle(self, *given, timed=True):
            return super().settle(*given, timed=False)

    return attend(*arrays, tuner=First(keep=False), **options)


def normal(*shape, dtype=torch.float16):
    return torch.randn(*shape, device="cuda").to(dtype)


def reference(
    q, k, v, causal=False, scale=None, window=None, softcap=None, bias=None, alibi=None, sink=None
):
    """Return attention and log-sum-exp in float64; a window is (left, right)."""
    groups = q.shape[1] // k.shape[1]
    q = q.double()
    k, v = (x.double().repeat_interleave(groups, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    rows = torch.arange(q.shape[2], device="cuda")[:, None] + k.shape[2] - q.shape[2]
    away = torch.arange(k.shape[2], device="cuda")[None, :] - rows
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi is not None:
        scores = scores - alibi.double()[:, None, None] * away.abs()
    if bias is not None:
        scores = scores + bias.double()
    left, right = (None, None) if window is None else window
    right = 0 if causal else right
    hidden = torch.zeros_like(away, dtype=torch.bool)
    if left is not None:
        hidden |= away < -left
    if right is not None:
        hidden |= away > right
    scores = scores.masked_fill(hidden, -math.inf)
    extra = torch.full((q.shape[1], 1, 1), -math.inf, device="cuda", dtype=torch.float64)
    if sink is not None:
        extra = sink.double()[:, None, None]
    top = torch.maximum(scores.amax(-1, keepdim=True), extra).clamp(min=-1e30)
    weights = (scores - top).exp()
    total = weights.sum(-1, keepdim=True) + (extra - top).exp()
    lse = (total.log() + top)[..., 0]
    return weights / total.where(total > 0, 1.0) @ v, lse


def agree(out, lse, want, sums, most=1e-3, away=5e-3):
    norm = want.norm()
    assert float((out.double() - want).norm()) <= most * float(norm)
    seen = sums.isfinite()
    assert bool((lse.isneginf() == ~seen).all())
    if bool(seen.any()):
        assert float((lse.double() - sums)[seen].abs().max()) < away


# --- forms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("length", [128, 1024])
def test_two_stages(length, inside, causal, width):
    q, k, v = (normal(2, 3, length, width) for _ in range(3))
    out, lines = torch.full_like(q, math.nan), torch.full(q.shape[:3], math.nan, device="cuda")
    columns = min(width, 128)
    grid, arguments, constants = forms.call_two_stages(
        q, k, v, out, lines, 128, columns, causal, inside
    )
    forms.two_stages[grid](*arguments, **constants)
    want, sums = reference(q, k, v, causal, 0.5)
    agree(out, lines * math.log(2), want, sums)


@pytest.mark.parametrize("causal", [False, True])
def test_two_stages_with_8_bit_floats(causal):
    q, k, v = (normal(1, 1, 512, 128, dtype=torch.float8_e5m2) for _ in range(3))
    out = torch.zeros_like(q)
    lines = torch.full(q.shape[:3], math.nan, device="cuda")
    values = v.transpose(2, 3).contiguous()
    grid, arguments, constants = forms.call_two_stages(q, k, values, out, lines, 128, 128, causal)
    forms.two_stages[grid](*arguments, **constants)
    want, sums = reference(q, k, v, causal, 0.5)
    agree(out, lines * math.log(2), want, sums, 8e-2, 5e-2)  # scores of fp8 products


@pytest.mark.parametrize("inside", [False, True])
def test_two_stages_made_of_triton_objects(inside, monkeypatch):
    """The same source with triton.language as its language, decorated by Triton, given to tawa."""
    pytest.importorskip("triton")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from twin import twin

    q, k, v = (normal(2, 2, 512, 128) for _ in range(3))
    out, lines = torch.full_like(q, math.nan), torch.full(q.shape[:3], math.nan, device="cuda")
    grid, arguments, constants = forms.call_two_stages(q, k, v, out, lines, 128, 64, True, inside)
    tawa.jit(twin(forms.two_stages))[grid](*arguments, **constants)
    want, sums = reference(q, k, v, True, 0.5)
    agree(out, lines * math.log(2), want, sums)


@pytest.mark.parametrize("causal", [False, True])
def test_one_loop(causal):
    q, k, v = (normal(2, 2, 512, 64) for _ in range(3))
    out = torch.full_like(q, math.nan)
    wide = [
        tawa.TensorDescriptor.from_tensor(each.view(-1, 64), [128, 64]) for each in (q, k, v, out)
    ]
    how = {"ROWS": 128, "COLUMNS": 128, "CAUSAL": causal}
    forms.one_loop[4, 4](*wide, 2, 512, 0.125, **how)
    want = reference(q, k, v, causal)[0]
    assert float((out.double() - want).norm() / want.norm()) < 1e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(100, 168), (1000, 1000)])
@pytest.mark.parametrize("step", [64, 68])
def test_pointers(step, queries, keys, causal):
    """Rows of 64 in arrays of 68 do not fit TMA: the producer's threads copy them."""
    q = normal(1, 2, queries, step)[..., :64]
    k, v = (normal(1, 2, keys, step)[..., :64] for _ in range(2))
    out = torch.full((1, 2, queries, 64), math.nan, device="cuda", dtype=torch.float16)
    lines = torch.full((1, 2, queries), math.nan, device="cuda")
    steps = [s for each in (q, k, v, out) for s in each.stride()]
    how = {"ROWS": 128, "COLUMNS": 64, "WIDTH": 64, "CAUSAL": causal}
    grid = (-(-queries // 128), 2)
    forms.by_pointers[grid](q, k, v, out, lines, 0.125, *steps, 2, queries, keys, **how)
    # The mask of this form starts at the first key, whatever the lengths.
    scores = q.double() @ k.double().transpose(2, 3) * 0.125
    if causal:
        seen = torch.ones(queries, keys, device="cuda", dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    agree(out, lines, scores.softmax(-1) @ v.double(), scores.logsumexp(-1))


def test_block_pointers():
    q, k, v = (normal(2, 2, 512, 64) for _ in range(3))
    out = torch.full_like(q, math.nan)
    how = {"ROWS": 128, "COLUMNS": 64, "WIDTH": 64}
    forms.by_block_pointers[4, 4](q, k, v, out, 0.125, 512 * 64, 64, 512, **how)
    want = reference(q, k, v)[0]
    assert float((out.double() - want).norm() / want.norm()) < 1e-3


# --- options ------------------------------------------------------------------------------------

HEADS = 4
OPTIONS = {
    "none": {},
    "causal": {"causal": True},
    "window": {"window": (100, None), "causal": True},
    "window both sides": {"window": (70, 30)},
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi": "slopes", "causal": True},
    "sink": {"sink": "slopes"},
    "bias": {"bias": (1, HEADS)},
    "bias of heads": {"bias": (2, 1), "causal": True},
    "all": {
        "causal": True,
        "window": (200, None),
        "softcap": 2.0,
        "alibi": "slopes",
        "sink": "slopes",
        "bias": (2, HEADS),
    },
}


def with_arrays(options, queries, keys):
    made = dict(options)
    for name in ("alibi", "sink"):
        if name in made:
            made[name] = torch.rand(HEADS, device="cuda")
    if "bias" in made:
        made["bias"] = normal(*made["bias"], queries, keys)
    return made


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    ("queries", "keys", "dim", "dtype"),
    [
        (512, 512, 128, torch.float16),
        (200, 1000, 64, torch.bfloat16),
        (333, 333, 64, torch.float16),
    ],
)
def test_options(queries, keys, dim, dtype, options):
    options = with_arrays(options, queries, keys)
    q = normal(2, HEADS, queries, dim, dtype=dtype)
    k, v = (normal(2, 2, keys, dim, dtype=dtype) for _ in range(2))
    out = torch.full_like(q, math.nan)
    _, lse = attention(q, k, v, out=out, return_lse=True, **options)
    agree(out, lse, *reference(q, k, v, **options), 1e-3 if dtype == torch.float16 else 8e-3)


@pytest.mark.parametrize("dim", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("options", [{}, {"causal": True, "softcap": 3.0}], ids=str)
def test_widths(dim, options):
    q, k, v = (normal(1, 2, 400, dim) for _ in range(3))
    out = torch.full_like(q, math.nan)
    _, lse = attention(q, k, v, out=out, return_lse=True, **options)
    agree(out, lse, *reference(q, k, v, **options))


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": (50, None)}])
@pytest.mark.parametrize("dim", [64, 128])
def test_packed_sequences(dim, options):
    lengths = torch.tensor([0, 100, 0, 1024, 1, 513, 64])
    starts = lengths.cumsum(0).int().cuda()
    q = normal(1702, HEADS, dim).transpose(0, 1)[None]
    k, v = (normal(1702, 2, dim).transpose(0, 1)[None] for _ in range(2))
    out = torch.full_like(q, math.nan)
    _, lse = attention(q, k, v, cu_seqlens=starts, out=out, return_lse=True, **options)
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist()):
        if begin == end:
            continue
        rows = slice(begin, end)
        want = reference(q[:, :, rows], k[:, :, rows], v[:, :, rows], **options)
        agree(out[:, :, rows], lse[:, :, rows], *want)


@pytest.mark.parametrize(
    "options", [{}, {"causal": True, "window": (300, None), "softcap": 2.0}], ids=str
)
@pytest.mark.parametrize(("page", "queries"), [(0, 1), (0, 4), (256, 1), (64, 3), (16, 1)])
@pytest.mark.parametrize("dim", [64, 128])
def test_few_queries_and_pages(dim, page, queries, options):
    batch, heads, shared, keys = 3, 8, 2, 1500
    q = normal(batch, heads, queries, dim)
    lengths = torch.tensor([1500, 700, 1], device="cuda", dtype=torch.int32)
    if page:
        count = -(-keys // page)
        table = torch.randperm(batch * count, device="cuda").view(batch, count).int()
        k_held, v_held = (normal(batch * count, shared, page, dim) for _ in range(2))
        k, v = (
            held[table.long()].transpose(1, 2).reshape(batch, shared, count * page, dim)
            for held in (k_held, v_held)
        )
        more = {"block_table": table, "lengths": lengths}
    else:
        k_held, v_held = (normal(batch, shared, keys, dim) for _ in range(2))
        k, v = k_held, v_held
        more = {"lengths": lengths}
    out = torch.full_like(q, math.nan)
    _, lse = attention(q, k_held, v_held, out=out, return_lse=True, **more, **options)
    for b, length in enumerate(lengths.tolist()):
        one = slice(b, b + 1)
        want = reference(q[one], k[one, :, :length], v[one, :, :length], **options)
        agree(out[one], lse[one], *want)


def long(*values):
    return pytest.param(*values, marks=pytest.mark.long)


# --- tiles, types, rows that see nothing ----------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("dim", "rows", "columns", "pins"),
    [
        (64, 192, 128, {"arrangement": "pingpong"}),
        long(64, 192, 96, {}),
        long(96, 128, 128, {}),
        (128, 128, 176, {"store": "slot"}),
        long(128, 128, 192, {"store": "slot", "arrangement": "pingpong"}),
        long(192, 128, 64, {"arrangement": "pingpong"}),
        long(256, 128, 80, {"store": "slot"}),
        (256, 128, 64, {"arrangement": "pingpong"}),
    ],
)
def test_tiles(dim, rows, columns, pins, causal):
    """Keys from less than a tile to the slots and two more, the last tile cut short."""
    for tiles in (0, 1, 2, 3, 4):
        keys = max(1, columns * tiles - 7)
        q = normal(1, 2, 300, dim)
        k, v = (normal(1, 2, keys, dim) for _ in range(2))
        out = torch.full_like(q, math.nan)
        how = Variant(rows, columns, False, tuple(pins.items()))
        _, lse = attention(q, k, v, causal=causal, out=out, return_lse=True, variant=how)
        agree(out, lse, *reference(q, k, v, causal))
        unseen = max(0, 300 - keys) if causal else 0
        assert bool((out[:, :, :unseen] == 0).all())


def test_scores_far_below_zero_and_far_apart():
    """Tiles whose scores are all negative, and maxima that rise by many orders late."""
    for dim in (64, 128, 256):
        q, k, v = normal(1, 2, 256, dim), normal(1, 2, 1024, dim), normal(1, 2, 1024, dim)
        q[...] = q.abs()
        k[...] = -k.abs()
        k[:, :, 700:] /= 8
        k[:, 1, 900] = 2
        for causal in (False, True):
            out = torch.full_like(q, math.nan)
            _, lse = attention(q, k, v, causal=causal, out=out, return_lse=True)
            agree(out, lse, *reference(q, k, v, causal))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("dim", "rows", "columns"),
    [long(64, 192, 128), (128, 128, 224), long(128, 128, 192), (256, 128, 96), long(128, 64, 64)],
)
def test_eight_bits(dim, rows, columns, causal):
    for queries, keys in ((500, 500), (200, 40), (64, 900)):
        e4m3 = torch.float8_e4m3fn
        q = normal(2, 4, queries, dim, dtype=e4m3)
        k, v = (normal(2, 2, keys, dim, dtype=e4m3) for _ in range(2))
        out = torch.full(q.shape, math.nan, device="cuda", dtype=torch.float16)
        how = Variant(rows, columns)
        options = {"descale": (2.0, 0.5, 3.0), "causal": causal, "out": out, "variant": how}
        _, lse = attention(q, k, v, return_lse=True, **options)
        want, sums = reference(q, k, v, causal)
        agree(out, lse, 3 * want, sums, 3e-2)


def test_nothing_and_empty_sequences():
    q, k, v = normal(1, 2, 64, 64), *(normal(1, 2, 0, 64) for _ in range(2))
    out, lse = attention(q, k, v, return_lse=True)
    assert bool((out == 0).all())
    assert bool(lse.isneginf().all())
    q, k, v = (normal(1, 2, 130, 64) for _ in range(3))
    starts = torch.tensor([0, 0, 130, 130], dtype=torch.int32, device="cuda")
    keys = torch.tensor([0, 30, 30, 130], dtype=torch.int32, device="cuda")
    out = torch.full_like(q, math.nan)
    attention(q, k, v, cu_seqlens=(starts, keys), out=out)
    assert bool((out == 0).all()), "all queries are of a sequence without keys"


@pytest.mark.parametrize("width", [128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_one_loop_of_wide_heads(causal, width):
    q, k, v = (normal(1, 2, 512, width) for _ in range(3))
    out = torch.full_like(q, math.nan)
    columns = 128 if width == 128 else 64
    wide = [
        tawa.TensorDescriptor.from_tensor(each.view(-1, width), [size, width])
        for each, size in ((q, 128), (k, columns), (v, columns), (out, 128))
    ]
    how = {"ROWS": 128, "COLUMNS": columns, "CAUSAL": causal}
    forms.one_loop[4, 2](*wide, 2, 512, width**-0.5, **how)
    want = reference(q, k, v, causal)[0]
    assert float((out.double() - want).norm() / want.norm()) < 1e-3
