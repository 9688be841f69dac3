"""The emulation against the definitions of the PTX manual, one instruction at a time."""

import inspect
import pkgutil
import re
from importlib import import_module

import pytest

from codegen_emulator import emulate, needs_compiler
from emulator_twins import DEFINITION
from instructions_all import PROGRAMS, SOURCES
from tawa.codegen import wrappers
from tawa.codegen.wrappers import FIXED
from tawa.codegen.wrappers.core import Wrapper

NUMBERS = [pytest.param(i, id=program.name) for i, program in enumerate(PROGRAMS)]


def run(number: int, seed: int) -> None:
    program = PROGRAMS[number]
    result = program.before()
    arguments = {"given": program.given.copy(), "result": result}
    grid = (program.cluster, 1, 1)
    emulate(SOURCES[number], arguments, grid, seed=seed, among=SOURCES)
    assert not program.wrong(result)


@needs_compiler
@pytest.mark.parametrize("number", NUMBERS)
def test_as_ptx_defines_it(number: int) -> None:
    run(number, seed=number % 3)  # asynchronous work at random, late or early


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
def test_at_other_times(number: int) -> None:
    for seed in range(1, 12):
        run(number, number + seed)


# Functions made for types and sizes, by the maker: each has a program of some of its kind.
MADE = {
    "atomic": r"atomic_(add|min|max|and|or|xor|exchange)_\w+",
    "compare_exchange": r"compare_exchange_\w+",
    "copy_async": r"copy_async_\d+",
    "fence": r"fence_(cta|gpu|sys)",
    "float_extremum": r"atomic_(min|max)_f(32|64)_\w+",
    "global_load": r"global_load_\w+x\d\w*",
    "global_load_narrow": r"global_load_b\d+",
    "global_load_one": r"global_load_(u32|int|float)\w*",
    "global_store": r"global_store_\w+x\d\w*",
    "global_store_narrow": r"global_store_b\d+",
    "global_store_one": r"global_store_(u32|int|float)",
    "ldmatrix": r"ldmatrix_x\d(_trans)?",
    "mma": r"mma_m16n8k\d+_\w+",
    "mulhi": r"mulhi",
    "narrow": r"float_to_\w+",
    "pack": r"pack_(bf16|f16|f8e4m3|f8e5m2)",
    "packer": r"pack_(halves|bytes)",
    "paired": r"(add|sub|mul)_(bf16|f16)x2",
    "pin": r"pin",
    "policy": r"policy_evict_(first|last)",
    "reduction": r"reduce_add_\w+x\d_\w+",
    "shared_load": r"shared_load_\w+x\d",
    "shared_load_narrow": r"shared_load_b\d+",
    "shared_load_one": r"shared_load_(u32|int|float)",
    "shared_store": r"shared_store_\w+x\d",
    "shared_store_narrow": r"shared_store_b\d+",
    "shuffle": r"shuffle_(xor|from)",
    "stmatrix": r"stmatrix_x\d(_trans)?",
    "tma_load": r"tma_load_\dd\w*",
    "tma_store": r"tma_(store|reduce_\w+)_\dd\w*",
    "wgmma": r"wgmma_m64n\d+k\d+_\w+",
    "widen": r"\w+_to_float",
}
# Written in C++ on those that have a program, and run in kernels (test_kernels_emulated.py).
PLAIN = {
    "byte_selector", "descriptor_at", "given_row", "pack_bytes", "pack_halves", "panelled",
    "swizzled", "taken_row",
}  # fmt: skip
# A hint.
ELSEWHERE = {"prefetch_map"}


def test_every_device_function_has_a_program() -> None:
    parts = (DEFINITION.search(part) for part in SOURCES[0].text.split("\n\n"))
    run = {part[2] for part in parts if part}
    assert FIXED.keys() - run <= PLAIN | ELSEWHERE, "a function without a program"
    assert not [name for name in PLAIN if "asm" in FIXED[name].body]
    found = pkgutil.iter_modules(wrappers.__path__, f"{wrappers.__name__}.")
    modules = [import_module(item.name) for item in found if not item.name.endswith(".core")]
    makers = {
        name
        for module in modules
        for name, item in vars(module).items()
        if inspect.isfunction(item)
        and not name.startswith("_")
        and item.__module__ == module.__name__  # others are parts of these
        and item.__annotations__.get("return") in (Wrapper, "Wrapper")
    }
    assert makers == MADE.keys()
    for maker in makers - {"packer"}:
        assert any(re.fullmatch(MADE[maker], name) for name in run), f"{maker} has no program"
