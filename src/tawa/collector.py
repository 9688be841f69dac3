"""Python's garbage collector, which rests while a kernel is compiled or proved."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def at_rest() -> Generator[None]:
    """Keep the garbage collector from starting by itself in the body.

    A compile keeps nearly all it makes until it ends. The collector starts each time so many
    objects were made, looks through these and now and then through all that the process has, and
    finds nothing: up to a third of the time. It comes to them once, afterwards.

    Threads may overlap: only who finds the collector on turns it off, and it turns it on again. A
    process that keeps it off is left as it is.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
