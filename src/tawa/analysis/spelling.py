"""Polynomials as text: what a launcher computes to check the conditions of a kernel.

Numbers that a launch can list: what loops count whose bounds the launch knows.

A kernel that walks over its tiles itself (``for tile in range(program, tiles, programs)``) computes
where a tile lies from the loop's number. No local analysis shows that such a number is not
negative, say; a launch knows every program and every iteration, and evaluates it for all of them
(`tawa.runtime.guards`).
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import scf

from tawa.analysis.polynomial import (
    Atom,
    Call,
    Iteration,
    Leaf,
    Polynomial,
    is_argument,
    place_of,
    polynomial,
)
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


def render(poly: Polynomial, name_leaf: Callable[[Leaf | Iteration], str]) -> str:
    """Return Python text for `poly`; `name_leaf` spells leaves and iteration numbers.

    Functions used: divide and remainder (C rules), minimum, maximum, where.
    """

    def spell_atom(atom: Atom) -> str:
        if isinstance(atom, Call):
            return _PYTHON[atom.function].format(*(render(item, name_leaf) for item in atom.inputs))
        return name_leaf(atom)

    texts: list[str] = []
    for monomial, coefficient in poly.terms.items():
        factors = sorted(spell_atom(atom) for atom in monomial)
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        texts.append("*".join(factors))
    return "(" + (" + ".join(sorted(texts)) or "0") + ")"


def spelled(kernel: tile.Kernel, poly: Polynomial) -> str:
    """Return Python over argument names and program(0), program(1), program(2), grid(0) ..; the
    iterations of the loops it depends on (`tawa.analysis.walked.loops_of`) are iteration(0),
    iteration(1) ... What is ours is called, as no argument is: an argument may have any name.
    """
    return _spelled(kernel, poly, _names_of(loops_of(poly)))


def asked(kernel: tile.Kernel, function: str, poly: Polynomial, *numbers: int) -> str:
    """Return the condition that a number holds to in every program and every iteration, for a
    launch (`tawa.runtime.guards`): a call with the number, what it is compared with, and start, end
    and step of the loops that count iteration(0), iteration(1) ...
    """
    return _asked(kernel, function, spelled(kernel, poly), loops_of(poly), numbers)


def asked_not_zero(kernel: tile.Kernel, poly: Polynomial) -> str:
    """Return the condition that a number is never 0, as `asked` does."""
    text = f"({spelled(kernel, poly)} == 0)"
    return _asked(kernel, "always_within", text, loops_of(poly), (0, 0))


def asked_to_end(kernel: tile.Kernel, loop: scf.ForOp, most: int) -> str:
    """Return the condition that what a loop counts, upwards, never passes `most`, also after its
    last iteration. In 64 bits nothing is computed that 64 bits do not hold: room for a whole step,
    max(end, 0) + step - 1 <= most.
    """
    loops = loops_of(*bounds_of(loop))
    start, end, step = (_spelled(kernel, each, _names_of(loops)) for each in bounds_of(loop))
    last = f"{start} - ({start} - {end}) // {step} * {step} > {most}"
    if most >> 32:
        last = f"maximum({end}, 0) - {most} + ({step} - 1) > 0"
    text = f"(({end} > {start}) & ({last}))"
    return _asked(kernel, "always_within", text, loops, (0, 0))


def _asked(
    kernel: tile.Kernel,
    function: str,
    text: str,
    loops: tuple[scf.ForOp, ...],
    numbers: tuple[int, ...],
) -> str:
    names = _names_of(loops)
    walks = [", ".join(_spelled(kernel, each, names) for each in bounds_of(loop)) for loop in loops]
    return f"{function}({', '.join([text, *map(str, numbers), *(f'({walk})' for walk in walks)])})"


def _names_of(loops: tuple[scf.ForOp, ...]) -> dict[Iteration, str]:
    return {Iteration(loop): f"iteration({place})" for place, loop in enumerate(loops)}


def _spelled(kernel: tile.Kernel, poly: Polynomial, iterations: dict[Iteration, str]) -> str:
    names = kernel.argument_names

    def spell(leaf: Leaf | Iteration) -> str:
        if isinstance(leaf, Iteration):
            return iterations[leaf]
        match leaf.value.owner:
            case tile.ProgramId() as op:
                return f"program({op.axis.data})"
            case tile.NumPrograms() as op:
                return f"grid({op.axis.data})"
            case _:
                return names[leaf.value.index]  # pyright: ignore

    return render(poly, spell)


def bounds_of(loop: scf.ForOp) -> tuple[Polynomial, Polynomial, Polynomial]:
    """Return start, end and step of a loop."""
    return polynomial(loop.lb), polynomial(loop.ub), polynomial(loop.step)


def loops_of(*polys: Polynomial) -> tuple[scf.ForOp, ...]:
    """Return the loops whose iterations numbers depend on, also through their bounds, outer
    first.
    """
    found: dict[Iteration, None] = {}
    pending = [*polys]
    while pending:
        for leaf in pending.pop().leaves:
            if isinstance(leaf, Iteration) and leaf not in found:
                found[leaf] = None
                pending += bounds_of(leaf.loop)
    return tuple(iteration.loop for iteration in sorted(found, key=place_of))


def leaves_of(poly: Polynomial) -> frozenset[Leaf | Iteration]:
    """Return all that a number depends on, also through the bounds of loops."""
    parts = [poly, *(bound for loop in loops_of(poly) for bound in bounds_of(loop))]
    return frozenset(leaf for part in parts for leaf in part.leaves)


def is_listed(poly: Polynomial) -> bool:
    """Tell whether a launch can list the numbers: arguments, programs and their iterations make
    them.
    """
    return all(map(_is_known, leaves_of(poly)))


def _is_known(leaf: Leaf | Iteration) -> bool:
    if isinstance(leaf, Iteration) or is_argument(leaf.value):
        return True
    return isinstance(leaf.value.owner, tile.ProgramId | tile.NumPrograms)
