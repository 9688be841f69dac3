"""A plan printed is a plan read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tawa.errors import PlanError
from tawa.plan.plan import ArefPlan, Declined, LoopPlan, Plan, RolePlan, StorePlan, TensorPlan
from tawa.plan.text import parse_plan, print_plan

words = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
names = st.builds(
    lambda word, line, copy: f"{word}@{line}" + (f"#{copy}" if copy else ""),
    words,
    st.integers(1, 999),
    st.sampled_from([0, 2, 3]),
)
counts = st.integers(1, 64)
payloads = st.lists(names, min_size=1, max_size=3).map(tuple)
reasons = st.text("abc xyz:=#,.'0123456789", max_size=40).map(str.strip)
plans = st.builds(
    Plan,
    roles=st.lists(st.builds(RolePlan, words, counts, counts, st.sampled_from([1, 2]))).map(tuple),
    arefs=st.lists(
        st.builds(ArefPlan, payloads, counts, st.lists(payloads, max_size=2).map(tuple)),
        max_size=3,
    ).map(tuple),
    loops=st.lists(
        st.builds(
            LoopPlan,
            names.map("for {}".format),
            st.sampled_from(["none", "fine", "coarse"]),
            counts,
            st.booleans(),
            st.sampled_from([(), ("acc",), ("top", "total")]),
        ),
        max_size=2,
    ).map(tuple),
    stores=st.lists(
        st.builds(
            StorePlan,
            names,
            st.sampled_from(["tma", "registers"]),
            counts,
            st.sampled_from(["", "first", "last"]),
            st.sampled_from(["", "q@12"]),
        ),
        max_size=2,
    ).map(tuple),
    direct=st.lists(names, max_size=2).map(tuple),
    tensors=st.lists(
        st.builds(TensorPlan, words, st.just("4x32;r[4:(1,0)];l[32:(0,1)];w[]")), max_size=2
    ).map(tuple),
    arrangement=st.sampled_from(["cooperative", "pingpong"]),
    warps=counts,
    persistent=st.booleans(),
    group=st.integers(0, 16),
    cluster=st.sampled_from([1, 2]),
    grouped=st.sampled_from(["rows", "columns"]),
    walk=st.sampled_from(["forward", "serpentine"]),
    load_eviction=st.sampled_from(["", "last"]),
    declined=st.lists(st.builds(Declined, names.map("load {}".format), reasons), max_size=2).map(
        tuple
    ),
    guards=st.lists(st.tuples(words, words), max_size=2).map(tuple),
)


@given(plans)
def test_reads_back(plan: Plan) -> None:
    assert parse_plan(print_plan(plan)) == plan


def test_looks_like_this() -> None:
    plan = Plan(
        roles=(RolePlan("load", 4, 40), RolePlan("mma", 8, 232)),
        arefs=(ArefPlan(("k@20",), 2, (("k@40",),)),),
        loops=(LoopPlan("for i@19", "fine", 2),),
        stores=(StorePlan("o_desc@50", "tma", 2, "first"),),
        warps=12,
        persistent=True,
        group=8,
        guards=(("k", "o"),),
        declined=(Declined("num_stages=4", "depth 2 is what shared memory allows"),),
    )
    assert print_plan(plan).splitlines() == [
        "plan specialized warps=12 arrangement=cooperative persistent=yes group=8 cluster=1",
        "role load warps=4 registers=40",
        "role mma warps=8 registers=232",
        "aref k@20 = k@40 depth=2",
        "loop for i@19 schedule=fine mma_depth=2",
        "store o_desc@50 via=tma parts=2 eviction=first",
        "guard k, o",
        "declined num_stages=4: depth 2 is what shared memory allows",
    ]


def test_comments_and_blank_lines_are_free() -> None:
    text = "# mine\nplan specialized warps=8  # small\n\nrole load warps=4 registers=40\n"
    assert parse_plan(text).roles == (RolePlan("load", 4, 40),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with 'plan'"),
        ("role load warps=4 registers=40", "begins with 'plan'"),
        ("plan specialized\nrole load warps=4", "registers= is missing"),
        ("plan specialized\naref a@1 depth=two", "two"),
        ("plan specialized\nstore c@1 via=magic", "'magic' is none of tma, registers"),
        ("plan specialized\ncluster 2", "cluster"),
        ("plan strange", "'strange' is none of"),
    ],
)
def test_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        parse_plan(text)
