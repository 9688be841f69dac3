"""`attention` with its options in the simulator, against float64 in NumPy."""

import math
import re

import numpy as np
import pytest

from attention_tiles import small_tiles
from covering import is_short
from tawa.errors import ArgumentError
from tawa.kernels.attention import Tuner, Variant, attention, bind, launches
from tawa.kernels.attention_launches import form, splits_of
from tawa.kernels.flash_options import list_tiles
from tawa.runtime.dtypes import numpy_dtype


def normal(*shape, dtype="f16", seed=0):
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(numpy_dtype(dtype))


def inputs(batch=1, heads=2, queries=128, keys=128, dim=64, groups=1, dtype="f16"):
    return (
        normal(batch, heads, queries, dim, dtype=dtype),
        normal(batch, heads // groups, keys, dim, dtype=dtype, seed=1),
        normal(batch, heads // groups, keys, dim, dtype=dtype, seed=2),
    )


def reference(
    q, k, v, causal=False, scale=None, window=None, softcap=None, bias=None, alibi=None, sink=None
):
    """Return attention and log-sum-exp in float64."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = q @ k.swapaxes(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    rows, columns = np.indices(scores.shape[-2:])
    away = columns - (rows + k.shape[2] - q.shape[2])
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    if alibi is not None:
        scores = scores - alibi.astype(np.float64)[:, None, None] * np.abs(away)
    if bias is not None:
        scores = scores + bias.astype(np.float64)
    left, right = window if isinstance(window, tuple) else (window and window - 1,) * 2
    right = 0 if causal else right
    seen = np.ones(away.shape, bool)
    seen &= away >= (-math.inf if left is None else -left)
    seen &= away <= (math.inf if right is None else right)
    scores = np.where(seen, scores, -np.inf)
    extra = np.full(q.shape[1], -np.inf) if sink is None else sink.astype(np.float64)
    top = np.maximum(scores.max(-1, keepdims=True, initial=-1e30), extra[:, None, None])
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True) + np.exp(extra[:, None, None] - top)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    return weights / np.where(total > 0, total, 1) @ v, lse


def error(found, want):
    return np.linalg.norm(found.astype(np.float64) - want) / max(1e-9, np.linalg.norm(want))


def agree(found, lse, want, sums, most=1e-3):
    assert error(found, want) < most
    seen = np.isfinite(sums)
    assert (np.isneginf(lse) == ~seen).all()
    assert np.abs(lse[seen] - sums[seen]).max(initial=0) < 2e-3


def check(q, k, v, variant=None, most=1e-3, **options):
    out = np.full_like(q, np.nan)
    _, lse = attention(q, k, v, out=out, return_lse=True, variant=variant, tuner=Tuner(), **options)
    agree(out, lse, *reference(q, k, v, **options), most)


@pytest.fixture
def plain(request):
    """In the short run kernels without roles, which compile faster: those with roles, of each of
    these forms, are run by test_schedules and test_kernels_emulated.
    """
    if not is_short(request.config):
        yield
        return
    with small_tiles(roles=False):
        yield


SMALL = Variant(128, 64)
SPLIT = Variant(128, 64, True)
HEADS = 2
SLOPES = np.array([0.5, 0.0625], np.float32)
SINKS = np.array([1.5, -0.5], np.float32)
OPTIONS = {
    "window": {"window": 40, "causal": True},
    "window both sides": {"window": (70, 30)},
    "window before": {"window": (50, None)},
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi": SLOPES},
    "sink": {"sink": SINKS},
    "bias": {"bias": normal(1, HEADS, 200, 152, seed=5)},
    "bias of keys": {"bias": normal(1, 1, 1, 152, dtype="f32", seed=5)},
    "all": {
        "causal": True,
        "window": 100,
        "softcap": 2.0,
        "alibi": SLOPES,
        "sink": SINKS,
        "bias": normal(1, 1, 200, 152, dtype="bf16", seed=5),
        "scale": 0.3,
    },
}


def long(*values):
    return pytest.param(*values, marks=pytest.mark.long)


# One option at a time is in test_attention_trips.
@pytest.mark.parametrize("variant", [SMALL, long(SPLIT)], ids=str)
@pytest.mark.parametrize(
    "name",
    [name if name in ("bias of keys", "all") else long(name) for name in OPTIONS],
)
def test_options_over_tails(name, variant):
    check(*inputs(queries=200, keys=152, groups=2), variant, **OPTIONS[name])


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("window both sides", 320),
        *(long("window", keys) for keys in (8, 64, 128, 320)),
        *(long("window both sides", keys) for keys in (8, 64, 128)),
    ],
)
def test_windows_in_loops_of_their_own(name, keys):
    """Iterations of each of the three loops from none on."""
    check(*inputs(queries=64, keys=keys), Variant(64, 64, True), **OPTIONS[name])


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("iterations", [long(1), 2, long(3), long(4)])
def test_every_trip_count_with_two_slots(iterations, split):
    """The blocks of a causal mask have from no iteration on; rings of two slots turn twice."""
    two = Variant(64, 32, split, (("depth", {"k": 2, "v": 2}),))
    q, k, v = inputs(queries=32 * iterations + 64, keys=32 * iterations)
    check(q, k, v, two, causal=True, sink=SINKS)


@pytest.mark.parametrize("iterations", [1, long(2), long(3), long(4)])
def test_every_trip_count_of_few_queries(iterations, monkeypatch):
    monkeypatch.setattr("tawa.kernels.attention_launches.splits_of", lambda *_: 2)
    two = Variant(64, 32, pins=(("depth", {"k": 2, "v": 2}),))
    check(*inputs(queries=1, keys=32 * iterations), two)


@pytest.mark.usefixtures("plain")
@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("dim", [96, long(192)])
def test_widths_with_options(dim):
    check(*inputs(queries=72, keys=72, dim=dim), softcap=2.0, causal=True)


def test_masks_by_infinite_bias():
    bias = np.where(normal(1, 1, 128, 64, seed=7) > 0, 0.0, -np.inf).astype(np.float16)
    bias[0, 0, 5] = -np.inf
    check(*inputs(keys=64), bias=bias)


# --- packed sequences ---------------------------------------------------------------------------


def packed(lengths, heads, dim=64, seed=0):
    total = sum(lengths)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    return normal(total, heads, dim, seed=seed).swapaxes(0, 1)[None], starts


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("of_queries", "of_keys", "options"),
    [
        ((100, 0, 256, 30), (100, 20, 256, 70), {}),
        long((129, 1, 64), (129, 1, 64), {"causal": True}),
        ((40, 130), (90, 0), {"causal": True, "window": 33, "sink": SINKS}),
        ((0, 0), (0, 8), {}),
        long((50,), (60,), {"softcap": 2.0, "alibi": SLOPES}),
    ],
    ids=str,
)
def test_packed_sequences(of_queries, of_keys, options):
    q, q_starts = packed(of_queries, 2)
    (k, k_starts), (v, _) = (packed(of_keys, 1, seed=seed) for seed in (1, 2))
    out = np.full_like(q, np.nan)
    starts = q_starts if of_queries == of_keys else (q_starts, k_starts)
    _, lse = attention(
        q, k, v, cu_seqlens=starts, out=out, return_lse=True, tuner=Tuner(), **options
    )
    for index in range(len(of_queries)):
        rows, columns = (slice(*s[index : index + 2]) for s in (q_starts, k_starts))
        want = reference(q[:, :, rows], k[:, :, columns], v[:, :, columns], **options)
        agree(out[:, :, rows], lse[:, :, rows], *want)


@pytest.mark.parametrize("right", [False, True])
def test_tiles_of_packed_sequences_come_longest_first(right):
    of_queries, of_keys = (70, 0, 300, 64, 130), (40, 9, 310, 300, 0)
    starts = [np.cumsum([0, *lengths]).astype(np.int32) for lengths in (of_queries, of_keys)]
    count, rows = len(of_queries), 64
    tiles = int(starts[0][-1]) // rows + count
    table = np.full((tiles, 2), -7, np.int32)
    sizes = {"BLOCK_M": rows, "RIGHT": right, "ALL": 8, "CHUNK": 2}
    list_tiles[(count + 1,)](*starts, table, count, tiles, **sizes)
    wanted = [(s, b) for s in range(count) for b in range(-(-of_queries[s] // rows))]
    found = [tuple(map(int, row)) for row in table]
    assert sorted(found[: len(wanted)]) == wanted
    assert set(found[len(wanted) :]) <= {(0, -1)}
    ends = [
        (b + 1) * rows + of_keys[s] - of_queries[s] if right else of_keys[s]
        for s, b in found[: len(wanted)]
    ]
    assert ends == sorted(ends, reverse=True)


# --- few queries, pages -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({"heads": 6, "groups": 3, "queries": 1, "keys": 300}, {}),
        long({"heads": 2, "queries": 1, "keys": 2}, {}),
        long({"heads": 8, "groups": 8, "queries": 3, "keys": 500}, {"causal": True, "window": 90}),
        ({"heads": 2, "groups": 2, "queries": 5, "keys": 150}, OPTIONS["all"] | {"bias": None}),
        long({"heads": 2, "queries": 1, "keys": 200, "dim": 192, "batch": 2}, {}),
        long({"heads": 7, "groups": 7, "queries": 1, "keys": 150, "dim": 80}, {}),
        long({"heads": 71, "groups": 71, "queries": 1, "keys": 140}, {}),
    ],
    ids=str,
)
def test_few_queries(sizes, options):
    arrays = inputs(**sizes)
    assert form(bind(*arrays, **options).problem) == "decode"
    check(*arrays, **options)


def paged(k, v, page, seed=3):
    """Return pages in a random order, with pages that no sequence has, and the table."""
    batch, heads, keys, dim = k.shape
    count = -(-keys // page)
    table = np.random.default_rng(seed).permutation(batch * count + 2)[: batch * count]
    table = table.reshape(batch, count).astype(np.int32)
    held = []
    for array in (k, v):
        pages = normal(batch * count + 2, heads, page, dim, seed=seed)
        for b in range(batch):
            for j in range(count):
                part = array[b, :, j * page : (j + 1) * page]
                pages[table[b, j], :, : part.shape[1]] = part
        held.append(pages)
    return *held, table


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("page", "queries", "lengths", "options"),
    [
        (128, 1, (300, 77), {}),
        long(64, 3, (300, 65), {"causal": True}),
        (16, 1, (100, 0), {"sink": SINKS}),
        (64, 70, (130, 100), {"causal": True, "window": (40, None), "softcap": 2.0}),
    ],
    ids=str,
)
def test_pages_of_keys(page, queries, lengths, options):
    q, k, v = inputs(batch=2, queries=queries, keys=max(lengths), groups=2)
    k_pages, v_pages, table = paged(k, v, page)
    # What a table says beyond a sequence's end is not looked at.
    for b, length in enumerate(lengths):
        table[b, -(-length // page) :] = 10**6
    held = np.array(lengths, np.int32)
    out, lse = attention(
        q, k_pages, v_pages, block_table=table, lengths=held, return_lse=True, tuner=Tuner(),
        **options,
    )  # fmt: skip
    for b, length in enumerate(lengths):
        one = slice(b, b + 1)
        want = reference(q[one], k[one, :, :length], v[one, :, :length], **options)
        agree(out[one], lse[one], *want)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("page", [0, long(100)])
@pytest.mark.parametrize("dims", [(64, 64), long((64, 128))], ids=str)
def test_keys_of_a_cache_begin_and_lie_where_they_are_said_to(page, dims):
    """`leftpad`, and a table of one page, of any number of rows, a batch."""
    q, held, _ = inputs(batch=5, heads=4, queries=3, keys=100, dim=dims[0], groups=2)
    q, values = q[:3], normal(5, 2, 100, dims[1], seed=9)
    begin, end, places = (np.array(each, np.int32) for each in ((7, 0, 90), (80, 2, 90), (4, 0, 2)))
    k, v = (each[places] if page else each[:3] for each in (held, values))
    given = (held, values) if page else (k, v)
    options = {"causal": True, "window": (30, None), "alibi": normal(4, dtype="f32") ** 2}
    where = {"block_table": places[:, None]} if page else {}
    out, lse = attention(
        q, *given, leftpad=begin, lengths=end, return_lse=True, tuner=Tuner(), **where, **options
    )
    for b in range(3):
        one, rows = slice(b, b + 1), slice(begin[b], end[b])
        agree(out[one], lse[one], *reference(q[one], k[one, :, rows], v[one, :, rows], **options))


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("of_queries", "lengths", "page", "splits"),
    [
        ((1, 1, 0, 1), (130, 60, 40, 0), 64, 2),
        ((70, 0, 20), (90, 30, 100), 0, 1),
        long((70, 1, 20), (90, 30, 100), 16, 3),
    ],
)
def test_packed_queries_over_a_cache(of_queries, lengths, page, splits, monkeypatch):
    monkeypatch.setattr("tawa.kernels.attention_launches.splits_of", lambda *_: splits)
    q, starts = packed(of_queries, 6)
    batch = len(of_queries)
    _, k, v = inputs(batch=batch, heads=2, keys=max(lengths))
    where = {"cu_seqlens": starts, "lengths": np.array(lengths, np.int32)}
    given = k, v
    if page:
        *given, where["block_table"] = paged(k, v, page)
    out, options = np.full_like(q, np.nan), {"causal": True, "sink": normal(6, dtype="f32")}
    _, lse = attention(q, *given, out=out, return_lse=True, tuner=Tuner(), **where, **options)
    for b, length in enumerate(lengths):
        rows = slice(*starts[b : b + 2])
        one = q[:, :, rows], k[b : b + 1, :, :length], v[b : b + 1, :, :length]
        agree(out[:, :, rows], lse[:, :, rows], *reference(*one, **options))


@pytest.mark.parametrize("rows", [8, long(16), 64])
@pytest.mark.parametrize("splits", [1, long(2), long(7)])
def test_parts_are_combined(splits, rows, monkeypatch):
    """Rows that are not there, of 16 or 64, weigh nothing; a block computes part after part."""
    monkeypatch.setattr("tawa.kernels.attention_launches.splits_of", lambda *_: splits)
    parts = Variant(rows, 64, pins=(("persistent", True),))
    arrays = inputs(heads=4, groups=2, queries=2, keys=260)
    check(*arrays, parts, causal=True, sink=normal(4, dtype="f32"))


def test_splits_fill_the_machine():
    def splits(batch, heads, keys, **more):
        q = tawa_array(batch, heads, 1, 128)
        k = tawa_array(batch, heads, keys, 128)
        return splits_of(bind(q, k, k, **more).problem, 64, 128)

    assert splits(1, 8, 1 << 17) * 8 in range(120, 133)
    assert splits(64, 8, 4096) == 1
    assert splits(1, 1, 128) == 1
    assert splits(16, 8, 1 << 15) == 1
    assert splits(16, 8, 1 << 15, lengths=tawa_array(16, dtype="i32")) in range(2, 13)


def tawa_array(*shape, dtype="f16"):
    import tawa

    return tawa.array(shape, dtype)


def test_packed_and_few_are_not_tuned_for_each_length():
    tuner = Tuner(keep=False)
    for keys in (100, 200):
        operands = bind(*inputs(queries=1, keys=keys))
        assert tuner.choose(operands).columns == 128
    assert len(tuner.best) == 1


# --- what is refused ----------------------------------------------------------------------------

STARTS = np.array([0, 128], np.int32)
TABLE = np.zeros((1, 2), np.int32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window is 0"),
        ({"window": (-1, 3)}, "window is"),
        ({"window": 2.7}, "window is 2.7"),
        ({"window": (1.5, None)}, "window is"),
        ({"softcap": -2.0}, "softcap is -2.0"),
        ({"alibi": np.ones(3, np.float32)}, "alibi is f32 (3,)"),
        ({"sink": np.ones(2, np.float16)}, "sink is f16 (2,)"),
        ({"sink": np.ones(4, np.float32)[::2]}, "sink has strides"),
        ({"bias": normal(1, 2, 128, 64)}, "bias has shape (1, 2, 128, 64)"),
        ({"bias": np.zeros((1, 1, 128, 128), np.float64)}, "bias holds f64"),
        ({"bias": normal(1, 1, 128, 256)[..., ::2]}, "bias has strides"),
        ({"cu_seqlens": STARTS.astype(np.int64)}, "cu_seqlens is i64"),
        ({"cu_seqlens": STARTS[None]}, "cu_seqlens has shape"),
        ({"cu_seqlens": (STARTS, TABLE[0, :1])}, "cu_seqlens of the keys is i32 (1,)"),
        (
            {"cu_seqlens": (STARTS, STARTS), "lengths": np.array([5], np.int32)},
            "cu_seqlens of keys beside block_table, lengths",
        ),
        ({"cu_seqlens": STARTS, "bias": normal(1, 1, 128, 128)}, "bias beside"),
        ({"lengths": np.array([5, 6], np.int32)}, "lengths is i32 (2,)"),
        ({"leftpad": np.array([129], np.int32)}, "leftpad has 129 to 129"),
        ({"leftpad": STARTS[:1], "block_table": TABLE}, "leftpad beside a block_table of several"),
        ({"block_table": TABLE[0]}, "block_table has shape"),
        ({"block_table": TABLE.astype(np.uint32)}, "block_table is u32"),
        ({"block_table": np.zeros((2, 2), np.int32)}, "block_table is i32 (2, 2)"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_options_that_do_not_fit_are_refused_by_name(options, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        attention(*inputs(), **options)


def test_pages_that_no_tile_divides_are_refused():
    with pytest.raises(ArgumentError, match="a page has 40 rows"):
        attention(*inputs(keys=40), block_table=TABLE)


def test_packed_arrays_have_a_batch_of_one():
    with pytest.raises(ArgumentError, match="batch of 2"):
        attention(*inputs(batch=2), cu_seqlens=STARTS)


def test_no_keys_at_all_but_a_sink():
    q, k, v = inputs(keys=0)
    out, lse = attention(q, k, v, sink=SINKS, return_lse=True)
    assert (out == 0).all()
    assert np.allclose(lse, SINKS[:, None])


def test_an_option_that_is_off_leaves_the_plain_kernel():
    assert form(bind(*inputs()).problem) == "plain"
    (launch,) = launches(bind(*inputs()), SMALL)
    assert launch.kernel.fn.__name__ == "attention_forward"
