"""`matmul`: the product of two arrays by the best of the shipped kernels.

On a GPU the first variants of `tawa.kernels.variants` are timed once for each kind of problem and
the fastest is remembered; in the simulator, where time means nothing, the first that compiles is
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tawa
from tawa.errors import TawaError, TuningError
from tawa.kernels.arrays import look
from tawa.kernels.prepare import Launch, Operands, bind, prepare
from tawa.kernels.variants import Problem, Variant, variants


class Tuner:
    """Remembers the fastest variant of each problem it has timed."""

    def __init__(self) -> None:
        self.best: dict[Problem, Variant] = {}

    def choose(
        self, operands: Operands, time: Callable[[Callable[[], Any]], float] | None
    ) -> Variant:
        """Return the variant to use: the fastest by `time` (a call's ms), or the first that builds.

        Raises `TuningError` with every reason when none can be built.
        """
        if (known := self.best.get(operands.problem)) is not None:
            return known
        reasons: list[str] = []
        timed: list[tuple[float, int, Variant]] = []
        for index, variant in enumerate(variants(operands.problem)):
            try:
                launches = prepare(operands, variant)
                for launch in launches:
                    launch.compile()
            except TawaError as error:
                reasons.append(f"{variant}: {error.what}")
                continue
            if time is None:
                timed.append((0.0, index, variant))
                break
            timed.append((time(lambda each=launches: _run(each)), index, variant))
        if not timed:
            raise TuningError(
                f"no variant of matmul can be built for {operands.problem}",
                why="\n".join(reasons),
            )
        self.best[operands.problem] = min(timed)[2]
        return self.best[operands.problem]


def _run(launches: Sequence[Launch]) -> None:
    for launch in launches:
        launch()


def _time(call: Callable[[], Any]) -> float:
    """Return a call's median time on the GPU in milliseconds."""
    found = tawa.testing.do_bench(call)
    assert isinstance(found, float), "no quantiles were asked for"
    return found


_TUNER = Tuner()


def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    bias: Any = None,
    activation: str = "",
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: str = "",
    variant: Variant | None = None,
    tuner: Tuner = _TUNER,
) -> Any:
    """Return activation(scale_a * scale_b * (a @ b) + bias), for torch, CuPy or NumPy arrays.

    Args:
        a: [M, K] or [batch, M, K], in row- or column-major order; f16, bf16, f32 (through tf32),
            or fp8 in K-major order.
        b: [K, N] or [batch, K, N]; pass `weight.T` for a weight stored [N, K].
        out: [M, N], made here if not given; `out_dtype` names its type ("bf16"), by default the
            operands' own, bf16 for fp8.
        bias: [N], added before the activation.
        activation: "", "relu", "leaky_relu", "silu" or "gelu".
        scale_a: float32, one element or [M]; with `scale_b`, one element or [N].
        variant: the form and configuration to use instead of tuning.
        tuner: remembers what was fastest; by default one for the whole process.

    Raises:
        ArgumentError: shapes, types or strides do not fit together.
        TuningError: no configuration could be built; the message lists why.

    Arrays on a GPU are multiplied there, on the current stream; NumPy arrays in the simulator.
    """
    operands = bind(
        a,
        b,
        out,
        bias=bias,
        activation=activation,
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype=out_dtype,
    )
    if 0 in operands.c.shape:
        return operands.c.array
    if variant is None:
        time = _time if look(a).device.kind == "cuda" else None
        variant = tuner.choose(operands, time)
    _run(prepare(operands, variant))
    return operands.c.array
