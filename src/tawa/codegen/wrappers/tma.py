"""TMA copies between global and shared memory, and cp.async.

A tensor map's coordinates are given fastest first, as PTX lists them. The cache hint is an L2
policy made by `createpolicy`: writing results evict-first keeps the operands in L2.
"""

from __future__ import annotations

from tawa.codegen.wrappers.core import Wrapper, instruction


def policy(eviction: str) -> Wrapper:
    """Return the maker of an L2 policy, `eviction` "first" or "last"."""
    return instruction(
        f"u64 policy_evict_{eviction}()",
        f"createpolicy.fractional.L2::evict_{eviction}.b64 %0, 1.0;",
        "createpolicy",
        "pure",
        result="policy",
        volatile=False,
    )


def _coordinates(rank: int, first: int) -> tuple[str, str]:
    """Return parameters and the operand list of `rank` coordinates from %first."""
    return (
        ", ".join(f"int x{axis}" for axis in range(rank)),
        ", ".join(f"%{first + axis}" for axis in range(rank)),
    )


def tma_load(
    rank: int, *, windows: bool = False, multicast: bool = False, eviction: str = ""
) -> Wrapper:
    """Return the copy of one box to shared memory, completing its bytes on `barrier`.

    `windows`: of pixels that windows see, from coordinates of the first window and the place in it.
    """
    parameters, operands = _coordinates(rank, 3)
    code = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global{'.im2col' if windows else ''}"
        f".mbarrier::complete_tx::bytes"
        f"{'.multicast::cluster' if multicast else ''}{'.L2::cache_hint' if eviction else ''}"
        f" [%0], [%1, {{{operands}}}], [%2]"
    )
    name, number = f"tma_load_{'windows_' if windows else ''}{rank}d", 3 + rank
    arguments = f"u32 to, const TensorMap* map, u32 barrier, {parameters}"
    if windows:
        code += f", {{{', '.join(f'%{number + axis}' for axis in range(rank - 2))}}}"
        arguments += "".join(f", u16 tap{axis}" for axis in range(rank - 2))
        number += rank - 2
    if multicast:
        name, code, number = f"{name}_multicast", f"{code}, %{number}", number + 1
        arguments += ", u16 blocks"
    uses: tuple[Wrapper, ...] = ()
    if eviction:
        uses = (policy(eviction),)
        name, code = f"{name}_evict_{eviction}", f"{code}, %{number}"
    head = f"void {name}({arguments})"
    return instruction(head, f"{code};", "cp.async.bulk.tensor", "tma.load", memory=True, uses=uses)


def tma_store(rank: int, *, eviction: str = "", reduce: str = "") -> Wrapper:
    """Return the copy of one box to global memory, or its combination by `reduce`."""
    parameters, operands = _coordinates(rank, 2)
    operation = f"cp{'.reduce' if reduce else ''}.async.bulk.tensor"
    code = (
        f"{operation}.{rank}d.global.shared::cta{f'.{reduce}.tile' if reduce else ''}.bulk_group"
        f"{'.L2::cache_hint' if eviction else ''} [%0, {{{operands}}}], [%1]"
    )
    name = f"tma_{f'reduce_{reduce}' if reduce else 'store'}_{rank}d"
    uses: tuple[Wrapper, ...] = ()
    if eviction:
        uses = (policy(eviction),)
        name, code = f"{name}_evict_{eviction}", f"{code}, %{2 + rank}"
    head = f"void {name}(const TensorMap* map, u32 from, {parameters})"
    return instruction(head, f"{code};", operation, "tma.store", memory=True, uses=uses)


PREFETCH_MAP = instruction(
    "void prefetch_map(const TensorMap* map)",
    "prefetch.tensormap [%0];",
    "prefetch, prefetchu",
    "hint",
    memory=True,
)
BULK_COMMIT = instruction(
    "void bulk_commit()",
    "cp.async.bulk.commit_group;",
    "cp.async.bulk.commit_group",
    "bulk.commit",
    memory=True,
)


def _bulk_wait(name: str, what: str) -> Wrapper:
    return instruction(
        f"void {name}()",
        f"cp.async.bulk.wait_group{what} %0;",
        "cp.async.bulk.wait_group",
        "bulk.wait",
        memory=True,
        template="int pending",
    )


BULK_WAIT_READ = _bulk_wait("bulk_wait_read", ".read")
BULK_WAIT = _bulk_wait("bulk_wait", "")


def copy_async(size: int) -> Wrapper:
    """Return the copy of `size` (4, 8 or 16) bytes; `bytes` below that fill the rest with zeros."""
    level = "cg" if size == 16 else "ca"
    return instruction(
        f"void copy_async_{size}(u32 to, u64 from, u32 bytes)",
        f"cp.async.{level}.shared.global [%0], [%1], {size}, %2;",
        "cp.async",
        "copy.start",
        memory=True,
    )


COPY_ARRIVE = instruction(
    "void copy_arrive(u32 barrier)",
    "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];",
    "cp.async.mbarrier.arrive",
    "copy.arrive",
    memory=True,
)
