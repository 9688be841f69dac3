# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`replace_triton`: kernels under `triton.jit`, a user's and torch.compile's, launched by tawa."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import tawa
from tawa.errors import MissingPackage, TawaError


@dataclass(slots=True)
class TritonReport:
    """Which kernels were taken, by name, and which Triton ran, with the compiler's reason."""

    taken: set[str] = field(default_factory=set[str])
    left: dict[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        """Return one line for each kernel."""
        lines = [f"taken  {name}" for name in sorted(self.taken)]
        lines += [f"left   {name}: {reason}" for name, reason in sorted(self.left.items())]
        return "\n".join(lines) or "no kernel was launched"


@contextmanager
def replace_triton(*, verbose: bool = True) -> Generator[TritonReport]:
    """Launch what ``kernel[grid](...)`` of Triton's launches by tawa, within a block or a function.

    So are kernels that torch.compile wrote, with the configurations that its own tuning chose. A
    kernel that tawa does not compile for its arguments is launched by Triton, which the report
    says; it is printed at the end. It is for one thread: others within it launch by tawa too.

        with tawa.torch.replace_triton() as report:
            model(x)

    Raises MissingPackage without Triton.
    """
    try:
        interface: Any = import_module("triton.runtime.jit").KernelInterface
    except ModuleNotFoundError as error:
        raise MissingPackage("triton is not installed", remedy="pip install triton") from error
    written: Any = import_module("torch._inductor.runtime.triton_heuristics").CachingAutotuner
    before, before_written = interface.__getitem__, written.run
    report = TritonReport()
    ours: dict[int, tuple[Any, Any]] = {}  # the kernel is kept, so that its id stays its own

    def taken(kernel: Any, grid: Any, *args: Any, **keywords: Any) -> Any:
        """Launch a kernel by tawa and return ours; None where it is refused, before it runs."""
        try:
            if id(kernel) not in ours:
                ours[id(kernel)] = kernel, tawa.jit(kernel)
            ran = ours[id(kernel)][1][grid](*args, **keywords)
        except TawaError as error:
            report.left[_name(kernel)] = error.brief
            return None
        report.taken.add(_name(kernel))
        return ran

    def on_grid(kernel: Any, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **keywords: Any) -> Any:
            ran = taken(kernel, grid, *args, **keywords)
            return before(kernel, grid)(*args, **keywords) if ran is None else ran

        return launch

    def run(kernel: Any, *args: Any, stream: Any, **keywords: Any) -> Any:
        if not keywords:  # else torch times it
            fn, values, grid, options = launch_of(kernel, args, _configuration(kernel, args))
            if (ran := taken(fn, grid, **values, **options)) is not None:
                return ran
        return before_written(kernel, *args, stream=stream, **keywords)

    interface.__getitem__, written.run = on_grid, run
    try:
        yield report
    finally:
        interface.__getitem__, written.run = before, before_written
        if verbose:
            print(report)


def _configuration(kernel: Any, args: Sequence[Any]) -> Any:
    """Return the configuration that torch.compile launches a kernel with; it tunes here if it has
    not yet.
    """
    if not kernel.launchers:
        kernel.precompile()
    if len(kernel.launchers) > 1:
        kernel.autotune_to_one_config(*args)
    if kernel.fn.fn is None:  # it was compiled in another process
        kernel.fn = kernel._reload_kernel().fn
    return kernel.launchers[0].config


def launch_of(
    kernel: Any, args: Sequence[Any], chosen: Any
) -> tuple[Any, dict[str, Any], tuple[int, ...], Mapping[str, Any]]:
    """Return the function, values by name, grid and options of a launch of a kernel that
    torch.compile wrote, with a configuration.
    """
    given, grid = kernel._interpret_args_grid(tuple(args), chosen)
    constants = {**kernel.triton_meta.get("constants", {}), **chosen.kwargs}
    rest = iter(given)
    values = {p.name: constants[p.name] if p.is_constexpr else next(rest) for p in kernel.fn.params}
    return kernel.fn, values, grid, {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages}


def _name(kernel: Any) -> str:
    while not hasattr(kernel, "__name__") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", kernel))
