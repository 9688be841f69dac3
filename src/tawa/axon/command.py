"""`tawa axon check FILE`, `tawa axon infer FILE:FUNCTION` and `tawa axon run FILE:FUNCTION`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tawa.axon.module import Function, load
from tawa.axon.run.values import DTYPES
from tawa.axon.types.show import show
from tawa.errors import ArgumentError, AxonError, AxonGuard


def main(options: argparse.Namespace) -> int:
    """Run an action; return 0, or 1 for a program or arguments that do not fit."""
    path, name = _split(options.program)
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
    try:
        module = load(text, Path(path).name)
        if options.action == "check":
            _print(module.functions, str(module), options.json)
            return 0
        function = module.functions.get(name)
        if function is None:
            known = ", ".join(module.functions)
            raise ArgumentError(
                f"which function of {path}?", remedy=f"write FILE:NAME, one of {known}"
            )
        arguments = _arguments(options.args, options.seed)
        if options.action == "infer":
            found = show(function.check(*arguments))
        else:
            found = _described(function(*arguments))
        print(json.dumps({"result": found}) if options.json else found)
        return 0
    except AxonGuard as error:
        print(error, file=sys.stderr)
        return 1
    except AxonError as error:
        print(error, file=sys.stderr)
        return 1


def _split(program: str) -> tuple[str, str]:
    path, _, name = program.rpartition(":")
    return (path, name) if path else (name, "")


def _print(functions: dict[str, Function], text: str, as_json: bool) -> None:
    if not as_json:
        print(text)
        return
    facts = {
        name: {"scheme": f.scheme, "guards": [guard.text for guard in f.guards]}
        for name, f in functions.items()
    }
    print(json.dumps(facts, indent=1))


def _arguments(texts: Sequence[str], seed: int) -> list[Any]:
    """Return the arguments that texts describe: numbers, arrays with random data, and tuples."""
    import numpy as np

    rng = np.random.default_rng(seed)

    def read(text: str) -> Any:
        match = re.fullmatch(r"(\w+)\[([\d, ]*)\]", text)
        if match is not None and match[1] in DTYPES and match[1] != "bf16":
            shape = [int(size) for size in match[2].split(",") if size.strip()]
            dtype = np.dtype(DTYPES[match[1]])
            data = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
            return np.asarray(data).astype(dtype)
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        if re.fullmatch(r"-?\d*\.\d*(e-?\d+)?", text):
            return float(text)
        if text.startswith("(") and text.endswith(")"):
            return tuple([read(item.strip()) for item in _items(text[1:-1])])
        raise ArgumentError(
            f"{text!r} is no argument",
            remedy="write f32[2,3] for an array, a number, or '(f32[2,3], 4)' for a tuple",
        )

    return [read(text) for text in texts]


def _items(text: str) -> list[str]:
    """Return what stands between the commas that are in no brackets."""
    found, depth = [""], 0
    for each in text:
        depth += (each in "([") - (each in ")]")
        if each == "," and not depth:
            found.append("")
        else:
            found[-1] += each
    return found


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return f"({', '.join(map(_described, items))})"
    if not hasattr(value, "shape"):
        return str(value)
    text = f"{value.dtype}{list(value.shape)}"
    if value.size == 0:
        return text
    return f"{text} from {value.min():.6g} to {value.max():.6g}"
