"""tawa in JAX: kernels inside `jax.jit`, with no Python at run time on a GPU.

jax is imported here, and nowhere else in this package. What works and what does not: docs/jax.md.
"""

from __future__ import annotations

from tawa.jax.calls import call
from tawa.jax.library import attention, matmul

__all__ = ["attention", "call", "matmul"]
