"""Makes a counterexample small: lines, options and programs are left out while it still fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz_case import Case
from fuzz_run import Counterexample, run_case


def failure(case: Case, **how: bool | int) -> str:
    """The first line of what is wrong with a case, numbers left out; empty where nothing is."""
    try:
        run_case(case, **how)
    except Counterexample as error:
        first = str(error).partition("\n")[0]
        return re.sub(r"hopper \{[^}]*\}", "hopper", re.sub(r"\w*\d[\w.]*", "N", first))[:60]
    return ""


def without_options(case: Case) -> Iterator[Case]:
    """Cases with one option, or all programs but one along an axis of the grid, left out."""
    for name in case.options:
        yield replace(case, options={k: v for k, v in case.options.items() if k != name})
    for axis in range(2):
        if case.grid[axis] > 1:
            yield replace(case, grid=(*case.grid[:axis], 1, *case.grid[axis + 1 :]))


def without_line(case: Case, start: int) -> Iterator[Case]:
    """Cases without the statement of a line, or with its body alone."""
    lines = case.source.splitlines()
    indent = len(lines[start]) - len(lines[start].lstrip())
    stop = start + 1
    while stop < len(lines) and len(lines[stop]) - len(lines[stop].lstrip()) > indent:
        stop += 1
    if stop - start < len(lines) - 1:  # a kernel has a statement
        yield _with(case, lines[:start] + lines[stop:])
    if stop > start + 1:  # the body alone, without its loop or branch
        body = [line[4:] for line in lines[start + 1 : stop]]
        yield _with(case, lines[:start] + body + lines[stop:])


def _with(case: Case, lines: list[str]) -> Case:
    """A case of other lines: the parameters that are used, and `pass` in empty bodies."""
    body: list[str] = []
    for line, after in zip(lines[1:], [*lines[2:], ""]):
        body.append(line)
        indent = len(line) - len(line.lstrip())
        if line.endswith(":") and len(after) - len(after.lstrip()) <= indent:
            body.append(" " * (indent + 4) + "pass")
    used = set(re.findall(r"\w+", "\n".join(body)))
    arguments = {name: kind for name, kind in case.arguments.items() if name in used}
    names = [*arguments, *(f"{name}: tl.constexpr" for name in case.constants)]
    source = "\n".join([f"def kernel({', '.join(names)}):", *body, ""])
    return replace(case, source=source, arguments=arguments)


def reduce(case: Case, fails: Callable[[Case], bool], attempts: int = 300) -> Case:
    """Return a smaller case for which `fails` still holds: rounds over its lines, the last first.

    A round goes on where something was left out: from the beginning, what cannot be left out would
    be tried again each time.
    """

    def first(candidates: Iterator[Case]) -> Case | None:
        nonlocal attempts
        for candidate in candidates:
            attempts -= 1
            if attempts < 0:
                return None
            if fails(candidate):
                return candidate
        return None

    while (fewer := first(without_options(case))) is not None:
        case = fewer
    before = ""
    while before != case.source and attempts > 0:
        before = case.source
        line = len(before.splitlines()) - 1
        while line > 0:
            case = first(without_line(case, line)) or case
            line = min(line, len(case.source.splitlines())) - 1
    return case
