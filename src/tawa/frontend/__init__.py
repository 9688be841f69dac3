"""The frontend: Python source → tile IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tawa.frontend.signature import Signature

if TYPE_CHECKING:
    from tawa.ir import tile


def build(function: object, signature: Signature, options: Mapping[str, object]) -> tile.Kernel:
    """Compile a Python function for a signature into a verified `tile.kernel`.

    `function` is a plain Python function or anything that holds one as ``.fn``; `signature` has an
    entry for each parameter without a default; `options` (num_warps, num_stages, ...) are recorded
    on the kernel. Raises the errors of `tawa.errors` with the place in the user's source.
    """
    # xDSL takes longer to import than a launch may take; only a compilation pays for it.
    from tawa.frontend.lowering import lower

    return lower(function, signature, options)


__all__ = ["build"]
