"""hopper IR to CUDA C++. `generate` is the whole interface; `CudaSource` what it gives."""

from __future__ import annotations

from tawa.codegen.generate import generate
from tawa.codegen.source import CudaSource

__all__ = ["CudaSource", "generate"]
