"""The proof: samples hold, each broken one is refused, in a sentence that names what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.irdl import IRDLOperation, irdl_op_definition

from mutants import Mutant, changes, drops
from tawa.errors import ProtocolError, UnprovedProtocol
from tawa.ir import hopper, parse, tile
from tawa.simulator.proof import RULES, prove
from tawa.target import H200

DATA = Path(__file__).parent / "data"
SAMPLES = sorted(path.name.removesuffix(".hopper.mlir") for path in DATA.glob("*.hopper.mlir"))


def sample(name: str) -> tile.Kernel:
    return parse((DATA / f"{name}.hopper.mlir").read_text())


def refusal(kernel: tile.Kernel) -> str:
    with pytest.raises(ProtocolError) as caught:
        prove(kernel, H200)
    assert not isinstance(caught.value, UnprovedProtocol)
    return str(caught.value)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_proved(name: str) -> None:
    proof = prove(sample(name), H200)
    assert proof.ok
    assert proof.configurations >= 6
    assert proof.states > 400
    assert "no hang" in proof.verdict


# For each synchronization operation of the GEMM, by its place among those of its kind, a part of
# the sentence that must appear when it is missing.
MISSING = {
    ("init_barriers", 0): "filled[0] is never initialised",
    ("init_barriers", 1): "freed[0] is never initialised",
    ("fence_barrier_init", 0): "without a fence_barrier_init",
    ("block_sync", 0): "before it is initialised: no synchronization of the block",
    ("set_registers", 0): "waits for 232 registers a thread",
    ("set_registers", 1): "is built for 232 registers a thread, but has 168",
    ("wait", 0): "filled[0] is not ordered after the completion of phase 0",
    ("expect", 0): "0/1 arrivals and 49152 of the 0 bytes it expects",
    ("wait", 1): "before the bytes of tma_load of load are known to have landed",
    ("wgmma_fence", 0): "with no wgmma_fence on a path to it",
    ("wgmma_commit", 0): "was never committed",
    ("wgmma_wait", 0): "of a+b@14 freed[0], which gives it back, may come first",
    ("arrive", 0): "freed[0], of which no phase completes: a slot it took is never given back",
    ("wgmma_wait", 1): "reads acc by tile.cast while the wgmma that computes it may be running",
    ("arrive", 1): "a slot it took is never given back",
    ("proxy_fence", 0): "no proxy fence of mma, warpgroup 0",
    ("named_barrier", 1): "while shared_store of mma, warpgroup 0, warps 1-3 may not have been",
    ("bulk_commit", 0): "never committed",
    ("bulk_wait", 1): "no bulk_wait with read = false covers them",
}
# Before the first store of a kernel of one tile nothing is in flight: these two wait for nothing.
IDLE = {("bulk_wait", 0), ("named_barrier", 0)}


def places(found: list[Mutant]) -> dict[tuple[str, int], Mutant]:
    seen: dict[str, int] = {}
    named: dict[tuple[str, int], Mutant] = {}
    for mutant in found:
        kind = mutant.operation.name.removeprefix("hopper.")
        named[kind, seen.setdefault(kind, 0)] = mutant
        seen[kind] += 1
    return named


DROPPED = places(list(drops(sample("gemm"))))


def test_every_operation_that_can_be_missing_is_listed() -> None:
    assert set(DROPPED) == set(MISSING) | IDLE


@pytest.mark.parametrize("place", MISSING, ids=lambda place: f"{place[0]} {place[1]}")
def test_a_missing_operation_is_named(place: tuple[str, int]) -> None:
    assert MISSING[place] in refusal(DROPPED[place].make())


@pytest.mark.parametrize("place", sorted(IDLE), ids=lambda place: f"{place[0]} {place[1]}")
def test_what_waits_for_nothing_may_be_missing(place: tuple[str, int]) -> None:
    assert DROPPED[place].harmless
    assert prove(DROPPED[place].make(), H200).ok
    twin = places(list(drops(sample("gemm_persistent"))))[place]
    assert "slot 0 of c" in refusal(twin.make())


CHANGED = {
    "arrivals+1 barriers": ("1/2 arrivals", "ends inside phase"),
    "arrivals-1 barriers": ("is not ordered after the completion of phase 0",),
    "bytes=49136 expect": ("49152 of the 49136 bytes",),
    "bytes=49168 expect": ("49152 of the 49168 bytes",),
    "flip phase wait": ("nobody can go on", "the wait can miss its phase"),
    "pending+1 wgmma_wait": (
        "may come first",
        "may still read it",
        "is among the 1 groups it allows in flight",
    ),
    "by=warp arrive": ("gets more than its 2 arrivals",),
    "by=role arrive": ("1 of 2 arrivals",),
    "by=thread arrive": ("outside the body of one thread",),
    "threads=96 named_barrier": ("meets at named barrier 1 with 96 threads",),
    "count=240 set_registers": ("waits for 240 registers a thread",),
    "count=224 set_registers": ("built for 232 registers a thread, but has 224",),
    "read bulk_wait": ("no bulk_wait with read = false",),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_operation_is_named(name: str) -> None:
    found = [m for m in changes(sample("gemm")) if m.name.split(" #")[0] == name]
    assert found
    texts = [refusal(mutant.make()) for mutant in found]
    for text in texts:
        assert any(part in text for part in CHANGED[name]), text


def replace_text(name: str, *pairs: tuple[str, str]) -> tile.Kernel:
    text = (DATA / f"{name}.hopper.mlir").read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def test_trip_counts_from_unlike_arguments_are_not_equal() -> None:
    text = (DATA / "gemm.hopper.mlir").read_text()
    text = text.replace("%K: i32)", "%K: i32, %L: i32)")
    text = text.replace('{name = "K", ', '{name = "K"}, {name = "L", ')
    text = text.replace("scf.for %k_1 = %zero_1 to %K", "scf.for %k_1 = %zero_1 to %L")
    message = refusal(parse(text))
    assert "for 0; for 1" in message or "for 1; for 0" in message


def test_trip_counts_that_are_written_unlike_but_equal_are_proved() -> None:
    kernel = replace_text(
        "gemm",
        (
            "%acc, %slot_end_1",
            '%twice = tile.elementwise "add"(%K, %K) : (i32, i32) -> i32\n'
            '%same = tile.elementwise "sub"(%twice, %K) : (i32, i32) -> i32\n'
            "%acc, %slot_end_1",
        ),
        ("scf.for %k_1 = %zero_1 to %K", "scf.for %k_1 = %zero_1 to %same"),
    )
    assert prove(kernel, H200).ok


def test_a_get_sees_the_put_of_its_trip() -> None:
    # The slot of the trip before is still borrowed, so nothing races: its tile is the wrong one.
    kernel = replace_text(
        "gemm",
        (
            "hopper.wgmma_wait {pending = #builtin.int<1>}",
            "hopper.wgmma_wait {pending = #builtin.int<0>}",
        ),
        ("%a_1 = hopper.slot %a_ring[%slot_1]", "%a_1 = hopper.slot %a_ring[%oldest]"),
    )
    assert "it is not the tile of this trip" in refusal(kernel)


def test_a_load_does_not_run_ahead_of_a_store() -> None:
    # C is stored where B is loaded, and the loop over tiles is the author's own: its trips have an
    # order, but the next tile's B may be asked for before this tile's C is stored.
    kernel = sample("gemm_persistent")
    maps = [op for op in kernel.walk() if isinstance(op, hopper.TensorMap)]
    maps[2].operands[0] = maps[1].desc
    assert prove(kernel, H200).ok
    text = str(kernel).replace("persistent = true", "persistent = false")
    assert "nothing orders them" in refusal(parse(text))


def test_overlapping_buffers_race() -> None:
    offset = ("offset = #builtin.int<147456>", "offset = #builtin.int<131072>")
    kernel = replace_text("gemm_persistent", offset)
    assert "memory of" in refusal(kernel)


def test_buffers_that_overlap_in_turn_are_proved() -> None:
    # The stage of the only tile is written when all that uses the ring is done.
    kernel = replace_text("gemm", ("offset = #builtin.int<147456>", "offset = #builtin.int<0>"))
    message = refusal(kernel)
    # ... by its own warpgroup only: the other may still multiply.
    assert "memory of" in message


def test_barriers_lie_alone() -> None:
    kernel = replace_text(
        "gemm", ("offset = #builtin.int<213016>", "offset = #builtin.int<213008>")
    )
    assert "overlaps" in refusal(kernel)


def test_registers_of_all_roles_must_fit() -> None:
    kernel = sample("gemm")
    roles = [op for op in kernel.walk() if isinstance(op, hopper.Role)]
    roles[0].attributes["registers"] = IntAttr(48)
    assert "built for 48 registers a thread, but has 40" in refusal(kernel)


def test_blocks_of_a_cluster_wait_for_each_other() -> None:
    kernel = sample("gemm_cluster")
    final = [op for op in kernel.body.block.ops if isinstance(op, hopper.ClusterSync)][-1]
    final.detach()
    final.erase()
    assert "may end before" in refusal(kernel)


def test_an_unknown_operation_is_unproved() -> None:
    kernel = sample("gemm")
    role = next(op for op in kernel.walk() if isinstance(op, hopper.Role))
    body = role.body.block
    assert body.first_op is not None
    body.insert_op_before(_Strange(), body.first_op)
    with pytest.raises(UnprovedProtocol, match=r"does not know test\.strange"):
        prove(kernel, H200)


@irdl_op_definition
class _Strange(IRDLOperation):
    name = "test.strange"


def test_tile_ir_is_unproved() -> None:
    kernel = parse((DATA / "gemm.tile.mlir").read_text())
    with pytest.raises(UnprovedProtocol, match="no roles"):
        prove(kernel, H200)


def test_a_refusal_is_a_table_and_cites_its_rule() -> None:
    message = refusal(DROPPED["expect", 0].make())
    assert "step" in message
    assert "arrived/needed" in message
    assert "waits for a+b@14 filled[0]" in message
    assert 'rule "no hang"' in message
    assert "PTX ISA" in message


def test_rules_are_sentences() -> None:
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.holds
        assert rule.source


def test_proofs_do_not_change_the_kernel() -> None:
    kernel = sample("gemm")
    before = str(kernel)
    prove(kernel, H200)
    assert str(kernel) == before


def constant_trips(trips: int) -> tile.Kernel:
    """The persistent GEMM with a K known to the compiler."""
    text = (DATA / "gemm_persistent.hopper.mlir").read_text()
    number = f"tile.constant {{value = #builtin.int<{64 * trips}>}} : i32\n"
    for name, before in (("%all", '"hopper.one_thread"() ({\n'), ("%all_1", "232>}\n")):
        assert text.count(before) == 1
        text = text.replace(before, f"{before}{name} = {number}")
        text = text.replace("%K step", f"{name} step", 1)
    return parse(text)


def test_long_loops_leave_out_turns_of_the_ring() -> None:
    short, long = prove(constant_trips(40), H200), prove(constant_trips(400), H200)
    assert long.states < 2 * short.states


def test_long_loops_are_refused_when_they_are_wrong() -> None:
    kernel = constant_trips(400)
    waits = [op for op in kernel.walk() if isinstance(op, hopper.WgmmaWait)]
    waits[0].attributes["pending"] = IntAttr(2)
    assert "may still read it" in refusal(kernel)
