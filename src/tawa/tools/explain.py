"""What the compiler did with a kernel and why, as text or as JSON.

The text is `CompiledKernel`'s own report; this module finds kernels by name, adds what needs more
than one kernel's facts, and turns the same facts into plain data.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from tawa.errors import ArgumentError
from tawa.runtime.compiled import CompiledKernel, spell_signature


def find_kernel(place: str) -> Any:
    """Return the kernel named by ``FILE.py:NAME`` or ``package.module:NAME``.

    Plain functions and Triton kernels are wrapped. Raises `ArgumentError` when there is none.
    """
    from tawa.runtime.decorators import wrap

    return wrap(find_named(place, "kernel", lambda each: inspect.isfunction(_function(each))))


def find_named(place: str, what: str, is_one: Callable[[Any], bool]) -> Any:
    """Return what ``FILE.py:NAME`` or ``package.module:NAME`` stands for.

    Raises `ArgumentError` when there is none; it lists what in the module `is_one` holds for.
    """
    where, separator, name = place.rpartition(":")
    if not separator or not where or not name:
        raise ArgumentError(f"{place!r} names no {what}", remedy=f"write FILE.py:{what.upper()}")
    module = _load(where)
    found = getattr(module, name, None)
    if found is None:
        near = [key for key, each in vars(module).items() if key[0] != "_" and is_one(each)]
        known = ", ".join(near) or "none"
        raise ArgumentError(f"{where} has no {name}", why=f"its {what}s: {known}")
    return found


def _function(found: Any) -> Any:
    return getattr(found, "fn", None)


def _load(where: str) -> ModuleType:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ArgumentError(f"there is no module {where}", why=str(error)) from error
    path = Path(where).resolve()
    if not path.is_file():
        raise ArgumentError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # A kernel file may import its neighbours, as it could when run as a script.
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def check_arguments(kernel: Any, given: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` naming every parameter that has neither argument nor default."""
    function = _function(kernel)
    while function is not None and not inspect.isfunction(function):
        function = _function(function)
    if function is None:
        return
    missing = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.name not in given
    ]
    if missing:
        examples = " ".join(_example(parameter) for parameter in missing)
        raise ArgumentError(
            f"{function.__name__}: no argument for {', '.join(each.name for each in missing)}",
            why="a kernel is compiled for the types of its arguments",
            remedy=f"add --args with types and numbers of your launch, such as {examples}",
        )


def _example(parameter: inspect.Parameter) -> str:
    """Return an argument as text: tiles of 64 x 64, so that those of one kernel fit together."""
    name = parameter.name
    lowered = name.lower()
    if lowered.endswith("desc"):
        return f"{name}=bf16[8192,8192]:64x64"
    if lowered.endswith("ptr"):
        return f"{name}=bf16[8192,8192]"
    if "constexpr" in str(parameter.annotation):
        return f"{name}=64"
    return f"{name}=8192"


def describe(compiled: CompiledKernel) -> dict[str, Any]:
    """Return everything the report says as plain data (numbers, strings, lists, mappings)."""
    from tawa.plan.text import print_plan

    declined = (*compiled.plan.declined, *compiled.declined)
    return {
        "kernel": compiled.name,
        "arguments": spell_signature(compiled.signature),
        "launch": asdict(compiled.launch),
        "plan": print_plan(compiled.plan),
        "roles": [asdict(role) for role in compiled.plan.roles],
        "arefs": [
            {"payload": list(aref.payload), "depth": aref.depth, "via": aref.via}
            for aref in compiled.plan.arefs
        ],
        "resources": asdict(compiled.resources),
        "declined": [asdict(item) for item in dict.fromkeys(declined)],
        "proof": asdict(compiled.proof),
        "milliseconds": {
            phase: round(seconds * 1e3, 3) for phase, seconds in compiled.timings.items()
        },
        "stages": list(compiled.asm),
    }
