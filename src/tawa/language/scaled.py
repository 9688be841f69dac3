"""Products of block-scaled operands (OCP Microscaling Formats, 1.0, 2023), in the language itself.

Hopper's tensor cores take no scales: operands are widened to bfloat16 (float16 where the other one
is), multiplied by their scales and then multiplied as matrices. Every e2m1, e4m3 and e5m2 value and
every e8m0 scale but 2**-127 is exact in bfloat16.
"""

# The bodies are tile code, which pyright cannot type: it is typed where it is compiled.
# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false, reportGeneralTypeIssues=false, reportOptionalMemberAccess=false, reportAssignmentType=false

from __future__ import annotations

from tawa.language import primitives as tl
from tawa.language.constant import constexpr_function
from tawa.language.written import Written


@constexpr_function
def _known(format):
    """Tell whether an operand may have a format."""
    return format in ("e2m1", "e4m3", "e5m2", "bf16", "fp16")


@constexpr_function
def _eight_bits(format):
    """Return the element type of an eight-bit format."""
    return tl.float8e4nv if format == "e4m3" else tl.float8e5


@constexpr_function
def _both_kind(one, other):
    """Return the type in which operands of two formats are multiplied."""
    return tl.float16 if "fp16" in (one, other) else tl.bfloat16


@Written
def _nibbles(x):
    """Read the low 4 bits of uint16 as e2m1."""
    size = x & 7
    # The exponent's bias is 1, bfloat16's 127; of sizes under 1 there are 0 and 0.5.
    bits = tl.where(size > 1, (size + 252) << 6, size * 0x3F00) | ((x & 8) << 12)
    return bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)


@Written
def _unpacked(x, rows: tl.constexpr):
    """Read pairs of e2m1, the low one first, that lie along the `rows` or else the columns."""
    wide = x.to(tl.uint8, bitcast=True).to(tl.uint16)
    pairs = tl.join(_nibbles(wide), _nibbles(wide >> 4))
    if rows:
        return tl.reshape(tl.permute(pairs, 0, 2, 1), [2 * x.shape[0], x.shape[1]])
    return tl.reshape(pairs, [x.shape[0], 2 * x.shape[1]])


@Written
def _scale(scale, k: tl.constexpr, kind: tl.constexpr, exact: tl.constexpr):
    """Repeat scales [R, K / group] to [R, K]; e8m0 is the exponent of a float without the rest."""
    rows: tl.constexpr = scale.shape[0]
    groups: tl.constexpr = scale.shape[1]
    tl.static_assert(k % groups == 0, "tl.dot_scaled: scales divide K evenly")
    if scale.dtype.is_floating():
        factor = scale.to(kind)
    else:
        power = scale.to(tl.uint8, bitcast=True).to(tl.uint32)
        factor = (power << 23).to(tl.float32, bitcast=True).to(kind)
        if exact:
            factor = tl.where(power == 255, float("nan"), factor).to(kind)
    wide = tl.broadcast_to(factor[:, :, None], [rows, groups, k // groups])
    return tl.reshape(wide, [rows, k])


@Written
def _operand(
    x, scale, format: tl.constexpr, k_last: tl.constexpr, k_pack: tl.constexpr,
    kind: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    """Widen an operand, [R, K] or else [K, R], and multiply it by its scales [R, K / group]."""
    tl.static_assert(
        _known(format), "tl.dot_scaled: a format is 'e2m1', 'e4m3', 'e5m2', 'bf16' or 'fp16'"
    )
    if format == "e2m1":
        wide = _unpacked(x, k_last != k_pack).to(kind)
    elif format == "e4m3" or format == "e5m2":
        wide = x.to(_eight_bits(format), bitcast=True).to(kind)
    else:
        wide = x.to(kind)
    if scale is None:
        return wide
    if k_last:
        return wide * _scale(scale, wide.shape[1], kind, exact)
    return wide * tl.trans(_scale(scale, wide.shape[0], kind, exact))


@Written
def dot_scaled(
    lhs, lhs_scale, lhs_format: tl.constexpr, rhs, rhs_scale, rhs_format: tl.constexpr, acc=None,
    fast_math: tl.constexpr = False, lhs_k_pack: tl.constexpr = True,
    rhs_k_pack: tl.constexpr = True, out_dtype: tl.constexpr = tl.float32,
):  # fmt: skip
    """Multiply matrices [M, K] and [K, N] whose runs of K have scales [M, K / 32], [N, K / 32].

    A format is "e2m1" (pairs in uint8, along K if `k_pack`), "e4m3", "e5m2" (or their bits in
    uint8), "bf16" or "fp16"; a scale None, e8m0 in uint8 (255: NaN, unless `fast_math`) or a float.
    """
    kind: tl.constexpr = _both_kind(lhs_format, rhs_format)
    a = _operand(lhs, lhs_scale, lhs_format, True, lhs_k_pack, kind, not fast_math)
    b = _operand(rhs, rhs_scale, rhs_format, False, rhs_k_pack, kind, not fast_math)
    return tl.dot(a, b, acc, out_dtype=out_dtype)
