"""TMA copies between global and shared memory, and cp.async.

A tensor map's coordinates are given fastest first, as PTX lists them. The cache hint is an L2
policy made by `createpolicy`: writing results evict-first keeps the operands in L2.
"""

from __future__ import annotations

from tawa.codegen.wrappers.core import Wrapper, asm, giving


def policy(eviction: str) -> Wrapper:
    """Return the maker of an L2 policy, `eviction` "first" or "last"."""
    return Wrapper(
        f"u64 policy_evict_{eviction}()",
        giving(
            "u64 policy",
            f"createpolicy.fractional.L2::evict_{eviction}.b64 %0, 1.0;",
            volatile=False,
        ),
        "createpolicy",
        "pure",
    )


def _coordinates(rank: int, first: int) -> tuple[str, str, str]:
    """Return parameters, the operand list and the inputs of `rank` coordinates from %first."""
    names = [f"x{axis}" for axis in range(rank)]
    return (
        ", ".join(f"int {name}" for name in names),
        ", ".join(f"%{first + axis}" for axis in range(rank)),
        ", ".join(f'"r"({name})' for name in names),
    )


def tma_load(
    rank: int, *, windows: bool = False, multicast: bool = False, eviction: str = ""
) -> Wrapper:
    """Return the copy of one box to shared memory, completing its bytes on `barrier`.

    `windows`: of pixels that windows see, from coordinates of the first window and the place in it.
    """
    parameters, operands, inputs = _coordinates(rank, 3)
    code = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global{'.im2col' if windows else ''}"
        f".mbarrier::complete_tx::bytes"
        f"{'.multicast::cluster' if multicast else ''}{'.L2::cache_hint' if eviction else ''}"
        f" [%0], [%1, {{{operands}}}], [%2]"
    )
    name, number = f"tma_load_{'windows_' if windows else ''}{rank}d", 3 + rank
    arguments = f"u32 to, const TensorMap* map, u32 barrier, {parameters}"
    inputs = f'"r"(to), "l"(map), "r"(barrier), {inputs}'
    if windows:
        taps = [f"tap{axis}" for axis in range(rank - 2)]
        code += f", {{{', '.join(f'%{number + axis}' for axis in range(rank - 2))}}}"
        arguments += "".join(f", u16 {tap}" for tap in taps)
        inputs += "".join(f', "h"({tap})' for tap in taps)
        number += rank - 2
    if multicast:
        name, code, number = f"{name}_multicast", f"{code}, %{number}", number + 1
        arguments, inputs = f"{arguments}, u16 blocks", f'{inputs}, "h"(blocks)'
    uses: tuple[Wrapper, ...] = ()
    if eviction:
        uses = (policy(eviction),)
        name, code = f"{name}_evict_{eviction}", f"{code}, %{number}"
        inputs = f'{inputs}, "l"({uses[0].name}())'
    return Wrapper(
        f"void {name}({arguments})",
        asm(f"{code};", "", inputs, memory=True),
        "cp.async.bulk.tensor",
        "tma.load",
        uses,
    )


def tma_store(rank: int, *, eviction: str = "", reduce: str = "") -> Wrapper:
    """Return the copy of one box to global memory, or its combination by `reduce`."""
    parameters, operands, inputs = _coordinates(rank, 2)
    operation = (
        f"cp.reduce.async.bulk.tensor.{rank}d" if reduce else f"cp.async.bulk.tensor.{rank}d"
    )
    code = (
        f"{operation}.global.shared::cta{f'.{reduce}.tile' if reduce else ''}.bulk_group"
        f"{'.L2::cache_hint' if eviction else ''} [%0, {{{operands}}}], [%1]"
    )
    name = f"tma_{f'reduce_{reduce}' if reduce else 'store'}_{rank}d"
    inputs = f'"l"(map), "r"(from), {inputs}'
    uses: tuple[Wrapper, ...] = ()
    if eviction:
        uses = (policy(eviction),)
        name, code = f"{name}_evict_{eviction}", f"{code}, %{2 + rank}"
        inputs = f'{inputs}, "l"({uses[0].name}())'
    return Wrapper(
        f"void {name}(const TensorMap* map, u32 from, {parameters})",
        asm(f"{code};", "", inputs, memory=True),
        "cp.reduce.async.bulk.tensor" if reduce else "cp.async.bulk.tensor",
        "tma.store",
        uses,
    )


PREFETCH_MAP = Wrapper(
    "void prefetch_map(const TensorMap* map)",
    asm("prefetch.tensormap [%0];", "", '"l"(map)', memory=True),
    "prefetch, prefetchu",
    "hint",
)
BULK_COMMIT = Wrapper(
    "void bulk_commit()",
    asm("cp.async.bulk.commit_group;", memory=True),
    "cp.async.bulk.commit_group",
    "bulk.commit",
)


def _bulk_wait(name: str, what: str) -> Wrapper:
    return Wrapper(
        f"void {name}()",
        asm(f"cp.async.bulk.wait_group{what} %0;", "", '"n"(pending)', memory=True),
        "cp.async.bulk.wait_group",
        "bulk.wait",
        template="int pending",
    )


BULK_WAIT_READ = _bulk_wait("bulk_wait_read", ".read")
BULK_WAIT = _bulk_wait("bulk_wait", "")


def copy_async(size: int) -> Wrapper:
    """Return the copy of `size` (4, 8 or 16) bytes; `bytes` below that fill the rest with zeros."""
    level = "cg" if size == 16 else "ca"
    return Wrapper(
        f"void copy_async_{size}(u32 to, u64 from, u32 bytes)",
        asm(
            f"cp.async.{level}.shared.global [%0], [%1], {size}, %2;",
            "",
            '"r"(to), "l"(from), "r"(bytes)',
            memory=True,
        ),
        "cp.async",
        "copy.start",
    )


COPY_ARRIVE = Wrapper(
    "void copy_arrive(u32 barrier)",
    asm("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];", "", '"r"(barrier)', memory=True),
    "cp.async.mbarrier.arrive",
    "copy.arrive",
)
