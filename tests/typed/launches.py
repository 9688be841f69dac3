"""What a host program does with a kernel: editors complete it, and checkers know its type."""

from typing import assert_type

import numpy as np
from annotated import add, helper

import tawa

x = np.ones(100, np.float32)
assert_type(add[1,](x, x, x, 100, BLOCK=128), tawa.CompiledKernel)
assert_type(add.compile(x, x, x, 100, BLOCK=128), tawa.CompiledKernel)
assert_type(add.explain(x, x, x, 100, BLOCK=128), str)
assert_type(helper.arg_names, list[str])
