"""What the target machine has: the numbers every budget and rule refers to.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (9.0);
PTX ISA "setmaxnreg", "bar", "wgmma"; CUDA driver API, "cuTensorMapEncodeTiled".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

PROGRAMS = (1 << 31) - 1, 65_535, 65_535
"""Programs along each axis of a grid, at most: no launch takes more, of no kind of kernel."""
WALKED = PROGRAMS[0] - 65_535
"""Programs of a persistent kernel, at most: its blocks count past the last by how many they are."""


@dataclass(frozen=True, slots=True)
class Target:
    """Limits of one architecture; sizes in bytes unless the name says otherwise."""

    arch: str = "sm_90a"
    multiprocessors: int = 132
    shared_per_block: int = 232_448 - 1024  # 1 KiB is the system's
    shared_per_multiprocessor: int = 233_472
    shared_beside: int = 0  # what a block takes beside the buffers that a plan counts
    registers_per_block: int = 65_536
    register_unit: int = 8
    registers_min: int = 24
    registers_max: int = 256
    warps_per_multiprocessor: int = 64
    schedulers: int = 4
    named_barriers: int = 16
    tma_box_extent: int = 256
    tma_alignment: int = 16
    tma_rank: int = 5

    def within(self, ceiling: int | None) -> Target:
        """Return what a block has that may take so many bytes of shared memory."""
        if ceiling is None or ceiling >= self.shared_per_block:
            return self
        return replace(self, shared_per_block=ceiling)

    def shared_by(self, blocks: int) -> Target:
        """Return what each block has where `blocks` of them share a multiprocessor.

        Of its shared memory the system takes 1 KiB for each.
        """
        if blocks == 1:
            return self
        shared = self.shared_per_multiprocessor // blocks // 1024 * 1024 - 1024
        shared = min(shared, self.shared_per_block)
        return replace(
            self, shared_per_block=shared, registers_per_block=self.registers_per_block // blocks
        )

    def blocks_resident(self, threads: int, registers: int, shared: int) -> int:
        """Return how many blocks of `threads` threads, with `registers` each and `shared` bytes,
        run on a multiprocessor at once.

        Each scheduler has its part of the registers and gives them to whole warps.
        """
        unit = self.register_unit
        each = 32 * max(unit, -(-registers // unit) * unit)
        warps = self.registers_per_block // self.schedulers // each * self.schedulers
        held = min(warps, self.warps_per_multiprocessor) // max(1, -(-threads // 32))
        return min(held, self.shared_per_multiprocessor // (shared + 1024))

    def registers_at_launch(self, threads: int) -> int:
        """Return the registers a thread a kernel of `threads` threads is built with.

        A block of 384 threads gets 168 each: the register file over the threads, rounded down to
        the unit, and at most 255 rounded down, since setmaxnreg only moves what the block has.
        """
        return min(self.registers_max - 8, self.registers_per_block // threads // 8 * 8)


H200 = Target()
