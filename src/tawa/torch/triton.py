# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`replace_triton`: kernels under `triton.jit` in a user's model, launched by tawa."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import tawa
from tawa.errors import TawaError


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

    A kernel that tawa does not compile for its arguments is launched by Triton, which the report
    says; it is printed at the end. It is for one thread: others within it launch by tawa too.

        with tawa.torch.replace_triton() as report:
            model(x)
    """
    interface: Any = import_module("triton.runtime.jit").KernelInterface
    before = interface.__getitem__
    report = TritonReport()
    ours: dict[int, tuple[Any, Any]] = {}  # the kernel is kept, so that its id stays its own

    def on_grid(kernel: Any, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **keywords: Any) -> Any:
            name = _name(kernel)
            try:
                if id(kernel) not in ours:
                    ours[id(kernel)] = kernel, tawa.jit(kernel)
                taken = ours[id(kernel)][1]
                taken.compile(*args, **keywords)
            except TawaError as error:
                report.left[name] = error.brief
                return before(kernel, grid)(*args, **keywords)
            report.taken.add(name)
            return taken[grid](*args, **keywords)

        return launch

    interface.__getitem__ = on_grid
    try:
        yield report
    finally:
        interface.__getitem__ = before
        if verbose:
            print(report)


def _name(kernel: Any) -> str:
    while not hasattr(kernel, "__name__") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", kernel))
