"""What happens around a compiler: many processes at once, folders that fail, files that lie, faults
in the middle of tuning, launches in graph captures, threads.
"""

from __future__ import annotations

import ast
import ctypes
import errno
import gc
import os
import struct
import subprocess
import sys
import textwrap
import time
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest

import tawa
import tawa.language as tl
from in_threads import together
from proof_kernels import KERNELS
from runtime_fakes import (
    FakeCompiler,
    FakeDriver,
    GpuArray,
    install,
    parameters_of,
    sample_kernel,
)
from tawa.codegen import generate
from tawa.codegen.parameters import CounterParameter
from tawa.errors import LaunchError
from tawa.frontend.signature import PointerArg
from tawa.plan.pins import Pins
from tawa.runtime import cubins, dispatch, nvrtc
from tawa.runtime import jit as jit_module
from tawa.runtime.build import Request, build
from tawa.runtime.codec import encode
from tawa.runtime.driver import Driver
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore, cache_folder, store_at
from tawa.simulator.proof import prove
from tawa.target import H200

SOURCE = Path(tawa.__file__).parent
DOUBLE = """
    import sys
    import time
    import numpy as np
    import tawa
    from tawa.tools.samples import double

    while time.time() < float(sys.argv[1]):  # all begin at once
        pass
    x = np.arange(64, dtype=np.float32)
    out = np.empty_like(x)
    kernel = double[(1,)](x, out, COUNT=64)
    assert (out == 2 * x).all()
    import hashlib
    stage = "cubin" if "cubin" in kernel.asm else "cuda"
    data = kernel.asm[stage]
    print(hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest())
"""


def processes(program: str, count: int, folder: Path, *arguments: str) -> list[str]:
    """Run `count` processes of a program at once; return what each printed."""
    environment = {**os.environ, "TAWA_CACHE_DIR": str(folder), "PYTHONPATH": str(SOURCE.parent)}
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
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


# --- the disk cache -----------------------------------------------------------------------------


def test_eight_processes_compile_one_kernel_at_once(tmp_path):
    """All get the same kernel, the folder one whole file a key, and a ninth compiles nothing."""
    digests = processes(DOUBLE, 8, tmp_path, str(time.time() + 2))
    assert len(set(digests)) == 1
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kept = 2 if nvrtc.is_available() else 1  # the kernel, and its cubin by the text
    assert len(files) == kept
    (again,) = processes(DOUBLE, 1, tmp_path, "0")
    assert again == digests[0]
    assert sorted(files) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


HAMMER = """
    import hashlib
    import os
    import sys
    from pathlib import Path
    from tawa.runtime.store import DiskStore

    store = DiskStore(Path(os.environ["TAWA_CACHE_DIR"]))
    missed = 0
    for round in range(150):
        body = os.urandom(20_000)
        store.put("key", hashlib.sha256(body).digest() + body)
        found = store.get("key")
        missed += found is None
        assert found is None or hashlib.sha256(found[32:]).digest() == found[:32]
    print(missed)
"""


def test_eight_processes_write_one_key_at_once(tmp_path):
    """A reader always finds a file, and all of what somebody wrote."""
    assert processes(HAMMER, 8, tmp_path) == ["0"] * 8
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def kernel(x, n):
    return x + n


def request(**changes):
    facts = {"signature": {"x": PointerArg("f32")}, "text": "text", **changes}
    return Request(kernel, facts["text"], facts["signature"], {}, Pins(), H200)


def test_the_file_of_another_key_is_rebuilt(tmp_path):
    """A file copied to another name is whole, and yet not what is asked for."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    mine, other = request(), request(text="another kernel")
    build(other, compiler, store)
    path = store.path(mine.disk_key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(store.path(other.disk_key).read_bytes())
    build(mine, compiler, store)
    assert len(compiler.requests) == 2
    build(mine, compiler, store)
    assert len(compiler.requests) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
@pytest.mark.parametrize("kind", ["folder", "pipe", "endless", "loop", "vast"])
@pytest.mark.timeout(60)
def test_what_is_no_plain_file_is_not_read(tmp_path, kind):
    """A pipe would be waited for, a device read for ever; the rest of the folder still serves."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)
    path = store.path(request().disk_key)
    path.unlink()
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case "vast":  # no bytes on disk, and more than there is memory
            path.touch()
            os.truncate(path, 1 << 40)
    opened = len(os.listdir("/dev/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(request(), compiler, store)
    assert len(compiler.requests) == 2
    assert len(os.listdir("/dev/fd")) == opened
    build(request(text="another"), compiler, store)
    assert store.get(request(text="another").disk_key) is not None


@pytest.mark.parametrize("at", [0, 5, 31, 32, 40, 400, -1])
def test_any_damaged_byte_is_found(tmp_path, at):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)
    path = store.path(request().disk_key)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)
    build(request(), compiler, store)
    assert len(compiler.requests) == 2
    assert store.get(request().disk_key) is not None


@pytest.mark.parametrize("kept", range(0, 5000, 499))
def test_a_file_cut_anywhere_is_rebuilt(tmp_path, kept):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)
    path = store.path(request().disk_key)
    path.write_bytes(path.read_bytes()[:kept])
    build(request(), compiler, store)
    assert len(compiler.requests) == 1 + (kept < len(path.read_bytes()))


def test_a_kernel_of_another_compiler_is_rebuilt(tmp_path):
    """Whole, of this key, and not what this version's classes can hold."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    data = encode(sample_kernel(signature=request().signature))
    changed = data.replace(b'"class": "LaunchShape"', b'"class": "LaunchShaqe"')
    assert changed != data
    store.put(request().disk_key, changed)
    build(request(), compiler, store)
    assert len(compiler.requests) == 1


@pytest.mark.parametrize(
    "change",
    [
        (b'"name": "matmul"', b'"name": "f(): x"'),
        (b'"entry": "matmul"', b'"entry": "matmul;"'),
        (b'"cluster": 1', b'"cluster": "1 or exit()"'),
        (b'"threads": 384', b'"threads": [384]'),
    ],
    ids=str,
)
def test_what_a_launcher_spells_in_code_is_checked(tmp_path, change):
    """A file may hold no more than names and numbers where a launcher is generated from it."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    data = encode(sample_kernel(signature=request().signature))
    (size,) = struct.unpack_from("<I", data)
    head = data[4 : 4 + size].replace(*change)
    assert head != data[4 : 4 + size]
    store.put(request().disk_key, struct.pack("<I", len(head)) + head + data[4 + size :])
    build(request(), compiler, store)
    assert len(compiler.requests) == 1


def test_a_damaged_cubin_is_built_again(tmp_path, monkeypatch):
    built = []

    def fake(text, name, *, arch, strict=True):
        built.append(name)
        return nvrtc.Cubin(b"\x7fELF binary", "log", 40, 0, 0.1)

    monkeypatch.setattr(nvrtc, "build", fake)
    store = DiskStore(tmp_path)
    for damage in (
        lambda data: data,
        lambda data: data[:-3],
        lambda data: b"",
        lambda d: b"\0" * 99,
    ):
        assert cubins.build("text", store=store).data == b"\x7fELF binary"
        (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
        path.write_bytes(damage(path.read_bytes()))
    assert len(built) == 3  # the first, and each that was damaged since


def test_nothing_of_the_runtime_unpickles():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            unsafe = {"pickle", "marshal", "shelve", "dill", "cloudpickle"} & set(names)
            assert not unsafe, f"{path} imports {unsafe}"


# --- folders that cannot be written -------------------------------------------------------------


def scale(x_ptr, out_ptr, factor, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * factor)


def launch_twice(kernel):
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    for _ in range(2):
        kernel[(1,)](x, out, 3.0, N=32)
    np.testing.assert_array_equal(out, 3 * x)


@pytest.mark.skipif(os.name != "posix", reason="needs /dev/full and modes of folders")
def test_a_folder_that_is_no_folder_is_told_once(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TAWA_CACHE_DIR", str(blocked / "cache"))
    kernel = tawa.jit(scale)
    with pytest.warns(RuntimeWarning, match="kernels are kept in memory only") as seen:
        launch_twice(kernel)
    assert len([w for w in seen if "cache folder" in str(w.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch_twice(tawa.jit(scale))  # another kernel, the same folder: told already


@pytest.mark.parametrize("step", ["write", "replace", "mkdir"])
def test_a_full_disk_leaves_kernels_in_memory(monkeypatch, tmp_path, step):
    """ENOSPC at any step: a warning, no draft left behind, and the kernel is compiled once."""
    store, compiler = DiskStore(tmp_path), FakeCompiler()

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = {"write": "os.fdopen", "replace": "os.replace", "mkdir": "pathlib.Path.mkdir"}[step]
    monkeypatch.setattr(target, full)
    jit = JitFunction(kernel, compiler=compiler, store=store)
    with pytest.warns(RuntimeWarning, match="cannot be written .No space left on device"):
        jit.compile(tawa.array((4,), "f32"), 4)
    monkeypatch.undo()
    jit.compile(tawa.array((4,), "f32"), 4)
    assert len(compiler.requests) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_that_can_only_be_read_still_serves(monkeypatch, tmp_path):
    store, compiler = DiskStore(tmp_path), FakeCompiler()
    build(request(), compiler, store)

    def refuse(*arguments, **options):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    opened = os.open

    def only_read(path, flags, *mode, **options):
        return (refuse if flags & os.O_WRONLY else opened)(path, flags, *mode, **options)

    monkeypatch.setattr("os.open", only_read)
    for name in ("os.utime", "pathlib.Path.unlink"):
        monkeypatch.setattr(name, refuse)
    build(request(), compiler, DiskStore(tmp_path))
    assert len(compiler.requests) == 1


def test_an_empty_name_is_no_folder(monkeypatch, tmp_path):
    """It would be the working folder."""
    monkeypatch.setenv("TAWA_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "tawa"


def test_a_user_without_a_home(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TAWA_CACHE_DIR", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.warns(RuntimeWarning, match="Set TAWA_CACHE_DIR to a folder that can"):
        DiskStore(cache_folder()).put("a", b"content")


def test_drafts_of_killed_processes_go(tmp_path):
    store = DiskStore(tmp_path)
    store.put("a", b"content")
    folder = store.path("a").parent
    old, young = folder / ".draft-00", folder / ".draft-11"
    for draft in (old, young):
        draft.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    store.sweep()
    assert not old.exists()
    assert young.exists()
    assert store.get("a") == b"content"


def test_one_store_for_each_folder(tmp_path):
    assert store_at(tmp_path) is store_at(tmp_path)


# --- the driver ---------------------------------------------------------------------------------


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver(parameters=3)
    install(monkeypatch, fake)
    return fake


def tuned(monkeypatch, tmp_path, time_run):
    from tawa.runtime import autotune

    monkeypatch.setattr(autotune.Timer, "time", time_run)
    jit = JitFunction(kernel, compiler=FakeCompiler(), store=DiskStore(tmp_path))
    configs = [tawa.Config({}, num_warps=warps) for warps in (4, 8)]
    return autotune.Autotuner(jit, configs, ["n"], store=DiskStore(tmp_path))


def test_tuning_inside_a_capture_is_refused(driver, monkeypatch, tmp_path):
    kernel = tuned(monkeypatch, tmp_path, lambda self, run: [1.0])
    driver.capturing = True
    with pytest.raises(LaunchError, match="the tuning of kernel is inside a CUDA graph") as caught:
        kernel[(1,)](GpuArray((4,)), 4)
    assert caught.value.why == "timing a kernel cannot be captured"
    assert driver.launches == []
    driver.capturing = False
    kernel[(1,)](GpuArray((4,)), 4)
    driver.capturing = True
    kernel[(1,)](GpuArray((4,)), 4)  # known by now
    assert len(driver.launches) == 2


def test_a_lost_gpu_ends_tuning(driver, monkeypatch, tmp_path):
    """The other configurations would only repeat the error of the one at fault."""
    runs = []

    def time_run(self, run):
        runs.append(1)
        driver.error = 700
        run()

    with pytest.raises(LaunchError) as caught:
        tuned(monkeypatch, tmp_path, time_run)[(1,)](GpuArray((4,)), 4)
    assert caught.value.lost
    assert len(runs) == 1


def test_a_fault_that_torch_reports_names_the_configuration(driver, monkeypatch, tmp_path):
    def time_run(self, run):
        run()
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access") as caught:
        tuned(monkeypatch, tmp_path, time_run)[(1,)](GpuArray((4,)), 4)
    assert caught.value.__notes__ == ["while kernel was timed with num_warps=4"]


def test_the_legacy_stream_beside_a_capture(monkeypatch):
    """The driver answers 906 when asked of stream 0 while another stream is captured."""

    answer = [0, 0]  # the error, and whether the stream is captured

    def asked(stream: int, status: int) -> int:
        ctypes.c_int.from_address(status).value = answer[1]
        return answer[0]

    driver = object.__new__(Driver)
    driver._capturing = asked
    monkeypatch.setattr(Driver, "describe", lambda self, code: f"error {code}")
    assert not driver.is_capturing(0)
    answer[:] = 0, 1
    assert driver.is_capturing(7)
    answer[:] = 906, 0
    assert driver.is_capturing(0)
    answer[:] = 400, 0
    with pytest.raises(LaunchError, match="cuStreamIsCapturing failed: error 400"):
        driver.is_capturing(7)


def test_a_kernel_that_does_not_load_is_named(driver, monkeypatch, tmp_path):
    def refuse(*arguments):
        raise LaunchError("cuLibraryLoadData failed: out of memory")

    monkeypatch.setattr(dispatch, "LoadedKernel", refuse)
    jit = JitFunction(kernel, compiler=FakeCompiler(), store=DiskStore(tmp_path))
    what = "kernel cannot be loaded on cuda:0: cuLibraryLoadData failed: out of memory"
    with pytest.raises(LaunchError, match=what):
        jit[(1,)](GpuArray((4,)), 4)


# --- threads ------------------------------------------------------------------------------------


def test_each_launch_hands_over_its_own_arguments(driver, tmp_path):
    """Threads share a launcher and its block of parameters: no launch sees another's values."""
    jit = JitFunction(kernel, compiler=FakeCompiler(), store=DiskStore(tmp_path))

    def work(index):
        for turn in range(100):
            n = 1000 * (index + 1) + turn
            jit[(n,)](GpuArray((4,), address=n << 20), n)

    sys.setswitchinterval(1e-5)
    try:
        together(4, work)
    finally:
        sys.setswitchinterval(5e-3)
    seen = set()
    for launch in driver.launches:
        (address, n), grid = (int.from_bytes(v, "little") for v in launch.values[:2]), launch.grid
        assert address == n << 20
        assert grid == (n, 1, 1)
        seen.add(n)
    assert len(seen) == len(driver.launches) == 400


def test_threads_compile_for_several_signatures_at_once(driver, tmp_path):
    compiler = FakeCompiler()
    jit = JitFunction(kernel, compiler=compiler, store=DiskStore(tmp_path))
    types = ("float32", "float16", "int32", "bfloat16")

    def work(index):
        for turn in range(40):
            jit[(1,)](GpuArray((4,), types[(index + turn) % 4]), 4)

    together(8, work)
    assert len(compiler.requests) == 4
    assert len(driver.launches) == 320


def test_threads_launch_in_the_simulator(tmp_path):
    jit = JitFunction(scale, store=DiskStore(tmp_path))

    def work(index):
        x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
        for turn in range(5):
            jit[(1,)](x, out, float(index + turn), N=32)
            np.testing.assert_array_equal(out, x * (index + turn))

    together(4, work)


def test_threads_compile_different_kernels_at_once():
    """Nothing of one compilation shows in another: texts and steps are those of one alone."""
    names = ("codegen matmul_nn", "copies gather", "turns attention fine", "shape load under an if")

    def made(name):
        kernel = KERNELS[name]()
        return str(kernel), generate(kernel).text, prove(kernel, H200).states

    alone = {name: made(name) for name in names}

    def work(index):
        for turn in range(len(names)):
            name = names[(index + turn) % len(names)]
            assert made(name) == alone[name], name

    sys.setswitchinterval(1e-5)
    try:
        together(len(names), work)
    finally:
        sys.setswitchinterval(5e-3)


def test_threads_wait_for_a_compilation_that_fails(driver, tmp_path):
    """Each gets the error, and the next call compiles again."""
    attempts = []

    def fails(request):
        attempts.append(1)
        time.sleep(0.05)
        raise LaunchError("no")

    jit = JitFunction(kernel, compiler=FakeCompiler(make=fails), store=DiskStore(tmp_path))

    def work(index):
        with pytest.raises(LaunchError, match="no"):
            jit[(1,)](GpuArray((4,)), 4)

    together(4, work)
    before = len(attempts)
    work(0)
    assert len(attempts) == before + 1


def asking(request):
    """A kernel whose blocks ask for their programs, by a counter of the launch."""
    parameters = (*parameters_of(request.signature), CounterParameter())
    return sample_kernel(parameters, signature=request.signature)


def test_launchers_of_one_kernel_share_its_counters(driver, monkeypatch, tmp_path):
    """Two forms of a call (a subclass of the array) have a launcher each, and one kernel: launches
    on two streams must not count on one counter.
    """

    class Subclass(GpuArray):
        pass

    jit = JitFunction(kernel, compiler=FakeCompiler(make=asking), store=DiskStore(tmp_path))
    streams = iter((5, 6, 5, 6))
    monkeypatch.setattr(jit_module, "current_stream", lambda values: lambda device: current[0])
    current = [0]
    used = []
    for array in (GpuArray, Subclass, GpuArray, Subclass):
        current[0] = next(streams)
        jit[(1,)](array((4,)), 4)
        used.append((driver.launches[-1].stream, driver.launches[-1].values[-1]))
    assert used[0] == used[2]
    assert used[1] == used[3]
    assert used[0][1] != used[1][1]


@pytest.mark.parametrize("form", ["array", "descriptor"])
@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_what_is_launched_is_not_kept_alive(driver, tmp_path, form, where):
    """A launcher outlives the call that made it, and must not hold its arrays."""

    class Held(np.ndarray):
        pass

    @tawa.jit
    def step(x, n):
        if n > 3:
            tl.store(x + tl.arange(0, 4), 1.0)

    @tawa.jit
    def block(x, n):
        x.store([0], tl.zeros((16,), tl.float32))

    fn = (step if form == "array" else block).fn
    made = {"compiler": FakeCompiler(), "store": DiskStore(tmp_path)} if where == "gpu" else {}
    jit = JitFunction(fn, **made)
    array = GpuArray((64,)) if where == "gpu" else np.zeros(64, np.float32).view(Held)
    driver.parameters = 1
    alive = weakref.ref(array)
    for _ in range(2):
        given = array if form == "array" else tawa.TensorDescriptor.from_tensor(array, [16])
        jit[(1,)](given, 5)
    del array, given
    gc.collect()
    assert alive() is None


FORK = """
    import os
    import signal
    import threading
    import numpy as np
    import tawa
    from tawa.runtime import jit
    from tawa.runtime.build import default_compiler
    from tawa.tools.samples import double

    x = np.arange(64, dtype=np.float32)
    begun, go_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def slow(*arguments, **options):
        if os.getpid() == parent:
            begun.set()
            go_on.wait()
        return default_compiler(*arguments, **options)

    jit.default_compiler = slow

    def launch():
        out = np.empty_like(x)
        kernel = double[(1,)](x, out, COUNT=64)
        assert (out == 2 * x).all()
        return kernel

    threading.Thread(target=launch).start()
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends it where it waits
        kernel = launch()
        held = threading.Thread(target=kernel.asm._lock.__enter__)
        held.start()
        held.join()
        grandchild = os.fork()
        if grandchild == 0:
            signal.alarm(60)
            os._exit("double" not in kernel.asm["hopper"])
        os._exit(os.waitpid(grandchild, 0)[1] != 0)
    print(os.waitpid(child, 0)[1])
    go_on.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_process_forked_off_waits_for_no_thread_of_its_parent(tmp_path):
    """The parent's thread compiles, or reads a stage, and is not there in the child."""
    assert processes(FORK, 1, tmp_path) == ["0"]
