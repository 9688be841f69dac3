"""PTX of ppl's programs, made where LLVM is and used where it is not.

    PYTHONPATH=src:tests:benchmarks python benchmarks/ppl_plates.py --make-ptx FOLDER    # here
    PYTHONPATH=src:tests:benchmarks python benchmarks/ppl_plates.py --ptx FOLDER         # there

A file is named by the digest of the LLVM IR, so a program that was not made is missed by name.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from tawa.ppl.emit import gpu, machine


def _file(folder: Path, text: str) -> Path:
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.ptx"


def use(folder: Path) -> None:
    """Take PTX from a folder from here on."""
    gpu.ptx = lambda text: _file(folder, text).read_text()
    gpu.kernel.cache_clear()


def make(folder: Path) -> None:
    """Write the PTX of every program that is launched from here on; launches do nothing."""
    folder.mkdir(parents=True, exist_ok=True)

    class Recorded:
        def __init__(self, text: str) -> None:
            _file(folder, text).write_text(machine.ptx(text))

        def launch(self, *_: object) -> None:
            pass

    def nothing(lanes: gpu.Lanes, name: str, row: int = 0, count: int | None = None) -> np.ndarray:
        held = lanes.memory[name]
        size = held.shape[0] - row if count is None else count
        return np.zeros((size, *held.shape[1:]), held.dtype)

    gpu.kernel = Recorded
    gpu.Lanes.rows = nothing
    gpu._context = lambda: None
    gpu._call = lambda *_: 0
    gpu._driver = _Nothing


class _Nothing:
    def __getattr__(self, name: str) -> object:
        return lambda *_: None
