"""Loads and stores of shared and global memory, matrices of stmatrix and ldmatrix, atomics.

Additions to memory that give nothing back, of neighbours at once, and the fence around them.
"""

from __future__ import annotations

from tawa.codegen.parameters import COUNTERS
from tawa.codegen.wrappers.core import CONSTRAINT, Effect, Wrapper, asm, instruction

_SUFFIX = {"u16": "b16", "u32": "b32", "int": "b32", "float": "b32"}


def _width(kind: str) -> str:
    """Return the PTX type of a memory access of a C type: bits only."""
    return _SUFFIX.get(kind, "b64")


def _vector(count: int) -> str:
    return f".v{count}" if count > 1 else ""


def _braced(first: int, count: int) -> str:
    operands = ", ".join(f"%{first + i}" for i in range(count))
    return f"{{{operands}}}" if count > 1 else operands


def _load(name: str, code: str, kind: str, count: int, effect: Effect, address: str) -> Wrapper:
    """Return the load of `count` entries of C type `kind` into an array by the instruction `code`,
    from an address of C type `address`.
    """
    outputs = (f'"={CONSTRAINT[kind]}"(to[{i}])' for i in range(count))
    text = f"{code}{_vector(count)}.{_width(kind)} {_braced(0, count)}, [%{count}];"
    given = f'"{CONSTRAINT[address]}"(address)'
    head = f"void {name}({kind}* to, {address} address)"
    return Wrapper(head, asm(text, ", ".join(outputs), given, memory=True), "ld", effect)


def _store(
    name: str, code: str, kind: str, count: int, section: str, effect: Effect, address: str
) -> Wrapper:
    """Return the store of `count` entries of C type `kind`, as `_load`; `code` has their types."""
    given = [f'"{CONSTRAINT[address]}"(address)']
    given += [f'"{CONSTRAINT[kind]}"(from[{i}])' for i in range(count)]
    text = asm(f"{code} [%0], {_braced(1, count)};", "", ", ".join(given), memory=True)
    head = f"void {name}({address} address, const {kind}* from)"
    return Wrapper(head, text, section, effect)


def _load_one(array: Wrapper, kind: str, address: str) -> Wrapper:
    """Return the load of one value by that of an array."""
    return Wrapper(
        f"{kind} {array.name.replace('x1', '')}({address} address)",
        f"{kind} value;\n{array.name}(&value, address);\nreturn value;",
        array.section,
        array.effect,
        (array,),
    )


def shared_load(kind: str, count: int) -> Wrapper:
    """Return the load of `count` entries of C type `kind` into an array."""
    name = f"shared_load_{kind}x{count}"
    return _load(name, "ld.shared", kind, count, "shared.read", "u32")


def shared_store(kind: str, count: int) -> Wrapper:
    """Return the store of `count` entries of C type `kind`."""
    name, code = f"shared_store_{kind}x{count}", f"st.shared{_vector(count)}.{_width(kind)}"
    return _store(name, code, kind, count, "st", "shared.write", "u32")


def shared_load_one(kind: str) -> Wrapper:
    """Return the load of one value of C type `kind`."""
    return _load_one(shared_load(kind, 1), kind, "u32")


def shared_load_narrow(bits: int) -> Wrapper:
    """Return the load of one element of 8 or 16 bits, zero-extended."""
    code = (
        "ld.shared.u8 %0, [%1];"
        if bits == 8
        else "{\n.reg .b16 half;\nld.shared.b16 half, [%1];\ncvt.u32.u16 %0, half;\n}"
    )
    head = f"u32 shared_load_b{bits}(u32 address)"
    return instruction(head, code, "ld", "shared.read", result="value", memory=True)


def shared_store_narrow(bits: int) -> Wrapper:
    """Return the store of the low 8 or 16 bits of a word."""
    code = (
        "st.shared.u8 [%0], %1;"
        if bits == 8
        else "{\n.reg .b16 half;\ncvt.u16.u32 half, %1;\nst.shared.b16 [%0], half;\n}"
    )
    head = f"void shared_store_b{bits}(u32 address, u32 value)"
    return instruction(head, code, "st", "shared.write", memory=True)


SWIZZLED = Wrapper(
    "u32 swizzled(u32 offset)",
    "return offset ^ (offset >> 3 & chunks);",
    "",
    "pure",
    template="u32 chunks",
)
"""Exchange the row bits of a tile's offset into its 16-byte chunk bits (TMA swizzle modes)."""


PANELLED = Wrapper(
    "u32 panelled(u32 offset)",
    "const u32 row = offset / pitch, column = offset % pitch;\n"
    "return (column / width * rows + row) * width + column % width;",
    "",
    "pure",
    template="u32 pitch, u32 rows, u32 width",
)
"""Move an offset into rows of `pitch` bytes to panels of `width` bytes and `rows` rows."""


TAKEN_ROW = Wrapper(
    "u32 taken_row(u32 lane)",
    "const u32 pair = lane >> 1 & 3;\n"
    "return (lane >> 4) * 16 + 4 * pair + (lane & 1) + 2 * ((lane >> 3 & 1) ^ (pair >> 1));",
    "",
    "pure",
)
"""The row of a 32 x 16 block that ldmatrix.x4 reads for a lane."""

GIVEN_ROW = Wrapper(
    "u32 given_row(u32 lane)",
    "return 2 * (lane & 7) + ((lane >> 3 & 1) ^ (lane >> 2 & 1));",
    "",
    "pure",
)
"""The row of the transposed block that stmatrix.x4 writes for a lane."""

BYTE_SELECTOR = Wrapper(
    "u32 byte_selector(u32 lane)",
    "const u32 chosen = lane & 16 ? 0x7531u : 0x6420u;\n"
    "return swaps && (lane & 2) ? (chosen >> 8 | chosen << 8) & 0xffffu : chosen;",
    "",
    "pure",
    template="bool swaps",
)
"""The byte permutation of two words of ldmatrix.trans that makes the first word to be written."""

PERMUTE_BYTES = instruction(
    "u32 permute_bytes(u32 low, u32 high, u32 selector)",
    "prmt.b32 %0, %1, %2, %3;",
    "prmt",
    "pure",
    result="value",
    volatile=False,
)
"""The four bytes of `low` and `high` that the nibbles of a selector name."""


def stmatrix(count: int, *, transposed: bool = False) -> Wrapper:
    """Return the store of `count` 8x8 matrices of 16-bit elements; lane l addresses row l % 8 of
    matrix l / 8.
    """
    parameters = ", ".join(f"u32 m{i}" for i in range(count))
    operands = ", ".join(f"%{i + 1}" for i in range(count))
    name = f"stmatrix_x{count}{'_trans' if transposed else ''}"
    return instruction(
        f"void {name}(u32 row, {parameters})",
        f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16 "
        f"[%0], {{{operands}}};",
        "stmatrix",
        "shared.write",
        memory=True,
    )


def ldmatrix(count: int, *, transposed: bool = False) -> Wrapper:
    """Return the load of `count` 8x8 matrices of 16-bit elements; addresses as in `stmatrix`."""
    parameters = ", ".join(f"u32& m{i}" for i in range(count))
    operands = ", ".join(f"%{i}" for i in range(count))
    name = f"ldmatrix_x{count}{'_trans' if transposed else ''}"
    return Wrapper(
        f"void {name}(u32 row, {parameters})",
        asm(
            f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16 "
            f"{{{operands}}}, [%{count}];",
            ", ".join(f'"=r"(m{i})' for i in range(count)),
            '"r"(row)',
            memory=True,
        ),
        "ldmatrix",
        "shared.read",
    )


def _modifiers(cache: str, eviction: str) -> str:
    """Return the cache operator and the L1 eviction priority of a global access."""
    text = f".{cache}" if cache else ""
    return text + (f".L1::evict_{eviction}" if eviction and not cache else "")


def _tag(mode: str) -> str:
    return mode.replace(".", "_").replace("::", "_")


def global_load(
    kind: str, count: int, *, cache: str = "", eviction: str = "", volatile: bool = False
) -> Wrapper:
    """Return the load of `count` entries of C type `kind` into an array.

    `cache` is a PTX cache operator (ca, cg, cs, lu, cv), `eviction` first or last.
    """
    mode = ".volatile" if volatile else _modifiers(cache, eviction)
    name = f"global_load_{kind}x{count}{_tag(mode)}"
    code = "ld.volatile.global" if volatile else f"ld.global{mode}"
    return _load(name, code, kind, count, "global.read", "u64")


def global_store(kind: str, count: int, *, cache: str = "", eviction: str = "") -> Wrapper:
    """Return the store of `count` entries of C type `kind`; `cache` one of wb, cg, cs, wt."""
    mode = _modifiers(cache, eviction)
    name = f"global_store_{kind}x{count}{_tag(mode)}"
    code = f"st.global{mode}{_vector(count)}.{_width(kind)}"
    return _store(name, code, kind, count, "st", "global.write", "u64")


def global_load_one(
    kind: str, *, cache: str = "", eviction: str = "", volatile: bool = False
) -> Wrapper:
    """Return the load of one value of C type `kind`."""
    array = global_load(kind, 1, cache=cache, eviction=eviction, volatile=volatile)
    return _load_one(array, kind, "u64")


def global_store_one(kind: str, *, cache: str = "", eviction: str = "") -> Wrapper:
    """Return the store of one value of C type `kind`."""
    array = global_store(kind, 1, cache=cache, eviction=eviction)
    name = array.name.replace("x1", "")
    return Wrapper(
        f"void {name}(u64 address, {kind} value)",
        f"{array.name}(address, &value);",
        array.section,
        array.effect,
        (array,),
    )


def global_load_narrow(bits: int, *, volatile: bool = False) -> Wrapper:
    """Return the load of one element of 8 or 16 bits, zero-extended."""
    mode = ".volatile" if volatile else ""
    head = f"u32 global_load_b{bits}{_tag(mode)}(u64 address)"
    code = f"ld{mode}.global.u{bits} %0, [%1];"
    return instruction(head, code, "ld", "global.read", result="value", memory=True)


def global_store_narrow(bits: int) -> Wrapper:
    """Return the store of the low 8 or 16 bits of a word."""
    head = f"void global_store_b{bits}(u64 address, u32 value)"
    return instruction(head, f"st.global.u{bits} [%0], %1;", "st", "global.write", memory=True)


NEXT_PROGRAM = Wrapper(
    "int next_program(int counter, int programs)",
    f"static u32 counters[{COUNTERS}];\n"
    "u32 old;\n"
    + asm(
        "atom.relaxed.gpu.inc.u32 %0, [%1], %2;",
        '"=r"(old)',
        '"l"(counters + counter), "r"(programs - 1)',
        memory=True,
    )
    + "\n// The last of `programs` questions makes the counter 0 again.\n"
    "return old + gridDim.x;",
    "atom, .inc",
    "global.atomic",
)

ATOMIC_TYPES = {
    "i32": ("int", "r", "s32"),
    "u32": ("u32", "r", "u32"),
    "i64": ("i64", "l", "s64"),
    "u64": ("u64", "l", "u64"),
    "f32": ("float", "f", "f32"),
    "f64": ("double", "d", "f64"),
    "f16": ("u16", "h", "noftz.f16"),
    "bf16": ("u16", "h", "noftz.bf16"),
}
_ATOMIC_NAMES = {"exchange": "exch", "xor": "xor", "or": "or", "and": "and"}


def atomic(function: str, element: str, order: str, scope: str) -> Wrapper:
    """Return the read-modify-write `function` (add, min, max, and, or, xor, exchange).

    `element` names the type, `order` relaxed, acquire, release or acq_rel, `scope` gpu, cta, sys.
    """
    kind, letter, ptx = ATOMIC_TYPES[element]
    bits = 64 if letter in "ld" else 16 if letter == "h" else 32
    if function in OPPOSITE and element in ("f32", "f64"):
        return float_extremum(function, element, order, scope)
    if function in ("and", "or", "xor", "exchange"):
        ptx = f"b{bits}"
    elif function == "add" and element == "i64":
        ptx = "u64"
    name = _ATOMIC_NAMES.get(function, function)
    return instruction(
        f"{kind} atomic_{function}_{element}_{order}_{scope}(u64 address, {kind} value)",
        f"atom.{order}.{scope}.global.{name}.{ptx} %0, [%1], %2;",
        "atom",
        "global.atomic",
        result="old",
        memory=True,
    )


def compare_exchange(element: str, order: str, scope: str) -> Wrapper:
    """Return the exchange that writes `value` where memory equals `expected`; gives the old one."""
    kind, letter, _ = ATOMIC_TYPES[element]
    bits = 64 if letter in "ld" else 16 if letter == "h" else 32
    return instruction(
        f"{kind} compare_exchange_{element}_{order}_{scope}"
        f"(u64 address, {kind} expected, {kind} value)",
        f"atom.{order}.{scope}.global.cas.b{bits} %0, [%1], %2, %3;",
        "atom",
        "global.atomic",
        result="old",
        memory=True,
    )


# --- atomic extrema of floats ---------------------------------------------------------------------


OPPOSITE = {"min": "max", "max": "min"}


def float_extremum(function: str, element: str, order: str, scope: str) -> Wrapper:
    """Return the read-modify-write `function` (min, max) of f32 or f64.

    Bits of floats that are not negative compare as signed integers, those of negative ones the
    other way round as unsigned.
    """
    single = element == "f32"
    kind, whole, letter, bits = ("float", "int", "r", 32) if single else ("double", "i64", "l", 64)
    to = "__float_as_int" if single else "__double_as_longlong"
    back = "__int_as_float" if single else "__longlong_as_double"

    def change(name: str, ptx: str) -> str:
        return asm(
            f"atom.{order}.{scope}.global.{name}.{ptx} %0, [%1], %2;",
            f'"={letter}"(old)',
            f'"l"(address), "{letter}"(bits)',
            memory=True,
        )

    return Wrapper(
        f"{kind} atomic_{function}_{element}_{order}_{scope}(u64 address, {kind} value)",
        f"const {whole} bits = {to}(value);\n{whole} old;\nif (bits >= 0) {{\n"
        + change(function, f"s{bits}")
        + "\n} else {\n"
        + change(OPPOSITE[function], f"u{bits}")
        + f"\n}}\nreturn {back}(old);",
        "atom",
        "global.atomic",
    )


# --- additions to memory --------------------------------------------------------------------------


REDUCED = {
    "f32": ("float", "f32"),
    "f16": ("u32", "noftz.f16x2"),
    "bf16": ("u32", "noftz.bf16x2"),
}
"""By element: the C type of a word, and what PTX calls it."""


def reduction(element: str, words: int, scope: str) -> Wrapper:
    """Return the relaxed addition of `words` (1, 2, 4) neighbouring words to memory.

    The address is a multiple of all of them. Each element is added by itself: a vector is not one
    access (PTX ISA, "red", sm_90).
    """
    kind, ptx = REDUCED[element]
    # PTX writes the vector before the type: add.v2.f32, add.noftz.v2.f16x2.
    *mode, name = ptx.split(".")
    spelled = "".join(f".{part}" for part in mode) + _vector(words) + f".{name}"
    code = f"red.relaxed.{scope}.global.add{spelled}"
    name = f"reduce_add_{element}x{words}_{scope}"
    return _store(name, code, kind, words, "red", "global.atomic", "u64")


def fence(scope: str) -> Wrapper:
    """Return the fence that orders this thread's accesses before it and after it in `scope`."""
    code = f"fence.acq_rel.{scope};"
    return instruction(f"void fence_{scope}()", code, "membar / fence", "fence", memory=True)
