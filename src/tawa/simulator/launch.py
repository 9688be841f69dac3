"""How many blocks a launch has, and what the kernel's `launch` attribute says about it."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, IntegerAttr

from tawa.ir import hopper, tile
from tawa.simulator.tile import checked_grid
from tawa.target import H200


def launch_number(kernel: tile.Kernel, name: str, default: int) -> int:
    """Return an entry of the kernel's `launch` attribute, `default` where it has none."""
    found = None if kernel.launch is None else kernel.launch.data.get(name)
    match found:
        case IntAttr():
            return found.data
        case IntegerAttr():
            return int(found.value.data)
        case _:
            return default


def is_persistent(kernel: tile.Kernel) -> bool:
    """Tell whether a kernel's blocks walk over the programs of the user's grid themselves."""
    if kernel.launch is not None and "persistent" in kernel.launch.data:
        return bool(launch_number(kernel, "persistent", 0))
    return any(isinstance(op, hopper.GridExtent) for op in kernel.walk())


def launch_blocks(
    kernel: tile.Kernel,
    grid: tuple[int, ...],
    multiprocessors: int = H200.multiprocessors,
    cluster: int | None = None,
) -> tuple[int, int, int]:
    """Return the grid of blocks that a launch of hopper IR has, given the user's grid.

    A persistent kernel gets as many blocks as all multiprocessors hold (whole clusters), at most
    one for each program; any other one for each program, rounded up to whole clusters along x.
    `cluster` blocks make up a cluster; by default what the kernel's `launch` attribute says.
    """
    x, y, z = checked_grid(grid)
    cluster = launch_number(kernel, "cluster", 1) if cluster is None else cluster
    if is_persistent(kernel):
        multiprocessors *= launch_number(kernel, "blocks", 1)
        count = min(max(1, multiprocessors // cluster), -(-x * y * z // cluster))
        return count * cluster, 1, 1
    return -(-x // cluster) * cluster, y, z
