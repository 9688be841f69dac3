"""When the compiler itself fails: the step, the kernel's line, and a folder to report it with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tawa
import tawa.language as tl
from tawa.errors import InternalError, OverBudget, ProtocolError, TypeMismatch
from tawa.ir import tile
from tawa.passes import pipeline
from tawa.passes.lower import waits
from tawa.runtime import compiler

FILES = {"report.txt", "kernel.py", "before.mlir", "plan.txt"}


@tawa.jit
def halved(x):
    return x * 0.5


def product(a_desc, b_desc, out_desc, K, B: tl.constexpr):
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        a = a_desc.load([0, k])
        b = b_desc.load([k, 0])
        acc = tl.dot(a, b, acc)
    out_desc.store([0, 0], halved(acc).to(tl.float16))


def compile_product(**options):
    describe = tawa.TensorDescriptor.from_tensor
    desc = describe(tawa.array((64, 64), "f16"), [64, 64])
    return tawa.jit(product).compile(desc, desc, desc, 64, B=64, **options)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    return tmp_path


def broken(kernel, plan, target):
    for operation in kernel.walk():
        if isinstance(operation, tile.Dot):
            raise KeyError("nothing here")


def folder_of(error) -> Path:
    return Path(re.search(r"attach the folder (\S+)", error.remedy)[1])


def line_of(text):
    first = product.__code__.co_firstlineno
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if n > first and text in line)


def test_a_pass_that_fails(monkeypatch, cache):
    monkeypatch.setattr(pipeline, "TILE", (*pipeline.TILE, broken))
    with pytest.raises(InternalError) as caught:
        compile_product(num_warps=4)
    error = caught.value
    assert error.what.startswith("the compiler failed on product in broken ")
    assert error.what.endswith("KeyError: 'nothing here'")
    assert isinstance(error.__cause__, KeyError)
    assert error.place.line == line_of("tl.dot(a, b, acc)")
    folder = folder_of(error)
    assert folder.parent == cache / "reports"
    assert {path.name for path in folder.iterdir()} == FILES
    assert "tile.dot" in (folder / "before.mlir").read_text()
    source = (folder / "kernel.py").read_text()
    assert source.index("def halved(x)") < source.index("def product(")  # with all it calls
    assert f"# {__file__}:{product.__code__.co_firstlineno}\n" in source
    report = (folder / "report.txt").read_text()
    for text in ("step: broken", "a_desc: descriptor of f16[64x64]", "B = 64", "'num_warps': 4"):
        assert text in report
    for text in ("Traceback", "in broken\n", f"tawa {tawa.__version__}", "xdsl 0."):
        assert text in report


def test_the_same_failure_has_one_folder(monkeypatch, cache):
    monkeypatch.setattr(pipeline, "TILE", (*pipeline.TILE, broken))
    folders = set()
    for _ in range(2):
        with pytest.raises(InternalError) as caught:
            compile_product()
        folders.add(folder_of(caught.value))
    assert folders == set((cache / "reports").iterdir())
    assert len(folders) == 1


def test_deep_in_the_lowering(monkeypatch):
    """The step and the module that failed are named, and the IR before the step is kept."""

    def order(*arguments):
        raise IndexError("list index out of range")

    monkeypatch.setattr(waits, "_take_off", order)
    with pytest.raises(InternalError, match=r"in place_waits \(passes\.lower\.waits\): ") as caught:
        compile_product()
    folder = folder_of(caught.value)
    before = (folder / "before.mlir").read_text()
    assert "hopper.wgmma" in before
    assert "hopper.wgmma_wait" not in before
    assert "load" in (folder / "plan.txt").read_text()


@pytest.mark.parametrize(
    ("step", "where"),
    [
        ("build_tile", "frontend"),
        ("rank_plans", "plan"),
        ("verify", "proof"),
        ("generate", "code generation"),
    ],
)
def test_every_phase(monkeypatch, step, where):
    def fail(*arguments, **options):
        raise AttributeError("'NoneType' object has no attribute 'owner'")

    monkeypatch.setattr(compiler, step, fail)
    with pytest.raises(InternalError, match=f"failed on product in {where}: AttributeError") as got:
        compile_product()
    assert got.value.place.line == product.__code__.co_firstlineno
    assert folder_of(got.value).is_dir()


def test_an_internal_error_keeps_its_words(monkeypatch):
    def refuse(kernel, plan, target):
        raise InternalError("a schedule of one stage overlaps nothing", why="two are needed")

    monkeypatch.setattr(pipeline, "TILE", (*pipeline.TILE, refuse))
    with pytest.raises(InternalError, match="a schedule of one stage overlaps nothing") as caught:
        compile_product()
    assert caught.value.why == "two are needed"
    assert folder_of(caught.value).is_dir()


def test_a_violated_protocol_names_its_folder(monkeypatch):
    def refuse(kernel, target, program):
        raise ProtocolError("nobody can go on")

    monkeypatch.setattr(compiler, "verify", refuse)
    with pytest.raises(ProtocolError, match="nobody can go on") as caught:
        compile_product()
    (note,) = caught.value.__notes__
    folder = Path(note.removeprefix("for a report: "))
    assert "hopper.wgmma" in (folder / "before.mlir").read_text()


def test_errors_of_the_user_leave_no_folder(cache):
    def wrong(x):
        tl.store(x, tl.zeros((4,), tl.int32) + tl.zeros((8,), tl.int32))

    with pytest.raises(TypeMismatch):
        tawa.jit(wrong).compile(tawa.array((8,), "i32"))
    with pytest.raises(OverBudget):
        compile_product(depth=40)
    assert not (cache / "reports").exists()


def test_a_folder_that_cannot_be_written(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TAWA_CACHE_DIR", str(blocked))
    monkeypatch.setattr(pipeline, "TILE", (*pipeline.TILE, broken))
    (tmp_path / "other").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other"))
    with pytest.raises(InternalError) as caught:
        compile_product()
    assert folder_of(caught.value).parent == tmp_path / "other"
    (tmp_path / "third").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "third"))
    with pytest.raises(InternalError) as caught:
        compile_product()
    assert caught.value.remedy == "please report it: what it needs could not be saved"


def test_tuning_does_not_pass_over_a_fault(monkeypatch):
    monkeypatch.setattr(pipeline, "TILE", (*pipeline.TILE, broken))
    tuned = tawa.autotune([tawa.Config({"B": 64})], key=["K"])(product)
    desc = tawa.TensorDescriptor.from_tensor(tawa.array((64, 64), "f16"), [64, 64])
    with pytest.raises(InternalError):
        tuned.compile(desc, desc, desc, 64)


def test_reports_follow_no_links_and_names_lead_nowhere(monkeypatch, tmp_path):
    """Of a folder that anybody may write, and of a kernel with a path for a name."""
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    cache.mkdir(mode=0o700)
    elsewhere.mkdir()
    (cache / "reports").symlink_to(elsewhere)
    monkeypatch.setenv("TAWA_CACHE_DIR", str(cache))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "TILE", (*pipeline.TILE, broken))
    monkeypatch.setattr(product, "__name__", "../../../away")
    with pytest.raises(InternalError) as caught:
        compile_product()
    folder = folder_of(caught.value)
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(elsewhere.iterdir()) == []
