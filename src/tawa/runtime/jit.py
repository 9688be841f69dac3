"""`tawa.jit`: a kernel that is compiled when it is launched, for the arguments it is launched with.

``kernel[grid](*args, **meta)`` enters generated code (`tawa.runtime.forms`); this module is what
runs when that code meets something new: it derives the signature, compiles, and makes the launcher
for the device that holds the data.

Length: one class follows a launch from the user's brackets to the launcher.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from sys import modules
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast

from tawa.constants import freeze, is_exact
from tawa.errors import ArgumentError, InternalError
from tawa.frontend.signature import ConstantArg
from tawa.frontend.source import lines_of, unwrapped
from tawa.plan.pins import Pins
from tawa.runtime.arrays import Device, array
from tawa.runtime.build import Compiler, build, default_compiler
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.descriptors import is_descriptor, like
from tawa.runtime.dispatch import (
    GpuKernel,
    Launcher,
    Stream,
    common_device,
    current_stream,
    devices_of,
    runs_cubin,
    simulated_launcher,
    target_for,
    warn_of,
)
from tawa.runtime.dtypes import dtype_name
from tawa.runtime.fingerprint import Binding, Fingerprint, fingerprint
from tawa.runtime.forms import MISSING, make_binder, make_form
from tawa.runtime.kernel import KernelFunction
from tawa.runtime.locks import Lock
from tawa.runtime.request import Request
from tawa.runtime.specialize import Call, bind, derive_signature
from tawa.runtime.store import DiskStore, cache_folder, store_at
from tawa.runtime.tensors import DYNAMO, keep_out, opaque, undisturbed
from tawa.runtime.tuples import spread_kernel, spread_values, tuples_of


class Launchable:
    """What can be launched, compiled and explained: a kernel, perhaps tuned or with heuristics."""

    arg_names: list[str]

    def launch(self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> CompiledKernel:
        """Launch on `grid` with the arguments of a call; returns the kernel that ran."""
        raise NotImplementedError

    def run(self, *args: Any, grid: Any, warmup: bool = False, **keywords: Any) -> CompiledKernel:
        """Launch, or with `warmup` compile. As all launches here it calls none of the hooks in
        `triton.knobs.runtime`: a launch enters no Python frame but those of `pre_run_hooks`.
        """
        if warmup:
            return self.warmup(*args, grid=grid, **keywords)
        return self[grid](*args, **keywords)

    def compile(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile without launching; needs no GPU, and arguments may be placeholders."""
        raise NotImplementedError

    def compile_to_run(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile what a launch with these arguments runs."""
        return self.compile(*args, grid=grid, **meta)

    def compile_plain(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile the ordinary kernel: what a launch runs where a guard of `compile`'s fails."""
        raise NotImplementedError

    @opaque
    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        """Return the kernel on a grid: a tuple, or a function of the meta-parameters."""
        keep_out()
        launch = undisturbed(self.launch)
        return opaque(lambda *args, **keywords: launch(grid, args, keywords))

    def explain(self, *args: Any, **meta: Any) -> str:
        """Compile and return the report: roles, arefs, memory, proof, what was declined, times."""
        return str(self.compile(*args, **meta))

    def warmup(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile, as Triton's method of this name: a type of torch's means an array of it."""
        return self.compile(*map(_array_of, args), grid=grid, **meta)


def _array_of(value: object) -> object:
    is_type = str(type(value)) == "<class 'torch.dtype'>"
    return array((1,), dtype_name(value)) if is_type else value


@dataclass(frozen=True, slots=True)
class Entry:
    """What launches of the same facts enter: `launcher(grid, options, *values, *more)`.

    `likes` are the values in order, without their data; `more` is what `launch_names` says.
    `bindings` must be what they were.
    """

    launcher: Launcher
    likes: Mapping[str, Any]
    bindings: tuple[Binding, ...]


REFUSED = {
    "device_caches": "launches and warmup() return the compiled kernel",
    "create_binder": "launches and warmup() return the compiled kernel",
    "preload": "compiled kernels are kept on disk; warmup() brings one into the process",
    "src": "inspect.getsource(kernel.fn) has the text",
}
"""What kernels of Triton have for its own launches, and what there is here."""
P = ParamSpec("P")
R = TypeVar("R")


class JitFunction(Launchable, Generic[P, R]):
    """A kernel. `fn` is its Python function, `arg_names` its parameters.

    To type checkers it has the function's own signature, for who calls it from another kernel.

    `compiler` and `store` replace the compile driver and the disk cache, for tests; `kernel` is
    what is else read from the function.

    >>> @tawa.jit
    ... def double(x, n, B: tl.constexpr):
    ...     at = tl.program_id(0) * B + tl.arange(0, B)
    ...     tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
    >>> x = np.ones(200, np.float32)
    >>> made = double[4,](x, 200, B=64)
    >>> float(x.sum())
    400.0
    """

    def __init__(
        self,
        function: FunctionType,
        *,
        do_not_specialize: Iterable[int | str] = (),
        do_not_specialize_on_alignment: Iterable[int | str] = (),
        debug: bool | None = None,
        hooks: Sequence[Callable[..., Any]] = (),
        compiler: Compiler | None = None,
        store: DiskStore | None = None,
        kernel: KernelFunction | None = None,
    ) -> None:
        self.fn = function
        with suppress(OSError):  # there is none: the frontend says it better
            lines_of(unwrapped(function))
        self.kernel = kernel or KernelFunction(
            function, do_not_specialize, do_not_specialize_on_alignment, debug
        )
        self.arg_names = list(self.kernel.names)
        self.pre_run_hooks = list(hooks)
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self._compiler = compiler
        self._store = store
        self._lock = Lock()
        self._kernels: dict[object, GpuKernel] = {}
        self._under_way: dict[object, Future[GpuKernel]] = {}
        self._text: Fingerprint | None = None
        self._forms: dict[Any, Launcher] = {}
        self._by_bits: dict[Any, Launcher] = {}
        self._binder: Launcher = self._first_launch
        self._spread: dict[object, JitFunction[..., Any]] = {}
        self._whole: JitFunction[..., Any] = self
        self._launchers: dict[object, Launcher] = {}

    def __repr__(self) -> str:
        return f"<tawa.jit {self.__module__}.{self.__qualname__}>"

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> R:
        """Refuse: a kernel runs on a grid, and a helper is called by kernels only."""
        raise ArgumentError(
            f"{self.__name__} is called like a Python function",
            why="a function under tawa.jit runs on a grid, or is called from a kernel",
            remedy=f"launch it with {self.__name__}[grid](...)",
        )

    # --- launch -----------------------------------------------------------------------------

    @opaque
    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        """Return the kernel on a grid: a tuple, or a function of the meta-parameters.

        The result is a C object around generated code: the launch itself enters no other frame.
        """
        if DYNAMO in modules:
            keep_out()
        if self.pre_run_hooks:
            return partial(self._launch_hooked, grid)
        return partial(self._binder, grid)

    def launch(self, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> CompiledKernel:
        """Launch on `grid` with the arguments of a call; returns the kernel that ran."""
        try:
            return self[grid](*args, **keywords)
        except TypeError as error:
            if (trace := error.__traceback__) is not None and trace.tb_next is None:
                bind(self.kernel, args, keywords)  # says it with the kernel's names
            raise

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call `hook` with the arguments of each launch by `kernel[grid]` from here on, before it;
        the list `pre_run_hooks` has all.
        """
        self.pre_run_hooks.append(hook)

    def _launch_again(
        self, request: Request, grid: Any, *args: Any, **given: Any
    ) -> CompiledKernel:
        """Launch with the options of a request, and its constants, that are not `given`; tuples
        are given as they are.
        """
        whole = self._whole
        left = set(whole.kernel.names[len(args) :]) - set(given)
        constants = {
            name: argument.value
            for name, argument in request.signature.items()
            if name in left and isinstance(argument, ConstantArg)
        }
        pins = {field.name: getattr(request.pins, field.name) for field in fields(request.pins)}
        options = {**request.options, **pins, "strict": request.strict or None}
        more = {
            name: value
            for name, value in options.items()
            if value is not None and name not in whole.kernel.by_name
        }
        return whole[grid](*args, **constants, **{**more, **given})

    def _launch_hooked(self, grid: Any, *args: Any, **keywords: Any) -> CompiledKernel:
        for hook in self.pre_run_hooks:
            hook(*args, **keywords)
        return self._binder(grid, *args, **keywords)

    @opaque
    def _first_launch(self, grid: Any, *args: Any, **keywords: Any) -> CompiledKernel:
        """Launch what was put on its grid before any launch: such a `kernel[grid]` may be kept."""
        if self._binder == self._first_launch:
            bind(self.kernel, args, keywords)
            self._renew()
        return self._binder(grid, *args, **keywords)

    @undisturbed
    def _renew(self) -> Fingerprint:
        """Read the kernel's text and generate the binder that watches its variables."""
        with self._lock:
            self._text = self._read_text()
            self._forms, self._by_bits = {}, {}
            self._binder = make_binder(
                self.kernel, self._text.bindings, self._forms, self._learn, self._launch_anew
            ).function
            return self._text

    @undisturbed
    def _launch_anew(
        self, grid: Any, values: Sequence[Any], options: Mapping[str, Any]
    ) -> CompiledKernel:
        """Launch after a global or closure variable of the kernel was rebound.

        That may have been long ago, for who keeps kernel[grid] from before.
        """
        self._current()
        given = {n: v for n, v in zip(self.kernel.names, values) if v is not MISSING}
        return self._binder(grid, **given, **options)

    def _read_text(self) -> Fingerprint:
        try:
            return fingerprint(self.fn)
        except (OSError, TypeError, SyntaxError):
            return Fingerprint("", ())  # no source: nothing to key by; the frontend says it better

    @property
    def text_digest(self) -> str:
        """The hash of the kernel's text, helpers and globals; "" when there is no source."""
        return self._current().digest

    @property
    def cache_key(self) -> str:
        """The hash of the kernel's text, helpers and globals, by Triton's name."""
        return self.text_digest

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            more = f": {REFUSED[name]}" if name in REFUSED else ""
            raise AttributeError(f"a kernel of tawa has no {name}{more}")

    def _current(self) -> Fingerprint:
        """Return the kernel's text, read again where a variable of it was rebound."""
        text = self._text
        if text is None or any(binding.changed() for binding in text.bindings):
            text = self._renew()
        return text

    @undisturbed
    def _learn(
        self,
        key: tuple[Any, ...],
        options: Mapping[str, Any],
        values: Sequence[Any],
        more: Sequence[Any],
    ) -> Launcher:
        """Return the form of a call that was not seen yet (or whose constants do not hash)."""
        frozen = freeze(key)
        with suppress(TypeError):
            if (known := self._by_bits.get(frozen)) is not None:
                return known
        if more:
            bind(self.kernel, (*values, *more), options)
        given = {n: v for n, v in zip(self.kernel.names, values) if v is not MISSING}
        call = bind(self.kernel, (), {**given, **options})
        if tuples_of(self.kernel, call.values):
            return self._keep(key, frozen, options, values, self._launch_spread)
        try:
            hash(frozen)
        except TypeError as error:
            raise ArgumentError(
                f"a constant of {self.__name__} cannot be hashed",
                why=f"{error}: kernels are kept by the value of their constants",
                remedy="pass numbers, strings, types, functions, or tuples of them",
            ) from error
        table: dict[Any, Launcher] = {}
        form = make_form(self.kernel, call.values, table, partial(self._specialize, table))
        return self._keep(key, frozen, options, values, form.function)

    def _keep(
        self,
        key: tuple[Any, ...],
        frozen: Any,
        options: Mapping[str, Any],
        values: Sequence[Any],
        form: Launcher,
    ) -> Launcher:
        """Keep and return the form of a call. Where equal constants need not be the same, what a
        launch finds by them looks at their bits first.
        """
        form = self._by_bits.setdefault(frozen, form)
        constants = [v for p, v in zip(self.kernel.parameters, values) if p.constexpr]
        exact = all(map(is_exact, (*constants, *options.values())))
        with suppress(TypeError):  # no launch finds what does not hash
            self._forms[key] = form if exact else self._launch_by_bits
        return form

    def _launch_by_bits(
        self, grid: Any, options: Mapping[str, Any], *values: Any
    ) -> CompiledKernel:
        """Launch with constants such as 0.0 or (1, 2), which are equal to others."""
        key: list[Any] = []
        for parameter, value in zip(self.kernel.parameters, values):
            key += (type(value), value) if parameter.constexpr else (type(value),)
        form = self._learn((*key, *options.items()), options, values, ())
        return form(grid, options, *values)

    def _launch_spread(self, grid: Any, options: Mapping[str, Any], *values: Any) -> CompiledKernel:
        """Launch with tuples among the arguments."""
        inner, named = self.spread(dict(zip(self.kernel.names, values)))
        return inner[grid](**named, **options)

    def spread(self, values: Mapping[str, Any]) -> tuple[JitFunction[..., Any], Mapping[str, Any]]:
        """Return the kernel whose parameters are the items of the tuples among `values`, and its
        arguments; this kernel where there are none.
        """
        shapes = tuples_of(self.kernel, values)
        if not shapes:
            return self, values
        key = tuple(shapes.items())
        inner = self._spread.get(key)
        if inner is None:
            kernel = spread_kernel(self.kernel, shapes)
            made: JitFunction[..., Any] = JitFunction(
                self.fn, compiler=self._compiler, store=self._store, kernel=kernel
            )
            made._whole = self
            inner = self._spread.setdefault(key, made)
        return inner, spread_values(inner.kernel.groups, values)

    @undisturbed
    def _specialize(
        self,
        table: dict[Any, Launcher],
        key: tuple[Any, ...],
        options: Mapping[str, Any],
        values: Sequence[Any],
    ) -> Launcher:
        """Compile for the facts of a call, and keep and return the launcher for them."""
        call = bind(self.kernel, (), {**dict(zip(self.kernel.names, values)), **options})
        device = common_device(self.__name__, call.values)
        return table.setdefault(key, self._launcher_for(self._request(call), call.values, device))

    def _launcher_for(
        self, request: Request, values: Mapping[str, Any], device: Device
    ) -> Launcher:
        """Return the launcher of a request for arguments like these, one for all who enter it."""
        bases = (v.base if is_descriptor(v) else v for v in values.values())
        key = request.memory_key, device, tuple(cast("object", type(base)) for base in bases)
        if (launcher := self._launchers.get(key)) is None:
            stream = current_stream(values) if device.kind == "cuda" else int
            likes = {name: like(value) for name, value in values.items()}
            launcher = self._launcher(request, likes, device, stream)
            launcher = self._launchers.setdefault(key, launcher)
        return launcher

    def _launcher(
        self, request: Request, values: Mapping[str, Any], device: Device, stream: Stream
    ) -> Launcher:
        """Return the launcher of a request for a device; it keeps `values`, so none has data."""
        compiled = self._build(replace(request, cubin=runs_cubin(device)))
        warn_of(compiled.kernel)
        otherwise = partial(self._plain_launcher, request, values, device, stream)
        if device.kind == "cpu":
            return simulated_launcher(compiled.kernel, values, otherwise)
        return compiled.launcher(values, device.ordinal, stream, otherwise)

    def enter(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Entry | None:
        """Return what a launch on a GPU enters, for who launches with the same facts again: all but
        the addresses, and of these their alignment. None where a launch does more than to enter it.
        """
        call = bind(self.kernel, args, keywords)
        given, device = call.values, common_device(self.__name__, call.values)
        if device.kind != "cuda" or self.pre_run_hooks or tuples_of(self.kernel, given):
            return None
        launcher = self._launcher_for(self._request(call), given, device)
        likes = {name: like(value) for name, value in given.items()}
        return Entry(launcher, likes, tuple(self._current().bindings))

    def _plain_launcher(
        self, request: Request, values: Mapping[str, Any], device: Device, stream: Stream
    ) -> Launcher:
        """Return the launcher of the ordinary kernel, for calls that a guard refuses."""
        plain = _plain(request)
        if request == plain:
            raise InternalError(
                f"the ordinary kernel of {self.__name__} has a guard that does not hold",
                why="without roles and promoted pointers, loads keep the order of the program",
                remedy="this is a fault of the compiler: please report it with the kernel",
            )
        return self._launcher(plain, values, device, stream)

    # --- compile ----------------------------------------------------------------------------

    def compile(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile without launching; needs no GPU, and arguments may be placeholders.

        `grid` is accepted as in a launch; it does not change the kernel.

        >>> kernel.compile(tawa.array((256, 64), "bf16"), ..., BLOCK_M=128).plan  # doctest: +SKIP
        """
        inner, call = self._call(args, meta)
        return inner._build(inner._request(call)).kernel

    def compile_to_run(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile what a launch with these arguments runs: arrays of the CPU need no cubin."""
        inner, call = self._call(args, meta)
        cubin = any(map(runs_cubin, devices_of(call.values).values()))
        return inner._build(replace(inner._request(call), cubin=cubin)).kernel

    def compile_plain(self, *args: Any, grid: Any = None, **meta: Any) -> CompiledKernel:
        """Compile the ordinary kernel: what a launch runs where a guard of `compile`'s fails."""
        inner, call = self._call(args, meta)
        return inner._build(_plain(inner._request(call))).kernel

    def _call(
        self, args: Sequence[Any], meta: Mapping[str, Any]
    ) -> tuple[JitFunction[..., Any], Call]:
        """Return a call taken apart, and the kernel it is one of."""
        call = bind(self.kernel, args, meta)
        inner, values = self.spread(call.values)
        return inner, replace(call, values=values)

    def _request(self, call: Call) -> Request:
        return Request(
            self.fn,
            self.text_digest,
            derive_signature(self.kernel, call.values),
            call.options,
            call.pins,
            target_for(call.values),
            call.strict,
        )

    def _build(self, request: Request) -> GpuKernel:
        """Return the kernel of a request, one with a cubin where there is one already; threads that
        want the same one wait for the first.
        """
        key = request.memory_key
        built = replace(request, cubin=True).memory_key
        at_work = (os.getpid(), key)  # a process forked off has not the thread it would wait for
        with self._lock:
            if (known := self._kernels.get(built) or self._kernels.get(key)) is not None:
                return known
            future = self._under_way.get(at_work)
            mine = future is None
            if future is None:
                future = self._under_way[at_work] = Future()
        if not mine:
            return future.result()
        try:
            compiler = self._compiler or default_compiler
            store = self._store or store_at(cache_folder())
            kernel = build(request, compiler, store)
            kernel = replace(kernel, again=partial(self._launch_again, request))
            made = self._kernels[key] = GpuKernel(kernel)
            future.set_result(made)
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[at_work]
        return made


def _plain(request: Request) -> Request:
    """Return the request of the ordinary kernel: no roles, no promoted pointers, so no guards."""
    return replace(request, descriptors=False, pins=Pins(specialize=False))
