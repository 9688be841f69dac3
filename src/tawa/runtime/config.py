"""Configurations and heuristics: how the meta-parameters of a launch are chosen.

Triton's `Config` is read by its attributes; ours adds pins (``Config({...}, depth={"a": 4})``).

Heuristics: meta-parameters computed from the other arguments, at each launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.jit import Launchable

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


class Config:
    """One point of a tuning space: values for meta-parameters, Triton's hints, our pins.

    `pre_hook` is called with the arguments by name before each launch with this configuration.

    >>> tawa.Config({"BLOCK": 128}, num_stages=3, consumers=2)
    Config(BLOCK=128, num_stages=3, consumers=2)
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int | None = None,
        num_stages: int | None = None,
        num_ctas: int | None = None,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        **pins: Any,
    ) -> None:
        self.kwargs = dict(kwargs)
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.pins = pins

    @classmethod
    def of(cls, config: Any) -> Config:
        """Return ours of a Triton configuration, or the same one."""
        if isinstance(config, cls):
            return config
        options = {name: getattr(config, name, None) for name in _OPTIONS}
        return cls(config.kwargs, pre_hook=config.pre_hook, **options)

    def all_kwargs(self) -> dict[str, Any]:
        """Return everything a launch with this configuration gets by keyword."""
        options = {name: getattr(self, name, None) for name in _OPTIONS}
        given = {**self.kwargs, **options, **self.pins}
        return {name: value for name, value in given.items() if value is not None}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.all_kwargs().items())

    def __repr__(self) -> str:
        return f"Config({self})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return (self.all_kwargs(), self.pre_hook) == (other.all_kwargs(), other.pre_hook)

    def __hash__(self) -> int:
        return hash((str(self), self.pre_hook))


# --- heuristics -----------------------------------------------------------------------------------


class Heuristics(Launchable):
    """A kernel some of whose meta-parameters are computed from the others at each launch."""

    def __init__(self, fn: Launchable, values: Mapping[str, Callable[[dict[str, Any]], Any]]):
        self.fn = fn
        self.values = dict(values)
        self.arg_names = fn.arg_names

    def _complete(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(keywords)
        for name, compute in self.values.items():
            given[name] = compute({**dict(zip(self.arg_names, args)), **given})
        return given

    def launch(self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> CompiledKernel:
        """Launch with the computed values added."""
        return self.fn.launch(grid, args, self._complete(args, keywords))

    def compile(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile with the computed values added."""
        return self.fn.compile(*args, grid=grid, **self._complete(args, meta))

    def compile_plain(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile the ordinary kernel with the computed values added."""
        return self.fn.compile_plain(*args, grid=grid, **self._complete(args, meta))
