"""A kernel compiles to one text, whatever addresses its objects have: builds can be compared."""

from __future__ import annotations

import subprocess
import sys

PRINT = """
import hashlib, sys
held = [bytearray(64 + at % 7000) for at in range(int(sys.argv[1]))]
from proof_kernels import KERNELS
from tawa.codegen import generate
for name in ("attention bias", "library split_once 0"):
    kernel = KERNELS[name]()
    print(name, hashlib.sha256(generate(kernel).text.encode()).hexdigest())
"""


def test_the_text_does_not_depend_on_addresses() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINT, str(held)], capture_output=True, text=True, check=True
        ).stdout
        for held in (0, 1999)
    }
    assert len(found) == 1
