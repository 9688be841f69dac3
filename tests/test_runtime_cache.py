"""The disk cache: whole or absent, checked when read, keyed by everything a kernel depends on."""

from __future__ import annotations

import importlib.util
import stat
import sys
import threading
import time
import types
import warnings
from dataclasses import replace
from enum import Enum

import pytest

import tawa
from runtime_fakes import FakeCompiler, sample_kernel
from tawa.codegen.parameters import GridParameter, ScalarParameter, TensorMapParameter
from tawa.frontend.signature import ConstantArg, PointerArg
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.runtime.build import build
from tawa.runtime.codec import decode, encode
from tawa.runtime.compiled import CompiledKernel, Guard, with_later
from tawa.runtime.fingerprint import NAMELESS, compiler_digest, describe, fingerprint
from tawa.runtime.request import Request
from tawa.runtime.store import DiskStore, cache_folder
from tawa.target import H200

WIDTH = 4


@tawa.jit
def helper(x):
    return x * WIDTH


def kernel(x, n):
    return helper(x) + n


def other_kernel(x, n):
    return helper(x) + n


def request(function=kernel, **changes):
    base = Request(
        function, fingerprint(function).digest, {"x": PointerArg("f32")}, {}, Pins(), H200
    )
    return replace(base, **changes)


# --- the store ----------------------------------------------------------------------------------


def test_bytes_come_back(tmp_path):
    store = DiskStore(tmp_path)
    assert store.get("a") is None
    store.put("a", b"content")
    store.put("b", b"")
    assert store.get("a") == b"content"
    assert store.get("b") == b""
    assert [path.name for path in tmp_path.rglob(".*")] == []  # nothing half-written stays


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:10], lambda _: b""])
def test_a_truncated_file_is_absent_and_removed(tmp_path, damage):
    store = DiskStore(tmp_path)
    store.put("a", b"content")
    path = store.path("a")
    path.write_bytes(damage(path.read_bytes()))
    assert store.get("a") is None
    assert not path.exists()


def test_a_flipped_bit_is_found(tmp_path):
    store = DiskStore(tmp_path)
    store.put("a", b"content")
    data = bytearray(store.path("a").read_bytes())
    data[-1] ^= 1
    store.path("a").write_bytes(data)
    assert store.get("a") is None


def test_a_folder_that_cannot_be_written_warns_once(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    store = DiskStore(blocked / "cache")
    with pytest.warns(RuntimeWarning, match="cannot be written .* Set TAWA_CACHE_DIR"):
        store.put("a", b"content")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put("b", b"content")
    assert store.get("a") is None


def test_the_least_recently_used_files_go_first(tmp_path):
    store = DiskStore(tmp_path, limit=3 * (32 + 100))
    for name in "abc":
        store.put(name, bytes(100))
        time.sleep(0.01)
    assert store.get("a") is not None  # used now
    store.put("d", bytes(100))
    store.sweep()
    assert [store.get(name) is not None for name in "abcd"] == [True, False, True, True]


def test_files_are_private(tmp_path):
    store = DiskStore(tmp_path)
    store.put("a", b"content")
    assert stat.S_IMODE(store.path("a").stat().st_mode) == 0o600


def test_the_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path


# --- kernels as bytes ---------------------------------------------------------------------------


def test_a_kernel_survives_the_codec():
    parameters = (
        TensorMapParameter("a", "bf16", (64, 64), 128, "zero", base="a", extents=("M", "K")),
        ScalarParameter("K", "i32"),
        GridParameter(0),
    )
    before = sample_kernel(parameters, guards=(Guard("disjoint(a, c)", "a runs ahead"),))
    facts, stages = decode(encode(before), before.signature)
    after = CompiledKernel(asm=with_later(stages), **facts)
    for name in ("name", "entry", "plan", "launch", "parameters", "resources", "proof", "guards"):
        assert getattr(after, name) == getattr(before, name)
    assert after.timings == before.timings
    assert dict(after.asm.ready) == dict(before.asm.ready)
    assert str(after) == str(before)


@pytest.mark.parametrize("data", [b"", b"\1", b"\xff\0\0\0{}", b"\2\0\0\0{}" + bytes(9)])
def test_foreign_bytes_are_not_a_kernel(tmp_path, data):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    store.put(request().disk_key, data)
    assert build(request(), compiler, store).name == "kernel"
    assert len(compiler.requests) == 1


# --- building -----------------------------------------------------------------------------------


def test_a_disk_hit_compiles_nothing(tmp_path):
    compiler = FakeCompiler()
    first = build(request(), compiler, DiskStore(tmp_path))
    second = build(request(), compiler, DiskStore(tmp_path))
    assert len(compiler.requests) == 1
    assert second.parameters == first.parameters
    assert second.cubin == first.cubin
    assert list(second.timings) == ["disk cache"]


def test_a_damaged_file_is_rebuilt(tmp_path):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)
    path = store.path(request().disk_key)
    path.write_bytes(path.read_bytes()[:-7])
    build(request(), compiler, store)
    assert len(compiler.requests) == 2
    build(request(), compiler, store)
    assert len(compiler.requests) == 2


def test_a_hit_is_quick(tmp_path):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    stages = {"tile": "t" * 20_000, "hopper": "h" * 100_000, "cuda": "c" * 50_000}
    compiler.make = lambda _: sample_kernel(stages={**stages, "cubin": bytes(100_000)})
    build(request(), compiler, store)
    best = min(_seconds(lambda: build(request(), compiler, store)) for _ in range(5))
    assert best < 0.05  # the budget is 5 ms; a busy machine gets ten times that


def _seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@pytest.mark.parametrize(
    "change",
    [
        {"signature": {"x": PointerArg("f32", True)}},
        {"signature": {"x": ConstantArg(1)}},
        {"signature": {"x": ConstantArg(1.0)}},
        {"signature": {"x": ConstantArg(True)}},
        {"signature": {"x": ConstantArg(helper)}},
        {"signature": {"y": PointerArg("f32")}},
        {"options": {"num_warps": 8}},
        {"pins": Pins(depth={"a": 4})},
        {"pins": Pins(plan=Plan())},
        {"strict": True},
        {"descriptors": False},
        {"target": replace(H200, multiprocessors=114)},
        {"function": other_kernel, "text": fingerprint(other_kernel).digest},
    ],
)
def test_the_key_holds_all_a_kernel_depends_on(change):
    changed = request(**change)
    assert changed.disk_key != request().disk_key
    assert changed.memory_key != request().memory_key


def test_a_kernel_without_source_is_not_kept_on_disk(tmp_path):
    assert request(text="").disk_key == ""
    compiler = FakeCompiler()
    for _ in range(2):
        build(request(text=""), compiler, DiskStore(tmp_path))
    assert len(compiler.requests) == 2


# --- fingerprints -------------------------------------------------------------------------------


def test_the_fingerprint_follows_helpers_and_globals(monkeypatch):
    before = fingerprint(kernel)
    assert before.digest == fingerprint(kernel).digest
    assert {binding.name for binding in before.bindings} == {"helper", "WIDTH"}
    assert not any(binding.changed() for binding in before.bindings)
    monkeypatch.setitem(globals(), "WIDTH", 8)  # read by the helper alone
    assert fingerprint(kernel).digest != before.digest
    assert any(binding.changed() for binding in before.bindings)


def test_a_global_named_as_a_parameter_is_not_read(monkeypatch):
    """Scripts name their arrays as kernels do their parameters and variables."""
    before = fingerprint(names_of_arrays)
    assert [binding.name for binding in before.bindings] == ["WIDTH"]
    for name in ("x", "total"):
        monkeypatch.setitem(globals(), name, object())
    after = fingerprint(names_of_arrays)
    assert after.digest == before.digest
    assert [binding.name for binding in after.bindings] == ["WIDTH"]


class Kind(Enum):
    """Python's own part of it is told by Python's version."""

    ROWS = WIDTH


def kernel_of_a_kind(x):
    return x + (Kind is None)


def test_classes_of_python_itself_are_not_read():
    """All that a launch watches costs it time."""
    found = fingerprint(kernel_of_a_kind)
    assert [binding.name for binding in found.bindings] == ["Kind"]
    before = found.digest
    Kind.width = 3
    try:
        assert fingerprint(kernel_of_a_kind).digest != before
    finally:
        del Kind.width


def test_a_users_module_may_have_the_name_of_one_of_pythons(monkeypatch, tmp_path):
    module = types.ModuleType("queue")
    module.__file__ = str(tmp_path / "queue.py")
    monkeypatch.setitem(sys.modules, "queue", module)
    monkeypatch.setattr(helper.fn, "__module__", "queue")
    before = fingerprint(kernel).digest
    monkeypatch.setitem(globals(), "WIDTH", 8)
    assert fingerprint(kernel).digest != before


@pytest.mark.parametrize("wrapper", ["", "@__import__('functools').cache\n"])
def test_a_users_file_loaded_by_its_path_is_not_pythons(tmp_path, wrapper):
    """Nothing is entered among the modules then: what stands there is Python's own, or nothing."""
    for name in ("queue", "wave"):
        digests: set[str] = set()
        for factor in (2, 3):
            path = tmp_path / f"{name}.py"
            path.write_text(f"{wrapper}def scaled(x):\n    return x * {factor}\n")
            spec = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            digests.add(describe(module.scaled).partition(" ")[2])
        assert len(digests) == 2
        assert "" not in digests


def names_of_arrays(x):
    total = x + WIDTH
    return total


def test_recursive_helpers_end():
    def even(n):
        return odd(n - 1)

    def odd(n):
        return even(n - 1)

    assert fingerprint(even).digest


def test_of_a_function_of_the_language_the_name_alone_is_read(monkeypatch):
    """Triton's reductions are Python that it wraps as it does a user's, with locks, whose text is
    their address, and more. A kernel that calls one is kept on disk."""

    class Wrapper:  # as triton.runtime.jit.JITFunction
        def __init__(self, fn):
            self.fn, self.lock = fn, threading.RLock()

    def reduction(x):
        return x

    reduction.__module__, reduction.__qualname__ = "triton.language.standard", "sum"
    monkeypatch.setitem(globals(), "reduction", Wrapper(reduction))
    found = fingerprint(reduces).digest
    assert NAMELESS not in found
    monkeypatch.setitem(globals(), "reduction", Wrapper(reduction))
    assert fingerprint(reduces).digest == found
    assert describe({"combine": Wrapper(reduction)}).endswith(": triton.language.standard.sum)")


def reduces(x):
    return reduction(x)  # noqa: F821


def test_module_attributes_are_followed(monkeypatch):
    import types

    settings = types.ModuleType("settings")
    settings.tile = 64
    monkeypatch.setitem(globals(), "settings", settings)
    before = fingerprint(reads_settings).digest
    settings.tile = 128
    assert fingerprint(reads_settings).digest != before


def reads_settings(x):
    return x + settings.tile  # noqa: F821


def test_the_compiler_itself_is_part_of_the_key():
    assert len(compiler_digest()) == 64
    assert compiler_digest() in request().disk_key


def test_sources_of_the_compiler_are_told_apart(tmp_path, monkeypatch):
    import tawa.runtime.fingerprint as module

    for folder in ("runtime", "passes/lower", "tools", "kernels"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "one.py").write_text("x = 1")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "runtime" / "fingerprint.py"))
    digest = module.compiler_digest.__wrapped__
    found = [digest()]
    (tmp_path / "passes" / "lower" / "one.py").write_text("x = 2.5")
    found.append(digest())
    (tmp_path / "passes" / "two.py").write_text("")
    found.append(digest())
    assert len(set(found)) == 3
    (tmp_path / "tools" / "one.py").write_text("no part of a compilation")
    (tmp_path / "kernels" / "two.py").write_text("told by its own text")
    assert digest() == found[-1]


def test_the_version_of_nvrtc_is_read_off_its_folder(tmp_path, monkeypatch):
    from importlib.metadata import PackageNotFoundError, version

    from tawa.runtime.cubins import nvrtc_version

    read = nvrtc_version.__wrapped__
    try:
        assert read() == f"nvidia_cuda_nvrtc-{version('nvidia-cuda-nvrtc')}.dist-info"
    except PackageNotFoundError:
        assert read() == ""
    for folder in ("a", "b/nvidia", "c/nvidia/cu13", "c/nvidia_cuda_nvrtc-13.0.88.dist-info"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr("sys.path", [str(tmp_path / name) for name in ("a", "none", "b", "c")])
    assert read() == "nvidia_cuda_nvrtc-13.0.88.dist-info"
    monkeypatch.setattr("sys.path", [str(tmp_path / "b")])
    assert read() == ""


def test_cubins_by_their_text(tmp_path, monkeypatch):
    pytest.importorskip("cuda.bindings.nvrtc")
    from tawa.runtime import cubins, nvrtc

    store = DiskStore(tmp_path)
    text = 'extern "C" __global__ void k(int* p) { *p = 1; }'
    first = cubins.build(text, "k", store=store)
    monkeypatch.setattr(nvrtc, "build", lambda *_, **__: pytest.fail("built again"))
    second = cubins.build(text, "k", store=store)
    assert (second.data, second.log, second.registers) == (first.data, first.log, first.registers)
    monkeypatch.setattr(nvrtc, "build", lambda *_, **__: first)
    store.put(cubins._key(text, "k", "sm_90a"), b"\5\0\0\0nothing")
    assert cubins.build(text, "k", store=store) is first


def test_the_text_of_a_function_is_what_inspect_gives() -> None:
    """Read without a tokenizer; functions of this module, of inspect and of the shipped kernels."""
    import inspect

    from tawa.kernels import attention, gemm, matmul, split
    from tawa.runtime.fingerprint import source_of

    modules = (inspect, attention, gemm, matmul, split, inspect.getmodule(source_of))
    members = [getattr(item, "fn", item) for module in modules for item in vars(module).values()]
    functions = [item for item in members if inspect.isfunction(item)]
    functions = [item for item in functions if not hasattr(item, "__wrapped__")]
    assert len(functions) > 100
    for function in functions:
        assert source_of(function).rstrip() == inspect.getsource(function).rstrip()
    with pytest.raises(OSError, match="not to be had"):
        source_of(eval("lambda: 1"))


def test_the_tree_of_a_helper_is_made_once() -> None:
    from tawa.frontend.source import read_source
    from tawa.kernels import gemm

    read, again = (read_source(gemm.matmul_descriptors) for _ in range(2))
    assert read.tree is again.tree


def test_what_answers_to_every_name_is_no_function() -> None:
    """It was followed for ever."""
    from unittest.mock import MagicMock

    from tawa.runtime.fingerprint import _function_in

    assert _function_in(MagicMock()) is None
