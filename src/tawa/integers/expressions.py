"""Integer expressions in normal form: polynomials over symbols, quotients and functions.

Length: the three kinds of atoms, expressions and the rules of their normal form need each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import reduce
from math import gcd
from typing import Any, TypeAlias
from weakref import WeakValueDictionary


class Symbol:
    """An unknown integer, told from others by its key and name; `name` is what is printed."""

    __slots__ = ("_hash", "key", "name", "order")

    def __init__(self, name: str, key: Hashable = None) -> None:
        self.name = name
        self.key = name if key is None else key
        self.order: tuple[Any, ...] = (0, name, "" if key is None else repr(key))
        self._hash = hash(self.key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Symbol) and (self.key, self.name) == (other.key, other.name)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name


class Quotient:
    """An atom: the floor of `dividend` over `divisor`, in lowest terms."""

    __slots__ = ("_hash", "dividend", "divisor", "order")

    def __init__(self, dividend: Expr, divisor: Expr) -> None:
        self.dividend = dividend
        self.divisor = divisor
        self.order: tuple[Any, ...] = (1, dividend.order, divisor.order)
        self._hash = hash((dividend, divisor))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Quotient)
            and self.dividend == other.dividend
            and self.divisor == other.divisor
        )

    def __hash__(self) -> int:
        return self._hash


class Apply:
    """An atom: a function of expressions; `min`, `max` and `broadcast` are known, others named."""

    __slots__ = ("_hash", "function", "inputs", "order")

    def __init__(self, function: str, inputs: tuple[Expr, ...]) -> None:
        self.function = function
        self.inputs = inputs
        self.order: tuple[Any, ...] = (2, function, *[item.order for item in inputs])
        self._hash = hash((function, inputs))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Apply)
            and self.function == other.function
            and self.inputs == other.inputs
        )

    def __hash__(self) -> int:
        return self._hash


Atom: TypeAlias = Symbol | Quotient | Apply
Monomial: TypeAlias = tuple[Atom, ...]
Terms: TypeAlias = dict[Monomial, int]
Operand: TypeAlias = "Expr | int"
Functions: TypeAlias = Mapping[str, Callable[..., Any]]


class Expr:
    """A sum of integer coefficients times products of atoms. Make one with the operators.

    `terms` maps each product, a sorted tuple of atoms, to its coefficient; none is 0. Equal
    expressions are one object (but for a race of threads, so `==` compares what differs by `is`).
    """

    __slots__ = ("__weakref__", "_hash", "_order", "_symbols", "terms")

    def __init__(self, terms: Terms, key: int) -> None:
        self.terms = terms
        self._hash = key
        self._order: tuple[Any, ...] | None = None
        self._symbols: frozenset[Symbol] | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return render(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return make, (dict(self.terms),)

    @property
    def order(self) -> tuple[Any, ...]:
        """A key that sorts expressions the same in every process."""
        if self._order is None:
            keyed = [(tuple([a.order for a in m]), c) for m, c in self.terms.items()]
            self._order = tuple(sorted(keyed))
        return self._order

    @property
    def value(self) -> int | None:
        """The number this is, or None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    @property
    def offset(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol it depends on, also inside atoms."""
        if self._symbols is None:
            found: set[Symbol] = set()
            for atom in self.atoms():
                if isinstance(atom, Symbol):
                    found.add(atom)
                else:
                    found.update(*(part.symbols for part in parts(atom)))
            self._symbols = frozenset(found)
        return self._symbols

    def atoms(self) -> Iterator[Atom]:
        """Yield the atoms of the products, an atom as often as it occurs; not those inside."""
        for monomial in self.terms:
            yield from monomial

    def coefficient(self, atom: Atom) -> int:
        """Return the coefficient of the product that is this atom alone."""
        return self.terms.get((atom,), 0)

    def solved(self, symbol: Symbol) -> Expr | None:
        """Return e where `self == 0` says `symbol == e` with coefficient 1 or -1; else None."""
        sign = self.coefficient(symbol)
        if sign not in (1, -1):
            return None
        rest = make({m: -c * sign for m, c in self.terms.items() if m != (symbol,)})
        return None if symbol in rest.symbols else rest

    def __add__(self, other: Operand) -> Expr:
        right = lift(other)
        if not right.terms:
            return self
        if not self.terms:
            return right
        terms = dict(self.terms)
        for monomial, coefficient in right.terms.items():
            total = terms.get(monomial, 0) + coefficient
            if total:
                terms[monomial] = total
            else:
                del terms[monomial]
        return make(terms)

    def __neg__(self) -> Expr:
        return make({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Operand) -> Expr:
        return self + (-lift(other))

    def __mul__(self, other: Operand) -> Expr:
        right = lift(other)
        if right is ONE or not self.terms:
            return self
        if self is ONE or not right.terms:
            return right
        terms: Terms = {}
        for left, a in self.terms.items():
            for factor, b in right.terms.items():
                monomial = _product(left, factor)
                terms[monomial] = terms.get(monomial, 0) + a * b
        return make({m: c for m, c in terms.items() if c})

    def __floordiv__(self, other: Operand) -> Expr:
        return _floor(self, lift(other))

    def __mod__(self, other: Operand) -> Expr:
        divisor = lift(other)
        return self - divisor * (self // divisor)

    def __radd__(self, other: int) -> Expr:
        return constant(other) + self

    def __rsub__(self, other: int) -> Expr:
        return constant(other) - self

    def __rmul__(self, other: int) -> Expr:
        return self * other

    def __rfloordiv__(self, other: int) -> Expr:
        return constant(other) // self

    def __rmod__(self, other: int) -> Expr:
        return constant(other) % self

    def substitute(self, values: Mapping[Symbol, Operand]) -> Expr:
        """Replace symbols, all at once, and return the normal form."""
        if not any(symbol in values for symbol in self.symbols):
            return self
        if len(self.terms) == 1:
            ((monomial, coefficient),) = self.terms.items()
            if coefficient == 1 and len(monomial) == 1:  # most are one symbol
                return _replaced(monomial[0], values)
        terms: Terms = {}
        for monomial, coefficient in self.terms.items():
            product: Terms = {(): coefficient}  # what is between is no expression
            for atom in monomial:
                left, product = product, {}
                for factor, b in _replaced(atom, values).terms.items():
                    for other, a in left.items():
                        factors = _product(other, factor)
                        product[factors] = product.get(factors, 0) + a * b
            for factors, number in product.items():
                terms[factors] = terms.get(factors, 0) + number
        return make({m: c for m, c in terms.items() if c})

    def evaluate(self, values: Mapping[Symbol, Any], functions: Functions | None = None) -> Any:
        """Return the number for these values of its symbols; they may be arrays of NumPy.

        `functions` gives the meaning of functions by name. Raises KeyError for a symbol or
        function without a meaning, ZeroDivisionError for a quotient by 0 (of Python's numbers).
        """
        total: Any = 0
        for monomial, coefficient in self.terms.items():
            product: Any = coefficient
            for atom in monomial:
                product = product * _value(atom, values, functions or {})
            total = total + product
        return total


# Equal expressions are made once. The table holds no expression alive, and whether one is found in
# it cannot be seen from outside: it is no state.
_MADE: WeakValueDictionary[frozenset[tuple[Monomial, int]], Expr] = WeakValueDictionary()


def make(terms: Terms) -> Expr:
    """Return the expression with these terms: products sorted, no coefficient 0."""
    key = frozenset(terms.items())
    found = _MADE.get(key)
    if found is None:
        found = _MADE[key] = Expr(terms, hash(key))
    return found


def constant(number: int) -> Expr:
    """Return a number as an expression."""
    return make({(): int(number)} if number else {})


def symbol(name: str, key: Hashable = None) -> Expr:
    """Return an unknown integer as an expression."""
    return of_atom(Symbol(name, key))


def of_atom(atom: Atom) -> Expr:
    """Return an atom as an expression."""
    return make({(atom,): 1})


def lift(value: Operand) -> Expr:
    """Return a number or an expression as an expression."""
    return value if isinstance(value, Expr) else constant(value)


ZERO = constant(0)
ONE = constant(1)


def parts(atom: Atom) -> tuple[Expr, ...]:
    """Return the expressions inside an atom."""
    match atom:
        case Symbol():
            return ()
        case Quotient():
            return atom.dividend, atom.divisor
        case Apply():
            return atom.inputs


def ceildiv(dividend: Operand, divisor: Operand) -> Expr:
    """Return the quotient, rounded up."""
    left, right = lift(dividend), lift(divisor)
    if (number := right.value) is not None and number > 0:
        return (left + (number - 1)) // right
    return -((-left) // right)


def minimum(*inputs: Operand) -> Expr:
    """Return the least of some expressions."""
    return _extremum("min", inputs, -1)


def maximum(*inputs: Operand) -> Expr:
    """Return the greatest of some expressions."""
    return _extremum("max", inputs, 1)


def broadcast(*inputs: Operand) -> Expr:
    """Return the one size that arrays of these sizes are broadcast to: what is not 1.

    Defined where all inputs that are not 1 are equal.
    """
    kept = {item: None for item in _flat("broadcast", inputs) if item.value != 1}
    numbers = [item for item in kept if item.value is not None]
    if numbers or len(kept) <= 1:
        return next(iter(numbers or kept), ONE)
    return of_atom(Apply("broadcast", tuple(sorted(kept, key=lambda item: item.order))))


def apply(function: str, *inputs: Operand) -> Expr:
    """Return a function of expressions; what is not known by this module stays as it is written."""
    match function:
        case "min" | "max":
            return _extremum(function, inputs, 1 if function == "max" else -1)
        case "broadcast":
            return broadcast(*inputs)
        case _:
            pass
    return of_atom(Apply(function, tuple([lift(item) for item in inputs])))


def _extremum(function: str, inputs: tuple[Operand, ...], sign: int) -> Expr:
    kept: list[Expr] = []
    for item in _flat(function, inputs):
        if any(_beyond(other, item, sign) for other in kept):
            continue
        kept = [other for other in kept if not _beyond(item, other, sign)]
        kept.append(item)
    if len(kept) == 1:
        return kept[0]
    return of_atom(Apply(function, tuple(sorted(kept, key=lambda item: item.order))))


def _flat(function: str, inputs: tuple[Operand, ...]) -> Iterator[Expr]:
    """Yield the inputs, those of an inner call of the same function one by one."""
    for item in inputs:
        lifted = lift(item)
        atoms = list(lifted.terms.items())
        match atoms:
            case [((Apply(function=inner, inputs=nested),), 1)] if inner == function:
                yield from nested
            case _:
                yield lifted


def _beyond(one: Expr, other: Expr, sign: int) -> bool:
    """Tell whether `one` is never less (of a minimum: never greater) than `other`."""
    number = (one - other).value
    return number is not None and number * sign >= 0


def _product(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    return tuple(sorted(left + right, key=lambda atom: atom.order))


def _floor(dividend: Expr, divisor: Expr) -> Expr:
    """Return the floor of a quotient in normal form."""
    if (number := divisor.value) is None:
        return _floor_symbolic(dividend, divisor)
    if number == 0:
        raise ZeroDivisionError("a quotient by 0")
    if number < 0:
        dividend, number = -dividend, -number
    # (k*q + r)//k = q + r//k: the coefficients of r are 0 .. k-1.
    whole = make({m: c // number for m, c in dividend.terms.items() if c // number})
    rest = make({m: c % number for m, c in dividend.terms.items() if c % number})
    if rest.value is not None:
        return whole
    # (g*r + c)//(g*k) = (r + c//g)//k.
    shared = reduce(gcd, (c for m, c in rest.terms.items() if m), number)
    if shared > 1:
        terms = {m: c // shared for m, c in rest.terms.items() if c // shared}
        return whole + _floor(make(terms), constant(number // shared))
    # (x//a + r)//b = (x + a*r)//(a*b), of positive a and b.
    for monomial, coefficient in rest.terms.items():
        match monomial:
            case (Quotient(dividend=inner, divisor=by),) if coefficient == 1:
                if (outer := by.value) is not None:
                    others = rest - of_atom(monomial[0])
                    return whole + _floor(inner + others * outer, constant(outer * number))
            case _:
                pass
    return whole + of_atom(Quotient(rest, constant(number)))


def _floor_symbolic(dividend: Expr, divisor: Expr) -> Expr:
    if len(divisor.terms) == 1:
        ((by, number),) = divisor.terms.items()
        whole: Terms = {}
        rest: Terms = {}
        for monomial, coefficient in dividend.terms.items():
            left = _without(monomial, by) if coefficient % number == 0 else None
            if left is None:
                rest[monomial] = coefficient
            else:
                whole[left] = coefficient // number
        if not rest:
            return make(whole)
        return make(whole) + of_atom(Quotient(make(rest), divisor))
    exact = exact_quotient(dividend, divisor)
    return exact if exact is not None else of_atom(Quotient(dividend, divisor))


def exact_quotient(dividend: Expr, divisor: Expr) -> Expr | None:
    """Return q where `dividend` is the polynomial `q * divisor`; else None."""
    atoms = sorted({*dividend.atoms(), *divisor.atoms()}, key=lambda atom: atom.order)

    def degrees(monomial: Monomial) -> tuple[int, ...]:
        return tuple([monomial.count(atom) for atom in atoms])

    lead = max(divisor.terms, key=degrees)
    quotient = ZERO
    while dividend.terms:
        top = max(dividend.terms, key=degrees)
        number = dividend.terms[top]
        left = _without(top, lead)
        if left is None or number % divisor.terms[lead]:
            return None
        step = make({left: number // divisor.terms[lead]})
        quotient = quotient + step
        dividend = dividend - step * divisor
    return quotient


def _without(monomial: Monomial, by: Monomial) -> Monomial | None:
    """Return the atoms of `monomial` less those of `by`; None where it lacks one of them."""
    left = list(monomial)
    for atom in by:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _replaced(atom: Atom, values: Mapping[Symbol, Operand]) -> Expr:
    match atom:
        case Symbol():
            return lift(values[atom]) if atom in values else of_atom(atom)
        case Quotient():
            return atom.dividend.substitute(values) // atom.divisor.substitute(values)
        case Apply():
            return apply(atom.function, *[item.substitute(values) for item in atom.inputs])


def _value(atom: Atom, values: Mapping[Symbol, Any], functions: Functions) -> Any:
    match atom:
        case Symbol():
            return values[atom]
        case Quotient():
            divisor = atom.divisor.evaluate(values, functions)
            return atom.dividend.evaluate(values, functions) // divisor
        case Apply():
            inputs = [item.evaluate(values, functions) for item in atom.inputs]
            if atom.function in functions:
                return functions[atom.function](*inputs)
            return {"min": min, "max": max, "broadcast": _broadcast}[atom.function](inputs)


def _broadcast(sizes: list[Any]) -> Any:
    return next((size for size in sizes if size != 1), 1)


Names: TypeAlias = Mapping[Symbol, str] | None


def render(expr: Expr, names: Names = None) -> str:
    """Return `expr` as text; `names` replaces the names of symbols. Every value is printed the
    same in every process.
    """
    return _sum(expr, names)


def remainders(expr: Expr) -> Iterable[tuple[Expr, int, int, Expr]]:
    """Yield (x, c, k, rest) where `expr` is `c*(x % k) + rest` and `rest` has fewer terms."""
    for monomial, coefficient in expr.terms.items():
        match monomial:
            case (Quotient(dividend=dividend, divisor=divisor) as atom,):
                by = divisor.value
                if by is None or coefficient % by:
                    continue
                count = -(coefficient // by)
                rest = expr - (dividend - of_atom(atom) * by) * count
                if len(rest.terms) < len(expr.terms):
                    yield dividend, count, by, rest
            case _:
                continue


def _sum(expr: Expr, names: Names) -> str:
    pieces: list[tuple[int, str, bool]] = []  # (coefficient, text, whether it is a // or %)
    rest = expr
    while (split := next(iter(remainders(rest)), None)) is not None:
        inner, count, by, rest = split
        pieces.append((count, f"{factor_text(inner, names)} % {by}", True))
    for monomial in sorted(rest.terms, key=lambda m: _place(m, rest.terms[m])):
        divided = len(monomial) == 1 and isinstance(monomial[0], Quotient)
        pieces.append((rest.terms[monomial], _monomial(monomial, names), divided))
    text = ""
    for count, body, divided in pieces:
        if divided and (abs(count) != 1 or (count < 0 and not text)):
            body = f"({body})"
        size = abs(count)
        piece = str(size) if not body else body if size == 1 else f"{size}*{body}"
        if text:
            text += f" {'-' if count < 0 else '+'} {piece}"
        else:
            text = f"-{piece}" if count < 0 else piece
    return text or "0"


def _place(monomial: Monomial, coefficient: int) -> tuple[object, ...]:
    """Sort what is positive first, then by degree, the constant last."""
    return (coefficient < 0, -len(monomial), tuple(atom.order for atom in monomial))


def _monomial(monomial: Monomial, names: Names) -> str:
    if len(monomial) == 1:
        return _atom(monomial[0], names)
    return "*".join(
        f"({_atom(atom, names)})" if isinstance(atom, Quotient) else _atom(atom, names)
        for atom in monomial
    )


def _atom(atom: Atom, names: Names) -> str:
    match atom:
        case Symbol():
            return (names or {}).get(atom, atom.name)
        case Quotient():
            return f"{factor_text(atom.dividend, names)}//{factor_text(atom.divisor, names)}"
        case Apply():
            return f"{atom.function}({', '.join(_sum(item, names) for item in atom.inputs)})"


def factor_text(expr: Expr, names: Names) -> str:
    """Return text that can stand on either side of `//` and `%`."""
    text = _sum(expr, names)
    if (expr.value or 0) < 0:
        return f"({text})"
    simple = expr.value is not None or (
        len(expr.terms) == 1
        and all(c == 1 and len(m) == 1 for m, c in expr.terms.items())
        and not any(isinstance(atom, Quotient) for atom in expr.atoms())
    )
    return text if simple else f"({text})"
