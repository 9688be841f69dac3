"""Stand-ins for the runtime's tests: a GPU array, a driver that records, a compiler of nothing."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tawa.runtime.dispatch as dispatch
from tawa.codegen.parameters import (
    GridParameter,
    Parameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.plan.pins import Pins
from tawa.plan.plan import ArefPlan, Declined, LoopPlan, Plan, RolePlan, StorePlan
from tawa.runtime.compiled import (
    Assembly,
    CompiledKernel,
    LaunchShape,
    Proof,
    Resources,
    RoleRegisters,
    SharedBuffer,
)
from tawa.runtime.recent import Recent
from tawa.runtime.request import Request
from tawa.target import H200


class GpuArray:
    """An object with the CUDA array interface, as CuPy makes them; its memory is imaginary."""

    def __init__(self, shape, dtype="float32", address=0x7F0000000000, device=0, strides=None):
        self.shape = tuple(shape)
        self.dtype = dtype
        self.address = address
        self.device = SimpleNamespace(id=device)
        self.steps = strides

    @property
    def __cuda_array_interface__(self):
        size = 2 if "16" in self.dtype else 4
        steps = None if self.steps is None else tuple(size * step for step in self.steps)
        return {
            "shape": self.shape,
            "typestr": "<f4",
            "strides": steps,
            "data": (self.address, False),
            "version": 3,
        }


class FakeDriver:
    """Takes the place of `tawa.runtime.driver.Driver`; keeps what a launch hands over."""

    def __init__(self, parameters: int = 0) -> None:
        self.launches: list[SimpleNamespace] = []
        self.encoded: list[tuple[Any, ...]] = []
        self.placed: list[int] = []  # the addresses of maps; each is filled with its number
        self.parameters = parameters
        self.error = 0
        self.current = 0
        self.capturing = False
        self.recent = Recent()

    def launch_ex(self, config: int, function: int, pointers: int, extra: Any) -> int:
        words = struct.unpack("<7I4xQQI4x", ctypes.string_at(config, 56))
        places = struct.unpack(
            f"<{self.parameters}Q", ctypes.string_at(pointers, 8 * self.parameters)
        )
        self.launches.append(
            SimpleNamespace(
                grid=words[0:3],
                threads=words[3],
                shared=words[6],
                stream=words[7],
                cluster=words[9] and struct.unpack("<I4x3I", ctypes.string_at(words[8], 20)),
                values=[ctypes.string_at(place, 8) for place in places],
                maps=[ctypes.string_at(place, 128) if place % 64 == 0 else b"" for place in places],
                function=function,
            )
        )
        return self.error

    def encode_tiled(self, *arguments: Any) -> int:
        self.encoded.append(arguments)
        return self.replace_address(arguments[0], arguments[3])

    encode_im2col = encode_tiled

    def replace_address(self, at: int, address: int) -> int:
        self.placed.append(address)
        ctypes.memset(at, len(self.placed), 128)
        return 0

    def current_device(self) -> int:
        return self.current

    def enter(self, device: int) -> None:
        self.entered = self.current
        self.current = device

    def leave(self) -> None:
        self.current = self.entered

    def describe(self, code: int) -> str:
        return f"CUDA_ERROR_FAKE ({code})"

    def is_capturing(self, stream: int, device: int = 0) -> bool:
        return self.capturing

    def target(self, device: int):
        return H200


def install(monkeypatch, driver: FakeDriver, blocks: int = 132) -> None:
    """Put a fake driver in the place of the real one."""

    class Loaded:
        function = 77

        def __init__(self, *_: Any) -> None:
            self.prepared: list[int] = []

        def prepare(self, device: int) -> None:
            self.prepared.append(device)

        def resident_blocks(self, device: int) -> int:
            return blocks

    monkeypatch.setattr(dispatch, "connect", lambda: driver)
    monkeypatch.setattr(dispatch, "LoadedKernel", Loaded)
    dispatch.gpu_target.cache_clear()


SAMPLE_LAUNCH = LaunchShape(384, 1024)
SMALL_LAUNCH = LaunchShape(128, 0)
SAMPLE_PLAN = Plan(
    roles=(RolePlan("load", 4, 40), RolePlan("mma", 8, 232)),
    arefs=(ArefPlan(("a@12", "b@13"), 3),),
    loops=(LoopPlan("for k@11", "fine", 2),),
    stores=(StorePlan("c@16", "tma", 1, "first"),),
    declined=(Declined("cluster", "one tile along m"),),
)


def sample_kernel(
    parameters: tuple[Parameter, ...] = (),
    *,
    name: str = "matmul",
    launch: LaunchShape = SAMPLE_LAUNCH,
    signature: dict[str, Any] | None = None,
    stages: dict[str, str | bytes] | None = None,
    **more: Any,
) -> CompiledKernel:
    return CompiledKernel(
        name=name,
        entry=name,
        signature=signature or {},
        plan=SAMPLE_PLAN,
        asm=Assembly(stages or {"tile": "tile", "hopper": "hopper", "cuda": "c", "cubin": b"\0c"}),
        launch=launch,
        parameters=parameters,
        resources=Resources(
            roles=(RoleRegisters("load", 4, 40), RoleRegisters("mma", 8, 232, 168)),
            buffers=(SharedBuffer("a", 0, 49152),),
            barriers=(("filled", 3),),
            shared=49176,
            shared_limit=231424,
            registers_at_launch=168,
            spills=0,
        ),
        proof=Proof(True, 1234, "no hang, no race, nothing left over"),
        timings={"frontend": 0.01, "nvrtc": 0.2},
        **more,
    )


class FakeCompiler:
    """A compile driver that returns a kernel whose parameters are the signature's arguments."""

    def __init__(self, launch: LaunchShape = SMALL_LAUNCH, make: Callable | None = None):
        self.requests: list[Request] = []
        self.launch = launch
        self.make = make

    def __call__(self, request: Request):
        self.requests.append(request)
        if self.make is not None:
            return self.make(request)
        return sample_kernel(
            (*parameters_of(request.signature), GridParameter(0)),
            name=request.function.__name__,
            launch=self.launch,
            signature=request.signature,
        )


def parameters_of(signature) -> list[Parameter]:
    found: list[Parameter] = []
    for name, argument in signature.items():
        match argument:
            case PointerArg():
                found.append(PointerParameter(name))
            case ScalarArg():
                found.append(ScalarParameter(name, argument.dtype))
            case DescriptorArg():
                box = argument.block_shape
                found.append(
                    TensorMapParameter(name, argument.dtype, box, 0, argument.padding, source=name)
                )
            case ConstantArg():
                pass
    return found


def kernel(x, n):
    """What is launched where only its parameters matter: an array and a number."""
    return x + n


def request(**changes) -> Request:
    """What is asked of a compiler for `kernel`, with other facts as given."""
    facts = {"signature": {"x": PointerArg("f32")}, "text": "text", **changes}
    return Request(kernel, facts["text"], facts["signature"], {}, Pins(), H200)
