# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false
"""From arrays and a variant to launches: checks, descriptors, grids, workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, gcd, prod
from typing import Any

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import gemm, split
from tawa.kernels.arrays import (
    BYTES,
    LINE,
    PRODUCTS,
    Operand,
    View,
    counters_beside,
    empty_beside,
    fits_tma,
    look,
    on_lines,
    operand,
)
from tawa.kernels.variants import Problem, Variant
from tawa.runtime.arrays import row_major

FLOATS = ("f16", "bf16", "f32")
OUTPUTS = (*FLOATS, "f8e4m3", "f8e5m2")
_PARTS = {"ieee": "tf32x3", "tf32": "tf32"}
"""How the kernels multiply float32, by what a call asks for."""
_COPIED = (8, 512)
"""Rows and columns that one program copies."""
_ADDED, _ABREAST = 1024, 8
"""Elements of parts that a program adds up; rows of tiles that are walked together."""
ACTIVATIONS = ("", "relu", "leaky_relu", "silu", "gelu")


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch with everything bound."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self) -> None:
        """Launch on the current stream, or run in the simulator."""
        self.kernel[self.grid](*self.arguments, **self.options)

    def compile(self) -> Any:
        """Return the `CompiledKernel`, without a launch and without a GPU."""
        return self.kernel.compile(*self.arguments, grid=self.grid, **self.options)

    def ready(self) -> None:
        """Compile what the launch runs."""
        self.kernel.compile_to_run(*self.arguments, grid=self.grid, **self.options)

    def early(self) -> Launch:
        """Return the launch that begins while the kernel before it in the stream ends."""
        return replace(self, options={**self.options, "launch_pdl": True})


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of one product, checked against one another."""

    problem: Problem
    a: Operand
    b: Operand
    c: Operand
    bias: Any = None
    scale_a: Any = None
    scale_b: Any = None
    gradient: Operand | None = None


def _descriptor(held: Operand, block: Sequence[int]) -> Any:
    return tawa.TensorDescriptor(held.array, held.shape, held.strides, block)


def _blocks(operands: Operands, sizes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return the descriptors of A, B and C for a tile."""
    m, n, k = sizes["BLOCK_M"], sizes["BLOCK_N"], sizes["BLOCK_K"]
    lead = [1] if operands.problem.batch > 1 else []
    a = [k, m] if operands.a.transposed else [m, k]
    b = [n, k] if operands.b.transposed else [k, n]
    return (
        _descriptor(operands.a, lead + a),
        _descriptor(operands.b, lead + b),
        _descriptor(operands.c, [*lead, m, n]),
    )


def prepare(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that compute a product by `variant`, in order."""
    copies: list[Launch] = []
    if variant.copied:
        operands, copies = _lined_up(operands, variant.copied)
    found = [*copies, *_prepare(operands, variant)]
    if not operands.problem.precision:
        return found
    # The names that a kernel has decide which of the launches multiply.
    named = {"PRECISION": _PARTS[operands.problem.precision]}
    return [
        replace(each, options={**each.options, **named})
        if "PRECISION" in each.kernel.arg_names
        else each
        for each in found
    ]


def _prepare(operands: Operands, variant: Variant) -> list[Launch]:
    match variant.form:
        case "descriptors":
            return _by_descriptors(operands, variant)
        case "pointers":
            return _by_pointers(operands, variant)
        case _ if operands.problem.gradient and variant.form not in ("descriptors", "pointers"):
            raise ArgumentError(f"the form {variant.form!r} computes no gradient of an activation")
        case "split":
            return _by_split(operands, variant)
        case "split_once" if operands.problem.scales:
            raise ArgumentError("the form 'split_once' scales nothing", remedy='use "split"')
        case "split_once":
            return _by_split_once(operands, variant)
        case _:
            raise ArgumentError(f"no form of matmul is called {variant.form!r}")


def _lined_up(operands: Operands, names: str) -> tuple[Operands, list[Launch]]:
    """Return what is multiplied where the operands `names` are copied first, and the copies."""
    copies: list[Launch] = []

    def copied(name: str, held: Operand) -> Operand:
        if name not in names:
            return held
        kind = operands.problem.dtype
        rows, columns = held.shape[-2:]
        items = prod(held.shape[:-2])
        line = LINE // BYTES[kind]
        pitch = ceil(columns / line) * line
        made = empty_beside(held.array, (items * rows * pitch,), kind)
        step = held.strides[0] if len(held.shape) > 2 else 0
        sizes = (rows, columns, step, held.strides[-2], pitch)
        grid = (ceil(pitch / _COPIED[1]), ceil(rows / _COPIED[0]), items)
        blocks = {"BLOCK_R": _COPIED[0], "BLOCK_C": _COPIED[1]}
        copies.append(Launch(gemm.line_up_rows, grid, (held.array, made, *sizes), blocks))
        strides = (rows * pitch, pitch, 1)[-len(held.shape) :]
        return Operand(made, held.shape, strides, held.transposed)

    a, b = copied("a", operands.a), copied("b", operands.b)
    return replace(operands, problem=operands.problem.lined_up(names), a=a, b=b), copies


def _by_descriptors(operands: Operands, variant: Variant) -> list[Launch]:
    problem, options = operands.problem, variant.config.all_kwargs()
    turned = {"TRANS_A": operands.a.transposed, "TRANS_B": operands.b.transposed}
    maps = _blocks(operands, options)
    grid = (ceil(problem.m / options["BLOCK_M"]), ceil(problem.n / options["BLOCK_N"]))
    if options.get("ACROSS"):
        grid = grid[::-1]
    if problem.batch > 1:
        if not problem.plain:
            raise ArgumentError(
                "a batched product through descriptors takes no bias, scale or activation",
                remedy='use the form "pointers"',
            )
        batched = (*grid, problem.batch)
        turned |= {"SHARED_A": problem.shared == "a", "SHARED_B": problem.shared == "b"}
        return [Launch(gemm.matmul_batched, batched, (*maps, problem.k), options | turned)]
    if problem.plain:
        return [Launch(gemm.matmul_descriptors, grid, (*maps, problem.k), options | turned)]
    grad = operands.gradient
    if grad is not None:
        grad = _descriptor(grad, [options["BLOCK_M"], options["BLOCK_N"]])
    extra = (grad, operands.scale_a, operands.scale_b, operands.bias)
    arguments = (*maps, *extra, problem.m, problem.n, problem.k)
    finish = {
        "SCALES": problem.scales,
        "BIAS": problem.bias,
        "ACTIVATION": problem.activation,
        "GRADIENT": problem.gradient,
    }
    return [Launch(gemm.matmul_epilogue, grid, arguments, options | turned | finish)]


def _by_pointers(operands: Operands, variant: Variant) -> list[Launch]:
    problem, options = operands.problem, variant.config.all_kwargs()
    held = (operands.a, operands.b, operands.c)
    arrays = tuple(each.array for each in held)
    sizes = (problem.m, problem.n, problem.k)
    tiles = ceil(problem.m / options["BLOCK_M"]) * ceil(problem.n / options["BLOCK_N"])
    finish = {"ACTIVATION": problem.activation}
    epilogue = problem.bias or problem.scales or problem.gradient
    if problem.batch == 1 and not epilogue and not any(map(_is_far, held)):
        steps = tuple(step for each in held for step in each.matrix_strides)
        arguments = (*arrays, *sizes, *steps)
        return [Launch(gemm.matmul_pointers, (tiles,), arguments, options | finish)]
    grad = None if operands.gradient is None else operands.gradient.array
    extra = (grad, operands.scale_a, operands.scale_b, operands.bias)
    batched = len(operands.a.shape) == 3
    steps = tuple(
        step
        for each in held
        for step in (
            each.strides[0] if batched and each.shape[0] > 1 else 0,
            *each.matrix_strides,
        )
    )
    finish |= {"SCALES": problem.scales, "BIAS": problem.bias, "GRADIENT": problem.gradient}
    arguments = (*arrays, *extra, *sizes, *steps)
    return [Launch(gemm.matmul_strided, (tiles, problem.batch), arguments, options | finish)]


def _is_far(held: Operand) -> bool:
    """Tell whether an element lies so far from the first that 32 bits do not count to it."""
    return sum(extent * abs(step) for extent, step in zip(held.shape, held.strides)) >= 1 << 31


def _by_split(operands: Operands, variant: Variant) -> list[Launch]:
    problem, options = operands.problem, variant.config.all_kwargs()
    m, n, whole = problem.m, problem.n, variant.whole
    rows, columns, depth = (options[f"BLOCK_{name}"] for name in "MNK")
    chunk = ceil(problem.k / variant.splits / depth) * depth
    splits = ceil(problem.k / chunk)
    dealt = max(0, ceil(m / rows) * ceil(n / columns) - whole)
    parts = empty_beside(operands.c.array, (dealt * splits * rows * columns,), "f32")
    extra = (operands.scale_a, operands.scale_b, operands.bias)
    how = {"SPLITS": splits, "WHOLE": whole, "GROUP_M": _ABREAST, "SCALES": problem.scales}
    how |= {"BIAS": problem.bias, "ACTIVATION": problem.activation}
    turned = {"TRANS_A": operands.a.transposed, "TRANS_B": operands.b.transposed, "CHUNK": chunk}
    given = (*_blocks(operands, options), parts, *extra, m, n, problem.k)
    together = gcd(rows, 1 << (_ADDED // columns).bit_length() - 1)
    tile = {"BLOCK_M": rows, "BLOCK_N": columns, "ROWS": together}
    step = operands.c.matrix_strides[0]
    arguments = (parts, operands.c.array, *extra, m, n, step)
    grids = (whole + dealt * splits,), (dealt, rows // together)
    return [
        Launch(split.matmul_split, grids[0], given, options | turned | how),
        Launch(split.add_tiles, grids[1], arguments, tile | how),
    ]


def _by_split_once(operands: Operands, variant: Variant) -> list[Launch]:
    problem, options = operands.problem, variant.config.all_kwargs()
    rows, columns, depth = options["BLOCK_M"], options["BLOCK_N"], options["BLOCK_K"]
    chunk = ceil(problem.k / variant.splits / depth) * depth
    splits = ceil(problem.k / chunk)
    tiles = ceil(problem.m / rows) * ceil(problem.n / columns)
    parts = empty_beside(operands.c.array, (tiles * splits * rows * columns,), "f32")
    counts = counters_beside(operands.c.array, tiles)
    options |= {
        "TRANS_A": operands.a.transposed,
        "TRANS_B": operands.b.transposed,
        "CHUNK": chunk,
        "SPLITS": splits,
        "BIAS": problem.bias,
        "ACTIVATION": problem.activation,
    }
    grid = (ceil(problem.m / rows), ceil(problem.n / columns), splits)
    maps = _blocks(operands, options)
    arguments = (*maps, parts, counts, operands.bias, problem.n, problem.k)
    return [Launch(split.matmul_split_once, grid, arguments, options)]


def _scales(scale_a: Any, m: int, scale_b: Any, n: int) -> str:
    """Return how the operands are scaled: "", "tensor" (one value each) or "row" ([m] and [n])."""
    if scale_a is None and scale_b is None:
        return ""
    if scale_a is None or scale_b is None:
        raise ArgumentError("scale_a and scale_b go together")
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        view = look(scale)
        if view.dtype != "f32" or view.strides != row_major(view.shape):
            raise ArgumentError(
                f"{name} holds {view.dtype}, of shape {view.shape} and strides {view.strides}",
                why="scales are dense float32",
            )
    sizes = (prod(scale_a.shape), prod(scale_b.shape))
    if sizes == (1, 1):
        return "tensor"
    if sizes == (m, n):
        return "row"
    raise ArgumentError(
        f"scales of {sizes[0]} and {sizes[1]} elements for a {m} x {n} product",
        remedy="pass one element each, or one for each row of a and each column of b",
    )


def _check_out(out: View, shape: tuple[int, ...]) -> None:
    if 0 not in shape:
        steps = zip(out.shape, out.strides)
        by_rows = out.shape[-1] <= 1 or out.strides[-1] == 1
        apart = not any(extent > 1 and step == 0 for extent, step in steps)
    else:
        by_rows = apart = True
    if out.shape != shape or not by_rows or not apart:
        raise ArgumentError(
            f"out has shape {out.shape} and strides {out.strides}",
            why=f"the product has shape {shape}, stored by rows, each element in its own place",
        )
    if out.dtype not in OUTPUTS:
        raise ArgumentError(f"out holds {out.dtype}", why=f"one of {', '.join(OUTPUTS)}")


def _check_vector(name: str, array: Any, count: int) -> None:
    view = look(array)
    if view.shape != (count,) or (count > 1 and view.strides != (1,)):
        raise ArgumentError(
            f"{name} has shape {view.shape} and strides {view.strides}",
            why=f"the kernel reads {count} numbers side by side",
            remedy=f"pass a dense array of shape ({count},)",
        )
    if view.dtype not in FLOATS:
        raise ArgumentError(f"{name} holds {view.dtype}", why=f"one of {', '.join(FLOATS)}")


def bind(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    bias: Any = None,
    activation: str = "",
    scale_a: Any = None,
    scale_b: Any = None,
    gradient: Any = None,
    out_dtype: str = "",
    precision: str = "ieee",
) -> Operands:
    """Check the arrays of a product against one another and describe it.

    `a` is [M, K] or [batch, M, K], `b` [K, N] or [batch, K, N], either in row- or column-major
    order; a batch of one goes with any. Raises `ArgumentError` where shapes, types or options do
    not fit together.
    """
    left, right = look(a), look(b)
    _check_types(left.dtype, right.dtype)
    rank = len(left.shape)
    batches = left.shape[:-2], right.shape[:-2]
    fits = batches[0] == batches[1] or (1,) in batches
    if rank not in (2, 3) or len(right.shape) != rank or not fits:
        raise ArgumentError(f"no product of shapes {left.shape} and {right.shape}")
    (m, k), n = left.shape[-2:], right.shape[-1]
    if right.shape[-2] != k:
        raise ArgumentError(
            f"a has {k} columns and b {right.shape[-2]} rows",
            why="[M, K] @ [K, N] sums over K",
            remedy="pass b.T if b is stored [N, K]",
        )
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"no activation {activation!r}; there are {', '.join(ACTIVATIONS[1:])}")
    if bias is not None:
        _check_vector("bias", bias, n)
    batch = batches[1] if batches[0] == (1,) else batches[0]
    shared = "" if batches[0] == batches[1] else "a" if batches[0] == (1,) else "b"
    shape = (*batch, m, n)
    if out is None:
        kind = out_dtype or ("bf16" if left.dtype.startswith("f8") else left.dtype)
        out = empty_beside(a, shape, kind)
    elif out_dtype and look(out).dtype != out_dtype:
        raise ArgumentError(f"out holds {look(out).dtype}, and out_dtype is {out_dtype}")
    result = look(out)
    _check_out(result, shape)
    held = (operand(a, left, "a"), operand(b, right, "b"), operand(out, result, "out"))
    problem = Problem(
        m,
        n,
        k,
        left.dtype,
        result.dtype,
        batch[0] if rank == 3 else 1,
        held[0].transposed,
        held[1].transposed,
        _unaligned((left, right, result), held, gradient),
        "".join(name for name, each in zip("ab", held) if not on_lines(each, left.dtype)),
        _scales(scale_a, m, scale_b, n),
        bias is not None,
        activation,
        precision if left.dtype == "f32" else "",
        gradient is not None,
        shared,
    )
    grad = None if gradient is None else _gradient(gradient, activation, result, held[2])
    return Operands(problem, *held, bias, scale_a, scale_b, grad)


def _unaligned(views: Sequence[View], held: Sequence[Operand], gradient: Any) -> str:
    """Return those of a, b and c that TMA refuses; a gradient lies as c does."""
    fits = [fits_tma(view, each.strides) for view, each in zip(views, held)]
    fits[2] = fits[2] and (gradient is None or look(gradient).address % 16 == 0)
    return "".join(name for name, each in zip("abc", fits) if not each)


def _gradient(gradient: Any, activation: str, out: View, like: Operand) -> Operand:
    """Return what an activation's derivative is multiplied by, which lies as the output does."""
    if not activation:
        raise ArgumentError(
            "gradient without an activation", why="the gradient by the product itself is gradient"
        )
    view = look(gradient)
    steps = zip(view.shape, view.strides, out.strides)
    apart = any(extent > 1 and step != own for extent, step, own in steps)
    if view.shape != out.shape or apart or view.dtype not in FLOATS:
        raise ArgumentError(
            f"gradient holds {view.dtype} {view.shape} with strides {view.strides}",
            why=f"it lies as the product does: {out.shape} with strides {out.strides}",
            remedy="pass gradient.contiguous()",
        )
    return replace(like, array=gradient)


def _check_types(a: str, b: str) -> None:
    """Raise `ArgumentError` unless the tensor cores multiply these element types."""
    if a not in PRODUCTS or b not in PRODUCTS:
        raise ArgumentError(
            f"no product of {a} and {b}",
            why=f"tensor cores take {', '.join(PRODUCTS)}",
            remedy="convert the operands",
        )
    if a != b and not (a.startswith("f8") and b.startswith("f8")):
        raise ArgumentError(
            f"no product of {a} and {b}",
            why="both operands have one type; only e4m3 and e5m2 mix",
            remedy="convert one operand",
        )
