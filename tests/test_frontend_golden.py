"""Tile IR of whole kernels, word for word; `UPDATE_GOLDEN=1 pytest` writes the files anew."""

import os
from pathlib import Path

import pytest

import frontend_kernels as kernels
import frontend_shapes as shapes
from tawa import ir
from tawa.frontend import build

GOLDEN = Path(__file__).parent / "golden" / "frontend"
CASES = {
    "host_descriptors": (kernels.host_descriptors, kernels.HOST_DESCRIPTORS),
    "made_descriptors": (kernels.made_descriptors, kernels.MADE_DESCRIPTORS),
    "persistent": (kernels.persistent, kernels.PERSISTENT),
    "batched": (kernels.batched, kernels.BATCHED),
    "epilogue": (kernels.epilogue, kernels.EPILOGUE),
    "attention": (kernels.attention, kernels.ATTENTION),
    **shapes.CASES,
}


@pytest.mark.parametrize("name", CASES)
def test_tile_ir(name: str) -> None:
    function, signature = CASES[name]
    kernel = build(function, signature, {"num_warps": 4})
    text = str(kernel) + "\n"
    file = GOLDEN / f"{name}.mlir"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
    assert text.count("\n") <= 60


@pytest.mark.parametrize("name", CASES)
def test_text_reads_back(name: str) -> None:
    function, signature = CASES[name]
    kernel = build(function, signature, {})
    assert str(ir.parse(str(kernel))) == str(kernel)


def test_every_operation_knows_its_line() -> None:
    kernel = build(kernels.pointers, kernels.POINTERS, {})
    lines = {ir.line_of(operation) for operation in kernel.body.block.walk()} - {0}
    first = kernels.pointers.__code__.co_firstlineno
    own = {line for line in lines if first < line < first + 60}
    helper = kernels.leaky.fn.__code__.co_firstlineno
    assert len(own) > 20
    assert helper + 2 in lines


def test_loads_and_dots_carry_the_names_of_variables() -> None:
    kernel = build(kernels.made_descriptors, kernels.MADE_DESCRIPTORS, {})
    named = {
        operation.results[0].name_hint
        for operation in kernel.body.block.walk()
        if isinstance(operation, (ir.tile.DescLoad, ir.tile.Dot, ir.tile.MakeDesc))
    }
    assert named == {"a", "b", "acc", "a_desc", "b_desc", "c_desc"}


def test_equal_sources_give_equal_text() -> None:
    texts = {str(build(kernels.pointers, kernels.POINTERS, {})) for _ in range(3)}
    assert len(texts) == 1


def test_facts_and_options_stand_on_the_kernel() -> None:
    kernel = build(kernels.made_descriptors, kernels.MADE_DESCRIPTORS, {"num_warps": 8, "x": None})
    assert kernel.argument_names == ["a_ptr", "b_ptr", "c_ptr", "M", "N", "K"]
    facts = [set(argument.data) for argument in kernel.arguments]
    assert facts[0] == {"name", "divisible"}
    assert facts[3] == {"name"}
    assert set(kernel.options.data) == {"num_warps"}
