"""Launches on the GPU: results, streams, graphs, descriptors, threads, failures.

Needs torch with CUDA and a Hopper GPU; skipped elsewhere.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tawa
import tawa.language as tl
import test_ask_bounds as bounds
from in_threads import together
from tawa.codegen.parameters import TensorMapParameter
from tawa.errors import ArgumentError, DescriptorError, LaunchError
from tawa.layouts.windows import Window
from tawa.runtime.driver import connect
from tawa.runtime.tensor_map import describe, encode, moved

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)


@tawa.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@tawa.jit
def scale(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)


@tawa.jit
def matmul(
    a_desc, b_desc, c_desc, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    m = tl.program_id(0) * BLOCK_M
    n = tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(tl.bfloat16))


def random(*shape, dtype=None):
    return torch.randn(*shape, device="cuda").to(dtype or torch.float32)


def poisoned(*shape, dtype=None):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype or torch.float32)


def run_add(n, block=256, **options):
    x, y, out = random(n), random(n), poisoned(n)
    add[(tawa.cdiv(n, block),)](x, y, out, n, BLOCK=block, **options)
    return out, x + y


def run_matmul(m=256, n=256, k=192, **options):
    a, b = random(m, k, dtype=torch.bfloat16), random(k, n, dtype=torch.bfloat16)
    c = poisoned(m, n, dtype=torch.bfloat16)
    describe = tawa.TensorDescriptor.from_tensor
    matmul[(tawa.cdiv(m, 128), tawa.cdiv(n, 128))](
        describe(a, [128, 64]),
        describe(b, [64, 128]),
        describe(c, [128, 128]),
        k,
        BLOCK_M=128,
        BLOCK_N=128,
        BLOCK_K=64,
        **options,
    )
    return c.double(), a.double() @ b.double()


def error(got, expected):
    return ((got - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("n", [1, 255, 256, 100_003])
def test_pointers_with_tails(n):
    out, expected = run_add(n)
    torch.testing.assert_close(out, expected)


def test_unaligned_addresses():
    x, y, out = random(1025), random(1025), poisoned(1025)
    add[(4,)](x[1:], y[1:], out[1:], 1024, BLOCK=256)
    torch.testing.assert_close(out[1:], x[1:] + y[1:])
    assert out[0].isnan()


@pytest.mark.parametrize("value", [2.5, 3, 1, True])
def test_scalars(value):
    x, out = random(512), poisoned(512)
    scale[(2,)](x, out, value, 512, BLOCK=256)
    torch.testing.assert_close(out, x * value)


@pytest.mark.parametrize("shape", [(256, 256, 192), (200, 136, 72), (128, 128, 64)])
def test_descriptors(shape):
    assert error(*run_matmul(*shape)) < 8e-3


def test_new_addresses_and_shapes_get_new_maps():
    for size in (128, 384, 256, 128):
        assert error(*run_matmul(size, size, 128)) < 8e-3


WINDOW = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))


@pytest.mark.parametrize(
    ("box", "window", "shape"), [((64, 64), None, (512, 256)), ((128, 64), WINDOW, (2, 9, 9, 64))]
)
def test_a_moved_map_is_the_one_that_is_encoded_there(box, window, shape):
    parameter = TensorMapParameter("A", "bf16", box, 128, "zero", source="A", window=window)
    first, second = (torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    driver = connect()
    here, there = (
        encode(parameter, describe("A", each.data_ptr(), each.shape, each.stride()), driver)
        for each in (first, second)
    )
    assert here.content() != there.content()
    carried = moved(here, second.data_ptr(), driver.replace_address)
    assert carried.content() == there.content()


def test_a_descriptor_without_elements():
    a = torch.empty(256, 0, device="cuda", dtype=torch.bfloat16)
    b = torch.empty(0, 256, device="cuda", dtype=torch.bfloat16)
    c = poisoned(256, 256, dtype=torch.bfloat16)
    describe = tawa.TensorDescriptor
    matmul[(2, 2)](
        describe(a, [256, 0], [8, 1], [128, 64]),
        describe(b, [0, 256], [256, 1], [64, 128]),
        describe(c, [256, 256], [256, 1], [128, 128]),
        0,
        BLOCK_M=128,
        BLOCK_N=128,
        BLOCK_K=64,
    )
    assert (c == 0).all()


def test_the_current_stream_is_used():
    side = torch.cuda.Stream()
    x, y, out = random(1 << 20), random(1 << 20), poisoned(1 << 20)
    add[(1,)](x, y, out, 256, BLOCK=256)  # compiled here, not behind the sleep
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        add[(4096,)](x, y, out, 1 << 20, BLOCK=256)
        done = torch.cuda.Event()
        done.record()
    assert not done.query()  # behind the sleep of its own stream
    done.synchronize()
    torch.testing.assert_close(out, x + y)


def test_a_cuda_graph_replays_launches():
    x, y, out = random(4096), random(4096), poisoned(4096)
    add[(16,)](x, y, out, 4096, BLOCK=256)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add[(16,)](x, y, out, 4096, BLOCK=256)
    out.fill_(float("nan"))
    x.copy_(random(4096))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, x + y)


def test_a_cuda_graph_replays_descriptors():
    run_matmul()
    a = random(256, 256, dtype=torch.bfloat16)
    c = poisoned(256, 256, dtype=torch.bfloat16)
    describe = tawa.TensorDescriptor.from_tensor
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}

    def launch():
        descriptors = describe(a, [128, 64]), describe(a, [64, 128]), describe(c, [128, 128])
        matmul[(2, 2)](*descriptors, 256, **blocks)

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    c.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert error(c.double(), a.double() @ a.double()) < 8e-3


def test_the_first_launch_is_refused_in_a_capture():
    x, out = random(512), poisoned(512)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(LaunchError, match="inside a CUDA graph capture"),
        torch.cuda.graph(graph),
    ):
        scale[(2,)](x, out, 2.0, 512, BLOCK=128, num_warps=2)


def chain(steps, early, between):
    """Return what `steps` rounds leave of a row: each kernel reads what the one before wrote."""
    x = torch.arange(50_000, device="cuda", dtype=torch.float32)
    y = poisoned(50_000)
    for _ in range(steps):
        scale[(196,)](x, y, 1.0009765625, 50_000, BLOCK=256, launch_pdl=early)
        between(y)
        add[(98,)](y, y, x, 50_000, BLOCK=512, launch_pdl=early)
        scale[(49,)](x, y, 0.5, 50_000, BLOCK=1024, launch_pdl=early)
        x, y = y, x
    return x


@pytest.mark.parametrize(
    "between", [lambda y: None, lambda y: y.add_(1)], ids=["ours alone", "with others"]
)
def test_launches_that_begin_early_keep_the_order(between):
    expected = chain(40, False, between)
    for _ in range(5):
        assert torch.equal(chain(40, True, between), expected)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        x = chain(40, True, between)
    for _ in range(5):
        x.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(x, expected)


@pytest.mark.parametrize("pins", [{}, {"cluster": 2}, {"arrangement": "pingpong"}])
def test_products_that_begin_early_keep_the_order(pins):
    describe = tawa.TensorDescriptor.from_tensor
    weight = random(512, 512, dtype=torch.bfloat16) / 512**0.5
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}

    def run(early):
        torch.manual_seed(7)
        x, y = random(1024, 512, dtype=torch.bfloat16), poisoned(1024, 512, dtype=torch.bfloat16)
        for _ in range(30):
            given = describe(x, [128, 64]), describe(weight, [64, 128]), describe(y, [128, 128])
            matmul[(8, 4)](*given, 512, **blocks, **pins, launch_pdl=early)
            x, y = y, x
        return x

    expected = run(False)
    for _ in range(5):
        assert torch.equal(run(True), expected)


def test_threads_launch_at_once():
    failures = []

    def work(seed):
        torch.manual_seed(seed)
        for n in range(1000, 1100):
            out, expected = run_add(n)
            if not torch.equal(out, expected):
                failures.append((seed, n))

    together(4, work)
    assert failures == []


def test_overlapping_arguments_keep_the_order_of_the_program():
    x = random(1024)
    expected = x * 2
    scale[(4,)](x, x, 2.0, 1024, BLOCK=256)
    torch.testing.assert_close(x, expected)


def test_the_compiled_kernel_comes_back():
    out = poisoned(256)
    kernel = add[(1,)](random(256), random(256), out, 256, BLOCK=256)
    assert kernel.proof.ok
    assert "kernel add" in str(kernel)


def test_devices_are_checked():
    with pytest.raises(ArgumentError, match="y is on the CPU"):
        add[(1,)](random(256), torch.zeros(256), poisoned(256), 256, BLOCK=256)


def test_strides_are_checked():
    describe = tawa.TensorDescriptor.from_tensor
    a = describe(random(256, 65, dtype=torch.bfloat16), [128, 64])
    b = describe(random(64, 128, dtype=torch.bfloat16), [64, 128])
    c = describe(random(256, 128, dtype=torch.bfloat16), [128, 128])
    with pytest.raises(DescriptorError, match=r"a_desc: TMA needs strides .* got 130"):
        matmul[(2, 1)](a, b, c, 64, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64)


@pytest.mark.parametrize(("step", "programs"), [(256, 4), (1 << 28, 8), (1 << 28, 9)])
def test_numbers_that_wrap_run_the_plain_kernel(step, programs):
    given = {name: torch.from_numpy(each).cuda() for name, each in bounds.arrays(programs).items()}
    ran = bounds.points[(programs,)](*given.values(), programs * 256, STEP=step, BLOCK=256)
    assert bool(bounds.bounds_of(ran)) == (programs < 9)
    wanted = torch.from_numpy(bounds.expected(step, programs)).cuda()
    assert torch.equal(given["out"].long(), wanted)


def test_cpu_tensors_run_in_the_simulator():
    x, y, out = torch.randn(500), torch.randn(500), torch.full((500,), float("nan"))
    add[(2,)](x, y, out, 500, BLOCK=256)
    torch.testing.assert_close(out, x + y)


def test_autotune_times_on_the_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    configs = [tawa.Config({"BLOCK": block}, num_warps=4) for block in (128, 512, 1024)]
    tuned = tawa.autotune(configs, key=["n"], rep=5, warmup=1)(tawa.jit(add.fn))
    x, y, out = random(1 << 16), random(1 << 16), poisoned(1 << 16)
    tuned[lambda meta: (tawa.cdiv(meta["n"], meta["BLOCK"]),)](x, y, out, 1 << 16)
    torch.testing.assert_close(out, x + y)
    (tuning,) = tuned.tunings.values()
    assert len(tuning.times) == 3


def test_do_bench():
    x = random(1 << 22)
    median = tawa.testing.do_bench(lambda: x.add_(1), rep=20)
    assert 1e-3 < median < 10
    low, high = tawa.testing.do_bench(lambda: x.add_(1), rep=20, quantiles=(0.2, 0.8))
    assert low <= high


@pytest.mark.parametrize("context", ["its own", "no context"])
def test_a_process_without_torch(context):
    """The current device is asked by the function of CUDA 12, which takes no context."""
    command = [sys.executable, Path(__file__).parent.parent / "without_torch.py", context]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
