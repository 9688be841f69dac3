"""The form of a wrapper: one device function around one instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal[
    "pure",
    "convergent",
    "barrier.init",
    "barrier.expect",
    "barrier.wait",
    "barrier.arrive",
    "sync",
    "fence",
    "registers",
    "tma.load",
    "tma.store",
    "bulk.commit",
    "bulk.wait",
    "copy.start",
    "copy.arrive",
    "wgmma.fence",
    "wgmma.start",
    "wgmma.commit",
    "wgmma.wait",
    "shared.read",
    "shared.write",
    "global.read",
    "global.write",
    "global.atomic",
    "pin",
    "hint",
]
"""What a call does that the order of the program can see; "pure" calls may be removed."""

PRELUDE = """\
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct alignas(128) TensorMap { char bytes[128]; };
"""
"""Types every text begins with; TensorMap stands for the driver's CUtensorMap."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One row of the table of device functions.

    `head` is the return type and parameters with the name between (``void fence()``), `body` the
    statements, `section` the place in the PTX ISA that defines the instruction, `effect` what the
    proof and the count of calls see, `uses` the wrappers its body calls. `template` is a template
    parameter list for values that must be immediates.
    """

    head: str
    body: str
    section: str
    effect: Effect
    uses: tuple[Wrapper, ...] = ()
    template: str = ""

    @property
    def name(self) -> str:
        """The function's name."""
        return self.head.split("(")[0].split()[-1].lstrip("*")

    @property
    def text(self) -> str:
        """The definition as CUDA C++."""
        lines = [f"// PTX ISA, {self.section}"] if self.section else []
        if self.template:
            lines.append(f"template <{self.template}>")
        lines.append(f"__device__ __forceinline__ {self.head} {{")
        lines.extend(f"  {line}" for line in self.body.strip().splitlines())
        lines.append("}")
        return "\n".join(lines)


CONSTRAINT = {
    "u16": "h",
    "u32": "r",
    "int": "r",
    "float": "f",
    "u64": "l",
    "i64": "l",
    "double": "d",
}
"""The register class of a C type in inline PTX."""


def asm(
    code: str, outputs: str = "", inputs: str = "", *, memory: bool = False, volatile: bool = True
) -> str:
    """Return an asm statement; `code` lines are separated by newlines, operands as in C++."""
    text = code.replace("\n", "\\n")
    clobbers = ' : "memory"' if memory else ""
    keyword = "asm volatile" if volatile else "asm"
    return f'{keyword}("{text}" : {outputs} : {inputs}{clobbers});'


def giving(
    output: str, code: str, inputs: str = "", *, memory: bool = False, volatile: bool = True
) -> str:
    """Return the body of a function that gives the one output of an asm statement.

    `output` declares it, as in "u32 value".
    """
    kind, name = output.split()
    statement = asm(
        code, f'"={CONSTRAINT[kind]}"({name})', inputs, memory=memory, volatile=volatile
    )
    return f"{output};\n{statement}\nreturn {name};"


def instruction(
    head: str,
    code: str,
    section: str,
    effect: Effect,
    *,
    result: str = "",
    memory: bool = False,
    volatile: bool = True,
    template: str = "",
    uses: tuple[Wrapper, ...] = (),
) -> Wrapper:
    """Return the wrapper of an asm statement whose operands are `result`, for a head that gives a
    value, the parameters of the head in order, those of `template` as immediates, and what `uses`
    give.
    """
    kind, _, given = head.rstrip(")").partition("(")
    operands = [_operand(parameter) for parameter in given.split(", ") if parameter]
    operands += [f'"n"({parameter.split()[1]})' for parameter in template.split(", ") if parameter]
    operands += [f'"l"({used.name}())' for used in uses]
    inputs = ", ".join(operands)
    if result:
        output = f"{kind.split()[0]} {result}"
        body = giving(output, code, inputs, memory=memory, volatile=volatile)
    else:
        body = asm(code, "", inputs, memory=memory, volatile=volatile)
    return Wrapper(head, body, section, effect, uses, template)


def _operand(parameter: str) -> str:
    kind, _, name = parameter.rpartition(" ")
    return f'"{"l" if kind.endswith("*") else CONSTRAINT[kind]}"({name})'


def closure(wrappers: dict[str, Wrapper]) -> list[Wrapper]:
    """Return wrappers with all they use, each before its users, otherwise in order of first use."""
    ordered: dict[str, Wrapper] = {}

    def add(wrapper: Wrapper) -> None:
        for needed in wrapper.uses:
            add(needed)
        ordered.setdefault(wrapper.head, wrapper)

    for wrapper in wrappers.values():
        add(wrapper)
    return list(ordered.values())
