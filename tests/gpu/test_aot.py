"""Programs without Python on the GPU: the examples of `tawa build`, compiled there, beside NumPy.

Needs a C++ compiler, a Hopper GPU and its driver; skipped elsewhere. Where the CUDA toolkit's
`cuda.h` is not installed, the tests' own declarations of the driver stand in for it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import aot_kernels
from aot_kernels import AOT, run
from tawa.errors import TawaError
from tawa.runtime.driver import connect
from tawa.tools.aot.build import build
from tawa.tools.arguments import read_arguments

CXX = shutil.which("g++") or shutil.which("c++")


def has_hopper() -> bool:
    try:
        connect().target(0)
    except TawaError:
        return False
    return True


pytestmark = pytest.mark.skipif(CXX is None or not has_hopper(), reason="needs a Hopper GPU, g++")


def make(folder: Path, name: str, texts: str) -> None:
    """Build a kernel's example with g++, linked with the driver itself."""
    build(getattr(aot_kernels, name), read_arguments(texts.split()), folder)
    driver = next(
        path
        for place in (
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib64",
            "/usr/local/nvidia/lib64",
            "/usr/lib",
        )
        for path in (Path(place) / "libcuda.so.1",)
        if path.exists()
    )
    assert CXX is not None
    words = [CXX, "-std=c++17", "-O1", "-Wall", "-Werror", "-I.", *include(folder)]
    run([*words, f"{name}.c", f"{name}_example.cc", str(driver), "-o", "example"], folder)


def include(folder: Path) -> list[str]:
    if Path("/usr/local/cuda/include/cuda.h").exists():
        return ["-I/usr/local/cuda/include"]
    shutil.copy(AOT / "cuda.h", folder)
    return []


def files(folder: Path, **arrays: np.ndarray) -> list[str]:
    for name, array in arrays.items():
        array.tofile(folder / name)
    return [f"{name}={name}" for name in arrays]


def test_a_sum_of_vectors(tmp_path) -> None:
    make(tmp_path, "add", "x=f32[1000] y=f32[1000] out=f32[1000] n=1000 BLOCK=256")
    x, y = np.random.default_rng(0).standard_normal((2, 1000), np.float32)
    out = np.full(1000, np.nan, np.float32)
    run(["./example", "4", *files(tmp_path, x=x, y=y, out=out)], tmp_path)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out", np.float32), x + y)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("product", ""),
        ("product_clustered", "cluster=2 persistent=False"),
        ("product_taken", "walk='dynamic'"),
    ],
)
def test_products(tmp_path, name, how) -> None:
    """Persistent, clustered, and with a counter; small integers, so that the sums are exact."""
    m, n, k = 2048, 1024, 256
    texts = f"a_desc=f16[{m},{k}]:128x64 b_desc=f16[{k},{n}]:64x128 c_desc=f16[{m},{n}]:128x128"
    make(tmp_path, name, f"{texts} BM=128 BN=128 BK=64 K={k} {how}")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float16)
    words = files(tmp_path, a_desc=a, b_desc=b, c_desc=c)
    run(["./example", str(m // 128), str(n // 128), *words], tmp_path)
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    got = np.fromfile(tmp_path / "c_desc", np.float16).reshape(m, n)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("bounds", [(3, 30, 5), (30, 3, -5)])
def test_loops_of_either_sign(tmp_path, bounds) -> None:
    """Where the step is negative a guard fails, and the ordinary kernel runs."""
    start, end, step = bounds
    make(tmp_path, "counted", f"out=i32[64] start={start} end={end} step={step} times=1")
    out = np.full(64, 99, np.int32)
    run(["./example", "1", *files(tmp_path, out=out)], tmp_path)
    wanted = list(range(*bounds))
    got = np.fromfile(tmp_path / "out", np.int32)
    assert got[: len(wanted)].tolist() == wanted
    assert (got[len(wanted) :] == 99).all()
