"""What is kept when the compiler itself fails: an error that names the pass and the kernel's line,
and a folder that holds what a report needs.

The folder has the source of the kernel and its helpers, the signature, options and pins, the IR
before the step that failed, the plan, the traceback and the versions; no data of the user's arrays.
Its name is a hash of the failure, so that the same one is written once.
"""

from __future__ import annotations

import errno
import hashlib
import platform
import re
import tempfile
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

from xdsl.ir import Operation, SSAValue

from tawa.errors import InternalError, Place
from tawa.frontend.context import Context
from tawa.frontend.source import source_of, underlying
from tawa.ir import place_of, tile
from tawa.ir.build.builder import Builder
from tawa.plan.plan import Plan
from tawa.runtime.compiled import spell_signature
from tawa.runtime.fingerprint import functions_of
from tawa.runtime.request import Request
from tawa.runtime.store import UntrustedError, cache_folder, make_private, write_whole
from tawa.version import __version__

_PACKAGES = ("xdsl", "numpy", "cuda-bindings", "nvidia-cuda-nvrtc")
_SETTINGS = ("options", "pins", "target", "descriptors", "strict", "cubin")
_PASS_HOMES = ("passes", "frontend", "plan", "codegen", "simulator", "analysis")


@dataclass(slots=True)
class Steps:
    """The steps of one compilation as they begin; with `keep` also what each of them starts from.

    Keeping costs a print of the IR a step, so it is done only when a failed compilation is run
    again to tell about it.
    """

    keep: bool = False
    name: str = ""
    ir: str = ""
    plan: str = ""

    def begin(self, name: str, kernel: tile.Kernel | None = None, plan: Plan | None = None) -> None:
        """Note that a step begins on a kernel, under a plan."""
        self.name = name
        if self.keep:
            self.ir = "" if kernel is None else str(kernel)
            self.plan = "" if plan is None else str(plan)


def name_of(request: Request) -> str:
    """Return the name of the kernel that is asked for."""
    if isinstance(request.function, tile.Kernel):
        return request.function.sym_name.data
    return getattr(underlying(request.function), "__name__", "kernel")


def _defined_at(request: Request) -> Place | None:
    if (function := underlying(request.function)) is None:
        return None
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno)


def internal_error(error: Exception, request: Request, steps: Steps) -> InternalError:
    """Return what a user sees of an exception that no step of the compiler should raise.

    `steps` are those of the compilation, run again with `keep`. An InternalError keeps its words
    and place, and gets the folder.
    """
    folder = save(error, request, steps)
    kept = "what it needs could not be saved" if folder is None else f"attach the folder {folder}"
    remedy = f"please report it: {kept}"
    where = f"{steps.name} ({home})" if (home := _home(error)) else steps.name
    if isinstance(error, InternalError):
        place, what, why = error.place, error.what, error.why
    else:
        place, what, why = None, f"{type(error).__name__}: {error}", ""
    return InternalError(
        f"the compiler failed on {name_of(request)} in {where}: {what}",
        place=place or place_in(error) or _defined_at(request),
        why=why or "this is a fault of the compiler, and none of the kernel",
        remedy=remedy,
    )


def save(error: Exception, request: Request, steps: Steps) -> Path | None:
    """Write the folder of a failure and return it; None where nothing can be written."""
    trace = "".join(traceback.format_exception(error))
    files = {
        "report.txt": _report(trace, request, steps),
        "kernel.py": _source(request.function),
        "kernel.mlir": str(request.function) if isinstance(request.function, tile.Kernel) else "",
        "before.mlir": steps.ir,
        "plan.txt": steps.plan,
    }
    digest = hashlib.sha256("\0".join(files.values()).encode(), usedforsecurity=False).hexdigest()
    called = re.sub(r"\W+", "_", name_of(request))[:80]  # a kernel's name may be anything
    for folder in (
        lambda: _private(cache_folder(), "reports", f"{called}-{digest[:12]}"),
        lambda: Path(tempfile.mkdtemp(prefix=f"tawa-{called}-")),  # a new one: links lead nowhere
    ):
        with suppress(OSError):
            made = folder()
            for file, text in files.items():
                if text:
                    write_whole(made / file, text.encode("utf-8", "backslashreplace"))
            return made
    return None


def _private(folder: Path, *parts: str) -> Path:
    """Return a folder inside another, each that is below it for its owner only."""
    make_private(folder)
    for part in parts:
        folder = folder / part
        if folder.is_symlink():
            raise UntrustedError(errno.EPERM, "it is a link", str(folder))
        make_private(folder)
    return folder


def _report(trace: str, request: Request, steps: Steps) -> str:
    lines = [f"step: {steps.name}", "", "signature:"]
    lines += [f"  {line}" for line in spell_signature(request.signature)]
    lines += ["", "settings:", *(f"  {name} = {getattr(request, name)!r}" for name in _SETTINGS)]
    lines += ["", "versions:", f"  tawa {__version__}", f"  python {platform.python_version()}"]
    lines += [f"  {package} {_version(package)}" for package in _PACKAGES]
    return "\n".join([*lines, f"  {platform.platform()}", "", trace])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _source(function: Any) -> str:
    """Return the text of a kernel and its helpers, each with where it stands."""
    if (plain := underlying(function)) is None:
        return ""
    try:
        return "\n\n".join(
            f"# {item.__code__.co_filename}:{item.__code__.co_firstlineno}\n"
            + textwrap.dedent(source_of(item))
            for item in functions_of(plain)
        )
    except (OSError, TypeError, SyntaxError):
        return ""


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of a traceback, the one that raised first."""
    found = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return reversed(found)


def _home(error: Exception) -> str:
    """Return the module of the compiler in which an exception arose: ``passes.lower.waits``."""
    for frame in _frames(error):
        package, _, module = str(frame.f_globals.get("__name__", "")).partition(".")
        if package == "tawa" and module.partition(".")[0] in _PASS_HOMES:
            return module
    return ""


def place_in(error: Exception) -> Place | None:
    """Return the line of the kernel that was being compiled, from what the frames were looking at.

    The innermost frame that holds an operation with a place, or the frontend's state, says it.
    """
    for frame in _frames(error):
        for value in frame.f_locals.values():
            if (place := _place_of(value)) is not None:
                return place
    return None


def _place_of(value: Any) -> Place | None:
    match value:
        case Builder():
            return value.place
        case Context():
            return value.builder.place
        case SSAValue():
            return _place_of(value.owner) if isinstance(value.owner, Operation) else None
        case Operation():
            return place_of(value)
        case _:
            return None
