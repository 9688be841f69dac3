"""What a reader gets when a proof fails: the rule, the sentence, the shortest trace as a table."""

from __future__ import annotations

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Operation

from tawa.errors import Place, ProtocolError, UnprovedProtocol
from tawa.ir import tile
from tawa.simulator.proof.rules import OutOfSteps, Row, Unproved, Violation
from tawa.simulator.proof.run import Run

_TRACE_ROWS = 12


def unproved(kernel: tile.Kernel, found: Unproved) -> UnprovedProtocol:
    """Return the error of a kernel about which nothing is known."""
    if (rule := found.rule) is not None:
        return UnprovedProtocol(
            f"{kernel.sym_name.data} is not proved: {found.sentence}",
            place=_place(found.operation),
            why=f'rule "{rule.name}": {rule.holds} ({rule.source}).',
            remedy="one thread is to find the value and to tell the others, which is the "
            "compiler's business: report it with this text.",
        )
    return UnprovedProtocol(
        f"{kernel.sym_name.data} is not proved: {found.sentence}",
        place=_place(found.operation),
        why="a kernel that is not proved free of hangs and races is not run.",
        remedy="compile it with specialize=False, which leaves less to prove, or split it.",
    )


def violated(kernel: tile.Kernel, found: Violation, run: Run | None) -> ProtocolError:
    """Return the error of a kernel that breaks a rule, with the steps that lead there."""
    rows = list(found.rows)
    when = run.configuration.describe() if run is not None else "before any role runs"
    if run is not None:
        rows = _trace(run, found)
    why = f'rule "{found.rule.name}": {found.rule.holds} ({found.rule.source}).'
    table = f"\n{render(rows)}" if rows else ""
    return ProtocolError(
        f"{kernel.sym_name.data}: {found.sentence}\n  when: {when}{table}",
        place=_place(found.operation),
        why=why,
        remedy="this is a fault of the compiler, not of the kernel: report it with this text.",
    )


def _trace(run: Run, found: Violation) -> list[Row]:
    """Repeat the run with a trace; keep the last steps of the roles that the finding names."""
    rows = list(found.rows)
    again = run.again()
    try:
        again.execute()
    except Violation as same:
        rows = list(same.rows)
    except OutOfSteps:
        return rows  # a trace has steps that are not counted else: it does not come so far
    assert again.trace is not None
    # A hang is everybody's: who waits is not who is at fault. Warps that follow are left out.
    roles = set[str]() if found.rule.name == "no hang" else {row.role for row in rows}
    told = {(row.step, row.role) for row in rows}
    steps = [
        row
        for row in again.trace
        if (row.role in roles or (not roles and not _follows(row.role)))
        and (row.step, row.role) not in told
    ]
    kept = steps[-max(0, _TRACE_ROWS - len(rows)) :] if len(rows) < _TRACE_ROWS else []
    return sorted([*kept, *rows], key=lambda row: row.step or 1 << 30)


def _follows(role: str) -> bool:
    return ", warp " in role or ", warps " in role


def render(rows: list[Row]) -> str:
    """Return rows as a table."""
    head = ("step", "role", "line", "does or waits for", "phase", "arrived/needed")
    lines = [head] + [
        (str(row.step or "-"), row.role, str(row.line or "-"), row.what, row.phase, row.need)
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


__all__ = ["render", "unproved", "violated"]
