"""SASS: the machine code of a cubin, and what it shows of a kernel's quality.

Loops are found on the control-flow graph, since ptxas places spin loops and rare blocks far from
the loops they belong to. "Main loops" are the innermost loops that issue tensor-core instructions:
a persistent kernel's outer loop holds its epilogue too, where a fence does no harm. "Loops of
roles" are those, and the innermost that wait for a barrier and start copies or arrive at one:
ptxas also makes loops over the lanes of a warp, of one instruction each.

What is looked for is read from the machine code itself: which plan is taken depends on it, on
machines without nvdisasm too, whose start alone takes longer than most kernels do to compile. What
people read is nvdisasm's listing, and not its JSON, which has no source lines.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from importlib import import_module
from itertools import pairwise
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
class SassReport:
    """What the machine code shows.

    `hgmma` counts tensor-core instructions of a warpgroup; `membar_in_loop` memory barriers of the
    GPU or system in main loops, `local_in_loops` accesses to local memory in loops of roles,
    `local_of_helpers` those of roles that compute no products, `local_accesses` anywhere.
    """

    loops: int
    hgmma: int
    membar_in_loop: int
    local_in_loops: int
    local_of_helpers: int
    local_accesses: int

    @property
    def defects(self) -> tuple[str, ...]:
        """What makes the kernel slower than its plan, in words; empty when nothing does."""
        found: list[str] = []
        if self.membar_in_loop:
            found.append(f"{self.membar_in_loop} memory barriers inside a main loop")
        if self.local_in_loops:
            found.append(f"{self.local_in_loops} accesses to local memory in loops of roles")
        return tuple(found)


class _Kind(Enum):
    """What an instruction is to the report."""

    LOCAL = auto()
    WARPGROUP_PRODUCT = auto()
    WARP_PRODUCT = auto()
    SIGNAL = auto()
    WAIT = auto()
    MEMBAR = auto()


# An instruction of sm_90 takes two words of 64 bits. The lowest nine bits say which it is, three
# more where its operands are; then comes its predicate. As nvdisasm names them (tests compare).
_NAMED = {
    **{0x183: _Kind.LOCAL, 0x187: _Kind.LOCAL},  # LDL, STL
    **dict.fromkeys(range(0x1F0, 0x1F4), _Kind.WARPGROUP_PRODUCT),  # HGMMA, IGMMA, BGMMA, QGMMA
    **{0x03C: _Kind.WARP_PRODUCT, 0x037: _Kind.WARP_PRODUCT},  # HMMA, IMMA
    **dict.fromkeys((0x1B4, 0x1AE, 0x1B0), _Kind.SIGNAL),  # UTMALDG, LDGSTS, ARRIVES
    0x192: _Kind.MEMBAR,
}
_KINDS = {
    **{code | form << 9: kind for code, kind in _NAMED.items() for form in range(8)},
    **{0x9A7: _Kind.SIGNAL, 0x5A7: _Kind.WAIT},  # SYNCS.ARRIVE, SYNCS.PHASECHK
}
_BRANCH, _ENDS = 0x147, (0x147, 0x149, 0x14D, 0x150)  # BRA; BRX, EXIT and RET as well
_ALWAYS = 7  # the predicate that is true


@dataclass(frozen=True, slots=True)
class _Block:
    """Instructions that run one after the other: how many there are of each kind, and the blocks
    that may follow.
    """

    kinds: Counter[_Kind]
    follow: tuple[int, ...]


def inspect(cubin: bytes) -> SassReport:
    """Return what the machine code of a cubin for sm_90 shows."""
    return inspect_code(b"".join(_sections(cubin)))


def inspect_code(code: bytes) -> SassReport:
    """Return what machine code shows."""
    blocks = _blocks(memoryview(code).cast("Q"))

    def those(*kinds: _Kind) -> set[int]:
        return {n for n, block in enumerate(blocks) if any(block.kinds[kind] for kind in kinds)}

    def count(kind: _Kind, places: Iterable[int]) -> int:
        return sum(blocks[place].kinds[kind] for place in places)

    products, signals, waits = map(those, (_Kind.WARPGROUP_PRODUCT, _Kind.SIGNAL, _Kind.WAIT))
    computing = products | those(_Kind.WARP_PRODUCT)
    loops = _loops(set(range(len(blocks))), [block.follow for block in blocks])
    in_main = _inmost([loop for loop in loops if loop & products])
    in_roles = _inmost(
        [loop for loop in loops if loop & computing or (loop & signals and loop & waits)]
    )
    everywhere = range(len(blocks))
    return SassReport(
        len(loops),
        count(_Kind.WARPGROUP_PRODUCT, everywhere),
        count(_Kind.MEMBAR, in_main),
        count(_Kind.LOCAL, in_roles),
        count(_Kind.LOCAL, in_roles.difference(*(loop for loop in loops if loop & computing))),
        count(_Kind.LOCAL, everywhere),
    )


def _inmost(loops: list[frozenset[int]]) -> set[int]:
    """Return what stands in those of some loops that hold no other of them."""
    return set[int]().union(*(loop for loop in loops if not any(inner < loop for inner in loops)))


def _sections(cubin: bytes) -> Iterable[bytes]:
    """Yield the machine code of a cubin, which is an ELF file (System V ABI, section headers)."""
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count = struct.unpack_from("<HH", cubin, 0x3A)
    for place in range(start, start + size * count, size):
        _, _, flags, _, offset, length = struct.unpack_from("<IIQQQQ", cubin, place)
        if flags & 4:  # SHF_EXECINSTR
            yield cubin[offset : offset + length]


def _blocks(words: Sequence[int]) -> list[_Block]:
    """Cut machine code where branches stand, and where they lead."""
    low, high = list(words[::2]), list(words[1::2])
    follow = {n: _after(n, low[n], high[n]) for n, word in enumerate(low) if word & 0x1FF in _ENDS}
    starts = {0, *(n + 1 for n in follow), *(n for targets in follow.values() for n in targets)}
    bounds = [*sorted(n for n in starts if n < len(low)), len(low)]
    number = {start: block for block, start in enumerate(bounds[:-1])}
    found: list[_Block] = []
    for start, end in pairwise(bounds):
        kinds = Counter(
            kind
            for n in range(start, end)
            if (kind := _KINDS.get(low[n] & 0xFFF)) is not None
            # A barrier of a block is cheap: what `fence.proxy.async` becomes.
            and (kind is not _Kind.MEMBAR or high[n] >> 12 & 3 >= 2)
        )
        onward = follow.get(end - 1, (end,))
        found.append(_Block(kinds, tuple(number[n] for n in onward if n in number)))
    return found


def _after(place: int, low: int, high: int) -> tuple[int, ...]:
    """Return where a branch, or an end, leads: nowhere where that is read from a register."""
    found: tuple[int, ...] = ()
    if low & 0x1FF == _BRANCH:
        distance = (high & 0x3FFFF) << 38 | (low >> 34) << 8 | low >> 16 & 0xFF
        distance -= (distance >> 55) << 56
        found = (place + 1 + distance // 4,)  # it counts parts of four bytes
    # A branch may depend on a second predicate, and on what the threads of a warp agree on.
    always = low >> 12 & 15 == _ALWAYS and high >> 23 & 15 == _ALWAYS and not low >> 32 & 3
    return found if always else (*found, place + 1)


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
