"""Rules of hopper IR's tiles in shared memory: views of them, and ordinary reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.ir.types import shape_of
from tawa.layouts.transpose import INTERLEAVED, given, taken
from tawa.simulator.decode import Binary, Decoder, Frame, Rule, Step, pure
from tawa.simulator.footprints import owners, register_owners, touch
from tawa.simulator.role import Role
from tawa.simulator.shared import Placement, View
from tawa.simulator.sync_rules import acting, pick
from tawa.simulator.values import gathered


def _slot(operation: hopper.Slot) -> Binary:
    return lambda views, index: pick(views, index, "slot", operation)


def _change(view: View, place: Placement, kind: Any) -> View:
    return View(view.label, view.base, place, view.dtype, kind.layout.data)


def _transpose_view(operation: hopper.TransposeView) -> Callable[..., Any]:
    permutation = tuple(item.data for item in operation.permutation)
    kind = operation.result.type

    def transpose(view: View) -> View:
        key = ("transpose", permutation)
        place = view.place.derive(key, lambda offsets: np.transpose(offsets, permutation))
        return _change(view, place, kind)

    return transpose


def _slice_view(operation: hopper.SliceView) -> Callable[..., Any]:
    kind = operation.result.type
    start, shape = tuple(item.data for item in operation.start), kind.shape
    slices = tuple(slice(low, low + extent) for low, extent in zip(start, shape))

    def cut(view: View) -> View:
        place = view.place.derive(("slice", start, shape), lambda offsets: offsets[slices])
        return _change(view, place, kind)

    return cut


def _reshape_view(operation: hopper.ReshapeView) -> Callable[..., Any]:
    kind = operation.result.type
    shape = kind.shape

    def reshape(view: View) -> View:
        place = view.place.derive(("reshape", shape), lambda offsets: offsets.reshape(shape))
        return _change(view, place, kind)

    return reshape


def _shared_load(decoder: Decoder, operation: hopper.SharedLoad) -> Step:
    view, out = decoder.number(operation.view), decoder.number(operation.result)
    held = register_owners(operation.result.type)
    shape = shape_of(operation.result.type)  # (): a scalar aref's one word

    def load(role: Role, frame: Frame) -> None:
        source: View = frame.values[view]
        touch(role, source, False, held, operation)
        data = role.block.shared.read(source, role.where, operation)
        frame.values[out] = data.reshape(shape)[()]

    return acting(load)


def _shared_gather(decoder: Decoder, operation: hopper.SharedGather) -> Step:
    view, out = decoder.number(operation.view), decoder.number(operation.result)
    index, axis = decoder.reader(operation.index, operation), operation.axis.data

    def load(role: Role, frame: Frame) -> None:
        source: View = frame.values[view]
        touch(role, source, False, None, operation)
        data = role.block.shared.read(source, role.where, operation)
        frame.values[out] = gathered(data, index(frame.values), axis)

    return acting(load)


def _shared_store(decoder: Decoder, operation: hopper.SharedStore) -> Step:
    view = decoder.number(operation.view)
    value = decoder.reader(operation.value, operation)
    held = register_owners(operation.value.type)

    def store(role: Role, frame: Frame) -> None:
        target: View = frame.values[view]
        touch(role, target, True, held, operation)
        role.block.shared.write(target, value(frame.values))

    return acting(store)


def _shared_transpose(decoder: Decoder, operation: hopper.SharedTranspose) -> Step:
    source, target = decoder.number(operation.source), decoder.number(operation.view)
    kind = operation.source.type
    rows, columns = kind.shape
    runs = np.arange(rows).reshape(-1, len(INTERLEAVED))
    order = runs[:, list(INTERLEAVED) if bool(operation.interleaved) else slice(None)].ravel()

    def transpose(role: Role, frame: Frame) -> None:
        have: View = frame.values[source]
        made: View = frame.values[target]
        shared = role.block.shared
        touch(role, have, False, owners(taken((rows, columns), role.warps)), operation)
        data = shared.read(have, role.where, operation)
        touch(role, made, True, owners(given((rows, columns), role.warps)), operation)
        shared.write(made, data[order].T)

    return acting(transpose)


VIEW_RULES: dict[type[Operation], Rule] = {
    hopper.Slot: pure(_slot),
    hopper.TransposeView: pure(_transpose_view),
    hopper.SliceView: pure(_slice_view),
    hopper.ReshapeView: pure(_reshape_view),
    hopper.SharedLoad: _shared_load,
    hopper.SharedGather: _shared_gather,
    hopper.SharedStore: _shared_store,
    hopper.SharedTranspose: _shared_transpose,
}
"""Views and register traffic, by class."""
