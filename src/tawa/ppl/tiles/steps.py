"""Chains with plates: lanes run to where they need their plates, a tile kernel computes these.

A lane is suspended at its plates as a particle is at an observation. A launch runs each chain to
its next gradient, wherever its trajectory is; then one kernel computes the plates of all chains. On
the CPU these kernels run in the simulator: for tests.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Self

import ml_dtypes
import numpy as np

from tawa.ppl.frontend.words import run, select, write
from tawa.ppl.infer.compose import Composed
from tawa.ppl.infer.execute import Device, Executable, Running
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.records import Records
from tawa.ppl.passes.cut import DONE, cut
from tawa.ppl.tiles.kernel import (
    GRID,
    PARTS,
    ROWS,
    Split,
    plate_kernel,
    sum_kernel,
    words_of,
)
from tawa.ppl.tiles.plates import Plate, ask, width_of
from tawa.runtime.descriptors import TensorDescriptor
from tawa.runtime.tile_function import CompiledIr

Array = np.ndarray[Any, Any]
LANES = 16  # a number of lanes that tile kernels take is a multiple of it
SLOPES, VALUE = 1, 2


def in_steps(composed: Composed, plates: list[Plate], options: Options) -> dict[str, Array]:
    """Run chains whose gradient has plates; return the buffers of a run.

    Raises StackError or ModelError where a lane could not go on.
    """
    with Steps(composed, plates, options) as steps:
        return steps.run()


class Steps:
    """Chains with plates on a device, and the tile kernels of these, for as long as a `with`."""

    def __init__(self, composed: Composed, plates: list[Plate], options: Options) -> None:
        self.lanes = -(-options.chains // LANES) * LANES
        self.chains, self.results = options.chains, list(composed.rows)
        program = composed.program
        splits = [Split.of(plate, self.lanes) for plate in plates]
        for name in sorted({"gradient", "slopes"} & program.procedures.keys()):
            ask(program, program.procedures[name], [split.parts for split in splits])
        cut(program, options.stack)
        for plate, split in zip(plates, splits, strict=True):
            composed.buffer("f32", words_of(plate), f"given{plate.number}")
            composed.buffer("f32", words_of(plate), f"slopes{plate.number}")
            composed.buffer("f32", 2 * split.parts, f"value{plate.number}")
        composed.buffer("i32", 1, "request")
        composed.share(fresh=0)
        composed.algorithm(_step)
        Records(composed, fresh=("going",))
        self.executable = composed.executable(options)
        given = composed.arguments(options.seed)
        rows, threads = composed.rows, options.threads
        self.running = self.executable.on(given, rows, self.lanes, threads, single=True)
        self.kernels = [
            Kernels(plate, split, composed, self.running, options.device)
            for plate, split in zip(plates, splits, strict=True)
        ]

    def __enter__(self) -> Self:
        self.running.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.running.__exit__(*error)

    def run(self) -> dict[str, Array]:
        """Run all chains to their ends; return their buffers."""
        asked = self.step(fresh=1)
        while asked.any():
            for kernel in self.kernels:
                kernel.launch(valued=bool(np.any(asked == VALUE)))
            asked = self.step(fresh=0)
        self.executable.check(self.running)
        return {name: self.running.rows(name)[:, : self.chains] for name in self.results}

    def step(self, fresh: int) -> Array:
        """Run all lanes to their next stop; return what each asks for."""
        self.running.launch(fresh=fresh)
        return self.running.rows("request")


def _step(lane: Any) -> None:
    """Run a chain to its next gradient; say whether it is done, or what it wants of its plates."""
    run("load")
    if lane.fresh == 1:
        run("start")
    if lane.kind != DONE:
        run("resume")
    run("save")
    write("request", 0, select(lane.kind == DONE, 0, select(lane.valued, VALUE, SLOPES)))


class Kernels:
    """The kernels of a plate, with their arguments."""

    def __init__(
        self, plate: Plate, split: Split, composed: Composed, running: Running, device: Device
    ) -> None:
        memory = running.memory
        self.words, self.lanes, self.split = words_of(plate), split.lanes, split
        self.slopes = self.parts = memory[f"slopes{plate.number}"]
        if split.parts > 1:
            parts = np.zeros((split.parts * self.words, split.lanes), np.float32)
            self.parts = running.put(parts)
            self.sum = sum_kernel(self.words, split.parts)
        given = {"given": memory[f"given{plate.number}"], "slopes": self.parts}
        self.given: dict[str, Any] = {**given, "lanes": split.lanes, "tiles": split.tiles}
        self.for_value: dict[str, Any] = {"value": memory[f"value{plate.number}"]}
        for name, array in _data(plate, composed, device, split.padded).items():
            held: Any = running.put(array)
            if array.ndim == 2:
                held = TensorDescriptor.from_tensor(held, [ROWS, array.shape[1]])
            (self.for_value if name.endswith(VALUE_PARTS) else self.given)[name] = held

        @cache  # nuts asks for values only: what nobody launches is not compiled
        def kernel(valued: bool) -> CompiledIr:
            return plate_kernel(plate, split, valued=valued)

        self.kernel = kernel

    def launch(self, *, valued: bool) -> None:
        """Compute the plate of all lanes."""
        more = self.for_value if valued else {}
        self.kernel(valued)[self.split.blocks, self.split.parts](**self.given, **more)
        if self.split.parts > 1:
            blocks = -(-self.words * self.lanes // 1024)
            self.sum[blocks,](parts=self.parts, whole=self.slopes, lanes=self.lanes)


VALUE_PARTS = tuple(f"_{part}" for part in range(1, PARTS))


def _data(plate: Plate, composed: Composed, device: Device, padded: int) -> dict[str, Array]:
    """Return the columns of a plate and the parts of its matrices, by the kernels' names."""
    program = plate.data
    given = composed.arguments(0)[: len(program.params)]
    held = Executable(program, device).run(given, plate.sizes, plate.rows)
    made: dict[str, Array] = {}
    for name in plate.sizes:
        if name.startswith("column"):  # after the end as in the last row: terms stay finite
            made[name] = np.pad(held[name][0], (0, padded - plate.rows), mode="edge")
            continue
        columns = len(held[name])
        matrix = np.zeros((padded, width_of(columns)), np.float32)
        matrix[: plate.rows, :columns] = held[name].T
        scale = scale_of(matrix)
        made[name.replace("matrix", "scale")] = scale
        made |= {f"{name}_{k}": part for k, part in enumerate(parts_of(matrix / scale))}
    return made


def scale_of(matrix: Array) -> Array:
    """Return the power of two nearest to each column's root mean square, 1 where that is 0."""
    size = np.sqrt(np.mean(np.square(matrix, dtype=np.float64), axis=0))
    size = np.where(np.isfinite(size) & (size > 0), size, 1.0)
    return np.exp2(np.rint(np.log2(size))).astype(np.float32)


def parts_of(matrix: Array) -> list[Array]:
    """Return float32 rows as sums of bfloat16 parts, each whole numbers of a unit up to 256.

    As `kernel.py` cuts up vectors: the unit of the first part is 2**-7 of the power of two at or
    below the row's largest number, of each other 2**-9 of the one before.
    """
    _, exponent = np.frexp(np.abs(matrix).max(1, keepdims=True))
    unit = np.ldexp(np.float32(GRID), exponent - 1)
    made: list[Array] = []
    for _ in range(PARTS):
        part = (matrix + unit) - unit
        made.append(part.astype(ml_dtypes.bfloat16))
        matrix, unit = matrix - part, unit * np.float32(2.0**-9)
    return made
