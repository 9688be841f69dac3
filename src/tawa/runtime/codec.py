"""Compiled kernels as bytes, for the disk cache: JSON for the facts, then the stages' bytes.

Plain data only: reading a file from a cache folder never runs code. The dataclasses that may occur
are those of four modules; a file that names another one, or other fields, is not ours and is
refused.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tawa.codegen import parameters
from tawa.frontend.signature import Argument
from tawa.layouts import windows
from tawa.plan import plan
from tawa.runtime import compiled
from tawa.runtime.compiled import CompiledKernel, LaunchShape, Stage

_CLASSES: dict[str, type] = {
    name: kind
    for module in (parameters, windows, plan, compiled)
    for name, kind in vars(module).items()
    if is_dataclass(kind) and isinstance(kind, type) and kind.__module__ == module.__name__
}
_FACTS = (
    "name", "entry", "plan", "launch", "parameters", "resources", "proof", "timings", "declined",
    "guards", "demands",
)  # fmt: skip
_LENGTH = struct.Struct("<I")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        if type(value).__name__ not in _CLASSES:
            raise TypeError(f"{type(value).__name__} is not listed in tawa.runtime.codec")
        content = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"class": type(value).__name__, **content}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _restore(value: Any) -> Any:
    match value:
        case {"class": str(name), **content}:
            restored = {key: _restore(item) for key, item in content.items()}
            return _CLASSES[name](**restored)
        case list():
            return tuple(_restore(item) for item in value)  # pyright: ignore
        case _:
            return value


def _check_spelled(facts: Mapping[str, Any]) -> None:
    """Raise ValueError unless what a launcher spells in its generated code is what it must be.

    Host expressions need no check: `tawa.runtime.expressions` rewrites them from a list of allowed
    nodes.
    """
    names = (facts["name"], facts["entry"])
    numbers = [getattr(facts["launch"], field.name) for field in fields(LaunchShape)]
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ValueError(f"{names} are no names")
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"a launch of {numbers}")


def encode(kernel: CompiledKernel) -> bytes:
    """Return a kernel as bytes; stages that are not at hand are left out."""
    stages = {level: stage for level, stage in kernel.asm.ready.items() if level != "sass"}
    blobs = [stage.encode() if isinstance(stage, str) else stage for stage in stages.values()]
    facts = {name: _plain(getattr(kernel, name)) for name in _FACTS}
    facts["timings"] = dict(kernel.timings)
    facts["stages"] = [
        [level, isinstance(stage, str), len(blob)]
        for (level, stage), blob in zip(stages.items(), blobs, strict=True)
    ]
    head = json.dumps(facts).encode()
    return b"".join((_LENGTH.pack(len(head)), head, *blobs))


def decode(
    data: bytes, signature: Mapping[str, Argument]
) -> tuple[dict[str, Any], dict[str, Stage]]:
    """Return the facts (keyword arguments of `CompiledKernel`) and the stages.

    Raises KeyError, TypeError, ValueError or struct.error for bytes that are not a kernel's.
    """
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + length
    content = json.loads(data[_LENGTH.size : start])
    stages: dict[str, Stage] = {}
    for level, is_text, size in content.pop("stages"):
        blob = data[start : start + size]
        stages[level] = blob.decode() if is_text else blob
        start += size
    facts = {name: _restore(value) for name, value in content.items() if name != "timings"}
    _check_spelled(facts)
    facts["timings"] = content["timings"]
    facts["signature"] = signature
    return facts, stages
