"""Generated text compiles to a clean cubin, and its machine code keeps what the plan promised."""

import pytest

import codegen_kernels as kernels
from codegen_samples import compiled, shape, worked_example
from frontend_kernels import of
from tawa.codegen.generate import generate
from tawa.frontend.signature import DescriptorArg
from tawa.plan.pins import Pins
from tawa.runtime import nvrtc, sass
from tile_shapes import SHAPES

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


def test_worked_example_builds_clean() -> None:
    cubin = nvrtc.build(generate(worked_example()), "gemm")
    assert "warning" not in cubin.log
    assert cubin.registers == 168
    assert cubin.spill_bytes == 0


def test_main_loop_of_the_worked_example() -> None:
    report = sass.inspect(nvrtc.build(generate(worked_example()), "gemm").data)
    assert report.hgmma == 4
    assert report.defects == ()


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "atomic tile counter"])
@pytest.mark.short(
    "two dots in sequence",
    "trip count read from memory",
    "operand computed in registers",
    "load under an if",
    "updates in place",
    "loop without a dot",
)
def test_shapes_of_programs_build(name: str) -> None:
    cubin = nvrtc.build(generate(shape(name)), "shape")
    assert "warning" not in cubin.log


MATMULS = {
    "bf16 128x256": ("bf16", 128, 256, 64, "bf16"),
    "f16 128x192": ("f16", 128, 192, 64, "f16"),
    "e4m3 128x256": ("f8e4m3", 128, 256, 128, "bf16"),
    "tf32 128x128": ("f32", 128, 128, 32, "f32"),
    "bf16 64x8": ("bf16", 64, 8, 64, "bf16"),
    "f16 16x32": ("f16", 16, 32, 64, "f16"),
    "bf16 k16": ("bf16", 128, 128, 16, "bf16"),
    "bf16 k32": ("bf16", 128, 128, 32, "f32"),
}


@pytest.mark.parametrize("name", MATMULS)
@pytest.mark.short("f16 128x192", "e4m3 128x256", "tf32 128x128", "f16 16x32", "bf16 64x8")
def test_matmuls_build(name: str) -> None:
    dtype, m, n, k, out = MATMULS[name]
    signature = of(
        a_desc=DescriptorArg(dtype, (m, k)),
        b_desc=DescriptorArg(dtype, (n, k)),
        c_desc=DescriptorArg(out, (m, n)),
        K="i32/16",
        BM=m,
        BN=n,
        BK=k,
    )
    cubin = nvrtc.build(generate(compiled(kernels.matmul_nt, signature)), "matmul")
    assert cubin.spill_bytes == 0


def test_attention_builds_clean() -> None:
    kernel = compiled(kernels.attention, kernels.ATTENTION)
    cubin = nvrtc.build(generate(kernel), "attention")
    report = sass.inspect(cubin.data)
    assert report.hgmma in (16, 32)  # a pipelined loop has its products twice: prologue and body
    assert report.defects == ()


@pytest.mark.parametrize("name", kernels.ORDINARY)
def test_ordinary_kernels_build(name: str) -> None:
    function, signature = kernels.ORDINARY[name]
    kernel = compiled(function, signature, Pins(specialize=False))
    nvrtc.build(generate(kernel), name)


def test_neighbours_in_memory_move_together() -> None:
    function, signature = kernels.ORDINARY["add"]
    text = generate(compiled(function, signature, Pins(specialize=False))).text
    assert "global_load_u32x4" in text
    assert "global_store_u32x4" in text
