"""A loop whose first trip is peeled off, `if low < n: first; for the rest`, is run with every trip
count: the condition alone would choose the least n that it allows, which leaves the loop no trips.
"""

from __future__ import annotations

import pytest
from xdsl.dialects import scf
from xdsl.ir import Operation

from mutants import mutants
from proof_kernels import KERNELS
from tawa.errors import ProtocolError
from tawa.simulator.proof import prove
from tawa.simulator.proof.configuration import Shape
from tawa.simulator.proof.counting import most_trips
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.run import Run
from tawa.target import H200

# Loops that no input lets turn a whole ring, by kernel: the tiles of a window, and of a diagonal.
BOUNDED = ("attention window", "causal split")


def trips_of(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Shape, dict[Operation, set[int]]]:
    """Trip counts of the loops whose bounds are open, of the runs that may convict."""
    found: dict[Operation, set[int]] = {}
    open_ones: set[Operation] = set()
    asked = Run.trips

    def trips(run, site, low, high, by, *rest):
        given = asked(run, site, low, high, by, *rest)
        first, end, step = (run.scalars.value(bound) for bound in (low, high, by))
        if site.kind == "inner" and not run.configuration.free:
            found.setdefault(site.operation, set()).add(max(0, -(-(end - first) // step)))
            open_ones.update([site.operation] * (not isinstance(high, int)))
        return given

    monkeypatch.setattr(Run, "trips", trips)
    exploration = Exploration(read_kernel(KERNELS[name](), H200))
    exploration.explore()
    return exploration.model.shape, {loop: found[loop] for loop in open_ones}


@pytest.mark.parametrize("name", ["flash 128", "codegen attention", "turns attention coarse"])
def test_every_trip_count(name, monkeypatch):
    shape, found = trips_of(name, monkeypatch)
    peeled = [counts for loop, counts in found.items() if isinstance(loop.parent_op(), scf.IfOp)]
    assert peeled
    assert all(set(shape.counts()) <= counts for counts in peeled)


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in KERNELS if not any(part in n for part in BOUNDED)])
def test_every_loop_turns_its_ring(name, monkeypatch):
    shape, found = trips_of(name, monkeypatch)
    for loop, counts in found.items():
        most = most_trips(loop, {}) if isinstance(loop, scf.ForOp) else None
        assert max(counts) >= min(shape.depth, most or shape.depth)


def test_bytes_expected_before_the_slot_is_free():
    """The second tile's first trip may arrive while the bytes of two trips before are still due;
    of a tile of one trip, the wait for its query excludes that.
    """
    kernel = KERNELS["turns attention coarse"]()
    (mutant,) = (m for m in mutants(kernel) if m.name == "swap wait #57")
    with pytest.raises(ProtocolError, match="not ordered after the completion of phase 0"):
        prove(mutant.make(), H200)
