"""`tawa ppl run FILE:MODEL`: a model on the command line."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import logging
from pathlib import Path
from typing import Any

import numpy as np

from tawa.errors import ModelError
from tawa.ppl.frontend.model import Model
from tawa.ppl.infer.infer import infer
from tawa.ppl.infer.inspect import inspect


def command(options: argparse.Namespace) -> int:
    """Run or show a model; arguments are Python literals, lists become arrays."""
    model = find_model(options.model)
    given = [_array(_literal(text)) for text in options.args]
    if options.action == "show":
        with inspect(model, *given) as stages:
            print(stages.ir, end="")
        return 0
    named: dict[str, Any] = {}
    for text in options.options:
        name, _, value = text.partition("=")
        named[name] = _literal(value)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tawa.ppl").setLevel(logging.INFO)  # the memory of the run
    post = infer(model, *given, method=options.method, **named)
    print(post.summary())
    if post.log_evidence == post.log_evidence:
        print(f"log evidence {post.log_evidence:.4f}")
    return 0


def find_model(text: str) -> Model:
    """Return the model that FILE.py:NAME or module:NAME stands for. Raises ModelError."""
    where, _, name = text.rpartition(":")
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            if spec is None or spec.loader is None:
                raise ImportError(where)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(where)
        found = getattr(module, name)
    except (ImportError, AttributeError, OSError, ValueError) as error:
        raise ModelError(
            f"{text}: {error}", remedy="write FILE.py:MODEL or module:MODEL"
        ) from error
    if not isinstance(found, Model):
        raise ModelError(f"{text} is not a model", remedy="put @ppl.model before its def")
    return found


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _array(given: Any) -> Any:
    return np.asarray(given) if hasattr(given, "append") else given
