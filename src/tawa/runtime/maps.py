"""The tensor maps of a kernel as host expressions: evaluated by launchers and by the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tawa.codegen.parameters import TensorMapParameter
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.expressions import Names, rewrite, value_of
from tawa.runtime.forms import generate
from tawa.runtime.tensor_map import check, describe


@dataclass(frozen=True, slots=True)
class MapText:
    """The address, extents and strides of a map, as Python over a launcher's names.

    `name` is the argument, or the variable of a descriptor made inside the kernel; `value` the
    descriptor argument itself.
    """

    name: str
    address: str
    extents: str
    strides: str
    value: str = "None"


def spell_map(parameter: TensorMapParameter, names: Names) -> MapText:
    """Return what a map describes in terms of a launcher's names."""
    if name := parameter.source:
        return MapText(name, f"{name}__at", f"{name}__shape", f"{name}__strides", value_of(name))
    extents = "".join(f"{rewrite(text, names)}, " for text in parameter.extents)
    strides = "".join(f"{rewrite(text, names)}, " for text in parameter.strides)
    address = rewrite(parameter.base, names)
    return MapText(parameter.label, address, f"({extents})", f"({strides})")


def make_map_check(
    kernel: CompiledKernel, names: Names, order: Sequence[str]
) -> Callable[..., None]:
    """Generate the check of a kernel's tensor maps over what a launcher gets.

    It raises DescriptorError for what TMA cannot take: the simulator refuses what a GPU would.
    """
    maps = [item for item in kernel.parameters if isinstance(item, TensorMapParameter)]
    arguments = "".join(f"{name}, " for name in order)
    lines = [f"def check_maps({arguments}):"]
    namespace: dict[str, Any] = {"__check": check, "__describe": describe}
    for index, parameter in enumerate(maps):
        text = spell_map(parameter, names)
        namespace[f"__map{index}"] = parameter
        lines.append(
            f"    __check(__map{index}, __describe({text.name!r}, {text.address},"
            f" {text.extents}, {text.strides}, {text.value}))"
        )
    lines.append("    return None")
    return generate("\n".join(lines) + "\n", "check_maps", namespace).function
