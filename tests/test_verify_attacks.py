"""Kernels that were broken by hand in ways that no list of mutants has: each must be refused.

Each attack says what goes wrong when it runs. `HANGS_OR_RACES` are those that the simulator finds
as well, so that the tests cannot rot into kernels that are right.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proof_kernels import text
from tawa.ir import parse
from tawa.target import H200
from tawa.verify import Refused, check

DATA = Path(__file__).parent / "data"
GEMM = (DATA / "gemm.hopper.mlir").read_text()


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """Return a text with each of some parts, which it has, replaced once."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def refuses(text: str, *rules: str) -> None:
    """Check a kernel, which has to be refused, by one of some rules where these are given."""
    kernel = parse(text)
    with pytest.raises(Refused) as found:
        check(kernel, H200)
    assert not rules or found.value.rule.name in rules


def test_the_kernel_that_is_attacked_is_right() -> None:
    assert check(parse(GEMM), H200) > 0


# --- agents that arrive without waiting -----------------------------------------------------------

TICKS = """  "hopper.role"() ({
    %zero_2 = tile.constant {value = #builtin.int<0>} : i32
    %one_2 = tile.constant {value = #builtin.int<1>} : i32
    %depth_2 = tile.constant {value = #builtin.int<3>} : i32
    %bk_2 = tile.constant {value = #builtin.int<64>} : i32
    %end_2 = scf.for %k_2 = %zero_2 to %K step %bk_2 iter_args(%slot_2 = %zero_2) -> (i32) : i32 {
      hopper.arrive %BARRIERS[%slot_2] {by = "role"} : !hopper.barriers<#builtin.int<3>>, i32
      %next_2 = tile.elementwise "add"(%slot_2, %one_2) : (i32, i32) -> i32
      %wraps_2 = tile.elementwise "eq"(%next_2, %depth_2) : (i32, i32) -> i1
      %then_2 = tile.elementwise "select"(%wraps_2, %zero_2, %next_2) : (i1, i32, i32) -> i32
      scf.yield %then_2 : i32
    }
  }) {label = "ticks", first_warp = #builtin.int<12>, warps = #builtin.int<1>, registers = #builtin.int<40>} : () -> ()
"""  # noqa: E501


@pytest.mark.parametrize(("barriers", "arrivals"), [("filled", 1), ("freed", 2)])
def test_a_role_arrives_at_a_ring_that_it_waits_for_nowhere(barriers: str, arrivals: int) -> None:
    """It runs ahead and arrives twice in a phase, which completes before the other has arrived:
    the simulator finds races and arrivals too many."""
    end = '}) {sym_name = "matmul"'
    offset = {"filled": 212992, "freed": 213016}[barriers]
    array = f'"a+b@14 {barriers}" {{offset = #builtin.int<{offset}>, arrivals = #builtin.int<'
    text = replaced(
        GEMM,
        (f"{array}{arrivals}>", f"{array}{arrivals + 1}>"),
        (end, TICKS.replace("BARRIERS", barriers) + end),
        ("threads = #builtin.int<384>", "threads = #builtin.int<416>"),
        ("registers = #builtin.int<168>", "registers = #builtin.int<152>"),
        ('"inc" {count = #builtin.int<232>}', '"inc" {count = #builtin.int<208>}'),
        ("registers = #builtin.int<232>", "registers = #builtin.int<208>"),
    )
    refuses(text)


# --- shared memory --------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["one_1", "n_1", "bk_1"])
def test_a_slot_of_scratch_memory_is_none_that_the_buffer_has(index: str) -> None:
    """`c` has one slot; slot 1 is beyond it: the simulator says "slot 1 of 1"."""
    refuses(replaced(GEMM, ("hopper.slot %c_stage[%zero_1]", f"hopper.slot %c_stage[%{index}]")))


# --- threads of one role --------------------------------------------------------------------------


def signals(rings: dict[str, tuple[int, int]], roles: list[str], warps: int = 1) -> str:
    """Return a kernel of barriers alone: (slots, arrivals) by name, and what the roles do."""
    lines = ['"tile.kernel"() ({', "^bb0(%n: i32, %ptr: !tile.ptr<i32>):"]
    offset = 0
    for name, (slots, arrivals) in rings.items():
        kind = f"!hopper.barriers<#builtin.int<{slots}>>"
        lines.append(
            f'%{name} = hopper.barriers "{name}" {{offset = #builtin.int<{offset}>, '
            f"arrivals = #builtin.int<{arrivals}>}} : {kind}"
        )
        lines.append(f"hopper.init_barriers %{name} : {kind}")
        offset += 8 * slots
    lines += ["hopper.fence_barrier_init", "hopper.block_sync"]
    for number, body in enumerate(roles):
        lines.append('"hopper.role"() ({')
        for value in range(4):
            lines.append(f"%c{value} = tile.constant {{value = #builtin.int<{value}>}} : i32")
        lines.append(body)
        lines.append(
            f'}}) {{label = "r{number}", first_warp = #builtin.int<{number * warps}>, '
            f"warps = #builtin.int<{warps}>, registers = #builtin.int<64>}} : () -> ()"
        )
    names = '[{name = "n"}, {name = "ptr"}]'
    lines.append(f'}}) {{sym_name = "signals", arguments = {names}, options = {{}}}} : () -> ()')
    return "\n".join(lines)


def wait(barriers: str, slots: int, slot: str, phase: str) -> str:
    kind = f"!hopper.barriers<#builtin.int<{slots}>>"
    return f"hopper.wait %{barriers}[{slot}], {phase} : {kind}, i32, i32"


def arrive(barriers: str, slots: int, slot: str, by: str = "role") -> str:
    kind = f"!hopper.barriers<#builtin.int<{slots}>>"
    return f'hopper.arrive %{barriers}[{slot}] {{by = "{by}"}} : {kind}, i32'


def alone(body: str) -> str:
    return f'"hopper.one_thread"() ({{\n{body}\n}}) : () -> ()'


def in_turn(first: str, second: str, start: str) -> str:
    """Return a loop of n iterations with two operations on a ring of two slots, %s and %p."""
    return f"""
    %end, %last = scf.for %i = %c0 to %n step %c1 iter_args(%s = %c0, %p = {start}) -> (i32, i32) : i32 {{
      {first}
      {second}
      %more = tile.elementwise "add"(%s, %c1) : (i32, i32) -> i32
      %wraps = tile.elementwise "eq"(%more, %c2) : (i32, i32) -> i1
      %next = tile.elementwise "select"(%wraps, %c0, %more) : (i1, i32, i32) -> i32
      %flip = tile.elementwise "xor"(%p, %c1) : (i32, i32) -> i32
      %then = tile.elementwise "select"(%wraps, %flip, %p) : (i1, i32, i32) -> i32
      scf.yield %next, %then : i32, i32
    }}"""  # noqa: E501


GIVES = in_turn(wait("freed", 2, "%s", "%p"), arrive("filled", 2, "%s"), "%c1")
"""One warp that fills a ring of two."""


def taken(first: str, second: str, arrivals: int, warps: int) -> str:
    """Return a kernel in which a role takes what `GIVES` gives, in this way."""
    text = signals(
        {"filled": (2, 1), "freed": (2, arrivals)}, [GIVES, in_turn(first, second, "%c0")]
    )
    old = 'label = "r1", first_warp = #builtin.int<1>, warps = #builtin.int<1>'
    return replaced(
        text, (old, old.replace("warps = #builtin.int<1>", f"warps = #builtin.int<{warps}>"))
    )


GETS = wait("filled", 2, "%s", "%p")


def test_warps_wait_and_arrive_each_for_itself() -> None:
    check(parse(taken(GETS, arrive("freed", 2, "%s", "warp"), 4, 4)), H200)
    check(parse(taken(GETS, arrive("freed", 2, "%s", "role"), 1, 1)), H200)


@pytest.mark.parametrize(
    ("first", "second", "arrivals"),
    [
        (GETS, arrive("freed", 2, "%s", "role"), 1),
        (GETS, arrive("freed", 2, "%s", "warpgroup"), 1),
        (alone(GETS), arrive("freed", 2, "%s", "warp"), 4),
        (GETS, alone(arrive("freed", 2, "%s", "thread")), 1),
    ],
)
def test_one_thread_speaks_for_no_other(first: str, second: str, arrivals: int) -> None:
    """A warp that has not seen phase n meets phase n + 2, or arrives for a phase that it has not
    waited for, twice in another."""
    refuses(taken(first, second, arrivals, 4))


def test_a_phase_is_a_parity() -> None:
    """An mbarrier is asked for parity 0 or 1: the simulator says "wait for parity 3"."""
    once = signals(
        {"filled": (1, 1), "freed": (1, 1)},
        [
            "\n".join([wait("freed", 1, "%c0", "%c1"), arrive("filled", 1, "%c0")]),
            "\n".join([wait("filled", 1, "%c0", "%c0"), arrive("freed", 1, "%c0")]),
        ],
    )
    check(parse(once), H200)
    right = wait("freed", 1, "%c0", "%c1")
    refuses(replaced(once, (right, right.replace("%c1", "%c3"))), "cursor")


# --- conditions and slots -------------------------------------------------------------------------


def test_conditions_of_loops_in_loops_are_asked_in_each_iteration() -> None:
    """Three `while` that words of memory end; the wait after the innermost one takes its phase from
    before it: it hangs from one iteration on, and is right of none."""

    def word(index: str, first: int, name: str) -> str:
        return f"""
        %at{name} = tile.constant {{value = #builtin.int<{first}>}} : i32
        %place{name} = tile.elementwise "add"({index}, %at{name}) : (i32, i32) -> i32
        %there{name} = tile.ptr_add %ptr, %place{name} : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>
        %word{name} = "tile.load"(%there{name}) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (!tile.ptr<i32>) -> i32
        %goes{name} = tile.elementwise "ne"(%word{name}, %c0) : (i32, i32) -> i1"""  # noqa: E501

    def role(first: str, second: str, start: str, phase: str) -> str:
        return f"""
    %oi, %op = scf.while (%i = %c0, %pi = {start}) : (i32, i32) -> (i32, i32) {{
      {word("%i", 0, "i")}
      scf.condition(%goesi) %i, %pi : i32, i32
    }} do {{
    ^bb0(%i1: i32, %pi1: i32):
      %oj, %jp = scf.while (%j = %c0, %pj = %pi1) : (i32, i32) -> (i32, i32) {{
        {word("%j", 100, "j")}
        scf.condition(%goesj) %j, %pj : i32, i32
      }} do {{
      ^bb0(%j1: i32, %pj1: i32):
        %ok, %kp = scf.while (%k = %c0, %pk0 = %pj1) : (i32, i32) -> (i32, i32) {{
          {word("%k", 120, "k")}
          scf.condition(%goesk) %k, %pk0 : i32, i32
        }} do {{
        ^bb0(%k1: i32, %pk: i32):
          {wait(first, 1, "%c0", "%pk")}
          {arrive(second, 1, "%c0")}
          %flip = tile.elementwise "xor"(%pk, %c1) : (i32, i32) -> i32
          %k2 = tile.elementwise "add"(%k1, %c1) : (i32, i32) -> i32
          scf.yield %k2, %flip : i32, i32
        }}
        {wait(first, 1, "%c0", phase)}
        {arrive(second, 1, "%c0")}
        %after = tile.elementwise "xor"(%kp, %c1) : (i32, i32) -> i32
        %j2 = tile.elementwise "add"(%j1, %c1) : (i32, i32) -> i32
        scf.yield %j2, %after : i32, i32
      }}
      %i2 = tile.elementwise "add"(%i1, %c1) : (i32, i32) -> i32
      scf.yield %i2, %jp : i32, i32
    }}"""

    rings = {"filled": (1, 1), "freed": (1, 1)}
    gives = role("freed", "filled", "%c1", "%kp")
    check(parse(signals(rings, [gives, role("filled", "freed", "%c0", "%kp")])), H200)
    refuses(signals(rings, [gives, role("filled", "freed", "%c0", "%pj1")]))


@pytest.mark.parametrize("limit", ["%three_9", "%K"])
def test_a_wait_that_one_iteration_leaves_out(limit: str) -> None:
    """`select(iteration == 3, 0, iteration) > 0` is false in iteration 3 too: it frees a slot that
    a wgmma reads. It looks like the wrap of a ring.
    """
    held = "      hopper.wgmma_wait {pending = #builtin.int<1>}\n"
    guarded = f"""
      %three_9 = tile.constant {{value = #builtin.int<3>}} : i32
      %is_9 = tile.elementwise "eq"(%iteration, {limit}) : (i32, i32) -> i1
      %x_9 = tile.elementwise "select"(%is_9, %zero_1, %iteration) : (i1, i32, i32) -> i32
      %go_9 = tile.elementwise "gt"(%x_9, %zero_1) : (i32, i32) -> i1
      scf.if %go_9 {{
{held}      }}
"""
    refuses(replaced(GEMM, (held, guarded)))


@pytest.mark.parametrize("slot", ["%n", "%i"])
def test_a_ring_of_one_slot_has_slot_0_only(slot: str) -> None:
    def role(first: str, second: str, start: str) -> str:
        return f"""
    %q = scf.for %i = %c0 to %n step %c1 iter_args(%p = {start}) -> (i32) : i32 {{
      {wait(first, 1, slot, "%p")}
      {arrive(second, 1, slot)}
      %flip = tile.elementwise "xor"(%p, %c1) : (i32, i32) -> i32
      scf.yield %flip : i32
    }}"""

    refuses(
        signals(
            {"filled": (1, 1), "freed": (1, 1)},
            [role("freed", "filled", "%c1"), role("filled", "freed", "%c0")],
        )
    )


# --- global memory --------------------------------------------------------------------------------


def test_two_stores_to_one_box_are_ordered() -> None:
    """Both are under way, and which comes last nobody knows."""
    first = GEMM.index("    hopper.bulk_wait {pending = #builtin.int<0>, read = true")
    last = GEMM.index("    hopper.bulk_wait {pending = #builtin.int<0>, read = false")
    again = GEMM[first:last].replace("%c_tile", "%c_again")
    refuses(GEMM[:last] + again + GEMM[last:], "global order", "bulk groups")


# --- what a ring holds ----------------------------------------------------------------------------


def test_a_reader_begins_only_with_what_was_filled() -> None:
    """Each role begins with the phase of the other: the first reads come before the first fills."""
    refuses(
        replaced(
            GEMM, ("%phase = %one", "%phase = %zero"), ("%phase_1 = %zero_1", "%phase_1 = %one_1")
        ),
        "slots",
    )


def test_equal_loops_in_one_another_are_counted_as_their_product() -> None:
    """n times n puts, n gets: equal for n = 1 only."""

    def role(first: str, second: str, start: str, inner: bool) -> str:
        body = f"""
        {wait(first, 1, "%c0", "%p")}
        {arrive(second, 1, "%c0")}
        %flip = tile.elementwise "xor"(%p, %c1) : (i32, i32) -> i32
        scf.yield %flip : i32"""
        if not inner:
            return f"""
    %q = scf.for %i = %c0 to %n step %c1 iter_args(%p = {start}) -> (i32) : i32 {{{body}
    }}"""
        return f"""
    %q = scf.for %i = %c0 to %n step %c1 iter_args(%pi = {start}) -> (i32) : i32 {{
      %r = scf.for %j = %c0 to %n step %c1 iter_args(%p = %pi) -> (i32) : i32 {{{body}
      }}
      scf.yield %r : i32
    }}"""

    gives = role("freed", "filled", "%c1", inner=True)
    rings = {"filled": (1, 1), "freed": (1, 1)}
    check(parse(signals(rings, [gives, role("filled", "freed", "%c0", inner=True)])), H200)
    refuses(signals(rings, [gives, role("filled", "freed", "%c0", inner=False)]), "left")


def in_place_by_two_warpgroups() -> str:
    """Return "in place", whose one warpgroup loads, adds 1 and stores, on two: each stores half."""
    one = text("in place")
    (layout,) = set(re.findall(r'#hopper.layout<"(.*?)">', one))
    two = "32x64 r[4:(0,1) 2:(2,0)] l[16:(0,4) 2:(1,0)] w[4:(4,0) 2:(16,0)]"
    whole, half = "[#builtin.int<32>, #builtin.int<32>]", "[#builtin.int<16>, #builtin.int<32>]"
    loads = next(line for line in one.split("\n") if "hopper.tensor_map %x_desc" in line)
    store = next(line for line in one.split("\n") if "hopper.tma_store" in line)
    stores = replaced(loads, ("%x_map", "%x_out"), (whole, half))
    return replaced(
        one.replace(layout, two).replace(
            'scope = "role", threads = #builtin.int<128>',
            'scope = "role", threads = #builtin.int<256>',
        ),
        (loads, f"{loads}\n{stores}"),
        (store, replaced(store, ("%x_map", "%x_out"), (whole, half))),
        ("warps = #builtin.int<4>", "warps = #builtin.int<8>"),
        ("launch = {threads = #builtin.int<128>", "launch = {threads = #builtin.int<256>"),
        ("registers = #builtin.int<248>}", "registers = #builtin.int<232>}"),
        ("registers = #builtin.int<248>", "registers = #builtin.int<232>"),
    )


WRITTEN = 'hopper.bulk_wait {pending = #builtin.int<0>, read = false, by = "warpgroup"}'
COMMIT = 'hopper.bulk_commit {by = "warpgroup"}'


def test_all_threads_that_stored_wait_before_memory_is_loaded() -> None:
    """The second warpgroup's half is under way when the next iteration loads it."""
    right = in_place_by_two_warpgroups()
    check(parse(right), H200)
    refuses(replaced(right, (WRITTEN, WRITTEN.replace("warpgroup", "role"))), "global order")


def test_a_wait_covers_stores_that_were_committed() -> None:
    """The commit stands after the wait of the next iteration: it waits for nothing."""
    late = replaced(
        in_place_by_two_warpgroups(),
        (COMMIT, ""),
        (WRITTEN, f"{WRITTEN.replace('read', 'now')}\n{COMMIT}"),
        (WRITTEN, f"{COMMIT}\n{WRITTEN}"),
        (WRITTEN.replace("read", "now"), WRITTEN),
    )
    refuses(late, "global order")


def two_puts(meet: str) -> tuple[str, str]:
    """Return a product with two puts a program, of which the second loads the tile that is stored
    after the first: the store comes before it is waited for, or after. Nobody reads what it loads:
    the slot is given back after a meeting.
    """
    lines = text("no loop").split("\n")

    def places(first: str, last: str) -> slice:
        begin = next(n for n, line in enumerate(lines) if first in line)
        end = next(n for n, line in enumerate(lines) if n > begin and last in line)
        return slice(begin, end + 1)

    def again(part: list[str], slot: str, phase: str) -> list[str]:
        body = "\n".join(part)
        for name in re.findall(r"^ *%(\w+) = ", body, re.M):
            body = re.sub(rf"%{name}\b", f"%again_{name}", body)
        following = re.findall(r"%again_(next_\w+) = ", body)
        for old, new in zip((slot, phase), following, strict=True):
            body = re.sub(rf"%{old}\b", f"%{new}", body)
        return body.split("\n")

    put = places("hopper.wait %freed", "%next_phase = ")
    second = again(lines[put], "slot", "phase")
    second = [line.replace("%a_map[%m, %zero]", "%out_map[%m, %n]") for line in second]
    lines[put] = [*lines[put], *second]
    take = places("hopper.wait %filled", "hopper.arrive %freed")
    kept = ("hopper.wait", "hopper.arrive", '"add"', '"eq"', '"select"', '"xor"')
    second = again(
        [line for line in lines[take] if any(k in line for k in kept)], "slot_1", "phase_1"
    )
    given = next(n for n, line in enumerate(second) if "hopper.arrive" in line)
    second.insert(given, meet)
    stored = places("hopper.bulk_wait", "hopper.bulk_commit")
    made = "\n".join(lines)
    for name in ("next_slot", "next_phase", "next_slot_1", "next_phase_1"):
        made = re.sub(rf"(scf.yield .*)%{name}\b", rf"\1%again_{name}", made)
    lines = made.split("\n")
    (box,) = (line for line in lines if line.startswith("  %c_map ="))
    whole = "[#builtin.int<64>, #builtin.int<64>]", "[#builtin.int<128>, #builtin.int<64>]"
    box = f"{box}\n{replaced(box, ('%c_map', '%out_map'), whole)}"
    early, late = (
        "\n".join([*lines[: place.stop], *second, *lines[place.stop :]]) for place in (stored, take)
    )
    maps = next(line for line in lines if line.startswith("  %c_map ="))
    return replaced(early, (maps, box)), replaced(late, (maps, box))


MEET = next(line for line in GEMM.split("\n") if "hopper.named_barrier" in line)


def test_a_store_waits_for_all_loads_of_its_box() -> None:
    early, late = two_puts(MEET)
    check(parse(late), H200)
    refuses(early, "global order")


def test_a_slot_that_no_product_reads_is_given_back_after_a_meeting() -> None:
    """One thread arrives for its warpgroup, of which a warp may still wait for the slot: it meets
    the parity of the next phase but one, and waits for ever."""
    refuses(two_puts("")[1], "early release")


def test_copies_of_one_put_fill_parts_of_their_own() -> None:
    """Both copies go to one buffer, and nobody fills the other."""
    loads = text("while up_to")
    refuses(replaced(loads, ("hopper.slot %b_desc_ring[", "hopper.slot %a_desc_ring[")), "one put")


def left_out(in_place_of_it: str) -> str:
    """Return a product whose second put is something else."""
    lines = GEMM.split("\n")
    first = next(n for n, line in enumerate(lines) if "hopper.expect" in line)
    last = next(n for n, line in enumerate(lines) if "hopper.tma_load %b_map" in line)
    put = lines[first : last + 1]
    other = [line for line in put if in_place_of_it in line]
    if other:
        other = [line.replace("49152", "16384").replace("%a ", "%a_9 ") for line in put[:3]]
        other[2] = other[2].replace(" %a,", " %a_9,")
    else:
        other = [in_place_of_it]
    lines[first : last + 1] = [
        '%is_9 = tile.elementwise "eq"(%k, %bk) : (i32, i32) -> i1',
        *("scf.if %is_9 {", *other, "} else {", *put, "}"),
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("left", ["%b_map", arrive("filled", 3, "%slot", "thread")])
def test_each_put_fills_all_that_is_read(left: str) -> None:
    """The second put fills nothing, or only `a`: what is read there is old, or nothing."""
    refuses(left_out(left), "one put")


def test_what_inline_ptx_writes_bounds_no_two_roles() -> None:
    """Both roles read how often they iterate; one writes that word before it reads it."""
    load = '%w = "tile.load"(%ptr) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : '
    load += "(!tile.ptr<i32>) -> i32\n"
    takes = in_turn(GETS, arrive("freed", 2, "%s"), "%c0")
    gives, takes = (load + role.replace("to %n", "to %w") for role in (GIVES, takes))
    rings = {"filled": (2, 1), "freed": (2, 1)}
    check(parse(signals(rings, [gives, takes])), H200)
    ptx = 'tile.asm_effect "st.global.u32 [$0], 7;" "l,~memory" (%ptr)'
    writes = f"{ptx} {{pack = #builtin.int<1>}} : (!tile.ptr<i32>) -> ()\n"
    refuses(signals(rings, [gives, writes + takes]), "threads agree")


def test_blocks_of_a_cluster_send_alike() -> None:
    """One block sends its part of `b` to both, the other copies all of it for itself alone."""
    text = (DATA / "gemm_cluster.hopper.mlir").read_text()
    check(parse(text), H200)
    (copy,) = (line for line in text.split("\n") if "hopper.tma_load %b_map" in line)
    (part,) = (line for line in text.split("\n") if line.startswith("  %b_map ="))
    rows = "[#builtin.int<32>,", "[#builtin.int<64>,"
    own = replaced(copy, (" {multicast = #builtin.int<2>}", ""), rows, ("%b_map", "%b_all"))
    by_rank = f"""
          %first_9 = tile.elementwise "eq"(%rank, %zero) : (i32, i32) -> i1
          scf.if %first_9 {{
{copy}
          }} else {{
{own}
          }}"""
    whole = f"{part}\n{replaced(part, ('%b_map', '%b_all'), rows)}"
    refuses(replaced(text, (copy, by_rank), (part, whole)), "multicast")
