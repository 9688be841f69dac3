"""LLVM IR of what threads of a lane do with each other: neighbours in a warp of a GPU."""

from __future__ import annotations

from typing import Protocol

WARP = 32
_THREAD = "@llvm.nvvm.read.ptx.sreg.tid.x"


class Lines(Protocol):
    """A function in the making."""

    def line(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        ...

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        ...

    def intrinsic(self, declaration: str) -> None:
        """Declare an intrinsic function."""
        ...


class Threads:
    """The threads of a lane, a power of two up to a warp."""

    def __init__(self, lines: Lines, count: int) -> None:
        self.lines = lines
        self.count = count

    def number(self) -> str:
        """Return the number of the thread in its lane."""
        return self._bits(self.count - 1)

    def _bits(self, mask: int) -> str:
        return self.lines.line(f"and i32 {self.lines.line(f'call i32 {_THREAD}()')}, {mask}")

    def _members(self) -> str:
        """Return the mask of the threads of the lane in their warp."""
        mask = -1 if self.count == WARP else (1 << self.count) - 1
        return self.lines.line(f"shl i32 {mask}, {self._bits(WARP - self.count)}")

    def synchronise(self) -> None:
        """Wait for the threads of the lane, and see what they wrote."""
        self.lines.intrinsic("declare void @llvm.nvvm.bar.warp.sync(i32)")
        self.lines.do(f"call void @llvm.nvvm.bar.warp.sync(i32 {self._members()})")

    def shuffle(self, mode: str, type_: str, value: str, other: str) -> str:
        """Return a value of another thread: that of a number ("idx"), or so far apart ("bfly")."""
        line, members = self.lines.line, self._members()
        # PTX ISA, shfl.sync: bits 8 to 12 of c keep the exchange inside of a segment of the warp.
        segment = (WARP - self.count) << 8 | WARP - 1
        name = f"@llvm.nvvm.shfl.sync.{mode}.i32"
        self.lines.intrinsic(f"declare i32 {name}(i32, i32, i32, i32)")

        def word(given: str) -> str:
            args = f"i32 {members}, i32 {given}, i32 {other}, i32 {segment}"
            return line(f"call i32 {name}({args})")

        match type_:
            case "i1":
                return line(f"trunc i32 {word(line(f'zext i1 {value} to i32'))} to i1")
            case "float" | "i32":
                return line(
                    f"bitcast i32 {word(line(f'bitcast {type_} {value} to i32'))} to {type_}"
                )
            case _:
                held = line(f"bitcast {type_} {value} to i64")
                low = word(line(f"trunc i64 {held} to i32"))
                high = word(line(f"trunc i64 {line(f'lshr i64 {held}, 32')} to i32"))
                high = line(f"shl i64 {line(f'zext i32 {high} to i64')}, 32")
                whole = line(f"or i64 {high}, {line(f'zext i32 {low} to i64')}")
                return line(f"bitcast i64 {whole} to {type_}")
