"""What only a GPU shows: faults named, launches captured into graphs, threads, processes.

Each fault loses a GPU context, so it happens in a process of its own. Needs torch with CUDA and a
Hopper GPU; skipped elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tawa
import tawa.language as tl
from in_threads import together
from tawa.errors import LaunchError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)

FAULT = """
import sys
import time
import torch
import tawa
import tawa.language as tl

@tawa.jit
def fill(x, value, far, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + far + at, value)

x = torch.empty(1024, device="cuda")
fill[(1,)](x, 1.0, 0, B=1024)
torch.cuda.synchronize()
how = sys.argv[1]
try:
    fill[(1,)](x, 2.0, 1 << 45, B=1024)  # far outside of any memory
    if how == "torch":
        torch.cuda.synchronize()
    for _ in range(6):  # eight launches are remembered; a busy GPU tells of a fault late
        time.sleep(2)
        fill[(3,)](x, 3.0, 0, B=1024)
except tawa.TawaError as error:
    print(type(error).__name__, error.lost)
    print(error)
except RuntimeError as error:
    print("torch:", str(error).splitlines()[0])
    print("\\n".join(tawa.testing.recent_launches()))
"""

COMPILE = """
import hashlib
import sys
import time
import torch
import tawa
import tawa.language as tl
from tawa.tools.samples import matmul

torch.cuda.init()
while time.time() < float(sys.argv[1]):
    pass
a, b = (torch.randn(256, 256, device="cuda", dtype=torch.float16) for _ in range(2))
c = torch.full((256, 256), float("nan"), device="cuda", dtype=torch.float16)
describe = tawa.TensorDescriptor.from_tensor
kernel = matmul[(2, 2)](
    describe(a, [128, 64]), describe(b, [64, 128]), describe(c, [128, 128]), 256, 128, 128, 64
)
expected = a.double() @ b.double()
assert ((c.double() - expected).norm() / expected.norm()).item() < 2e-3
print(hashlib.sha256(kernel.cubin).hexdigest())
"""


def start(program, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process):
    try:
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, error
    return out


def fault(tmp_path, how, **environment):
    """Run a kernel that writes where there is no memory; the program is a file, to be compiled."""
    path = tmp_path / "fault.py"
    path.write_text(FAULT)
    process = subprocess.Popen(
        [sys.executable, str(path), how],
        env={**os.environ, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return finish(process)


def test_a_fault_lists_what_was_launched(tmp_path):
    text = fault(tmp_path, "tawa")
    print(text)
    assert text.startswith("LaunchError True\n")
    assert "nothing more runs in this process. The latest launches, this one first:" in text
    assert f"far = {1 << 45}" in text


def test_a_fault_names_its_launch_where_launches_wait(tmp_path):
    text = fault(tmp_path, "tawa", CUDA_LAUNCH_BLOCKING="1")
    print(text)
    assert "fill failed on the GPU: CUDA_ERROR" in text
    assert f"far={1 << 45}" in text


def test_a_fault_that_torch_reports_can_be_looked_up(tmp_path):
    text = fault(tmp_path, "torch")
    print(text)
    assert text.startswith("torch: ")
    assert f"far = {1 << 45}" in text.splitlines()[1]


def test_eight_processes_compile_and_launch_at_once(tmp_path):
    (tmp_path / "program.py").write_text(COMPILE)
    begin = str(time.time() + 12)
    folder = {"TAWA_CACHE_DIR": str(tmp_path / "cache")}
    running = [start(COMPILE, begin, **folder) for _ in range(8)]
    digests = [finish(process) for process in running]
    assert len(set(digests)) == 1
    files = [path for path in Path(folder["TAWA_CACHE_DIR"]).rglob("*") if path.is_file()]
    assert len(files) == 2


@tawa.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(tl.bfloat16))


@tawa.jit
def shift(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def product(size):
    """Launch a persistent product on fresh matrices; return what gives its relative error."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.full((size, size), float("nan"), device="cuda", dtype=torch.bfloat16)
    describe = tawa.TensorDescriptor.from_tensor
    grid = (tawa.cdiv(size, 128), tawa.cdiv(size, 128))
    given = describe(a, [128, 64]), describe(b, [64, 128]), describe(c, [128, 128])

    def launch():
        matmul[grid](*given, size, BM=128, BN=128, BK=64)

    def error():
        expected = a.double() @ b.double()
        return ((c.double() - expected).norm() / expected.norm()).item()

    return launch, error, (a, b, c)


def test_a_graph_replays_a_specialized_kernel():
    launch, error, (a, _, c) = product(1024)
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            launch()
    for _ in range(3):
        a.normal_()
        c.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert error() < 8e-3


def test_a_refused_capture_leaves_all_in_order():
    """A kernel that is new, one that is tuned, and the ordinary kernel behind a guard."""
    x = torch.randn(4096, device="cuda")
    out = torch.empty_like(x)
    tuned = tawa.autotune([tawa.Config({"B": b}) for b in (256, 512)], key=["n"])(
        tawa.jit(shift.fn)
    )
    for kernel, options in ((shift, {"B": 128}), (tuned, {})):
        graph = torch.cuda.CUDAGraph()
        with (
            pytest.raises(LaunchError, match="inside a CUDA graph capture"),
            torch.cuda.graph(graph),
        ):
            kernel[(32,)](x, out, 4096, **options)
        kernel[(32,)](x, out, 4096, **options)
        torch.cuda.synchronize()
        torch.testing.assert_close(out, x + 1)
        out.fill_(0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel[(32,)](x, out, 4096, **options)
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(out, x + 1)


def test_threads_share_a_kernel_that_is_new():
    """Eight threads, each with a stream, matrices and sizes of its own; half begin uncompiled."""
    failures = []

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(20):
                launch, error, _ = product(128 * (1 + (index + turn) % 5))
                launch()
                torch.cuda.current_stream().synchronize()
                if not error() < 8e-3:
                    failures.append((index, turn, error()))

    together(8, work)
    assert failures == []
