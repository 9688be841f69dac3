"""Lift: plain tile kernels as tasks and mappings, whose CUDA text is that of the kernel."""

from __future__ import annotations

import pytest

from lift_kernels import LIFTED, REFUSED
from tawa import compile_ir
from tawa.cypress.lift import lift
from tawa.errors import MappingError
from tawa.frontend import build


def compiled(kernel):
    function, signature = kernel
    return compile_ir(build(function, signature, {}))


QUICK = ("gemm", "gemm, batched", "softmax", "row sums", "row maxima", "scaled")


@pytest.mark.parametrize("name", QUICK)
def test_what_is_lifted_compiles_to_the_text_of_the_kernel(name):
    text = lift(compiled(LIFTED[name]))
    assert "mapping = cy.Mapping([" in text
    assert text == lift(compiled(LIFTED[name]))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(LIFTED) - set(QUICK)))
def test_wider_kernels_are_lifted(name):
    assert "mapping = cy.Mapping([" in lift(compiled(LIFTED[name]))


@pytest.mark.parametrize("what", REFUSED)
def test_what_tasks_cannot_say_is_refused_by_name(what):
    with pytest.raises(MappingError, match=f"({what}).*cannot be said as tasks") as caught:
        lift(compiled(REFUSED[what]))
    assert caught.value.why
