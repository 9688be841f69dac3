"""Small tiles of the library's attention, for tests of what is around it."""

from contextlib import contextmanager

import pytest

from tawa.kernels import attention, attention_backward
from tawa.kernels.attention_launches import Variant, form


@contextmanager
def small_tiles():
    """Let attention and its gradients take small tiles, which compile in a third of the time.

    What is chosen within is forgotten after it.
    """
    small = dict.fromkeys(("queries", "all", "bias"), Variant(64, 64)) | {"keys": Variant(32, 64)}
    own = attention.variants

    def forward(problem):
        return own(problem) if form(problem) == "decode" else [Variant(64, 64)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_backward, "variants", lambda part, problem: [small[part]])
        patch.setattr(attention, "variants", forward)
        for module in (attention, attention_backward):
            patch.setattr(module, "_TUNER", module.Tuner(keep=False))
        yield
