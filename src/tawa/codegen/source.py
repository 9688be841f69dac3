"""What code generation gives: the CUDA C++ of one kernel and what a launcher must know of it."""

from __future__ import annotations

from dataclasses import dataclass

from tawa.codegen.parameters import Parameter


@dataclass(frozen=True, slots=True)
class CudaSource:
    """One kernel as CUDA C++.

    `text` includes no header; `entry_name` is its extern "C" kernel; `parameters` are its
    parameters in order. `threads` a block, `shared_bytes` of dynamic shared memory, `cluster`
    blocks a cluster, `early` says that a launch need not wait for the kernel before, `arch` the
    architecture the text is written for.
    """

    text: str
    entry_name: str
    parameters: tuple[Parameter, ...]
    threads: int
    shared_bytes: int
    cluster: int
    persistent: bool
    arch: str
    early: bool = False
