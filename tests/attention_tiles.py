"""Small tiles of the library's attention, for tests of what is around it."""

from contextlib import contextmanager

import pytest

from tawa.kernels import attention, attention_backward
from tawa.kernels.attention_launches import Variant, form

PLAIN = (("specialize", False),)


@contextmanager
def small_tiles(roles):
    """Let attention and its gradients take small tiles; without `roles` they compile in a fifth of
    the time. What is chosen within is forgotten after it.
    """
    pins = () if roles else PLAIN
    tile, keys = (Variant(rows, 64, pins=pins) for rows in (64, 32))
    small = dict.fromkeys(("queries", "all", "bias"), tile) | {"keys": keys}
    own = attention.variants

    def forward(problem):
        return own(problem) if form(problem) == "decode" else [tile]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_backward, "variants", lambda part, problem: [small[part]])
        patch.setattr(attention, "variants", forward)
        for module in (attention, attention_backward):
            patch.setattr(module, "_TUNER", module.Tuner(keep=False))
        yield
