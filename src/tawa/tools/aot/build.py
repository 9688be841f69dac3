"""Writes what `tawa build` gives: binaries, the launcher, an example."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from tawa.errors import ArgumentError
from tawa.runtime.compiled import CompiledKernel
from tawa.tools.aot.example import write_example
from tawa.tools.aot.launcher import write_launcher
from tawa.tools.explain import check_arguments

_SHARED = ("tawa.h", "tawa_support.h")


def compile_both(kernel: Any, given: Mapping[str, Any]) -> list[CompiledKernel]:
    """Return a kernel compiled for arguments, and the ordinary one where it has guards."""
    if hooks := getattr(kernel, "pre_run_hooks", None):
        raise ArgumentError(
            f"{kernel.__name__} has {len(hooks)} hooks, which run before each launch",
            why="they are Python, and the launcher is not",
            remedy="build the kernel without them",
        )
    check_arguments(kernel, given)
    compiled = kernel.compile(**given)
    if not compiled.guards:
        return [compiled]
    return [compiled, kernel.compile_plain(**given)]


def build(kernel: Any, given: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write a kernel's files for arguments as `Launchable.compile` takes them; return their paths,
    the header first, the example last.

    Raises ArgumentError, before anything is written, for what a launcher in C cannot do.
    """
    kernels = compile_both(kernel, given)
    name = kernels[0].name
    launcher = write_launcher(kernels)
    shared = files("tawa.tools.aot")
    texts: dict[str, str | bytes] = {
        f"{name}.h": launcher.header,
        f"{name}.c": launcher.source,
        **{each: shared.joinpath(each).read_text("utf-8") for each in _SHARED},
    }
    for index, each in enumerate(kernels):
        texts[f"{name}{'_plain' * index}.cubin"] = each.cubin
    texts[f"{name}_example.cc"] = write_example(kernel, kernels, given)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        folder.joinpath(file).write_bytes(text.encode() if isinstance(text, str) else text)
    return [folder / file for file in texts]
