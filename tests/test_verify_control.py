"""One control: broken kernels are refused. That the kernels of the tests have it, and all else that
the check asks for, test_schedules.py says of each where it runs it.
"""

from __future__ import annotations

import pytest

from mutants_of_control import control_mutants
from proof_kernels import KERNELS, text
from tawa import ir
from tawa.errors import UnprovedProtocol
from tawa.verify import Refused, check, verify
from test_verify_choreography import run

NOT_ONE = r"^(order|left|slots|cursor|form):"
"""The rules of roles that do not go equally often: they wait for ever, leave phases, or use slots
out of turn."""

BROKEN = ("sample gemm", "many tiles split", "turns attention coarse", "instances residual depth 2")


@pytest.mark.parametrize("name", BROKEN)
def test_roles_that_part_at_some_input_are_refused(name: str) -> None:
    """Some of them; `make long` breaks all kernels in all ways."""
    mutants = list(control_mutants(ir.parse(text(name))))[::5]
    assert len(mutants) > 4
    for mutant in mutants:
        with pytest.raises(Refused, match=NOT_ONE):
            run(mutant.make())


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_all_roles_that_part_are_refused(name: str) -> None:
    for mutant in control_mutants(ir.parse(text(name))):
        with pytest.raises(Refused):
            check(mutant.make())


def gemm(load: str = "%K", mma: str = "%K", setup: str = "") -> ir.tile.Kernel:
    """The GEMM of the samples with other ends of its loops."""
    source = text("sample gemm").replace("to %K step %bk ", f"to {load} step %bk ", 1)
    source = source.replace("to %K step %bk_1 ", f"to {mma} step %bk_1 ", 1)
    if setup:
        for mark, suffix in (("%zero = tile.constant", ""), ("%zero_1 = tile.constant", "_1")):
            source = source.replace(mark, setup.replace("@", suffix) + mark, 1)
    return ir.parse(source)


def test_the_sample_is_right_before_it_is_broken() -> None:
    check(gemm())


@pytest.mark.parametrize("counts", [(112, 100), (130, 100), (400, 100), (30, 24)])
def test_unlike_constant_trip_counts(counts: tuple[int, int]) -> None:
    """They differ by whole revolutions of the ring, so that slot and phase agree at the end."""
    ends = "".join(
        f"%end{place}@ = tile.constant {{value = #builtin.int<{64 * count}>}} : i32\n"
        for place, count in enumerate(counts)
    )
    with pytest.raises(Refused, match=NOT_ONE):
        check(gemm("%end0", "%end1_1", ends))
    check(gemm("%end0", "%end0_1", ends))


@pytest.mark.parametrize("function", ["min", "max"])
@pytest.mark.parametrize("bound", [512, 64, 1 << 20])
def test_a_cap_in_one_role(function: str, bound: int) -> None:
    cap = (
        f"%cap@ = tile.constant {{value = #builtin.int<{bound}>}} : i32\n"
        f'%end@ = tile.elementwise "{function}"(%K, %cap@) : (i32, i32) -> i32\n'
    )
    for load, mma in (("%end", "%K"), ("%K", "%end_1")):
        with pytest.raises(Refused, match=NOT_ONE):
            check(gemm(load, mma, cap))
    check(gemm("%end", "%end_1", cap))


@pytest.mark.parametrize("iterations", [3, 128, 200, 201, 10_000])
def test_one_trip_more_beyond_a_threshold(iterations: int) -> None:
    more = (
        f"%far@ = tile.constant {{value = #builtin.int<{64 * iterations}>}} : i32\n"
        "%none@ = tile.constant {value = #builtin.int<0>} : i32\n"
        "%step@ = tile.constant {value = #builtin.int<64>} : i32\n"
        '%is_far@ = tile.elementwise "gt"(%K, %far@) : (i32, i32) -> i1\n'
        '%more@ = tile.elementwise "select"(%is_far@, %step@, %none@) : (i1, i32, i32) -> i32\n'
        '%end@ = tile.elementwise "add"(%K, %more@) : (i32, i32) -> i32\n'
    )
    for load, mma in (("%end", "%K"), ("%K", "%end_1")):
        with pytest.raises(Refused, match=NOT_ONE):
            check(gemm(load, mma, more))
    check(gemm("%end", "%end_1", more))


def test_the_same_bound_written_otherwise() -> None:
    """Equality is of functions, not of text: K + 64 - 64, and K * 1."""
    other = (
        "%some@ = tile.constant {value = #builtin.int<64>} : i32\n"
        '%up@ = tile.elementwise "add"(%some@, %K) : (i32, i32) -> i32\n'
        '%end@ = tile.elementwise "sub"(%up@, %some@) : (i32, i32) -> i32\n'
    )
    check(gemm("%end", "%K", other))


def test_a_refusal_names_roles_rule_and_launch() -> None:
    cap = (
        "%cap@ = tile.constant {value = #builtin.int<512>} : i32\n"
        '%end@ = tile.elementwise "min"(%K, %cap@) : (i32, i32) -> i32\n'
    )
    with pytest.raises(UnprovedProtocol) as found:
        verify(gemm("%end", "%K", cap))
    for part in ("matmul is not proved", "load", "mma", "K - 64 > 0", 'rule "left"'):
        assert part in str(found.value)


def test_blocks_of_a_cluster_have_one_control() -> None:
    """All roles of a block agree, and the blocks do not: who waits for all others waits on."""
    source = text("sample gemm_cluster")
    bounds = [line for line in source.splitlines() if "scf.for" in line and "%K step" in line]
    assert len(bounds) == 2
    for line in bounds:
        own = "_own" + str(bounds.index(line))
        more = (
            f"%rank{own} = hopper.cluster_rank : i32\n%unit{own} = tile.constant "
            f"{{value = #builtin.int<64>}} : i32\n%more{own} = tile.elementwise "
            f'"mul"(%rank{own}, %unit{own}) : (i32, i32) -> i32\n%end{own} = tile.elementwise '
            f'"add"(%K, %more{own}) : (i32, i32) -> i32\n'
        )
        source = source.replace(line, more + line.replace("%K step", f"%end{own} step"))
    check(ir.parse(text("sample gemm_cluster")))
    with pytest.raises(Refused, match="multicast"):
        check(ir.parse(source))
