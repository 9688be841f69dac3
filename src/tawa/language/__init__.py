"""The tile language: ``import tawa.language as tl``.

The names and the meaning are those of triton.language, 3.6 to 3.9. The functions here are
documentation and signatures; a kernel is compiled from its source, and calling one of them from
host code is an error that says so.
"""

from __future__ import annotations

import sys

from tawa.language import annotation, constant, extra, math
from tawa.language.additions import atomic_load, atomic_store, expect_zero
from tawa.language.atomics import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
)
from tawa.language.constant import ConstexprFunction, constexpr_function
from tawa.language.dtypes import (
    bfloat16,
    block_type,
    dtype,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pi32_t,
    pointer_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tawa.language.math import (
    PropagateNan,
    abs,
    add,
    cdiv,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    mul,
    rsqrt,
    sigmoid,
    sin,
    softmax,
    sqrt,
    sqrt_rn,
    sub,
    umulhi,
)
from tawa.language.memory import (
    advance,
    load,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store,
    store_tensor_descriptor,
)
from tawa.language.program import (
    arange,
    assume,
    condition,
    debug_barrier,
    device_assert,
    device_print,
    full,
    inline_asm_elementwise,
    max_constancy,
    max_contiguous,
    multiple_of,
    num_programs,
    program_id,
    range,
    static_assert,
    static_print,
    static_range,
    to_tensor,
    zeros,
    zeros_like,
)
from tawa.language.random import (
    pair_uniform_to_normal,
    philox,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from tawa.language.reduction import (
    argmax,
    argmin,
    associative_scan,
    cumprod,
    cumsum,
    histogram,
    map_elementwise,
    max,
    min,
    reduce,
    reduce_or,
    sum,
    xor_sum,
)
from tawa.language.scaled import dot_scaled
from tawa.language.sorting import _log2 as _log2  # pyright: ignore[reportPrivateUsage]
from tawa.language.sorting import bitonic_merge, flip, sort, topk
from tawa.language.sorting import get_int_dtype as get_int_dtype
from tawa.language.tensors import (
    broadcast,
    broadcast_to,
    cast,
    cat,
    dot,
    expand_dims,
    gather,
    interleave,
    item,
    join,
    permute,
    ravel,
    reshape,
    split,
    squeeze,
    swizzle2d,
    trans,
    unsqueeze,
    view,
    where,
)
from tawa.language.values import (
    aggregate_replace,
    const,
    pointer,
    tensor,
    tensor_descriptor,
    tensor_descriptor_base,
    tuple,
)

constexpr = annotation.constexpr
_aggregate = constant.aggregate  # pyright: ignore[reportUnusedVariable]
core = standard = sys.modules[__name__]
"""Where Triton defines most of these names; compilers write ``tl.core.view``."""

__all__ = [
    "ConstexprFunction", "PropagateNan", "abs", "add", "advance", "aggregate_replace", "arange",
    "argmax", "argmin", "associative_scan", "assume", "atomic_add", "atomic_and", "atomic_cas",
    "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_store", "atomic_xchg",
    "atomic_xor", "bfloat16", "bitonic_merge", "block_type", "broadcast", "broadcast_to", "cast",
    "cat", "cdiv", "ceil", "clamp", "condition", "const", "constexpr", "constexpr_function", "cos",
    "cumprod", "cumsum", "debug_barrier", "device_assert", "device_print", "div_rn", "dot",
    "dot_scaled", "dtype", "erf", "exp", "exp2", "expand_dims", "expect_zero", "extra", "fdiv",
    "flip", "float8e4nv", "float8e5", "float16", "float32", "float64", "floor", "fma", "full",
    "gather", "histogram", "inline_asm_elementwise", "int1", "int8", "int16", "int32", "int64",
    "interleave", "item", "join", "load", "load_tensor_descriptor", "log", "log2", "make_block_ptr",
    "make_tensor_descriptor", "map_elementwise", "math", "max", "max_constancy", "max_contiguous",
    "maximum", "min", "minimum", "mul", "multiple_of", "num_programs", "pair_uniform_to_normal",
    "permute", "philox", "pi32_t", "pointer", "pointer_type", "program_id", "rand", "rand4x",
    "randint", "randint4x", "randn", "randn4x", "range", "ravel", "reduce", "reduce_or", "reshape",
    "rsqrt", "sigmoid", "sin", "softmax", "sort", "split", "sqrt", "sqrt_rn", "squeeze",
    "static_assert", "static_print", "static_range", "store", "store_tensor_descriptor", "sub",
    "sum", "swizzle2d", "tensor", "tensor_descriptor", "tensor_descriptor_base", "to_tensor",
    "topk", "trans", "tuple", "uint8", "uint16", "uint32", "uint64", "uint_to_uniform_float",
    "umulhi", "unsqueeze", "view", "void", "where", "xor_sum", "zeros", "zeros_like",
]  # fmt: skip
