"""A store goes through the slot of a tile that is done with: no stage, and no race."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from known_failures import tried
from tawa import ir
from tawa.errors import PlanError, ProtocolError
from tawa.ir import hopper
from tawa.target import H200
from tawa.verify import verify


@tawa.jit
def chain(q_desc, k_desc, o_desc, n, B: tl.constexpr, W: tl.constexpr):
    at = tl.program_id(0) * B
    q = q_desc.load([at, 0])
    acc = tl.zeros((B, W), tl.float32)
    for i in range(n):
        k = k_desc.load([i * 64, 0])
        part = tl.dot(q, k.T)
        acc = tl.dot((part * 0.25).to(tl.float16), k, acc)
    o_desc.store([at, 0], acc.to(tl.float16))


@tawa.jit
def read_again(q_desc, k_desc, o_desc, n, B: tl.constexpr, W: tl.constexpr):
    at = tl.program_id(0) * B
    q = q_desc.load([at, 0])
    acc = tl.zeros((B, B), tl.float32)
    for i in range(n):
        k = k_desc.load([i * B, 0])
        acc = tl.dot(q, k.T, acc)
    o_desc.store([at, 0], acc.to(tl.float16))
    again = tl.dot(q, q.T)
    o_desc.store([at, 0], (acc + again).to(tl.float16))


def arrays(rows, iterations, width, block):
    rng = np.random.default_rng(iterations)
    q = rng.integers(-1, 2, (rows, width)).astype(np.float16)
    k = rng.integers(-1, 2, (64 * max(iterations, 1), width)).astype(np.float16)
    o = np.full((rows, width), 7, np.float16)
    described = tawa.TensorDescriptor.from_tensor
    return (q, k, o), [described(q, block), described(k, [64, width]), described(o, block)]


@pytest.mark.parametrize("pins", [{}, {"depth": {"q": 2}}, {"consumers": 1}, {"persistent": False}])
@pytest.mark.parametrize("iterations", [0, 1, 3, 5])
def test_the_same_values(iterations, pins):
    (q, k, o), given = arrays(320, iterations, 64, [128, 64])
    chain[3,](*given, iterations, B=128, W=64, store="slot", **pins)
    scores = (q.astype(np.float64) @ k[: 64 * iterations].T.astype(np.float64)) * 0.25
    assert (o == (scores @ k[: 64 * iterations]).astype(np.float16)).all()


@pytest.mark.parametrize("pins", [{}, {"depth": {"q": 2}}])
def test_tiles_of_one_block_follow_one_another(pins):
    names = ("q_desc", "k_desc", "o_desc", "n")
    values = (*arrays(128 * 7, 3, 64, [128, 64])[1], 3)
    given = dict(zip(names, values, strict=True))
    tried(chain.fn, given, (7,), B=128, W=64, store="slot", **pins)


def test_the_stage_is_the_slot():
    _, given = arrays(256, 3, 64, [128, 64])
    kernel = chain.compile(*given, 3, grid=(2,), B=128, W=64, store="slot")
    (store,) = kernel.plan.stores
    assert store.stage == kernel.plan.arefs[0].label
    assert not any("stage" in buffer.label for buffer in kernel.resources.buffers)
    report = chain.explain(*given, 3, grid=(2,), B=128, W=64, store="slot")
    assert f"through the slot of {store.stage}" in report
    again = chain.compile(*given, 3, grid=(2,), B=128, W=64, plan=str(kernel.plan))
    assert again.plan.stores == kernel.plan.stores


def test_chosen_where_a_stage_of_its_own_does_not_fit():
    _, given = arrays(256, 3, 256, [128, 256])
    # 64 KiB of q and five slots of 32 KiB leave 2 KiB; a quarter of the tile takes 16.
    kernel = chain.compile(*given, 3, grid=(2,), B=128, W=256, schedule="none", depth={"k": 5})
    assert [store.stage for store in kernel.plan.stores] == [kernel.plan.arefs[0].label]
    assert any("stage" in item.feature for item in kernel.plan.declined)
    roomy = chain.compile(*given, 3, grid=(2,), B=128, W=256, schedule="none")
    assert [store.stage for store in roomy.plan.stores] == [""]


def test_the_proof_needs_the_wait_for_the_copy():
    _, given = arrays(256, 3, 64, [128, 64])
    kernel = chain.compile(*given, 3, grid=(2,), B=128, W=64, store="slot", depth={"q": 1})
    broken = ir.parse(kernel.asm.text("hopper"))
    waits = [op for op in broken.walk() if isinstance(op, hopper.BulkWait) and op.read.value.data]
    assert len(waits) == 1
    waits[0].detach()
    waits[0].erase()
    with pytest.raises(ProtocolError, match=r"on while hopper\.tma_store reads it"):
        verify(broken, H200)


def test_refused_where_no_tile_gives_way():
    _, given = arrays(128, 1, 128, [128, 128])
    described = tawa.TensorDescriptor.from_tensor
    k = np.zeros((128, 128), np.float16)
    given[1] = described(k, [128, 128])
    plan = str(read_again.compile(*given, 1, grid=(1,), B=128, W=128).plan)
    first = next(line for line in plan.splitlines() if line.startswith("store "))
    staged = plan.replace(first, first + " stage=q@32")
    with pytest.raises(PlanError, match="read for the last time before it"):
        read_again.compile(*given, 1, grid=(1,), B=128, W=128, plan=staged)
    with pytest.raises(PlanError, match="parts=2"):
        chain.compile(*given, 1, grid=(1,), B=128, W=128, store="slot", parts=2)
    with pytest.raises(PlanError, match="store='slot', cluster=2"):
        chain.compile(*given, 1, grid=(2,), B=128, W=128, store="slot", persistent=True, cluster=2)
