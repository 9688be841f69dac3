"""Programs of global memory: loads and stores of every width, atomics, what asks for programs."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from instructions import Program
from tawa.codegen.wrappers import arithmetic, memory, tma
from tawa.codegen.wrappers import barriers as b
from tawa.codegen.wrappers.core import Wrapper

KINDS: dict[str, Any] = {
    "u32": np.uint32, "int": np.int32, "float": np.float32, "u64": np.uint64, "i64": np.int64,
    "double": np.float64,
}  # fmt: skip
ELEMENTS: dict[str, Any] = {
    "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "f32": np.float32,
    "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
}  # fmt: skip


def moved(kind: str, count: int, *, volatile: bool = False) -> Program:
    """Vectors go through shared memory and come out in reverse order of lanes."""
    load = memory.global_load(kind, count, volatile=volatile)
    given = np.arange(1, 32 * count + 1).astype(KINDS[kind])
    size = given.itemsize * count
    body = f"""\
{kind} held[{count}];
{load.name}(held, given + {size} * lane);
shared_store_{kind}x{count}(shared + {size} * lane, held);
warp_sync();
shared_load_{kind}x{count}(held, shared + {size} * (31 - lane));
global_store_{kind}x{count}(result + {size} * lane, held);
"""
    wrappers = (
        load, memory.global_store(kind, count), b.WARP_SYNC,
        memory.shared_load(kind, count), memory.shared_store(kind, count),
    )  # fmt: skip
    expected = given.reshape(32, count)[::-1].copy()
    how = " volatile" * volatile
    return Program(f"{kind} x{count} to memory and back{how}", wrappers, body, given, expected)


def one_by_one(kind: str) -> Program:
    """Single values, volatile, with a cache operator and without, through shared memory."""
    given = np.arange(32).astype(KINDS[kind])
    size = given.itemsize
    load = partial(memory.global_load_one, kind)
    loads = load(), load(cache="cg"), load(volatile=True)
    body = f"""\
{kind} one = {loads[0].name}(given + {size} * lane);
{kind} mine = {loads[1].name}(given + {size} * (31 - lane));
shared_store_{kind}x1(shared + {size} * lane, &mine);
warp_sync();
{kind} other = shared_load_{kind}(shared + {size} * lane);
global_store_{kind}(result + {size} * lane, one + other + {loads[2].name}(given + {size} * lane));
"""
    wrappers = (
        *loads, memory.global_store_one(kind), memory.shared_load_one(kind),
        memory.shared_store(kind, 1), b.WARP_SYNC,
    )  # fmt: skip
    expected = (given + given[::-1] + given).astype(given.dtype)
    return Program(f"one {kind}", wrappers, body, given, expected)


def narrow(bits: int, *, volatile: bool = False) -> Program:
    """Elements of 8 or 16 bits: loads extend with zeros, stores keep the low bits."""
    load = memory.global_load_narrow(bits, volatile=volatile)
    kind = np.dtype(f"u{bits // 8}")
    given = (np.arange(32) * 0x97 + 0x80).astype(kind)
    size = bits // 8
    body = f"""\
u32 word = {load.name}(given + {size} * lane);
shared_store_b{bits}(shared + {size} * lane, word | 0x10000);
warp_sync();
word = shared_load_b{bits}(shared + {size} * (31 - lane));
global_store_b{bits}(result + {size} * lane, word | 0x10000);
"""
    wrappers = (
        load, memory.global_store_narrow(bits), b.WARP_SYNC,
        memory.shared_load_narrow(bits), memory.shared_store_narrow(bits),
    )  # fmt: skip
    name = f"{bits} bits to memory and back{' volatile' * volatile}"
    return Program(name, wrappers, body, given, given[::-1].copy())


FUNCTIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def atomic(function: str, element: str, order: str = "relaxed", scope: str = "gpu") -> Program:
    """Lanes combine with eight places; sums are exact, so that their order does not matter."""
    kind = ELEMENTS[element]
    values = np.arange(-15, 17) if np.dtype(kind).kind not in "u" else np.arange(32)
    given = values.astype(kind)
    start = (np.arange(8) * 3 - (4 if values[0] < 0 else 0)).astype(kind)
    expected = start.copy()
    for lane in range(32):
        expected[lane % 8] = FUNCTIONS[function](expected[lane % 8], given[lane]).astype(kind)
    wrapper = memory.atomic(function, element, order, scope)
    c_type, size = memory.ATOMIC_TYPES[element][0], given.itemsize
    body = f"{wrapper.name}(result + {size} * (lane % 8), (({c_type}*)given)[lane]);\n"
    return Program(wrapper.name, (wrapper,), body, given, expected, start=start)


def reduced(element: str, words: int) -> Program:
    """Lanes add vectors to four places; sums are exact, so that their order does not matter."""
    wrapper = memory.reduction(element, words, "gpu")
    kind = memory.REDUCED[element][0]
    count = words * (1 if element == "f32" else 2)
    given = (np.arange(32 * count) % 13 - 6).astype(ELEMENTS[element]).reshape(32, count)
    start = (np.arange(4 * count) % 7).astype(ELEMENTS[element]).reshape(4, count)
    sums = given.astype(np.float64).reshape(8, 4, count).sum(axis=0)
    body = f"""\
fence_gpu();
{wrapper.name}(result + {4 * words} * (lane % 4), ({kind}*)given + {words} * lane);
"""
    expected = (start + sums).astype(ELEMENTS[element])
    wrappers = wrapper, memory.fence("gpu")
    return Program(wrapper.name, wrappers, body, given, expected, start=start)


def exchanged() -> Program:
    """One thread exchanges in turn; each finds what the one before left."""
    given = np.arange(100, 108, dtype=np.int32)
    body = """\
if (lane == 0) for (int i = 0; i < 8; ++i)
  ((int*)result)[1 + i] = atomic_exchange_i32_acq_rel_gpu(result, ((int*)given)[i]);
"""
    start = np.zeros(9, np.int32)
    start[0] = 7
    expected = np.array([107, 7, *range(100, 107)], np.int32)
    wrapper = memory.atomic("exchange", "i32", "acq_rel", "gpu")
    return Program("atomic exchange", (wrapper,), body, given, expected, start=start)


def compared(element: str) -> Program:
    """Memory changes where it holds what was expected; the old value comes back either way."""
    kind = ELEMENTS[element]
    c_type = memory.ATOMIC_TYPES[element][0]
    given = np.array([5, 6, 5, 9], kind)  # expected, in turn; what is written is 10 more
    wrapper = memory.compare_exchange(element, "relaxed", "gpu")
    body = f"""\
if (lane == 0) for (int i = 0; i < 4; ++i) {{
  const {c_type} expected = (({c_type}*)given)[i];
  (({c_type}*)result)[1 + i] = {wrapper.name}(result, expected, expected + 10);
}}
"""
    start = np.array([5, 0, 0, 0, 0], kind)
    expected = np.array([15, 5, 15, 15, 15], kind)
    return Program(
        f"compare and exchange {element}", (wrapper,), body, given, expected, start=start
    )


def next_programs() -> Program:
    """Programs 1 to 4 of 5 are given out, then the end; the counter is 0 again for the next."""
    body = """\
if (lane == 0) for (int i = 0; i < 10; ++i) ((int*)result)[i] = next_program(7, 5);
"""
    expected = np.array([1, 2, 3, 4, 5] * 2, np.int32)
    return Program("next program", (memory.NEXT_PROGRAM,), body, np.zeros(4, np.int32), expected)


def hints() -> Program:
    """Policies, prefetches and pins change no value."""
    body = """\
u64 policy = policy_evict_first() + policy_evict_last();
u32 word = ((u32*)given)[lane];
pin(word);
pin(policy);
((u32*)result)[lane] = word;
"""
    wrappers: tuple[Wrapper, ...] = (
        tma.policy("first"), tma.policy("last"), arithmetic.pin("u32"), arithmetic.pin("u64"),
    )  # fmt: skip
    given = np.arange(32, dtype=np.uint32)
    return Program("hints", wrappers, body, given, given.copy())


PROGRAMS = [
    *(moved(kind, count) for kind, counts in {
        "u32": (1, 2, 4), "int": (1, 2, 4), "float": (1, 2, 4), "double": (2,)}.items()
      for count in counts),
    *(one_by_one(kind) for kind in ("int", "float", "u32")), narrow(8), narrow(16),
    narrow(8, volatile=True), narrow(16, volatile=True), moved("float", 4, volatile=True),
    *(atomic("add", element) for element in ELEMENTS), atomic("add", "i32", "acq_rel"),
    *(atomic(name, "i32") for name in FUNCTIONS if name != "add"),
    atomic("max", "f32"), atomic("min", "f32"), atomic("max", "f64"), atomic("max", "u32"),
    atomic("min", "i64", "relaxed", "cta"),
    *(reduced(element, words) for element in ("f32", "f16", "bf16") for words in (1, 2, 4)),
    exchanged(), compared("i32"), compared("u64"), next_programs(), hints(),
]  # fmt: skip
