"""`tawa ppl run FILE:MODEL`: a model on the command line."""

from __future__ import annotations

import argparse
import ast
import logging
from inspect import signature
from typing import Any

import numpy as np

from tawa.errors import ArgumentError
from tawa.ppl.frontend.model import Model
from tawa.ppl.infer.infer import infer
from tawa.ppl.infer.inspect import inspect


def command(model: Any, options: argparse.Namespace) -> int:
    """Run or show a model; arguments are Python literals, lists become arrays.

    Raises ArgumentError for what is no model, and for arguments that it does not take.
    """
    if not isinstance(model, Model):
        raise ArgumentError(
            f"{options.model} is not a model", remedy="put @ppl.model before its def"
        )
    parameters = signature(model.function).parameters.values()
    needed = [each for each in parameters if each.default is each.empty]
    given = [_array(_literal(text)) for text in options.args]
    if not len(needed) <= len(given) <= len(parameters):
        takes = ", ".join(map(str, parameters)) or "nothing"
        raise ArgumentError(
            f"{model.name} takes {takes}; --args gives {len(given)} values",
            remedy="give one a parameter, such as 3, 0.5 or [28,8,-3]",
        )
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


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _array(given: Any) -> Any:
    return np.asarray(given) if hasattr(given, "append") else given
