"""wgmma and mma.sync. Accumulators are arrays updated in place.

The asm of wgmma names every accumulator register as input and output, so that each instruction
works on the same registers; nothing may touch them between its start and the wait that covers it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tawa.codegen.wrappers.core import Wrapper, asm, instruction

PTX_TYPE = {
    "f16": "f16",
    "bf16": "bf16",
    "f32": "tf32",
    "f8e4m3": "e4m3",
    "f8e5m2": "e5m2",
    "i8": "s8",
    "u8": "u8",
}
"""The spelling of operand types in wgmma and mma; 32-bit operands are read as tf32."""

DESCRIPTOR = Wrapper(
    "u64 descriptor(u32 address, u32 leading, u32 stride)",
    "return (u64)((address & 0x3FFFF) >> 4) | (u64)(leading >> 4) << 16 | "
    "(u64)(stride >> 4) << 32 | (u64)mode << 62;",
    "wgmma, Matrix Descriptor Format",
    "pure",
    template="int mode",
)
DESCRIPTOR_AT = Wrapper(
    "u64 descriptor_at(u64 base, u32 offset)",
    "// The address is the low word's: one addition, no carry.\n"
    "return base & 0xFFFFFFFF00000000ull | (u32)base + (offset >> 4);",
    "wgmma, Matrix Descriptor Format",
    "pure",
)
WGMMA_FENCE = instruction(
    "void wgmma_fence()", "wgmma.fence.sync.aligned;", "wgmma.fence", "wgmma.fence", memory=True
)
WGMMA_COMMIT = instruction(
    "void wgmma_commit()",
    "wgmma.commit_group.sync.aligned;",
    "wgmma.commit_group",
    "wgmma.commit",
    memory=True,
)
WGMMA_WAIT = instruction(
    "void wgmma_wait()",
    "wgmma.wait_group.sync.aligned %0;",
    "wgmma.wait_group",
    "wgmma.wait",
    memory=True,
    template="int pending",
)


@dataclass(frozen=True, slots=True)
class WgmmaShape:
    """One wgmma instruction: types as element names, m64 x `n` x `k`."""

    n: int
    k: int
    d: str
    a: str
    b: str
    from_registers: bool = False
    transposed_a: bool = False
    transposed_b: bool = False

    @property
    def registers(self) -> int:
        """32-bit accumulator registers of a thread."""
        return self.n // 2 if self.d != "f16" else self.n // 4


def wgmma(shape: WgmmaShape) -> Wrapper:
    """Return d = a * b + (accumulate ? d : 0) for one m64 block and one k step."""
    count = shape.registers
    kind, letter = {"f16": ("u32", "r"), "i32": ("int", "r")}.get(shape.d, ("float", "f"))
    name = f"wgmma_m64n{shape.n}k{shape.k}_{shape.d}_{shape.a}_{shape.b}"
    a_operand, next_operand = f"%{count}", count + 1
    inputs = ['"l"(a)']
    if shape.from_registers:
        a_operand = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        next_operand = count + 4
        inputs = [f'"r"(a[{i}])' for i in range(4)]
        name += "_registers"
    flags = _flags(shape)
    if shape.transposed_a:
        name += "_ta"
    if shape.transposed_b:
        name += "_tb"
    d = ", ".join(f"%{i}" for i in range(count))
    types = f"{PTX_TYPE.get(shape.d, 's32') if shape.d == 'f16' else _ACCUMULATOR[shape.d]}"
    code = (
        f"{{\n.reg .pred p;\nsetp.ne.b32 p, %{next_operand + 1}, 0;\n"
        f"wgmma.mma_async.sync.aligned.m64n{shape.n}k{shape.k}.{types}."
        f"{PTX_TYPE[shape.a]}.{PTX_TYPE[shape.b]} "
        f"{{{d}}}, {a_operand}, %{next_operand}, p{flags};\n}}"
    )
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    source = "const u32* a" if shape.from_registers else "u64 a"
    return Wrapper(
        f"void {name}({kind}* d, {source}, u64 b, int accumulate)",
        asm(code, outputs, ", ".join([*inputs, '"l"(b)', '"r"(accumulate)'])),
        "wgmma.mma_async",
        "wgmma.start",
    )


_ACCUMULATOR = {"f16": "f16", "f32": "f32", "i32": "s32"}


def _flags(shape: WgmmaShape) -> str:
    """Return the immediates after scale-d: operand signs, then transpositions of 16-bit types."""
    if shape.d == "i32":
        return ""
    flags = ", 1, 1"
    if shape.a not in ("f16", "bf16"):
        return flags
    if not shape.from_registers:
        flags += f", {int(shape.transposed_a)}"
    return f"{flags}, {int(shape.transposed_b)}"


@dataclass(frozen=True, slots=True)
class MmaShape:
    """One mma.sync instruction, m16 n8 `k`; types as element names."""

    k: int
    d: str
    a: str
    b: str

    @property
    def a_words(self) -> int:
        """32-bit registers of operand A."""
        return 16 * self.k * _BITS[self.a] // (32 * 32)

    @property
    def b_words(self) -> int:
        """32-bit registers of operand B."""
        return 8 * self.k * _BITS[self.b] // (32 * 32)


_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f8e4m3": 8, "f8e5m2": 8, "i8": 8, "u8": 8}


def mma(shape: MmaShape) -> Wrapper:
    """Return d = a * b + d for one m16n8 block and one k step."""
    kind, letter, words = {"f16": ("u32", "r", 2), "i32": ("int", "r", 4)}.get(
        shape.d, ("float", "f", 4)
    )
    a, b = shape.a_words, shape.b_words
    names = [f"%{i}" for i in range(words + a + b)]
    d_list, a_list = ", ".join(names[:words]), ", ".join(names[words : words + a])
    b_list = ", ".join(names[words + a :])
    accumulator = _ACCUMULATOR[shape.d]
    code = (
        f"mma.sync.aligned.m16n8k{shape.k}.row.col.{accumulator}.{PTX_TYPE[shape.a]}."
        f"{PTX_TYPE[shape.b]}.{accumulator} {{{d_list}}}, {{{a_list}}}, {{{b_list}}}, {{{d_list}}};"
    )
    parameters = [f"u32 a{i}" for i in range(a)] + [f"u32 b{i}" for i in range(b)]
    inputs = [f'"r"(a{i})' for i in range(a)] + [f'"r"(b{i})' for i in range(b)]
    return Wrapper(
        f"void mma_m16n8k{shape.k}_{shape.d}_{shape.a}_{shape.b}"
        f"({kind}* d, {', '.join(parameters)})",
        asm(
            code,
            ", ".join(f'"+{letter}"(d[{i}])' for i in range(words)),
            ", ".join(inputs),
            volatile=False,
        ),
        "mma",
        "convergent",
    )
