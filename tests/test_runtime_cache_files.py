"""The cache on disk: many processes at once, files that lie, folders that fail."""

from __future__ import annotations

import errno
import os
import re
import struct
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import tawa
import tawa.language as tl
from in_processes import processes
from runtime_fakes import FakeCompiler, kernel, request, sample_kernel
from tawa.runtime import cubins, nvrtc
from tawa.runtime.build import build
from tawa.runtime.codec import encode
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore, cache_folder, store_at

SOURCE = Path(tawa.__file__).parent
DOUBLE = """
    import sys
    import time
    import numpy as np
    import tawa
    from tawa.tools.samples import double

    while time.time() < float(sys.argv[1]):  # all begin at once
        pass
    x = np.arange(64, dtype=np.float32)
    out = np.empty_like(x)
    kernel = double.compile(x, out, COUNT=64)
    double[(1,)](x, out, COUNT=64)
    assert (out == 2 * x).all()
    import hashlib
    stage = "cubin" if "cubin" in kernel.asm else "cuda"
    data = kernel.asm[stage]
    print(hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest())
"""


def test_four_processes_compile_one_kernel_at_once(tmp_path):
    """All get the same kernel, the folder one whole file a key, and a fifth compiles nothing."""
    digests = processes(DOUBLE, 4, tmp_path, str(time.time() + 2))
    assert len(set(digests)) == 1
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kept = 2 if nvrtc.is_available() else 1  # the kernel, and its cubin by the text
    assert len(files) == kept
    (again,) = processes(DOUBLE, 1, tmp_path, "0")
    assert again == digests[0]
    assert sorted(files) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


HAMMER = """
    import hashlib
    import os
    import sys
    from pathlib import Path
    from tawa.runtime.store import DiskStore

    store = DiskStore(Path(os.environ["TAWA_CACHE_DIR"]))
    missed = 0
    for round in range(150):
        body = os.urandom(20_000)
        store.put("key", hashlib.sha256(body).digest() + body)
        found = store.get("key")
        missed += found is None
        assert found is None or hashlib.sha256(found[32:]).digest() == found[:32]
    print(missed)
"""


def test_eight_processes_write_one_key_at_once(tmp_path):
    """A reader always finds a file, and all of what somebody wrote."""
    assert processes(HAMMER, 8, tmp_path) == ["0"] * 8
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_the_file_of_another_key_is_rebuilt(tmp_path):
    """A file copied to another name is whole, and yet not what is asked for."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    mine, other = request(), request(text="another kernel")
    build(other, compiler, store)
    path = store.path(mine.disk_key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(store.path(other.disk_key).read_bytes())
    build(mine, compiler, store)
    assert len(compiler.requests) == 2
    build(mine, compiler, store)
    assert len(compiler.requests) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
@pytest.mark.parametrize("kind", ["folder", "pipe", "endless", "loop", "vast"])
@pytest.mark.timeout(60)
def test_what_is_no_plain_file_is_not_read(tmp_path, kind):
    """A pipe would be waited for, a device read for ever; the rest of the folder still serves."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)
    path = store.path(request().disk_key)
    path.unlink()
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case "vast":  # no bytes on disk, and more than there is memory
            path.touch()
            os.truncate(path, 1 << 40)
    opened = len(os.listdir("/dev/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(request(), compiler, store)
    assert len(compiler.requests) == 2
    assert len(os.listdir("/dev/fd")) == opened
    build(request(text="another"), compiler, store)
    assert store.get(request(text="another").disk_key) is not None


@pytest.mark.parametrize("at", [0, 5, 31, 32, 40, 400, -1])
def test_any_damaged_byte_is_found(tmp_path, at):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)
    path = store.path(request().disk_key)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)
    build(request(), compiler, store)
    assert len(compiler.requests) == 2
    assert store.get(request().disk_key) is not None


@pytest.mark.parametrize("kept", range(0, 5000, 499))
def test_a_file_cut_anywhere_is_rebuilt(tmp_path, kept):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)
    path = store.path(request().disk_key)
    path.write_bytes(path.read_bytes()[:kept])
    build(request(), compiler, store)
    assert len(compiler.requests) == 1 + (kept < len(path.read_bytes()))


def test_a_kernel_of_another_compiler_is_rebuilt(tmp_path):
    """Whole, of this key, and not what this version's classes can hold."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    data = encode(sample_kernel(signature=request().signature))
    changed = data.replace(b'"class": "LaunchShape"', b'"class": "LaunchShaqe"')
    assert changed != data
    store.put(request().disk_key, changed)
    build(request(), compiler, store)
    assert len(compiler.requests) == 1


@pytest.mark.parametrize(
    "change",
    [
        (b'"name": "matmul"', b'"name": "f(): x"'),
        (b'"entry": "matmul"', b'"entry": "matmul;"'),
        (b'"cluster": 1', b'"cluster": "1 or exit()"'),
        (b'"threads": 384', b'"threads": [384]'),
    ],
    ids=str,
)
def test_what_a_launcher_spells_in_code_is_checked(tmp_path, change):
    """A file may hold no more than names and numbers where a launcher is generated from it."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    data = encode(sample_kernel(signature=request().signature))
    (size,) = struct.unpack_from("<I", data)
    head = data[4 : 4 + size].replace(*change)
    assert head != data[4 : 4 + size]
    store.put(request().disk_key, struct.pack("<I", len(head)) + head + data[4 + size :])
    build(request(), compiler, store)
    assert len(compiler.requests) == 1


def test_a_damaged_cubin_is_built_again(tmp_path, monkeypatch):
    built = []

    def fake(text, name, *, arch, strict=True):
        built.append(name)
        return nvrtc.Cubin(b"\x7fELF binary", "log", 40, 0, 0.1)

    monkeypatch.setattr(nvrtc, "build", fake)
    store = DiskStore(tmp_path)
    for damage in (
        lambda data: data,
        lambda data: data[:-3],
        lambda data: b"",
        lambda d: b"\0" * 99,
    ):
        assert cubins.build("text", store=store).data == b"\x7fELF binary"
        (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
        path.write_bytes(damage(path.read_bytes()))
    assert len(built) == 3  # the first, and each that was damaged since


def test_nothing_of_the_runtime_unpickles():
    unsafe = re.compile(r"^\s*(import|from) (pickle|marshal|shelve|dill|cloudpickle)\b", re.M)
    sources = list(SOURCE.rglob("*.py"))
    assert len(sources) > 300
    assert [path for path in sources if unsafe.search(path.read_text())] == []


# --- folders that cannot be written -------------------------------------------------------------


def scale(x_ptr, out_ptr, factor, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * factor)


def launch_twice(kernel):
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    for _ in range(2):
        kernel[(1,)](x, out, 3.0, N=32)
    np.testing.assert_array_equal(out, 3 * x)


@pytest.mark.skipif(os.name != "posix", reason="needs /dev/full and modes of folders")
def test_a_folder_that_is_no_folder_is_told_once(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TAWA_CACHE_DIR", str(blocked / "cache"))
    kernel = tawa.jit(scale)
    with pytest.warns(RuntimeWarning, match="kernels are kept in memory only") as seen:
        launch_twice(kernel)
    assert len([w for w in seen if "cache folder" in str(w.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch_twice(tawa.jit(scale))  # another kernel, the same folder: told already


@pytest.mark.parametrize("step", ["write", "replace", "mkdir"])
def test_a_full_disk_leaves_kernels_in_memory(monkeypatch, tmp_path, step):
    """ENOSPC at any step: a warning, no draft left behind, and the kernel is compiled once."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = {"write": "os.fdopen", "replace": "os.replace", "mkdir": "pathlib.Path.mkdir"}[step]
    monkeypatch.setattr(target, full)
    jit = JitFunction(kernel, compiler=compiler, store=store)
    with pytest.warns(RuntimeWarning, match="cannot be written .No space left on device"):
        jit.compile(tawa.array((4,), "f32"), 4)
    monkeypatch.undo()
    jit.compile(tawa.array((4,), "f32"), 4)
    assert len(compiler.requests) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_that_can_only_be_read_still_serves(monkeypatch, tmp_path):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)

    def refuse(*arguments, **options):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    opened = os.open

    def only_read(path, flags, *mode, **options):
        return (refuse if flags & os.O_WRONLY else opened)(path, flags, *mode, **options)

    monkeypatch.setattr("os.open", only_read)
    for name in ("os.utime", "pathlib.Path.unlink"):
        monkeypatch.setattr(name, refuse)
    build(request(), compiler, DiskStore(tmp_path))
    assert len(compiler.requests) == 1


def test_an_empty_name_is_no_folder(monkeypatch, tmp_path):
    """It would be the working folder."""
    monkeypatch.setenv("TAWA_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "tawa"


def test_a_user_without_a_home(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TAWA_CACHE_DIR", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.warns(RuntimeWarning, match="Set TAWA_CACHE_DIR to a folder that can"):
        DiskStore(cache_folder()).put("a", b"content")


def test_drafts_of_killed_processes_go(tmp_path):
    store = DiskStore(tmp_path)
    store.put("a", b"content")
    folder = store.path("a").parent
    old, young = folder / ".draft-00", folder / ".draft-11"
    for draft in (old, young):
        draft.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    store.sweep()
    assert not old.exists()
    assert young.exists()
    assert store.get("a") == b"content"


def test_one_store_for_each_folder(tmp_path):
    assert store_at(tmp_path) is store_at(tmp_path)
