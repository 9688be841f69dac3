"""tawa in JAX: kernels inside `jax.jit`, with no Python at run time on a GPU.

jax is imported here, and nowhere else in this package. What works and what does not: docs/jax.md.
"""

from __future__ import annotations

from tawa.jax.calls import call
from tawa.jax.convolutions import conv, conv_general_dilated
from tawa.jax.dot_product import dot_product_attention
from tawa.jax.library import attention, matmul

__all__ = [
    "attention",
    "call",
    "conv",
    "conv_general_dilated",
    "dot_product_attention",
    "matmul",
]
