"""The proof of one kernel: all its configurations, and the report when one fails."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Operation

from tawa.errors import Place, ProtocolError, UnprovedProtocol
from tawa.ir import hopper, tile
from tawa.simulator.proof.configuration import Configuration, configurations
from tawa.simulator.proof.read import STEPPED, read_kernel
from tawa.simulator.proof.rules import Row, Unproved, Violation
from tawa.simulator.proof.run import Run
from tawa.target import Target

STEPS = 400_000
"""Steps of all runs together before a kernel is called unproved."""

_TRACE_ROWS = 12


@dataclass(frozen=True, slots=True)
class Proof:
    """What was shown: steps over all configurations, and the time it took.

    `unreached` are the operations that no configuration executed, by their place in
    `kernel.walk()`: code that no input reaches, such as the rest of a loop of one constant trip.
    """

    ok: bool
    states: int
    seconds: float
    configurations: int
    verdict: str
    unreached: tuple[int, ...] = ()


def prove(kernel: tile.Kernel, target: Target) -> Proof:
    """Prove that a kernel in hopper IR cannot hang or race.

    Raises `ProtocolError` with a trace for a hang, a race, an early release or a leftover, and
    `UnprovedProtocol` where the kernel has an operation the proof does not know or exceeds its
    budget. Both are the last word: such a kernel is not run.
    """
    began = time.perf_counter()
    seen: list[Configuration] = []
    states, run = 0, None
    reached: set[Operation] = set()
    try:
        model = read_kernel(kernel, target)
        for configuration in configurations(seen):
            run = Run(model, configuration, STEPS - states)
            try:
                run.execute()
            except Violation:
                if not run.shortened:
                    raise
                # What was left out may be what is missed: only a whole run convicts.
                configuration = replace(configuration, outcomes={})
                run = Run(model, configuration, STEPS, short=False)
                run.execute()
            states += run.steps
            seen.append(configuration)
            reached |= run.reached
    except Violation as found:
        raise _report(kernel, found, run) from None
    except Unproved as found:
        raise UnprovedProtocol(
            f"{kernel.sym_name.data} is not proved: {found.sentence}",
            place=_place(found.operation),
            why="a kernel that is not proved free of hangs and races is not run.",
            remedy="compile it with specialize=False, which leaves less to prove, or split it.",
        ) from None
    seconds = time.perf_counter() - began
    verdict = (
        f"no hang, race, early release or leftover in {len(seen)} configurations "
        f"({states} steps, {1000 * seconds:.0f} ms)"
    )
    unreached = _unreached(kernel, reached)
    if unreached:
        verdict += f"; {len(unreached)} operations are reached by no input that was tried"
    return Proof(True, states, seconds, len(seen), verdict, unreached)


def _unreached(kernel: tile.Kernel, reached: set[Operation]) -> tuple[int, ...]:
    """Return the operations of roles that synchronize or touch memory and were never executed."""
    return tuple(
        place
        for place, operation in enumerate(kernel.walk())
        if isinstance(operation, STEPPED)
        and operation not in reached
        and isinstance(_outermost(operation), hopper.Role)
    )


def _outermost(operation: Operation) -> Operation:
    """Return the operation of the kernel's own block that holds an operation."""
    parent = operation.parent_op()
    while parent is not None and not isinstance(parent, tile.Kernel):
        operation, parent = parent, parent.parent_op()
    return operation


def _report(kernel: tile.Kernel, found: Violation, run: Run | None) -> ProtocolError:
    rows = list(found.rows)
    when = run.configuration.describe() if run is not None else "before any role runs"
    if run is not None:
        rows = _trace(run, rows)
    why = f'rule "{found.rule.name}": {found.rule.holds} ({found.rule.source}).'
    table = f"\n{render(rows)}" if rows else ""
    return ProtocolError(
        f"{kernel.sym_name.data}: {found.sentence}\n  when: {when}{table}",
        place=_place(found.operation),
        why=why,
        remedy="this is a fault of the compiler, not of the kernel: report it with this text.",
    )


def _trace(run: Run, rows: list[Row]) -> list[Row]:
    """Repeat the run with a trace; keep the last steps of the roles that `rows` name."""
    fresh = replace(run.configuration, outcomes={})
    again = Run(run.model, fresh, run.budget, trace=True, short=run.short)
    try:
        again.execute()
    except Violation as same:
        rows = list(same.rows)
    assert again.trace is not None
    roles = {row.role for row in rows}
    steps = [row for row in again.trace if not roles or row.role in roles]
    return steps[-_TRACE_ROWS + len(rows) :] + rows if len(rows) < _TRACE_ROWS else rows


def render(rows: list[Row]) -> str:
    """Return rows as a table."""
    head = ("step", "role", "line", "does or waits for", "phase", "arrived/needed")
    lines = [head] + [
        (str(row.step), row.role, str(row.line or "-"), row.what, row.phase, row.need)
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "    " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
        for line in lines
    )


def _place(operation: Operation | None) -> Place | None:
    if operation is None or not isinstance(operation.location, FileLineColLoc):
        return None
    where = operation.location
    return Place(where.filename.data, where.line.data, where.column.data)


__all__ = ["Proof", "prove", "render"]
