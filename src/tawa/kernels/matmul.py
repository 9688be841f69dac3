"""`matmul`: the product of two arrays by the best of the shipped kernels.

On a GPU the first variants of `tawa.kernels.variants` are timed once for each kind of problem, and
the fastest is remembered, in the process and on disk; in the simulator, where time means nothing,
the first that compiles is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tawa.kernels import tuner as tuning
from tawa.kernels.prepare import Operands, bind, prepare
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.kernels.shapes import Copy, is_direct, line_up
from tawa.kernels.variants import Problem, Variant, variants
from tawa.runtime.arrays import Placeholder, row_major
from tawa.runtime.store import DiskStore
from tawa.runtime.tensors import cast_automatically, casts, opaque, precision_of

ARRAYS = ("a", "b", "out", "bias", "scale_a", "scale_b", "gradient")
"""The arguments that are arrays; all but `out` are read."""


class Tuner(tuning.Tuner[Problem, Variant]):
    """Remembers the fastest variant of each problem it has timed, in memory and on disk."""

    def __init__(self, *, store: DiskStore | None = None, keep: bool = True) -> None:
        super().__init__("matmul", ARRAYS, store=store, keep=keep)

    def choose(self, operands: Operands) -> Variant:
        """Return the variant to use: the fastest, or in the simulator the first that builds.

        Raises `TuningError` with every reason when none can be built.
        """

        def candidates() -> list[tuning.Candidate[Variant]]:
            return [
                tuning.Candidate(each, lambda each=each: tuning.ready(prepare(operands, each)))
                for each in variants(operands.problem)
            ]

        return self.settle(operands.problem, candidates, operands.a.array)


_TUNER = Tuner()


@opaque
def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    bias: Any = None,
    activation: str = "",
    scale_a: Any = None,
    scale_b: Any = None,
    gradient: Any = None,
    out_dtype: str = "",
    input_precision: str = "",
    launch_pdl: bool = False,
    variant: Variant | None = None,
    tuner: Tuner | None = None,
) -> Any:
    """Return activation(scale_a * scale_b * (a @ b) + bias), for torch, CuPy or NumPy arrays.

    Args:
        a: [M, K] or [..., M, K], in row- or column-major order; f16, bf16, f32, or fp8 in K-major
            order. Leading axes are a batch: equal, 1 or absent, as in torch; [K] is one row.
        b: [K, N] or [..., K, N]; pass `weight.T` for a weight stored [N, K].
        out: [..., M, N], made here if not given; `out_dtype` names its type ("bf16"), by default
            the operands' own, bf16 for fp8.
        bias: [N], added before the activation.
        activation: "", "relu", "leaky_relu", "silu" or "gelu".
        scale_a: float32, one element or [M]; with `scale_b`, one element or [N].
        gradient: of the result's shape, in rows; the result is then this times the activation's
            derivative: the gradient by what the activation takes, in one kernel.
        input_precision: of float32: "ieee" (float32 accuracy, by three products of tf32 parts; an
            infinity gives NaN) or "tf32". By default what torch.get_float32_matmul_precision() says
            of torch's tensors ("highest" is "ieee"), else "ieee".
        launch_pdl: let the kernels begin while the one before them in the stream ends.
        variant: the form and configuration to use instead of tuning.
        tuner: remembers what was fastest; by default one for the whole process, and the disk.

    Raises:
        ArgumentError: shapes, types or strides do not fit together; a gradient is asked for; a
            tensor has no memory of its own (FakeTensor, vmap, sparse).
        TuningError: no configuration could be built; the message lists why.

    Arrays on a GPU are multiplied there, on the current stream; NumPy arrays in the simulator.
    Under torch.autocast operands and bias are cast as torch's own are, where `out` is not given.

    >>> import numpy as np
    >>> matmul(np.ones((2, 3, 16), np.float32), np.ones((16, 8), np.float32)).shape
    (2, 3, 8)
    """
    if out is None and casts():
        a, b, bias = cast_automatically(a, b, bias)
    precision = precision_of(a, input_precision)
    best = _TUNER if tuner is None else tuner
    given = a, b, out, bias, scale_a, scale_b, gradient

    def write() -> Recipe:
        arrays: dict[str, Any] = dict(zip(ARRAYS, given))
        options = {"activation": activation, "out_dtype": out_dtype, "precision": precision}
        held = symbols(arrays)
        writer = Writer(held, a, launch_pdl)
        lined, shape = _lined(held)
        for name, each in lined.items():
            if isinstance(each, Copy):
                writer.work(partial(_copy, each.repeated), held[name], each)
            elif (own := held[name]) is not None and each is not own:
                writer.view(each, own)
        operands = bind(**lined, **options)
        result = held["out"] or operands.c.array
        if shape is not None and out is None:
            result = Placeholder(shape, operands.c.array.dtype, row_major(shape))
            writer.view(operands.c.array, result)
        if 0 not in operands.c.shape:
            chosen = variant or best.best.get(operands.problem)
            if chosen is None:
                chosen = best.choose(bind(**_lined(arrays)[0], **options))
            if out is not None:
                writer.apart(
                    operands.c.array, {name: held[name] for name in ARRAYS if name != "out"}
                )
            for launch in prepare(operands, chosen):
                writer.launch(launch)
        return writer.finish(result)

    return best.recipes.run(given, (activation, out_dtype, precision, launch_pdl, variant), write)[
        0
    ]


def _lined(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[int, ...] | None]:
    """Return the arrays of a product as matrices or batches, and its own shape, None where that is
    theirs.
    """
    a, b = arrays["a"], arrays["b"]
    if is_direct(a, b):
        return dict(arrays), None
    lined = line_up(a, b, arrays["out"], arrays["gradient"])
    named = {"a": lined.a, "b": lined.b, "out": lined.out, "gradient": lined.gradient}
    return {**arrays, **named}, lined.shape


def _copy(repeated: tuple[int, ...], source: Any, copy: Any) -> None:
    copy.reshape(repeated)[...] = source
