"""Launching: what the driver gets, grids, tensor maps, guards, errors, stale globals."""

from __future__ import annotations

import struct

import pytest

import tawa
import tawa.runtime.dispatch as dispatch
from in_threads import together
from runtime_fakes import FakeCompiler, FakeDriver, GpuArray, install, parameters_of, sample_kernel
from tawa.codegen.parameters import (
    GridParameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from tawa.errors import (
    ArgumentError,
    DescriptorError,
    InternalError,
    LaunchError,
    PlanError,
)
from tawa.runtime.compiled import Guard, LaunchShape
from tawa.runtime.fingerprint import fingerprint
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore

BASE = 0x7F0000000000
FACTOR = 3


def scale(x, y, n, factor, BLOCK: tl.constexpr = 64):  # noqa: F821
    pass


def gemm(a, b, M, N):
    pass


def reads_factor(x, n):
    return x + n * FACTOR


@pytest.fixture
def driver(monkeypatch):
    driver = FakeDriver()
    install(monkeypatch, driver)
    return driver


@pytest.fixture
def make(driver, tmp_path):
    def build(function, compiler=None, parameters=None, **options):
        compiler = compiler or FakeCompiler()
        store = DiskStore(tmp_path / str(id(compiler)))
        driver.parameters = parameters if parameters is not None else 5
        return JitFunction(function, compiler=compiler, store=store, **options)

    return build


def unpack(letter, value):
    return struct.unpack_from("<" + letter, value)[0]


def test_values_are_packed_in_order(driver, make):
    kernel = make(scale)
    x, y = GpuArray((64,), address=BASE), GpuArray((64,), address=BASE + 256)
    kernel[(7, 2)](x, y, -5, 0.5)
    (launch,) = driver.launches
    assert launch.grid == (7, 2, 1)
    assert launch.threads == 128
    letters = "QQifi"
    assert [unpack(letter, value) for letter, value in zip(letters, launch.values)] == [
        BASE,
        BASE + 256,
        -5,
        0.5,
        7,
    ]


def test_the_same_form_is_compiled_once(driver, make):
    compiler = FakeCompiler()
    kernel = make(scale, compiler)
    for address in (BASE, BASE + 64, BASE + 4096):
        kernel[(1,)](GpuArray((64,), address=address), GpuArray((64,)), 48, 0.5)
    assert len(compiler.requests) == 1
    assert len(driver.launches) == 3
    kernel[(1,)](GpuArray((64,), address=BASE + 4), GpuArray((64,)), 48, 0.5)
    kernel[(1,)](GpuArray((64,)), GpuArray((64,)), 47, 0.5)
    kernel[(1,)](GpuArray((64,)), GpuArray((64,)), 1 << 40, 0.5)
    kernel[(1,)](GpuArray((64,)), GpuArray((64,)), 48, 0.5, BLOCK=32)
    kernel[(1,)](GpuArray((64,), "float16"), GpuArray((64,)), 48, 0.5)
    kernel[(1,)](GpuArray((64,)), GpuArray((64,)), 48, 0.5, num_warps=8)
    assert len(compiler.requests) == 7
    kernel[(1,)](GpuArray((64,)), GpuArray((64,)), 64, 2.5, num_warps=8, BLOCK=64)
    assert len(compiler.requests) == 7
    driver.parameters = 4
    kernel[(1,)](GpuArray((64,)), GpuArray((64,)), 1, 0.5)  # a constant: one parameter less
    assert len(compiler.requests) == 8


def test_a_grid_taken_before_the_first_launch_is_kept(driver, make, monkeypatch):
    kernel = make(scale)
    kept = kernel[(1,)]
    kept(GpuArray((64,)), GpuArray((64,)), 48, 0.5)
    monkeypatch.setattr(kernel, "_renew", lambda: pytest.fail("the text is read again"))
    kept(GpuArray((64,)), GpuArray((64,)), 48, 0.5)
    assert len(driver.launches) == 2


def test_unhashable_pins(driver, make):
    compiler = FakeCompiler()
    kernel = make(scale, compiler)
    for _ in range(2):
        kernel[(1,)](GpuArray((64,)), GpuArray((64,)), 48, 0.5, depth={"a": 4})
    assert len(compiler.requests) == 1
    assert len(driver.launches) == 2


@pytest.mark.parametrize(
    ("grid", "launched"),
    [
        ((5,), (5, 1, 1)),
        ([5, 6], (5, 6, 1)),
        (9, (9, 1, 1)),
        (lambda meta: (tawa.cdiv(meta["n"], meta["BLOCK"]), 2, 3), (2, 2, 3)),
        ((2**31 - 1, 65535, 65535), (2**31 - 1, 65535, 65535)),
    ],
)
def test_grids(driver, make, grid, launched):
    make(scale)[grid](GpuArray((64,)), GpuArray((64,)), 80, 0.5)
    assert driver.launches[0].grid == launched


@pytest.mark.parametrize("grid", [(0,), (4, 0), (0, 0, 0)])
def test_a_grid_of_no_programs_launches_nothing(driver, make, grid):
    make(scale)[grid](GpuArray((64,)), GpuArray((64,)), 80, 0.5)
    assert driver.launches == []


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        ((1, 2, 3, 4), r"the grid of scale is \(1, 2, 3, 4\)"),
        ((), r"the grid of scale is \(\)"),
        ("abc", "the grid of scale is 'abc'"),
        ((2.0,), "the extent 2.0, a float"),
        ((-1,), r"extent 0 may be 0 to 2147483647"),
        ((1, 65536), r"extent 1 may be 0 to 65535"),
        ((1, 1, 65536), r"extent 2 may be 0 to 65535"),
    ],
)
def test_bad_grids(driver, make, grid, text):
    with pytest.raises(ArgumentError, match=text):
        make(scale)[grid](GpuArray((64,)), GpuArray((64,)), 80, 0.5)
    assert driver.launches == []


def test_a_persistent_kernel_gets_a_block_a_multiprocessor(driver, make):
    kernel = make(scale, FakeCompiler(LaunchShape(128, 0, persistent=True)))
    arrays = GpuArray((64,)), GpuArray((64,))
    kernel[(1000, 60000)](*arrays, 80, 0.5)
    kernel[(5, 3)](*arrays, 80, 0.5)
    assert [launch.grid for launch in driver.launches] == [(132, 1, 1), (15, 1, 1)]
    assert unpack("i", driver.launches[0].values[4]) == 1000  # the user's extent
    kernel[((1 << 31) - 65536,)](*arrays, 80, 0.5)
    with pytest.raises(ArgumentError, match="has 2147418113 programs"):
        kernel[((1 << 31) - 65535,)](*arrays, 80, 0.5)
    with pytest.raises(ArgumentError, match="has 4294901760 programs"):
        kernel[(65536, 65535)](*arrays, 80, 0.5)
    with pytest.raises(ArgumentError, match="extent 1 may be 0 to 65535"):
        kernel[(1000, 65536)](*arrays, 80, 0.5)


def test_clusters(driver, make, monkeypatch):
    install(monkeypatch, driver, blocks=130)
    arrays = GpuArray((64,)), GpuArray((64,))
    kernel = make(scale, FakeCompiler(LaunchShape(128, 0, cluster=2, persistent=True)))
    kernel[(5,)](*arrays, 80, 0.5)
    kernel[(500,)](*arrays, 80, 0.5)
    assert [launch.grid for launch in driver.launches] == [(6, 1, 1), (130, 1, 1)]
    assert driver.launches[0].cluster == (4, 2, 1, 1)
    plain = make(scale, FakeCompiler(LaunchShape(128, 0, cluster=2)))
    plain[(4,)](*arrays, 16, 0.5)
    with pytest.raises(PlanError, match=r"grid of scale is \(5,\), and its cluster 2 blocks"):
        plain[(5,)](*arrays, 16, 0.5)


def descriptor(rows, columns, address=BASE):
    base = GpuArray((rows, columns), "bfloat16", address)
    return tawa.TensorDescriptor.from_tensor(base, [64, 64])


def test_tensor_maps_are_made_once_for_each_tensor(driver, make):
    kernel = make(gemm, parameters=5)
    a, b = descriptor(128, 256), descriptor(256, 64, BASE + 65536)
    for _ in range(3):
        kernel[(1,)](a, b, 128, 64)
    assert len(driver.encoded) == 2
    assert [launch.maps[:2] for launch in driver.launches] == [[b"\1" * 128, b"\2" * 128]] * 3
    a.shape = [64, 256]  # descriptors are mutable
    kernel[(1,)](a, b, 128, 64)
    assert len(driver.encoded) == 3
    assert driver.launches[-1].maps[0] == b"\3" * 128


def test_a_map_of_another_address_is_moved(driver, make):
    """What was checked holds there: but for the alignment, and for a smaller array."""
    kernel = make(gemm, parameters=5)
    b = descriptor(256, 64, BASE + 65536)
    for address in (BASE, BASE + 131072, BASE + 131072, BASE):
        kernel[(1,)](descriptor(128, 256, address), b, 128, 64)
    assert len(driver.encoded) == 2
    first, second, third, fourth = (launch.maps[0] for launch in driver.launches)
    assert (first, second) == (fourth, third)
    assert first != second
    assert driver.placed == [BASE, BASE + 65536, BASE + 131072]
    with pytest.raises(DescriptorError, match="8 bytes past one"):
        kernel[(1,)](descriptor(128, 256, BASE + 8), b, 128, 64)
    small = descriptor(64, 256, BASE + 131072 + 65536)
    small.shape = [128, 256]
    with pytest.raises(DescriptorError, match="the array has elements 0 to 16383"):
        kernel[(1,)](small, b, 128, 64)
    assert len(driver.launches) == 4


def test_a_descriptor_without_elements(driver, make):
    kernel = make(gemm, parameters=5)
    a = tawa.TensorDescriptor(GpuArray((128, 64), "bfloat16", 0), [128, 0], [1, 1], [64, 64])
    kernel[(1,)](a, descriptor(64, 64), 128, 64)
    assert driver.launches[0].maps[0] == bytes(128)


def test_a_bad_descriptor_is_refused_before_the_launch(driver, make):
    kernel = make(gemm, parameters=5)
    with pytest.raises(DescriptorError, match=r"a: TMA needs strides .* got 130 \(65 x bf16\)"):
        kernel[(1,)](descriptor(128, 65), descriptor(64, 64), 128, 64)
    assert driver.launches == []


def test_maps_and_scalars_from_expressions(driver, make):
    def compiled(request):
        parameters = (
            TensorMapParameter(
                "a_map",
                "bf16",
                (64, 64),
                128,
                "zero",
                base="(a + 16 * 2)",
                extents=("M", "(N // 2)"),
                strides=("max(N, 8)", "1"),
            ),
            PointerParameter("b"),
            ScalarParameter("(M * N)", "i64"),
            GridParameter(1),
        )
        return sample_kernel(parameters, signature=request.signature)

    kernel = make(gemm, FakeCompiler(make=compiled), parameters=4)
    kernel[(3, 4)](GpuArray((8, 8), "bfloat16"), GpuArray((8, 8)), 128, 256)
    (arguments,) = driver.encoded
    assert arguments[3] == BASE + 32
    launch = driver.launches[0]
    assert launch.maps[0] == b"\1" * 128
    assert [unpack("q", value) for value in launch.values[1:3]] == [BASE, 128 * 256]
    assert unpack("i", launch.values[3]) == 4


def test_expressions_over_descriptors(driver, make):
    def compiled(request):
        parameters = (
            ScalarParameter("a.extents[1]", "i32"),
            ScalarParameter("a.strides[0]", "i64"),
        )
        return sample_kernel(parameters, signature=request.signature)

    kernel = make(gemm, FakeCompiler(make=compiled), parameters=2)
    kernel[(1,)](descriptor(128, 256), descriptor(64, 64), 128, 64)
    assert [unpack("i", value) for value in driver.launches[0].values] == [256, 256]


def test_scalars_of_every_type(driver, make):
    values = {"i1": (True, "?"), "i8": (-3, "b"), "u16": (65535, "H"), "u64": (2**64 - 1, "Q")}
    values |= {"f16": (0.5, "e"), "f64": (1e300, "d")}

    def pointed(x, i1, i8, u16, u64, f16, f64, bf16):
        pass

    pointed.__annotations__ = {name: f"tl.{name}" for name in (*values, "bf16")}
    kernel = make(pointed, parameters=9)
    kernel[(1,)](GpuArray((4,)), *(value for value, _ in values.values()), 1.0)
    packed = driver.launches[0].values[1:8]
    for (value, letter), data in zip(values.values(), packed):
        assert unpack(letter, data) == value
    assert unpack("H", packed[6]) == 0x3F80


@pytest.mark.parametrize(
    ("n", "factor", "text"),
    [
        (16, 1e40, r"'factor' = 1e\+40 does not fit f32"),
        (2**70, 0.5, "does not fit 64 bits"),
    ],
)
def test_numbers_that_do_not_fit(driver, make, n, factor, text):
    with pytest.raises(ArgumentError, match=text):
        make(scale)[(1,)](GpuArray((4,)), GpuArray((4,)), n, factor)


def test_misfits_at_launch(driver, make):
    kernel = make(scale)
    with pytest.raises(ArgumentError, match="scale needs 'y', 'n', 'factor'"):
        kernel[(1,)](GpuArray((4,)))
    with pytest.raises(ArgumentError, match="scale got 6 positional arguments"):
        kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 1, 2.0, 3, 4)
    with pytest.raises(ArgumentError, match="does not know 'tiles'"):
        kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0, tiles=4)
    with pytest.raises(ArgumentError, match="called like a Python function"):
        kernel(GpuArray((4,)))
    with pytest.raises(ArgumentError, match="scale got 'x' twice"):
        kernel.launch((1,), (GpuArray((4,)), GpuArray((4,)), 16, 2.0), {"x": 1})
    assert driver.launches == []


def test_devices_must_agree(driver, make):
    import numpy as np

    kernel = make(scale)
    with pytest.raises(ArgumentError, match="x is on cuda:0, y is on cuda:1"):
        kernel[(1,)](GpuArray((4,)), GpuArray((4,), device=1), 16, 2.0)
    with pytest.raises(ArgumentError, match="x is on cuda:0, y is on the CPU"):
        kernel[(1,)](GpuArray((4,)), np.zeros(4, np.float32), 16, 2.0)
    with pytest.raises(ArgumentError, match="cannot be launched with placeholders: y"):
        kernel[(1,)](GpuArray((4,)), tawa.array((4,), "f32"), 16, 2.0)
    assert driver.launches == []


def test_a_launch_goes_to_the_device_of_the_data(driver, make):
    kernel = make(scale)
    kernel[(1,)](GpuArray((4,), device=1), GpuArray((4,), device=1), 16, 2.0)
    assert len(driver.launches) == 1
    assert driver.entered == 0
    assert driver.current == 0


def test_a_refused_launch_names_kernel_and_arguments(driver, make):
    driver.error = 701
    with pytest.raises(LaunchError, match=r"refused the launch of scale: .*701") as caught:
        make(scale)[(3,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)
    assert "grid (3,); x=float32[4]" in str(caught.value)
    assert "factor=2.0" in str(caught.value)


def test_a_sticky_error_lists_the_launches_before_it(driver, make):
    kernel = make(scale)
    for n in range(16, 16 + 12):
        kernel[(3,)](GpuArray((4,)), GpuArray((4,)), n, 2.0)
    driver.error = 700
    with pytest.raises(LaunchError, match="this kernel or one before it failed") as caught:
        kernel[(3,)](GpuArray((4,)), GpuArray((4,), address=0x7F0000001000), 5, 2.0)
    assert caught.value.lost
    before = [line for line in caught.value.why.splitlines() if "on grid (3,)" in line]
    assert len(before) == 8  # the latest of them
    where = "x = f32 at 0x7f0000000000, y = f32 at 0x7f0000000000"
    assert before[0] == f"    scale on grid (3,): {where}, n = 27, factor = 2.0"
    assert len(list(driver.recent)) == 8  # what was refused is not among them


def test_the_kernel_at_fault_where_launches_wait(driver, make, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    driver.error = 719
    with pytest.raises(LaunchError, match=r"scale failed on the GPU: .*719") as caught:
        make(scale)[(3,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)
    assert caught.value.lost
    assert (
        caught.value.why
        == "arguments: grid (3,); x=float32[4], y=float32[4], n=16, factor=2.0, BLOCK=64"
    )


def test_recent_launches_of_descriptors(driver, make):
    make(gemm, parameters=5)[(1,)](descriptor(128, 256), descriptor(256, 64), 128, 64)
    (line,) = driver.recent
    a, b = f"bf16[128, 256] at {BASE:#x}", f"bf16[256, 64] at {BASE:#x}"
    assert line == f"gemm on grid (1,): a = {a}, b = {b}, M = 128, N = 64"


def test_a_thread_without_a_context_gets_one(driver, make):
    kernel = make(scale)
    kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)
    driver.current = -1
    kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)
    assert len(driver.launches) == 2


def test_a_thread_without_a_context_can_encode_maps(driver, make, monkeypatch):
    """As autograd's threads are: torch says device 0, the driver has no context yet."""
    plain = driver.encode_tiled
    monkeypatch.setattr(dispatch, "current_device", lambda machine: lambda: 0)
    monkeypatch.setattr(driver, "encode_tiled", lambda *a: 201 if driver.current < 0 else plain(*a))
    kernel = make(gemm, parameters=5)
    driver.current = -1
    kernel[(1,)](descriptor(128, 256), descriptor(256, 64, BASE + 65536), 128, 64)
    assert (len(driver.launches), driver.current) == (1, 0)


def test_the_first_launch_cannot_be_captured(driver, make):
    kernel = make(scale)
    driver.capturing = True
    with pytest.raises(LaunchError, match="inside a CUDA graph capture"):
        kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)
    driver.capturing = False
    kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)
    driver.capturing = True
    kernel[(2,)](GpuArray((4,)), GpuArray((4,)), 32, 2.0)
    assert len(driver.launches) == 2


def guarded(*conditions):
    def compiled(request):
        guards = tuple(Guard(text, "promoted") for text in conditions) * request.descriptors
        shape = LaunchShape(128 if request.descriptors else 64, 0)
        parameters = (*parameters_of(request.signature), GridParameter(0))
        return sample_kernel(parameters, launch=shape, signature=request.signature, guards=guards)

    return FakeCompiler(make=compiled)


@pytest.mark.parametrize(
    ("offset", "threads"), [(0, 64), (8, 64), (256, 128), (-256, 128), (-252, 64)]
)
def test_overlapping_arguments_run_the_plain_kernel(driver, make, offset, threads):
    kernel = make(scale, guarded("disjoint(x, y)"))
    x, y = GpuArray((64,), address=BASE), GpuArray((64,), address=BASE + offset)
    for _ in range(2):
        kernel[(1,)](x, y, 16, 2.0)
    assert [launch.threads for launch in driver.launches] == [threads] * 2


@pytest.mark.parametrize(
    ("n", "grid", "threads"),
    [(64, (4,), 128), (64, (64,), 128), (64, (65,), 64), (-1, (1,), 64)],
)
def test_guards_over_all_programs(driver, make, n, grid, threads):
    kernel = make(scale, guarded("never_negative(n - program(0) * min(grid(0), 1) - 1)"))
    kernel[grid](GpuArray((64,)), GpuArray((64,)), n, 2.0)
    assert driver.launches[0].threads == threads


@pytest.mark.parametrize(
    ("n", "grid", "threads"),
    [(4, (4,), 128), (4, (5,), 64), (1 << 30, (4,), 128), (1 << 30, (3,), 64), (-4, (1,), 64)],
)
def test_bounds_over_all_programs(driver, make, n, grid, threads):
    texts = "always_within(n + program(0), 0, 1073741827)", "n * grid(0) <= 16 or grid(0) == 4"
    kernel = make(scale, guarded(*texts))
    for address in (BASE, BASE + 4096):  # what is decided does not depend on addresses
        kernel[grid](GpuArray((64,), address=address), GpuArray((64,)), n, 2.0)
    assert [launch.threads for launch in driver.launches] == [threads] * 2


def test_descriptors_that_overlap(driver, make):
    kernel = make(gemm, guarded("disjoint(a, b)"), parameters=5)
    kernel[(1,)](descriptor(64, 64), descriptor(64, 64, BASE + 8192), 128, 64)
    near = descriptor(64, 64), descriptor(64, 64, BASE + 8176)
    kernel[(1,)](*near, 128, 64)
    # As calls of the library enter it: with the arrays alone, and beside them what is described.
    entry = kernel.enter((*near, 128, 64), {})
    facts = [(each.base.address, tuple(each.shape), tuple(each.strides)) for each in near]
    entry.launcher((1,), {}, *(each.base for each in near), 128, 64, *facts[0], *facts[1])
    assert [launch.threads for launch in driver.launches] == [128, 64, 64]


def test_the_plain_kernel_has_no_roles_and_no_guards(driver, make):
    compiler = guarded("disjoint(x, y)")
    kernel = make(scale, compiler)
    x = GpuArray((64,), address=BASE)
    kernel[(1,)](x, x, 16, 2.0, depth={"a": 4})
    plain = compiler.requests[-1]
    assert (plain.descriptors, plain.pins.specialize, plain.pins.depth) == (False, False, None)

    def always_guarded(request):
        parameters = (*parameters_of(request.signature), GridParameter(0))
        return sample_kernel(parameters, guards=(Guard("disjoint(x, y)", ""),))

    with pytest.raises(InternalError, match="the ordinary kernel of scale has a guard"):
        make(scale, FakeCompiler(make=always_guarded))[(1,)](x, x, 16, 2.0)


def test_a_rebound_global_compiles_anew(driver, make, monkeypatch):
    compiler = FakeCompiler()
    kernel = make(reads_factor, compiler, parameters=3)
    kernel[(1,)](GpuArray((4,)), 16)
    kernel[(1,)](GpuArray((4,)), 16)
    assert len(compiler.requests) == 1
    monkeypatch.setitem(globals(), "FACTOR", 4)
    kernel[(1,)](GpuArray((4,)), 16)
    assert len(compiler.requests) == 2
    monkeypatch.setitem(globals(), "FACTOR", 3)
    kernel[(1,)](GpuArray((4,)), 16)
    assert len(compiler.requests) == 2  # known from before
    assert len(driver.launches) == 4


def test_a_grid_taken_before_a_rebinding_reads_the_text_once(driver, make, monkeypatch):
    kernel = make(reads_factor, FakeCompiler(), parameters=3)
    kernel[(1,)](GpuArray((4,)), 16)
    kept = kernel[(1,)]
    monkeypatch.setitem(globals(), "FACTOR", 4)
    reads = []
    monkeypatch.setattr(kernel, "_read_text", lambda: reads.append(1) or fingerprint(kernel.fn))
    for _ in range(3):
        kept(GpuArray((4,)), 16)
    assert len(reads) == 1


def test_closures_are_watched(driver, make):
    width = 3

    def kernel(x, n):
        return x + n * width

    compiler = FakeCompiler()
    launchable = make(kernel, compiler, parameters=3)
    launchable[(1,)](GpuArray((4,)), 16)
    width = 5
    launchable[(1,)](GpuArray((4,)), 16)
    assert len(compiler.requests) == 2


def test_hooks_see_each_launch(driver, make):
    seen = []
    kernel = make(scale, hooks=[lambda *args, **keywords: seen.append((args[2], keywords))])
    for _ in range(2):
        kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0, BLOCK=32)
    assert seen == [(16, {"BLOCK": 32})] * 2


def test_threads_compile_once(driver, make):
    def slow(request):
        return sample_kernel(
            (*parameters_of(request.signature), GridParameter(0)), signature=request.signature
        )

    compiler = FakeCompiler(make=slow)
    kernel = make(scale, compiler)

    def launch(_):
        for _ in range(50):
            kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)

    together(4, launch)
    assert len(compiler.requests) == 1
    assert len(driver.launches) == 200


def test_a_failed_compilation_is_tried_again(driver, make):
    attempts = []

    def fails_once(request):
        attempts.append(1)
        if len(attempts) == 1:
            raise LaunchError("no")
        return sample_kernel(
            (*parameters_of(request.signature), GridParameter(0)), signature=request.signature
        )

    kernel = make(scale, FakeCompiler(make=fails_once))
    with pytest.raises(LaunchError):
        kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)
    kernel[(1,)](GpuArray((4,)), GpuArray((4,)), 16, 2.0)
    assert len(driver.launches) == 1
