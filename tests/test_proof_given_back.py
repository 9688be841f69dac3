"""A slot is read before it is given back, also where nothing would be put there any more."""

from __future__ import annotations

from mutants import changes
from proof_kernels import KERNELS
from tawa.errors import ProtocolError
from tawa.ir import hopper
from tawa.simulator.proof import prove
from tawa.target import H200


def test_the_last_tile_is_not_read_from_a_slot_given_back() -> None:
    """The tile of the last trip, read after the loop from slot 0, is that of an earlier trip."""
    found = [
        mutant
        for mutant in changes(KERNELS["turns not persistent"]())
        if mutant.kind == "slot 0" and isinstance(mutant.operation, hopper.Slot)
    ]
    assert found
    refused: list[str] = []
    for mutant in found:
        try:
            prove(mutant.make(), H200)
        except ProtocolError as error:
            refused.append(str(error))
    assert any("which gives it back, may come first" in text for text in refused)
