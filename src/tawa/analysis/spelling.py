"""Polynomials as text: what a launcher computes to check the conditions of a kernel."""

from __future__ import annotations

from collections.abc import Callable

from tawa.analysis.polynomial import Atom, Call, Leaf, Polynomial, Trip
from tawa.ir import tile

_PYTHON: dict[str, str] = {
    "idiv": "divide({0}, {1})",
    "irem": "remainder({0}, {1})",
    "min": "minimum({0}, {1})",
    "max": "maximum({0}, {1})",
    "select": "where({0}, {1}, {2})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "xor": "({0} ^ {1})",
    "shl": "({0} << {1})",
    "shr": "({0} >> {1})",
}


def render(poly: Polynomial, name_leaf: Callable[[Leaf | Trip], str]) -> str:
    """Return Python text for `poly`; `name_leaf` spells leaves and trip numbers.

    Functions used: divide and remainder (C rules), minimum, maximum, where.
    """

    def spell_atom(atom: Atom) -> str:
        if isinstance(atom, Call):
            return _PYTHON[atom.function].format(*(render(item, name_leaf) for item in atom.inputs))
        return name_leaf(atom)

    texts: list[str] = []
    for monomial, coefficient in poly.terms:
        factors = sorted(spell_atom(atom) for atom in monomial)
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        texts.append("*".join(factors))
    return "(" + (" + ".join(sorted(texts)) or "0") + ")"


def spelled(kernel: tile.Kernel, poly: Polynomial) -> str:
    """Return Python over argument names and program0, program1, program2, grid0 ..."""
    names = kernel.argument_names

    def spell(leaf: Leaf | Trip) -> str:
        assert isinstance(leaf, Leaf), "guards are free of loops"
        match leaf.value.owner:
            case tile.ProgramId() as op:
                return f"program{op.axis.data}"
            case tile.NumPrograms() as op:
                return f"grid{op.axis.data}"
            case _:
                return names[leaf.value.index]  # pyright: ignore

    return render(poly, spell)
