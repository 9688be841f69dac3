"""Tiles that instances of a role take in turn: rounds of one each are enough of them."""

from __future__ import annotations

from itertools import product

import pytest
from xdsl.dialects.builtin import i1

from proof_kernels import KERNELS
from tawa.ir import hopper
from tawa.simulator.proof.configuration import Shape
from tawa.simulator.proof.form import role_of
from tawa.simulator.proof.read import read_kernel
from tawa.target import H200
from test_lower_instances import _lowered, residual
from test_proof_uniform import computed, constant, guard


def of(depth: int, instances: int, own: int = 0, outer: int = 1) -> Shape:
    return Shape(depth, outer, 1, 0, instances, own, False)


@pytest.mark.parametrize(("depth", "instances"), [*product(range(1, 9), range(1, 5))])
def test_a_tile_begins_at_every_position(depth, instances) -> None:
    positions = 2 * depth  # of a slot and a phase
    assert of(depth, instances).tiles(1) > positions
    for count in (0, 1):  # and a slot that was put once a tile is put again, by each instance
        tiles = of(depth, instances).tiles(count)
        for first in range(instances):
            assert tiles - first > depth


@pytest.mark.parametrize(("depth", "instances"), [*product(range(1, 9), range(1, 5))])
def test_an_edge_goes_from_the_first_tile_of_each_to_one_that_is_run(depth, instances) -> None:
    for count in range(2, 12):
        tiles = of(depth, instances).tiles(count)
        for first in range(instances):  # D+2 trips side by side, from each trip of it on
            assert (tiles - first) * count >= depth + 2 + count - 1


def test_what_one_instance_turns_alone_takes_tiles_of_its_own() -> None:
    for count, instances in product(range(7), range(1, 4)):
        alone = of(4, 1, 4).tiles(count)
        assert of(4, instances, own=4).tiles(count) == instances * alone
        rings_of_tiles = of(1, instances, outer=3).tiles(count)
        assert rings_of_tiles >= instances * 4


@pytest.mark.parametrize("name", ["instances gemm depth 1", "instances three"])
def test_instances_turn_the_rings_of_their_producer_together(name: str) -> None:
    shape = read_kernel(KERNELS[name](), H200).shape
    assert shape.instances > 1
    assert shape.own == 0


@pytest.mark.parametrize(("consumers", "depth"), [(2, 2), (2, 3), (3, 4)])
def test_rings_put_once_a_tile_go_on_with_each_instance(consumers: int, depth: int) -> None:
    kernel = _lowered(residual, consumers=consumers, depth=depth)
    assert read_kernel(kernel, H200).shape.outer == -(-depth // consumers)


def test_not_where_some_do_not_turn_them_in_each_tile() -> None:
    kernel = _lowered(residual, consumers=2, depth=3)
    kinds = hopper.Wait, hopper.Arrive, hopper.Expect
    for use in [use for use in kernel.walk() if isinstance(use, kinds)]:
        name = use.barriers.owner.label.data
        if name.startswith("c@") and role_of(use).label.data != "mma0":
            guard(use, computed(use, "eq", constant(use, 1), constant(use, 1), i1))
    assert read_kernel(kernel, H200).shape.outer == 3


def test_a_role_by_itself_turns_its_rings_alone() -> None:
    shape = read_kernel(KERNELS["sample gemm"](), H200).shape
    assert (shape.instances, shape.own) == (1, shape.depth)
