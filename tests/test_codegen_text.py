"""Generated text: one operation, one call; golden role functions; names; parameters."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from codegen_samples import shape, worked_example
from tawa.codegen import CudaSource
from tawa.codegen.emit import RULES
from tawa.codegen.generate import generate
from tawa.codegen.parameters import ScalarParameter, TensorMapParameter
from tawa.codegen.wrappers import FIXED
from tawa.ir import hopper, parse, tile
from tawa.plan.pins import Pins

GOLDEN = Path(__file__).parent / "golden" / "codegen"

EFFECT = {
    hopper.InitBarriers: "barrier.init",
    hopper.FenceBarrierInit: "fence",
    hopper.PrefetchMap: "hint",
    hopper.BlockSync: "sync",
    hopper.ClusterSync: "sync",
    hopper.GridWait: "sync",
    hopper.LaunchDependents: "hint",
    hopper.NamedBarrier: "sync",
    hopper.SetRegisters: "registers",
    hopper.Wait: "barrier.wait",
    hopper.Arrive: "barrier.arrive",
    hopper.Expect: "barrier.expect",
    hopper.ProxyFence: "fence",
    hopper.TmaLoad: "tma.load",
    hopper.TmaStore: "tma.store",
    hopper.BulkCommit: "bulk.commit",
    hopper.BulkWait: "bulk.wait",
    hopper.CopyAsync: "copy.start",
    hopper.CopyAsyncArrive: "copy.arrive",
    hopper.WgmmaFence: "wgmma.fence",
    hopper.Wgmma: "wgmma.start",
    hopper.WgmmaCommit: "wgmma.commit",
    hopper.WgmmaWait: "wgmma.wait",
    hopper.SharedLoad: "shared.read",
    hopper.SharedStore: "shared.write",
}
MADE = {
    "tma_load": "tma.load",
    "tma_store": "tma.store",
    "tma_reduce": "tma.store",
    "copy_async": "copy.start",
    "wgmma_m64": "wgmma.start",
    "stmatrix": "shared.write",
    "shared_store": "shared.write",
    "ldmatrix": "shared.read",
    "shared_load": "shared.read",
}


def roles(source: CudaSource) -> str:
    """The role functions and the entry: what is not a wrapper."""
    first = re.search(r"^__device__ __forceinline__ void role_", source.text, re.MULTILINE)
    assert first is not None
    return source.text[first.start() :]


def calls(text: str) -> Counter:
    """Calls in a text by effect; a call inside an unrolled loop counts once."""
    found: Counter = Counter()
    for name in re.findall(r"\b([a-z]\w*)(?:<[\w, ]*>)?\(", text):
        effect = FIXED[name].effect if name in FIXED else None
        made = next((tag for stem, tag in MADE.items() if name.startswith(stem)), None)
        if effect is not None or made is not None:
            found[effect or made] += 1
    return found


SAMPLES = {
    "worked example": worked_example,
    "persistent": lambda: shape("gemm"),
    "early": lambda: shape("gemm", early=True),
    "one slot": lambda: shape("gemm", Pins(depth=1, mma_depth=1)),
    "ordinary": lambda: shape("gemm", Pins(specialize=False)),
    "two dots": lambda: shape("two dots in one loop"),
    "under an if": lambda: shape("load under an if"),
    "nested": lambda: shape("three nested loops"),
    "tile handed on": lambda: shape("tile handed on to the next iteration"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_one_operation_is_one_call(name: str) -> None:
    kernel = SAMPLES[name]()
    wanted = Counter(EFFECT[type(op)] for op in kernel.walk() if type(op) in EFFECT)
    found = calls(roles(generate(kernel)))
    assert {tag: found[tag] for tag in set(EFFECT.values())} == {
        tag: wanted[tag] for tag in set(EFFECT.values())
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_asm_stands_in_wrappers_only(name: str) -> None:
    source = generate(SAMPLES[name]())
    assert "asm" not in roles(source)
    assert "#include" not in source.text
    assert source.text.count("__shared__") == 1


@pytest.mark.parametrize("name", SAMPLES)
def test_equal_programs_give_equal_text(name: str) -> None:
    assert generate(SAMPLES[name]()).text == generate(SAMPLES[name]()).text


def golden(name: str, text: str) -> None:
    """Compare with a file; `UPDATE_GOLDEN=1 pytest` writes it anew."""
    file = GOLDEN / f"{name}.cu"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()
    assert text.count("\n") <= 64


def function(source: CudaSource, name: str) -> str:
    """The text of one function of the file."""
    start = source.text.index(f"void {name}(")
    start = source.text.rindex("\n\n", 0, start) + 2
    return source.text[start : source.text.index("\n}\n", start) + 3]


@pytest.mark.parametrize("role", ["load", "mma"])
def test_roles_of_the_worked_example(role: str) -> None:
    text = function(generate(worked_example()), f"role_{role}")
    if role == "mma":  # the main loop; the epilogue has a file of its own
        text = text[: text.index("  wgmma_wait<0>();")]
    golden(f"gemm_{role}", text)


def test_epilogue_of_the_worked_example() -> None:
    text = function(generate(worked_example()), "role_mma")
    golden("gemm_epilogue", text[text.index("  wgmma_wait<0>();") :])


def test_entry_of_the_worked_example() -> None:
    source = generate(worked_example())
    golden("gemm_entry", source.text[source.text.index('extern "C"') :])


def test_what_the_launcher_is_told() -> None:
    source = generate(worked_example())
    assert source.entry_name == "matmul"
    assert (source.threads, source.shared_bytes, source.cluster) == (384, 213040, 1)
    assert source.persistent is False
    a, b, c, extent = source.parameters
    assert isinstance(a, TensorMapParameter)
    assert (a.source, a.dtype, a.box, a.swizzle) == ("a_desc", "bf16", (128, 64), 128)
    assert isinstance(b, TensorMapParameter)
    assert b.box == (64, 64)
    assert isinstance(c, TensorMapParameter)
    assert extent == ScalarParameter("K", "i32")


def test_accumulators_are_updated_in_place() -> None:
    text = function(generate(worked_example()), "role_mma")
    assert re.findall(r"float (\w+)\[128\]", text) == ["acc"]
    assert not re.search(r"acc\w*\[r\] = acc", text)


def small(body: str, arguments: str = "%n: i32", results: str = "") -> tile.Kernel:
    """An ordinary kernel of one warp around `body`."""
    names = re.findall(r"%(\w+):", arguments)
    facts = ", ".join(f'{{name = "{name}"}}' for name in names)
    return parse(
        f'"tile.kernel"() ({{\n^bb0({arguments}):\n"hopper.role"() ({{\n{body}\n}}) '
        '{label = "main", first_warp = #builtin.int<0>, warps = #builtin.int<1>, '
        "registers = #builtin.int<64>} : () -> ()\n}) "
        f'{{sym_name = "small", arguments = [{facts}], options = {{}}, '
        "launch = {threads = #builtin.int<32>, shared = #builtin.int<0>}} : () -> ()"
    )


def test_values_that_change_places_pass_through_a_copy() -> None:
    kernel = small(
        """
        %c0 = tile.constant {value = #builtin.int<0>} : i32
        %c1 = tile.constant {value = #builtin.int<1>} : i32
        %x, %y = scf.for %k = %c0 to %n step %c1 iter_args(%a = %c0, %b = %c1) -> (i32, i32) : i32 {
          scf.yield %b, %a : i32, i32
        }
        %p = tile.ptr_add %out, %x : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>
        tile.store %p, %y : !tile.ptr<i32>, i32
        """,
        "%n: i32, %out: !tile.ptr<i32>",
    )
    text = roles(generate(kernel))
    assert "const int a_old = a;\n    a = b;\n    b = a_old;" in text


def test_integers_wrap_and_names_are_not_hidden() -> None:
    kernel = small(
        """
        %warp = tile.elementwise "mul"(%n, %n) : (i32, i32) -> i32
        %int = tile.elementwise "add"(%warp, %n) : (i32, i32) -> i32
        tile.store %descriptor, %int : !tile.ptr<i32>, i32
        """,
        "%n: i32, %descriptor: !tile.ptr<i32>",
    )
    text = roles(generate(kernel))
    assert "const int warp_2 = u32(n) * n;" in text
    assert "const int int_2 = u32(warp_2) + n;" in text
    assert "const u64 descriptor_2" in text


def test_lines_of_the_python_source_are_optional() -> None:
    assert "#line" not in generate(shape("gemm")).text


def test_every_operation_has_a_rule() -> None:
    """Set-up is read by the generator itself; tile operations that lowering removes have none."""
    setup = {
        hopper.TensorMap, hopper.Shared, hopper.Barriers, hopper.InitBarriers,
        hopper.FenceBarrierInit, hopper.PrefetchMap, hopper.Role,
    }  # fmt: skip
    gone = {
        tile.Kernel, tile.ProgramId, tile.NumPrograms, tile.MakeDesc, tile.DescLoad,
        tile.DescStore, tile.DescAtomic, tile.Dot, tile.Gather, tile.Breakpoint,
    }  # fmt: skip
    assert {op for op in hopper.Hopper.operations if op not in RULES} == setup
    assert {op for op in tile.Tile.operations if op not in RULES} == gone
