"""A multicast copy lands in each block on its own: who waited in one block knows nothing of others.

The consumers of the sample with clusters wait for a role that waits for the copies and tells both
blocks: that of each block, or that of one block alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tawa.errors import ProtocolError
from tawa.ir import parse
from tawa.simulator.proof import prove
from tawa.target import H200

SAMPLE = (Path(__file__).parent / "data" / "gemm_cluster.hopper.mlir").read_text()
# Both operands are sent to both blocks: each block loads half of each.
A_BOX = "!hopper.tensor_map<bf16, [#builtin.int<%d>, #builtin.int<64>]>"
A_LOAD = "%filled[%slot_1] : " + A_BOX % 128
SENT = "%filled[%slot_1] {multicast = #builtin.int<2>} : " + A_BOX % 64
TOLD = "!hopper.barriers<#builtin.int<3>>"
BOTH = f'hopper.arrive %told[%slot_1] {{by = "warp", cluster = #builtin.int<2>}} : {TOLD}, i32'
ONE = f"""%first = tile.elementwise "eq"(%rank, %zero) : (i32, i32) -> i1
          scf.if %first {{
            {BOTH}
          }}"""


def told(how: str, arrivals: int) -> str:
    """The sample with a role that waits for copies and tells the consumers of both blocks `how`."""
    load, mma = re.findall(r'  "hopper\.role"\(.*?\n  \}\) \{.*?\n', SAMPLE, re.DOTALL)
    wait = f"          hopper.wait %filled[%slot_1], %phase_1 : {TOLD}, i32, i32\n          {how}\n"
    relay = re.sub(
        r"          hopper\.wait %freed.*?(?=          %15)", wait, load, flags=re.DOTALL
    )
    relay = relay.replace("%phase = %one", "%phase = %zero").replace('"load"', '"relay"')
    relay = relay.replace('    "hopper.one_thread"() ({\n', "").replace("    }) : () -> ()\n", "")
    relay = relay.replace("first_warp = #builtin.int<0>", "first_warp = #builtin.int<12>")
    barriers = (
        f'  %told = hopper.barriers "told" {{offset = #builtin.int<213040>, arrivals = '
        f"#builtin.int<{arrivals}>}} : {TOLD}\n"
    )
    text = SAMPLE.replace(load, load + relay).replace(A_LOAD, SENT)
    text = text.replace(f"128x64xbf16>>) -> {A_BOX % 128}", f"128x64xbf16>>) -> {A_BOX % 64}")
    text = text.replace(mma, mma.replace("wait %filled", "wait %told"))
    text = text.replace(
        "  hopper.init_barriers %filled", f"{barriers}  hopper.init_barriers %filled"
    )
    text = text.replace(
        "  hopper.fence_barrier_init",
        f"  hopper.init_barriers %told : {TOLD}\n  hopper.fence_barrier_init",
    )
    text = re.sub(r"(threads = #builtin\.int<)384", r"\g<1>512", text).replace("<232>", "<208>")
    text = re.sub(r"(registers = #builtin\.int<)168", r"\g<1>128", text)
    return re.sub(r"(shared = #builtin\.int<)\d+", r"\g<1>213064", text)


def test_each_block_tells_of_its_own() -> None:
    assert prove(parse(told(BOTH, 8)), H200).ok


def test_one_block_cannot_tell_of_the_other() -> None:
    with pytest.raises(ProtocolError, match=r"before the bytes of tma_load .* are known to have"):
        prove(parse(told(ONE, 4)), H200)
