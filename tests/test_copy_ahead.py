"""Ordinary kernels that copy the tiles of later iterations ahead, through rings of their own."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from mutants import drops
from tawa.errors import PlanError, ProtocolError, UnprovedProtocol
from tawa.ir import hopper, parse
from tawa.target import H200
from tawa.verify import verify
from tiles_ahead import matrices, places


@tawa.jit
def powers(x_ptr, w_ptr, K, steps, B: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """x[:, :N] = x[:, :K] w[:K] several times: every step reads what the one before has stored."""
    x_of, w_of, x_out = places(x_ptr, w_ptr, B, N, BK)
    for _ in range(steps):
        acc = tl.zeros((B, N), tl.float32)
        x_at, w_at = x_of, w_of
        for _ in range(0, K, BK):
            tl.multiple_of(x_at, [16, 16])
            tl.multiple_of(w_at, [16, 16])
            acc += tl.dot(tl.load(x_at), tl.load(w_at))
            x_at += BK
            w_at += BK * N
        tl.store(x_out, acc.to(tl.float16))


SIZES = {"B": 64, "N": 256, "BK": 32}


def arguments(k: int, steps: int = 3) -> tuple[np.ndarray, np.ndarray, int, int]:
    return *matrices(k), k, steps


def wanted(x: np.ndarray, w: np.ndarray, k: int, steps: int) -> np.ndarray:
    for _ in range(steps):
        x = x[:, :k] @ w[:k]
    return x


def test_the_plan_has_a_ring_and_no_roles() -> None:
    compiled = powers.compile(*arguments(256), grid=(1,), **SIZES)
    assert not compiled.plan.specialized
    (ring,) = compiled.plan.arefs
    assert (ring.depth, ring.via, len(ring.payload)) == (4, "copy_async", 2)
    assert compiled.plan.loops[0].mma_depth == 2
    text = str(compiled)
    assert "by cp.async, copied ahead" in text
    assert "may read what" in text
    # The steady state: copies of a later iteration follow the products of this one.
    iteration = compiled.asm["cuda"].split("#pragma unroll 1")[3]
    assert (
        iteration.index("wgmma_commit();")
        < iteration.index("copy_async_16(")
        < iteration.index("copy_arrive(")
    )


def test_the_plan_reads_back() -> None:
    compiled = powers.compile(*arguments(256), grid=(1,), **SIZES)
    again = powers.compile(*arguments(256), grid=(1,), plan=str(compiled.plan), **SIZES)
    assert again.plan.arefs == compiled.plan.arefs
    assert again.asm["hopper"] == compiled.asm["hopper"]


@pytest.mark.parametrize("iterations", range(8))
@pytest.mark.parametrize("schedule", ["late", "early"])
def test_every_trip_count_is_right(iterations: int, schedule: str) -> None:
    given = arguments(32 * iterations)
    expected = wanted(*given)
    tawa.simulate(powers, *given, grid=(1,), schedule=schedule, seed=iterations, **SIZES)
    np.testing.assert_array_equal(given[0], expected)


@needs_compiler
@pytest.mark.parametrize("iterations", [0, 2, 7])
def test_the_text_is_right(iterations: int) -> None:
    compiled = powers.compile(*arguments(256), grid=(1,), **SIZES)
    given = arguments(32 * iterations)
    expected = wanted(*given)
    named = dict(zip(("x_ptr", "w_ptr", "K", "steps"), given))
    emulate(parse(compiled.asm["hopper"]), named, (1, 1, 1))
    np.testing.assert_array_equal(given[0], expected)


@pytest.mark.parametrize("flying", [2, 3])
def test_each_missing_synchronization_is_refused(flying: int) -> None:
    plan = str(powers.compile(*arguments(256), grid=(1,), **SIZES).plan)
    plan = plan.replace("mma_depth=2", f"mma_depth={flying}")
    compiled = powers.compile(*arguments(256), grid=(1,), plan=plan, **SIZES)
    kernel = parse(compiled.asm["hopper"])
    kinds = (hopper.Wait, hopper.Arrive, hopper.CopyAsyncArrive, hopper.ProxyFence)
    found = [m for m in drops(kernel) if isinstance(m.operation, kinds) and not m.harmless]
    assert len(found) >= 8
    for mutant in found:
        with pytest.raises(ProtocolError):
            verify(mutant.make(), H200)


def test_a_ring_of_too_few_slots_is_refused() -> None:
    plan = str(powers.compile(*arguments(256), grid=(1,), **SIZES).plan)
    for depth, flying in ((1, 1), (2, 3)):
        given = plan.replace("depth=4", f"depth={depth}", 1)
        given = given.replace("mma_depth=2", f"mma_depth={flying}")
        with pytest.raises(PlanError, match=f"depth={max(2, flying)} or more"):
            powers.compile(*arguments(256), grid=(1,), plan=given, **SIZES)


def test_the_slot_of_a_running_product_is_not_given_back() -> None:
    """Of three products in flight the oldest one's slot is free, not the next one's."""
    plan = str(powers.compile(*arguments(256), grid=(1,), **SIZES).plan)
    plan = plan.replace("mma_depth=2", "mma_depth=3")
    text = powers.compile(*arguments(256), grid=(1,), plan=plan, **SIZES).asm["hopper"]
    assert text.count("hopper.arrive %freed[%oldest]") == 1
    wrong = text.replace("hopper.arrive %freed[%oldest]", "hopper.arrive %freed[%older1]")
    with pytest.raises(UnprovedProtocol, match="early release"):
        verify(parse(wrong), H200)


@pytest.mark.parametrize(("depth", "flying"), [(2, 1), (2, 2), (3, 1), (4, 2), (4, 3)])
@pytest.mark.short("2-1", "3-1", "4-3")
def test_rings_of_other_depths_are_honoured(depth: int, flying: int) -> None:
    plan = str(powers.compile(*arguments(256), grid=(1,), **SIZES).plan)
    given = plan.replace("depth=4", f"depth={depth}", 1)
    given = given.replace("mma_depth=2", f"mma_depth={flying}")
    x, w, k, steps = arguments(256, 2)
    result = x.copy()
    powers[1,](result, w, k, steps, plan=given, **SIZES)
    assert np.array_equal(result, wanted(x, w, k, steps))
