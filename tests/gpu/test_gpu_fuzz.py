"""Random kernels on the GPU give the oracle's bits: some of any run, all that once did not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)

TESTS = Path(__file__).resolve().parents[1]
ONCE_WRONG = (20219, 20368, 20441, 20485, 20488, 20623, 20679)
"""Two faults: stores that wrote whole 16 bytes, and rows of a swizzled tile (see CHANGELOG.md)."""


def test_random_kernels_are_right(tmp_path) -> None:
    command = [sys.executable, str(TESTS / "fuzz_gpu.py"), "--work", str(tmp_path)]
    command += ["--kernels", ",".join(map(str, ONCE_WRONG)), "--first", "60000", "--count", "40"]
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [*command, "--seconds", "120", "--patience", "120"],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
