"""hmc and nuts: the lane program of a model, its run, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tawa.errors import GradientError
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered, lower
from tawa.ppl.infer.compose import Composed, made
from tawa.ppl.infer.hamiltonian import hmc_chain, nuts_chain
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior
from tawa.ppl.ir.core import I32, Op, Region, Type, clone
from tawa.ppl.ir.operations import HEAP
from tawa.ppl.passes.density import Density
from tawa.ppl.passes.handle import Layout, handle
from tawa.ppl.passes.reverse import gradient

# What tile kernels need of the compiler is imported where a run asks for them: it takes a second.
if TYPE_CHECKING:
    from tawa.ppl.tiles.plates import Plate


def differentiated(
    lowered: Lowered,
    method: str,
    plates: list[Plate] | None = None,
    wanted: tuple[str, ...] | None = None,
    *,
    moments: bool = False,
) -> Composed:
    """Return a program with the procedures `gradient` and `generate` on z and g; of hmc, with
    `slopes`, the gradient without the log density.

    Big plates go to the list `plates`, where one is given; a model without one is refused.
    """
    program, layout = lowered.program, Layout(wanted, moments)
    density = Density(lowered.low, layout, method)
    called = [op for op in program.operations() if op.code == "call"]
    if called:
        raise GradientError(
            f"{program.name} calls itself",
            place=called[0].place,
            why=f"{method} moves a vector of a fixed length: recursion could go to any depth",
            remedy='use method="mh" or "smc", or loop over an array',
        )
    if HEAP in program.variables:
        raise GradientError(
            f"{program.name} has lists",
            why=f"{method} goes backward through what a model computes, and cells are memory",
            remedy='use method="mh" or "smc", or vectors',
        )
    handle(program, density)
    if density.size == 0:
        raise GradientError(
            f"{program.name} has no site", why=f"{method} moves the values of sample sites"
        )
    vector, real = (Type(program.dtype, shape) for shape in ((density.size,), ()))
    program.variables |= {"z": vector, "g": vector, "logw": real}
    program.variables |= {"draw": I32, "count": I32}
    generate = clone(program.body, {}, lambda op: op.code == "factor")
    if plates is not None:
        from tawa.ppl.tiles.plates import needed, take

        plates += take(program, method)
        generate.ops = needed(generate.ops)
    program.procedures["gradient"] = gradient(program, program.body, method)
    if method == "hmc":
        slopes = gradient(program, program.body, method)
        program.procedures["slopes"] = clone(slopes, {}, _value)
    program.procedures["generate"] = generate
    program.body = Region()
    return Composed(lowered, layout)


def _value(op: Op) -> bool:
    return op.code == "accumulate" and op.attrs["name"] == "logw"


def program_of(
    lowered: Lowered, options: Options, method: str, plates: list[Plate] | None = None
) -> Composed:
    """Return the lane program of a chain; `plates` as in `differentiated`."""
    composed = differentiated(lowered, method, plates, options.keep, moments=options.moments)
    size = composed.program.variables["z"].size
    composed.share(
        draws=options.draws,
        warmup=options.warmup,
        thin=options.thin,
        tries=100,
        step_size=0.1 if options.step_size is None else options.step_size,
        accept_target=options.accept,
        fixed=int(options.step_size is not None),
    )
    hold = composed.keeping(options.draws, moments=options.moments)
    dense = options.metric == "dense"
    composed.declare((size,), "p", "mean", "apart")
    composed.declare((size + size % 2,), "next_p")
    composed.declare((size, size) if dense else (size,), "scale", "square")
    if method == "nuts":
        composed.declare((size,), "sub_z", "sub_g", "sub_p")
        composed.declare((2, size), "end_z", "end_g", "end_p")
        composed.declare((options.depth, size), "ladder_p", "ladder_sum")
    else:
        composed.share(steps=options.steps)
    composed.algorithm(
        nuts_chain if method == "nuts" else hmc_chain,
        hold,
        composed.size,
        dense,
        results="found singular step accepted divergent leapfrogs",
    )
    return composed


def chains(method: str) -> Callable[[Model, tuple[Any, ...], Options], Posterior]:
    """Return the method hmc, of `steps` leapfrogs a draw, or nuts, of at most 2 ** `depth`."""

    def run(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
        if options.tiles:
            from tawa.ppl.tiles.steps import in_steps

            plates: list[Plate] = []
            lowered = lower(model, arguments, options.dtype)
            composed = program_of(lowered, options, method, plates)
            buffers = in_steps(composed, plates, options)
        else:

            def make(lowered: Lowered) -> Composed:
                return program_of(lowered, options, method)

            composed = made(model, arguments, options, method, options.chains, make)
            buffers = composed.run(options, options.chains)
        return collect(model, arguments, composed, options, buffers)

    return run


def collect(
    model: Model,
    arguments: tuple[Any, ...],
    composed: Composed,
    options: Options,
    buffers: dict[str, np.ndarray[Any, Any]],
) -> Posterior:
    """Make the result of the buffers of a run."""
    if not np.all(buffers["found"]):
        raise GradientError(
            f"{model.name}: no start of finite density in 100 tries",
            why="each free number is tried between -2 and 2",
            remedy="check that the data have no NaN and lie in the supports of what is observed, "
            "that scales are above 0; or give the sites narrower priors",
        )
    if np.any(buffers["singular"]):
        raise GradientError(
            f"{model.name}: the covariance of a window of the warm-up has no Cholesky factor in "
            f"{np.count_nonzero(buffers['singular'])} of {options.chains} chains",
            why=f"rounding in {options.dtype} is coarser than what a dense mass matrix has to hold",
            remedy='pass dtype="float64", or metric="diagonal"',
        )
    named, value, moments = composed.unpack(buffers, options)
    statistics = {
        "step_size": buffers["step"][0],
        "accept": buffers["accepted"][0] / (options.draws * options.thin),
        "divergent": buffers["divergent"][0],
        "leapfrogs": buffers["leapfrogs"][0],
    }
    return Posterior(
        model, arguments, options, named, value, moments=moments, statistics=statistics
    )
