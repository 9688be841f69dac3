"""SASS: the machine code of a cubin, and what it shows of a kernel's quality.

Loops are found on the control-flow graph, since ptxas places spin loops and rare blocks far from
the loops they belong to. "Main loops" are the innermost loops that issue tensor-core instructions:
a persistent kernel's outer loop holds its epilogue too, where a fence does no harm. "Loops of
roles" are those, and the innermost that wait for a barrier and start copies or arrive at one:
ptxas also makes loops over the lanes of a warp, of one instruction each. The listing is read and
not nvdisasm's JSON, which has no source lines: pages show the listing, line by line.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tawa.errors import BuildError


def find_nvdisasm() -> Path | None:
    """Return the path of nvdisasm (wheel nvidia-cuda-nvdisasm), None where it is missing."""
    try:
        pathfinder: Any = import_module("cuda.pathfinder")
    except ImportError:
        return None
    found = pathfinder.find_nvidia_binary_utility("nvdisasm")
    return Path(found) if found else None


def disassemble(cubin: bytes, *, lines: bool = False) -> str:
    """Return the SASS of a cubin, empty where nvdisasm is not installed.

    With `lines`, comments before an instruction name the lines of the CUDA C++ it comes from, the
    innermost inlined function first. Raises BuildError when nvdisasm fails on it.
    """
    tool = find_nvdisasm()
    if tool is None:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [str(tool), "-c", *(["-gi"] if lines else []), str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    if done.returncode != 0:
        raise BuildError("nvdisasm failed on a built kernel", why=done.stderr.strip())
    return done.stdout


@dataclass(frozen=True, slots=True)
class Instruction:
    """One SASS instruction: its position, opcode with modifiers, operands, whether predicated."""

    index: int
    opcode: str
    operands: str
    predicated: bool


@dataclass(frozen=True, slots=True)
class SassReport:
    """What the machine code shows.

    `hgmma` counts tensor-core instructions of a warpgroup; `membar_in_loop` memory barriers of the
    GPU or system in main loops, `local_in_loops` accesses to local memory in loops of roles,
    `local_accesses` anywhere; `registers` the highest register number plus one.
    """

    instructions: int
    loops: int
    hgmma: int
    membar_in_loop: int
    local_in_loops: int
    local_accesses: int
    registers: int

    @property
    def defects(self) -> tuple[str, ...]:
        """What makes the kernel slower than its plan, in words; empty when nothing does."""
        found: list[str] = []
        if self.membar_in_loop:
            found.append(f"{self.membar_in_loop} memory barriers inside a main loop")
        if self.local_in_loops:
            found.append(f"{self.local_in_loops} accesses to local memory in loops of roles")
        return tuple(found)


_LABEL = re.compile(r"^\s*(\.L\w+):")
_INSTRUCTION = re.compile(
    r"^\s*(?:/\*[0-9a-f]+\*/)?\s*(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*[\w.]*)\s*([^;]*);"
)
_TARGET = re.compile(r"`\((\.L\w+)\)")
_REGISTER = re.compile(r"\bR(\d+)\b")
_PRODUCTS = ("HGMMA", "QGMMA", "IGMMA")
_THREADS_PRODUCTS = ("HMMA", "QMMA", "IMMA")
_SIGNALS = ("UTMALDG", "LDGSTS", "ARRIVES", "SYNCS.ARRIVE")
_WAITS = ("SYNCS.PHASECHK",)
_ENDS = ("EXIT", "BRA", "BRX", "RET", "JMP")


def inspect(listing: str) -> SassReport:
    """Read a listing of nvdisasm."""
    code, labels = _read(listing)
    successors = _successors(code, labels)

    def those(*opcodes: str) -> set[int]:
        return {item.index for item in code if item.opcode.startswith(opcodes)}

    products, signals, waits = those(*_PRODUCTS), those(*_SIGNALS), those(*_WAITS)
    computing = products | those(*_THREADS_PRODUCTS)
    loops = _loops(set(range(len(code))), successors)
    in_main = _inmost([loop for loop in loops if loop & products])
    in_roles = _inmost(
        [loop for loop in loops if loop & computing or (loop & signals and loop & waits)]
    )
    local = [item for item in code if item.opcode.startswith(("LDL", "STL"))]
    numbers = [int(number) for item in code for number in _REGISTER.findall(item.operands)]
    return SassReport(
        len(code),
        len(loops),
        len(products),
        sum(_is_wide_barrier(item) and item.index in in_main for item in code),
        sum(item.index in in_roles for item in local),
        len(local),
        max(numbers, default=-1) + 1,
    )


def _inmost(loops: list[frozenset[int]]) -> set[int]:
    """Return what stands in those of some loops that hold no other of them."""
    return set[int]().union(*(loop for loop in loops if not any(inner < loop for inner in loops)))


def _is_wide_barrier(item: Instruction) -> bool:
    """Tell whether an instruction is a memory barrier beyond the block.

    `fence.proxy.async` becomes MEMBAR.ALL.CTA, which is cheap and where hopper IR asks for it.
    """
    return item.opcode.startswith("MEMBAR") and not item.opcode.endswith(".CTA")


def _read(listing: str) -> tuple[list[Instruction], dict[str, int]]:
    """Return the instructions and where each label stands."""
    labels: dict[str, int] = {}
    code: list[Instruction] = []
    for line in listing.splitlines():
        if (label := _LABEL.match(line)) is not None:
            labels[label[1]] = len(code)
        elif (found := _INSTRUCTION.match(line)) is not None:
            code.append(Instruction(len(code), found[2], found[3], found[1] is not None))
    return code, labels


def _successors(code: list[Instruction], labels: dict[str, int]) -> list[tuple[int, ...]]:
    """Return which instructions may follow each."""
    follow: list[tuple[int, ...]] = []
    for item in code:
        onward = (item.index + 1,) if item.index + 1 < len(code) else ()
        base = item.opcode.split(".")[0]
        if base not in _ENDS:
            follow.append(onward)
            continue
        found = _TARGET.search(item.operands)
        target = (labels[found[1]],) if found is not None and found[1] in labels else ()
        # A branch may also be conditional on a predicate operand (BRA P0, `(.L)) or a vote (.ANY).
        conditional = item.predicated or bool(re.match(r"!?U?P\d|\w*\.ANY", item.operands))
        conditional = conditional or ".ANY" in item.opcode or ".DIV" in item.opcode
        follow.append(target + onward if conditional else target)
    return follow


def _loops(nodes: set[int], successors: list[tuple[int, ...]]) -> list[frozenset[int]]:
    """Return the loops among `nodes`: strongly connected parts, then those inside each."""
    found: list[frozenset[int]] = []
    pending = [nodes]
    while pending:
        for part in _components(pending.pop(), successors):
            if len(part) == 1 and not set(successors[min(part)]) & part:
                continue
            found.append(frozenset(part))
            # Without its first instruction (where it is entered) only inner loops stay connected.
            pending.append(part - {_header(part, successors)})
    return found


def _header(part: set[int], successors: list[tuple[int, ...]]) -> int:
    """Return the instruction through which a loop is entered from outside."""
    entered = {
        target
        for node, targets in enumerate(successors)
        if node not in part
        for target in targets
        if target in part
    }
    return min(entered or part)


def _components(nodes: set[int], successors: list[tuple[int, ...]]) -> Iterable[set[int]]:
    """Yield the strongly connected components of a graph (Tarjan 1972, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in sorted(nodes):
        if root in number:
            continue
        work = [(root, 0)]
        while work:
            node, place = work.pop()
            if place == 0:
                number[node] = low[node] = len(number)
                stack.append(node)
                on_stack.add(node)
            targets = [target for target in successors[node] if target in nodes]
            if place < len(targets):
                work.append((node, place + 1))
                target = targets[place]
                if target not in number:
                    work.append((target, 0))
                elif target in on_stack:
                    low[node] = min(low[node], number[target])
                continue
            for target in targets:
                if target in on_stack:
                    low[node] = min(low[node], low[target])
            if low[node] == number[node]:
                part: set[int] = set()
                while node not in part:
                    member = stack.pop()
                    on_stack.discard(member)
                    part.add(member)
                yield part
