"""The wheel and the source distribution: what they hold, and that an installed wheel works."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import tawa

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    return wheel, source


def test_the_wheel_holds_the_package_alone(built):
    names = zipfile.ZipFile(built[0]).namelist()
    info = f"tawa-{tawa.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"tawa", info}
    tracked = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("tawa/")} == tracked
    assert f"{info}/licenses/LICENSE" in names


def test_the_metadata_is_complete(built):
    archive = zipfile.ZipFile(built[0])
    text = archive.read(f"tawa-{tawa.__version__}.dist-info/METADATA").decode()
    metadata = Parser().parsestr(text)
    for key in ("Author", "Keywords", "License-Expression", "Requires-Python", "Summary"):
        assert metadata[key], key
    assert any(each.startswith("Typing ::") for each in metadata.get_all("Classifier"))
    assert len(metadata.get_all("Project-URL")) == 5
    assert metadata.get_payload() == (ROOT / "README.md").read_text()


def test_an_installed_wheel_compiles_and_runs_a_kernel(built, tmp_path):
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run(
        [*install, "--target", str(tmp_path / "site"), str(built[0])], check=True, timeout=120
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np, tawa, tawa.language as tl\n"
        "@tawa.jit\n"
        "def double(x, N: tl.constexpr):\n"
        "    at = x + tl.arange(0, N)\n"
        "    tl.store(at, tl.load(at) * 2)\n"
        "x = np.arange(8, dtype=np.float32)\n"
        "double[1,](x, N=8)\n"
        "print(tawa.__file__, x.sum())\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "site"),
        "TAWA_CACHE_DIR": str(tmp_path / "cache"),
    }
    run = [sys.executable, str(program)]
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=environment)
    where, total = done.stdout.split()
    assert Path(where).is_relative_to(tmp_path / "site")
    assert float(total) == 56


def test_the_source_distribution_builds_the_same_package(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    contents = [
        {entry.filename: entry.CRC for entry in zipfile.ZipFile(path).infolist()}
        for path in (built[0], wheel)
    ]
    assert contents[0] == contents[1]
    assert (tree / "tests" / "test_packaging.py").exists()


def test_the_package_works_from_a_zip(built, tmp_path):
    """A wheel is one: the first compile, a library call, and a second process, from the disk."""
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np, tawa, tawa.language as tl\n"
        "from tawa.kernels.matmul import matmul\n"
        "@tawa.jit\n"
        "def draw(x, N: tl.constexpr):\n"
        "    tl.store(x + tl.arange(0, N), tl.rand(0, tl.arange(0, N)))\n"
        "x = np.zeros(8, np.float32)\n"
        "draw[1,](x, N=8)\n"
        "a = np.ones((64, 64), np.float16)\n"
        "print(tawa.__file__, (x > 0).all(), matmul(a, a)[0, 0])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(built[0]), "TAWA_CACHE_DIR": str(tmp_path / "c")}
    for _ in range(2):
        run = [sys.executable, str(program)]
        done = subprocess.run(run, check=True, capture_output=True, text=True, env=environment)
        assert done.stdout.split() == [f"{built[0]}/tawa/__init__.py", "True", "64.0"]
