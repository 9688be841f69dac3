"""Launches of Triton kernels as a package's own Python wrappers make them, with or without a GPU.

`capture(found, seen, pretend)` is a context in which every launch of a `triton.jit` kernel is
handed to `found`, once for each kernel, types and constants. With `pretend` nothing is launched
and no GPU is needed: tensors are the CPU's but say that they are CUDA's, ``device="cuda"`` makes
such tensors, `torch.cuda` and Triton's driver describe an H100, fresh memory is zero, and an
autotuner takes its first configuration. On a GPU the launches run too, and autotuners choose by
time as always.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

import third_party_inductor

CUDA = torch.device("cuda", 0)
_FRESH = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_PRODUCTS = (
    "matmul",
    "mm",
    "bmm",
    "einsum",
    "linear",
    "scaled_dot_product_attention",
    "__matmul__",
)
_BENCHED = (1.0, 1.0, 1.0)  # median and quantiles of a configuration that nobody runs


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: `fn` is the triton.jit kernel, `values` its arguments by name."""

    fn: Any
    values: Mapping[str, Any]
    grid: tuple[int, ...]
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.fn.fn.__qualname__.rsplit(".", 1)[-1]

    @property
    def place(self) -> str:
        """The module and the name, which two kernels do not share."""
        return f"{self.fn.fn.__module__}.{self.fn.fn.__qualname__}"

    @property
    def constants(self) -> str:
        """The options and the numbers among the constants."""
        names = (p.name for p in self.fn.params if p.is_constexpr)
        numbers = {n: v for n in names if isinstance(v := self.values.get(n), int)}
        return " ".join(f"{name}={value}" for name, value in {**self.options, **numbers}.items())

    def key(self) -> object:
        """What Triton compiles anew for: types, constants, options; not sizes."""
        constant = {p.name for p in self.fn.params if p.is_constexpr}
        kinds = (
            (name, repr(value) if name in constant else _kind(value))
            for name, value in self.values.items()
        )
        options = (f"{name}={value!r}" for name, value in sorted(self.options.items()))
        return id(self.fn), tuple(kinds), tuple(options)


def _kind(value: Any) -> str:
    kind = type(value).__name__
    if (block := getattr(value, "block_shape", None)) is not None:
        return f"{kind}{block}{value.base.dtype}"
    if isinstance(value, int):
        return f"{kind}{value == 1}"
    return f"{kind}{getattr(value, 'dtype', '')}"


class Idle:
    """What a launch that did not take place returns: wrappers may ask it, or launch it again."""

    n_regs, n_spills, num_warps = 128, 0, 4
    metadata = types.SimpleNamespace(num_warps=4, shared=1024, num_stages=2)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *values, **options: None

    def _init_handles(self) -> None: ...


def _launch(fn: Any, args: Any, keywords: Mapping[str, Any], grid: Any) -> Launch:
    named = {k: v for k, v in keywords.items() if k in fn.arg_names}
    bound = fn.signature.bind(*args, **named)
    bound.apply_defaults()
    values = dict(bound.arguments)
    shape = grid(values) if callable(grid) else grid
    own = {k: v for k, v in keywords.items() if k not in fn.arg_names}
    return Launch(fn, values, tuple(int(n) for n in shape), own)


def _place(values: Mapping[str, Any]) -> None:
    """Let arguments that keep the device of a tensor say where it is in truth."""
    for value in values.values():
        if getattr(value, "__dict__", {}).get("device") == CUDA:
            value.device = torch.device("cpu")


@contextlib.contextmanager
def capture(found: Callable[[Launch], None], seen: set[object], pretend: bool) -> Iterator[None]:
    """Hand each launch that is not in `seen` to `found`; with `pretend` without launching it."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    tuning = 0
    plain_run, plain_bench = JITFunction.run, Autotuner._bench

    def run(fn: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        if not tuning and not warmup and grid is not None:
            launch = _launch(fn, args, keywords, grid)
            if pretend:
                _place(launch.values)
            if all(launch.grid) and (key := launch.key()) not in seen:
                seen.add(key)
                found(launch)
        if pretend:
            return Idle()
        return plain_run(fn, *args, grid=grid, warmup=warmup, **keywords)

    def bench(tuner: Any, *args: Any, **keywords: Any) -> Any:
        nonlocal tuning
        if pretend:
            return list(_BENCHED)
        tuning += 1
        try:
            return plain_bench(tuner, *args, **keywords)
        finally:
            tuning -= 1

    def taken(fn: Any, values: Any, grid: Any, options: Any) -> None:
        launch = Launch(fn, values, grid, options)
        if all(grid) and (key := launch.key()) not in seen:
            seen.add(key)
            found(launch)

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(JITFunction, "run", run))
        stack.enter_context(patch.object(Autotuner, "_bench", bench))
        stack.enter_context(patch.object(Autotuner, "check_disk_cache", _uncached))
        stack.enter_context(patch.object(torch, "compile", _uncompiled))
        if pretend:
            stack.enter_context(pretended_gpu())
        stack.enter_context(third_party_inductor.launches(taken, pretend))
        yield


def _uncached(tuner: Any, key: Any, configurations: Any, bench: Callable[[], None]) -> bool:
    bench()
    return False


def _uncompiled(function: Any = None, **options: Any) -> Any:
    """In place of torch.compile: the kernels that a package wrote are wanted, not Inductor's."""
    return function if function is not None else lambda f: f


# --- a GPU that is not there ----------------------------------------------------------------


class _OnCpu(TorchFunctionMode):
    """Makes on the CPU what is asked for on a GPU, fresh memory zero, and products zero too."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        placed = {k: _moved(v) for k, v in (kwargs or {}).items()}
        name = getattr(func, "__name__", "")
        moved = [_moved(v) for v in args]
        if name in _PRODUCTS and not _has_gradient(moved, placed):
            made = func(*tree_map(_shape_of, moved), **tree_map(_shape_of, placed))
            return torch.zeros_like(made, device="cpu")
        made = func(*moved, **placed)
        if name in _FRESH and isinstance(made, torch.Tensor):
            made.zero_()
        return made


def _has_gradient(*values: Any) -> bool:
    return any(isinstance(v, torch.Tensor) and v.requires_grad for v in tree_leaves(values))


def _shape_of(value: Any) -> Any:
    """Return a tensor without memory: what products of references are is not looked at."""
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _backward(*args: Any, **keywords: Any) -> Any:
    """Run backward, which calls Python: under the mode that a torch function left on its way."""
    with _OnCpu():
        return torch.autograd.graph._engine_run_backward(*args, **keywords)


def _impl(library: Any, name: Any, call: Any, dispatch_key: str = "", **options: Any) -> Any:
    """Register an implementation for CUDA as the CPU's; it runs under the mode, as `_backward`."""

    @functools.wraps(call)
    def called(*args: Any, **keywords: Any) -> Any:
        with _OnCpu():
            return call(*args, **keywords)

    key = dispatch_key.replace("CUDA", "CPU")
    return _LIBRARY_IMPL(library, name, called if key == "CPU" else call, key, **options)


_LIBRARY_IMPL = torch.library.Library.impl
_REAL_DEVICE = torch.Tensor.device


def _device(tensor: torch.Tensor) -> torch.device:
    """Say CUDA of what is the CPU's; tensors of no memory at all (meta) stay what they are."""
    real = _REAL_DEVICE.__get__(tensor)
    return CUDA if real.type == "cpu" else real


def _moved(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


PROPERTIES = types.SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    multi_processor_count=132,
    warp_size=32,
    total_memory=80 << 30,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    regs_per_multiprocessor=65536,
    L2_cache_size=50 << 20,
    gcnArchName="",
)


class _Stream:
    """A stream or event on which nothing runs."""

    cuda_stream = 0
    device = CUDA

    def __init__(self, *args: Any, **keywords: Any) -> None: ...

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **keywords: 1.0


class _Generator:
    """The state of CUDA's random numbers: a seed and an offset, of 8 bytes each."""

    def get_state(self) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **keywords: 0


class Driver:
    """Triton's driver of an H100 that is not there."""

    class utils:
        @staticmethod
        def get_device_properties(device: int) -> dict[str, int]:
            return {
                "max_shared_mem": PROPERTIES.shared_memory_per_block_optin,
                "max_num_regs": PROPERTIES.regs_per_multiprocessor,
                "multiprocessor_count": PROPERTIES.multi_processor_count,
                "warpSize": PROPERTIES.warp_size,
                "sm_clock_rate": 1_980_000,
                "mem_clock_rate": 2_619_000,
                "mem_bus_width": 5120,
            }

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None: ...

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return 9, 0

    def get_active_torch_device(self) -> torch.device:
        return CUDA

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Any:
        return lambda call, quantiles=None, **options: list(_BENCHED)


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    """Let torch and Triton believe in an H100; their tensors are the CPU's."""
    from triton.runtime import driver

    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": (9, 0),
        "get_device_name": PROPERTIES.name,
        "get_device_properties": PROPERTIES,
        "current_stream": _Stream(),
        "default_stream": _Stream(),
        "synchronize": None,
        "empty_cache": None,
        "set_device": None,
        "is_current_stream_capturing": False,
        "is_bf16_supported": True,
        "mem_get_info": (80 << 30, 80 << 30),
        "memory_allocated": 0,
        "manual_seed_all": None,
        "is_initialized": True,
        "init": None,
        "_lazy_init": None,
    }
    contexts = ("Stream", "Event", "device", "device_of", "stream", "_DeviceGuard", "StreamContext")
    tensor: dict[str, Any] = {
        "is_cuda": property(lambda self: _device(self) == CUDA),
        "device": property(_device),
        "cuda": lambda self, *args, **keywords: self,
        "get_device": lambda self: 0,
        "record_stream": lambda self, stream: None,
        "pin_memory": lambda self, *args: self,
    }
    before = driver._active
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            fixed = lambda *args, answer=answer, **keywords: answer  # noqa: E731
            stack.enter_context(patch.object(torch.cuda, name, fixed))
        for name in contexts:
            stack.enter_context(patch.object(torch.cuda, name, _Stream, create=True))
        for name, value in tensor.items():
            stack.enter_context(patch.object(torch.Tensor, name, value, create=True))
        stack.enter_context(patch.object(torch.autograd, "_engine_run_backward", _backward))
        stack.enter_context(patch.object(torch.library.Library, "impl", _impl))
        stack.enter_context(patch.object(torch.cuda, "default_generators", (_Generator(),)))
        stack.enter_context(patch.object(torch.version, "cuda", "13.0"))
        stack.enter_context(_OnCpu())
        driver.set_active(Driver())
        try:
            yield
        finally:
            driver._active = before
