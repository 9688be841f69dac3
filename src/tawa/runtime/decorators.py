"""The decorators: `jit`, `autotune`, `heuristics`, and what they make of Triton's own objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from tawa.errors import ArgumentError
from tawa.frontend.source import held_by
from tawa.runtime.autotune import Autotuner
from tawa.runtime.config import Heuristics
from tawa.runtime.jit import JitFunction, Launchable
from tawa.runtime.tuning import Hook, Hooks, Pruning, Timer

P = ParamSpec("P")
R = TypeVar("R")


class _Decorated(Protocol):
    """What stands around a kernel's function: Triton's JITFunction, Autotuner, Heuristics; ours."""

    @property
    def fn(self) -> Any: ...


class JitOptions(TypedDict, total=False):
    """What `jit` takes besides the function."""

    do_not_specialize: Iterable[int | str] | None
    do_not_specialize_on_alignment: Iterable[int | str] | None
    debug: bool | None
    noinline: bool | None
    repr: Callable[..., str] | None
    launch_metadata: Callable[..., Any] | None
    version: Any


@overload
def jit(function: Callable[P, R], **options: Unpack[JitOptions]) -> JitFunction[P, R]: ...
@overload
def jit(
    function: None = None, **options: Unpack[JitOptions]
) -> Callable[[Callable[P, R]], JitFunction[P, R]]: ...
@overload
def jit(function: _Decorated, **options: Unpack[JitOptions]) -> Any: ...
def jit(function: Any = None, **options: Unpack[JitOptions]) -> Any:
    """Make a kernel of a Python function, or of a Triton kernel with its tuning kept.

    Use as ``@tawa.jit``, ``@tawa.jit(do_not_specialize=["n"])`` or ``tawa.jit(triton_kernel)``.
    Returns what is launched with ``kernel[grid](...)``. With `debug` every ``tl.device_assert`` is
    compiled, and sums, differences and products of integers are checked not to overflow;
    ``kernel[grid](..., debug=...)`` decides otherwise for a launch. `noinline`, `repr`,
    `launch_metadata` and `version` are Triton's and have no effect on the kernel's meaning: they
    are taken and not used.

    >>> import tawa
    >>> @tawa.jit
    ... def scale(x, factor): ...
    >>> scale.arg_names
    ['x', 'factor']
    """
    unused = ("noinline", "repr", "launch_metadata", "version")
    taken = {n: v for n, v in options.items() if n not in unused and v is not None}
    return partial(wrap, **taken) if function is None else wrap(function, **taken)


def autotune(
    configs: Sequence[Any],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Hook | None = None,
    post_hook: Hook | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = True,
) -> Callable[[Any], Autotuner]:
    """Try `configs` for each new value of the arguments named in `key`, and keep the fastest.

    The arguments are Triton's: `prune_configs_by` may hold "perf_model", "top_k" and
    "early_config_prune"; `reset_to_zero` and `restore_value` name arrays that a run changes;
    `pre_hook(args, reset_only=False)` and `post_hook(args, exception=None)` replace that; `warmup`
    and `rep` are milliseconds. Results are kept on disk, unless `cache_results` is false.

    >>> @tawa.autotune([tawa.Config({"B": 64}), tawa.Config({"B": 128})], key=["n"])
    ... @tawa.jit
    ... def double(x, n, B: tl.constexpr):
    ...     at = tl.program_id(0) * B + tl.arange(0, B)
    ...     tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
    >>> x = np.ones(200, np.float32)
    >>> kernel = double[lambda meta: (tawa.cdiv(200, meta["B"]),)](x, 200)
    >>> float(x.sum()), double.best_config
    (400.0, Config(B=64))
    """
    prune = dict(prune_configs_by or {})
    pruning = Pruning(
        prune.pop("early_config_prune", None),
        prune.pop("perf_model", None),
        prune.pop("top_k", 1.0),
    )
    if prune:
        raise ArgumentError(
            f"prune_configs_by does not know {', '.join(map(repr, prune))}",
            why="its entries are perf_model, top_k and early_config_prune",
        )
    hooks = Hooks(tuple(reset_to_zero or ()), tuple(restore_value or ()), pre_hook, post_hook)
    timer = Timer(do_bench, warmup or 25, rep or 100, use_cuda_graph)

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            wrap(fn), configs, key, pruning=pruning, hooks=hooks, timer=timer, keep=cache_results
        )

    return decorate


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Compute meta-parameters from the other arguments at each launch: name → function of them.

    >>> @tawa.heuristics({"B": lambda given: 128 if given["n"] > 64 else 64})
    ... @tawa.jit
    ... def zero(x, n, B: tl.constexpr):
    ...     tl.store(x + tl.arange(0, B), 0.0, mask=tl.arange(0, B) < n)
    >>> zero.compile(tawa.array((100,), "f32"), 100).signature["B"].value
    128
    """

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(wrap(fn), values)

    return decorate


def wrap(function: Any, **options: Any) -> Launchable:
    """Return the launchable of a function: plain, ours, or Triton's with its decorators kept."""
    if isinstance(function, Launchable):
        if options:
            raise ArgumentError(
                f"tawa.jit got {', '.join(options)} for what it has made a kernel of already",
                why="the options of a kernel are those it was made with",
                remedy="give them where the function itself is decorated",
            )
        return function
    if isinstance(inner := getattr(function, "function", None), Launchable):  # of compile_ir
        return wrap(inner, **options)
    if is_autotuner(function):
        return Autotuner.of(function, wrap(function.fn, **options))
    if is_heuristics(function):
        return Heuristics(wrap(function.fn, **options), function.values)
    if isinstance(function, FunctionType):
        if function.__name__ == "<lambda>":
            raise ArgumentError(
                "tawa.jit got a lambda",
                why="a kernel stores its results, and an expression stores nothing",
                remedy="write it as a function, with def",
            )
        made: JitFunction[..., Any] = JitFunction(function, **options)
        return made
    if isinstance(getattr(function, "fn", None), FunctionType):
        inner = held_by(function)
        kept: dict[str, Any] = {
            "do_not_specialize": getattr(function, "do_not_specialize", None) or (),
            "do_not_specialize_on_alignment": getattr(
                function, "do_not_specialize_on_alignment", None
            )
            or (),
            "debug": getattr(function, "debug", None),
            "hooks": tuple(getattr(function, "pre_run_hooks", None) or ()),
        }
        kernel: JitFunction[..., Any] = JitFunction(inner, **{**kept, **options})
        return kernel
    raise ArgumentError(
        f"tawa.jit got an object of type {type(function).__name__}",
        why="it takes a Python function, or a function under triton.jit",
        remedy="decorate the kernel's function itself",
    )


def is_autotuner(value: Any) -> bool:
    """Tell whether an object is a Triton Autotuner, by its attributes."""
    return all(hasattr(value, name) for name in ("fn", "configs", "keys", "prune_configs"))


def is_heuristics(value: Any) -> bool:
    """Tell whether an object is a Triton Heuristics, by its attributes."""
    return (
        type(value).__name__ == "Heuristics" and hasattr(value, "fn") and hasattr(value, "values")
    )
