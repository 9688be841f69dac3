"""Additions to memory that give nothing back, of neighbours at once, and the fence around them."""

from __future__ import annotations

from tawa.codegen.wrappers.core import Wrapper, asm, instruction

REDUCED = {
    "f32": ("float", "f", "f32"),
    "f16": ("u32", "r", "noftz.f16x2"),
    "bf16": ("u32", "r", "noftz.bf16x2"),
}
"""By element: the C type of a word, its letter, and what PTX calls it."""


def reduction(element: str, words: int, scope: str) -> Wrapper:
    """Return the relaxed addition of `words` (1, 2, 4) neighbouring words to memory.

    The address is a multiple of all of them. Each element is added by itself: a vector is not one
    access (PTX ISA, "red", sm_90).
    """
    kind, letter, ptx = REDUCED[element]
    vector = "" if words == 1 else f".v{words}"
    # PTX writes the vector before the type: add.v2.f32, add.noftz.v2.f16x2.
    *mode, name = ptx.split(".")
    spelled = "".join(f".{part}" for part in mode) + vector + f".{name}"
    operands = ", ".join(f"%{i + 1}" for i in range(words))
    return Wrapper(
        f"void reduce_add_{element}x{words}_{scope}(u64 address, const {kind}* from)",
        asm(
            f"red.relaxed.{scope}.global.add{spelled} [%0], "
            + (f"{{{operands}}};" if vector else f"{operands};"),
            "",
            ", ".join(['"l"(address)', *(f'"{letter}"(from[{i}])' for i in range(words))]),
            memory=True,
        ),
        "red",
        "global.atomic",
    )


def fence(scope: str) -> Wrapper:
    """Return the fence that orders this thread's accesses before it and after it in `scope`."""
    code = f"fence.acq_rel.{scope};"
    return instruction(f"void fence_{scope}()", code, "membar / fence", "fence", memory=True)
