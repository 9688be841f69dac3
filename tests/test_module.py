"""`python -m tawa` is the command line."""

import subprocess
import sys

from tawa import __version__


def test_the_package_runs_as_a_module():
    ran = subprocess.run(
        [sys.executable, "-m", "tawa", "--version"], capture_output=True, text=True, check=True
    )
    assert __version__ in ran.stdout
