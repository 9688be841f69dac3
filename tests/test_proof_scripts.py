"""The scripts of a role: one for all its agents, but where one thread is alone with a choice."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import IntAttr

from proof_kernels import text
from tawa.errors import ProtocolError
from tawa.ir import hopper, parse, tile
from tawa.simulator.proof import prove
from tawa.simulator.proof.read import read_kernel
from tawa.target import H200

FAR = IntAttr(64)
LOOP, STRAIGHT = "sample gemm", "copies gather"


@pytest.mark.parametrize(("name", "alone"), [(LOOP, True), (STRAIGHT, False)])
def test_who_has_a_script(name: str, alone: bool) -> None:
    load = read_kernel(parse(text(name)), H200).roles[0]
    assert any(isinstance(op, hopper.OneThread) for op in load.operation.walk())
    assert load.alone is alone


def test_what_one_thread_cannot_do_is_told() -> None:
    kernel = parse(text(STRAIGHT))
    inside = [op for op in kernel.walk() if isinstance(op.parent_op(), hopper.OneThread)]
    expect = next(op for op in inside if isinstance(op, hopper.Expect))
    far = next(op for op in kernel.walk() if isinstance(op, tile.Constant) and op.value == FAR)
    slot = far.clone()
    block = expect.parent_block()
    assert block is not None
    block.insert_op_before(slot, expect)
    expect.operands[1] = slot.result
    with pytest.raises(ProtocolError, match=rf"uses .*\[{FAR.data}\], but it has"):
        prove(kernel, H200)
