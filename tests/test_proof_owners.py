"""What an atomic gave to one thread: others have it from shared memory only."""

from __future__ import annotations

import pytest

from kernel_runs import SUBJECTS
from mutants import Mutant
from mutants import mutants as mutants_of
from proof_kernels import KERNELS
from tawa.errors import ProtocolError
from tawa.ir import hopper, tile
from tawa.simulator import simulate
from tawa.simulator.proof import prove
from tawa.target import H200


def broken(name: str, kind: str, operation: type) -> list[Mutant]:
    found = mutants_of(KERNELS[name]())
    return [m for m in found if m.kind == kind and isinstance(m.operation, operation)]


def run(name: str, kernel: tile.Kernel) -> None:
    made = SUBJECTS[name].at(None)
    simulate(kernel, made.grid, made.fresh())


def test_a_tile_of_results_is_told_by_the_owners() -> None:
    found = broken("codegen tickets", "by all", hopper.SharedStore)
    assert len(found) == 2
    for mutant in found:
        with pytest.raises(ProtocolError, match=r"all threads of main use what tile\.atomic gave"):
            prove(mutant.make(), H200)
        with pytest.raises(ProtocolError, match=r"goes on with what tile\.atomic gave to one"):
            run("codegen tickets", mutant.make())


def test_a_scalar_result_is_told_by_the_thread_that_has_it() -> None:
    found = broken("shape atomic tile counter ordinary", "not elected", hopper.OneThread)
    atomics = [m for m in found if any(isinstance(op, tile.Atomic) for op in m.operation.walk())]
    assert atomics
    for mutant in atomics:
        with pytest.raises(ProtocolError, match=r"all threads of main use what tile\.atomic gave"):
            prove(mutant.make(), H200)
        with pytest.raises(ProtocolError, match=r"goes on with what tile\.atomic gave to one"):
            run("shape atomic tile counter ordinary", mutant.make())


@pytest.mark.parametrize("name", ["codegen tickets", "counter", "shape atomic tile counter"])
def test_what_the_compiler_makes_is_right(name: str) -> None:
    kernel = KERNELS[name]()
    assert any(isinstance(op, tile.Atomic) for op in kernel.walk())
    assert prove(kernel, H200).states
    run(name, kernel)
