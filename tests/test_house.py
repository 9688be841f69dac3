"""The path of a compile stays as short as it is: what a reader of it has to read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from house import ROOT

PATH = (18_800, 215)
"""Lines, and files, that the demo's product enters: the figures reached, and a little."""


def test_the_path_of_a_compile_gets_no_longer(tmp_path: Path) -> None:
    ask = "import json, house; print(json.dumps(house.path_of_a_compile()))"
    command = [sys.executable, "-c", ask]
    told = subprocess.run(
        command,
        cwd=ROOT / "tests",
        env=os.environ | {"TAWA_CACHE_DIR": str(tmp_path)},  # nothing comes from the disk
        capture_output=True,
        text=True,
        check=True,
    )
    lines, files = json.loads(told.stdout.splitlines()[-1])
    assert 1_000 < lines <= PATH[0]
    assert 50 < files <= PATH[1]
