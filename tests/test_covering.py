"""Of a swept product the short run takes what covers it, and no more."""

import re
from itertools import combinations, product
from types import SimpleNamespace

import pytest

from covering import HERE, covering, left_out, unknown
from proof_kernels import COVERED, KERNELS, shortened
from tawa.codegen.generate import generate
from test_kernels_emulated import instructions


@pytest.mark.parametrize("sizes", [(2, 5), (3, 4, 2), (2, 2, 2, 2)])
def test_all_combinations_but_of_all_factors_occur(sizes):
    rows = list(product(*map(range, sizes)))
    stay = [rows[place] for place in covering(rows)]
    for factors in combinations(range(len(sizes)), len(sizes) - 1):
        seen = {tuple(row[factor] for factor in factors) for row in stay}
        assert seen == set(product(*(range(sizes[factor]) for factor in factors)))
    assert len(stay) < len(rows)


def test_what_never_occurs_together_is_not_missed():
    assert covering([(0, "a"), (1, "b"), (0, "b")]) == [0, 1]


def item(file, marks, short=None, **params):
    mark = None if short is None else SimpleNamespace(args=short)
    case = "-".join(str(value) for value in params.values())
    return SimpleNamespace(
        path=HERE / file,
        nodeid=f"{file}::test[{case}]",
        callspec=SimpleNamespace(params=params, id=case),
        get_closest_marker=lambda name: mark,
        iter_markers=lambda name: (SimpleNamespace(args=(names,)) for names in marks),
    )


def sweep(file, *marks):
    first, second = ("x", "y"), (object(), object())
    return [item(file, marks, a=one, b=one, c=other) for one in first for other in second]


def test_each_case_of_each_decorator_runs():
    items = sweep("test_any.py", "a, b", "c")
    gone = left_out(items)
    left = [each.callspec.params for each in items if each not in gone]
    assert len(left) == 2
    assert {each["a"] for each in left} == {"x", "y"}
    assert len({id(each["c"]) for each in left}) == 2
    assert len(left_out(sweep("test_any.py", ("a", "b")))) == 2  # c comes of a fixture


def test_cases_of_one_decorator_and_of_what_went_wrong_once_all_run():
    assert not left_out(sweep("test_any.py", "a, b, c"))
    assert not left_out(sweep("test_bug_any.py", "a, b", "c"))
    assert not left_out(sweep("gpu/test_any.py", "a, b", "c"))


def test_a_mark_says_which_cases_run():
    items = [item("test_bug_any.py", ["a"], ("2", "3"), a=value) for value in (1, 2, 3)]
    assert left_out(items) == items[:1]
    assert not unknown(items)
    assert unknown(items[:2]) == {("test_bug_any.py::test", "3")}


def parts_of(name):
    """The PTX instructions of a kernel, and its operations with what they are in and take; no
    sizes, and no layouts, which come from those.
    """
    kernel = KERNELS[name]()
    yield from (re.sub(r"n\d+k", "n#k", each) for each in instructions(generate(kernel)))
    for operation in kernel.walk():
        within = operation.parent_op()
        takes = (re.sub(r"\d+|, #.*", "", str(value.type)) for value in operation.operands)
        yield operation.name, within and within.name, *takes


@pytest.mark.long
def test_kernels_of_the_short_run_have_what_the_others_have():
    seen = {part for name in shortened() if isinstance(name, str) for part in parts_of(name)}
    assert {name: parts for name in COVERED if (parts := set(parts_of(name)) - seen)} == {}
