"""What a scalar depends on: a condition that chooses one of its parts counts, however it is met."""

import pytest

from ring_text import fails, following, kernel, loop, of, refused, start, turn

CHOSEN = """%r_x = scf.if %r_w -> (i32) {
scf.yield %c1 : i32
} else {
scf.yield %c0 : i32
}
"""


def guarded(computed: str, trip: int) -> str:
    """A role fills a ring of one slot, that nobody empties, in one trip: where `computed` of what
    an scf.if gives there is not 0.
    """
    return kernel(
        {"r": 2, "z": 1},
        "%r_e:2 = scf.for %r_k = %c0 to %K step %c1 "
        f"iter_args(%r_s = %c0, %r_p = {start('load')}) -> (i32, i32) : i32 {{\n"
        + turn("load", "r", "%r_s", "%r_p", 2)
        + of("%r_w", "eq", "%r_k", f"%c{trip}", result="i1")
        + CHOSEN
        + computed
        + of("%r_c", "ne", "%r_v", "%c0", result="i1")
        + f"scf.if %r_c {{\n{turn('load', 'z', '%c0', '%c0', 1)}}}\n"
        + following("%r_s", "%r_p", 2, ("%r_t", "%r_q"))
        + "scf.yield %r_t, %r_q : i32, i32\n}\n",
        loop("mma", "r", 2, "%K"),
        constants=(trip,) if trip > 9 else (),
    )


ONCE = of("%r_v", "add", "%r_x", "%c0")
TWICE = of("%r_m", "mul", "%r_x", "%c2") + of("%r_v", "add", "%r_x", "%r_m")


@pytest.mark.parametrize("computed", [ONCE, TWICE], ids=["once", "twice"])
@pytest.mark.parametrize("trip", [40, 1000])
def test_what_is_chosen_by_the_number_of_the_trip(computed: str, trip: int) -> None:
    text = guarded(computed, trip)
    assert refused(text) == "unproved"
    if trip < 1000:
        assert fails(text, K=trip + 20)
        assert not fails(text, K=trip - 10)
