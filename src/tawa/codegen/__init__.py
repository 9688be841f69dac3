"""hopper IR to CUDA C++: the function `generate` of the module of that name, and `CudaSource`.

Nothing here imports the IR: a launcher reads `tawa.codegen.parameters` without it. The function is
not bound here: the submodule of the same name would take its place for whoever imports that first.
"""

from __future__ import annotations

from tawa.codegen.parameters import CudaSource

__all__ = ["CudaSource"]
