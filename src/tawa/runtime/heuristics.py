"""Heuristics: meta-parameters computed from the other arguments, at each launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.jit import Launchable


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

    def run(self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> CompiledKernel:
        """Launch with the computed values added."""
        return self.fn.run(grid, args, self._complete(args, keywords))

    def compile(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile with the computed values added."""
        return self.fn.compile(*args, grid=grid, **self._complete(args, meta))

    def compile_plain(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile the ordinary kernel with the computed values added."""
        return self.fn.compile_plain(*args, grid=grid, **self._complete(args, meta))
