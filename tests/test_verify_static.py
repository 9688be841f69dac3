"""The rules of the text: declarations, roles, registers, named barriers, set-up and launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants import mutants
from proof_kernels import text
from tawa import ir
from tawa.target import H200
from tawa.verify import Refused
from tawa.verify.static import check_static

DATA = Path(__file__).parent / "data"


def sample(name: str) -> str:
    return (DATA / f"{name}.hopper.mlir").read_text()


GEMM = [
    ("arrivals = #builtin.int<1>", "arrivals = #builtin.int<0>", "arrivals"),
    ("{bytes = #builtin.int<49152>}", "{bytes = #builtin.int<1048576>}", "bytes"),
    ("{offset = #builtin.int<49152>}", "{offset = #builtin.int<49168>}", "buffers in place"),
    ("{swizzle = #builtin.int<128>}", "{swizzle = #builtin.int<64>}", "maps fit their views"),
    ("hopper.init_barriers %filled :", "hopper.init_barriers %freed :", "barrier initialised"),
    ("  hopper.fence_barrier_init\n", "", "barrier fenced"),
    ("  hopper.block_sync\n", "", "barrier initialised"),
    ("{count = #builtin.int<232>}", "{count = #builtin.int<240>}", "register budget"),
    ("{count = #builtin.int<232>}", "{count = #builtin.int<236>}", "register budget"),
    ("{count = #builtin.int<40>}", "{count = #builtin.int<48>}", "register budget"),
    ('hopper.set_registers "inc" {count = #builtin.int<232>}', "", "register budget"),
    ("first_warp = #builtin.int<4>", "first_warp = #builtin.int<2>", "form"),
    ("first_warp = #builtin.int<4>", "first_warp = #builtin.int<8>", "form"),
    ('scope = "warpgroup"', 'scope = "role"', "named barrier"),
    ("{id = #builtin.int<1>", "{id = #builtin.int<15>", "named barrier"),
    ("threads = #builtin.int<128>}", "threads = #builtin.int<96>}", "named barrier"),
    ('named_barrier "sync"', 'named_barrier "arrive"', "named barrier"),
]


@pytest.mark.parametrize(("old", "new", "rule"), GEMM)
def test_gemm_with_one_thing_broken(old: str, new: str, rule: str) -> None:
    source = sample("gemm")
    assert old in source
    with pytest.raises(Refused) as found:
        check_static(ir.parse(source.replace(old, new, 1)), H200)
    assert found.value.rule.name == rule


def test_blocks_of_a_cluster_meet_at_both_ends() -> None:
    source = sample("gemm_cluster")
    check_static(ir.parse(source), H200)
    head, tail = source.rsplit("hopper.cluster_sync\n", 1)
    with pytest.raises(Refused, match="peers alive"):
        check_static(ir.parse(head + tail), H200)
    with pytest.raises(Refused, match="peers alive"):
        check_static(ir.parse(head + "hopper.cluster_sync {relaxed}\n" + tail), H200)
    first = source.index("hopper.cluster_sync")
    end = source.index("\n", first)
    with pytest.raises(Refused, match="barrier initialised"):
        check_static(ir.parse(source[:first] + "hopper.block_sync" + source[end:]), H200)


OWN = (
    *("form", "arrivals", "bytes", "register budget", "whole warpgroups", "named barrier"),
    *("all threads of a warp", "barrier initialised", "barrier fenced"),
    *("buffers in place", "maps fit their views", "peers alive", "kernels in order"),
)
KINDS = ("launched early", "first_warp+4", "not elected", "registers+8", "by all")


@pytest.mark.parametrize("name", ["plan early", "sample gemm_cluster", "shape atomic tile counter"])
def test_mutants_of_the_text_are_refused(name: str) -> None:
    kernel = ir.parse(text(name))
    chosen = [
        mutant
        for mutant in mutants(kernel)
        if not mutant.harmless
        and (
            mutant.kind in KINDS
            or (
                mutant.kind in ("drop", "to end")
                and mutant.operation.name in ("hopper.grid_wait", "hopper.init_barriers")
            )
        )
    ]
    assert chosen
    for mutant in chosen:
        with pytest.raises(Refused) as found:
            check_static(mutant.make(), H200)
        assert found.value.rule.name in OWN, mutant.name


def test_a_copy_for_one_block_alone_takes_boxes_of_a_whole_tile() -> None:
    """Without its multicast it moves the tile by boxes of a part: two, one below another."""
    source = sample("gemm_cluster")
    (copy,) = (line for line in source.split("\n") if "hopper.tma_load %b_map" in line)
    alone = copy.replace(" {multicast = #builtin.int<2>}", "")
    assert alone != copy
    with pytest.raises(Refused, match="maps fit their views"):
        check_static(ir.parse(source.replace(copy, alone)), H200)
