"""How much the tests try: a little of everything, or with `make long` all of it."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

from covering import is_short, left_out, unknown
from launch_schedules import Schedules
from runtime_fakes import FakeDriver, install
from tawa.runtime import dispatch, jit, simulation

# Every example may compile and simulate a kernel, so none has a deadline of its own. The short run
# repeats the same examples, that a failure is of the change at hand; the long one looks further.
settings.register_profile("short", max_examples=10, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=200, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("short" if is_short(config) else "long")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Leave cases to the long run, but what covers them; one named on the command line runs.

    Modules that go through all kernels of `proof_kernels` come first, one after the other: a
    process lowers each once, and two processes that share out the tests begin with a half each.
    """
    swept = not any("[" in each for each in config.args)
    if swept and (missing := unknown(items)):
        raise pytest.UsageError(f"marks name cases that are not there: {sorted(missing)}")
    yield
    if swept and is_short(config):
        dropped = left_out(items)
        apart = set(dropped)
        items[:] = [item for item in items if item not in apart]
        config.hook.pytest_deselected(items=dropped)
    items.sort(key=lambda item: not hasattr(getattr(item, "module", None), "shortened"))


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over what was imported, and come more seldom: tests make
    and keep graphs of a million objects, and it found next to nothing.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


@pytest.fixture(autouse=True)
def schedules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Schedules:
    """Simulated launches are under a schedule of the test's own; in the long run, under all."""
    longer = not is_short(request.config)
    found = Schedules(dispatch.simulate_stage, request.node.nodeid, longer)
    for module in (dispatch, simulation):
        monkeypatch.setattr(module, "simulate_stage", found)
    return found


@pytest.fixture(autouse=True)
def cubins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the long run, and in modules with `CUBINS = True`, launches in the simulator build cubins
    as well, so that NVRTC takes the text of all that they run. Elsewhere what is made ready for
    placeholders, as a traced function's are, has none either: the simulator is what will run it.
    """
    longer = not is_short(request.config)
    everywhere = longer or getattr(request.module, "CUBINS", False)
    monkeypatch.setattr(jit, "runs_cubin", lambda device: everywhere or device.kind == "cuda")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver that records launches of `runtime_fakes.kernel`, and whatever has its parameters."""
    fake = FakeDriver(parameters=3)
    install(monkeypatch, fake)
    return fake
