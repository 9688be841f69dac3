"""Compiles generated text for the host: finds a C++ compiler and keeps programs by their content.

The compiler is $CXX, else the system's, else that of the `ziglang` wheel; programs lie in a folder
of the user's under the temporary one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest


def find_compiler() -> tuple[str, ...] | None:
    """The words that start a C++ compiler, or None."""
    if named := os.environ.get("CXX"):
        return tuple(shlex.split(named))
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++")
    return None


COMPILER = find_compiler()
# Where there should be one, a missing compiler is an error, not a reason to skip.
needs_compiler = pytest.mark.skipif(
    COMPILER is None and not os.environ.get("CI"), reason="no C++ compiler"
)
EMULATOR = Path(__file__).parent / "emulator"
HEADERS = sorted(EMULATOR.glob("*.h"))
SOURCES = sorted(EMULATOR.glob("*.cc"))
# Zig's compiler adds the undefined-behaviour checks by itself; the others take the flag as well.
FLAGS = ("-std=c++17", "-w", "-fno-sanitize=undefined")
PROGRAM, LIBRARY = "-O1", "-O2"  # how the generated texts and the emulation itself are compiled
# A product in flight reads its register operands after their block has ended: on the device these
# are registers that ptxas keeps, here stack that no other variable may take over.
NO_REUSE = {False: ("-fstack-reuse=none",), True: ("-Xclang", "-disable-lifetime-markers")}


@dataclass(frozen=True)
class Toolchain:
    """The compiler's words with its flags, whether it is a Clang, and a digest of all it reads."""

    words: tuple[str, ...]
    clang: bool
    digest: str


@cache
def kept() -> Path:
    """The folder of compiled programs, of this user alone."""
    folder = Path(tempfile.gettempdir()) / f"tawa-emulator-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} is somebody else's"
    return folder


@cache
def compiler() -> Toolchain:
    """The compiler that is used, with the digest of itself, the flags and the headers."""
    assert COMPILER is not None, "no C++ compiler: set CXX, or pip install ziglang"
    version = subprocess.run([*COMPILER, "--version"], capture_output=True, check=True).stdout
    clang = b"clang" in version
    words = (*COMPILER, *FLAGS, *NO_REUSE[clang])
    read = (path.read_bytes() for path in (*HEADERS, *SOURCES))
    parts = [*map(str.encode, (*words, PROGRAM, LIBRARY)), version, *read]
    return Toolchain(words, clang, hashlib.sha256(b"\0".join(parts)).hexdigest())


def make(words: list[str], result: Path) -> None:
    """Run the compiler; the result appears whole, however many processes make it at once."""
    with tempfile.TemporaryDirectory(dir=kept()) as folder:
        made = Path(folder) / "made"
        command = [*compiler().words, *words, "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        made.replace(result)


@cache
def header() -> Path:
    """The header, translated once for all programs; a compiler includes it by its plain name."""
    folder = kept() / compiler().digest[:32]
    folder.mkdir(exist_ok=True)
    path = folder / "device.h"
    # GCC looks for .gch, Clang for .pch, both beside the file that -include names.
    translated = path.with_name("device.h.pch" if compiler().clang else "device.h.gch")
    if not translated.exists():
        with tempfile.TemporaryDirectory(dir=kept()) as scratch:
            for each in HEADERS:  # with their times: Clang compares those with a .pch's
                shutil.copy2(each, scratch)
                Path(scratch, each.name).replace(folder / each.name)
        make([PROGRAM, "-x", "c++-header", str(path)], translated)
    return path


@cache
def library() -> Path:
    """What is no template of the emulation, compiled once for all programs."""
    path = header().with_name("library.o")
    if not path.exists():
        make([LIBRARY, "-c", str(EMULATOR / "library.cc")], path)
    return path


def program(text: str) -> Path:
    """The host program of a text, compiled unless its like was before."""
    digest = hashlib.sha256(f"{compiler().digest}\n{text}".encode()).hexdigest()
    path = kept() / f"{digest[:32]}.program"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "kernel.cc"
            written.write_text(text)
            make([PROGRAM, "-include", str(header()), str(written), str(library())], path)
    return path
