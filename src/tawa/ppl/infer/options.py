"""What a run is asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tawa.ppl.infer.execute import Device, seed_words
from tawa.ppl.ir.core import I32, Builder, Kind, Program, Region, Value
from tawa.ppl.ir.interpret import interpret
from tawa.ppl.math.library import library


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of `ppl.infer` but the model and its own."""

    chains: int = 4
    draws: int = 1000
    warmup: int = 1000
    thin: int = 1
    seed: int = 0
    device: Device = "cpu"
    dtype: Kind = "f32"
    stack: int = 64
    trace: int = 256
    threads: int | None = None
    cpu: str = ""
    particles: int = 1000
    parameters: tuple[str, ...] = ()
    step_size: float | None = None
    steps: int = 16
    depth: int = 10
    accept: float = 0.8

    def uniform(self, number: int, seed: int | None = None) -> float:
        """Return a number in (0, 1) for the host's own use: it has no lane's counter."""
        b = Builder("f32")
        program = Program(
            "host", "f32", tuple(Value(I32) for _ in range(6)), Region(), buffers={"words": "i32"}
        )
        with b.inside(program.body):
            words = b.op("philox", program.params, (I32,) * 4).results
            for k in range(2):
                b.op("write", (b.const(k, I32), words[k]), name="words")
        out = np.zeros((2, 1), np.int32)
        key = seed_words(self.seed if seed is None else seed)
        interpret(program, (*key, -1, number, -1, 0), {"words": out}, range(1), library)
        high, low = (int(word) & 0xFFFFFFFF for word in out[:, 0])
        return ((high >> 5) * 67108864.0 + (low >> 6) + 0.5) / 9007199254740992.0
