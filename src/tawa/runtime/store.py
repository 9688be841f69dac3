"""The disk cache: a folder of immutable files, written whole and checked when read.

A file is a SHA-256 of its key and content followed by the content, so that a truncated or damaged
file, and one that belongs to another key, is recognised and rebuilt. Writers rename a finished file
into place; readers see all of it or nothing. A folder that cannot be written, or is full, costs a
warning and nothing else: compiled kernels stay in memory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from tawa.runtime.locks import Lock

_LIMIT = 1 << 30  # bytes kept on disk; the files read longest ago go first
_LARGEST = 1 << 28  # bytes of one file
_SWEEP_EVERY = 64  # writes between two looks at the folder's size
_DRAFT = ".draft-"
_OURS = re.compile("[0-9a-f]{64}")
_ABANDONED = 3600  # seconds after which nobody writes a draft any more


def cache_folder() -> Path:
    """Return the folder of the cache: ``$TAWA_CACHE_DIR``, else the user's cache folder."""
    if folder := os.environ.get("TAWA_CACHE_DIR"):
        return Path(folder)
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home: a folder that cannot be made says the rest
        return Path(os.devnull) / "tawa"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "tawa"
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else home / ".cache") / "tawa"


class UntrustedError(OSError):
    """A file or folder that somebody else owns or may write."""


def check_owner(path: Path, facts: os.stat_result) -> None:
    """Raise UntrustedError unless the user or root owns what `facts` are of, and nobody else may
    write it: what is read from there runs on the GPU. OpenSSH asks the same (StrictModes).
    """
    if os.name != "posix":
        return
    if facts.st_uid not in (0, os.geteuid()):
        raise UntrustedError(errno.EPERM, f"user {facts.st_uid} owns it", str(path))
    if facts.st_mode & 0o022:
        mode = stat.S_IMODE(facts.st_mode)
        raise UntrustedError(errno.EPERM, f"others may write it (mode {mode:04o})", str(path))


def make_private(folder: Path) -> None:
    """Make a folder that only its owner enters; one that is there must pass `check_owner`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_owner(folder, folder.stat())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside `path`, for its owner only, and rename it into place."""
    make_private(path.parent)
    draft = path.with_name(f"{_DRAFT}{os.urandom(8).hex()}")  # processes of other machines too
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _read_whole(path: Path) -> bytes:
    """Return what is in a file; OSError for what is no plain file, which might never end, and for
    one that no kernel fills.
    """
    # Neither waits for a writer of a pipe nor follows a link: the folder may be anybody's.
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, os.O_RDONLY | flags)
    facts = os.fstat(handle)
    try:
        check_owner(path, facts)
    except UntrustedError:
        os.close(handle)
        raise
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
        os.close(handle)
        raise OSError(errno.EINVAL, "no plain file of a kernel", str(path))
    with os.fdopen(handle, "rb") as file:
        return file.read()


def _digest(key: str, body: bytes) -> bytes:
    """Return what stands in front of a file's content."""
    digest = hashlib.sha256(f"{key}\0".encode(), usedforsecurity=False)
    digest.update(body)
    return digest.digest()


class DiskStore:
    """Bytes by key in a folder. Safe between threads and processes; never raises OSError."""

    def __init__(self, folder: Path, *, limit: int = _LIMIT) -> None:
        self.folder = folder
        self.limit = limit
        self._lock = Lock()
        self._writes = 0
        self._writable = True
        self._told = False

    def path(self, key: str) -> Path:
        """Return the file of a key."""
        digest = hashlib.sha256(key.encode(), usedforsecurity=False).hexdigest()
        return self.folder / digest[:2] / digest[2:]

    def get(self, key: str) -> bytes | None:
        """Return the bytes stored under `key`, or None when absent, damaged or another key's."""
        path = self.path(key)
        try:
            for folder in (self.folder, path.parent):
                check_owner(folder, folder.stat())
            content = _read_whole(path)
        except UntrustedError as error:
            self._pass_over(error)
            return None
        except OSError:
            return None
        body = content[32:]
        if _digest(key, body) != content[:32]:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: str, body: bytes) -> None:
        """Store bytes under `key`; warns once when the folder cannot be written."""
        if not self._writable:
            return
        path, content = self.path(key), _digest(key, body) + body
        try:
            make_private(self.folder)
            try:
                write_whole(path, content)
            except FileNotFoundError:  # no folder yet, or somebody removes it: perhaps again
                write_whole(path, content)
        except UntrustedError as error:
            self._pass_over(error)
            return
        except IsADirectoryError:  # somebody's folder stands there; the others can be written
            return
        except OSError as error:
            self._give_up(error)
            return
        self._sweep_sometimes()

    def _pass_over(self, error: UntrustedError) -> None:
        """Say once that something of the cache is not used, since others could have written it."""
        with self._lock:
            told, self._told = self._told, True
        if told:
            return
        warnings.warn(
            f"{error.filename} is not used for compiled kernels: {error.strerror}. Remove it, or"
            " chmod it to 0700, or set TAWA_CACHE_DIR to a folder of your own",
            RuntimeWarning,
            stacklevel=3,
        )

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            told, self._writable = not self._writable, False
        if told:
            return
        warnings.warn(
            f"the cache folder {self.folder} cannot be written ({error.strerror}): kernels are"
            " kept in memory only. Set TAWA_CACHE_DIR to a folder that can",
            RuntimeWarning,
            stacklevel=3,
        )

    def drop(self, key: str) -> None:
        """Forget a key whose content turned out to be unusable."""
        with suppress(OSError):
            self.path(key).unlink()

    def entries(self) -> Iterator[tuple[Path, bytes]]:
        """Yield each file's path and content, the one used last first; what others could have
        written, and what is damaged beyond a digest in front, is left out.
        """
        found: list[tuple[float, Path]] = []
        for path in self._files():
            with suppress(OSError):
                found.append((-path.lstat().st_mtime, path))
        for _, path in sorted(found):
            with suppress(OSError):
                for folder in (self.folder, path.parent):
                    check_owner(folder, folder.stat())
                content = _read_whole(path)
                if len(content) > 32:
                    yield path, content[32:]

    def clear(self) -> tuple[int, int]:
        """Remove every file that a store writes; return how many there were, and their bytes."""
        count = size = 0
        for path in self._files():
            with suppress(OSError):
                each = path.lstat().st_size
                path.unlink()
                count, size = count + 1, size + each
        return count, size

    def _files(self) -> list[Path]:
        """Return the files that have a name which a store gives, and no others."""
        with suppress(OSError):
            paths = self.folder.glob("??/*")
            return [path for path in paths if _OURS.fullmatch(path.parent.name + path.name)]
        return []

    def _sweep_sometimes(self) -> None:
        with self._lock:
            self._writes += 1
            due = self._writes % _SWEEP_EVERY == 1
        if due:
            self.sweep()

    def sweep(self) -> None:
        """Remove abandoned drafts, and the files used longest ago until the limit is kept."""
        files: list[tuple[float, int, Path]] = []
        now = time.time()
        paths: list[Path] = []
        with suppress(OSError):  # of a folder that somebody removes meanwhile
            paths.extend(self.folder.glob("??/*"))
        for path in paths:
            with suppress(OSError):
                facts = path.lstat()
                if path.name.startswith(_DRAFT):
                    if abs(now - facts.st_mtime) > _ABANDONED:  # clocks are set back, too
                        path.unlink()  # of a process that was killed
                    continue
                files.append((facts.st_mtime, facts.st_size, path))
        excess = sum(size for _, size, _ in files) - self.limit
        for _, size, path in sorted(files):
            if excess <= 0:
                return
            with suppress(OSError):
                path.unlink()
                excess -= size


@cache
def store_at(folder: Path) -> DiskStore:
    """Return the disk store of a folder; one object each, so that a warning is given once."""
    return DiskStore(folder)
