"""What the common instructions of PTX mean, on NumPy arrays (PTX ISA, "Instruction Set").

Floats are computed in float64 and rounded once; approximations are computed exactly, and the
hardware may differ from them by what its section of the PTX ISA allows.

Length: a row for each instruction, and the rows share their makers.
"""

# The rows are lambdas over whatever array they are given; annotating each would hide the table.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tawa.simulator.ptx_rounding import DIRECTIONS, Excess, directed, fused, over_quotient
from tawa.simulator.values import BF16, F8E4M3, F8E5M2, F16, F32, F64, NARROW, DType, convert


class Unknown(Exception):  # noqa: N818
    """Inline PTX that the simulator has no meaning for; the text names it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of PTX: `lanes` elements of `dtype` side by side in `bits`."""

    bits: int
    dtype: DType
    lanes: int = 1

    @property
    def signed(self) -> bool:
        """Whether a wider register is filled with the sign."""
        return self.dtype.kind == "i"

    @property
    def is_float(self) -> bool:
        """Whether elements are floats."""
        return self.dtype.kind not in "biu"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One instruction with its types: what it reads, gives, and how."""

    operands: tuple[Kind, ...]
    results: tuple[Kind, ...]
    run: Callable[..., Any]


TYPES: dict[str, Kind] = {
    "pred": Kind(1, np.dtype(bool)),
    **{f"{k}{n}": Kind(n, np.dtype(f"u{n // 8}")) for k in "bu" for n in (8, 16, 32, 64)},
    **{f"s{n}": Kind(n, np.dtype(f"i{n // 8}")) for n in (8, 16, 32, 64)},
    "f16": Kind(16, F16),
    "bf16": Kind(16, BF16),
    "f32": Kind(32, F32),
    "tf32": Kind(32, F32),
    "f64": Kind(64, F64),
    "f16x2": Kind(32, F16, 2),
    "bf16x2": Kind(32, BF16, 2),
    "e4m3x2": Kind(16, F8E4M3, 2),
    "e5m2x2": Kind(16, F8E5M2, 2),
}
_PRED, _U32 = TYPES["pred"], TYPES["u32"]


def read_as(bits: Any, kind: Kind, count: int) -> Any:
    """Return a register's bits, or a number in the text, as elements of a type."""
    if isinstance(bits, float) and kind.is_float and kind.lanes == 1:
        return np.full(count, bits, F64).astype(kind.dtype)
    if isinstance(bits, float):
        bits = int(np.array(bits, f"f{kind.bits // 8}").view(f"u{kind.bits // 8}"))
    if isinstance(bits, int):
        bits = np.full(count, bits & ((1 << kind.bits) - 1), np.uint64)
    if kind.bits == 1:
        return bits.astype(bool)
    whole = np.ascontiguousarray(bits.astype(f"u{kind.bits // 8}"))
    return whole.view(kind.dtype).reshape((-1, kind.lanes) if kind.lanes > 1 else (-1,))


def written_as(value: Any, kind: Kind) -> Any:
    """Return elements of a type as the bits of a register."""
    if kind.bits == 1:
        return np.asarray(value, bool)
    return np.ascontiguousarray(value).view(f"u{kind.bits // 8}").reshape(-1)


def decode(name: str) -> Meaning:
    """Return the meaning of an instruction's name with all its dots; raises Unknown."""
    base, *marks = name.split(".")
    types = [TYPES[mark] for mark in marks if mark in TYPES]
    rest = [mark for mark in marks if mark not in TYPES and mark not in _NO_MEANING]
    maker = _INSTRUCTIONS.get(base)
    if maker is None or not types:
        raise Unknown(f"the instruction {name}")
    try:
        made = maker(types, rest)
    except (KeyError, IndexError, TypeError):
        raise Unknown(f"the instruction {name}") from None
    if made is None:
        raise Unknown(f"the instruction {name}")
    return made


_NO_MEANING = frozenset({"volatile", "full", "rn", "uni"})
"""Marks that change nothing: rounding to nearest is what is computed."""
Maker = Callable[[Sequence[Kind], Sequence[str]], Meaning | None]


def _rounded(value: Any, kind: Kind) -> Any:
    """Round float64 to a type, infinities kept."""
    found = convert(np.asarray(value, F64), kind.dtype)
    return np.asarray(found, kind.dtype)


def _flushed(value: Any) -> Any:
    """Return float32 numbers with those under 2^-126 as zeros of their sign."""
    small = np.abs(value) < 2.0**-126
    return np.where(small, np.copysign(0.0, value), value)


def _floats(
    function: Callable[..., Any],
    count: int,
    allowed: str = "ftz sat",
    excess: Excess | None = None,
    lowered: Callable[..., Any] | None = None,
) -> Maker:
    """Make the row of a function of floats: widened, applied, rounded once; with `excess`, in a
    direction too. `lowered` is the function of sums whose terms cancel to -0, as they do downwards.
    """

    def make(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
        kind = types[0]
        mode = next((mark for mark in marks if mark in DIRECTIONS), "") if excess else ""
        marks = [mark for mark in marks if mark != mode]
        if not kind.is_float or len(types) > 1 or not set(marks) <= set(allowed.split()):
            return None
        flush = "ftz" in marks and kind.dtype == F32

        def run(*operands: Any) -> Any:
            wide = [np.asarray(operand).astype(F64) for operand in operands]
            wide = [_flushed(operand) for operand in wide] if flush else wide
            found = (lowered or function if mode == "rm" else function)(*wide)
            if excess and mode:
                found = _rounded(found, kind)
                found = directed(mode, found, excess, wide).astype(F64)
            if "relu" in marks:
                found = np.where(found > 0, found, np.where(np.isnan(found), np.nan, 0.0))
            if "sat" in marks:
                # -0 is clamped to +0, as on the GPU.
                found = np.where(np.isnan(found), 0.0, np.clip(found, 0.0, 1.0)) + 0.0
            found = _rounded(found, kind)
            return _flushed(found).astype(F32) if flush else found

        return Meaning((kind,) * count, (kind,), run)

    return make


def _integers(function: Callable[..., Any], count: int) -> Maker:
    """Make the row of a function of integers of one type that wraps."""

    def make(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
        kind = types[0]
        if kind.is_float or marks or len(types) > 1:
            return None
        return Meaning((kind,) * count, (kind,), lambda *a: np.asarray(function(*a), kind.dtype))

    return make


def _either(integers: Maker, floats: Maker) -> Maker:
    return lambda types, marks: (floats if types[0].is_float else integers)(types, marks)


def _bitwise(function: Callable[..., Any], count: int) -> Maker:
    return lambda types, marks: (
        None if marks else Meaning((types[0],) * count, (types[0],), function)
    )


def _exact(value: Any) -> Any:
    """Return integers that do not overflow."""
    return np.asarray(value).astype(object)


def _wrapped(value: Any, kind: Kind) -> Any:
    mask = (1 << kind.bits) - 1
    whole = np.array([int(item) & mask for item in np.ravel(value)], np.uint64)
    return whole.astype(f"u{kind.bits // 8}").view(kind.dtype)


def _product(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """mul and mad of integers: the low or high half, or all of it."""
    (kind,), (part,) = types, marks
    wide = TYPES[f"{'s' if kind.signed else 'u'}{2 * kind.bits}"] if part == "wide" else kind
    shift = {"lo": 0, "wide": 0, "hi": kind.bits}[part]

    def run(a: Any, b: Any, c: Any = 0) -> Any:
        return _wrapped((_exact(a) * _exact(b) >> shift) + _exact(c), wide)

    return Meaning((kind, kind, wide), (wide,), run)


def _mul(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    made = _product(types, marks)
    return None if made is None else Meaning(made.operands[:2], made.results, made.run)


def _shift(left: bool) -> Maker:
    def make(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
        kind = types[0]
        if marks or kind.is_float:
            return None

        def run(value: Any, by: Any) -> Any:
            far, by = by >= kind.bits, np.minimum(by, kind.bits - 1).astype(kind.dtype)
            if left:
                return np.where(far, kind.dtype.type(0), value << by)
            beyond = value >> kind.dtype.type(kind.bits - 1) if kind.signed else kind.dtype.type(0)
            return np.where(far, beyond, value >> by)

        return Meaning((kind, _U32), (kind,), run)

    return make


def _funnel(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """shf: 32 of the 64 bits of two registers."""
    way, mode = marks
    limit = {"wrap": lambda by: by & 31, "clamp": lambda by: np.minimum(by, 32)}[mode]
    left = {"l": True, "r": False}[way]

    def run(low: Any, high: Any, by: Any) -> Any:
        whole = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        by = limit(by).astype(np.uint64)
        return (whole >> (np.uint64(32) - by if left else by)).astype(np.uint32)

    return Meaning((_U32, _U32, _U32), (_U32,), run)


def _lop3(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    def run(a: Any, b: Any, c: Any, table: Any) -> Any:
        found = np.zeros_like(a)
        for row in range(8):
            term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            found |= np.where(table >> np.uint32(row) & np.uint32(1), term, np.uint32(0))
        return found

    return None if marks else Meaning((_U32,) * 4, (_U32,), run)


_BYTES: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda first, place: first + place,
    "b4e": lambda first, place: (first - place) % 8,
    "rc8": lambda first, _: first,
    "ecl": max,
    "ecr": min,
    "rc16": lambda first, place: 2 * (first % 2) + place % 2,
}
"""The byte that stands at a place, by the last two bits of the selection (PTX ISA, "prmt")."""


def _permute(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """prmt: four of eight bytes, each as it is or as its sign repeated, or by one of the modes."""
    table = [
        [_BYTES[mark](first, place) for place in range(4)] for mark in marks for first in range(4)
    ]

    def run(a: Any, b: Any, chosen: Any) -> Any:
        whole = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        found = np.zeros_like(a)
        for place in range(4):
            each = (chosen >> np.uint32(4 * place)).astype(np.uint64)
            if table:
                each = np.array([table[int(first) & 3][place] for first in chosen], np.uint64)
            byte = whole >> (np.uint64(8) * (each & np.uint64(7))) & np.uint64(0xFF)
            sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            byte = np.where(each & np.uint64(8), sign, byte)
            found |= byte.astype(np.uint32) << np.uint32(8 * place)
        return found

    return Meaning((_U32,) * 3, (_U32,), run) if len(marks) < 2 else None


def _highest(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """bfind: the place of the highest bit that is not the sign, all ones without one."""
    (kind,) = types

    def one(number: int) -> int:
        length = (~number if number < 0 else number).bit_length()
        return length - 1 if not marks or not length else kind.bits - length

    def run(a: Any) -> Any:
        return _wrapped([one(int(item)) for item in a], _U32)

    return Meaning((kind,), (_U32,), run) if list(marks) in ([], ["shiftamt"]) else None


def _by_sign(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """slct: the first of two where the third operand is not negative."""
    kind, sign = types
    if set(marks) - {"ftz"}:
        return None
    return Meaning((kind, kind, sign), (kind,), lambda a, b, c: np.where(c >= 0, a, b))


def _counted(function: Callable[[int, int], int]) -> Maker:
    """Make the row of a function of each number's bits that gives 32 of them."""

    def make(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
        kind = types[0]
        mask = (1 << kind.bits) - 1

        def run(a: Any) -> Any:
            return np.array([function(int(item) & mask, kind.bits) for item in a], np.uint32)

        return None if marks or kind.is_float else Meaning((kind,), (_U32,), run)

    return make


def _reverse(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    (kind,) = types

    def run(a: Any) -> Any:
        return np.array([int(f"{int(x):0{kind.bits}b}"[::-1], 2) for x in a], kind.dtype)

    return None if marks else Meaning((kind,), (kind,), run)


def _extract(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """bfe: a field of bits, filled with its sign where the type has one."""
    (kind,) = types

    def one(a: int, start: int, length: int) -> int:
        start, length, mask = start & 255, length & 255, (1 << kind.bits) - 1
        last = min(start + length - 1, kind.bits - 1)
        sign = (a & mask) >> last & 1 if kind.signed and length else 0
        field = (a & mask) >> start & ((1 << length) - 1)
        have = max(0, min(length, kind.bits - start))
        return field | (mask & ~((1 << have) - 1) if sign else 0)

    def run(a: Any, start: Any, length: Any) -> Any:
        return _wrapped([one(int(x), int(s), int(n)) for x, s, n in zip(a, start, length)], kind)

    return None if marks else Meaning((kind, _U32, _U32), (kind,), run)


def _insert(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """bfi: the second operand with a field of bits from the first."""
    (kind,) = types

    def one(a: int, b: int, start: int, length: int) -> int:
        field = ((1 << (length & 255)) - 1) << (start & 255)
        return (b & ~field) | (a << (start & 255) & field)

    def run(*operands: Any) -> Any:
        return _wrapped([one(*(int(item) for item in row)) for row in zip(*operands)], kind)

    return None if marks else Meaning((kind, kind, _U32, _U32), (kind,), run)


def _dot4(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """dp4a: the sum of four products of bytes, and a third operand."""
    first, second = types
    total = TYPES["s32"] if first.signed or second.signed else _U32

    def run(a: Any, b: Any, c: Any) -> Any:
        pairs = [
            np.ascontiguousarray(v).view("i1" if k.signed else "u1").reshape(-1, 4).astype(np.int64)
            for v, k in ((a, first), (b, second))
        ]
        return _wrapped((pairs[0] * pairs[1]).sum(axis=1) + c.astype(np.int64), total)

    return None if marks else Meaning((first, second, total), (total,), run)


def _minimum(smaller: bool) -> Maker:
    """min and max of floats: of a number and NaN the number, and -0 is less than +0."""

    def choose(a: Any, b: Any, spread: bool) -> Any:
        sign = 1.0 if smaller else -1.0
        first = (sign * a < sign * b) | ((a == b) & (np.signbit(a) == smaller))
        found = np.where(first, a, b)
        found = np.where(np.isnan(a), b, np.where(np.isnan(b), a, found))
        return np.where(np.isnan(a) | np.isnan(b), np.nan, found) if spread else found

    def make(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
        rest = [mark for mark in marks if mark != "NaN"]
        return _floats(lambda a, b: choose(a, b, "NaN" in marks), 2, "ftz")(types, rest)

    return make


_COMPARED: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_JOINED = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _set_predicate(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """setp: a comparison, joined with a predicate; two lanes give two predicates."""
    (kind,), (name, *rest) = types, marks
    rest = [mark for mark in rest if mark != "ftz"]
    open_too = name in ("equ", "neu", "ltu", "leu", "gtu", "geu")
    compare = _COMPARED[name[:-1] if open_too else name]
    join = _JOINED[rest[0]] if rest else None

    def run(a: Any, b: Any, other: Any = None) -> Any:
        a, b = (np.asarray(v).astype(F64) if kind.is_float else v for v in (a, b))
        if "ftz" in marks:
            a, b = _flushed(a), _flushed(b)
        holds = compare(a, b)
        holds = holds | np.isnan(a) | np.isnan(b) if open_too else holds
        lanes = [holds[:, 0], holds[:, 1]] if kind.lanes == 2 else [holds, ~holds]
        return tuple(lane if join is None else join(lane, other) for lane in lanes)

    more = (_PRED,) if join else ()
    return Meaning((kind, kind, *more), (_PRED, _PRED), run)


def _select(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    (kind,) = types
    return Meaning((kind, kind, _PRED), (kind,), lambda a, b, p: np.where(p, a, b))


def _test(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    (kind,), (name,) = types, marks
    least = float(np.finfo(kind.dtype).tiny)
    function = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= least) | (a == 0)),  # zeros are normal
        "subnormal": lambda a: (np.abs(a) < least) & (a != 0),
    }[name]
    return Meaning((kind,), (_PRED,), function)


_TO_WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _convert(types: Sequence[Kind], marks: Sequence[str]) -> Meaning | None:
    """cvt between all types; two floats into the halves of a register, the first one upper."""
    to, source = types
    if not set(marks) <= {*_TO_WHOLE, "rz", "rna", "sat", "satfinite", "ftz", "relu"}:
        return None
    apart = to.lanes == 2 and source.lanes == 1
    if to.lanes != source.lanes and not apart:
        return None

    def run(*operands: Any) -> Any:
        value = np.stack(operands[::-1], axis=1) if apart else operands[0]
        if not to.is_float and not source.is_float:
            if "sat" not in marks:
                return _wrapped(_exact(value), to)
            limits = np.iinfo(to.dtype)
            return _wrapped(np.clip(_exact(value), int(limits.min), int(limits.max)), to)
        if not source.is_float:
            return value.astype(to.dtype) if to.dtype not in NARROW else convert(value, to.dtype)
        wide = np.asarray(value).astype(F64)
        wide = _flushed(wide) if "ftz" in marks and source.dtype == F32 else wide
        if whole := next((_TO_WHOLE[mark] for mark in marks if mark in _TO_WHOLE), None):
            wide = whole(wide)
        if not to.is_float:
            return convert(wide, to.dtype)
        if "relu" in marks:
            wide = np.where(wide > 0, wide, np.where(np.isnan(wide), np.nan, 0.0))
        if "sat" in marks:
            wide = np.where(np.isnan(wide), 0.0, np.clip(wide, 0.0, 1.0))
        return _to_float(wide, to, marks)

    return Meaning((source, source) if apart else (source,), (to,), run)


def _to_float(wide: Any, to: Kind, marks: Sequence[str]) -> Any:
    if "rna" in marks:  # tf32: ten bits behind the point, halves away from zero
        bits = wide.astype(F32).view(np.uint32)
        near = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return np.where(np.isfinite(wide), near, bits).astype(np.uint32).view(F32)
    found = _rounded(wide, to)
    if "rz" in marks:
        over = np.abs(found.astype(F64)) > np.abs(wide)
        size = f"u{to.dtype.itemsize}"
        found = np.where(over, found.view(size) - np.array(1, size), found.view(size))
        found = found.astype(size).view(to.dtype)
    if "satfinite" in marks and to.dtype == F16:
        found = np.clip(found, F16.type(-65504), F16.type(65504))
    return found


def _approximate(function: Callable[..., Any], excess: Excess | None = None) -> Maker:
    """Make the row of what the hardware approximates, and may round."""
    return _floats(function, 1, "approx ftz sqrt", excess)


def _int_divide(a: Any, b: Any) -> Any:
    safe = np.where(b == 0, 1, _exact(b))
    size = np.abs(_exact(a)) // np.abs(safe)
    return np.where((_exact(a) < 0) != (safe < 0), -size, size).astype(a.dtype)


_ADD = _floats(
    lambda a, b: a + b, 2, excess=lambda r, a, b: r - (a + b), lowered=lambda a, b: -(-a - b)
)
_SUB = _floats(
    lambda a, b: a - b, 2, excess=lambda r, a, b: r - (a - b), lowered=lambda a, b: -(b - a)
)
_FMA = _floats(
    fused,
    3,
    "ftz sat relu",
    lambda r, a, b, c: r - (a * b + c),
    lambda a, b, c: -fused(-a, b, -c),
)
_INSTRUCTIONS: dict[str, Maker] = {
    "mov": _bitwise(lambda a: a, 1),
    "cvt": _convert,
    "add": _either(_integers(lambda a, b: a + b, 2), _ADD),
    "sub": _either(_integers(lambda a, b: a - b, 2), _SUB),
    "mul": _either(_mul, _floats(lambda a, b: a * b, 2, excess=lambda r, a, b: r - a * b)),
    "mad": _either(_product, _floats(lambda a, b, c: a * b + c, 3)),
    "fma": _FMA,
    "div": _either(
        _integers(_int_divide, 2), _floats(lambda a, b: a / b, 2, "approx ftz", over_quotient)
    ),
    "rem": _integers(lambda a, b: a - _int_divide(a, b) * b, 2),
    "min": _either(_integers(np.minimum, 2), _minimum(True)),
    "max": _either(_integers(np.maximum, 2), _minimum(False)),
    "abs": _either(_integers(np.abs, 1), _floats(np.abs, 1, "ftz")),
    "neg": _either(_integers(np.negative, 1), _floats(np.negative, 1, "ftz")),
    "and": _bitwise(lambda a, b: a & b, 2),
    "or": _bitwise(lambda a, b: a | b, 2),
    "xor": _bitwise(lambda a, b: a ^ b, 2),
    "not": _bitwise(lambda a: ~a, 1),
    "shl": _shift(True),
    "shr": _shift(False),
    "shf": _funnel,
    "lop3": _lop3,
    "prmt": _permute,
    "popc": _counted(lambda x, _: x.bit_count()),
    "clz": _counted(lambda x, bits: bits - x.bit_length()),
    "brev": _reverse,
    "bfind": _highest,
    "bfe": _extract,
    "bfi": _insert,
    "dp4a": _dot4,
    "sad": _integers(lambda a, b, c: np.where(a > b, a - b, b - a) + c, 3),
    "setp": _set_predicate,
    "selp": _select,
    "slct": _by_sign,
    "testp": _test,
    "copysign": _floats(lambda a, b: np.copysign(b, a), 2, ""),
    "ex2": _approximate(np.exp2),
    "lg2": _approximate(np.log2),
    "sin": _approximate(np.sin),
    "cos": _approximate(np.cos),
    "tanh": _approximate(np.tanh),
    "sqrt": _approximate(np.sqrt, excess=lambda r, a: None if a < 0 else r * r - a),
    "rsqrt": _approximate(lambda a: 1 / np.sqrt(a)),
    "rcp": _approximate(lambda a: 1 / a, excess=lambda r, a: over_quotient(r, Fraction(1), a)),
}
