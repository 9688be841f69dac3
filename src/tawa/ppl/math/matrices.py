"""Functions of matrices in the subset, and their adjoints: one operation of the IR each.

The adjoint functions take what the function takes, its result, and the adjoint of that; they
return the adjoints of what it takes. In the innermost loops elements depend on none of each other,
and lie side by side: the order of the sums of each one is fixed, and LLVM still makes vectors.
"""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.words import memory, select, sqrt


def cholesky(matrix: Any) -> Any:
    """The lower factor, column after column; each is taken from all that is right of it at once.

    `rest` holds rows of the upper half, the lower one of `matrix` mirrored.
    """
    n = len(matrix)
    factor = memory(matrix)
    rest = memory(matrix)
    row = memory(matrix[0])
    for i in range(n):
        for j in range(i):
            rest[j, i] = matrix[i, j]
    for k in range(n):
        pivot = sqrt(rest[k, k])
        factor[k, k] = pivot
        for j in range(k + 1, n):
            row[j] = rest[k, j] / pivot
        for i in range(k + 1, n):
            share = row[i]
            factor[i, k] = share
            factor[k, i] = 0.0
            for j in range(i, n):
                rest[i, j] = rest[i, j] - share * row[j]
    return factor


def cholesky_adjoint(matrix: Any, factor: Any, seed: Any) -> Any:
    """Its columns backward (Murray 2016, the unblocked form); the upper half gets zeros."""
    n = len(matrix)
    slope = memory(seed)
    row = memory(seed[0])
    for back in range(n):
        k = n - 1 - back
        pivot = factor[k, k]
        below = 0.0
        for i in range(k + 1, n):
            below = below + slope[i, k] * factor[i, k]
            slope[i, k] = slope[i, k] / pivot
            slope[k, i] = 0.0
        share = (slope[k, k] - below / pivot) / pivot
        slope[k, k] = 0.5 * share
        for j in range(k):
            row[j] = slope[k, j] - share * factor[k, j]
        for i in range(k + 1, n):
            share = slope[i, k]
            for j in range(k):
                row[j] = row[j] - share * factor[i, j]
                slope[i, j] = slope[i, j] - share * factor[k, j]
        for j in range(k):
            slope[k, j] = row[j]
    return slope


def solve_lower(factor: Any, right: Any) -> Any:
    """Forward substitution, column after column."""
    n = len(right)
    x = memory(right)
    for k in range(n):
        solved = x[k] / factor[k, k]
        x[k] = solved
        for i in range(k + 1, n):
            x[i] = x[i] - factor[i, k] * solved
    return x


def solve_lower_adjoint(factor: Any, right: Any, x: Any, seed: Any) -> Any:
    """Backward substitution by the transposed factor, and its product with x."""
    n = len(right)
    y = memory(seed)
    slope = memory(factor)
    for back in range(n):
        k = n - 1 - back
        solved = y[k] / factor[k, k]
        y[k] = solved
        for j in range(k):
            y[j] = y[j] - factor[k, j] * solved
        for j in range(n):
            slope[k, j] = select(j <= k, -solved * x[j], 0.0)
    return slope, y
