"""The former name of the check (`tawa.verify`), for programs that call it by this one."""

from __future__ import annotations

from tawa.ir import tile
from tawa.target import Target
from tawa.verify import Proof, verify


def prove(kernel: tile.Kernel, target: Target) -> Proof:
    """Do as `tawa.verify.verify` does, without an aref program."""
    return verify(kernel, target)


__all__ = ["Proof", "prove"]
