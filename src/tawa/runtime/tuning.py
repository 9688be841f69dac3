"""What tuning is made of: pruning, hooks around each timed run, the timer, and its outcome."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tawa.runtime import timing
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.config import Config

Hook = Callable[..., Any]
_QUANTILES = (0.5, 0.2, 0.8)


@dataclass(frozen=True, slots=True)
class Pruning:
    """How a space is cut before timing, as in Triton's `prune_configs_by`."""

    early: Callable[..., Sequence[Any]] | None = None
    model: Callable[..., float] | None = None
    top_k: float | int = 1.0


@dataclass(frozen=True, slots=True)
class Hooks:
    """What happens around each timed run: tensors to clear or restore, hooks of the user."""

    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    before: Hook | None = None
    after: Hook | None = None

    def prepare(self, named: dict[str, Any], *, restore: bool = False) -> dict[str, Any]:
        """Clear and copy arrays before a run; returns the copies."""
        if self.before is not None:
            self.before(named, reset_only=not restore)
            return {}
        for name in self.reset_to_zero:
            _clear(named[name])
        names = self.restore_value if restore else ()
        return {name: _copy(named[name]) for name in names}

    def finish(
        self, named: dict[str, Any], copies: Mapping[str, Any], failure: BaseException | None
    ) -> None:
        """Put arrays back after a run."""
        if self.after is not None:
            self.after(named, exception=failure)
            return
        for name, copy in copies.items():
            _assign(named[name], copy)


@dataclass(frozen=True, slots=True)
class Timer:
    """How a run is timed: `do_bench(run, quantiles=...)`, or ours with `warmup`, `rep` in ms."""

    do_bench: Callable[..., Any] | None = None
    warmup: float = 25
    rep: float = 100
    use_cuda_graph: bool = False

    def time(self, run: Callable[[], Any]) -> list[float]:
        """Return the median and the 20 and 80 % quantiles of a run, in milliseconds."""
        if self.do_bench is not None:
            result = self.do_bench(run, quantiles=_QUANTILES)
        elif self.use_cuda_graph:
            result = timing.do_bench_cudagraph(run, self.rep, quantiles=_QUANTILES)
        else:
            result = timing.do_bench(run, self.warmup, self.rep, quantiles=_QUANTILES)
        return [float(result)] if isinstance(result, int | float) else list(result)


@dataclass(slots=True)
class Tuning:
    """The outcome for one key: times (ms: median and quantiles), reasons for what was skipped.

    `reports` holds kernels by the kernel they repeat with this outcome added.
    """

    best: Config
    times: dict[Config, list[float]] = field(default_factory=dict[Config, "list[float]"])
    skipped: dict[Config, str] = field(default_factory=dict[Config, str])
    note: str = ""
    reports: dict[CompiledKernel, CompiledKernel] = field(
        default_factory=dict[CompiledKernel, CompiledKernel]
    )

    def table(self) -> str:
        """Return a line for each configuration, the fastest first: median, spread, or the reason
        why it was skipped.
        """
        times = {str(config): each for config, each in self.times.items()}
        skipped = {str(config): why for config, why in self.skipped.items()}
        return "\n".join(table_of(times, skipped))

    def encode(self, configs: Sequence[Config], title: str) -> bytes:
        """Return the outcome as bytes, its configurations by their place in `configs`; `title` is
        what a list of all outcomes calls it.
        """
        content = {
            "title": title,
            "names": [str(config) for config in configs],
            "best": configs.index(self.best),
            "times": [[configs.index(c), times] for c, times in self.times.items()],
            "skipped": [[configs.index(c), why] for c, why in self.skipped.items()],
        }
        return json.dumps(content).encode()

    @classmethod
    def decode(cls, data: bytes | None, configs: Sequence[Config]) -> Tuning | None:
        """Return a stored outcome; None when there is none or it is of other configurations."""
        if data is None:
            return None
        try:
            content: Any = json.loads(data)
            best: int = content["best"]
            return cls(
                configs[best],
                {configs[index]: times for index, times in content["times"]},
                {configs[index]: why for index, why in content["skipped"]},
                note="recalled from disk",
            )
        except (KeyError, IndexError, RecursionError, TypeError, ValueError):
            return None


def table_of(times: Mapping[str, Sequence[float]], skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each configuration: times in ms (median, and perhaps the 20 and 80 %
    quantiles) the fastest first, then what was skipped, with the reason.
    """
    for name, (median, *spread) in sorted(times.items(), key=lambda item: item[1][0]):
        between = f"{spread[0]:.4f} to {spread[-1]:.4f}" if spread else ""
        yield f"{median:10.4f} ms  {between:<20}  {name}"
    for name, why in skipped.items():
        yield f"{'skipped':>13}  {'':<20}  {name}: {why}"


def _clear(tensor: Any) -> None:
    tensor.zero_() if hasattr(tensor, "zero_") else tensor.fill(0)


def _copy(tensor: Any) -> Any:
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def _assign(tensor: Any, value: Any) -> None:
    if hasattr(tensor, "copy_"):
        tensor.copy_(value)
    else:
        tensor[...] = value
