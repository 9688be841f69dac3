"""Names and texts of a user's that C++, CUDA or our own text has a meaning for, or no letter."""

import subprocess
import sys

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.codegen.names import PREDECLARED, RESERVED, Names, identifier
from tawa.errors import ArgumentError, LaunchError

KERNEL = """
import tawa, tawa.language as tl

@tawa.jit
def {kernel}(x_ptr, {argument}, N: tl.constexpr):
    i = tl.arange(0, N)
    {local} = tl.load(x_ptr + i) * {argument}
    if {argument} > 3:
        {local} = {local} + 1.0
    tl.store(x_ptr + i, {local})
"""
EVERYWHERE = (
    "nullptr compl bitand NULL char32_t typeid threadIdx u32 shared β größe x̂ 変数 x__y _ "
    "__grid x__at"
)
KERNELS = "exp abs norm free main size_t std clock64 sinf make_int1 role_main"


def made(tmp_path, **names):
    path = tmp_path / "names.py"
    path.write_text(KERNEL.format(**{"kernel": "k", "argument": "a", "local": "v"} | names))
    scope = {"__name__": "names"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return next(value for value in scope.values() if isinstance(value, tawa.JitFunction))


def builds_and_runs(kernel):
    x = np.arange(8, dtype=np.float32)
    kernel[1,](x, 4, N=8)
    np.testing.assert_array_equal(x, np.arange(8) * 4 + 1)
    assert kernel.compile(x, 4, N=8).cubin


@pytest.mark.parametrize("name", KERNELS.split())
def test_kernels_may_be_called_anything(name, tmp_path):
    builds_and_runs(made(tmp_path, kernel=name))


def test_a_name_may_stand_anywhere(tmp_path):
    names = EVERYWHERE.split()
    for kernel, argument, local in zip(names, names[1:] + names[:1], names[2:] + names[:2]):
        builds_and_runs(made(tmp_path, kernel=kernel, argument=argument, local=local))


def test_a_parameter_that_the_launcher_has_a_name_for_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="parameter called __tawa_grid"):
        made(tmp_path, argument="__tawa_grid")


OURS = """
import tawa, tawa.language as tl

@tawa.jit
def walk({0}, {1}, {2}, {3}, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for k in range(tl.program_id(0) * {2}, {2} * 4, {3}):
        total += k
    tl.store({1} + i, tl.load({0} + i % {2}) + total)
"""
LAUNCHERS = (
    "__grid x__at x program0 | grid0 d__shape len __x | type tuple trip0 where | "
    "__options __kernel min max | divide minimum abs int | program grid disjoint always_within"
)


@pytest.mark.parametrize("names", LAUNCHERS.split(" | "))
def test_names_of_conditions_and_launchers_are_taken(names, tmp_path):
    """Conditions took such an argument for a function or the number of a program."""
    path = tmp_path / "ours.py"
    path.write_text(OURS.format(*names.split()))
    scope = {"__name__": "ours"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    a, o, n, step = names.split()
    scope["walk"][4,](x, out, **{n: 32, step: 16}, B=16)
    starts = np.repeat([sum(range(p * 32, 128, 16)) for p in range(4)], 16)
    np.testing.assert_array_equal(out, x % 32 + starts)
    with pytest.raises(LaunchError, match=f"step is 0\\n.*{step}=0"):
        scope["walk"][lambda meta: (meta[n] // 8,)](**{a: x, o: out, n: 32, step: 0}, B=16)


def test_no_name_of_ours_is_given_out():
    for name in (*RESERVED, *PREDECLARED):
        assert Names(RESERVED | PREDECLARED).fresh(name) != name
    for name in ("NV_IS_HOST", "CUDART_CB", "cudaStreamDefault", "make_float4"):
        assert Names().fresh(name) != name
    assert Names().fresh("cuda_rows") == "cuda_rows"
    assert identifier("größe") == "groudfe"


PROGRAM = """
import numpy as np, tawa, tawa.language as tl

@tawa.jit
def show(x_ptr, N: tl.constexpr):
    größe = tl.load(x_ptr + tl.arange(0, N))
    tl.device_print("größe β \\\\ 'q' 変数", größe)
    tl.device_assert(größe < 100, 'zu groß: β "x" 変数')
    tl.store(x_ptr + tl.arange(0, N), größe)

x = np.arange(4, dtype=np.float32)
show[1,](x, N=4, debug=True)
assert "zu groß: β" in show.compile(x, N=4, debug=True).asm["cuda"]
"""


def test_texts_with_letters_of_any_alphabet_come_back_from_the_disk(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    environment = {"TAWA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONIOENCODING": "utf-8"}
    environment["PYTHONPATH"] = ":".join(sys.path)
    printed = [
        subprocess.run(
            [sys.executable, str(path)], capture_output=True, check=True, env=environment
        ).stdout.decode()
        for _ in range(2)
    ]
    assert printed[0] == printed[1]
    assert "größe β \\ 'q' 変数" in printed[0]


@pytest.mark.parametrize(
    "written", ["tl.float16", "tl.bfloat16", "'fp16'", "'bf16'", "tl.float8e5"]
)
def test_scalars_of_narrow_floats(written, tmp_path):
    """They are passed as bits; a role gets the number, widened once."""
    path = tmp_path / "scalar.py"
    path.write_text(
        "import tawa, tawa.language as tl\n"
        "@tawa.jit\n"
        f"def scale(out, x: {written}, N: tl.constexpr):\n"
        "    tl.store(out + tl.arange(0, N), (x * 2).to(tl.float32))\n"
    )
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    out = np.zeros(8, np.float32)
    scope["scale"][1,](out, 1.3, N=8)
    kernel = scope["scale"].compile(out, 1.3, N=8)
    assert kernel.cubin
    dtype = eval(written, {"tl": tl})
    rounded = {
        "fp16": 1.2998046875,
        "bf16": 1.296875,
        "fp8e5": 1.25,
    }[dtype if isinstance(dtype, str) else dtype.name]
    np.testing.assert_array_equal(out, np.full(8, rounded * 2, np.float32))
