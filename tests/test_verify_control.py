"""One control: broken kernels are refused. That the kernels of the tests have it, and all else that
the check asks for, test_schedules.py says of each where it runs it.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutants_of_control import control_mutants
from proof_kernels import KERNELS, text
from tawa import ir
from tawa.errors import UnprovedProtocol
from tawa.verify import Refused, check, verify
from tawa.verify.counts import Count, Counts
from tawa.verify.terms import Terms
from tawa.verify.values import Span

BROKEN = ("sample gemm", "many tiles split", "turns attention coarse", "instances residual depth 2")


@pytest.mark.parametrize("name", BROKEN)
def test_roles_that_part_at_some_input_are_refused(name: str) -> None:
    mutants = list(control_mutants(ir.parse(text(name))))
    assert mutants
    for mutant in mutants:
        with pytest.raises(Refused, match="one control"):
            check(mutant.make())


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_all_roles_that_part_are_refused(name: str) -> None:
    for mutant in control_mutants(ir.parse(text(name))):
        with pytest.raises(Refused, match="one control"):
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
    with pytest.raises(Refused, match="one control"):
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
        with pytest.raises(Refused, match="one control"):
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
        with pytest.raises(Refused, match="one control"):
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


def test_a_refusal_names_roles_rule_and_counts() -> None:
    cap = (
        "%cap@ = tile.constant {value = #builtin.int<512>} : i32\n"
        '%end@ = tile.elementwise "min"(%K, %cap@) : (i32, i32) -> i32\n'
    )
    with pytest.raises(UnprovedProtocol) as found:
        verify(gemm("%end", "%K", cap))
    for part in ("matmul is not proved", "load", "mma", "K - 512", 'rule "one control"'):
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
    with pytest.raises(Refused, match="blocks of a cluster are not shown to agree"):
        check(ir.parse(source))


# --- counts against the loops themselves ----------------------------------------------------------

GUARDS = ("always", "ahead", "after", "before", "at")


def counted(counts: Counts, length: int, step: int, guard: str, number: int) -> Count:
    """How often a guarded operation of one loop happens, in normal form."""
    terms = counts.terms
    span = Span(length, step)
    at = terms.atom(("iteration", 0), frozenset({("iteration", 0)}))
    size = terms.constant(number)
    match guard:
        case "ahead":
            left = terms.sub(length, terms.mul(step, terms.add(at, size)))
            inside = counts.positive(left)
        case "after":
            inside = counts.positive(terms.sub(at, size))
        case "before":
            inside = counts.positive(terms.sub(size, at))
        case "at":
            inside = counts.equal(at, size)
        case _:
            inside = counts.constant(1)
    return counts.over(span, 0, inside)


def run(length: int, step: int, guard: str, number: int) -> int:
    total = 0
    for i in range(max(0, -(-length // step))):
        total += {
            "always": True,
            "ahead": length - step * (i + number) > 0,
            "after": i > number,
            "before": i < number,
            "at": i == number,
        }[guard]
    return total


SITES = st.tuples(
    st.integers(-3, 4), st.sampled_from(GUARDS), st.integers(0, 3), st.integers(-2, 2)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(SITES, max_size=5), st.lists(SITES, max_size=5), st.sampled_from([1, 2, 7]))
def test_counts_are_the_same_exactly_where_the_loops_are(
    left: list[tuple[int, str, int, int]], right: list[tuple[int, str, int, int]], step: int
) -> None:
    """Loops over n that begin some iterations late, guarded, each so many times."""
    terms = Terms()
    counts = Counts(terms)
    n, unit = terms.atom(("argument", "n", 0)), terms.constant(step)

    def made(sites: list[tuple[int, str, int, int]]) -> Count:
        return counts.sum(
            (counted(counts, terms.add(n, unit, -late), unit, guard, number), times)
            for late, guard, number, times in sites
        )

    def total(sites: list[tuple[int, str, int, int]], length: int) -> int:
        return sum(
            times * run(length - late * step, step, guard, number)
            for late, guard, number, times in sites
        )

    same = all(total(left, m) == total(right, m) for m in range(-5 * step, 14 * step))
    assert counts.same(made(left), made(right)) == same


@settings(max_examples=200, deadline=None)
@given(SITES, st.integers(-20, 40))
def test_counts_of_numbers_are_numbers(site: tuple[int, str, int, int], length: int) -> None:
    late, guard, number, times = site
    counts = Counts(Terms())
    terms = counts.terms
    made = counted(counts, terms.constant(length - 3 * late), terms.constant(3), guard, number)
    wanted = times * run(length - 3 * late, 3, guard, number)
    assert counts.same(counts.sum([(made, times)]), counts.constant(wanted))
