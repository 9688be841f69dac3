"""hopper IR to CUDA C++. `generate` is the whole interface; `CudaSource` what it gives.

`generate` resolves when first used: a launcher reads `tawa.codegen.parameters` without the IR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tawa.codegen.source import CudaSource

if TYPE_CHECKING:
    from tawa.codegen.generate import generate

__all__ = ["CudaSource", "generate"]


def __getattr__(name: str) -> Any:
    if name != "generate":
        raise AttributeError(f"module 'tawa.codegen' has no attribute {name!r}")
    from tawa.codegen.generate import generate

    # Over the submodule of the same name, which the import has just bound here.
    globals()[name] = generate
    return generate
