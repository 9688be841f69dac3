"""A loop whose first trip is peeled off, `if low < n: first; for the rest`, is run with every trip
count: the condition alone would choose the least n that it allows, which leaves the loop no trips.
"""

from __future__ import annotations

import pytest
from xdsl.dialects import scf

from mutants import mutants
from proof_kernels import KERNELS
from tawa.errors import ProtocolError
from tawa.simulator.proof import prove
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.run import Run
from tawa.target import H200


def trips_of(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[scf.ForOp, set[int]]:
    """Trip counts of the loops under conditions, of the runs that may convict."""
    found: dict[scf.ForOp, set[int]] = {}
    asked = Run.trips

    def trips(run, site, low, high, by):
        asked(run, site, low, high, by)
        counts = [run.scalars.value(bound) for bound in (low, high, by)]
        under = isinstance(site.operation.parent_op(), scf.IfOp)
        if under and site.kind == "inner" and not run.configuration.free:
            first, end, step = counts
            found.setdefault(site.operation, set()).add(max(0, -(-(end - first) // step)))
        return asked(run, site, low, high, by)

    monkeypatch.setattr(Run, "trips", trips)
    exploration = Exploration(read_kernel(KERNELS[name](), H200))
    exploration.explore()
    assert found
    wanted = set(exploration.model.shape.counts())
    assert all(wanted <= counts for counts in found.values())
    return found


@pytest.mark.parametrize("name", ["flash 128", "codegen attention", "turns attention coarse"])
def test_every_trip_count(name, monkeypatch):
    trips_of(name, monkeypatch)


def test_bytes_expected_before_the_slot_is_free():
    """The second tile's first trip may arrive while the bytes of two trips before are still due;
    of a tile of one trip, the wait for its query excludes that.
    """
    kernel = KERNELS["turns attention coarse"]()
    (mutant,) = (m for m in mutants(kernel) if m.name == "swap wait #57")
    with pytest.raises(ProtocolError, match="not ordered after the completion of phase 0"):
        prove(mutant.make(), H200)
