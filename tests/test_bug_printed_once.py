"""What all threads hold is printed by one of them: a scalar came 128 times, an element of a short
block once for each warp.
"""

import re

import numpy as np

import tawa
import tawa.language as tl
from tawa.codegen.generate import generate


@tawa.jit
def printing(x):
    tl.device_print("begin")
    tl.device_print("first ", tl.load(x))
    tl.device_print("all ", tl.load(x + tl.arange(0, 32)))


def test_one_thread_prints_it() -> None:
    compiled = printing.compile(np.ones(32, np.float32), grid=(1,))
    text = generate(compiled.asm.program("hopper")).text
    guards = re.findall(r"if \(([^{]*)\) \{\s*printf", text)
    assert guards == ["thread == 0", "thread == 0", guards[2]]
    assert re.search(r"warp", guards[2])
