"""`ppl.inspect`: what a model becomes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import lower
from tawa.ppl.ir.text import program_text


@dataclass(frozen=True, slots=True)
class Inspected:
    """The stages of a model for some arguments."""

    model: Model
    arguments: tuple[Any, ...]

    @property
    def ir(self) -> str:
        """The model IR, with its effects."""
        return program_text(lower(self.model, self.arguments, "f32").program)


@contextmanager
def inspect(model: Model, *arguments: Any) -> Generator[Inspected]:
    """Look at a model: its IR, LLVM IR and PTX, log density and gradient."""
    yield Inspected(model, arguments)
