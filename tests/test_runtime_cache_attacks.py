"""The cache on disk under attack: processes killed in the middle of a write, limits on files,
folders removed and closed while they are in use, clocks set back, files in the place of folders.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pytest

import tawa
from in_threads import together
from runtime_fakes import FakeCompiler, request
from tawa.runtime.build import build
from tawa.runtime.store import DiskStore

ROOT = Path(tawa.__file__).parent.parent
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX")


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(folder)],
        env={**os.environ, "TAWA_CACHE_DIR": str(folder), "PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


WRITE = """
    import hashlib
    import os
    import sys
    from pathlib import Path
    from tawa.runtime.store import DiskStore

    store = DiskStore(Path(sys.argv[1]))
    print("begun", flush=True)
    while True:
        for key in "abcdefgh":
            body = os.urandom(400_000)
            store.put(key, hashlib.sha256(body).digest() + body)
"""


@posix
def test_processes_killed_while_they_write(tmp_path):
    """What is found is whole, whatever was begun; the drafts they leave go when they are old."""
    writers = [start(WRITE, tmp_path) for _ in range(4)]
    for number, writer in enumerate(writers):
        assert writer.stdout.readline() == "begun\n"
        time.sleep(0.05 + 0.03 * number)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    store = DiskStore(tmp_path)
    found = [body for key in "abcdefgh" if (body := store.get(key)) is not None]
    assert found
    assert all(len(body) == 32 + 400_000 for body in found)
    for draft in tmp_path.glob("??/.draft-*"):
        os.utime(draft, (1, 1))
    store.sweep()
    assert not list(tmp_path.glob("??/.draft-*"))


LIMITED = """
    import resource
    import sys
    import warnings
    import numpy as np
    import tawa
    from tawa.tools.samples import double

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # as a quota or a full disk would
    x = np.arange(64, dtype=np.float32)
    out = np.empty_like(x)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            double[(1,)](x, out, COUNT=64)
    assert (out == 2 * x).all()
    print(len(seen), seen[0].message)
"""


@posix
def test_a_file_system_that_takes_no_more(tmp_path):
    process = start(LIMITED, tmp_path)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert out.startswith("1 the cache folder")
    assert "File too large" in out
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_removed_while_it_is_used(tmp_path):
    """`rm -r` of a cache costs what was in it: nothing raises, and what is put later is kept."""
    store, over = DiskStore(tmp_path / "cache"), threading.Event()

    def remove(index):
        for _ in range(60):
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            time.sleep(0.002)
        over.set()

    def use(index):
        while not over.is_set():
            for key in range(8):
                store.put(f"{index} {key}", b"content" * 1000)
                assert store.get(f"{index} {key}") in (None, b"content" * 1000)
            store.sweep()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a removal may hit twice in one write
        together(4, lambda index: use(index) if index else remove(index))
    later = DiskStore(tmp_path / "cache")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        later.put("a", b"b")
    assert later.get("a") == b"b"


def test_a_folder_removed_once_is_made_again(tmp_path, monkeypatch):
    store, real, lost = DiskStore(tmp_path / "cache"), os.open, []

    def removed(path, *arguments, **options):
        if ".draft-" in str(path) and not lost:
            lost.append(path)
            shutil.rmtree(tmp_path / "cache")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", removed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put("a", b"b")
    assert lost
    assert store.get("a") == b"b"


@pytest.mark.parametrize("place", ["cache", "shelf"])
def test_a_file_in_the_place_of_a_folder(tmp_path, place):
    store = DiskStore(tmp_path / "cache")
    if place == "cache":
        (tmp_path / "cache").write_text("somebody's")
    else:
        store.path("a").parent.parent.mkdir()
        store.path("a").parent.write_text("somebody's")
    assert store.get("a") is None
    with pytest.warns(RuntimeWarning, match="kernels are kept in memory only"):
        store.put("a", b"b")
    store.sweep()
    assert store.get("a") is None


def test_threads_that_fail_together_warn_once(tmp_path):
    (tmp_path / "file").write_text("")
    store = DiskStore(tmp_path / "file")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        together(8, lambda index: store.put(str(index), b"content"))
    assert len(seen) == 1


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do all")
def test_a_folder_that_is_closed_while_it_is_used(tmp_path):
    store = DiskStore(tmp_path / "cache")
    store.put("a", b"b")
    (tmp_path / "cache").chmod(0)
    try:
        assert store.get("a") is None
        with pytest.warns(RuntimeWarning, match="Permission denied"):
            store.put("c", b"d")
    finally:
        (tmp_path / "cache").chmod(0o700)
    assert store.get("a") == b"b"


@posix
def test_links_are_neither_read_nor_written_through(tmp_path):
    """Who may write in the folder may not make us write elsewhere."""
    store, target = DiskStore(tmp_path / "cache"), tmp_path / "target"
    store.put("a", b"b")
    path = store.path("a")
    target.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(target)
    assert store.get("a") is None
    store.put("a", b"new")
    assert store.get("a") == b"new"
    assert not path.is_symlink()
    assert target.read_bytes().endswith(b"b")
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path / "cache")  # the user's own link to the folder is followed
    assert DiskStore(linked).get("a") == b"new"


def test_clocks_that_are_set(tmp_path):
    """Times in the future, or at the beginning: files are read, drafts of long ago go."""
    store = DiskStore(tmp_path, limit=250)
    store.put("a", bytes(100))
    for when in (0, time.time() + 10 * 365 * 86400):
        os.utime(store.path("a"), (when, when))
        assert store.get("a") == bytes(100)
    assert abs(store.path("a").stat().st_mtime - time.time()) < 60
    folder = store.path("a").parent
    for name, when in (("past", 1), ("future", time.time() + 86400), ("now", time.time())):
        (folder / f".draft-{name}").write_bytes(b"half")
        os.utime(folder / f".draft-{name}", (when, when))
    store.sweep()
    assert [path.name for path in folder.glob(".draft-*")] == [".draft-now"]
    store.put("b", bytes(100))
    store.sweep()
    assert store.get("b") == bytes(100)


@pytest.mark.parametrize(
    "head",
    [
        b"[]",
        b'"text"',
        b"3",
        b'{"stages": 3}',
        b'{"stages": [], "name": "k", "entry": "k", "launch": 3, "timings": {}}',
        b'{"stages": [["tile", true, 9]], "name": "k"}',
        b"[" * 100_000,
    ],
    ids=lambda head: head[:40].decode(),
)
def test_what_another_program_wrote_under_our_key(tmp_path, head):
    """Whole, with the digest of this key, and no kernel."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    store.put(request().disk_key, len(head).to_bytes(4, "little") + head)
    assert build(request(), compiler, store).name == "kernel"
    assert len(compiler.requests) == 1
    build(request(), compiler, store)
    assert len(compiler.requests) == 1


@posix
@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_what_others_could_have_written_is_not_read(tmp_path, monkeypatch, what, how):
    """A file of another user's would run on our GPU; it is passed over, with one warning."""
    store = DiskStore(tmp_path / "cache")
    store.put("key", b"ours")
    assert store.get("key") == b"ours"
    path = store.path("key") if what == "file" else store.folder
    kept = path.stat().st_mode
    if how == "mode":
        path.chmod(0o777)
    else:
        real = os.geteuid()
        if what == "file" and real != 0:
            pytest.skip("only root gives files away")
        if real == 0:
            os.chown(path, 4242, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    with pytest.warns(RuntimeWarning, match=re.escape(str(path))) as told:
        found = [store.get("key") for _ in range(2)]
    assert found == [None, None]
    assert len(told) == 1
    if what == "folder":
        store.put("other", b"more")
        assert not store.path("other").exists()
    path.chmod(kept)
    if how == "owner" and os.geteuid() == 0:
        os.chown(path, 0, -1)
    monkeypatch.undo()
    assert store.get("key") == b"ours"


@posix
def test_folders_and_files_are_their_owners_alone(tmp_path):
    before = os.umask(0)
    try:
        store = DiskStore(tmp_path / "a" / "cache")
        store.put("key", b"ours")
    finally:
        os.umask(before)
    path = store.path("key")
    modes = [each.stat().st_mode & 0o777 for each in (store.folder, path.parent, path)]
    assert modes == [0o700, 0o700, 0o600]
