"""Draw `docs/timeline.svg`: one GEMM tile before and after warp specialization.

Run ``python docs/picture.py``. Both rows are timelines of the simulator (virtual time of a simple
machine, `tawa.simulator.trace`), made by running the demo's kernel with and without roles.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

import tawa
from tawa.tools.samples import matmul

WIDTH, LEFT, ROW, BAR = 880, 150, 26, 18
COLORS = {
    "TMA": "#2a78c8",
    "tensor cores": "#3a9a4b",
    "wait": "#d7dbe0",
    "work": "#c97b2a",
}


def timeline(specialize: bool) -> list[dict[str, Any]]:
    """Return the events of one tile of a GEMM of 8 steps along K."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(np.float16) for s in ((128, 512), (512, 256)))
    c = np.empty((128, 256), np.float16)
    desc = tawa.TensorDescriptor.from_tensor
    arguments = desc(a, [128, 64]), desc(b, [64, 256]), desc(c, [128, 256]), 512
    tiles = {"BM": 128, "BN": 256, "BK": 64}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        tawa.simulate(
            matmul, *arguments, grid=(1, 1), **tiles, specialize=specialize, timeline=str(path)
        )
        return json.loads(path.read_text())["traceEvents"]


def tracks(events: list[dict[str, Any]]) -> list[tuple[str, list[tuple[float, float, str, str]]]]:
    """Return each track with its bars: start, length (us), color and what is done."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: list[tuple[str, list[tuple[float, float, str, str]]]] = []
    for number, name in sorted(names.items()):
        engine = "TMA" if name.startswith("TMA") else name
        bars = [
            (e["ts"], e["dur"], COLORS.get(engine, COLORS[e["cat"]]), e["name"])
            for e in events
            if e["ph"] == "X" and e["tid"] == number
        ]
        if bars:
            found.append((name, bars))
    return found


def drawn(title: str, events: list[dict[str, Any]], top: int, scale: float) -> tuple[str, int]:
    """Return the SVG of one timeline below `top`, and where it ends."""
    end = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    parts = [
        f'<text x="0" y="{top + 14}" class="title">{escape(title)}</text>',
        f'<text x="{WIDTH}" y="{top + 14}" text-anchor="end">{end:.1f} us of simulated time</text>',
    ]
    y = top + ROW
    for name, bars in tracks(events):
        parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts += [
            f'<rect x="{LEFT + start * scale:.1f}" y="{y}" width="{max(length * scale, 1):.1f}" '
            f'height="{BAR}" fill="{color}"><title>{escape(what)}</title></rect>'
            for start, length, color, what in bars
        ]
        y += ROW
    return "\n".join(parts), y + 14


def picture() -> str:
    """Return the SVG."""
    plain, specialized = timeline(False), timeline(True)
    longest = max(e["ts"] + e["dur"] for e in plain if e["ph"] == "X")
    scale = (WIDTH - LEFT) / longest
    first, bottom = drawn("A tile of a GEMM, as written: copy, wait, multiply", plain, 0, scale)
    second, bottom = drawn("The same kernel, specialized by tawa", specialized, bottom, scale)
    legend: list[str] = []
    labels = {"TMA": "copy by TMA", "tensor cores": "product", "wait": "wait", "work": "arithmetic"}
    for index, (kind, label) in enumerate(labels.items()):
        x = LEFT + index * 140
        legend.append(f'<rect x="{x}" y="{bottom}" width="14" height="14" fill="{COLORS[kind]}"/>')
        legend.append(f'<text x="{x + 20}" y="{bottom + 12}">{label}</text>')
    style = "text{font:13px sans-serif;fill:#30363d}.title{font-weight:bold}"
    body = "\n".join((first, second, *legend))
    height = bottom + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 {WIDTH + 20} {height + 20}" '
        f'width="{WIDTH + 20}" height="{height + 20}">\n<style>{style}</style>\n'
        f'<rect x="-10" y="-10" width="{WIDTH + 20}" height="{height + 20}" fill="#ffffff"/>\n'
        f"{body}\n</svg>\n"
    )


if __name__ == "__main__":
    (Path(__file__).parent / "timeline.svg").write_text(picture())
