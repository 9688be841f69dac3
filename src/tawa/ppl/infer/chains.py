"""hmc and nuts: the lane program of a model, its run, and what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.errors import GradientError, ModelError
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.compose import Composed, kept
from tawa.ppl.infer.execute import Executable, seed_words
from tawa.ppl.infer.hamiltonian import hmc_chain, nuts_chain
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.posterior import Posterior, unpack
from tawa.ppl.ir.core import BOOL, I32, Region, Type
from tawa.ppl.passes.density import Density, generating
from tawa.ppl.passes.handle import Layout, handle
from tawa.ppl.passes.reverse import gradient


def hmc(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Run chains of `steps` leapfrogs a draw."""
    return _run(model, arguments, options, "hmc")


def nuts(model: Model, arguments: tuple[Any, ...], options: Options) -> Posterior:
    """Run chains of no-U-turn trajectories, at most 2 ** `depth` leapfrogs a draw."""
    return _run(model, arguments, options, "nuts")


def differentiated(model: Model, arguments: tuple[Any, ...], dtype: Any, method: str) -> Composed:
    """Return a program with the procedures `gradient` and `generate` on the variables z and g."""
    lowered = lower(model, arguments, dtype)
    program, layout = lowered.program, Layout()
    density = Density(lowered.low, layout, method)
    called = [op for op in program.operations() if op.code == "call"]
    if called:
        raise GradientError(
            f"{model.name} calls itself",
            place=called[0].place,
            why=f"{method} moves a vector of a fixed length: recursion could go to any depth",
            remedy='use method="mh" or "smc", or loop over an array',
        )
    handle(program, density)
    if density.size == 0:
        raise GradientError(
            f"{model.name} has no site", why=f"{method} moves the values of sample sites"
        )
    vector = Type(dtype, (density.size,))
    program.variables |= {"z": vector, "g": vector, "logw": Type(dtype)}
    program.variables |= {"draw": I32, "count": I32}
    program.procedures["gradient"] = gradient(program, program.body, method)
    program.procedures["generate"] = generating(program.body)
    program.body = Region()
    return Composed(lowered, layout)


def program_of(model: Model, arguments: tuple[Any, ...], options: Options, method: str) -> Composed:
    """Return the lane program of a chain."""
    composed = differentiated(model, arguments, options.dtype, method)
    program = composed.program
    real = Type(options.dtype)
    size = program.variables["z"].size
    vector, ends = Type(options.dtype, (size,)), Type(options.dtype, (2, size))
    memory = composed.memory
    nested = method == "nuts"
    if nested and not 1 <= options.depth <= 20:
        raise ModelError(f"depth={options.depth} is not between 1 and 20")
    rows = Type(options.dtype, (max(1, options.depth) if nested else 1, size))
    sub = tuple(memory(f"sub_{name}", vector) for name in "zgp")
    sub = (*sub, memory("ladder_p", rows), memory("ladder_sum", rows))
    sub = (*sub, memory("sub_weight", real), memory("sub_logw", real))
    tree = (
        memory("energy", real),
        memory("depth", I32),
        memory("tree_weight", real),
        memory("leaf", I32),
        memory("accept", real),
        memory("leaps", I32),
        memory("side", I32),
        memory("logw"),
        memory("best_logw", real),
        memory("total_leaps", I32),
        sub,
        memory("new", BOOL),
    )
    vectors = (
        memory("z"),
        memory("g"),
        memory("p", vector),
        memory("inverse_mass", vector),
        *(memory(f"end_{name}", ends) for name in "zgp"),
        *(memory(f"best_{name}", vector) for name in "zg"),
        memory("sum_p", vector),
        tree,
    )
    adaptation = (
        *(memory(name, real) for name in ("step", "centre", "average", "drift")),
        *(
            memory(name, I32)
            for name in ("updates", "samples", "window", "window_end", "window_first")
        ),
    )
    numbers = [composed.parameter(name, I32) for name in ("draws", "warmup", "thin", "tries")]
    steps = options.depth if nested else composed.parameter("steps", I32)
    scalars = [composed.parameter(name, real) for name in ("step_size", "target")]
    fixed = composed.parameter("fixed", I32)
    program.buffers |= {"found": "i32", "step": options.dtype, "accept": options.dtype}
    program.buffers |= {"divergent": "i32", "leapfrogs": "i32"}
    composed.algorithm(
        nuts_chain if nested else hmc_chain,
        *numbers,
        steps,
        *scalars,
        fixed,
        memory("draw"),
        memory("count"),
        vectors,
        adaptation,
        (memory("mean", vector), memory("square", vector)),
        kept(composed),
        (memory("divergent", I32), memory("accepted", real)),
        size,
    )
    return composed


def launch_arguments(composed: Composed, options: Options, method: str) -> tuple[Any, ...]:
    """Return the arguments of the lane program, in the order of its parameters."""
    fixed = options.step_size is not None
    warmup = options.warmup
    return (
        *seed_words(options.seed),
        *composed.lowered.data,
        options.draws,
        warmup,
        options.thin,
        100,
        *((options.steps,) if method == "hmc" else ()),
        options.step_size if options.step_size is not None else 0.1,
        options.accept,
        int(fixed),
    )


def launch_buffers(composed: Composed, options: Options) -> dict[str, np.ndarray[Any, Any]]:
    """Return zeroed buffers of the lane program."""
    rows: dict[str, int] = dict.fromkeys(("found", "step", "accept", "divergent", "leapfrogs"), 1)
    for name in ("real", "whole"):
        rows[name] = composed.layout.sizes[f"kept_{name}"] * options.draws
    return options.buffers(composed.program, rows, options.chains)


def _run(model: Model, arguments: tuple[Any, ...], options: Options, method: str) -> Posterior:
    composed = program_of(model, arguments, options, method)
    buffers = launch_buffers(composed, options)
    executable = Executable(composed.program, options.device, options.cpu)
    given = launch_arguments(composed, options, method)
    executable.run(given, buffers, options.chains, options.threads)
    return collect(model, composed, options, buffers)


def collect(
    model: Model, composed: Composed, options: Options, buffers: dict[str, np.ndarray[Any, Any]]
) -> Posterior:
    """Make the result of the buffers of a run."""
    if not np.all(buffers["found"]):
        raise GradientError(
            f"{model.name}: no start of finite density in 100 tries",
            why="each free number is tried between -2 and 2",
            remedy="check the supports of what is observed, or give the sites narrower priors",
        )
    sizes = composed.layout.sizes
    shaped = [
        buffers[name].reshape(options.draws, sizes[f"kept_{name}"], options.chains)
        for name in ("real", "whole")
    ]
    named, value = unpack(composed.layout, composed.lowered.template, *shaped)
    statistics = {
        "step_size": buffers["step"][0],
        "accept": buffers["accept"][0] / (options.draws * options.thin),
        "divergent": buffers["divergent"][0],
        "leapfrogs": buffers["leapfrogs"][0],
    }
    return Posterior(model.name, named, value, statistics=statistics)
