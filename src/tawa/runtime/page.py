"""A kernel as one HTML page: its source beside every stage, linked line by line.

The page refers to nothing outside itself. Each line of each stage that comes from a line of Python
carries that line's number; a click on either marks and shows the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tawa.ir.text import Place, text_with_places
from tawa.plan.text import print_plan
from tawa.runtime import sass

if TYPE_CHECKING:
    from tawa.plan.plan import Plan
    from tawa.simulator.trace import Trace


class Shown(Protocol):
    """What the page needs of a compiled kernel (`tawa.runtime.compiled.CompiledKernel`)."""

    @property
    def name(self) -> str:
        """The user's function."""
        ...

    @property
    def plan(self) -> Plan:
        """What was done to it."""
        ...

    @property
    def asm(self) -> Any:
        """Every stage (`Assembly`)."""
        ...

    @property
    def resources(self) -> Any:
        """What a block takes (`Resources`)."""
        ...

    @property
    def proof(self) -> Any:
        """The verdict (`Proof`)."""
        ...

    @property
    def cubin(self) -> bytes:
        """The binary for the GPU."""
        ...


Line: TypeAlias = tuple[str, str]
"""A line of a stage, and the anchor of the Python line it comes from ("" for none)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One level of the compiler as lines of text."""

    name: str
    lines: Sequence[Line]


def page(kernel: Shown, timeline: Trace | None = None) -> str:
    """Return the page of a compiled kernel; with `timeline`, a run of it in the simulator."""
    files = _Files()
    stages = [*_ir_stages(kernel, files), *_machine_stages(kernel, files)]
    panels = {stage.name: _listing(stage.lines) for stage in stages}
    facts = {
        "report": f"<pre>{escape(str(kernel))}</pre>",
        "plan": f"<pre>{escape(print_plan(kernel.plan))}</pre>",
        "memory": _memory(kernel),
    }
    if timeline is not None:
        facts["timeline"] = _timeline(timeline)
    title = escape(kernel.name)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n<header><h1>{title}</h1>"
        f"<p>{escape(_summary(kernel))}</p></header>\n<main>\n"
        f"{_tabs('facts', facts)}\n"
        f'<div class="code"><section class="source">{files.listing()}</section>\n'
        f"{_tabs('stages', panels)}</div>\n</main><script>{_SCRIPT}</script></body></html>\n"
    )


def _summary(kernel: Shown) -> str:
    roles = ", ".join(f"{role.label} ({role.warps} warps)" for role in kernel.plan.roles)
    return f"{roles or 'an ordinary kernel'}; {kernel.proof.verdict}"


class _Files:
    """The Python files that lines come from, in the order of their first use."""

    def __init__(self) -> None:
        self._lines: dict[str, set[int]] = {}

    def anchor(self, place: Place | None) -> str:
        """Return the anchor of a place's line, "" for no place."""
        if place is None or not place[1]:
            return ""
        file, line, _ = place
        self._lines.setdefault(file, set()).add(line)
        return f"p{list(self._lines).index(file)}-{line}"

    def listing(self) -> str:
        """Return the functions that the lines stand in, each line with its anchor."""
        return "".join(self._file(n, file, lines) for n, (file, lines) in enumerate(self._known()))

    def _known(self) -> Iterator[tuple[str, set[int]]]:
        yield from self._lines.items()

    @staticmethod
    def _file(number: int, file: str, used: set[int]) -> str:
        try:
            text = Path(file).read_text(encoding="utf-8").splitlines()
        except OSError:
            text = []  # made by exec, say: the lines are listed, so that links lead somewhere
        shown = sorted(used | _functions(text, used))
        head = f"<h2>{escape(Path(file).name)}</h2>"
        rows = [
            _row(
                f"p{number}-{line}", text[line - 1] if line <= len(text) else "(not at hand)", line
            )
            for line in shown
        ]
        return head + "<ol>" + "".join(rows) + "</ol>"


def _functions(text: Sequence[str], used: set[int]) -> set[int]:
    """Return the lines of the functions that hold any of the lines."""
    try:
        tree = ast.parse("\n".join(text))
    except SyntaxError:
        return set()
    shown: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
            lines = set(range(node.lineno, node.end_lineno + 1))
            if lines & used:
                shown |= lines
    return shown


def _ir_stages(kernel: Shown, files: _Files) -> Iterator[Stage]:
    for level in ("tile", "aref", "hopper"):
        if level in kernel.asm:
            text, places = text_with_places(kernel.asm.program(level))
            lines = zip(text.splitlines(), map(files.anchor, places))
            yield Stage(level, list(lines))


def _machine_stages(kernel: Shown, files: _Files) -> Iterator[Stage]:
    if "cuda" not in kernel.asm:
        return
    cuda = _cuda_lines(kernel, files)
    yield Stage("cuda", cuda)
    if "cubin" in kernel.asm:
        listing = sass.disassemble(kernel.cubin, lines=True)
        if listing:
            yield Stage("sass", list(_sass_lines(listing, [anchor for _, anchor in cuda])))


def _cuda_lines(kernel: Shown, files: _Files) -> list[Line]:
    """Return the CUDA C++ as it was built, each line with what `#line` would say of it."""
    from tawa.codegen.generate import generate

    text = kernel.asm.text("cuda").splitlines()
    marked = generate(kernel.asm.program("hopper"), lines=True).text.splitlines()
    lines: list[Line] = []
    anchor = ""
    for line in marked:
        if directive := re.match(r'\s*#line (\d+) "(.*)"', line):
            anchor = files.anchor((directive[2], int(directive[1]), 0))
            continue
        if line and not line[0].isspace():
            anchor = ""  # a function begins or ends
        lines.append((line, anchor))
    if [line for line, _ in lines] != text:  # built by another version: shown, not linked
        return [(line, "") for line in text]
    return lines


def _sass_lines(listing: str, anchors: Sequence[str]) -> Iterator[Line]:
    """Yield the instructions, each with the innermost line of a role that it comes from."""
    anchor, chain = "", False
    for line in listing.splitlines():
        if "//## File" in line:
            numbers = [int(number) for number in re.findall(r"line (\d+)", line)]
            known = [anchors[n - 1] for n in numbers if 0 < n <= len(anchors) and anchors[n - 1]]
            if not chain:
                anchor = ""
            anchor = anchor or (known[0] if known else "")
            chain = True
            continue
        chain = False
        yield line, anchor if re.match(r"\s*/\*", line) else ""


def _memory(kernel: Shown) -> str:
    """Return the map of shared memory: buffers by their offset, to scale."""
    total = max(kernel.resources.shared_limit, 1)
    rows = [
        f'<tr><td>{escape(buffer.label)}</td><td class="number">{buffer.offset:,}</td>'
        f'<td class="number">{buffer.bytes:,}</td><td class="bar"><i style="margin-left:'
        f'{100 * buffer.offset / total:.2f}%;width:{max(100 * buffer.bytes / total, 0.3):.2f}%">'
        f"</i></td></tr>"
        for buffer in kernel.resources.buffers
    ]
    return (
        "<table><tr><th>buffer</th><th>at</th><th>bytes</th>"
        f"<th>of {kernel.resources.shared_limit:,} bytes</th></tr>{''.join(rows)}</table>"
    )


def _timeline(trace: Trace) -> str:
    """Return the timeline of the first block as SVG: a row for each track."""
    events: list[dict[str, Any]] = trace.chrome()["traceEvents"]
    names = {
        e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 1
    }
    bars = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    end = max((e["ts"] + e["dur"] for e in bars), default=0.0) or 1.0
    left, width, row = 160, 1040, 24
    parts: list[str] = []
    for place, (thread, name) in enumerate(sorted(names.items())):
        y = place * row
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts += [
            f'<rect x="{left + e["ts"] / end * width:.1f}" y="{y}" height="18" class="{e["cat"]}" '
            f'width="{max(e["dur"] / end * width, 0.5):.1f}"><title>{escape(e["name"])}, '
            f"{e['dur'] * 1000:.0f} ns</title></rect>"
            for e in bars
            if e["tid"] == thread
        ]
    height = len(names) * row
    return (
        f"<p>One block in the simulator, {end:.2f} us of a simple machine's time.</p>"
        f'<svg viewBox="0 0 {left + width} {height}" width="{left + width}" height="{height}">'
        f"{''.join(parts)}</svg>"
    )


def _row(anchor: str, text: str, number: int) -> str:
    code = f"<code>{escape(text) or ' '}</code>"
    return f'<li id="{anchor}" value="{number}" data-at="{anchor}">{code}</li>'


def _listing(lines: Sequence[Line]) -> str:
    rows = [
        f'<li data-at="{anchor}"><code>{escape(text)}</code></li>'
        if anchor
        else f"<li><code>{escape(text) or ' '}</code></li>"
        for text, anchor in lines
    ]
    return f"<ol>{''.join(rows)}</ol>"


def _tabs(name: str, panels: dict[str, str]) -> str:
    buttons = "".join(
        f'<button data-tab="{name}-{key}"{" class=on" if n == 0 else ""}>{key}</button>'
        for n, key in enumerate(panels)
    )
    bodies = "".join(
        f'<div id="{name}-{key}" class="panel{"" if n == 0 else " off"}">{body}</div>'
        for n, (key, body) in enumerate(panels.items())
    )
    return f'<section class="tabs {name}"><nav>{buttons}</nav>{bodies}</section>'


_STYLE = """
body{margin:0;font:14px sans-serif;color:#24292f;background:#fff}
header{padding:12px 16px;border-bottom:1px solid #d0d7de}h1{margin:0;font-size:20px}
header p{margin:4px 0 0;color:#57606a}h2{font-size:14px;margin:8px 12px}
main{padding:8px 16px}.code{display:flex;gap:12px;height:75vh}
.source,.stages{flex:1;min-width:0;overflow:auto;border:1px solid #d0d7de;border-radius:6px}
.facts{border:1px solid #d0d7de;border-radius:6px;margin-bottom:12px;max-height:40vh;overflow:auto}
nav{position:sticky;top:0;background:#f6f8fa;border-bottom:1px solid #d0d7de}
button{border:0;background:none;padding:8px 14px;font:inherit;cursor:pointer}
button.on{font-weight:bold;border-bottom:2px solid #0969da}
.panel{padding:4px 8px;overflow-x:auto}.off{display:none}
pre,code{font:12px/1.5 monospace;white-space:pre}ol{margin:0;padding-left:52px}
li::marker{color:#8c959f;font:11px monospace}[data-at]{cursor:pointer}
.mark{background:#fff3bf}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:2px 10px;font:12px monospace}.number{text-align:right}
.bar{width:60%;background:#f6f8fa}.bar i{display:block;height:12px;background:#0969da}
svg text{font:12px sans-serif}.work{fill:#2a78c8}.wait{fill:#d7dbe0}
"""

_SCRIPT = """
const all = (query, top = document) => [...top.querySelectorAll(query)];
document.addEventListener("click", event => {
  const button = event.target.closest("button[data-tab]");
  if (button) {
    const tabs = button.closest(".tabs");
    all("button", tabs).forEach(each => each.classList.toggle("on", each === button));
    all(".panel", tabs).forEach(each =>
      each.classList.toggle("off", each.id !== button.dataset.tab));
  }
  const line = event.target.closest("[data-at]");
  if (line) all("[data-at]").forEach(each =>
    each.classList.toggle("mark", each.dataset.at === line.dataset.at));
  if (line || button) all(".source, .stages").forEach(side => {
    if (line && side.contains(line)) return;
    const found = all(".mark", side).find(each => each.offsetParent);
    if (found) side.scrollTop += found.getBoundingClientRect().top
      - side.getBoundingClientRect().top - side.clientHeight / 3;
  });
});
"""
