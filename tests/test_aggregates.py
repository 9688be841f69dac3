"""Classes of values: `tawa.aggregate`, and Triton's own."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import TawaError, UnknownName
from tawa.frontend.aggregates import aggregate_of


@tawa.aggregate
class Dual:
    """A number and its derivative."""

    value: tl.tensor
    slope: tl.tensor
    N: tl.constexpr

    def __init__(self, value, slope, N):
        self.value = value
        self.N = tl.constexpr(N)
        if tl.program_id(0) == 1:
            self.slope = slope * 10
        else:
            self.slope = slope
        self.slope += 0.0

    @staticmethod
    @tawa.jit
    def variable(value, N: tl.constexpr):
        return Dual(value, value * 0 + 1, N)

    @tawa.jit
    def __mul__(self, other):
        return Dual(
            self.value * other.value, self.value * other.slope + self.slope * other.value, 4
        )

    @tawa.jit
    def __radd__(self, number):
        return tl.aggregate_replace(self, value=number + self.value)

    @tawa.jit
    def __neg__(self):
        return Dual(-self.value, -self.slope, self.N)

    @tawa.jit
    def __lt__(self, other):
        return self.value < other

    def __getitem__(self, at, _semantic=None):
        return self.slope if at == 1 else tl.broadcast_to(self.value, self.N, _semantic=_semantic)

    @tawa.constexpr_function
    def twice(self):
        return self.N * 2


@tawa.aggregate
class Walk:
    """Fields in order, one of them an aggregate, one with a default."""

    number: Dual
    steps: tl.tensor
    extra: tl.constexpr = 2

    @tawa.jit
    def stepped(self, x):
        return Walk(self.number * x, self.steps + self.extra, extra=self.extra)


@tawa.jit
def walk(out, n, limit, N: tl.constexpr):
    at = tl.arange(0, N)
    x = Dual.variable((at + 1).to(tl.float32), N)
    w = Walk(x, n * 0)
    for _ in range(n):
        w = w.stepped(x)
        if w.steps == limit:
            w = tl.aggregate_replace(w, number=1 + w.number)
    while w.steps > 0:
        w = tl.aggregate_replace(w, steps=w.steps - 1)
    tl.static_assert(isinstance(w, Walk) and not isinstance(w, Dual) and x.twice() == 2 * N)
    found = -w.number
    tl.store(out + at, found.value)
    tl.store(out + N + at, tl.where(found < 0, found[1], 0.0 * found[0]))


def test_aggregates_pass_through_branches_loops_and_helpers() -> None:
    out = np.zeros(8, np.float32)
    walk[1,](out, 2, 2, N=4)
    x = np.arange(1, 5, dtype=np.float32)
    value, slope = x * x, 2 * x
    value = value + 1
    value, slope = value * x, slope * x + value
    assert out.tolist() == [*-value, *-slope]


def test_a_constructor_may_branch_at_run_time() -> None:
    @tawa.jit
    def kernel(out):
        one = Dual(1.0 * tl.program_id(0), 1.0 * tl.program_id(0), 4)
        tl.store(out + tl.program_id(0), one.slope)

    out = np.zeros(3, np.float32)
    kernel[3,](out)
    assert out.tolist() == [0, 10, 2]


@pytest.mark.parametrize("n", [1, 2])
def test_an_argument_that_is_one_is_a_tensor_to_a_field(n) -> None:
    @tawa.jit
    def kernel(out, n):
        one = Dual(n, n, 4)
        for _ in range(3):
            one = Dual(one.value + 1, one.slope, 4)
        tl.store(out, one.value)

    out = np.zeros(1, np.int32)
    kernel[1,](out, n)
    assert out[0] == n + 3


def test_a_class_is_part_of_the_text_of_a_kernel() -> None:
    def made(default, factor):
        times = tawa.jit(factor)

        @tawa.aggregate
        class One:
            x: tl.tensor
            y: tl.constexpr = default

            @tawa.jit
            def __neg__(self):
                return times(self.x) * self.y

        @tawa.jit
        def kernel(out):
            tl.store(out, -One(tl.program_id(0)))

        return kernel.text_digest

    def same(x):
        return x

    def more(x):
        return x + 1

    assert made(1, same) == made(1, same)
    assert len({made(1, same), made(2, same), made(1, more)}) == 3


@tawa.aggregate
class Ways:
    """Gives its fields in another order, or ends early, by what is known at run time."""

    a: tl.tensor
    b: tl.tensor

    def __init__(self, n):
        if n > 3:
            self.a = n
            self.b = n + 1
        else:
            self.b = n + 2
            self.a = n + 3
        if n == 0:
            return
        self.a += 10


@tawa.aggregate
class Heir(Ways):
    """Has the constructor of its base."""


@tawa.jit
def heirs(out, n):
    one = Heir(n)
    tl.store(out, one.a)
    tl.store(out + 1, one.b)


@pytest.mark.parametrize(("n", "a", "b"), [(5, 15, 6), (2, 15, 4), (0, 3, 2)])
def test_a_constructor_of_a_base_gives_fields_in_any_order_and_may_return(n, a, b) -> None:
    out = np.zeros(2, np.int32)
    heirs[1,](out, n)
    assert out.tolist() == [a, b]


def test_tritons_aggregates() -> None:
    triton = pytest.importorskip("triton")
    aggregate = getattr(triton, "aggregate", None) or triton.language.core._aggregate

    @aggregate
    class Scaled:
        x: triton.language.tensor
        by: triton.language.constexpr

        def __init__(self, x, by):
            self.x = x
            self.by = triton.language.constexpr(by)

        @triton.jit
        def value(self):
            return self.x * self.by

        @triton.jit
        def twice(self):
            return Scaled(self.value(), self.by)

    @triton.jit
    def kernel(out, n):
        one = Scaled(n, 3)
        for _ in range(2):
            one = one.twice()
        tl.store(out, one.value())

    out = np.zeros(1, np.int32)
    tawa.jit(kernel)[1,](out, 5)
    assert out[0] == 5 * 27


class Pair(NamedTuple):
    """For calls with the wrong number of fields."""

    a: Any
    b: Any = 1


@tawa.aggregate
class Lost:
    """Its constructor gives one of two fields a value."""

    x: tl.tensor
    y: tl.constexpr

    def __init__(self, x):
        self.x = x


@tawa.aggregate
class Child(Dual):
    """Calls the constructor of its base."""

    def __init__(self, x):
        Dual.__init__(self, x, x, 4)


@tawa.aggregate
class Stranger:
    """Gives a field that it does not have a value."""

    x: tl.tensor

    def __init__(self, x):
        self.z = x


@tawa.aggregate
class Half:
    """Gives another field on either way."""

    a: tl.tensor
    b: tl.tensor

    def __init__(self, n):
        if n > 3:
            self.a = n
        else:
            self.b = n
        self.b = n


@tawa.aggregate
class Nowhere:
    """An annotation that names nothing."""

    x: "Nothing"  # noqa: F821  # pyright: ignore


@tawa.jit
def halves(n):
    Half(n + 0)


@tawa.jit
def nowhere(n):
    Nowhere(n)


@tawa.jit
def changes(n):
    one = Dual.variable(n, 4)
    one.value = n


@tawa.jit
def adds(n):
    Walk(Dual.variable(n, 4), n) + 1


@tawa.jit
def indexes(n):
    Walk(Dual.variable(n, 4), n)[1]


@tawa.jit
def unpacks(n):
    _a, _b, _c = Dual.variable(n, 4)


@tawa.jit
def compares(n):
    tl.store(n, Dual.variable(n, 4) == n)


@tawa.jit
def no_aggregate(n):
    Walk(n, n)


@tawa.jit
def no_tensor(n):
    Dual(tl.int32, n, 4)


@tawa.jit
def no_constant(n):
    Dual(n, n, n)


@tawa.jit
def loses(n):
    Lost(n)


@tawa.jit
def base(n):
    Child(n)


@tawa.jit
def stranger(n):
    Stranger(n)


@tawa.jit
def too_many(n):
    Walk(Dual.variable(n, 4), n, 2, 3)


@tawa.jit
def too_few(n):
    Walk(Dual.variable(n, 4))


@tawa.jit
def replaces(n):
    tl.aggregate_replace(n)


@tawa.jit
def replaces_no_field(n):
    tl.aggregate_replace(Walk(Dual.variable(n, 4), n), z=1)


@tawa.jit
def named_tuple(n):
    Pair(n, 1, 2)


@tawa.jit
def named_tuples_field(n):
    Pair(n, c=1)


WRONG = [
    (changes, "only names can be assigned to"),
    (adds, "has __add__"),
    (compares, "has __eq__"),
    (indexes, "has no attribute __getitem__"),
    (unpacks, "3 names cannot take Dual"),
    (no_aggregate, "the field number of Walk is int32"),
    (no_tensor, "the field value of Dual is constant "),
    (no_constant, "the field N of Dual is int32"),
    (loses, "the constructor of Lost gives y no value"),
    (base, "a constructor is called by the name of its class"),
    (stranger, "has no field z"),
    (halves, r"self is Half\(a: int32\) or Half\(b: int32\)"),
    (nowhere, "the field x of Nowhere is annotated Nothing: name 'Nothing' is"),
    (too_many, "Walk: too many positional arguments"),
    (too_few, "missing a required argument: 'steps'"),
    (replaces, "takes an aggregate"),
    (replaces_no_field, "unexpected keyword argument 'z'"),
    (named_tuple, "Pair: too many positional arguments"),
    (named_tuples_field, "Pair: got an unexpected keyword argument 'c'"),
]


@pytest.mark.parametrize(("kernel", "message"), WRONG)
def test_refusals(kernel, message) -> None:
    with pytest.raises(TawaError, match=message):
        kernel.compile(7)


IN_A_FUNCTION = """
from __future__ import annotations

def made(tawa, tl, Inner):
    @tawa.aggregate
    class Pair:
        first: tl.tensor
        second: Inner

        @tawa.jit
        def both(self):
            return tl.sum(self.first + Inner(2 * self.first).only)

    return Pair
"""


@tawa.aggregate
class Single:
    only: tl.tensor


def test_annotations_that_are_text_mean_what_the_functions_of_their_class_mean():
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec(compile(IN_A_FUNCTION, "nowhere", "exec"), space)
    pair = space["made"](tawa, tl, Single)
    assert dict(aggregate_of(pair).fields) == {"first": tl.tensor, "second": Single}


def test_an_annotation_that_nothing_defines_is_told_by_its_field():
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec(compile(IN_A_FUNCTION.replace("second: Inner", "second: Iner"), "nowhere", "exec"), space)
    with pytest.raises(UnknownName, match="field second of Pair is annotated Iner: name 'Iner' is"):
        aggregate_of(space["made"](tawa, tl, Single))


def test_no_other_class_is_asked_for_annotations():
    class Anything(type):
        def __getattr__(cls, name):
            return True

    class Plain(metaclass=Anything):
        x: "NothingDefinesIt"  # noqa: F821

    assert aggregate_of(Plain) is None
