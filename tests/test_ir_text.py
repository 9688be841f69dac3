"""The text of a kernel is what its operation prints."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import StringAttr

from proof_kernels import KERNELS
from tawa.ir.text import text_of


@pytest.mark.parametrize("name", ["sample gemm_cluster", "two products depth 2", "flash 128"])
def test_the_text_is_what_the_operation_prints(name: str) -> None:
    kernel = KERNELS[name]()
    kernel.attributes["note"] = StringAttr('a "quoted" \\ line\n, and \u00e9')
    assert text_of(kernel) == str(kernel)
