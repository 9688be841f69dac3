"""Into how many agents the warps of a role come, and that what they hand over is asked for."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from itertools import combinations, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proof_exchanges import ROWS, Exchange, Meet, Touch, draw, races, text
from proof_oracle import i
from ring_text import refused
from role_text import kernel, role
from tawa.ir import parse
from tawa.simulator.proof.exchange import Parts, parts_of
from tawa.simulator.proof.run import Run
from tawa.simulator.proof.verdict import prove
from tawa.target import H200

WHOLE = '#hopper.shared_layout<"64x8 order(0,1) 32b swizzle0">'
BUFFER, VIEW = f"!hopper.buffer<{i(1)}, f32, {WHOLE}>", f"!hopper.view<f32, {WHOLE}, {WHOLE}>"
ROW_EACH = "r[4:(0,2)] l[2:(0,1) 16:(1,0)] w[4:(16,0)]"
SWAPPED = "r[4:(0,2)] l[2:(0,1) 16:(1,0)] w[2:(32,0) 2:(16,0)]"
PAIRS = "r[4:(0,2) 2:(16,0)] l[2:(0,1) 16:(1,0)] w[2:(0,0) 2:(32,0)]"
ALL = "r[4:(0,2) 4:(16,0)] l[2:(0,1) 16:(1,0)] w[4:(0,0)]"
MET = f'hopper.named_barrier "sync" {{id = {i(1)}, scope = "role", threads = {i(128)}}}\n'
TOGETHER, FIRST, SECOND = ((1, 2, 3),), ((1,), (2, 3)), ((2,), (1, 3))
APART = ((1,), (2,), (3,))


def tensor(layout: str) -> str:
    return f'tensor<64x8xf32, #hopper.layout<"64x8 {layout}">>'


def stored(buffer: str, name: str = "s") -> str:
    return (
        f"%{name} = hopper.slot %{buffer}[%c0] : ({BUFFER}, i32) -> {VIEW}\n"
        f"%{name}_z = tile.constant {{value = 0.0 : f32}} : f32\n"
        f"%{name}_x = tile.splat %{name}_z : (f32) -> {tensor(ROW_EACH)}\n"
        f'hopper.shared_store "plain" %{name}_x, %{name} : {tensor(ROW_EACH)}, {VIEW}\n'
    )


def loaded(number: int, layout: str) -> str:
    return f'%r{number} = hopper.shared_load "plain" %s : ({VIEW}) -> {tensor(layout)}\n'


def exchange(layouts: tuple[str, ...], between: str) -> str:
    reads = "".join(loaded(number, layout) for number, layout in enumerate(layouts))
    return moved(stored("box") + between + reads, 0)


def moved(body: str, *offsets: int) -> str:
    boxes = "".join(
        f'%box{number or ""} = hopper.shared "box{number}" {{offset = {i(offset)}}} : {BUFFER}\n'
        for number, offset in enumerate(offsets)
    )
    text = kernel([role("main", 0, body)], {}, 0, {"K": "i32"}, boxes, max(offsets) + 2048)
    return "\n".join(line for line in text.splitlines() if not line.startswith("%ring"))


def is_race(sentence: str) -> bool:
    return "no barrier orders them" in sentence or "before it is written" in sentence


def agents(text: str, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """The warps of each agent beside the leader, as the runs of the proof have them."""
    found: list[Parts] = []
    whole = Run.execute

    def execute(run: Run) -> None:
        found.append(tuple(agent.warps for agent in run.agents[1:]))
        whole(run)

    monkeypatch.setattr(Run, "execute", execute)
    prove(parse(text), H200)
    assert len(set(found)) == 1
    return found[0]


@pytest.mark.parametrize(
    ("layouts", "parts"),
    [
        ((ROW_EACH,), TOGETHER),
        ((SWAPPED,), FIRST),
        ((PAIRS,), SECOND),
        ((PAIRS, SWAPPED), SECOND),
        ((ALL,), FIRST),
        ((ROW_EACH, ALL, ALL), FIRST),
    ],
    ids=["own rows", "1 with 2", "2 with 3", "both", "all with all", "several"],
)
def test_warps_that_exchange_are_told_apart(
    layouts: tuple[str, ...], parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agents(exchange(layouts, MET), monkeypatch) == parts
    without = refused(exchange(layouts, ""))
    assert is_race(without) if parts is not TOGETHER else not without


@pytest.mark.parametrize(
    ("rows", "parts"), [(0, TOGETHER), (16, FIRST), (32, FIRST), (64, TOGETHER)]
)
def test_buffers_that_overlap(rows: int, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the other buffer are those of other warps: 32 further of 1 and 3 alone."""
    body = stored("box") + MET + stored("box1", "t")
    assert agents(moved(body, 0, 32 * rows), monkeypatch) == parts
    without = refused(moved(body.replace(MET, ""), 0, 32 * rows))
    assert is_race(without) if parts is not TOGETHER else not without


@pytest.mark.parametrize("left_out", [None, 0, 1, 2])
def test_each_exchanges_with_each_but_never_all_at_once(
    left_out: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = ["" if place == left_out else MET for place in range(3)]
    body = (
        f"{stored('box1', 't')}{met[0]}{stored('box')}{met[1]}{loaded(0, PAIRS)}"
        f"{loaded(1, SWAPPED)}{met[2]}{stored('box1', 'u')}"
    )
    text = moved(body, 0, 1024)
    if left_out is None:
        assert agents(text, monkeypatch) == APART
    else:
        assert is_race(refused(text))


@settings(max_examples=150)
@given(st.integers(0, 10**9), st.sampled_from((4, 4, 4, 8)))
def test_a_role_is_refused_where_its_warps_race_and_nowhere_else(seed: int, warps: int) -> None:
    exchange = draw(seed, warps)
    found = refused(text(exchange))
    assert is_race(found) == races(exchange), found


@pytest.mark.parametrize("between", [0, 1, None])
def test_what_all_store_alike_stands_for_nothing_before(between: int | None) -> None:
    """Each warp reads its rows, all write the last two's, each writes its own: the first of all to
    write is ordered after no other's read.
    """
    whole = Touch(False, 0, 0, 0, ROWS, (16, 32), ())
    alike = Touch(True, 0, 0, 32, 32, (0, 0), (16,))
    steps = [whole, Meet(), alike, Meet(), replace(whole, write=True)]
    if between is not None:
        del steps[1 + 2 * between]
    exchange = Exchange(4, (0,), (1,), (Meet(), *steps))
    assert races(exchange) == (between is not None)
    assert is_race(refused(text(exchange))) == (between is not None)


crossings = st.frozensets(st.sampled_from(tuple(permutations((1, 2, 3), 2))), min_size=1)


@given(st.lists(crossings, max_size=4))
def test_as_few_agents_as_show_each_exchange(met: list[Set[tuple[int, int]]]) -> None:
    def shows(parts: Parts) -> bool:
        pairs = {
            pair
            for one, other in combinations(parts, 2)
            for pair in (*product(one, other), *product(other, one))
        }
        return all(pairs & crossing for crossing in met)

    found = parts_of(met)
    assert sorted(sum(found, ())) == [1, 2, 3]
    assert shows(found)
    assert len(found) == 1 or not shows(TOGETHER)
    assert len(found) < 3 or not any(shows(((one,), (*{1, 2, 3} - {one},))) for one in (1, 2, 3))
