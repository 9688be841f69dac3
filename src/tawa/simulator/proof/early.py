"""Kernels that begin while those before them end, as a rule of the text: each role waits first.

A role's wait stands in its own body, or in the program of its one thread, under no loop and no
condition: so it is executed in every block, and a kernel ends only after those before it. What is
above it is pure, or gives registers and takes them. Nothing is asked about values: what the
rule accepts waits for every input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import scf
from xdsl.ir import Block, Operation
from xdsl.traits import IsTerminator, Pure

from tawa.ir import hopper
from tawa.simulator.proof.rules import Violation


def check_early(roles: Sequence[hopper.Role], early: bool) -> None:
    """Raise Violation where a role of an `early` kernel may touch global memory before its wait."""
    for role in roles if early else ():
        if not any(isinstance(each, hopper.GridWait) for each in _straight(role.body.block)):
            sentence = (
                f"{role.label.data} is launched early and does not wait for the kernels before."
            )
            raise Violation("kernels in order", sentence, role)
        for operation in _above(role.body.block):
            if not _is_harmless(operation):
                sentence = (
                    f"{role.label.data} comes to {operation.name} before it has waited for the "
                    "kernels before this one, which is launched early."
                )
                raise Violation("kernels in order", sentence, operation)


def _straight(block: Block) -> Iterator[Operation]:
    """Yield what a role, or its one thread, does in any case."""
    for operation in block.ops:
        yield operation
        if isinstance(operation, hopper.OneThread):
            yield from _straight(operation.body.block)


def _above(block: Block) -> Iterator[Operation]:
    """Yield what a role does until it has waited, all of it if it never does.

    The wait of a role's one thread is none of the others, who go on with what follows.
    """
    for operation in block.ops:
        match operation:
            case hopper.GridWait():
                return
            case hopper.OneThread():
                yield from _above(operation.body.block)
            case _:
                yield operation


def _is_harmless(operation: Operation) -> bool:
    match operation:
        case hopper.SetRegisters() | hopper.LaunchDependents():
            return True
        case scf.ForOp():
            return all(_is_harmless(inner) for inner in operation.body.block.ops)
        case _:
            return operation.has_trait(Pure) or operation.has_trait(IsTerminator)
