"""Task programs with a mapping, after Cypress: ``import tawa.cypress as cy``.

A program is a tree of tasks over tensors, with the meaning of its sequential run; a mapping says
where tasks run and tensors live, and can change speed only. `docs/cypress.md` is the tutorial,
`docs/design/cypress.md` what is promised and what is not done.

Source: Yadav et al., "Task-Based Tensor Computations on Modern GPUs", PLDI 2025 (arXiv:2504.07004).
"""

from __future__ import annotations

from tawa.cypress import lib
from tawa.cypress.machine import (
    BLOCK,
    GLOBAL,
    HOPPER,
    HOST,
    NONE,
    REGISTER,
    SHARED,
    THREAD,
    WARP,
    WARPGROUP,
    Auto,
    Level,
    Machine,
    Memory,
    auto,
)
from tawa.cypress.mapping import Instance, Mapping
from tawa.cypress.partition import Partition, blocks, mma, wgmma
from tawa.cypress.program import Program
from tawa.cypress.search import program, search
from tawa.cypress.task import Variant, inner, leaf
from tawa.cypress.tensor import Tensor
from tawa.cypress.trace import index, inside, launch, make_tensor, prange, same, size, srange
from tawa.errors import MappingError
from tawa.language.dtypes import bfloat16 as bf16
from tawa.language.dtypes import float16 as f16
from tawa.language.dtypes import float32 as f32

__all__ = [
    "BLOCK",
    "GLOBAL",
    "HOPPER",
    "HOST",
    "NONE",
    "REGISTER",
    "SHARED",
    "THREAD",
    "WARP",
    "WARPGROUP",
    "Auto",
    "Instance",
    "Level",
    "Machine",
    "Mapping",
    "MappingError",
    "Memory",
    "Partition",
    "Program",
    "Tensor",
    "Variant",
    "auto",
    "bf16",
    "blocks",
    "f16",
    "f32",
    "index",
    "inner",
    "inside",
    "launch",
    "leaf",
    "lib",
    "make_tensor",
    "mma",
    "prange",
    "program",
    "same",
    "search",
    "size",
    "srange",
    "wgmma",
]
