"""What Triton's language got since 3.6, as far as it is written in the language itself."""

# The bodies are tile code, which pyright cannot type: it is typed where it is compiled.
# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportAssignmentType=false

from __future__ import annotations

from tawa.language import primitives as tl
from tawa.language.constant import constexpr_function
from tawa.language.dtypes import dtype, pointer_type
from tawa.language.written import Written


@constexpr_function
def _bits_of(element):
    """Return the integer type as wide as `element`."""
    return dtype(f"int{element.primitive_bitwidth}")


@constexpr_function
def _pointer_to(element):
    return pointer_type(element)


@Written
def atomic_load(pointer, mask=None, sem=None, scope=None):
    """Read 32 or 64 bits as one step; `sem` is "acquire" (unless given) or "relaxed".

    The memory is one that may be written: it is combined with zero.
    """
    element: tl.constexpr = pointer.dtype.element_ty
    order: tl.constexpr = "acquire" if sem is None else sem
    tl.static_assert(order in ("acquire", "relaxed"), "the sem of a load is acquire or relaxed")
    bits: tl.constexpr = _bits_of(element)
    found = tl.atomic_or(pointer.to(_pointer_to(bits)), 0, mask, order, scope)
    return found.to(element, bitcast=True)


@Written
def atomic_store(pointer, val, mask=None, sem=None, scope=None):
    """Write 32 or 64 bits as one step; `sem` is "release" (unless given) or "relaxed"."""
    order: tl.constexpr = "release" if sem is None else sem
    tl.static_assert(order in ("release", "relaxed"), "the sem of a store is release or relaxed")
    tl.atomic_xchg(pointer, val, mask, order, scope)


@Written
def expect_zero(x, mask):
    """Give `x`; with ``debug`` the kernel stops where `mask` is true and `x` is not zero."""
    tl.device_assert((x == 0) | (mask == 0), "expect_zero: x is not zero where mask is true")
    return x
