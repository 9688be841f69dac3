"""Every error has a page: its example is run, and its message compared word for word."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import pytest

from error_pages import run, run_example, section
from runtime_fakes import FakeDriver, GpuArray, install
from tawa import errors
from tawa.passes import pipeline

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, errors.TawaError)
    and kind is not errors.TawaError
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_page_says_why_and_what_to_do(kind):
    doc = inspect.getdoc(kind)
    assert "\nWhy: " in doc
    assert "\nRemedy: " in doc
    assert section(kind, "Example")


@pytest.fixture
def a_gpu_on_which_kernels_fault(monkeypatch):
    """A driver that takes one launch and reports the fault of it at the next."""
    driver = FakeDriver(parameters=1)
    install(monkeypatch, driver)
    fault = "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
    monkeypatch.setattr(driver, "describe", lambda code: fault)
    addresses = iter((0x7F0000000000, 0x7F0000010000))

    def empty(count, device):
        driver.error = 700 if driver.launches else 0
        return GpuArray((count,), address=next(addresses))

    cuda = SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False)
    torch = SimpleNamespace(empty=empty, cuda=cuda, Tensor=type(None))
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_message_is_that_of_the_page(kind, request, monkeypatch, tmp_path):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(pipeline, "TILE", pipeline.TILE)  # undoes what an example does to it
    if kind is errors.LaunchError:
        request.getfixturevalue("a_gpu_on_which_kernels_fault")
    assert run_example(kind, tmp_path) == section(kind, "Message")


LOOP = "    for i in range(n):\n        if tl.load(x + i) == 0:\n            break\n"
FOLLOWED = {
    errors.ArgumentError: [("2.0, B=128", "2.0, n=1000, B=128")],
    errors.AxonError: [("f32[4, m]", "f32[3, m]")],
    errors.AxonGuard: [("(3, 5)", "(4, 5)")],
    errors.DefinitionError: [
        ("k.range(0, n)", 'k.range(0, n, carry={"last": k.load(x)})'),
        ("last = k.load(x + loop.index)", "loop.yield_(k.load(x + loop.index))"),
        ("k.store(x, last)", "k.store(x, loop.results[0])"),
    ],
    errors.DescriptorError: [("(128, 65)", "(128, 72)")],
    errors.GradientError: [('method="nuts"', 'method="mh"')],
    errors.MappingError: [("c[i // 2, 0]", "c[i, 0]")],
    errors.ShapeUnsupported: [
        ("COLUMNS=50257", "COLUMNS=tawa.next_power_of_2(50257)"),
        ("tl.load(x + at)", "tl.load(x + at, mask=at < 50257, other=0.0)"),
    ],
    errors.StackError: [("draws=10", "draws=10, stack=256")],
    errors.TypeMismatch: [("tl.dot(q, k)", "tl.dot(q, k.T)")],
    errors.UnknownName: [("BLOCK = 64", "BLOCK = tl.constexpr(64)")],
    errors.UnsupportedSyntax: [
        (LOOP, "    i = 0\n    while i < n and tl.load(x + i) != 0:\n        i += 1\n")
    ],
    errors.WeightError: [("2.0, method", "0.5, method")],
}
"""What the message of a page proposes, as edits of its example."""


@pytest.mark.parametrize("kind", FOLLOWED, ids=lambda kind: kind.__name__)
def test_who_follows_the_message_has_no_error(kind, monkeypatch, tmp_path):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    text = section(kind, "Example")
    for before, after in FOLLOWED[kind]:
        assert before in text
        text = text.replace(before, after)
    run(text, tmp_path)


def test_in_brief():
    assert errors.PlanError("depth=0", why="a ring has slots\nmore").brief == (
        "depth=0: a ring has slots"
    )
    assert errors.PlanError("depth=0").brief == "depth=0"
