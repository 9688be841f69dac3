"""Every kernel form, type, tail and pin on the GPU against float64: the trials of right.py."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import right  # noqa: E402  (its folder is no package)


@pytest.mark.parametrize("group", sorted(right.GROUPS))
def test_group(group: str) -> None:
    # A process of its own: a fault on the device is sticky and would fail every test after it.
    command = [sys.executable, str(ROOT / "benchmarks" / "right.py"), "--group", group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
