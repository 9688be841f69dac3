"""Guards: what the compiler relied on and only a launch can decide.

``disjoint(a, b)``: the memory of two arguments does not overlap. ``never_negative(e)``: the host
expression e, which may also use program(0..2), grid(0..2) and the functions of
`tawa.analysis.polynomial.render` (C rules), is at least 0 in every program;
``always_multiple(e, n)``: it is a multiple of n in every program; ``always_within(e, low, high)``:
it lies between two numbers, both included, in every program. Further arguments are start, end and
step of loops, outer ones first: it holds in all their iterations, whose numbers are iteration(0),
iteration(1) ... in e and in the bounds of inner loops. Any other condition is a host expression
that must be true.

A verdict is a function of the addresses, the numbers and the grid of a launch: that is all a kernel
sees, so two launches that agree in them touch the same memory.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any, TypeAlias

from tawa.errors import InternalError, LaunchError
from tawa.frontend.signature import ConstantArg, DescriptorArg
from tawa.runtime.arrays import look, reach
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.descriptors import is_descriptor
from tawa.runtime.dtypes import BYTES
from tawa.runtime.expressions import Names, compiled, value_of
from tawa.syntax import parse

_PROGRAMS = ("program0", "program1", "program2")
_GRID = ("grid0", "grid1", "grid2")
_KEPT = 4096
PERHAPS = "numbers leave 64 bits, so that perhaps "
# Iterations worth a list: a fifth of a second at most, once for sizes that are new.
_LISTED = 1 << 18
_Check: TypeAlias = Callable[[dict[str, Any]], bool | None]
"""Tells whether a condition holds; None where there is more to look at than is worth it. Raises
OverflowError where a number leaves 64 bits, ArithmeticError where one has no value."""
_FUNCTIONS = ("divide", "remainder", "minimum", "maximum", "where")


def span_of(value: Any) -> range:
    """Return the bytes an array or descriptor may touch, by their addresses."""
    if is_descriptor(value):
        view = look(value.base)
        return _span(view.address, value.shape, value.strides, view.itemsize)
    view = look(value)
    return _span(view.address, view.shape, view.strides, view.itemsize)


def pairs_of(kernel: CompiledKernel) -> list[tuple[str, str, str]]:
    """Return the arguments whose memory guards ask to be apart, and what for."""
    found: list[tuple[str, str, str]] = []
    for guard in kernel.guards:
        match parse(guard.condition, "eval").body:
            case ast.Call(func=ast.Name("disjoint"), args=[ast.Name(first), ast.Name(second)]):
                found.append((first, second, guard.reason))
            case _:
                pass
    return found


def _span(address: int, shape: Sequence[int], strides: Sequence[int], size: int) -> range:
    found = reach(tuple(shape), tuple(strides))
    return range(address + found.start * size, address + found.stop * size)


class Guards:
    """The guards of a kernel for arguments of one form; `names` are those of its launcher.

    `verdicts` holds what was decided, by the `facts` of a launch: names of the launcher, __x, __y
    and __z for its grid.
    """

    def __init__(self, kernel: CompiledKernel, names: Names, order: Sequence[str]) -> None:
        self._order = tuple(order)
        self.verdicts: dict[tuple[Any, ...], bool] = {}
        self._pairs = [(first, second) for first, second, _ in pairs_of(kernel)]
        self._checks: list[Callable[[dict[str, Any]], bool]] = []
        self._demands: list[tuple[_Check, str]] = []
        self._kernel = kernel.name
        self._checked: dict[tuple[Any, ...], bool] = {}
        self._used: set[str] = set()
        numbers = replace(names, own=(*_PROGRAMS, *_GRID, *_FUNCTIONS))
        for guard in kernel.guards:
            if (check := self._check(guard.condition, numbers)) is not None:
                self._checks.append(partial(_proved, check))
        for demand in kernel.demands:
            if (check := self._check(demand.condition, numbers)) is not None:
                self._demands.append((check, demand.refusal))
        self._read = tuple(place for place, name in enumerate(self._order) if name in self._used)
        paired = dict.fromkeys(name for pair in self._pairs for name in pair)
        self._spans = {name: self._span(name, kernel) for name in paired}
        self.facts = self._deciding(kernel, names)

    def _deciding(self, kernel: CompiledKernel, names: Names) -> tuple[str, ...]:
        """Return what decides. What a descriptor describes is all that a kernel touches of it; of
        an array that depends on the numbers.
        """
        paired = list(dict.fromkeys(name for pair in self._pairs for name in pair))
        facts = facts_of(kernel, names, self._order)
        if not set(paired) <= set(names.descriptors):
            return *facts, "__x", "__y", "__z"
        own = {f"{name}{fact}" for name in paired for fact in _FACTS} | self._used
        over = self._used.intersection(_PROGRAMS + _GRID)
        return *(fact for fact in facts if fact in own), *(("__x", "__y", "__z") if over else ())

    def _check(self, condition: str, names: Names) -> _Check | None:
        """Return the check of a condition; of memory it is one of the pairs."""
        match parse(condition, "eval").body:
            case ast.Call(func=ast.Name("disjoint")):
                return None
            case ast.Call(func=ast.Name("never_negative"), args=[inner, *walks]):
                return self._ask(inner, walks, names, lambda found: found >= 0)
            case ast.Call(
                func=ast.Name("always_multiple"), args=[inner, ast.Constant(int(unit)), *walks]
            ):
                return self._ask(inner, walks, names, lambda found: found % unit == 0)
            case ast.Call(func=ast.Name("always_within"), args=[inner, least, most, *walks]):
                low, high = map(ast.literal_eval, (least, most))
                within: Callable[[Any], Any] = lambda found: (low <= found) & (found <= high)  # noqa: E731
                return self._ask(inner, walks, names, within)
            case whole:
                code = self._code(whole, names)
                return lambda scope: bool(eval(code, {}, scope))

    def _ask(
        self,
        expression: ast.expr,
        walks: Sequence[ast.expr],
        names: Names,
        holds: Callable[[Any], Any],
    ) -> _Check:
        """Return the check that a number holds in every program and in every iteration of some
        loops.

        One that is linear in each program number is looked at where these are 0, 1 and the last:
        it is least and greatest at ends, as is all that it is made from, and what divides it at 0
        and 1 divides its coefficients.
        """
        few = not walks and _linear_in(expression) is not None  # before it is rewritten
        numbered = replace(names, own=(*names.own, *map(_trip, range(len(walks)))))
        code = self._code(expression, numbered)
        loops: list[tuple[CodeType, CodeType, CodeType]] = []
        for walk in walks:
            assert isinstance(walk, ast.Tuple), "a loop is start, end and step"
            start, end, step = (self._code(bound, numbered) for bound in walk.elts)
            loops.append((start, end, step))

        def check(scope: dict[str, Any]) -> bool | None:
            found = _listed(code, loops, scope, few)
            return None if found is None else bool(holds(found).all())

        return check

    def _code(self, expression: ast.expr, names: Names) -> CodeType:
        code = compiled(expression, names)
        self._used.update(code.co_names)
        return code

    @property
    def any(self) -> bool:
        """Whether there is anything to decide."""
        return bool(self._pairs or self._checks or self._demands)

    def hold(self, facts: tuple[Any, ...], given: Sequence[Any], grid: Sequence[int]) -> bool:
        """Decide for a launch; `facts` are its numbers and addresses, the key of the verdict.

        `given` are the values a launcher gets, in its order. Raises LaunchError where the kernel
        may run but for what it demands.
        """
        if (known := self.verdicts.get(facts)) is not None:
            return known
        if len(self.verdicts) >= _KEPT:
            self.verdicts.clear()
        verdict = self._disjoint(given) and self._true(given, grid)
        self.verdicts[facts] = verdict
        return verdict

    def _disjoint(self, given: Sequence[Any]) -> bool:
        spans = {name: span(given) for name, span in self._spans.items()}
        pairs = ((spans[first], spans[second]) for first, second in self._pairs)
        return not any(a.start < b.stop and b.start < a.stop for a, b in pairs)

    def _span(self, name: str, kernel: CompiledKernel) -> Callable[[Sequence[Any]], range]:
        """Return what reads the bytes of an argument from what a launcher gets. A descriptor's are
        known by what comes beside it: in its place its array may stand.
        """
        match kernel.signature.get(name):
            case DescriptorArg(dtype):
                at, shape, strides = (self._order.index(f"{name}{fact}") for fact in _FACTS)
                size = BYTES[dtype]
                return lambda given: _span(given[at], given[shape], given[strides], size)
            case _:
                place = self._order.index(value_of(name))
                return lambda given: span_of(given[place])

    def _true(self, given: Sequence[Any], grid: Sequence[int]) -> bool:
        """Evaluate the conditions, once for launches that differ in what they do not read."""
        extents = (*grid, 1, 1)[:3]
        key = (*(given[place] for place in self._read), *extents)
        if (known := self._checked.get(key)) is not None:
            return known
        if len(self._checked) >= _KEPT:
            self._checked.clear()
        full = dict(zip((*self._order, *_GRID), (*given, *extents), strict=True))
        verdict = all(check(full) for check in self._checks)
        if verdict:
            self._refuse(full)
        self._checked[key] = verdict
        return verdict

    def _refuse(self, scope: dict[str, Any]) -> None:
        for check, refusal in self._demands:
            try:
                perhaps, holds = "", check(scope)
            except OverflowError:  # the kernel would count by numbers that have wrapped
                perhaps, holds = PERHAPS, False
            except ArithmeticError:
                continue
            if holds is False:
                read = (self._order[place] for place in self._read)
                numbers = (f"{name.rpartition('__')[0]}={scope[name]}" for name in read)
                raise LaunchError(
                    f"{self._kernel}: {perhaps}{refusal}",
                    why=f"the launch has {', '.join(numbers)}",
                    remedy="pass other bounds; int64 ones, as n.to(tl.int64), count further",
                )


def _proved(check: _Check, scope: dict[str, Any]) -> bool:
    """Tell whether a condition is known to hold, for the true numbers."""
    try:
        return check(scope) is True
    except ArithmeticError:
        return False


def _listed(
    code: CodeType,
    loops: Sequence[tuple[CodeType, CodeType, CodeType]],
    scope: Mapping[str, Any],
    few: bool,
) -> Any:
    """Evaluate an expression for all programs, or the `few` that tell of the others, and all
    iterations of some loops at once.

    None where a loop does not count upwards, or there are more iterations than are worth a list.
    """
    import numpy as np

    from tawa.runtime import exact

    codes = [code, *(part for loop in loops for part in loop)]
    used = {name for each in codes for name in each.co_names}
    full: dict[str, Any] = {
        **scope,
        "min": exact.minimum,
        "max": exact.maximum,
        "minimum": exact.minimum,
        "maximum": exact.maximum,
        "where": exact.where,
        "divide": exact.divide,
        "remainder": exact.remainder,
    }
    rank, size = len(_PROGRAMS) + len(loops), 1
    for axis, name in enumerate(_PROGRAMS):
        if name in used:
            full[name] = _along(axis, rank, scope[_GRID[axis]], few=few)
            size *= scope[_GRID[axis]]
    made: Any = np.True_
    for place, loop in enumerate(loops):
        start, end, step = (exact.whole(_evaluated(part, full)) for part in loop)
        if (step <= 0).any():
            return None
        iterations = -((start - end) // step)
        most = max(0, int(np.asarray(iterations).max(initial=0)))
        size *= most
        if size > _LISTED:
            return None
        full[_trip(place)] = number = _along(len(_PROGRAMS) + place, rank, most)
        made = made & (number < iterations)
    found = np.asarray(exact.whole(_evaluated(code, full)))
    if not loops:
        return found
    found, made = np.broadcast_arrays(found, np.asarray(made))
    return found[made]


def _linear_in(expression: ast.expr) -> frozenset[int] | None:
    """Return the axes of the program numbers in which a number, and all that it is made from, is
    linear, in each while the others stay; None where it is not.
    """
    match expression:
        case ast.Call(func=ast.Name("program"), args=[ast.Constant(int(axis))]):
            return frozenset({axis})
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _linear_in(inner)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            first, second = _linear_in(left), _linear_in(right)
            if first is None or second is None or (isinstance(op, ast.Mult) and first & second):
                return None
            return first | second
        case _:
            names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
            return None if "program" in names else frozenset()


def _along(axis: int, rank: int, extent: int, *, few: bool = False) -> Any:
    """Return 0, 1 .. along one of `rank` axes; of a `few` the first two and the last."""
    import numpy as np

    from tawa.runtime.exact import whole

    shape = [1] * rank
    shape[axis] = -1
    if few:
        numbers = np.array(sorted({0, min(1, extent - 1), extent - 1}), np.int64)
    else:
        numbers = np.arange(extent, dtype=np.int64)
    return whole(numbers.reshape(shape))


def _trip(place: int) -> str:
    return f"iteration{place}"


def _evaluated(code: CodeType, names: dict[str, Any]) -> Any:
    try:
        return eval(code, {"abs": abs}, names)
    except (NameError, TypeError) as error:
        raise InternalError(
            f"a guard of the kernel cannot be evaluated: {error}",
            remedy="this is a fault of the compiler: please report it with the kernel",
        ) from error


def facts_of(kernel: CompiledKernel, names: Names, order: Sequence[str]) -> list[str]:
    """Return the launcher's names that, with the grid, tell one launch of a kernel from another."""
    constant = {name for name, given in kernel.signature.items() if isinstance(given, ConstantArg)}
    numbers = {value_of(name) for name in set(names.numbers) - constant}
    return [name for name in order if name in numbers or name.endswith(_FACTS)]


_FACTS = ("__at", "__shape", "__strides")
