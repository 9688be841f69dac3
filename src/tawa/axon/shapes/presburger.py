"""Conditions that are linear, with `//` and `%` by numbers, decided and simplified with isl.

The Integer Set Library (Verdoolaege, ICMS 2010) decides them and projects variables away. A product
of variables is taken as an unknown of its own: what is found impossible or implied then is so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import gcd
from typing import Any

from tawa.axon.shapes.words import is_size
from tawa.errors import MissingPackage
from tawa.integers import (
    AllOf,
    AnyOf,
    Apply,
    AtLeast,
    Condition,
    Equal,
    Expr,
    Quotient,
    Symbol,
    apply,
    at_least,
    constant,
    divides,
    equal,
)
from tawa.integers.conditions import FALSE, all_of, any_of, expressions, symbols_of
from tawa.integers.expressions import Atom, Monomial, make, of_atom, parts


def islpy() -> Any:
    """Return the package; raises MissingPackage with what to install."""
    try:
        import islpy as isl  # pyright: ignore[reportMissingTypeStubs, reportMissingImports]
    except ImportError as error:
        raise MissingPackage(
            "islpy is not installed: tawa.axon needs it to decide conditions on sizes",
            remedy='pip install "tawa[axon]"',
        ) from error
    return isl


class Problem:
    """Sets over the symbols of some conditions; `assumed` holds for all of them.

    With `whole`, an unknown that stands for a minimum, a maximum or a broadcast size is just that:
    alternatives, which multiply. Without, it is only bounded. `hidden` are symbols of which some
    value has to be there, and no more: they are projected away where all is linear.
    """

    def __init__(
        self,
        conditions: Sequence[Condition],
        assumed: Sequence[Condition] = (),
        whole: bool = False,
        hidden: Collection[Symbol] = (),
    ) -> None:
        self._isl = islpy()
        self._whole = whole
        self._atoms: dict[Monomial, str] = {}
        self._made: list[str] = []  # what defines the unknowns that stand for functions
        self._symbols: dict[Symbol, str] = {}
        self._extremes: dict[Monomial, str] = {}  # unknowns that are known to be what they are
        self.exact = True  # whether no unknown stands for a product or a function
        texts = [self._text(condition) for condition in (*conditions, *assumed)]
        natural = [f"{name} >= 0" for s, name in self._symbols.items() if is_size(s)]
        # Unknowns are dimensions of the sets: what would be said of one that is projected away
        # would be lost.
        away = {s: self._symbols.pop(s) for s in hidden if self.exact and s in self._symbols}
        gone = [*away.values(), *self._extremes.values()]
        self._away = f"exists {', '.join(gone)}: " if gone else ""
        names = [*self._symbols.values(), *self._atoms.values()]
        self._head = f"[{', '.join(names)}]"
        self._domain = [*natural, *self._made, *texts[len(conditions) :]]
        self._texts = texts[: len(conditions)]

    def set_of(self, texts: Iterable[str]) -> Any:
        """Return the set of what satisfies the texts, and what is assumed."""
        body = " and ".join(f"({text})" for text in (*self._domain, *texts)) or "true"
        return self._isl.Set(f"{{ {self._head} : {self._away}{body} }}")

    @property
    def domain(self) -> Any:
        """The set of all sizes that are assumed."""
        return self.set_of(())

    def all(self, without: frozenset[int] = frozenset()) -> Any:
        """Return the set of what satisfies all conditions, but for some."""
        return self.set_of(text for i, text in enumerate(self._texts) if i not in without)

    def simplified(self, conditions: Sequence[Condition]) -> list[Condition] | None:
        """Return the weakest conditions equal to all, None where they are no plain conjunction."""
        if not self.exact:
            return None
        whole = self.all()
        simple = whole.gist(self.domain).coalesce().compute_divs()
        basic = simple.get_basic_sets()
        if len(basic) != 1:
            return None
        read = self._read(basic[0])
        if read is None:
            return None
        texts = [self._text(condition) for condition in read]
        return read if self.set_of(texts).is_equal(whole) else None

    def _read(self, basic: Any) -> list[Condition] | None:
        kind, symbols = self._isl.dim_type, list(self._symbols)

        def linear(of: Any, dims: Any, over: int, divs: Sequence[Expr]) -> Expr:
            """Return what isl has `over` times, of the symbols and of quotients."""
            expr = constant(int((of.get_constant_val() * over).to_python()))
            for place, each in ((dims, map(of_atom, symbols)), (kind.div, divs)):
                for index, one in enumerate(each):
                    count = of.get_coefficient_val(place, index) * over
                    expr = expr + one * int(count.to_python())
            return expr

        divs: list[Expr] = []
        for index in range(basic.dim(kind.div)):
            of = basic.get_div(index)
            if of.is_nan():
                return None
            over = int(of.get_denominator_val().to_python())
            divs.append(linear(of, kind.in_, over, divs) // over)
        found: list[Condition] = []
        for constraint in basic.get_constraints():
            expr = linear(constraint, kind.set, 1, ())
            counts = [constraint.get_coefficient_val(kind.div, n) for n in range(len(divs))]
            used = [abs(int(count.to_python())) for count in counts if not count.is_zero()]
            if not used:
                found.append(equal(expr) if constraint.is_equality() else at_least(expr))
            elif len(used) == 1 and constraint.is_equality():
                found.append(divides(used[0], _unit(expr, used[0])))
            elif constraint.is_equality():
                return None
            elif not constraint.is_div_constraint():
                found.append(at_least(linear(constraint, kind.set, 1, divs)))
        return found

    # Text for isl.

    def _text(self, condition: Condition) -> str:
        match condition:
            case Equal(expr):
                return f"{self._expr(expr)} = 0"
            case AtLeast(expr):
                return f"{self._expr(expr)} >= 0"
            case AllOf(inner):
                return " and ".join(f"({self._text(part)})" for part in inner) or "true"
            case AnyOf(inner):
                return " or ".join(f"({self._text(part)})" for part in inner) or "false"

    def _expr(self, expr: Expr) -> str:
        pieces = ["0"]
        for monomial, count in expr.terms.items():
            match monomial:
                case ():
                    pieces.append(str(count))
                case (atom,):
                    pieces.append(f"{count}*({self._atom(atom)})")
                case _:
                    for symbol in {s for atom in monomial for s in of_atom(atom).symbols}:
                        self._name(symbol)
                    pieces.append(f"{count}*{self._unknown(monomial)}")
        return " + ".join(pieces)

    def _name(self, symbol: Symbol) -> str:
        return self._symbols.setdefault(symbol, f"v{len(self._symbols)}")

    def _unknown(self, monomial: Monomial) -> str:
        name = self._atoms.get(monomial)
        if name is None:
            name = self._atoms[monomial] = f"u{len(self._atoms)}"
            self.exact = False
        return name

    def _atom(self, atom: Atom) -> str:
        match atom:
            case Symbol():
                return self._name(atom)
            case Quotient(dividend=dividend, divisor=divisor) if divisor.value is not None:
                return f"floor(({self._expr(dividend)})/{divisor.value})"
            case Apply(function="min" | "max" | "broadcast" as function, inputs=inputs):
                return self._extreme(atom, function, [self._expr(item) for item in inputs])
            case _:
                for part in parts(atom):
                    self._expr(part)
                return self._unknown((atom,))

    def _extreme(self, atom: Atom, function: str, texts: Sequence[str]) -> str:
        """Return the unknown that is an extreme of texts, or what they are broadcast to.

        That is the first that is not 1: whether the others fit is asked by whoever broadcasts.
        """
        if (atom,) in self._extremes:
            return self._extremes[(atom,)]
        if self._whole:
            name = self._extremes[(atom,)] = f"e{len(self._extremes)}"
        else:
            name = self._unknown((atom,))
        if function == "broadcast":
            self._made.append(f"{name} >= 0")
            ones = [f"{text} = 1 and " for text in texts]
            chosen = [f"{''.join(ones[:i])}{name} = {text}" for i, text in enumerate(texts)]
            chosen = [f"{each} and {name} != 1" for each in chosen] + [f"{''.join(ones)}{name} = 1"]
        else:
            sign = "<=" if function == "min" else ">="
            self._made += [f"{name} {sign} {text}" for text in texts]
            chosen = [f"{name} = {text}" for text in texts]
        if self._whole:
            self._made.append(" or ".join(f"({each})" for each in chosen))
        return name


def _unit(expr: Expr, modulus: int) -> Expr:
    """Return a multiple of `expr` that `modulus` divides just when it divides `expr`.

    Where a coefficient has an inverse, that coefficient is 1.
    """
    for monomial, count in expr.terms.items():
        if monomial and gcd(count, modulus) == 1:
            expr = expr * pow(count, -1, modulus)
            break
    return make({m: c % modulus for m, c in expr.terms.items() if c % modulus})


def refined(
    conditions: Sequence[Condition], assumed: Sequence[Condition]
) -> tuple[list[Condition], list[AnyOf]] | None:
    """Return conditions that are no alternatives, and alternatives of which several are possible.

    An alternative that is impossible with the others is dropped, and the last one left joins them.
    None where nothing is left. Alternatives of different conditions are never multiplied out.
    """
    core: list[Condition] = [c for c in conditions if not isinstance(c, AnyOf)]
    open_: list[AnyOf] = [c for c in conditions if isinstance(c, AnyOf)]
    if core and Problem(core, assumed).all().is_empty():
        return None
    changed = True
    while changed:
        changed = False
        kept: list[AnyOf] = []
        for condition in open_:
            parts_left = [
                part
                for part in condition.parts
                if not Problem([*core, part], assumed).all().is_empty()
            ]
            if not parts_left:
                return None
            if len(parts_left) == 1:
                core = [*core, *parts_left]
                if Problem(core, assumed).all().is_empty():
                    return None
                changed = True
            else:
                kept.append(AnyOf(tuple(parts_left)))
        open_ = kept
    flat = all_of(core)
    return (list(flat.parts) if isinstance(flat, AllOf) else [flat]), open_


def _with(expr: Expr, numbers: Mapping[Atom, Expr]) -> Expr:
    """Return an expression with atoms replaced, also inside other atoms."""
    total = constant(0)
    for monomial, count in expr.terms.items():
        product = constant(count)
        for atom in monomial:
            product = product * (numbers[atom] if atom in numbers else _rebuilt(atom, numbers))
        total = total + product
    return total


def _rebuilt(atom: Atom, numbers: Mapping[Atom, Expr]) -> Expr:
    match atom:
        case Symbol():
            return of_atom(atom)
        case Quotient(dividend=dividend, divisor=divisor):
            by = _with(divisor, numbers)
            return of_atom(atom) if by.value == 0 else _with(dividend, numbers) // by
        case Apply(function=function, inputs=inputs):
            return apply(function, *[_with(item, numbers) for item in inputs])


def is_possible(conditions: Sequence[Condition], assumed: Sequence[Condition] = ()) -> bool:
    """Tell whether some sizes satisfy all conditions; where that is not known: true."""
    plain = [each for condition in conditions for each in _plain(condition)]
    return all(refined(group, assumed) is not None for group in groups(plain))


def implied(condition: Condition, assumed: Sequence[Condition]) -> bool:
    """Tell whether a condition is known to follow from what is assumed."""
    problem = Problem([condition], assumed, whole=True)
    return bool(problem.domain.is_subset(problem.all()))


def groups(conditions: Iterable[Condition]) -> list[list[Condition]]:
    """Return the conditions in groups that share no symbol."""
    found: list[tuple[set[Symbol], list[Condition]]] = []
    for condition in conditions:
        symbols, members = set(symbols_of(condition)), [condition]
        apart: list[tuple[set[Symbol], list[Condition]]] = []
        for other, inside in found:
            if other & symbols:
                symbols |= other
                members = inside + members
            else:
                apart.append((other, inside))
        found = [*apart, (symbols, members)]
    return [members for _, members in found]


def simplify(
    conditions: Iterable[Condition],
    assumed: Sequence[Condition] = (),
    hidden: Collection[Symbol] = (),
) -> list[Condition]:
    """Return conditions equal to all of some together: the weakest that say what they say.

    Symbols that are `hidden` stand for some value that fits, and are projected away.
    """
    given = dict.fromkeys(each for c in dict.fromkeys(conditions) for each in _plain(c))
    out: list[Condition] = []
    for group in groups(given):
        found = refined(group, assumed)
        if found is None:
            return [FALSE]
        core, alternatives = found
        read = _least(core, assumed, {*hidden}.difference(*map(symbols_of, alternatives)))
        out.extend(read)
        out.extend(c for c in alternatives if not implied(c, read))
    whole = all_of(out)
    return list(whole.parts) if isinstance(whole, AllOf) else [whole]


def _least(
    core: list[Condition], assumed: Sequence[Condition], hidden: Collection[Symbol]
) -> list[Condition]:
    """Return conditions equal to some that are no alternatives, none of which can go."""
    if not core:
        return []
    problem = Problem(core, assumed, hidden=hidden)
    read = problem.simplified(core)
    if read is not None:
        return read
    whole = problem.all()
    gone: frozenset[int] = frozenset()
    # What is longest goes first where the others imply it.
    for index in sorted(range(len(core)), key=lambda i: -_length(core[i])):
        if problem.all(gone | {index}).is_subset(whole):
            gone |= {index}
    return [condition for index, condition in enumerate(core) if index not in gone]


def _plain(condition: Condition) -> list[Condition]:
    """Return a condition as what it says of symbols alone, where that is no alternative.

    Else with the least in it that is one, or a function.
    """
    match condition:
        case AnyOf(inner):
            condition = any_of([all_of(_plain(part)) for part in inner])
        case Equal(expr) if _functions(expr):
            condition = equal(decided(expr, ()))
        case AtLeast(expr) if _functions(expr):
            condition = at_least(decided(expr, ()))
        case _:
            return [condition]
    read = Problem([condition], whole=True).simplified([condition])
    return [condition] if read is None else read


def _functions(expr: Expr) -> list[Apply]:
    """Return the functions in an expression, the inputs of others before these."""
    found = [a for atom in expr.atoms() for part in parts(atom) for a in _functions(part)]
    return [*found, *[atom for atom in expr.atoms() if isinstance(atom, Apply)]]


def decided(expr: Expr, assumed: Sequence[Condition]) -> Expr:
    """Return a size with each extreme, or broadcast size, that is one of its inputs as that input.

    It is one where what is assumed, and that sizes are natural, implies it.
    """
    while True:
        for atom in _functions(expr):
            whole = of_atom(atom)
            same = (each for each in atom.inputs if implied(equal(whole, each), assumed))
            if (value := next(same, None)) is not None:
                expr = _with(expr, {atom: value})
                break
        else:
            return expr


def _length(condition: Condition) -> int:
    return sum(len(expr.order) + len(str(expr)) for expr in expressions(condition))
