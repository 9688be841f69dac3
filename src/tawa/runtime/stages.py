"""The stages of a compiled kernel: IR as text; PTX and SASS, computed when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from tawa.errors import BuildError
from tawa.runtime.compiled import Assembly, Stage, places_at

if TYPE_CHECKING:
    from tawa.ir import tile


def stage_of(level: str, kernel: tile.Kernel) -> dict[str, Stage]:
    """Return a stage of IR as text, and where its operations stand in Python."""
    from tawa.ir.text import places_of, text_of

    return {level: text_of(kernel), places_at(level): places_of(kernel)}


def with_later(
    stages: Mapping[str, Stage], programs: Mapping[str, tile.Kernel] = MappingProxyType({})
) -> Assembly:
    """Return the assembly of finished stages, with PTX and SASS to be made from them."""
    later: dict[str, Callable[[], Stage]] = {}
    source, cubin = stages.get("cuda"), stages.get("cubin")
    if isinstance(source, str) and "ptx" not in stages:
        later["ptx"] = partial(_ptx, source)
    if isinstance(cubin, bytes) and "sass" not in stages:
        later["sass"] = partial(_sass, cubin)
    return Assembly(stages, later, programs)


def _ptx(source: str) -> str:
    from tawa.runtime import nvrtc

    return nvrtc.build(source, ptx=True).ptx


def _sass(cubin: bytes) -> str:
    from tawa.runtime import sass

    if not (listing := sass.disassemble(cubin)):
        raise BuildError(
            "there is no nvdisasm to show SASS with",
            why="it comes with the package nvidia-cuda-nvdisasm",
            remedy="pip install 'tawa[sass]'",
        )
    return listing
