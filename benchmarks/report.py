"""Tables, JSON and charts of measured rows, with what is needed to make them again."""

from __future__ import annotations

import datetime
import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import geometric_mean

Row = Mapping[str, Any]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the last row of each (dtype, shape, peer) in a rows file."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        rows[row["dtype"], row["shape"], row["peer"]] = row
    return list(rows.values())


def environment() -> dict[str, Any]:
    """Return machine, driver, versions and date; what is missing is left out."""
    found: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
    }
    for name in ("tawa", "torch", "triton", "numpy"):
        module = sys.modules.get(name)
        if module is None:
            try:
                module = __import__(name)
            except ImportError:
                continue
        found[name] = str(getattr(module, "__version__", "?"))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found["device"] = f"{properties.name}, {properties.multi_processor_count} SMs"
        found["cuda"] = str(torch.version.cuda)
    try:
        import pynvml
    except ImportError:
        return found
    try:
        pynvml.nvmlInit()
        found["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        pass
    return found


def table(rows: Sequence[Row]) -> str:
    """Return rates: shapes down, peers across, the best marked; then why others are missing."""
    lines: list[str] = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        timed = [row for row in rows if row["dtype"] == dtype and row["tflops"] is not None]
        peers = list(dict.fromkeys(row["peer"] for row in timed))
        unit = timed[0].get("unit", "TFLOP/s") if timed else "TFLOP/s"
        lines += ["", f"{dtype}, {unit}", " " * 30 + "".join(f"{peer:>20}" for peer in peers)]
        for shape in dict.fromkeys(row["shape"] for row in timed):
            here = {row["peer"]: row for row in timed if row["shape"] == shape}
            best = max(row["tflops"] for row in here.values())
            label = next(iter(here.values())).get("label") or ""
            cells = [_cell(here.get(peer), best) for peer in peers]
            lines.append(f"{shape + ' ' + label:<30.30}" + "".join(cells))
        lines += _ratios(timed, peers)
        lines += _errors(timed, peers)
    missing = {(row["peer"], row["note"]) for row in rows if row["tflops"] is None}
    if missing:
        lines += ["", "not timed:", *(f"  {peer}: {note}" for peer, note in sorted(missing))]
    return "\n".join(lines)


def _cell(row: Row | None, best: float) -> str:
    if row is None:
        return f"{'-':>20}"
    mark = "*" if row["tflops"] == best else ""
    return f"{mark + format(row['tflops'], '.0f'):>20}"


def _errors(timed: Sequence[Row], peers: Sequence[str]) -> list[str]:
    """Return the relative Frobenius errors of all peers, shape by shape."""
    by = {(row["shape"], row["peer"]): row.get("rel_err") for row in timed}
    if not any(by.values()):
        return []
    lines = ["  relative error, Frobenius, of a float64 result"]
    for shape in dict.fromkeys(row["shape"] for row in timed):
        found = [by.get((shape, peer)) for peer in peers]
        cells = [f"{'-' if error is None else format(error, '.2e'):>20}" for error in found]
        lines.append(f"{'  ' + shape:<30.30}" + "".join(cells))
    return lines


def _ratios(timed: Sequence[Row], peers: Sequence[str]) -> list[str]:
    """Return geometric means of tawa's figures over each peer's, and the worst shape."""
    by = {(row["shape"], row["peer"]): row["ms"] for row in timed}
    shapes = list(dict.fromkeys(row["shape"] for row in timed))
    lines: list[str] = []
    for mine in (peer for peer in peers if peer.startswith("tawa")):
        for other in (peer for peer in peers if peer != mine):
            pairs = {
                shape: by[shape, other] / by[shape, mine]
                for shape in shapes
                if (shape, mine) in by and (shape, other) in by
            }
            if not pairs:
                continue
            worst = min(pairs, key=lambda shape: pairs[shape])
            mean = geometric_mean(list(pairs.values()))
            lines.append(
                f"  {mine} / {other}: {mean:.3f} in the mean of {len(pairs)},"
                f" least {pairs[worst]:.3f} at {worst}"
            )
    return lines


def write(
    out: Path,
    name: str,
    rows: Sequence[Row],
    extra: Mapping[str, Any] | None = None,
    title: str = "GEMM",
) -> None:
    """Write NAME.json and NAME.txt, and NAME.png where matplotlib is there."""
    out.mkdir(parents=True, exist_ok=True)
    facts = environment() | dict(extra or {})
    payload = {"environment": facts, "rows": list(rows)}
    (out / f"{name}.json").write_text(json.dumps(payload, indent=1) + "\n")
    header = "\n".join(f"{key}: {value}" for key, value in facts.items())
    text = table(rows)
    (out / f"{name}.txt").write_text(f"{header}\n{text}\n")
    print(text)
    try:
        chart(out / f"{name}.png", rows, facts, title)
    except ImportError as error:
        print(f"no chart: {error}")


def chart(path: Path, rows: Sequence[Row], facts: Mapping[str, Any], title: str) -> None:
    """Draw one panel a dtype: rates by shape, a line for each peer."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    timed = [row for row in rows if row["tflops"] is not None]
    dtypes = list(dict.fromkeys(row["dtype"] for row in timed))
    if not dtypes:
        return
    across = min(3, len(dtypes))
    down = -(-len(dtypes) // across)
    figure, panels = plt.subplots(
        down, across, figsize=(7.5 * across, 4.5 * down), squeeze=False, layout="constrained"
    )
    for panel, dtype in zip(panels.flat, dtypes):
        here = [row for row in timed if row["dtype"] == dtype]
        shapes = list(dict.fromkeys(row["shape"] for row in here))
        for peer in dict.fromkeys(row["peer"] for row in here):
            value = {row["shape"]: row["tflops"] for row in here if row["peer"] == peer}
            heavy = peer == "tawa"
            panel.plot(
                range(len(shapes)),
                [value.get(shape, math.nan) for shape in shapes],
                marker="o",
                label=peer,
                linewidth=2.6 if heavy else 1.2,
                zorder=3 if heavy else 2,
            )
        panel.set_xticks(range(len(shapes)), shapes, rotation=35, ha="right", fontsize=7)
        panel.set_title(dtype)
        panel.set_ylabel(here[0].get("unit", "TFLOP/s"))
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=7)
    figure.suptitle(f"{title}, {facts.get('device', 'no device')}, {facts['date']}", fontsize=10)
    figure.savefig(path, dpi=130)
    plt.close(figure)
