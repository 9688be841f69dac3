"""What a run is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tawa.ppl.infer.execute import Device
from tawa.ppl.ir.core import Kind

Metric = Literal["diagonal", "dense"]
DTYPES: dict[str, Kind] = {"float32": "f32", "float64": "f64", "f32": "f32", "f64": "f64"}


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
    tiles: bool = False
    cpu: str = ""
    particles: int = 1000
    parameters: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None
    moments: bool = False
    step_size: float | None = None
    steps: int = 16
    depth: int = 10
    accept: float = 0.8
    metric: Metric = "diagonal"
