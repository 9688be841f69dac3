"""A word of memory is one unknown of the proof, also where its address was open when it was first
read: the trips of a loop that both roles read from memory are the same in both.

A consumer read its trip count after a condition had fixed the number of the tile, the producer
before it, and the proof let them make unlike numbers of trips: `case_of(40342)` of the fuzz tests.
"""

from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.expressions import Expr, Scalar
from tawa.simulator.proof.scalars import Scalars


def word(scalars: Scalars, array: str, at: Scalar) -> Scalar:
    pointer = scalars.unknown("argument", array)
    return scalars.apply("load", scalars.apply("tile.ptr_add", pointer, at))


def test_an_address_that_was_open_is_found_again() -> None:
    scalars = Scalars(Configuration({}, large=True))
    tile, width = scalars.unknown("argument", "tile"), scalars.unknown("argument", "width")
    row = scalars.apply("idiv", tile, width)
    assert isinstance(row, Expr)
    first = word(scalars, "counts", row)
    plain = word(scalars, "counts", tile)
    assert plain is not first
    found = scalars.settle((row,), int, 3, ragged=False)
    assert word(scalars, "counts", found) is first
    assert word(scalars, "counts", scalars.value(tile) or 0) is plain
    assert word(scalars, "counts", found + 1) not in (first, plain)
    assert word(scalars, "others", found) is not first
