"""What `help()` shows of public names has an example, and it runs."""

import doctest
import inspect

import numpy as np
import pytest

import tawa
import tawa.language as tl

# An error's example is its page's; a plan is read and written as text, a step stands in a program.
WITHOUT = {"CompiledKernel", "JitFunction", "Plan", "Step", "TawaError"}
NAMES = sorted(
    name
    for name in tawa.__all__
    if callable(getattr(tawa, name)) and name not in WITHOUT and not name.startswith("_")
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
