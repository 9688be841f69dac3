"""What the emulation refuses: programs that PTX gives no meaning, or that never end.

A real GPU hangs on some of them and computes nonsense on the others; here each is an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from codegen_emulator import emulate, needs_compiler
from codegen_samples import worked_example
from instructions import BARRIER, FILLED, ONE_BARRIER, Program, load_box, suite, tensor_map
from tawa.codegen import CudaSource
from tawa.codegen.generate import generate
from tawa.codegen.wrappers import barriers as b
from tawa.codegen.wrappers import tensor_cores as cores
from tawa.codegen.wrappers import tma
from tawa.codegen.wrappers.core import Wrapper
from tawa.codegen.wrappers.tensor_cores import WgmmaShape

pytestmark = needs_compiler

WORDS = np.arange(4096, dtype=np.uint32)
PRODUCT = WgmmaShape(8, 16, "f32", "f16", "f16")
MULTIPLY = "wgmma_m64n8k16_f32_f16_f16(d, desc, desc, 0);"
TENSOR_CORES = (cores.wgmma(PRODUCT), cores.WGMMA_FENCE, cores.WGMMA_COMMIT, cores.WGMMA_WAIT)
OPERANDS = """\
float d[4] = {};
u64 desc = 1ull << 62 | (u64)(1024 >> 4) << 32 | (u64)((shared & 0x3FFFF) >> 4);
"""
USE = "((float*)result)[thread] = d[0];"
STORED = (*BARRIER, tma.tma_store(1), tma.BULK_COMMIT, tma.BULK_WAIT_READ)


@dataclass(frozen=True)
class Refused:
    """A program's body, what it calls, and the sentence that names its fault."""

    body: str
    wrappers: tuple[Wrapper, ...]
    sentence: str
    threads: int = 32


REFUSED = {
    "registers that nobody gives back": Refused(
        "take_registers<240>();\n", (b.TAKE_REGISTERS,), "waits for registers a thread 240", 384
    ),
    "registers of a part of a warpgroup": Refused(
        "if (thread < 64) give_registers<40>();\n", (b.GIVE_REGISTERS,), "different setmaxnregs",
        128,
    ),
    "a warpgroup of two warps": Refused(
        "give_registers<40>();\n", (b.GIVE_REGISTERS,), "fewer than four warps", 64
    ),
    "more registers by giving": Refused(
        "give_registers<40>();\ngive_registers<48>();\n", (b.GIVE_REGISTERS,),
        "setmaxnreg.dec to 48 of a warp that holds 40", 128,
    ),
    "fewer registers by taking": Refused(
        "take_registers<40>();\n", (b.TAKE_REGISTERS,), "setmaxnreg.inc to 40", 128
    ),
    "a barrier of no arrivals": Refused(
        f"barrier_init(shared + {FILLED}, 0);\n", BARRIER, "a barrier of 0 arrivals"
    ),
    "a barrier that was not initialised": Refused(
        f"barrier_wait(shared + {FILLED}, 0);\n", BARRIER, "no barrier there"
    ),
    "a copy into a barrier before the fence": Refused(
        f"barrier_init(shared + {FILLED}, 1);\n"
        f"tma_load_1d(shared, &map, shared + {FILLED}, 0);\n",
        (*BARRIER, tma.tma_load(1)), "before fence.mbarrier_init",
    ),
    "an arrival too many": Refused(
        ONE_BARRIER + f"if (thread < 2) barrier_arrive(shared + {FILLED});\n"
        f"if (thread == 2) barrier_expect(shared + {FILLED}, 16);\n"
        f"barrier_arrive(shared + {FILLED});\n",
        (*BARRIER, b.BARRIER_ARRIVE), "one arrival too many",
    ),
    "a phase that nobody ends": Refused(
        ONE_BARRIER + f"barrier_wait(shared + {FILLED}, 0);\n", BARRIER,
        f"warp 0: waits for the mbarrier at {FILLED}",
    ),
    "bytes that never come": Refused(
        ONE_BARRIER + f"if (thread == 0) barrier_expect(shared + {FILLED}, 64);\n", BARRIER,
        "bytes owed at the end",
    ),
    "a named barrier of other threads": Refused(
        "if (thread < 32) named_sync<3, 64>();\nelse named_sync<3, 96>();\n", (b.NAMED_SYNC,),
        "different numbers of threads", 64,
    ),
    "a named barrier that nobody else meets": Refused(
        "if (thread < 32) named_sync<3, 64>();\n", (b.NAMED_SYNC,), "waits for the named barrier 3",
        64,
    ),
    "a box off 128 bytes": Refused(
        load_box("map", 64, 1024, (0,)).join([ONE_BARRIER, ""]), (*BARRIER, tma.tma_load(1)),
        "multiple of 128 bytes",
    ),
    "a box that begins off 16 bytes": Refused(
        load_box("map", 0, 1024, (1,)).join([ONE_BARRIER, ""]), (*BARRIER, tma.tma_load(1)),
        "multiple of 16 bytes",
    ),
    "a store that was never committed": Refused(
        "if (thread == 0) tma_store_1d(&map, shared, 0);\n", STORED, "never committed"
    ),
    "an end before a store has read": Refused(
        "if (thread == 0) { tma_store_1d(&map, shared, 0); bulk_commit(); }\n", STORED,
        "before its bulk stores have read",
    ),
    "an end with copies in flight": Refused(
        "copy_async_16(shared + 16 * lane, given, 16);\n", (tma.copy_async(16),),
        "ends with cp.async in flight",
    ),
    "a product before the fence": Refused(
        OPERANDS + MULTIPLY, TENSOR_CORES, "before any wgmma.fence", 128
    ),
    "a product that nobody waits for": Refused(
        OPERANDS + "wgmma_fence();\n" + MULTIPLY + "\nwgmma_commit();\n", TENSOR_CORES,
        "never waited for", 128,
    ),
    "registers of a product in flight": Refused(
        OPERANDS + "wgmma_fence();\n" + MULTIPLY + "\nwgmma_commit();\nd[1] = 3;\n"
        "asm volatile(\"\" : : \"r\"(d) : \"memory\");\nwgmma_wait<0>();\n" + USE,
        TENSOR_CORES, "in flight were written", 128,
    ),
}  # fmt: skip


def _program(name: str) -> Program:
    case = REFUSED[name]
    maps = (tensor_map("map", "given", "u32", (256,)),)
    result = np.zeros(4096, np.uint32)
    return Program(
        name, (*case.wrappers, b.SHARED_ADDRESS), case.body, WORDS, result, case.threads, maps=maps
    )


SOURCES = suite([_program(name) for name in REFUSED])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    number, case = list(REFUSED).index(name), REFUSED[name]
    given = {"given": WORDS.copy(), "result": np.zeros(4096, np.uint32)}
    with pytest.raises(AssertionError, match=case.sentence):
        # Asynchronous work comes as late as it can.
        emulate(SOURCES[number], given, (1, 1, 1), seed=1, among=SOURCES)


def _bounds(source: CudaSource, blocks: int) -> CudaSource:
    """The same text, built for so many blocks on a multiprocessor."""
    text = source.text.replace(f"({source.threads}, 1)\n", f"({source.threads}, {blocks})\n")
    assert (text != source.text) == (blocks != 1)
    return replace(source, text=text)


@pytest.mark.parametrize("blocks", [1, 2])
def test_tilelang_2559_registers_of_two_blocks(blocks: int) -> None:
    """Two blocks on a multiprocessor leave each thread 80 registers: 3 x 80 < 40 + 2 x 232."""
    source = _bounds(generate(worked_example()), blocks)
    arguments = {
        "a_desc": np.ones((128, 64), np.uint16), "b_desc": np.ones((64, 256), np.uint16),
        "c_desc": np.ones((128, 256), np.uint16), "K": 64,
    }  # fmt: skip
    if blocks == 1:
        emulate(source, arguments, (1, 1, 1))
        return
    with pytest.raises(AssertionError, match="waits for registers a thread 232"):
        emulate(source, arguments, (1, 1, 1))


WITHOUT_A_COMPILER = """
import importlib.util
import shutil

found = importlib.util.find_spec
shutil.which = lambda name: None
importlib.util.find_spec = lambda name: None if name == "ziglang" else found(name)
import emulator_build

assert emulator_build.COMPILER is None
print(emulator_build.needs_compiler.mark.args[0])
"""


@pytest.mark.parametrize(("continuous", "skipped"), [("", "True"), ("1", "False")])
def test_continuous_integration_skips_nothing(continuous: str, skipped: str) -> None:
    """Without a compiler these tests are skipped at somebody's desk, and fail there."""
    environment = {name: text for name, text in os.environ.items() if name not in ("CI", "CXX")}
    environment |= {"CI": continuous, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WITHOUT_A_COMPILER]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == skipped
