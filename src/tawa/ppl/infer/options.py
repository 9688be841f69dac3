"""What a run is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_type_hints

import numpy as np

from tawa.ppl.infer.execute import Device
from tawa.ppl.ir.core import Kind

Metric = Literal["diagonal", "dense"]
DTYPES: dict[str, Kind] = {"float32": "f32", "float64": "f64", "f32": "f32", "f64": "f64"}
Check = tuple[Callable[[Any], bool], str, Callable[[Any], Any]]
"""Whether a value may be an option's, what such values are, and what is made of one."""


def _whole(least: int, most: int | None = None) -> Check:
    def holds(given: Any) -> bool:
        if isinstance(given, bool) or not isinstance(given, Integral):
            return False
        return least <= int(given) and (most is None or int(given) <= most)

    return holds, f"a whole number of {least} " + ("or more" if most is None else f"to {most}"), int


def _real(least: float, most: float) -> Check:
    def holds(given: Any) -> bool:
        if isinstance(given, bool) or not isinstance(given, Real):
            return False
        return least < float(given) < most

    what = f"a number above {least:g}" + (f" and below {most:g}" if most < inf else "")
    return holds, what, float


def _one_of(*known: str) -> Check:
    return lambda given: str(given) in known, f"one of {', '.join(known)}", str


def _is_names(given: Any) -> bool:
    names: Any = given
    if isinstance(given, str) or not isinstance(given, Collection):
        return False
    return all(isinstance(name, str) for name in names)


_NAMES: Check = _is_names, 'a tuple of names, such as ("mu", "tau")', tuple
_FLAG: Check = (lambda given: isinstance(given, bool | np.bool_), "True or False", bool)
_TEXT: Check = (lambda given: isinstance(given, str), "the name of a CPU of LLVM", str)
_CHAINS = ("mh", "hmc", "nuts", "pmmh")
_MOVED = ("hmc", "nuts")


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of `ppl.infer` but the model and its own.

    Each with what its values are, and the methods that it says something to: () are all.
    """

    chains: Annotated[int, _whole(1), _CHAINS] = 4
    draws: Annotated[int, _whole(1), ("importance", *_CHAINS)] = 1000
    warmup: Annotated[int, _whole(0), _CHAINS] = 1000
    thin: Annotated[int, _whole(1), _CHAINS] = 1
    seed: Annotated[int, _whole(0, 2**64 - 1), ()] = 0
    device: Annotated[Device, _one_of(*get_args(Device)), ()] = "cpu"
    dtype: Annotated[Kind, _one_of(*DTYPES), ()] = "f32"
    stack: Annotated[int, _whole(1), ()] = 64
    trace: Annotated[int, _whole(1), ("mh", "tempered")] = 256
    threads: Annotated[int | None, _whole(1), ()] = None
    tiles: Annotated[bool, _FLAG, _MOVED] = False
    cpu: Annotated[str, _TEXT, ()] = ""
    particles: Annotated[int, _whole(1), ("smc", "pmmh", "tempered")] = 1000
    parameters: Annotated[tuple[str, ...], _NAMES, ("pmmh",)] = ()
    keep: Annotated[tuple[str, ...] | None, _NAMES, ()] = None
    moments: Annotated[bool, _FLAG, ("mh", *_MOVED)] = False
    step_size: Annotated[float | None, _real(0, inf), _MOVED] = None
    steps: Annotated[int, _whole(1), ("hmc", "tempered")] = 16
    depth: Annotated[int, _whole(1, 20), ("nuts",)] = 10
    accept: Annotated[float, _real(0, 1), _MOVED] = 0.8
    metric: Annotated[Metric, _one_of(*get_args(Metric)), _MOVED] = "diagonal"


OPTIONS: dict[str, tuple[Check, tuple[str, ...]]] = {
    name: hint.__metadata__ for name, hint in get_type_hints(Options, include_extras=True).items()
}
