"""Autotuning: the fastest of several configurations, found once for each key and kept on disk.

A configuration that cannot be built is skipped, and its reason is kept; when none is left the error
lists them all. Where nothing can be timed (arrays of the CPU, placeholders) the first that builds
is taken, with a note in the report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Any, cast

from tawa.constants import freeze
from tawa.errors import (
    ArgumentError,
    InternalError,
    LaunchError,
    NoDriver,
    ProtocolError,
    TawaError,
    TuningError,
    UnknownName,
    UnprovedProtocol,
    UnsupportedSyntax,
)
from tawa.plan.plan import Declined
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.config import Config
from tawa.runtime.dispatch import current_stream, devices_of, refuse_capture
from tawa.runtime.fingerprint import compiler_digest
from tawa.runtime.jit import JitFunction, Launchable
from tawa.runtime.locks import Lock
from tawa.runtime.progress import LOGGER, line_on, tell
from tawa.runtime.store import DiskStore, cache_folder, store_at
from tawa.runtime.tuning import Hooks, Pruning, Timer, Tuning

# Errors that every configuration would meet, and those that must not be passed over in silence.
_NOT_THE_CONFIGURATION = (ArgumentError, InternalError, NoDriver, UnknownName, UnsupportedSyntax)
_ALL, _NO_HOOKS, _TIMER = Pruning(), Hooks(), Timer()


class Autotuner(Launchable):
    """A kernel with configurations; `best_config` is the latest launch's."""

    def __init__(
        self,
        fn: Launchable,
        configs: Sequence[Any],
        key: Sequence[str],
        *,
        pruning: Pruning = _ALL,
        hooks: Hooks = _NO_HOOKS,
        timer: Timer = _TIMER,
        store: DiskStore | None = None,
        keep: bool = True,
    ) -> None:
        self.fn = fn
        self.configs = [Config.of(config) for config in configs] or [Config({})]
        self._taken = frozenset(name for config in self.configs for name in config.all_kwargs())
        self.keys = list(key)
        self.arg_names = fn.arg_names
        self.tunings: dict[tuple[Any, ...], Tuning] = {}
        self.best_config: Config | None = None
        self._originals = {Config.of(c): c for c in configs}
        self._pruning = pruning
        self._hooks = hooks
        self._timer = timer
        self._store = store
        self._keep = keep
        self._lock = Lock()
        if unknown := [name for name in key if name not in self.arg_names]:
            raise ArgumentError(
                f"the tuning key of {self.name} names {', '.join(map(repr, unknown))}",
                why=f"the kernel's parameters are {', '.join(self.arg_names)}",
                remedy="use names of parameters",
            )

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.__name__

    @property
    def kernel(self) -> JitFunction[..., Any]:
        """The kernel under all decorators."""
        inner: Any = self.fn
        while not isinstance(inner, JitFunction):
            inner = inner.fn
        return cast("JitFunction[..., Any]", inner)

    @classmethod
    def of(cls, tuner: Any, fn: Launchable) -> Autotuner:
        """Return ours of a Triton Autotuner, whose settings are read from its attributes."""
        user_before = tuner.pre_hook if getattr(tuner, "user_defined_pre_hook", False) else None
        user_after = tuner.post_hook if getattr(tuner, "user_defined_post_hook", False) else None
        return cls(
            fn,
            tuner.configs,
            tuner.keys,
            pruning=Pruning(tuner.early_config_prune, tuner.perf_model, tuner.configs_top_k),
            hooks=Hooks(
                tuple(tuner.reset_to_zero), tuple(tuner.restore_value), user_before, user_after
            ),
            timer=Timer(getattr(tuner, "_do_bench", None)),
        )

    # --- launch and compile -----------------------------------------------------------------

    def launch(self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> CompiledKernel:
        """Launch with the best configuration for the key of this call, tuning when it is new."""
        self._check_given(keywords)
        tuning = self._tuning(grid, args, keywords)
        config = self.best_config = tuning.best
        meta = {**keywords, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(self._named(args, meta))
        return _with_note(self.fn.launch(grid, args, meta), tuning)

    def compile(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile the first configuration that builds: nothing is timed without a launch."""
        tuning = self._without_launch(args, meta)
        return _with_note(self._build(args, meta, tuning.best), tuning)

    def compile_plain(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile the ordinary kernel of the configuration that `compile` takes."""
        best = self._without_launch(args, meta).best
        return self._build(args, meta, best, self.fn.compile_plain)

    def _without_launch(self, args: Sequence[Any], meta: Mapping[str, Any]) -> Tuning:
        self._check_given(meta)
        known = self.tunings.get(self._key(args, meta))
        return known or self._first_feasible(args, meta, "compiled without a launch")

    def _build(
        self,
        args: Sequence[Any],
        keywords: Mapping[str, Any],
        config: Config,
        compile: Callable[..., CompiledKernel] | None = None,
    ) -> CompiledKernel:
        if config.pre_hook is not None:  # it may set the block shapes of descriptors
            config.pre_hook(self._named(args, keywords, config))
        return (compile or self.fn.compile)(*args, **{**keywords, **config.all_kwargs()})

    def _check_given(self, keywords: Mapping[str, Any]) -> None:
        """Raise ArgumentError for what a launch gives and its configuration does as well."""
        if self._taken.isdisjoint(keywords):
            return
        twice = ", ".join(name for name in keywords if name in self._taken)
        raise ArgumentError(
            f"{self.name} got {twice} at a launch",
            why="its configurations say what that is, and the fastest of them is used",
            remedy=f"leave {twice} out, or out of the configurations",
        )

    def _named(
        self, args: Sequence[Any], keywords: Mapping[str, Any], config: Config | None = None
    ) -> dict[str, Any]:
        given = {**dict(zip(self.arg_names, args)), **keywords}
        return given if config is None else {**given, **config.all_kwargs()}

    def _key(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        named = self._named(args, keywords)
        values = [freeze(named[name]) for name in self.keys if name in named]
        dtypes = [value.dtype for value in named.values() if hasattr(value, "dtype")]
        dtypes += [
            base.dtype
            for value in named.values()
            if (base := getattr(value, "base", None)) is not None and hasattr(base, "dtype")
        ]
        return (*values, *map(str, dtypes))

    # --- tuning -----------------------------------------------------------------------------

    def _tuning(self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Tuning:
        key = self._key(args, keywords)
        if (known := self.tunings.get(key)) is not None:
            return known
        with self._lock:
            if (known := self.tunings.get(key)) is None:
                known = self.tunings[key] = self._tune(key, grid, args, keywords)
        return known

    def _tune(
        self, key: tuple[Any, ...], grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Tuning:
        if len(self.configs) == 1:
            return Tuning(self.configs[0])
        named = self._named(args, keywords)
        gpus = [d.ordinal for d in devices_of(named).values() if d.kind == "cuda"]
        if not gpus:
            note = "there is no GPU to time on: the first configuration that builds is taken"
            return self._first_feasible(args, keywords, note)
        store = self._store or store_at(cache_folder())
        disk_key = self._disk_key(key, gpus[0])
        kept = Tuning.decode(store.get(disk_key), self.configs) if self._keep else None
        if kept is not None:
            return kept
        stream = current_stream(named)(gpus[0])
        refuse_capture(f"the tuning of {self.name}", "timing a kernel", stream, gpus[0])
        with line_on(sys.stderr):
            tuning = self._time_all(grid, args, keywords)
        LOGGER.info("tuned %s:\n%s", self.name, tuning.table())
        if self._keep:
            title = f"{self.name}({', '.join(map(str, key))})"
            store.put(disk_key, tuning.encode(self.configs, title))
        return tuning

    def _first_feasible(
        self, args: Sequence[Any], keywords: Mapping[str, Any], note: str
    ) -> Tuning:
        skipped: dict[Config, str] = {}
        for config in self._pruned(args, keywords):
            try:
                self._build(args, keywords, config)
            except TawaError as error:
                if not _concerns_configuration(error):
                    raise
                skipped[config] = error.brief
                continue
            return Tuning(config, skipped=skipped, note=note)
        raise self._none_left(skipped)

    def _time_all(self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Tuning:
        times: dict[Config, list[float]] = {}
        skipped: dict[Config, str] = {}
        configs = self._pruned(args, keywords)
        failed = self._build_at_once(args, keywords, configs)
        for number, config in enumerate(configs, 1):
            tell(f"tuning {self.name}: {number} of {len(configs)}: {config}")
            try:
                if (failure := failed.get(config)) is not None:
                    raise failure
                times[config] = self._time(grid, args, keywords, config)
            except TawaError as error:
                if not _concerns_configuration(error):
                    raise
                skipped[config] = error.brief
            except Exception as error:  # of torch, for a fault of the kernel that is timed
                error.add_note(f"while {self.name} was timed with {config}")
                raise
        if not times:
            raise self._none_left(skipped)
        best = min(times, key=lambda config: times[config][0])
        self._hooks.prepare(self._named(args, keywords, best))
        return Tuning(best, times, skipped)

    def _build_at_once(
        self, args: Sequence[Any], keywords: Mapping[str, Any], configs: Sequence[Config]
    ) -> Mapping[Config, Exception]:
        """Build configurations in threads, before any is timed; return what cannot be built.

        NVRTC runs beside the interpreter. Where a hook changes the arguments first, configurations
        cannot be built at once, and none is.
        """
        if any(config.pre_hook is not None for config in configs):
            return {}
        failed: dict[Config, Exception] = {}
        with ThreadPoolExecutor(thread_name_prefix=f"tawa tunes {self.name}") as pool:
            building = {
                pool.submit(self._build, args, keywords, config): config for config in configs
            }
            for number, made in enumerate(as_completed(building), 1):
                tell(f"tuning {self.name}: built {number} of {len(configs)}")
                failure = made.exception()
                if isinstance(failure, Exception):
                    failed[building[made]] = failure
                elif failure is not None:
                    raise failure
        return failed

    def _time(
        self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any], config: Config
    ) -> list[float]:
        self._build(args, keywords, config)  # so that what is timed is launches only
        named = self._named(args, keywords, config)

        def run() -> None:
            if config.pre_hook is not None:
                config.pre_hook(named)
            copies = self._hooks.prepare(named, restore=True)
            failure: BaseException | None = None
            try:
                self.fn.launch(grid, args, {**keywords, **config.all_kwargs()})
            except BaseException as error:
                failure = error
                raise
            finally:
                self._hooks.finish(named, copies, failure)

        return self._timer.time(run)

    def _pruned(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> list[Config]:
        configs: Sequence[Config] = self.configs
        positional = dict(zip(self.arg_names, args))
        if self._pruning.early is not None:
            asked: list[Any] = [self._originals.get(config, config) for config in configs]
            kept = self._pruning.early(asked, positional, **keywords)
            configs = [Config.of(config) for config in kept]
            if not configs:
                raise TuningError(
                    f"early_config_prune left no configuration of {self.name}",
                    why=f"it was given {len(asked)}",
                    remedy="let it return at least one",
                )
        model = self._pruning.model
        if model is None:
            return list(configs)
        top = self._pruning.top_k
        count = int(len(self.configs) * top) if isinstance(top, float) and top <= 1 else int(top)
        estimates = {
            config: model(**positional, **keywords, **config.all_kwargs()) for config in configs
        }
        return sorted(estimates, key=lambda config: estimates[config])[: max(1, count)]

    def _none_left(self, skipped: Mapping[Config, str]) -> TuningError:
        reasons = "".join(f"\n    {config}: {reason}" for config, reason in skipped.items())
        return TuningError(
            f"none of the {len(skipped)} configurations of {self.name} can be built",
            why=f"each has its reason:{reasons}",
            remedy="add a configuration with smaller block sizes or fewer stages",
        )

    # --- results on disk --------------------------------------------------------------------

    def _disk_key(self, key: tuple[Any, ...], device: int) -> str:
        from tawa.runtime.dispatch import gpu_target

        parts = (
            "tuning",
            compiler_digest(),
            self.kernel.text_digest,
            [str(config) for config in self.configs],
            [repr(value) for value in key],
            gpu_target(device),
        )
        return repr(parts)


def _concerns_configuration(error: TawaError) -> bool:
    """Tell whether an error speaks of one configuration, so that others may still do."""
    if isinstance(error, ProtocolError):
        return isinstance(error, UnprovedProtocol)
    if isinstance(error, LaunchError):
        return not error.lost
    return not isinstance(error, _NOT_THE_CONFIGURATION)


def _with_note(kernel: CompiledKernel, tuning: Tuning) -> CompiledKernel:
    """Return the kernel with the tuning's note and what it skipped among the declined."""
    if not tuning.note and not tuning.skipped:
        return kernel
    if (known := tuning.reports.get(kernel)) is not None:
        return known
    notes = [Declined("autotune", tuning.note)] if tuning.note else []
    notes += [Declined(f"configuration {config}", why) for config, why in tuning.skipped.items()]
    noted = replace(kernel, declined=(*kernel.declined, *notes))
    return tuning.reports.setdefault(kernel, noted)
