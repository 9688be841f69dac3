"""`tawa build`: launchers in C ask the driver for what Python's launcher asks, launch for launch.

They are compiled with a stand-in of the driver (`tests/aot`) that notes what it is given.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aot_kernels
import tawa
from aot_kernels import Library, Recorder, build_library, copy_stub, run
from emulator_build import COMPILER, PROGRAM, needs_compiler
from runtime_fakes import GpuArray, install
from tawa.codegen.parameters import CounterParameter
from tawa.errors import ArgumentError, LaunchError
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.descriptors import TensorDescriptor
from tawa.runtime.dtypes import numpy_dtype
from tawa.tools import cli
from tawa.tools.aot.build import build, compile_both
from tawa.tools.aot.expressions import Translation
from tawa.tools.aot.names import Fields
from tawa.tools.arguments import read_arguments

BASE = 0x7F0000000000
TILES = "BM=128 BN=128 BK=64"
OPERANDS = "a_desc=bf16[512,256]:128x64 b_desc=bf16[256,512]:64x128 c_desc=bf16[512,512]:128x128"
PRODUCT = f"{OPERANDS} {TILES} K=256"
BUILT = {
    "add": "x=f32[1024] y=f32[1024] out=f32[1024] n=1000 BLOCK=256",
    "product": PRODUCT,
    "product_clustered": f"{PRODUCT} cluster=2 persistent=False",
    "numbers": "out=f32[8] b=1.5 h=1.5 e4=1.5 e5=1.5 f=1.5 d=1.5 u=3 s=3 t=True where=3",
    "product_taken": f"{PRODUCT} walk='dynamic'",
    "matmul_pointers": "a_ptr=f16[512,256] b_ptr=f16[256,512] c_ptr=f16[512,512] M=500 N=512 K=256"
    " stride_am=256 stride_ak=1 stride_bk=512 stride_bn=1 stride_cm=512 stride_cn=1"
    " BLOCK_M=128 BLOCK_N=128 BLOCK_K=64 GROUP_M=4",
    "counted": "out=i32[64] start=3 end=30 step=5 times=1",
}
pytestmark = needs_compiler


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, dict[str, list[CompiledKernel]]]:
    """The folder of all launchers, and the kernels they launch."""
    folder = tmp_path_factory.mktemp("aot")
    kernels: dict[str, list[CompiledKernel]] = {}
    for name, texts in BUILT.items():
        kernel, given = getattr(aot_kernels, name), read_arguments(texts.split())
        build(kernel, given, folder)
        kernels[name] = compile_both(kernel, given)
    return folder, kernels


@pytest.fixture(scope="module")
def library(built) -> Library:
    """All launchers, compiled as C99 without a warning, arithmetic checked, as one library."""
    folder, kernels = built
    return Library(build_library(folder, "".join(f'#include "{name}.c"\n' for name in kernels)))


@pytest.fixture
def both(built, library, monkeypatch):
    """Launches by C and by Python, and compares what each asked of the driver."""
    driver = Recorder()
    install(monkeypatch, driver)

    def launch(name: str, grid: tuple[int, ...], values: dict[str, Any], plain: bool = False):
        kernels = built[1][name]
        runs = kernels[int(plain)]
        code, text, lines = library.launch(kernels[0], grid, values, runs)
        assert (code, text) == (0, "")
        driver.expect(runs)
        given = {**read_arguments(BUILT[name].split()), **values}
        ran = tawa.jit(getattr(aot_kernels, name).fn)[grid](**given)  # which has no map yet
        assert ran.entry == runs.entry
        assert ran.launch == runs.launch
        assert ran.parameters == runs.parameters
        assert lines == driver.lines
        return lines

    return launch


def array(*shape: int, at: int = BASE, dtype: str = "float32") -> GpuArray:
    return GpuArray(shape, dtype, at)


def operands(m=512, n=512, k=256, c_at=BASE + (3 << 24)) -> dict[str, Any]:
    made = [
        TensorDescriptor(GpuArray(shape, "bfloat16", at), list(shape), [shape[1], 1], list(block))
        for shape, at, block in (
            ((m, k), BASE, (128, 64)),
            ((k, n), BASE + (1 << 24), (64, 128)),
            ((m, n), c_at, (128, 128)),
        )
    ]
    return {**dict(zip(("a_desc", "b_desc", "c_desc"), made)), "K": k}


def test_a_sum_of_vectors(both) -> None:
    for grid in ((4,), (4, 2), (1, 3, 5)):
        both("add", grid, {**{"x": array(1024), "y": array(1024), "out": array(1024)}, "n": 1000})


@pytest.mark.parametrize("grid", [(4, 4), (2, 2), (40, 40)])
def test_a_persistent_product_by_descriptors(both, built, grid) -> None:
    assert built[1]["product"][0].launch.persistent
    lines = both("product", grid, operands(grid[0] * 128, grid[1] * 128))
    assert sum(line.startswith("map") for line in lines) == 3


def test_a_product_of_other_strides_and_one_row(both) -> None:
    given = operands(512, 512, 192)
    wide = given["a_desc"]
    base = GpuArray((512, 192), "bfloat16", BASE, strides=(256, 1))
    given["a_desc"] = TensorDescriptor(base, wide.shape, [256, 1], [128, 64])
    both("product", (4, 4), given)
    both("product", (1, 4), operands(1, 512, 64))


def test_a_clustered_product(both, built) -> None:
    assert built[1]["product_clustered"][0].launch.cluster == 2
    (line,) = (x for x in both("product_clustered", (4, 4), operands()) if x.startswith("launch"))
    assert " 4:2 |" in line


def test_a_product_of_pointers(both, built) -> None:
    """Its guards ask for numbers in every program, and for memory that is apart."""
    first, plain = built[1]["matmul_pointers"]
    assert any("remainder((program(0))" in guard.condition for guard in first.guards)
    assert not plain.guards
    names = ("a_ptr", "b_ptr", "c_ptr")
    given = {n: array(512, 512, at=BASE + (i << 24), dtype="float16") for i, n in enumerate(names)}
    given |= {"M": 500, "N": 512, "K": 256, "stride_am": 256, "stride_bk": 512, "stride_cm": 512}
    both("matmul_pointers", (16,), given)
    both("matmul_pointers", (16,), {**given, "M": 396, "K": 192, "stride_bk": 1024})
    # Programs past the last group divide by zero: that proves nothing, so the ordinary kernel runs.
    both("matmul_pointers", (20,), given, plain=True)
    both("matmul_pointers", (16,), {**given, "stride_am": 0}, plain=True)
    both("matmul_pointers", (16,), {**given, "M": -508}, plain=True)
    near = array(512, 512, at=BASE + (1 << 19) - 32, dtype="float16")
    both("matmul_pointers", (16,), {**given, "c_ptr": near}, plain=True)


def test_a_counter_for_each_stream(both, library, built) -> None:
    kernel = built[1]["product_taken"][0]
    place = next(i for i, p in enumerate(kernel.parameters) if isinstance(p, CounterParameter))
    lines = both("product_taken", (4, 4), operands())

    def counter(stream: int) -> int:
        code, text, lines = library.launch(kernel, (4, 4), operands(), stream=stream)
        assert (code, text) == (0, "")
        return int.from_bytes(bytes.fromhex(lines[-1].split("| ")[1].split()[place])[:4], "little")

    assert lines
    given = [counter(stream) for stream in (0, 64, 64, 1, 72, 1000, 1000, 64)]
    assert given == [4095, 4094, 4094, 4095, 4093, 4092, 4091, 4094]
    code, text, _ = library.launch(kernel, (4, 4), operands(), stream=2)
    assert code == 1
    assert "pass a stream of cuStreamCreate" in text


def test_where_a_guard_fails_the_ordinary_kernel_runs(both) -> None:
    both("product", (4, 4), operands(c_at=BASE + 4096), plain=True)
    both("product", (4, 4), operands())
    out = {"out": array(64, dtype="int32")}
    both("counted", (1,), {**out, "start": 3, "end": 31, "step": 5, "times": 1})
    given = {**out, "start": 31, "end": 3, "step": -5, "times": 1}
    both("counted", (1,), given, plain=True)


def test_numbers_are_packed_by_type(both) -> None:
    rng = np.random.default_rng(0)
    reals = [0.0, -0.0, 1.0, -1.5, 448.0, 464.0, 470.0, 57344.0, 65504.0, 1e-3, 2.0**-9, 2.0**-10,
             3 * 2.0**-11, 2.0**-24, 2.0**-25, 1e-30, math.inf, -math.inf, 6e4, 0.3]  # fmt: skip
    reals += [float(x) for x in rng.standard_normal(40) * 2.0 ** rng.integers(-20, 12, 40)]
    for place, real in enumerate(reals):
        given = {**dict.fromkeys(("b", "h", "e4", "e5", "f", "d"), real), "t": bool(place % 2)}
        given |= {"u": (1 << 64) - 1 - place, "s": place - 30, "where": place - (1 << 40)}
        both("numbers", (1,), {"out": array(8), **given})


def refused(library: Library, built, name: str, grid, values) -> tuple[int, str]:
    code, text, lines = library.launch(built[1][name][0], grid, values)
    assert not [line for line in lines if line.startswith("launch")]
    return code, text


def test_what_python_refuses_is_refused_with_its_words(library, built, both) -> None:
    kernel = tawa.jit(aot_kernels.counted.fn)
    for numbers, words in (
        ({"end": 30, "step": 0, "times": 1}, "counted: the loop at line .* never ends: its step"),
        ({"end": 1 << 30, "step": 5, "times": 1 << 40}, "counted: numbers leave 64 bits, so that"),
    ):
        given = {"out": array(64, dtype="int32"), "start": 3, **numbers}
        with pytest.raises(LaunchError, match=words) as caught:
            kernel[(1,)](**given)
        code, text = refused(library, built, "counted", (1,), given)
        assert code == 4
        assert text.partition(": the launch has")[0] == str(caught.value).partition("\n")[0]
        assert f"step={numbers['step']}" in text
    given = {"x": array(1024), "y": array(1024), "out": array(1024, at=BASE + 4), "n": 1000}
    code, text = refused(library, built, "add", (1,), given)
    assert code == 1
    assert "out is built for an address that is a multiple of 16 bytes" in text
    code, text = refused(library, built, "add", (1, 65536), {**given, "out": array(1024)})
    assert code == 2
    assert "extent 1 of the grid may be 0 to 65535, got 65536" in text
    code, text = refused(library, built, "product_clustered", (3, 4), operands())
    assert code == 2
    assert "no multiple of its cluster of 2 blocks" in text
    wrong = operands()
    wrong["a_desc"] = TensorDescriptor(wrong["a_desc"].base, [512, 256], [257, 1], [128, 64])
    code, text = refused(library, built, "product", (4, 4), wrong)
    assert code == 3
    assert "a_desc: TMA needs strides that are multiples of 16 bytes, got 514" in text
    big = {**dict.fromkeys(("b", "h", "e4", "e5", "f", "d"), 1e6), "t": True, "u": 1, "s": 1}
    code, text = refused(library, built, "numbers", (1,), {"out": array(8), **big, "where": 1})
    assert code == 1
    assert "h does not fit f16" in text


def test_a_grid_of_nothing_launches_nothing(library, built) -> None:
    given = {"x": array(1024), "y": array(1024), "out": array(1024), "n": 1000}
    assert refused(library, built, "add", (0,), given) == (0, "")


def test_another_device_is_refused(library, built) -> None:
    given = {"x": array(1024), "y": array(1024), "out": array(1024), "n": 1000}
    assert library.launch(built[1]["add"][0], (1,), given)[0] == 0
    library.code.stub_set(1, 9)
    try:
        code, text = refused(library, built, "add", (1,), given)
        assert code == 1
        assert "not loaded for device 1" in text
        library.code.stub_set(1, 10)
        error, memory = aot_kernels.Error(), ctypes.create_string_buffer(1 << 17)
        assert library.code.add_load(memory, ctypes.byref(error)) == 1
        assert b"built for sm_90a" in error.text
    finally:
        library.code.stub_set(0, 9)


def test_the_example_links_and_runs(built) -> None:
    folder, _ = built
    copy_stub(folder)
    assert COMPILER is not None
    words = [*COMPILER, PROGRAM, "-std=c++17", "-fno-sanitize=undefined", "-Wall", "-Werror", "-I."]
    run([*words, "-x", "c++", "add.c", "add_example.cc", "driver.cc", "-o", "add_example"], folder)
    x = np.arange(1024, dtype=np.float32)
    x.tofile(folder / "x.bin")
    told = run(["./add_example", "4", "x=x.bin"], folder)
    assert told == "add ran on a grid of 4 x 1 x 1\n"
    assert np.array_equal(np.fromfile(folder / "x.bin", np.float32), x)
    done = subprocess.run(
        ["./add_example", "4", "70000"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "extent 1 of the grid" in done.stderr


def test_the_command(tmp_path, capsys) -> None:
    place = f"{aot_kernels.__file__}:add"
    words = ["build", place, "--out", str(tmp_path / "made"), "--args", *BUILT["add"].split()]
    assert cli.main(words) == 0
    names = {path.name for path in (tmp_path / "made").iterdir()}
    assert names == {"add.h", "add.c", "add.cubin", "add_example.cc", "tawa.h", "tawa_support.h"}
    assert "-lcuda" in capsys.readouterr().out
    assert cli.main(["build", place, "--out", str(tmp_path / "none"), "--args", "n=3"]) == 2
    assert not (tmp_path / "none").exists()


def numeric(**dtypes: str) -> Translation:
    from tawa.frontend.signature import ScalarArg

    signature = {name: ScalarArg(dtype) for name, dtype in dtypes.items()}
    return Translation(Fields("k", signature, {name: name for name in dtypes}, {}))


@pytest.mark.parametrize(
    "text", ["x / 2", "x ** 2", "r + 1", "f(x)", "x.extents[0]", "y", "x in x"]
)
def test_what_has_no_translation_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="a launcher in C cannot compute"):
        numeric(x="i32", r="f32").text(text)


def test_expressions_and_roundings_are_python_s(tmp_path) -> None:
    """Each text on corners of 64 bits: Python's number, or `bad` where 64 bits do not hold it."""
    texts = ["x + y", "x - y", "x * y", "x // y", "x % y", "-x", "abs(x)", "min(x, y, 3)", "~x",
             "max(x, y)", "x << 3", "x >> 70", "x & y", "x | y", "x ^ y", "x < y <= 7", "not x",
             "x and y", "x or y", "x if x > y else y", "x == y or x != 3", "x // 7 * 7 + x % 7",
             "(x + 5) // -3 % 4", "int(x) + bool(y)"]  # fmt: skip
    corners = [0, 1, -1, 2, -3, 7, 64, -65, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]
    spelled = [numeric(x="i64", y="i64").text(text) for text in texts]
    cases = "".join(f"case {i}: return {text};\n" for i, text in enumerate(spelled))
    code = build_library(
        tmp_path,
        "#define TAWA_PROGRAMS 1, 1, 1\n#define TAWA_WALKED 1\n"
        f'#include "{Path(build.__code__.co_filename).parent}/tawa_support.h"\n'
        "typedef struct { int64_t x, y; } numbers;\n"
        "int64_t ask(int which, const numbers *arguments, int *bad) {\n"
        f"switch (which) {{\n{cases}}}\nreturn 0;\n}}\n"
        "uint32_t narrow(double x, int e, int f, int i) { return tawa_narrow(x, e, f, i); }\n",
    )
    code.ask.restype = ctypes.c_int64
    for which, text in enumerate(texts):
        for x in corners:
            for y in corners:
                bad = ctypes.c_int(0)
                got = code.ask(which, (ctypes.c_int64 * 2)(x, y), ctypes.byref(bad))
                try:
                    wanted = int(eval(text, {}, {"x": x, "y": y}))
                except ZeroDivisionError:
                    assert bad.value & 1, (text, x, y)
                    continue
                assert not bad.value & 1
                if not bad.value:
                    assert got == wanted, (text, x, y)
                elif -(2**62) <= x <= 2**62 and -(2**62) <= y <= 2**62:
                    assert not -(2**63) <= wanted < 2**63, (text, x, y)
    for name, form in (("f8e4m3", (4, 3, 0)), ("f8e5m2", (5, 2, 1)), ("f16", (5, 10, 1))):
        dtype: Any = numpy_dtype(name)
        bits = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
        exact = bits.astype(np.float64)[:: 1 if dtype.itemsize == 1 else 61]
        exact = exact[np.isfinite(exact)]
        middles = np.concatenate([exact, (exact[1:] + exact[:-1]) / 2, exact * 1.01, exact * 0.49])
        for value in middles.astype(np.float32):
            code.narrow.restype = ctypes.c_uint32
            got = code.narrow(ctypes.c_double(float(value)), *form)
            with np.errstate(over="ignore"):
                wanted = value.astype(dtype).view(f"u{dtype.itemsize}")
            assert got == wanted, (name, value)
