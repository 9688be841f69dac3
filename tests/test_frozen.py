"""Generated code is what was frozen; `python tests/freeze.py` freezes it anew."""

from __future__ import annotations

import pytest

from freeze import frozen, idioms, kernel_hash
from proof_kernels import KERNELS


@pytest.mark.parametrize("name", list(KERNELS)[::10])
def test_some_kernels_have_the_text_that_was_frozen(name: str) -> None:
    assert frozen()[name] == kernel_hash(name)


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_all_kernels_have_the_text_that_was_frozen(name: str) -> None:
    assert frozen()[name] == kernel_hash(name)


def test_the_table_names_all_kernels() -> None:
    assert set(frozen()) == {*KERNELS, *(name for name, _ in idioms())}
