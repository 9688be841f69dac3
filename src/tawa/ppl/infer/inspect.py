"""`ppl.inspect`: what a model becomes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tawa.errors import ModelError
from tawa.ppl.emit.machine import ptx
from tawa.ppl.frontend.model import Model, refuse_other
from tawa.ppl.frontend.program import Lowered, lower
from tawa.ppl.frontend.words import read, run, write
from tawa.ppl.infer.chains import differentiated, program_of
from tawa.ppl.infer.compose import Composed, made
from tawa.ppl.infer.execute import Device, Executable
from tawa.ppl.infer.options import DTYPES, Options
from tawa.ppl.ir.core import Kind
from tawa.ppl.ir.text import program_text


@dataclass(frozen=True, slots=True)
class Inspected:
    """The stages of a model for some arguments."""

    model: Model
    arguments: tuple[Any, ...]

    dtype: Kind = "f32"
    method: str = "nuts"

    @property
    def ir(self) -> str:
        """The model IR, with its effects."""
        return program_text(lower(self.model, self.arguments, self.dtype).program)

    def _chain(self, device: Device) -> Executable:
        options = Options(dtype=self.dtype)
        lowered = lower(self.model, self.arguments, self.dtype)
        return Executable(program_of(lowered, options, self.method).program, device)

    @property
    def llvm(self) -> str:
        """LLVM IR of a lane of nuts, before LLVM's passes."""
        return self._chain("cpu").text

    @property
    def ptx(self) -> str:
        """PTX of nuts, a thread a chain."""
        return ptx(self._chain("cuda").kernel(1))

    def log_density(self, z: Any) -> float:
        """Return the log density at a vector of free numbers, in float64."""
        return self._at(z)[0]

    def gradient(self, z: Any) -> np.ndarray[Any, Any]:
        """Return the gradient of the log density, in float64."""
        return self._at(z)[1]

    @property
    def size(self) -> int:
        """How many free numbers the model has."""
        return self._point().program.variables["z"].size

    def _at(self, z: Any) -> tuple[float, np.ndarray[Any, Any]]:
        point = np.array(z, np.float64).reshape(-1, 1)
        if len(point) != self.size:
            raise ModelError(
                f"{self.model.name} has {self.size} free numbers, not {len(point)}",
                remedy="pass a vector of them, in the order of the sites",
            )
        buffers = self._point().run(Options(dtype="f64"), 1, point=point)
        return float(buffers["logw"][0, 0]), buffers["slope"][:, 0]

    def _point(self) -> Composed:
        """Return the program that evaluates at a point."""

        def make(lowered: Lowered) -> Composed:
            composed = differentiated(lowered, self.method)
            size = composed.program.variables["z"].size
            for name in ("point", "slope"):
                composed.buffer("f64", size, name)
            composed.algorithm(_evaluate, results="logw")
            return composed

        key = "inspect", self.method
        return made(self.model, self.arguments, Options(dtype="f64"), key, 1, make)


def _evaluate(lane: Any) -> None:
    for i in range(len(lane.z)):
        lane.z[i] = read("point", i, "real")
    run("gradient")
    for i in range(len(lane.g)):
        write("slope", i, lane.g[i])


@contextmanager
def inspect(model: Model, *arguments: Any) -> Generator[Inspected]:
    """Look at a model: its IR, LLVM IR and PTX, log density and gradient. Raises ModelError."""
    refuse_other(model)
    yield Inspected(model, arguments, DTYPES.get(model.dtype, "f32"))
