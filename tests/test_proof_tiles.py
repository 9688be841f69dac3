"""Rings that an inner loop turns once a tile, and rings that only the outermost of three turns.

Both kernels give a slot back and read it once more; the next put comes D tiles later. In the first
a meeting hides that where a tile makes six trips or more. Found by a review: the runs had too few
tiles, and too few trips around.
"""

from pathlib import Path

import pytest

from tawa.errors import ProtocolError
from tawa.ir import parse
from tawa.simulator.proof import prove
from tawa.target import H200

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("name", "found"),
    [("race_once_a_tile", "while wgmma of mma"), ("race_around", "which gives it back")],
)
def test_a_late_read_is_found(name: str, found: str) -> None:
    with pytest.raises(ProtocolError, match=found):
        prove(parse((DATA / f"{name}.mlir").read_text()), H200)
