"""Programs that several processes run at once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import tawa

SOURCE = Path(tawa.__file__).parents[1]


def processes(program: str, count: int, folder: Path, *arguments: str) -> list[str]:
    """Run `count` processes of a program at once; return what each printed."""
    path = os.pathsep.join([str(SOURCE), *sys.path])
    environment = {**os.environ, "TAWA_CACHE_DIR": str(folder), "PYTHONPATH": path}
    # From Python 3.12 on, who forks a process with threads is warned: a test does so on purpose.
    quiet = ["-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *quiet, "-c", textwrap.dedent(program), *arguments]
    running = [
        subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(count)
    ]
    printed: list[str] = []
    for process in running:
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        assert not error
        printed.append(out.strip())
    return printed
