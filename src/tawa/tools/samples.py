# ruff: noqa: N803  (the names are those of the tile language)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""The kernels `tawa demo` and `tawa doctor` run."""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def double(x_ptr, out_ptr, COUNT: tl.constexpr):
    """out = 2 * x."""
    where = tl.arange(0, COUNT)
    tl.store(out_ptr + where, 2 * tl.load(x_ptr + where))


@tawa.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A @ B, one program a tile of C."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))
