"""Threads that parsed Python at once got a SystemError from CPython, now and then.

It came where a garbage collection in the middle of a tree let another thread go on: here each does.
"""

import ast
import gc
import time

import pytest

from in_threads import together
from tawa.syntax import parse

TEXT = "def f(x):\n" + "".join(f"    y{n} = [x + {n}, (x * {n},)]\n" for n in range(20))


@pytest.fixture(autouse=True)
def let_others_go_on():
    def pause(phase, info):
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(pause)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(pause)


def test_trees_made_at_once_are_those_made_alone():
    alone = ast.dump(ast.parse(TEXT))

    def work(index):
        for _ in range(10):
            assert ast.dump(parse(TEXT)) == alone

    together(4, work)


def test_an_expression_is_one():
    assert isinstance(parse("a + b", "eval").body, ast.BinOp)
