"""A product that several instructions make of columns in panels begins each where a panel does.

Three consumers of 192 x 224 have registers for 192 columns at once. Two instructions of 112 began
inside of a panel of 32 columns, and read what lies behind its end: wrong on every GPU, and right in
the simulator, which moves whole tiles.
"""

import numpy as np
import pytest

import tawa
from codegen_emulator import emulate, needs_compiler
from tawa.errors import ShapeUnsupported
from tawa.ir.types import scalar
from tawa.kernels.gemm import matmul_descriptors
from tawa.layouts.access import operand
from tawa.layouts.fragments import instruction_n
from tawa.passes.lower.placement import choose_layout
from tawa.simulator.memory import HostDescriptor


@needs_compiler
def test_columns_of_several_instructions_are_whole_panels():
    rng = np.random.default_rng(0)
    m, n, k = 192, 224, 32
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float16)
    blocks = {"a_desc": (a, (m, 16)), "b_desc": (b, (16, n)), "c_desc": (c, (m, n))}
    described = [tawa.TensorDescriptor.from_tensor(x, block) for x, block in blocks.values()]
    made = matmul_descriptors.compile(*described, k, grid=(1, 1), BLOCK_M=m, BLOCK_N=n, BLOCK_K=16)
    assert [role.warps for role in made.plan.consumers] == [12]
    given = {
        name: HostDescriptor(x, x.shape, (x.shape[1], 1), block)
        for name, (x, block) in blocks.items()
    }
    emulate(made.asm.program("hopper"), given | {"K": k}, (1, 1, 1), blocks=1)
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(
    ("n", "limit", "panel", "width"),
    [
        (224, 192, 8, 112),
        (224, 192, 32, 32),
        (224, 256, 32, 224),
        (192, 160, 64, 64),
        (64, 32, 64, 32),  # half of a panel
    ],
)
def test_an_instruction_is_as_wide_as_whole_panels_are(n, limit, panel, width):
    assert instruction_n(n, limit, panel=panel) == width


def test_an_operand_that_leaves_the_panel_it_begins_inside_is_refused():
    right = operand(choose_layout((64, 224), scalar("bf16")), 0)
    assert right.panel == 32
    right.check(112, 16)
    right.check(96, 128)
    with pytest.raises(ShapeUnsupported, match="read from 112 to 224"):
        right.check(112, 112)
