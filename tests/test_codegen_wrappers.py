"""Every wrapper compiles alone: a kernel that calls it and no other assembles for sm_90a."""

import re

import pytest

from tawa.codegen.wrappers import FIXED, arithmetic, memory, tensor_cores, tma
from tawa.codegen.wrappers.core import PRELUDE, Wrapper, closure
from tawa.runtime import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

IMMEDIATES = {
    "id": 1,
    "threads": 128,
    "count": 40,
    "pending": 1,
    "most": 8,
    "mode": 1,
    "chunks": 112,
    "swaps": 1,
    "pitch": 256,
    "rows": 16,
    "width": 64,
    "bins": 64,
}

SMALL_FLOATS = ("bf16", "f16", "f8e4m3", "f8e5m2")
WORDS = ("u32", "int", "float", "u64", "i64", "double")


def wgmmas() -> list[Wrapper]:
    shape = tensor_cores.WgmmaShape
    made = [shape(n, 16, "f32", "bf16", "bf16", transposed_b=True) for n in (8, 24, 192, 256)]
    made += [
        shape(64, 16, "f16", "f16", "f16", transposed_a=True),
        shape(64, 16, "f32", "f16", "f16", from_registers=True, transposed_b=True),
        shape(64, 8, "f32", "f32", "f32"),
        shape(64, 8, "f32", "f32", "f32", from_registers=True),
        shape(64, 32, "f32", "f8e4m3", "f8e5m2"),
        shape(64, 32, "f32", "f8e5m2", "f8e4m3", from_registers=True),
        shape(64, 32, "i32", "i8", "i8"),
        shape(64, 32, "i32", "u8", "i8", from_registers=True),
    ]
    return [tensor_cores.wgmma(one) for one in made]


def copies() -> list[Wrapper]:
    made = [tma.tma_load(rank) for rank in range(1, 6)]
    made += [tma.tma_load(2, multicast=True), tma.tma_load(3, multicast=True, eviction="last")]
    made += [tma.tma_load(2, eviction="first"), tma.tma_store(2, eviction="first")]
    made += [tma.tma_store(rank) for rank in range(1, 6)]
    made += [tma.tma_store(2, reduce=name) for name in ("add", "min", "max", "and", "or", "xor")]
    return made + [tma.copy_async(size) for size in (4, 8, 16)]


def products() -> list[Wrapper]:
    shape = tensor_cores.MmaShape
    return [
        tensor_cores.mma(shape(16, "f32", "bf16", "bf16")),
        tensor_cores.mma(shape(16, "f32", "f16", "f16")),
        tensor_cores.mma(shape(8, "f32", "f32", "f32")),
        tensor_cores.mma(shape(32, "f32", "f8e4m3", "f8e5m2")),
        tensor_cores.mma(shape(32, "i32", "i8", "u8")),
    ]


def accesses() -> list[Wrapper]:
    made: list[Wrapper] = []
    for kind in WORDS:
        widest = 2 if kind in ("u64", "i64", "double") else 4
        for count in (1, 2, widest):
            made += [memory.shared_load(kind, count), memory.shared_store(kind, count)]
            made += [memory.global_load(kind, count), memory.global_store(kind, count)]
    for bits in (8, 16):
        made += [memory.shared_load_narrow(bits), memory.shared_store_narrow(bits)]
        made += [memory.global_load_narrow(bits), memory.global_store_narrow(bits)]
    made += [
        memory.global_load("u32", 4, eviction="first"),
        memory.global_load("u32", 4, cache="cg"),
    ]
    made += [
        memory.global_load("float", 1, volatile=True),
        memory.global_store("u32", 4, cache="cs"),
    ]
    for count in (1, 2, 4):
        for transposed in (False, True):
            made.append(memory.stmatrix(count, transposed=transposed))
            made.append(memory.ldmatrix(count, transposed=transposed))
    return made


def atomics() -> list[Wrapper]:
    made = [memory.atomic("add", kind, "relaxed", "gpu") for kind in memory.ATOMIC_TYPES]
    for name in ("min", "max", "and", "or", "xor", "exchange"):
        made += [memory.atomic(name, kind, "acq_rel", "gpu") for kind in ("i32", "u64")]
    made.append(memory.atomic("exchange", "f32", "release", "sys"))
    made += [
        memory.atomic(name, kind, "relaxed", "gpu")
        for name in ("min", "max")
        for kind in ("f32", "f64")
    ]
    for words in (1, 2, 4):
        made += [memory.reduction(kind, words, "gpu") for kind in memory.REDUCED]
    made += [memory.fence(scope) for scope in ("cta", "gpu", "sys")]
    return made + [
        memory.compare_exchange(kind, "acquire", "cta") for kind in ("i32", "i64", "f32", "f16")
    ]


def conversions() -> list[Wrapper]:
    made = [make(name) for name in SMALL_FLOATS for make in (arithmetic.widen, arithmetic.narrow)]
    made += [arithmetic.pack(name) for name in SMALL_FLOATS]
    made += [
        arithmetic.paired(name, kind) for name in arithmetic.PAIRED for kind in ("f16", "bf16")
    ]
    made += [arithmetic.mulhi(kind) for kind in ("int", "u32", "i64", "u64")]
    for kind in WORDS:
        made += [arithmetic.shuffle(kind, "xor"), arithmetic.shuffle(kind, "from")]
        made.append(arithmetic.pin(kind))
    return made


EVERY = [
    *FIXED.values(),
    *wgmmas(),
    *copies(),
    *products(),
    *accesses(),
    *atomics(),
    *conversions(),
]
UNIQUE = list({wrapper.text: wrapper for wrapper in EVERY}.values())


def argument(parameter: str) -> str:
    """The expression that passes a kernel parameter of the same type on."""
    kind, name = parameter.rsplit(" ", 1)
    return f"*{name}" if kind.endswith("&") else name


def caller(wrapper: Wrapper, number: int) -> str:
    """A kernel whose parameters are the wrapper's, in a namespace with what the wrapper needs."""
    parameters = [
        item.strip() for item in wrapper.head.split("(", 1)[1].removesuffix(")").split(",") if item
    ]
    declared = [item.replace("&", "*") for item in parameters]
    names = re.findall(r"(\w+)(?:,|$)", wrapper.template)
    immediates = f"<{', '.join(str(IMMEDIATES[name]) for name in names)}>" if names else ""
    call = f"{wrapper.name}{immediates}({', '.join(map(argument, parameters))})"
    result = wrapper.head.split(" ")[0]
    if result != "void":
        declared.append(f"{result}* result")
        call = f"*result = {call}"
    needed = "\n".join(item.text for item in closure({wrapper.head: wrapper}))
    bounds = "__launch_bounds__(128, 1)"
    head = f'extern "C" __global__ void {bounds} k{number}({", ".join(declared)})'
    return f"namespace of_{wrapper.name} {{\n{needed}\n{head} {{ {call}; }}\n}}\n"


TOGETHER = 24
"""Wrappers in a program: most of what a small one takes is the start of the compiler."""


@pytest.mark.parametrize("first", range(0, len(UNIQUE), TOGETHER))
def test_wrappers_compile_alone(first: int) -> None:
    callers = map(caller, UNIQUE[first : first + TOGETHER], range(TOGETHER))
    # Not strict: registers of a lone wgmma come from memory, which serialises it.
    nvrtc.build(PRELUDE + "".join(callers), "wrappers", strict=False)


def test_arrive_has_no_scope() -> None:
    text = "".join(wrapper.text for wrapper in FIXED.values() if wrapper.effect == "barrier.arrive")
    assert "mbarrier.arrive" in text
    assert ".release" not in text
    assert ".cluster.shared" not in text
