"""`ppl.infer`: one call for all methods."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from tawa.errors import ModelError
from tawa.ppl.frontend.model import Model, refuse_other
from tawa.ppl.frontend.program import on_gpu
from tawa.ppl.infer.chains import chains
from tawa.ppl.infer.importance import importance
from tawa.ppl.infer.mh import mh
from tawa.ppl.infer.options import DTYPES, OPTIONS, Options
from tawa.ppl.infer.own import own
from tawa.ppl.infer.pmmh import pmmh
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.infer.smc import smc
from tawa.ppl.infer.tempered import tempered

Method = Callable[[Model, tuple[Any, ...], Options], Posterior]
DEFAULTS = Options()
METHODS: dict[str, Method] = {
    "importance": importance,
    "mh": mh,
    "smc": smc,
    "hmc": chains("hmc"),
    "nuts": chains("nuts"),
    "pmmh": pmmh,
    "tempered": tempered,
}

READ_BY = {name: methods for name, (_, methods) in OPTIONS.items() if methods}
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
    refuse_other(model)
    if not isinstance(method, FunctionType) and method not in METHODS:
        raise ModelError(f"method={method!r} is not known", why=f"methods: {', '.join(METHODS)}")
    reads, run = (
        ("importance", own(method))
        if isinstance(method, FunctionType)
        else (str(method), METHODS[str(method)])
    )
    options.setdefault("device", "cuda" if on_gpu(arguments) else "cpu")
    options.setdefault("dtype", model.dtype)
    for name, given in options.items():
        if name not in OPTIONS:
            raise ModelError(
                f"{name}= is not an option", why=f"options: {', '.join(sorted(OPTIONS))}"
            )
        if reads not in (methods := READ_BY.get(name, METHODS)):
            raise ModelError(
                f"{name}= has no meaning for method={method!r}",
                why=f"it is an option of {', '.join(methods)}",
                remedy="leave it out, or name one of these",
            )
        (holds, what, made), _ = OPTIONS[name]
        if given is getattr(DEFAULTS, name):
            continue
        if not holds(given):
            raise ModelError(f"{name}={given!r} is not {what}")
        options[name] = made(given)
    options["dtype"] = DTYPES[options["dtype"]]
    return run(model, arguments, Options(**options))
