"""What `help()` shows of public names has an example, and it runs."""

import doctest
import inspect

import numpy as np
import pytest

import tawa
import tawa.language as tl

NAMES = sorted(
    name for name in tawa.__all__ if callable(getattr(tawa, name)) and not name.startswith("_")
)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name: str) -> None:
    found = doctest.DocTestParser().get_doctest(
        inspect.getdoc(getattr(tawa, name)) or "",
        {**vars(tawa), "tawa": tawa, "tl": tl, "np": np},
        name,
        f"<help of {name}>",
        0,
    )
    assert found.examples, f"help(tawa.{name}) shows no example"
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(found, out=told.append)
    assert not told, "".join(told)
