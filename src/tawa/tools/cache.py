"""`tawa cache list`, `tawa cache tunings`, `tawa cache clear`: what is kept on disk."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tawa.runtime import cubins
from tawa.runtime.codec import decode
from tawa.runtime.store import DiskStore, cache_folder
from tawa.runtime.tuning import table_of


def main(action: str) -> int:
    """Carry out an action of the command; return its exit status."""
    store = DiskStore(cache_folder())
    match action:
        case "clear":
            count, size = store.clear()
            print(f"removed {count} files, {size:,} bytes, from {store.folder}")
        case "tunings":
            print("\n".join(tunings(store)) or f"no tunings in {store.folder}")
        case _:
            for line in kept(store):
                print(line)
    return 0


def kept(store: DiskStore) -> Iterator[str]:
    """Yield a line for each file, the one used last first: when, bytes, what it is."""
    count = total = 0
    for path, body in store.entries():
        count, total = count + 1, total + len(body)
        yield f"{_used(path)}  {len(body):>11,}  {_title(body)}"
    yield f"{count} files, {total:,} bytes, in {store.folder}"


def tunings(store: DiskStore) -> Iterator[str]:
    """Yield each tuning: what was tuned and when, then its table."""
    for path, body in store.entries():
        if (outcome := _outcome(body)) is None:
            continue
        yield f"{_used(path)}  {outcome['title']}"
        yield from table_of(*_rows(outcome))


def _rows(outcome: Mapping[str, Any]) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return times and reasons by configuration."""
    if "names" not in outcome:  # of the library's own kernels: medians, by the variant's text
        return {name: [each] for name, each in outcome["times"].items()}, outcome["skipped"]
    names = outcome["names"]
    times = {names[place]: each for place, each in outcome["times"]}
    return times, {names[place]: why for place, why in outcome["skipped"]}


def _used(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime).isoformat(" ", "seconds")


def _outcome(body: bytes) -> Mapping[str, Any] | None:
    """Return what a file says of a tuning; None when it is something else."""
    if not body.startswith(b"{"):
        return None
    try:
        found: Any = json.loads(body)
    except ValueError:
        return None
    return found if "title" in found else None


def _title(body: bytes) -> str:
    if (outcome := _outcome(body)) is not None:
        return f"tuning of {outcome['title']}"
    try:
        facts, _ = decode(body, {})
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError, struct.error):
        cubin = cubins.decode(body)
        return "of another program" if cubin is None else f"binary of {len(cubin.data):,} bytes"
    plan = facts["plan"]
    kind = plan.arrangement if plan.specialized else "ordinary"
    return f"kernel {facts['name']}: {kind}, {plan.warps} warps"
