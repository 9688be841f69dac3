"""`tawa opt`: passes of the compiler on the text of one kernel, at any level.

Operations stand where they do in the file, so that errors of the parser, of the verifier and of
passes show its line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from xdsl.utils.exceptions import ParseError, VerifyException

from tawa import ir
from tawa.errors import ArgumentError, InternalError, Place, TawaError
from tawa.ir import tile
from tawa.ir.text import text_of
from tawa.ir.walk import walk
from tawa.passes import pipeline
from tawa.plan.plan import Declined, Plan
from tawa.plan.planner import plan_for
from tawa.plan.text import parse_plan
from tawa.runtime.crash import place_in
from tawa.target import H200

_PLANNED = frozenset({*pipeline.AREF, *pipeline.HOPPER} - {pipeline.PASSES["simplify"]})


def opt(file: str, names: Sequence[str], plan: str = "") -> tuple[str, tuple[Declined, ...]]:
    """Run passes, in order, on the kernel in a file (``-``: what is piped in).

    `plan` names a file with a plan, as `print_plan` writes it; without, the planner makes one when
    the first pass is reached that needs it. Returns the text and what the passes declined. Raises
    ArgumentError for IR that cannot be read, that does not verify, or that a pass cannot take.
    """
    passes = [_pass(name) for name in names]
    kernel = _read(file)
    settled = parse_plan(_content(plan)) if plan else None
    notes: list[Declined] = []
    for one in passes:
        if one in _PLANNED and settled is None:
            settled = _plan(kernel, one.__name__)
        notes += _run(one, kernel, settled or Plan())
    return text_of(kernel), tuple(notes)


def list_passes() -> Iterator[str]:
    """Yield each pass with its purpose."""
    width = max(map(len, pipeline.PASSES))
    for name, one in pipeline.PASSES.items():
        purpose = " ".join((one.__doc__ or "").partition("\n\n")[0].split())
        yield f"{name:<{width}}  {purpose}"


def _pass(name: str) -> pipeline.Pass:
    if (one := pipeline.PASSES.get(pipeline.FORMER.get(name, name))) is None:
        raise ArgumentError(
            f"there is no pass {name!r}",
            why="the passes are " + ", ".join(pipeline.PASSES),
            remedy="`tawa opt --list` says what each is for",
        )
    return one


def _content(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{file} cannot be read", why=str(error)) from error


def _read(file: str) -> tile.Kernel:
    text = _content(file)
    name = "<stdin>" if file == "-" else file
    try:
        return ir.parse(text, name)
    except ParseError as error:
        start, end = error.span.start, error.span.end
        line = text.count("\n", 0, start) + 1
        column = start - (text.rfind("\n", 0, start) + 1)
        place = Place(name, line, column, column + end - start)
        raise ArgumentError(f"{name} is no IR: {error.msg}", place=place) from error
    except (VerifyException, TypeError) as error:
        reason = _first_line(error)
        raise ArgumentError(f"{name} is no kernel: {reason}", place=place_in(error)) from error


def _plan(kernel: tile.Kernel, name: str) -> Plan:
    if any(op.name.startswith(("aref.", "hopper.")) for op in walk(kernel)):
        raise ArgumentError(
            f"{name} needs the plan that this IR was made by",
            why="the planner reads tile IR, and this text has roles or arefs already",
            remedy="give the plan with --plan FILE; `tawa explain --json` shows it",
        )
    try:
        return plan_for(kernel, H200)
    except Exception as error:
        if isinstance(error, TawaError) and not isinstance(error, InternalError):
            raise
        raise _not_for("the planner", error) from error


def _run(one: pipeline.Pass, kernel: tile.Kernel, plan: Plan) -> tuple[Declined, ...]:
    try:
        notes = one(kernel, plan, H200)
    except Exception as error:
        if isinstance(error, TawaError) and not isinstance(error, InternalError):
            raise
        raise _not_for(one.__name__, error) from error
    try:
        ir.verify(kernel)
    except VerifyException as error:
        raise InternalError(
            f"{one.__name__} left IR that does not verify: {_first_line(error)}",
            place=place_in(error),
            remedy="please report it with the file, if the pass may be run on it",
        ) from error
    return notes


def _not_for(name: str, error: Exception) -> ArgumentError:
    return ArgumentError(
        f"{name} cannot take this IR: {type(error).__name__}: {_first_line(error)}",
        place=place_in(error),
        why="a pass takes what those before it leave",
        remedy="see what it requires in docs/reference/passes.md",
    )


def _first_line(error: Exception) -> str:
    """Return what an error says; those of xDSL show the whole kernel first, and end with it."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
