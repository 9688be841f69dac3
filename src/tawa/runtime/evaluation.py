"""Operations of tile IR that only compute, run on arrays as the simulator runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def computed(
    operations: Sequence[Any], given: Mapping[Any, Any], results: Sequence[Any]
) -> list[Any]:
    """Return the arrays that `results` are where the values of `given` have theirs.

    `operations` stand in order, touch no memory and read nothing but these values and one another.
    """
    import numpy as np

    from tawa.simulator.decode import Decoder
    from tawa.simulator.rules import RULES

    decoder = Decoder(RULES)
    for value, array in given.items():
        decoder.constant(value, array[()].copy())
    step, numbers = decoder.steps(operations), decoder.numbered(results)
    frame = decoder.frame(None)
    with np.errstate(all="ignore"):
        step.run(frame)
    return [frame.values[number] for number in numbers]
