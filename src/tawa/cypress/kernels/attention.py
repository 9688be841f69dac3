"""O = softmax(Q K^T / sqrt(D)) V: the loops of FlashAttention-2 and of FlashAttention-3.

Tensors are [batch * heads, sequence, D]. Scores are scaled in the exponent, in base two. The
loop of the second takes the tiles of keys in order, those that need a mask last. That of the third
begins with the last tile, and multiplies the next queries and keys before the weights and values of
the tile at hand.
"""

# ruff: noqa: N803, D103, C408, E741 - tensors are matrices, tunables are given as keywords are
# Annotations of variants are values, which `cy.inner` reads; leaves are tile language.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from typing import Any

import tawa.cypress as cy
import tawa.language as tl
from tawa.cypress import BLOCK, GLOBAL, HOST, REGISTER, SHARED, WARPGROUP, Tensor, f16, f32
from tawa.target import H200

T16, B16, I = Tensor[f16, 2], Tensor[f16, 3], cy.Instance


@cy.inner("attention", reads="Q K V", writes="O")
def full_host(O: B16, Q: B16, K: B16, V: B16, *, U: int, D: int):
    _same(O, Q, K, V, D)
    o, q = (cy.blocks(t, (None, U, D)) for t in (O, Q))
    k, v = (cy.blocks(t, (None, t.shape[1], D)) for t in (K, V))
    for i, n in cy.prange(o.grid[1], o.grid[0]):
        cy.launch("attention", o[n, i, 0], q[n, i, 0], k[n, 0, 0], v[n, 0, 0])


@cy.inner("attention", reads="Q K V", writes="O")
def causal_host(O: B16, Q: B16, K: B16, V: B16, *, U: int, D: int):
    """Query i sees the keys up to i: a block is given all, and of those that its last row sees,
    whose number it asks.

    Of heads that are walked together, the blocks with the most keys come first.
    """
    _same(O, Q, K, V, D)
    cy.same(Q.shape[1], K.shape[1])
    o, q = (cy.blocks(t, (None, U, D)) for t in (O, Q))
    k, v = (cy.blocks(t, (None, t.shape[1], D)) for t in (K, V))
    blocks = cy.blocks(K, (None, U, D)).grid[1]
    for n, i in cy.prange(o.grid[0], blocks):
        at = blocks - 1 - i
        seen = cy.blocks(K, (None, (at + 1) * U, D))
        cy.launch("attention", o[n, at, 0], q[n, at, 0], k[n, 0, 0], v[n, 0, 0], seen[n, 0, 0])


def _same(O, Q, K, V, D):
    cy.same(O.shape[2], D)  # a block has whole heads
    cy.same(K.shape[1], V.shape[1])
    for t in (Q, K, V):
        cy.same(O.shape[0], t.shape[0])
        cy.same(O.shape[2], t.shape[2])
    cy.same(O.shape[1], Q.shape[1])


@cy.inner("attention", reads="Q K V", writes="O")
def fa2_full(O: T16, Q: T16, K: T16, V: T16, *, W: int):
    k, v = (cy.blocks(t, (W, t.shape[1])) for t in (K, V))
    acc, top, total = _state(O)
    whole = K.shape[0] // W
    for j in cy.srange(whole):
        _step(Q, k[j, 0], v[j, 0], acc, top, total)
    for j in cy.srange(k.grid[0] - whole):
        _step(Q, k[whole + j, 0], v[whole + j, 0], acc, top, total, "hide")
    cy.launch("finish", O, acc, total)


@cy.inner("attention", reads="Q K V S", writes="O")
def fa2_causal(O: T16, Q: T16, K: T16, V: T16, S: T16, *, W: int):
    k, v = (cy.blocks(t, (W, t.shape[1])) for t in (K, V))
    acc, top, total = _state(O)
    whole, tiles = _seen(Q, S, W)
    for j in cy.srange(whole):
        _step(Q, k[j, 0], v[j, 0], acc, top, total)
    for j in cy.srange(tiles - whole):
        _step(Q, k[whole + j, 0], v[whole + j, 0], acc, top, total, "hide_after")
    cy.launch("finish", O, acc, total)


@cy.inner("attention", reads="Q K V", writes="O")
def fa3_full(O: T16, Q: T16, K: T16, V: T16, *, W: int):
    k, v = (cy.blocks(t, (W, t.shape[1])) for t in (K, V))
    _ahead(O, Q, k, v, k.grid[0] - 1, 1, "hide")


@cy.inner("attention", reads="Q K V S", writes="O")
def fa3_causal(O: T16, Q: T16, K: T16, V: T16, S: T16, *, W: int):
    k, v = (cy.blocks(t, (W, t.shape[1])) for t in (K, V))
    whole, tiles = _seen(Q, S, W)
    _ahead(O, Q, k, v, tiles - 1, tiles - whole, "hide_after")


def _seen(Q, S, W):
    """Return how many tiles of keys all rows of a block see whole, and how many some row sees."""
    return (S.shape[0] - Q.shape[0]) // W, (S.shape[0] + W - 1) // W


def _ahead(O, Q, k, v, last, masked, mask):
    """Launch the third generation's loops; `masked` tiles from the `last` back need the mask."""
    acc, top, total = _state(O)
    s = _scores(Q, k[last, 0], mask)
    p = cy.make_tensor(f16, s.shape)
    cy.launch("softmax", p, top, total, acc, s)
    for j in cy.srange(masked - 1):
        _next(Q, k[last - 1 - j, 0], v[last - j, 0], acc, top, total, p, mask)
    for j in cy.srange(last - (masked - 1)):
        _next(Q, k[last - masked - j, 0], v[last - masked + 1 - j, 0], acc, top, total, p)
    cy.launch("mma", acc, p, v[0, 0])
    cy.launch("finish", O, acc, total)


def _next(Q, k, v, acc, top, total, p, mask=""):
    s = _scores(Q, k, mask)
    cy.launch("mma", acc, p, v)
    cy.launch("softmax", p, top, total, acc, s)


def _state(O):
    acc = cy.make_tensor(f32, O.shape)
    top = cy.make_tensor(f32, O.shape[:1])
    total = cy.make_tensor(f32, O.shape[:1])
    cy.launch("clear", acc)
    cy.launch("lowest", top)
    cy.launch("clear", total)
    return acc, top, total


def _scores(Q, k, mask):
    """Launch the products of queries and keys, and what hides keys that a row does not see."""
    s = cy.make_tensor(f32, (Q.shape[0], k.shape[0]))
    cy.launch("clear", s)
    cy.launch("mma_t", s, Q, k)
    if mask:
        inside = cy.inside(k, 0)
        if mask == "hide":
            cy.launch(mask, s, inside)
        else:
            rows, columns = cy.index(Q, 0), cy.index(k, 0)
            cy.launch(mask, s, inside, rows, columns)
    return s


def _step(Q, k, v, acc, top, total, mask=""):
    s = _scores(Q, k, mask)
    p = cy.make_tensor(f16, s.shape)
    cy.launch("softmax", p, top, total, acc, s)
    cy.launch("mma", acc, p, v)


@cy.leaf("lowest", writes="M")
def lowest_leaf(M):
    # Finite, so that a row that has seen no key keeps weights of zero, not NaN.
    return tl.full(M.shape, -1e30, M.dtype)


@cy.leaf("hide", reads="S C", writes="S")
def hide_leaf(S, C):
    return tl.where(C[None, :], S, float("-inf"))


@cy.leaf("hide_after", reads="S C I J", writes="S")
def hide_after_leaf(S, C, I, J):
    return tl.where((I[:, None] >= J[None, :]) & C[None, :], S, float("-inf"))


@cy.leaf("softmax", reads="M L A S", writes="P M L A")
def softmax_leaf(P, M, L, A, S):
    factor = 1.4426950408889634 * A.shape[1] ** -0.5
    top = tl.maximum(M, tl.max(S, 1) * factor)
    p = tl.exp2(S * factor - top[:, None])
    old = tl.exp2(M - top)
    return p.to(P.dtype), top, L * old + tl.sum(p, 1), A * old[:, None]


@cy.leaf("finish", reads="A L", writes="O")
def finish_leaf(O, A, L):
    return (A / tl.where(L > 0, L, 1.0)[:, None]).to(O.dtype)


def attention(
    loop: str = "fa3",
    WGS: int = 2,
    U: int = 128,
    W: int = 128,
    D: int = 128,
    causal: bool = False,
    depth: int = 2,
    queries: int = 1,
    **how: Any,
) -> cy.Mapping:
    """Return a mapping: WGS warpgroups on U queries, keys and values `depth` tiles of W ahead.

    `loop` is "fa2" or "fa3", `queries` the slots of Q, `how` further fields of the block.
    """
    variants = {
        ("fa2", False): fa2_full,
        ("fa2", True): fa2_causal,
        ("fa3", False): fa3_full,
        ("fa3", True): fa3_causal,
    }
    pipeline = {"Q": queries, "K": depth, "V": depth}
    how = dict(specialize=True, pipeline=pipeline, turns=WGS > 1, persistent=True, group=0) | how
    calls = ["clear", "lowest", "scores", "hide", "softmax", "product", "finish"]
    places = [GLOBAL, SHARED, *[GLOBAL] * (3 if causal else 2)]
    host, block = causal_host if causal else full_host, variants[loop, causal]
    hide = hide_after_leaf if causal else hide_leaf
    finish = [GLOBAL, REGISTER, REGISTER]
    return cy.Mapping(
        [
            I("host", host, HOST, [GLOBAL] * 4, dict(U=U, D=D), calls=["block"], entry=True),
            I("block", block, BLOCK, places, dict(W=W), calls=calls, **how),
            *cy.lib.mma_t("scores", WGS=WGS),
            *cy.lib.mma("product", WGS=WGS, A=REGISTER),
            *cy.lib.rows("clear", cy.lib.clear_leaf, like="product"),
            *cy.lib.rows("lowest", lowest_leaf, like="product"),
            *cy.lib.rows("hide", hide, like="product"),
            *cy.lib.rows("softmax", softmax_leaf, like="product"),
            I("finish", finish_leaf, WARPGROUP, finish, like="product", stage=SHARED),
        ]
    )


def mappings(D: int = 128, causal: bool = False, keys: int = 4096) -> dict[str, cy.Mapping]:
    """Return the mappings by name: of FA2 with two and three warpgroups, of FA3 with two.

    `D` is 64, 128 or 256. Three warpgroups have 192 queries, of heads that are no wider than 128.
    Under a causal mask blocks take the next tile that is left, and so many heads of `keys` are
    walked together that their tiles keep all busy until the longest is done: a power of two, which
    divides most numbers of heads.
    """

    def walked(rows: int) -> dict[str, Any]:
        heads = -(-2 * H200.multiprocessors // (keys // rows + 1))
        return dict(walk="dynamic", group=1 << (heads - 1).bit_length()) if causal else {}

    wide = 64 if D == 256 else 128
    # With one slot the queries of a tile wait for the last product of the tile before.
    queries = 1 if D == 256 else 2
    tile: dict[str, Any] = dict(D=D, W=wide, causal=causal, depth=3 if D == 64 else 2)
    tile |= dict(queries=queries) | walked(128)
    found = {
        # At 256 columns the values of two iterations at once do not fit into registers.
        "FA2, two warpgroups": attention("fa2", schedule="fine" if D == 256 else "coarse", **tile),
        "FA3, two warpgroups": attention("fa3", **tile),
    }
    if D < 256:
        # The keys of a tile: as many as registers hold beside the sums.
        three: dict[str, Any] = dict(WGS=3, U=192, schedule="coarse") | walked(192)
        three |= dict(W=128) if D == 64 else dict(W=80, turns=False, queries=1, depth=3)
        found["FA2, three warpgroups"] = attention("fa2", **tile | three)
    return found
