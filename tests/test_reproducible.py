"""A kernel compiles to one text, whatever addresses its objects have: builds can be compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PRINT = """
import hashlib, sys
held = [bytearray(64 + at % 7000) for at in range(int(sys.argv[1]))]
from proof_kernels import KERNELS
from tawa.codegen import generate
for name in ("attention bias", "library split_once 0", "gradients in turns"):
    kernel = KERNELS[name]()
    print(name, hashlib.sha256(generate(kernel).text.encode()).hexdigest())
"""


def test_the_text_does_not_depend_on_addresses() -> None:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.getenv("PYTHONPATH")])])

    def printed(held: int) -> str:
        command = [sys.executable, "-c", PRINT, str(held)]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert printed(0) == printed(1999)
