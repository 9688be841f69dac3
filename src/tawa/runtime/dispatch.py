"""Where a call runs: on the GPU that holds its arrays, or in the simulator for the CPU's."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tawa.errors import ArgumentError, LaunchError
from tawa.plan.plan import BREAKPOINT, FULL_SPEED
from tawa.runtime.arrays import CPU, NOWHERE, Device, host_array, is_array, is_tensor, look
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.counters import Counters
from tawa.runtime.descriptors import is_descriptor, window_of
from tawa.runtime.driver import Driver, LoadedKernel, connect
from tawa.runtime.forms import launch_names, launch_values
from tawa.runtime.grid import launches, resolve_grid
from tawa.runtime.guards import Guards, facts_of
from tawa.runtime.launcher import Place, make_launcher, names_of
from tawa.runtime.maps import make_map_check
from tawa.runtime.tensors import undisturbed
from tawa.target import H200, Target

if TYPE_CHECKING:
    from tawa.ir import tile
    from tawa.simulator import Level
    from tawa.simulator.trace import Trace

WARNED = {BREAKPOINT: f"{BREAKPOINT} in ", FULL_SPEED: ""}
"""What a launch warns of, of what a kernel declined, and the words before the reason."""

Launcher = Callable[..., Any]
Stream = Callable[[int], int]
"""Gives the current stream of a device, as a handle."""


def devices_of(values: Mapping[str, Any]) -> dict[str, Device]:
    """Return where each array and descriptor of a call lives, by the argument's name."""
    found: dict[str, Device] = {}
    for name, value in values.items():
        if is_descriptor(value):
            found[name] = look(value.base).device
        elif is_array(value):
            found[name] = look(value).device
    return found


def common_device(kernel: str, values: Mapping[str, Any]) -> Device:
    """Return the one device of a call's arrays, the CPU when it has none.

    Raises ArgumentError for arrays on several devices and for placeholders.
    """
    devices = devices_of(values)
    distinct = dict.fromkeys(devices.values())
    if NOWHERE in distinct:
        names = ", ".join(name for name, device in devices.items() if device == NOWHERE)
        raise ArgumentError(
            f"{kernel} cannot be launched with placeholders: {names}",
            why="a placeholder has a type and a shape, and no data",
            remedy=f"pass arrays, or call {kernel}.compile(...)",
        )
    if len(distinct) > 1:
        where = ", ".join(f"{name} is on {device}" for name, device in devices.items())
        raise ArgumentError(
            f"the arrays of {kernel} are on different devices",
            why=where,
            remedy="move them to one GPU, or all to the CPU for the simulator",
        )
    return next(iter(distinct), CPU)


def runs_cubin(device: Device) -> bool:
    """Tell whether launches on a device run a cubin; on the CPU the simulator runs IR."""
    return device != CPU


def target_for(values: Mapping[str, Any]) -> Target:
    """Return what to compile for: the GPU that holds the arrays, an H200 where none does."""
    gpus = [device for device in devices_of(values).values() if device.kind == "cuda"]
    return gpu_target(gpus[0].ordinal) if gpus else H200


@cache
def gpu_target(device: int) -> Target:
    """Return the numbers of a GPU."""
    return connect().target(device)


def current_stream(values: Mapping[str, Any]) -> Stream:
    """Return the function that gives the current stream of a device, as a handle.

    The stream is the one of the library that owns the arrays: torch, else CuPy; for arrays of
    neither torch's if it is loaded, else CuPy's, else the legacy default stream.
    """
    bases = [value.base if is_descriptor(value) else value for value in values.values()]
    modules = {type(base).__module__.partition(".")[0] for base in bases}
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    tensors = any(is_tensor(base) for base in bases)
    if torch is not None and (tensors or "cupy" not in modules) and torch.cuda.is_available():
        torch.cuda.init()
        return torch._C._cuda_getCurrentRawStream
    if cupy is not None:
        get_current_stream = cupy.cuda.get_current_stream
        return lambda _: int(get_current_stream().ptr)
    return lambda _: 0


def current_device(machine: Driver) -> Callable[[], int]:
    """Return the fastest function that gives the current device."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch._C._cuda_getDevice
    return machine.current_device


def is_capturing(stream: int, device: int) -> bool:
    """Tell whether a stream of a device is being captured into a CUDA graph."""
    return connect().is_capturing(stream, device)


def refuse_capture(what: str, work: str, stream: int, device: int) -> None:
    """Raise LaunchError where a stream of a device is being captured into a CUDA graph."""
    if is_capturing(stream, device):
        raise LaunchError(
            f"{what} is inside a CUDA graph capture",
            why=f"{work} cannot be captured",
            remedy="launch it once before the capture",
        )


class GpuKernel:
    """A compiled kernel on the GPUs: loaded once, prepared once for each device."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        self._loaded: LoadedKernel | None = None
        self._blocks: dict[int, int] = {}
        self._counters: dict[int, Counters] = {}
        self._lock = threading.Lock()

    def launcher(
        self,
        values: Mapping[str, Any],
        device: int,
        stream: Stream,
        otherwise: Callable[[], Launcher],
    ) -> Launcher:
        """Return the launcher on a device for arguments of the classes of `values`.

        `stream` gives a device's current stream, `otherwise` the launcher to use where a guard of
        the kernel does not hold.
        """
        machine = connect()
        refuse_capture(
            f"the first launch of {self.kernel.name} with these arguments",
            "compiling and loading a kernel",
            stream(device),
            device,
        )
        with self._lock:
            loaded = self._ready(machine, device)
            counters = self._counters.setdefault(
                device, Counters(partial(machine.is_capturing, device=device))
            )
        blocks = self._blocks[device]
        place = Place(device, stream, current_device(machine), blocks, counters)
        return make_launcher(
            self.kernel, values, place, loaded.function, machine, otherwise
        ).function

    def _ready(self, machine: Driver, device: int) -> LoadedKernel:
        """Return the kernel on the GPUs, with all that a launch on a device needs."""
        try:
            if self._loaded is None:
                shape = self.kernel.launch
                self._loaded = LoadedKernel(machine, self.kernel.cubin, self.kernel.entry, shape)
                self.kernel.asm.forget_programs()
            if device not in self._blocks:
                self._loaded.prepare(device)
                self._blocks[device] = self._loaded.resident_blocks(device)
        except LaunchError as error:
            raise LaunchError(
                f"{self.kernel.name} cannot be loaded on cuda:{device}: {error.what}",
                why=error.why or "\n    ".join(["launched before it:", *machine.recent]),
                remedy=error.remedy,
            ) from error
        return self._loaded


def simulated_launcher(
    kernel: CompiledKernel, values: Mapping[str, Any], otherwise: Callable[[], Launcher]
) -> Launcher:
    """Return a launcher that runs the kernel's hopper IR in the simulator.

    Takes what a GPU launcher takes: grid, options, the arguments, then addresses and the like.
    """
    names, order = names_of(values), launch_names(values)
    guards = Guards(kernel, names, order)
    check_maps = make_map_check(kernel, names, order)
    known = set(facts_of(kernel, names, order))
    key = [index for index, name in enumerate(order) if name in known]
    parameters = tuple(values)  # and no argument: the launcher outlives the call

    @undisturbed
    def launch(grid: Any, options: Mapping[str, Any], *given: Any) -> CompiledKernel:
        arguments = dict(zip(parameters, given))
        extents = resolve_grid(kernel.name, grid, {**arguments, **options})
        if not launches(kernel, extents):
            return kernel
        if not guards.hold((*(given[index] for index in key), *extents), given, extents):
            return otherwise()(extents, options, *given)
        check_maps(*given)
        simulate_stage(kernel.asm.program("hopper"), arguments, extents, "hopper")
        return kernel

    return launch


def guards_hold(kernel: CompiledKernel, arguments: Mapping[str, Any], grid: Sequence[int]) -> bool:
    """Tell whether a kernel may run on these arguments of the CPU and this grid."""
    guards = Guards(kernel, names_of(arguments), launch_names(arguments))
    return guards.hold((), launch_values(arguments), grid)


def warn_of(kernel: CompiledKernel) -> None:
    """Warn that a kernel which is going to run does not stop at its breakpoints, or is slow."""
    for note in (*kernel.declined, *kernel.plan.declined):
        if note.feature in WARNED:
            text = f"{kernel.name}: {WARNED[note.feature]}{note.reason}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def simulate_stage(
    program: tile.Kernel,
    arguments: Mapping[str, Any],
    grid: tuple[int, ...],
    level: Level,
    **how: Any,
) -> Trace:
    """Run the IR of a stage in the simulator, in place on arrays of the CPU."""
    from tawa.simulator import simulate

    kinds = (each.type for each in program.body.block.args)
    given = {
        name: host_argument(arguments[name], kind)
        for name, kind in zip(program.argument_names, kinds, strict=True)
    }
    return simulate(program, grid, given, level=level, **how)


def host_argument(value: Any, kind: object = None) -> Any:
    """Return an argument as the simulator takes it: NumPy arrays, its descriptors, numbers.

    Its descriptors have the blocks of the program's argument, of type `kind`: passes may halve
    those that the launch names.
    """
    from tawa.simulator.memory import HostDescriptor

    if is_descriptor(value):
        return HostDescriptor(
            host_array(value.base),
            tuple(value.shape),
            tuple(value.strides),
            getattr(kind, "block_shape", tuple(value.block_shape)),
            value.padding,
            window_of(value),
        )
    if is_array(value):
        return host_array(value)
    return value.item() if hasattr(value, "item") else value
