"""Rules of the operations that tell where a block stands in its launch, and what comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.simulator.decode import Rule, acts, effect
from tawa.simulator.role import Role


def _block_id(operation: hopper.BlockId) -> Callable[[Role], Any]:
    axis = operation.axis.data
    return lambda world: np.int32(world.block.index[axis])


def _num_blocks(operation: hopper.NumBlocks) -> Callable[[Role], Any]:
    axis = operation.axis.data
    return lambda world: np.int32(world.block.machine.blocks[axis])


def _next_program(world: Role, counter: Any, programs: Any) -> Any:
    return np.int32(world.block.machine.next_program())


def _grid_extent(operation: hopper.GridExtent) -> Callable[[Role], Any]:
    axis = operation.axis.data
    return lambda world: np.int32(world.grid[axis])


ID_RULES: dict[type[Operation], Rule] = {
    hopper.BlockId: effect(_block_id),
    hopper.NumBlocks: effect(_num_blocks),
    hopper.ClusterRank: acts(lambda world: np.int32(world.block.rank)),
    hopper.GridExtent: effect(_grid_extent),
    hopper.Counter: acts(lambda world: np.int32(0)),
    hopper.NextProgram: acts(_next_program),
}
"""Where a block stands, by class: these operations appear from persistence on."""
