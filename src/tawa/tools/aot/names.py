"""The arguments of a kernel as fields of a C struct."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from tawa.errors import ArgumentError
from tawa.frontend.signature import (
    Argument,
    ConstantArg,
    DescriptorArg,
    PointerArg,
    ScalarArg,
    TupleArg,
)
from tawa.runtime.compiled import CompiledKernel, spell_argument

C_TYPES: Mapping[str, str] = {
    "i1": "uint8_t",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "f32": "float",
    **dict.fromkeys(("f64", "f16", "bf16", "f8e4m3", "f8e5m2"), "double"),
}
"""What a program gives for a number of each type; numbers narrower than `float` are rounded once,
by the launcher.
"""
_WORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl
const const_cast constexpr continue decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast restrict return short signed sizeof static static_assert static_cast struct
switch template this thread_local throw true try typedef typeid typename union unsigned using
virtual void volatile wchar_t while xor xor_eq typeof linux unix NULL EOF errno stdin stdout
stderr"""
"""Words of C and C++, and macros of their libraries, that no field can be called."""


def plain(name: str, kernel: str) -> str:
    """Return a name as it may stand in C; ArgumentError for one that C has no letters for."""
    if not (name.isascii() and name.isidentifier()):
        raise ArgumentError(
            f"{kernel}: the name {name!r} cannot be written in C",
            why="names of C consist of ASCII letters, digits and underscores",
            remedy="rename it",
        )
    return f"{name}_" if name in _WORDS.split() else name


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a kernel's arguments: `names` in C by the argument's name; `sized`, those of
    arrays beside whose address stands how many bytes they have.
    """

    kernel: str
    signature: Mapping[str, Argument]
    names: Mapping[str, str]
    sized: Mapping[str, str]

    @property
    def struct(self) -> str:
        """The C type of the arguments of a launch."""
        return f"{self.kernel}_arguments"

    def declarations(self) -> list[str]:
        """Return the fields, and as comments what is built in."""
        lines: list[str] = []
        for name, argument in self.signature.items():
            said = spell_argument(argument).replace("*/", "* /").replace("\n", " ")
            match argument:
                case ConstantArg():
                    lines.append(f"    /* {name} {said}, built in */")
                    continue
                case ScalarArg():
                    kind = C_TYPES[argument.dtype]
                case DescriptorArg():
                    kind = "tawa_tensor"
                case _:
                    kind = "CUdeviceptr"
            lines.append(f"    {kind} {self.names[name]}; /* {said} */")
            if name in self.sized:
                lines.append(f"    uint64_t {self.sized[name]}; /* the bytes of {name} */")
        return lines


def fields_of(kernel: CompiledKernel, sized: Set[str]) -> Fields:
    """Return the fields of a kernel's arguments; `sized` are arrays whose size a launch asks for.

    Raises ArgumentError for tuples and for names that C cannot have.
    """
    names: dict[str, str] = {}
    sizes: dict[str, str] = {}
    taken: set[str] = set()

    def fresh(wanted: str) -> str:
        while wanted in taken:
            wanted += "_"
        taken.add(wanted)
        return wanted

    for name, argument in kernel.signature.items():
        if isinstance(argument, TupleArg):
            raise ArgumentError(
                f"{kernel.name}: the argument '{name}' is a tuple",
                why="a launcher in C takes numbers, addresses and tensors",
                remedy="give the kernel a parameter for each item",
            )
        if isinstance(argument, DescriptorArg) and argument.window is not None:
            raise ArgumentError(
                f"{kernel.name}: the argument '{name}' is a descriptor of windows",
                why="launchers in C encode tensor maps of tiles, not of windows",
                remedy="pass a descriptor of the images, or launch the kernel from Python",
            )
        if not isinstance(argument, ConstantArg):
            names[name] = fresh(plain(name, kernel.name))
    for name in sorted(sized):
        if isinstance(kernel.signature.get(name), PointerArg):
            sizes[name] = fresh(f"{names[name]}_bytes")
    return Fields(kernel.name, kernel.signature, names, sizes)
