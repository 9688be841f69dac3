"""From arrays and a variant to launches: checks, descriptors, grids, workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import gemm, split
from tawa.kernels.arrays import BYTES, Operand, dtype_of, empty_beside, operand, strides_of
from tawa.kernels.variants import Problem, Variant

ACTIVATIONS = ("", "relu", "leaky_relu", "silu", "gelu")


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch with everything bound."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> None:
        """Launch on the current stream, or run in the simulator."""
        self.kernel[self.grid](*self.arguments, **self.options)

    def compile(self) -> Any:
        """Return the `CompiledKernel`, without a launch and without a GPU."""
        return self.kernel.compile(*self.arguments, grid=self.grid, **self.options)


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of one product, checked against one another."""

    problem: Problem
    a: Operand
    b: Operand
    c: Any
    bias: Any = None
    scale_a: Any = None
    scale_b: Any = None


def _descriptor(array: Any, block: Sequence[int]) -> Any:
    return tawa.TensorDescriptor(array, list(array.shape), list(strides_of(array)), list(block))


def _blocks(operands: Operands, sizes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return the descriptors of A, B and C for a tile."""
    m, n, k = sizes["BLOCK_M"], sizes["BLOCK_N"], sizes["BLOCK_K"]
    lead = [1] if operands.problem.batch > 1 else []
    a = [k, m] if operands.a.transposed else [m, k]
    b = [n, k] if operands.b.transposed else [k, n]
    return (
        _descriptor(operands.a.array, lead + a),
        _descriptor(operands.b.array, lead + b),
        _descriptor(operands.c, [*lead, m, n]),
    )


def prepare(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that compute a product by `variant`, in order."""
    match variant.form:
        case "descriptors":
            return _by_descriptors(operands, variant)
        case "pointers":
            return _by_pointers(operands, variant)
        case "split":
            return _by_split(operands, variant)
        case "stream":
            return _by_stream(operands, variant)
        case _:
            raise ArgumentError(f"no form of matmul is called {variant.form!r}")


def _by_descriptors(operands: Operands, variant: Variant) -> list[Launch]:
    problem, options = operands.problem, variant.config.all_kwargs()
    turned = {"TRANS_A": operands.a.transposed, "TRANS_B": operands.b.transposed}
    maps = _blocks(operands, options)
    grid = (ceil(problem.m / options["BLOCK_M"]), ceil(problem.n / options["BLOCK_N"]))
    if problem.batch > 1:
        if not problem.plain:
            raise ArgumentError("a batched product takes no bias, scale or activation")
        batched = (*grid, problem.batch)
        return [Launch(gemm.matmul_batched, batched, (*maps, problem.k), options | turned)]
    if problem.plain:
        return [Launch(gemm.matmul_descriptors, grid, (*maps, problem.k), options | turned)]
    extra = (operands.scale_a, operands.scale_b, operands.bias)
    arguments = (*maps, *extra, problem.m, problem.n, problem.k)
    finish = {
        "SCALES": problem.scales,
        "BIAS": problem.bias,
        "ACTIVATION": problem.activation,
    }
    return [Launch(gemm.matmul_epilogue, grid, arguments, options | turned | finish)]


def _by_pointers(operands: Operands, variant: Variant) -> list[Launch]:
    problem, options = operands.problem, variant.config.all_kwargs()
    if problem.batch > 1 or problem.bias or problem.scales:
        raise ArgumentError(
            "a product whose arrays do not fit TMA takes no batch, bias or scale",
            why="bases and strides of TMA are multiples of 16 bytes",
            remedy="pad the rows of the arrays",
        )
    a, b = operands.a, operands.b
    a_steps = a.strides[::-1] if a.transposed else a.strides
    b_steps = b.strides[::-1] if b.transposed else b.strides
    steps = (*a_steps, *b_steps, *strides_of(operands.c))
    grid = (ceil(problem.m / options["BLOCK_M"]) * ceil(problem.n / options["BLOCK_N"]),)
    arguments = (a.array, b.array, operands.c, problem.m, problem.n, problem.k, *steps)
    finish = {"ACTIVATION": problem.activation}
    return [Launch(gemm.matmul_pointers, grid, arguments, options | finish)]


def _by_split(operands: Operands, variant: Variant) -> list[Launch]:
    problem, options = operands.problem, variant.config.all_kwargs()
    m, n, depth = problem.m, problem.n, options["BLOCK_K"]
    chunk = ceil(problem.k / variant.splits / depth) * depth
    splits = ceil(problem.k / chunk)
    parts = empty_beside(operands.c, (splits, m, n), "f32")
    a, b, _ = _blocks(operands, options)
    part = _descriptor(parts, [1, options["BLOCK_M"], options["BLOCK_N"]])
    turned = {"TRANS_A": operands.a.transposed, "TRANS_B": operands.b.transposed, "CHUNK": chunk}
    grid = (ceil(m / options["BLOCK_M"]), ceil(n / options["BLOCK_N"]), splits)
    finish = {
        "SPLITS": splits,
        "BLOCK": 1024,
        "BIAS": problem.bias,
        "ACTIVATION": problem.activation,
    }
    arguments = (parts, operands.c, operands.bias, n, m * n)
    return [
        Launch(split.matmul_split, grid, (a, b, part, problem.k), options | turned),
        Launch(split.add_parts, (ceil(m * n / 1024),), arguments, finish),
    ]


def _by_stream(operands: Operands, variant: Variant) -> list[Launch]:
    problem, options = operands.problem, variant.config.all_kwargs()
    rows, columns, programs = options["BLOCK_M"], options["BLOCK_N"], options["PROGRAMS"]
    tiles = ceil(problem.m / rows) * ceil(problem.n / columns)
    # Whole waves but one go tile by tile; the last full wave and what overhangs it are streamed,
    # so that each program has at least one tile's worth of steps.
    whole = max(0, tiles // programs - 1) * programs
    share = ceil((tiles - whole) * ceil(problem.k / options["BLOCK_K"]) / programs)
    parts = empty_beside(operands.c, (2 * programs * rows, columns), "f32")
    part = _descriptor(parts, [rows, columns])
    a, b, c = _blocks(operands, options)
    turned = {"TRANS_A": operands.a.transposed, "TRANS_B": operands.b.transposed}
    sizes = (problem.m, problem.n, problem.k, whole, share)
    finish = {name: value for name, value in options.items() if name != "PROGRAMS"}
    return [
        Launch(split.matmul_stream, (programs,), (a, b, c, part, *sizes), options | turned),
        Launch(split.finish_stream, (tiles - whole,), (part, c, *sizes), finish),
    ]


def _aligned(*arrays: Any) -> bool:
    """Tell whether TMA takes the arrays: bases and strides are multiples of 16 bytes."""
    for array in arrays:
        item = BYTES[dtype_of(array)]
        if any(step * item % 16 for step in strides_of(array)[:-1]):
            return False
    return True


def _scales(scale_a: Any, m: int, scale_b: Any, n: int) -> str:
    """Return how the operands are scaled: "", "tensor" (one value each) or "row" ([m] and [n])."""
    if scale_a is None and scale_b is None:
        return ""
    if scale_a is None or scale_b is None:
        raise ArgumentError("scale_a and scale_b go together")
    sizes = (prod(scale_a.shape), prod(scale_b.shape))
    if sizes == (1, 1):
        return "tensor"
    if sizes == (m, n):
        return "row"
    raise ArgumentError(
        f"scales of {sizes[0]} and {sizes[1]} elements for a {m} x {n} product",
        remedy="pass one element each, or one for each row of a and each column of b",
    )


def bind(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    bias: Any = None,
    activation: str = "",
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: str = "",
) -> Operands:
    """Check the arrays of a product against one another and describe it.

    `a` is [M, K] or [batch, M, K], `b` [K, N] or [batch, K, N], either in row- or column-major
    order. Raises `ArgumentError` where shapes, types or options do not fit together.
    """
    kinds = (dtype_of(a), dtype_of(b))
    if kinds[0][:2] != kinds[1][:2] or (kinds[0] != kinds[1] and not kinds[0].startswith("f8")):
        raise ArgumentError(f"operands of {kinds[0]} and {kinds[1]} have no product")
    rank = len(a.shape)
    if rank not in (2, 3) or len(b.shape) != rank or tuple(a.shape)[:-2] != tuple(b.shape)[:-2]:
        raise ArgumentError(f"no product of shapes {tuple(a.shape)} and {tuple(b.shape)}")
    m, k = a.shape[-2:]
    if b.shape[-2] != k:
        raise ArgumentError(
            f"a has {k} columns and b {b.shape[-2]} rows",
            why="[M, K] @ [K, N] sums over K",
            remedy="pass b.T if b is stored [N, K]",
        )
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"no activation {activation!r}; there are {', '.join(ACTIVATIONS)}")
    n = b.shape[-1]
    result = out_dtype or ("bf16" if kinds[0].startswith("f8") else kinds[0])
    if out is None:
        out = empty_beside(a, (*tuple(a.shape)[:-2], m, n), result)
    left, right = operand(a, "a"), operand(b, "b")
    problem = Problem(
        m,
        n,
        k,
        kinds[0],
        dtype_of(out),
        a.shape[0] if rank == 3 else 1,
        left.transposed,
        right.transposed,
        _aligned(left.array, right.array, out),
        _scales(scale_a, m, scale_b, n),
        bias is not None,
        activation,
    )
    return Operands(problem, left, right, out, bias, scale_a, scale_b)
