"""Whether the programs of neighbouring rows may run as the blocks of one cluster.

Blocks of a cluster send each other tiles, so they must take the same turns of every ring: each loop
and condition around an asynchronous load must come out the same in all of them. They compute
programs that differ in program_id(0) only, so that is what nothing of this may depend on; nor on
memory, which another program may have changed between two reads. Where the grid has an odd number
of rows, the last cluster of a persistent kernel computes one program that does not exist: its
stores are left out, its descriptor loads give zeros, but a load through a pointer may leave its
array. (The grid of a kernel that is not persistent is launched in whole clusters or not at all.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.analysis.effects import enclosing
from tawa.analysis.naming import name_of
from tawa.ir import tile
from tawa.ir.control import decisive, handed_on
from tawa.ir.walk import walk


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a kernel cannot run in clusters, and what its author can do."""

    reason: str
    remedy: str


def influenced(
    values: Iterable[SSAValue], cut: Callable[[Operation], bool] = lambda _: False
) -> set[SSAValue]:
    """Return all values that depend on `values`, which are among them.

    Through data, and through the control that decides which data: what a branch on such a value
    gives, and what a loop of such a number of iterations carries. Operations that `cut` accepts
    give values that do not depend on their operands.
    """
    found: set[SSAValue] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value in found:
            continue
        found.add(value)
        for use in value.uses:
            if not cut(use.operation):
                work.extend(_reached(use.operation, use.index))
    return found


def _reached(operation: Operation, index: int) -> list[SSAValue]:
    """Return the values that an operand of an operation flows into."""
    if after := handed_on(operation, index):
        return after
    match operation:
        case scf.ForOp() if index == 1:  # another trip count: everything carried
            return [*_arguments(operation)[1:], *operation.results]
        case scf.YieldOp() | scf.ConditionOp() if (loop := operation.parent_op()) is not None:
            decided = _arguments(loop) if isinstance(operation, scf.ConditionOp) else ()
            return [*decided, *loop.results]
        case _:
            return [*operation.results, *_arguments(operation)]


def _arguments(operation: Operation) -> list[SSAValue]:
    return [arg for region in operation.regions for block in region.blocks for arg in block.args]


# --- the licence --------------------------------------------------------------------------------


def obstacles(
    kernel: tile.Kernel, loads: Iterable[Operation], persistent: bool
) -> Iterator[Obstacle]:
    """Yield what keeps `kernel`, whose asynchronous loads are `loads`, from running in clusters."""
    rows = [op.result for op in walk(kernel) if isinstance(op, tile.ProgramId) and not op.axis.data]
    if not rows:
        yield Obstacle(
            "the blocks of a cluster compute neighbours along program_id(0), which the kernel "
            "does not use",
            "let axis 0 of the grid be one along which programs load the same tiles",
        )
        return
    of_row = influenced(rows)
    memory = (tile.Load, tile.DescLoad, tile.Atomic, tile.CompareExchange)
    read = (v for op in walk(kernel) if isinstance(op, memory) for v in op.results)
    of_memory = influenced(read)
    for load in loads:
        for control in enclosing(load):
            for source, values in (("program_id(0)", of_row), ("memory", of_memory)):
                if any(value in values for value in decisive(control)):
                    yield _uneven(load, control, source)
    for load in walk(kernel):
        if persistent and isinstance(load, tile.Load) and load.pointer in of_row:
            yield Obstacle(
                f"{name_of(load)} reads through a pointer that depends on program_id(0); where "
                "the grid has an odd number of rows one program past the last runs, and would read "
                "outside its array",
                "load it through a tensor descriptor; or pin persistent=False, for even grids",
            )


def _uneven(load: Operation, control: Operation, source: str) -> Obstacle:
    if isinstance(control, scf.IfOp):
        what = f"the condition under which {name_of(load)} runs"
    else:
        what = f"the trip count of {name_of(control)}, which turns the ring of {name_of(load)},"
    return Obstacle(
        f"{what} depends on {source}: the blocks of a cluster would not stay in step",
        "leave cluster unset"
        if source == "memory"
        else "let axis 0 of the grid be one that no such bound or condition depends on",
    )
