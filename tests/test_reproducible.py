"""A kernel compiles to one text, whatever addresses its objects have: builds can be compared."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from proof_kernels import KERNELS
from tawa.codegen.generate import generate

NAMES = ("attention bias", "library split_once 0", "gradients in turns")
PRINT = """
import sys
held = [bytearray(64 + at % 7000) for at in range(1999)]
from test_reproducible import digests
print(*digests(), sep="\\n")
"""


def digests() -> list[str]:
    """Of each kernel's text, compiled here."""
    return [hashlib.sha256(generate(KERNELS[name]()).text.encode()).hexdigest() for name in NAMES]


def test_the_text_does_not_depend_on_addresses() -> None:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.getenv("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", PRINT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == digests()
