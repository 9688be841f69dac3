"""`ppl.infer`: one call for all methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from types import FunctionType
from typing import Any, get_args

import numpy as np

from tawa.errors import ModelError
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import on_gpu
from tawa.ppl.infer.chains import chains
from tawa.ppl.infer.execute import Device
from tawa.ppl.infer.importance import importance
from tawa.ppl.infer.mh import mh
from tawa.ppl.infer.options import DTYPES, Metric, Options
from tawa.ppl.infer.own import own
from tawa.ppl.infer.pmmh import pmmh
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.smc import smc
from tawa.ppl.infer.tempered import tempered

Method = Callable[[Model, tuple[Any, ...], Options], Posterior]
METHODS: dict[str, Method] = {
    "importance": importance,
    "mh": mh,
    "smc": smc,
    "hmc": chains("hmc"),
    "nuts": chains("nuts"),
    "pmmh": pmmh,
    "tempered": tempered,
}


LEAST = {
    **dict.fromkeys(("chains", "draws", "thin", "threads", "particles", "steps"), 1),
    **dict.fromkeys(("stack", "trace"), 1),
    "warmup": 0,
}
"""The least that options of whole numbers may be."""


_CHAINS = ("mh", "hmc", "nuts", "pmmh")
READ_BY = {
    **dict.fromkeys(("chains", "warmup", "thin"), _CHAINS),
    "moments": ("mh", "hmc", "nuts"),
    "draws": ("importance", *_CHAINS),
    "particles": ("smc", "pmmh", "tempered"),
    "parameters": ("pmmh",),
    "trace": ("mh", "tempered"),
    "steps": ("hmc", "tempered"),
    "depth": ("nuts",),
    **dict.fromkeys(("step_size", "accept", "metric", "tiles"), ("hmc", "nuts")),
}
"""The methods that an option says something to; one that is not here is read by all."""


def infer(
    model: Any,
    *arguments: Any,
    method: str | Callable[[Any], None] = "nuts",
    **options: Any,
) -> Posterior:
    """Draw from the posterior of a model.

    Arguments are numbers, arrays of numbers, and tuples of them; whole numbers and booleans
    become a part of the program, reals and arrays are data.
    Methods: `importance mh smc hmc nuts pmmh tempered`, or a function of your own (`infer/own.py`),
    which has the options of importance. Options: `chains`, `draws` (each chain's;
    of importance, all), `warmup`, `thin`, `seed`, `device` ("cpu", "cuda", "interpreter"; where
    an argument lies on a GPU "cuda", else "cpu"),
    `dtype` ("float32", "float64"; the model's), `stack` (words a lane), `trace` (mh, tempered:
    values a run),
    `keep` (names of what is kept of a draw: sites, and "value", what the model returns; all),
    `moments` (mh, hmc, nuts: of draws only means and variances are kept, in `Posterior.moments`),
    `particles` (smc, tempered; of pmmh, each chain's), `parameters` (pmmh: names of sites),
    `steps` (hmc: leapfrogs a draw; tempered: proposals a temperature), `step_size` (hmc, nuts),
    `depth` (nuts), `accept`, `metric` (hmc, nuts: "diagonal" or "dense" mass matrix), `threads`,
    `tiles` (hmc, nuts: tensor cores compute big plates).

    Raises ModelError, GradientError, StackError, WeightError.
    """
    if not isinstance(model, Model):
        raise ModelError(f"{model!r} is not a model", remedy="put @ppl.model before its def")
    if not isinstance(method, FunctionType) and method not in METHODS:
        raise ModelError(f"method={method!r} is not known", why=f"methods: {', '.join(METHODS)}")
    reads, run = (
        ("importance", own(method))
        if isinstance(method, FunctionType)
        else (str(method), METHODS[str(method)])
    )
    known = {field.name for field in fields(Options)}
    for name in options:
        if name not in known:
            raise ModelError(
                f"{name}= is not an option", why=f"options: {', '.join(sorted(known))}"
            )
    for name in options:
        if reads not in (methods := READ_BY.get(name, METHODS)):
            raise ModelError(
                f"{name}= has no meaning for method={method!r}",
                why=f"it is an option of {', '.join(methods)}",
                remedy="leave it out, or name one of these",
            )
    options.setdefault("device", "cuda" if on_gpu(arguments) else "cpu")
    dtype = str(options.pop("dtype", model.dtype))
    if dtype not in DTYPES:
        raise ModelError(f"dtype={dtype!r} is not known", why="float32 or float64")
    for name, known in (("device", get_args(Device)), ("metric", get_args(Metric))):
        if options.get(name, known[0]) not in known:
            raise ModelError(f"{name}={options[name]!r} is not known", why=f"one of {known}")
    for name, least in LEAST.items():
        number = options.get(name)
        whole = isinstance(number, int | np.integer) and number >= least
        if number is not None and not whole:  # None is what an option is without being given
            raise ModelError(f"{name}={number!r} is not a whole number of {least} or more")
    for name in ("keep", "parameters"):
        if (names := options.get(name)) is None:
            continue
        if isinstance(names, str) or not all(isinstance(item, str) for item in names):
            raise ModelError(f"{name}={names!r} is not a tuple of names", remedy='("mu", "tau")')
        options[name] = tuple(names)
    if not 0.0 < options.get("accept", 0.5) < 1.0:
        raise ModelError(f"accept={options['accept']} is not between 0 and 1")
    step = options.get("step_size")
    if step is not None and not (isinstance(step, int | float | np.floating) and step > 0):
        raise ModelError(f"step_size={step!r} is not a number above 0")
    return run(model, arguments, Options(dtype=DTYPES[dtype], **options))  # type: ignore[arg-type]
