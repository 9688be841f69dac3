"""The stages of a compiled kernel that are computed when asked for: PTX and SASS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tawa.errors import BuildError
from tawa.runtime.compiled import Assembly, Stage


def with_later(stages: Mapping[str, Stage]) -> Assembly:
    """Return the assembly of finished stages, with PTX and SASS to be made from them."""
    later: dict[str, Callable[[], Stage]] = {}
    source, cubin = stages.get("cuda"), stages.get("cubin")
    if isinstance(source, str) and "ptx" not in stages:
        later["ptx"] = partial(_ptx, source)
    if isinstance(cubin, bytes) and "sass" not in stages:
        later["sass"] = partial(disassemble, cubin)
    return Assembly(stages, later)


def _ptx(source: str) -> str:
    from tawa.runtime import nvrtc

    return nvrtc.ptx(source)


def disassemble(cubin: bytes) -> str:
    """Return the SASS of a cubin; BuildError where nvdisasm is not installed."""
    import subprocess
    import tempfile
    from pathlib import Path

    if (tool := find_nvdisasm()) is None:
        raise BuildError(
            "there is no nvdisasm to show SASS with",
            why="it comes with the package nvidia-cuda-nvdisasm or the CUDA toolkit",
            remedy="pip install 'tawa[sass]'",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        result = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True)
    if result.returncode != 0:
        raise BuildError("nvdisasm failed", why=result.stderr.strip())
    return result.stdout


def find_nvdisasm() -> str | None:
    """Return the path of nvdisasm: the pip package's, the toolkit's or the one in PATH."""
    import shutil

    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:
        return shutil.which("nvdisasm")
    return find_nvidia_binary_utility("nvdisasm") or shutil.which("nvdisasm")
