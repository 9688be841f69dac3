"""What a kernel is kept by: its text as it was imported, and all it reads that is no argument."""

from __future__ import annotations

import enum
import functools
import importlib
import os
import sys
import textwrap
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.runtime.fingerprint import NAMELESS, describe, fingerprint
from tawa.runtime.request import Request
from tawa.runtime.store import DiskStore

MODULE = """
    import tawa
    import tawa.language as tl

    def helper(x):
        return x + {add}

    @tawa.jit
    def kernel(out, n: tl.constexpr):
        tl.store(out, helper(n) * {times})
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of a kernel, and what writes its file anew."""
    path = tmp_path / "edited_kernels.py"
    ages = iter(range(10, 100, 10))

    def write(before="", **constants):
        path.write_text(before + textwrap.dedent(MODULE).format(**constants))
        later = time.time() + next(ages)
        os.utime(path, (later, later))

    write(add=1, times=1)
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield SimpleNamespace(kernels=importlib.import_module("edited_kernels"), write=write)
    del sys.modules["edited_kernels"]


def result(kernel, n):
    out = np.zeros(1, np.int32)
    kernel[(1,)](out, n)
    return int(out[0])


@pytest.mark.parametrize("before", ["", "# a line\n# and another\n"], ids=["in place", "moved"])
def test_a_file_that_is_edited_is_not_the_program_that_runs(module, before):
    """As Python goes on with what it imported, so do kernels: here, and in the cache on disk."""
    assert result(module.kernels.kernel, 5) == 6
    module.write(before, add=100, times=10)
    assert result(module.kernels.kernel, 6) == 7
    importlib.reload(module.kernels)
    assert result(module.kernels.kernel, 6) == 1060
    module.write(add=1, times=1)
    importlib.reload(module.kernels)
    assert result(module.kernels.kernel, 6) == 7


def test_a_file_that_is_edited_before_the_first_launch(module):
    module.write("# moved\n", add=1, times=10)
    assert result(module.kernels.kernel, 5) == 6
    before = fingerprint(module.kernels.kernel.fn).digest
    importlib.reload(module.kernels)
    assert fingerprint(module.kernels.kernel.fn).digest != before
    assert result(module.kernels.kernel, 5) == 60


class Settings:
    WIDTH = tl.constexpr(8)


class Kind(enum.IntEnum):
    FIRST = 1


def reads_a_class(out):
    tl.store(out, Settings.WIDTH)


def test_constants_of_a_class_are_followed_and_watched(monkeypatch):
    kernel = tawa.jit(reads_a_class)
    before = fingerprint(kernel.fn)
    assert result_of(kernel) == 8
    monkeypatch.setattr(Settings, "WIDTH", tl.constexpr(16))
    assert any(binding.changed() for binding in before.bindings)
    assert fingerprint(kernel.fn).digest != before.digest
    assert result_of(kernel) == 16
    monkeypatch.setitem(globals(), "Settings", type("Settings", (), {"WIDTH": tl.constexpr(4)}))
    assert result_of(kernel) == 4


def result_of(kernel, *constants):
    out = np.zeros(1, np.int32)
    kernel[(1,)](out, *constants)
    return int(out[0])


def twice(x):
    return x * 2


def thrice(x):
    return x * 3


class WithFunction:
    apply = staticmethod(twice)


class Slotted:
    __slots__ = ("width",)

    def __init__(self, width):
        self.width = width


def holding(**values):
    return SimpleNamespace(**values)


def named(value, **members):
    return type("Named", (), {"VALUE": value, **members})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (named(1), named(2)),
        (named(1)(), named(2)()),
        (named(tl.constexpr(1)), named(tl.constexpr(2))),
        (Slotted(1), Slotted(2)),
        (holding(a=1), holding(a=2)),
        ((Slotted(1),), (Slotted(2),)),
        ({"a": {1, 2}}, {"a": {1, 3}}),
        (named(twice), named(thrice)),
        ((twice, 1), (thrice, 1)),
        (enum.Enum("Kind", {"A": 1}).A, enum.Enum("Kind", {"A": 2}).A),
        (1, True),
        (1, 1.0),
        (tl.constexpr(1), tl.constexpr(2)),
        (tl.float16, tl.float32),
        (np.float16, np.float32),
        (np.dtype("f2"), np.dtype("f4")),
    ],
    ids=range(16),
)
def test_constants_that_differ_have_other_texts(one, other):
    assert describe(one) != describe(other)
    assert describe(one) == describe(one)
    assert NAMELESS not in describe(one)


def test_what_contains_itself():
    loop: list[object] = [1]
    loop.append(loop)
    assert describe(loop) == describe(loop)

    class Tree:
        pass

    Tree.root = Tree()
    Tree.root.child = Tree.root
    assert "Tree" in describe(Tree)


def test_functions_that_name_each_other_through_a_list(monkeypatch):
    monkeypatch.setitem(globals(), "BOTH", (ping, pong))
    before = fingerprint(ping).digest
    assert before == fingerprint(ping).digest
    monkeypatch.setitem(globals(), "BOTH", (ping, twice))
    assert fingerprint(ping).digest != before


def ping(x):
    return BOTH[1](x)  # noqa: F821


def pong(x):
    return BOTH[0](x)  # noqa: F821


@pytest.mark.parametrize("value", [functools.partial(twice, 1), eval("lambda x: x"), iter([])])
def test_what_only_an_address_tells_is_not_kept_on_disk(value, tmp_path):
    """In another process the same address is another thing."""
    assert NAMELESS in describe(value)
    from tawa.frontend.signature import ConstantArg
    from tawa.plan.pins import Pins
    from tawa.target import H200

    request = Request(twice, "text", {"x": ConstantArg(value)}, {}, Pins(), H200)
    assert request.disk_key == ""
    assert DiskStore(tmp_path).get(request.disk_key) is None


def test_a_name_that_has_no_value_yet():
    def outer():
        @tawa.jit
        def kernel(out):
            tl.store(out, later(1))

        with pytest.raises(tawa.TawaError, match="later"):
            kernel[(1,)](np.zeros(1, np.int32))

        def later(x):
            return x + 1

        return result_of(kernel)

    assert outer() == 2


def test_what_a_name_comes_to_later_is_in_the_text():
    def outer(helper):
        @tawa.jit
        def kernel(out):
            tl.store(out, later(1))

        with pytest.raises(tawa.TawaError, match="later"):
            kernel[(1,)](np.zeros(1, np.int32))
        later = helper
        return result_of(kernel)

    assert outer(twice) == 2
    assert outer(thrice) == 3


@tawa.jit
def names_what_comes_later(out, USED: tl.constexpr):
    if USED:
        tl.store(out, comes_later(1) + library.comes_later(1))  # noqa: F821
    else:
        tl.store(out, 5)


library = sys.modules[__name__]


def test_what_gets_a_value_later_is_watched_from_the_start(monkeypatch):
    kernel = names_what_comes_later
    with pytest.raises(tawa.TawaError, match="comes_later"):
        result_of(kernel, True)
    assert result_of(kernel, False) == result_of(kernel, False) == 5
    for helper, result in ((twice, 4), (thrice, 6)):
        monkeypatch.setattr(library, "comes_later", helper, raising=False)
        assert result_of(kernel, True) == result
        assert result_of(kernel, False) == 5


def test_an_attribute_that_has_no_value_yet_is_watched():
    tables = ModuleType("tables")

    @tawa.jit
    def kernel(out):
        tl.store(out, tables.WIDTH)

    before = fingerprint(kernel.fn)
    assert not any(binding.changed() for binding in before.bindings)
    with pytest.raises(tawa.TawaError, match="WIDTH"):
        result_of(kernel)
    tables.WIDTH = tl.constexpr(7)
    assert any(binding.changed() for binding in before.bindings)
    assert fingerprint(kernel.fn).digest != before.digest
    assert result_of(kernel) == 7


class Base:
    pass


class Config(Base):
    pass


@tawa.jit
def reads_an_attribute(out):
    tl.store(out, Config.X)


def test_what_a_class_may_be_given_is_watched_in_its_bases(monkeypatch):
    for kind, number in ((Base, 7), (Base, 9), (Config, 3), (Base, 8)):
        monkeypatch.setattr(kind, "X", tl.constexpr(number), raising=False)
        assert result_of(reads_an_attribute) == (3 if "X" in vars(Config) else number)


@tawa.jit
def takes_the_least(out):
    tl.store(out, min(5, 3))


def test_a_builtin_may_be_hidden_later(monkeypatch):
    assert result_of(takes_the_least) == 3
    monkeypatch.setattr(library, "min", adds, raising=False)
    assert result_of(takes_the_least) == 8


def adds(a, b):
    return a + b


@tawa.jit
def goes_through_a_list(out):
    tl.store(out, sum([step + 1 for step in (1, 2)]))


def test_what_a_comprehension_goes_through_is_no_global(monkeypatch):
    before = fingerprint(goes_through_a_list.fn)
    assert "step" not in [binding.name for binding in before.bindings]
    for step in range(2):
        monkeypatch.setattr(library, "step", step, raising=False)
        assert fingerprint(goes_through_a_list.fn).digest == before.digest
        assert not any(binding.changed() for binding in before.bindings)


LEFT_OUT = tl.constexpr(4)


@tawa.jit
def names_what_python_leaves_out(out):
    if False:
        tl.store(out, LEFT_OUT)
    tl.store(out, 1)


def test_names_that_python_does_not_compile_are_in_the_text(monkeypatch):
    before = fingerprint(names_what_python_leaves_out.fn)
    monkeypatch.setattr(library, "LEFT_OUT", tl.constexpr(5))
    assert any(binding.changed() for binding in before.bindings)
    assert fingerprint(names_what_python_leaves_out.fn).digest != before.digest


def test_a_name_that_has_its_value_no_more():
    helper = twice

    @tawa.jit
    def kernel(out):
        tl.store(out, helper(1))  # noqa: F821

    assert result_of(kernel) == 2
    del helper
    with pytest.raises(tawa.TawaError, match="helper is not defined"):
        result_of(kernel)


def logged(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@tawa.jit
@logged
def wrapped(out):
    tl.store(out, Kind.FIRST + 6)


def test_a_function_that_wraps_another_is_that_one(monkeypatch):
    before = fingerprint(wrapped.fn).digest
    assert result_of(wrapped) == 7
    monkeypatch.setitem(globals(), "Kind", enum.IntEnum("Kind", {"FIRST": 3}))
    assert fingerprint(wrapped.fn).digest != before
    assert result_of(wrapped) == 9
