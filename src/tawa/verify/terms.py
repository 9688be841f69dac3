"""Integer terms in normal form: polynomials over atoms, each term made once.

A term is a number of a `Terms` table. Two terms are one exactly where their normal forms are: sums
of products of *atoms*, and an atom is a kind with a key (a function of terms, an argument, the
number of an iteration). So equality of what two roles compute is equality of two integers. Sums
and products follow the ring of integers; that no machine number wraps is hypothesis H3 of
docs/design/proof.md.

What decides whether operations happen has a normal form as well: a `Condition` is a sum of products
of factors with whole coefficients, of which one is 1 and all others are 0: 1 where it holds. A
factor `Holds` is 1 where x > 0, where x = 0, or where x holds, a condition of which no more is
known.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Term: TypeAlias = int
Atom: TypeAlias = int
Key: TypeAlias = tuple[Hashable, ...]
Leaf: TypeAlias = tuple[str, int]
"""What a term depends on besides the launch: ("iteration", depth), ("self", place) of a recurrence
that is not closed yet, or `RANK`: the block, where other blocks of its cluster may find otherwise.
"""

RANK: Leaf = ("rank", 0)
UNKNOWN: Leaf = ("unknown", 0)
"""Numbers that no other program is shown to find: equal to nothing but themselves."""

_Poly: TypeAlias = tuple[tuple[tuple[Atom, ...], int], ...]


class Terms:
    """The terms of one kernel."""

    def __init__(self) -> None:
        self._polys: list[_Poly] = []
        self._numbers: dict[_Poly, Term] = {}
        self._keys: list[Key] = []
        self._atoms: dict[Key, Atom] = {}
        self._leaves: list[frozenset[Leaf]] = []
        self.natural: set[Atom] = set()
        """Atoms that are never negative."""
        self._supports: dict[Term, frozenset[Leaf]] = {}
        self._sums: dict[tuple[Term, Term, int], Term] = {}
        self.zero, self.one = self.constant(0), self.constant(1)

    def _take(self, poly: Mapping[tuple[Atom, ...], int]) -> Term:
        kept = tuple(sorted(item for item in poly.items() if item[1]))
        number = self._numbers.get(kept)
        if number is None:
            number = self._numbers[kept] = len(self._polys)
            self._polys.append(kept)
        return number

    def constant(self, value: int) -> Term:
        """Return the term of a number."""
        return self._take({(): value})

    def atom(self, key: Key, leaves: frozenset[Leaf] = frozenset()) -> Term:
        """Return the term of an atom; `leaves` is what it depends on."""
        number = self._atoms.get(key)
        if number is None:
            number = self._atoms[key] = len(self._keys)
            self._keys.append(key)
            self._leaves.append(leaves)
            if self._is_natural(key):
                self.natural.add(number)
        return self._take({(number,): 1})

    def iteration(self, depth: int) -> Term:
        """Return the number of the iteration of the loop at a depth: 0 is the outermost."""
        return self.atom(("iteration", depth), frozenset({("iteration", depth)}))

    def function(self, name: str, kind: str, inputs: list[Term]) -> Term:
        """Return the term of a function; a quotient, or a rest, of signed integers that is whole in
        every product of the dividend is no atom. `kind` is a type's short name: i32, u32, f32.
        """
        by = self.number(inputs[1]) if name in ("idiv", "irem") and kind.startswith("i") else None
        if by is not None and by > 0:
            whole, number = self.quotient(inputs[0], by), self.number(inputs[0])
            if whole is None and number is not None:  # rounded towards zero
                whole = self.constant(abs(number) // by * (1 if number > 0 else -1))
            if whole is not None:
                return whole if name == "idiv" else self.add(inputs[0], whole, -by)
        if name in ("min", "max") and kind.startswith("i"):
            numbers = sorted(n for each in inputs if (n := self.number(each)) is not None)
            if len(numbers) == len(inputs):
                return self.constant(numbers[0 if name == "min" else -1])
        return self.atom(("function", name, kind, *inputs), self.support_of(inputs))

    def iterations(self, length: Term, step: Term) -> Term:
        """Return how often a loop iterates."""
        number, by = self.number(length), self.number(step)
        if number is not None and by is not None and by > 0:
            return self.constant(max(0, -(-number // by)))
        return self.function("iterations", "", [length, step])

    def add(self, a: Term, b: Term, times: int = 1) -> Term:
        """Return a + times * b."""
        found = self._sums.get((a, b, times))
        if found is None:
            total = dict(self._polys[a])
            for monomial, factor in self._polys[b]:
                total[monomial] = total.get(monomial, 0) + times * factor
            found = self._sums[a, b, times] = self._take(total)
        return found

    def sub(self, a: Term, b: Term) -> Term:
        """Return a - b."""
        return self.add(a, b, -1)

    def scale(self, a: Term, times: int) -> Term:
        """Return times * a."""
        return self.add(self.zero, a, times)

    def mul(self, a: Term, b: Term) -> Term:
        """Return a * b."""
        total: dict[tuple[Atom, ...], int] = {}
        for one, x in self._polys[a]:
            for other, y in self._polys[b]:
                monomial = tuple(sorted(one + other))
                total[monomial] = total.get(monomial, 0) + x * y
        return self._take(total)

    # --- asking -----------------------------------------------------------------------------------

    def number(self, term: Term) -> int | None:
        """Return the number that a term is, if it is one."""
        match self._polys[term]:
            case ():
                return 0
            case (((), value),):
                return value
            case _:
                return None

    def offset(self, term: Term) -> int:
        """Return the constant part of a term."""
        return next((factor for monomial, factor in self._polys[term] if not monomial), 0)

    def blurred(self, term: Term, number: int = 0) -> Term:
        """Return a term as another program knows it: one atom stands for all that are unknown, of
        those that are told apart that of a number.
        """
        if UNKNOWN not in self.support(term):
            return term
        return self.atom(("unknown", number), frozenset({UNKNOWN}))

    def residue(self, term: Term, by: int) -> int | None:
        """Return what a term leaves when it is divided by a number above 0; None where that depends
        on its atoms.
        """
        if any(factor % by for monomial, factor in self._polys[term] if monomial):
            return None
        return self.offset(term) % by

    def least(self, term: Term, natural: Container[Atom]) -> int | None:
        """Return a number that a term is never below, where atoms of `natural` are never negative;
        None where none is seen.
        """
        for monomial, factor in self._polys[term]:
            if (factor < 0 and monomial) or any(atom not in natural for atom in monomial):
                return None
        return self.offset(term)

    def _is_natural(self, key: Key) -> bool:
        """Tell whether an atom is never negative: a number of a block, a program or an iteration,
        or what is made of such numbers alone.
        """
        match key:
            case ("launch" | "iteration" | "program", *_) | ("function", "iterations", *_):
                return True
            case ("function", "irem", str(kind), int(a), int(_)) if _is_signed(kind):
                return self._are_natural(a)  # it has the sign of what is divided
            case ("function", "idiv" | "min", str(kind), int(a), int(b)) if _is_signed(kind):
                return self._are_natural(a, b)
            case ("carried", int(_), int(_), int(start), int(after)):
                return self._are_natural(start, after)
            case _:
                return False

    def _are_natural(self, *terms: Term) -> bool:
        found = [self.least(each, self.natural) for each in terms]
        return all(least is not None and least >= 0 for least in found)

    def key(self, term: Term) -> Key | None:
        """Return the key of a term that is one atom."""
        match self._polys[term]:
            case (((atom,), 1),):
                return self._keys[atom]
            case _:
                return None

    def atoms(self, term: Term) -> set[Atom]:
        """Return the atoms of a term."""
        return {atom for monomial, _ in self._polys[term] for atom in monomial}

    def support(self, term: Term) -> frozenset[Leaf]:
        """Return the iteration numbers and open recurrences that a term depends on."""
        found = self._supports.get(term)
        if found is None:
            found = self._supports[term] = frozenset[Leaf]().union(
                *(self._leaves[atom] for atom in self.atoms(term))
            )
        return found

    def support_of(self, terms: Iterable[Term]) -> frozenset[Leaf]:
        """Return what any of `terms` depends on."""
        return frozenset[Leaf]().union(*map(self.support, terms))

    def linear(self, term: Term, atom: Term) -> tuple[Term, Term] | None:
        """Split a term into (rest, factor) with term = rest + factor * atom, neither of which has
        the atom; None where it has it squared, or inside of another atom.
        """
        (((found,), _),) = self._polys[atom]
        rest: dict[tuple[Atom, ...], int] = {}
        factor: dict[tuple[Atom, ...], int] = {}
        for monomial, times in self._polys[term]:
            if found not in monomial:
                rest[monomial] = times
            else:
                place = monomial.index(found)
                factor[monomial[:place] + monomial[place + 1 :]] = times
        parts = self._take(rest), self._take(factor)
        leaves = self._leaves[found]
        return None if leaves & self.support_of(parts) or found in self.atoms(parts[1]) else parts

    def ratio(self, term: Term, unit: Term) -> int | None:
        """Return the whole number n with term = n * unit, if there is one."""
        if term == self.zero:
            return 0
        left, right = self._polys[term], self._polys[unit]
        if not right or len(left) != len(right) or left[0][1] % right[0][1]:
            return None
        times = left[0][1] // right[0][1]
        return times if self.scale(unit, times) == term else None

    def primitive(self, step: Term) -> tuple[Term, int]:
        """Split a step that is no number into (unit, how many units): 2 * blocks is 2 of blocks."""
        poly = self._polys[step]
        if len(poly) != 1 or not poly[0][0] or poly[0][1] < 1:
            return step, 1
        return self._take({poly[0][0]: 1}), poly[0][1]

    def multiple_in(self, term: Term, unit: Term) -> int:
        """Return how often the one product `unit` stands in a sum."""
        ((product, _),) = self._polys[unit] or (((), 0),)
        return dict(self._polys[term]).get(product, 0)

    def leading(self, term: Term) -> int:
        """Return the factor of the first product of a term that is no number."""
        return self._polys[term][0][1]

    def divided(self, term: Term, times: int) -> Term:
        """Return term / times, which is whole."""
        return self._take({product: n // times for product, n in self._polys[term]})

    def quotient(self, term: Term, times: int) -> Term | None:
        """Return term / times where every product in it has a factor that times divides."""
        if any(n % times for _, n in self._polys[term]):
            return None
        return self._take({product: n // times for product, n in self._polys[term]})

    def replaced(self, term: Term, atom: Term, by: Term) -> Term | None:
        """Return a term with `by` for an atom, inside of functions as well; None where it stands in
        an atom that is no function of terms. A number stands in no term.
        """
        if self.number(atom) is not None:
            return term
        (((found,), _),) = self._polys[atom]
        leaves = self._leaves[found]
        total = self.zero
        for monomial, times in self._polys[term]:
            product = self.constant(times)
            for each in monomial:
                factor: Term | None = self._take({(each,): 1})
                if each == found:
                    factor = by
                elif not leaves or leaves & self._leaves[each]:
                    factor = self._inside(each, atom, by)
                if factor is None:
                    return None
                product = self.mul(product, factor)
            total = self.add(total, product)
        return total

    def _inside(self, each: Atom, atom: Term, by: Term) -> Term | None:
        match self._keys[each]:
            case ("function", name, kind, *inputs):
                changed = [self.replaced(one, atom, by) for one in _terms(inputs)]
                if len(changed) != len(inputs) or None in changed:
                    return None
                terms = [one for one in changed if one is not None]
                return self.function(str(name), str(kind), terms)
            case _:
                hidden = (self._leaves[each] & self.support(atom)) - {RANK, UNKNOWN}
                return None if hidden else self._take({(each,): 1})

    def bounded(self, term: Term) -> tuple[bool, tuple[Term, Term]] | None:
        """Write a term that has a minimum, or a maximum, in it, once, as the (True) lesser or
        (False) greater one of two terms."""
        for monomial, factor in self._polys[term]:
            if len(monomial) != 1 or abs(factor) != 1:
                continue
            match self._keys[monomial[0]]:
                case ("function", ("min" | "max") as name, str(kind), int(a), int(b)):
                    if kind[0] != "i":
                        continue
                    rest = dict(self._polys[term])
                    del rest[monomial]
                    base = self._take(rest)
                    parts = self.add(base, a, factor), self.add(base, b, factor)
                    return (name == "min") == (factor > 0), parts
                case _:
                    continue
        return None

    def capped(self, term: Term) -> tuple[bool, int, Term] | None:
        """Write a term as the (True) lesser or (False) greater one of a number and a term."""
        found = self.bounded(term)
        if found is None:
            return None
        every, (one, other) = found
        for cap, rest in ((one, other), (other, one)):
            number = self.number(cap)
            if number is not None:
                return every, number, rest
        return None

    # --- telling ----------------------------------------------------------------------------------

    def text(self, term: Term) -> str:
        """Return a term as a reader sees it."""
        parts: list[str] = []
        for monomial, factor in sorted(self._polys[term], key=lambda item: -len(item[0])):
            names = " * ".join(self._atom_text(atom) for atom in monomial)
            sign = "- " if factor < 0 else "+ "
            size = "" if abs(factor) == 1 and names else str(abs(factor))
            parts.append(sign + " * ".join(filter(None, (size, names))))
        return " ".join(parts).removeprefix("+ ") or "0"

    def _atom_text(self, atom: Atom) -> str:
        match self._keys[atom]:
            case ("argument", str(name), int(index)):
                return name or f"argument {index}"
            case ("launch", *name):
                return " ".join(str(item) for item in name)
            case ("iteration", int(depth)):
                return f"iteration{depth}"
            case ("function", str(name), _, *inputs):
                return f"{name}({', '.join(self.text(each) for each in _terms(inputs))})"
            case key:
                return f"{key[0]}#{atom}"


def _terms(parts: Iterable[Hashable]) -> Iterator[Term]:
    return (each for each in parts if isinstance(each, int))


# --- conditions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Holds:
    """1 where the term is "positive", "zero" or "true", else 0."""

    what: Literal["positive", "zero", "true"]
    x: Term


Product: TypeAlias = frozenset[Holds]
Condition: TypeAlias = frozenset[tuple[Product, int]]

NEVER: Condition = frozenset()
ALWAYS: Condition = frozenset({(frozenset[Holds](), 1)})


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions over one table of terms."""

    terms: Terms

    def sum(self, conditions: Iterable[tuple[Condition, int]]) -> Condition:
        """Return the sum of conditions, each so many times."""
        total: dict[Product, int] = {}
        for condition, times in conditions:
            for product, factor in condition:
                total[product] = total.get(product, 0) + times * factor
        return frozenset(item for item in total.items() if item[1])

    def both(self, a: Condition, b: Condition) -> Condition:
        """Return the product: 1 where both hold."""
        return self.sum((frozenset({(one | other, 1)}), x * y) for one, x in a for other, y in b)

    def negated(self, a: Condition) -> Condition:
        """Return 1 where a condition does not hold."""
        return self.sum(((ALWAYS, 1), (a, -1)))

    def chosen(self, condition: Condition, then: Condition, other: Condition) -> Condition:
        """Return `then` where a condition holds, else `other`."""
        return self.sum(
            ((self.both(condition, then), 1), (other, 1), (self.both(condition, other), -1))
        )

    def positive(self, x: Term) -> Condition:
        """Return 1 where x > 0, else 0."""
        number = self.terms.number(x)
        if number is not None:
            return ALWAYS if number > 0 else NEVER
        iterations = self._of_iterations(x)
        if iterations is not None:
            length, step, times, more = iterations
            if times > 0 and more > 0:
                return ALWAYS
            if times > 0:  # times * iterations > -more, so iterations > j
                return self.positive(self.terms.add(length, step, -(-more // times)))
            if more <= 0:
                return NEVER
            # more > -times * iterations, so not iterations > (more - 1) // -times
            enough = self.positive(self.terms.add(length, step, -((more - 1) // -times)))
            return self.negated(enough)
        if (self.terms.least(x, self.terms.natural) or 0) > 0:
            return ALWAYS
        if (capped := self.terms.capped(x)) is not None:
            least, most, rest = capped
            if most > 0:
                return self.positive(rest) if least else ALWAYS
            return NEVER if least else self.positive(rest)
        return _once("positive", x)

    def _of_iterations(self, x: Term) -> tuple[Term, Term, int, int] | None:
        """Split times * iterations + more: (length and step of the loop, times, more)."""
        offset = self.terms.offset(x)
        rest = self.terms.add(x, self.terms.one, -offset)
        if len(self.terms.atoms(rest)) != 1:
            return None
        times = self.terms.leading(rest)
        match self.terms.key(self.terms.divided(rest, times)):
            case ("function", "iterations", _, int(length), int(step)):
                return length, step, times, offset
            case _:
                return None

    def equal(self, a: Term, b: Term) -> Condition:
        """Return 1 where a = b, else 0."""
        x = self.terms.sub(a, b)
        number = self.terms.number(x)
        if number is not None:
            return NEVER if number else ALWAYS
        return _once("zero", min(x, self.terms.scale(x, -1)))

    def of(self, term: Term) -> Condition:
        """Return 1 where a condition (i1) holds, else 0."""
        number = self.terms.number(term)
        if number is not None:
            return ALWAYS if number else NEVER
        terms = self.terms
        match terms.key(term):
            case ("function", ("lt" | "ge") as name, str(kind), int(a), int(b)) if _is_signed(kind):
                less = self.positive(terms.sub(b, a))
                return less if name == "lt" else self.negated(less)
            case ("function", ("gt" | "le") as name, str(kind), int(a), int(b)) if _is_signed(kind):
                more = self.positive(terms.sub(a, b))
                return more if name == "gt" else self.negated(more)
            case ("function", ("eq" | "ne") as name, str(kind), int(a), int(b)) if (
                _is_signed(kind) or kind[0] == "u"
            ):
                same = self.equal(a, b)
                return same if name == "eq" else self.negated(same)
            case ("function", "and", "i1", int(a), int(b)):
                return self.both(self.of(a), self.of(b))
            case ("function", "or", "i1", int(a), int(b)):
                return self.chosen(self.of(a), ALWAYS, self.of(b))
            case ("function", "xor", "i1", int(a), int(b)):
                return self.chosen(self.of(a), self.negated(self.of(b)), self.of(b))
            case ("function", "not", "i1", int(a)):
                return self.negated(self.of(a))
            case ("function", "select", "i1", int(c), int(a), int(b)):
                return self.chosen(self.of(c), self.of(a), self.of(b))
            case _:
                return _once("true", term)

    def blurred(self, a: Condition) -> Condition:
        """Return a condition as another program knows it: of unknown numbers a product has so many
        factors, none of which is another one, or the contrary of another one.
        """
        total: list[tuple[Condition, int]] = []
        for product, times in a:
            known = frozenset(f for f in product if UNKNOWN not in self.terms.support(f.x))
            others = sorted(product - known, key=lambda factor: factor.what)
            named = (Holds(f.what, self.terms.blurred(f.x, n)) for n, f in enumerate(others))
            total.append((frozenset({(known.union(named), 1)}), times))
        return self.sum(total)

    def replaced(self, a: Condition, atom: Term, by: Term) -> Condition | None:
        """Return a condition with `by` for an atom; None where a term cannot be given so."""
        total: list[tuple[Condition, int]] = []
        for product, times in a:
            made = ALWAYS
            for factor in product:
                x = self.terms.replaced(factor.x, atom, by)
                if x is None:
                    return None
                match factor.what:
                    case "positive":
                        own = self.positive(x)
                    case "zero":
                        own = self.equal(x, self.terms.zero)
                    case "true":
                        own = self.of(x)
                made = self.both(made, own)
            total.append((made, times))
        return self.sum(total)

    def is_never(self, a: Condition) -> bool:
        """Tell whether a condition is seen to hold nowhere."""
        least, natural, scale = self.terms.least, self.terms.natural, self.terms.scale
        signs = ([least(scale(f.x, -1), natural) for f in p if f.what == "positive"] for p, _ in a)
        return all(any(sign is not None and sign >= 0 for sign in each) for each in signs)

    def text(self, factor: Holds) -> str:
        """Return a factor as a reader sees it."""
        x = self.terms.text(factor.x)
        return x if factor.what == "true" else f"{x} {'>' if factor.what == 'positive' else '='} 0"


def _is_signed(kind: str) -> bool:
    return kind[0] == "i" and kind != "i1"


def _once(what: Literal["positive", "zero", "true"], x: Term) -> Condition:
    return frozenset({(frozenset({Holds(what, x)}), 1)})
