"""A role by itself: products, releases, fences and groups, for all trip counts at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mutants import Mutant, mutants
from proof_kernels import text
from tawa import ir
from tawa.ir import tile
from tawa.verify import Refused
from tawa.verify.agreement import cluster_of
from tawa.verify.rings import rings_of
from tawa.verify.role_flow import check_roles
from tawa.verify.values import Values

DATA = Path(__file__).parent / "data"


def checked(kernel: tile.Kernel) -> None:
    check_roles(kernel, rings_of(kernel), Values(kernel, cluster_of(kernel)))


def sample(name: str) -> str:
    return (DATA / f"{name}.hopper.mlir").read_text()


def refusal(source: str) -> Refused:
    with pytest.raises(Refused) as found:
        checked(ir.parse(source))
    return found.value


def edited(source: str, old: str, new: str, place: int = 0) -> str:
    """The text with one occurrence of a part changed: the first one, or a later one."""
    found = [match.start() for match in re.finditer(re.escape(old), source)]
    at = found[place]
    return source[:at] + new + source[at + len(old) :]


FENCE = "hopper.wgmma_fence\n"
COMMIT = "hopper.wgmma_commit\n"
WAIT_ONE = "hopper.wgmma_wait {pending = #builtin.int<1>}\n"
PROXY = "hopper.proxy_fence\n"
STORED = 'hopper.bulk_commit {by = "warpgroup"}\n'
STORED_OTHER = "hopper.tma_store %c_map[%m_1, %n_1], %other_tile"
READ = 'hopper.bulk_wait {pending = #builtin.int<0>, read = true, by = "warpgroup"}\n'
WRITTEN = 'hopper.bulk_wait {pending = #builtin.int<0>, read = false, by = "warpgroup"}\n'
MEET = (
    'hopper.named_barrier "sync" {id = #builtin.int<1>, scope = "warpgroup", '
    "threads = #builtin.int<128>}\n"
)


@pytest.mark.parametrize(
    ("old", "new", "place", "rule"),
    [
        (FENCE, "", 0, "wgmma fence"),
        (COMMIT, "", 0, "early release"),
        (WAIT_ONE, "", 0, "early release"),
        (WAIT_ONE, WAIT_ONE.replace("<1>", "<2>"), 0, "early release"),
        (
            "hopper.wgmma_wait {pending = #builtin.int<0>} of",
            "hopper.wgmma_wait {pending = #builtin.int<1>} of",
            0,
            "accumulators at rest",
        ),
        ("%freed[%oldest] {by", "%freed[%slot_1] {by", 0, "early release"),
        ('{by = "warpgroup"}', '{by = "role"}', 0, "early release"),
        (PROXY, "", 0, "proxy fence"),
        (MEET, "", 1, "no race"),
        (PROXY + "    " + MEET, MEET + "    " + PROXY, 0, "proxy fence"),
        (STORED, "", 0, "bulk groups"),
        (WRITTEN, "", 0, "bulk groups"),
        (WRITTEN, READ, 0, "bulk groups"),
        (
            "hopper.wait %filled[%slot_1], %phase_1",
            "hopper.wait %filled[%oldest], %phase_1",
            0,
            "cursor",
        ),
        ("hopper.wait %freed[%slot], %phase", "hopper.wait %freed[%zero], %phase", 0, "cursor"),
    ],
)
def test_gemm_with_one_thing_broken(old: str, new: str, place: int, rule: str) -> None:
    source = edited(sample("gemm"), old, new, place)
    assert refusal(source).rule.name == rule


def test_a_staging_buffer_is_written_again_only_after_it_was_read() -> None:
    """In a kernel of one tile nothing is overwritten; in one of many the next tile is."""
    checked(ir.parse(edited(sample("gemm"), READ, "")))
    assert refusal(edited(sample("gemm_persistent"), READ, "")).rule.name == "early release"


def test_scratch_memory_is_read_only_after_it_was_written_there() -> None:
    """No path leaves the write out, and another buffer of the same type is none."""
    source = sample("gemm")
    (store,) = re.findall(r"    hopper\.shared_store .*\n", source)
    (own,) = re.findall(r"  %c_stage = .*\n", source)
    (slot,) = re.findall(r"    %c_tile = .*\n", source)
    other = own.replace("%c_stage", "%other").replace('"c"', '"other"')
    other = other.replace("<147456>", "<229376>")
    other_slot = slot.replace("%c_stage", "%other").replace("%c_tile", "%other_tile")
    beside = edited(edited(source, own, own + other), slot, slot + other_slot)
    sometimes = f"    scf.if %some {{\n{store}    }}\n"
    some = '    %some = tile.elementwise "eq"(%K, %zero_1) : (i32, i32) -> i1\n'
    for broken in (
        edited(source, store, ""),
        edited(source, store, some + sometimes),
        edited(beside, "hopper.tma_store %c_map[%m_1, %n_1], %c_tile", STORED_OTHER),
    ):
        found = refusal(broken)
        assert found.rule.name == "memory written first"
        assert found.operation is not None
        assert found.operation.name == "hopper.tma_store"


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_release_that_is_late_by_some_iterations(late: int) -> None:
    """Whatever the number of iterations by which releases are late, the wait has to match it."""
    source = sample("gemm").replace(
        "hopper.wgmma_wait {pending = #builtin.int<1>}",
        f"hopper.wgmma_wait {{pending = #builtin.int<{late}>}}",
    )
    if late == 1:
        checked(ir.parse(source))
    else:
        assert refusal(source).rule.name == "early release"


def test_a_refusal_says_what_is_wrong_and_where() -> None:
    found = refusal(edited(sample("gemm"), PROXY, ""))
    for part in ("mma", "proxy fence", "c", "shared_store"):
        assert part in found.sentence
    assert found.operation is not None
    assert found.operation.name == "hopper.tma_store"


OWN = (
    *("accumulators at rest", "accumulators written first", "wgmma fence", "wgmma commit"),
    *("early release", "proxy fence", "no race", "bulk groups", "nothing is left"),
)
BROKEN = ("sample gemm_persistent", "sample attention", "copies gather")
KINDS = (
    ("drop", "hopper.wgmma_fence"),
    ("drop", "hopper.wgmma_commit"),
    ("drop", "hopper.wgmma_wait"),
    ("pending+1", "hopper.wgmma_wait"),
    ("unnamed", "hopper.wgmma_wait"),
    ("drop", "hopper.proxy_fence"),
    ("drop", "hopper.bulk_commit"),
    ("drop", "hopper.bulk_wait"),
    ("read", "hopper.bulk_wait"),
    ("drop", "hopper.named_barrier"),
    ("always adds", "hopper.wgmma"),
)


def of_roles(mutant: Mutant) -> bool:
    """Whether a mutant is one that a role by itself shows."""
    return not mutant.harmless and (mutant.kind, mutant.operation.name) in KINDS


@pytest.mark.parametrize("name", BROKEN)
def test_mutants_are_refused(name: str) -> None:
    kernel = ir.parse(text(name))
    chosen = [mutant for mutant in mutants(kernel) if of_roles(mutant)]
    assert len(chosen) > 5
    for mutant in chosen:
        with pytest.raises(Refused) as found:
            checked(mutant.make())
        assert found.value.rule.name in OWN, mutant.name
