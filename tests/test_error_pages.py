"""Every error has a page: its example is run, and its message compared word for word."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import pytest

from error_pages import run_example, section
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


def test_in_brief():
    assert errors.PlanError("depth=0", why="a ring has slots\nmore").brief == (
        "depth=0: a ring has slots"
    )
    assert errors.PlanError("depth=0").brief == "depth=0"
