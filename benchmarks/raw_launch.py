"""The shortest way from hopper IR text to a launch: no frontend, no passes, no launcher.

For first contact with a machine and for cutting a fault in two: what fails here is code generation
or the hardware's rules, not the runtime. Tensor maps are encoded by hand from the parameters that
code generation declares.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tawa.codegen.parameters import (
    GridParameter,
    Parameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)

C_TYPES: dict[str, Any] = {
    "i1": ctypes.c_bool,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel made from hopper IR: its text, binary, parameters and launch numbers."""

    name: str
    source: str
    cubin: bytes
    spills: int | None
    parameters: tuple[Parameter, ...]
    threads: int
    shared: int
    cluster: int
    generate_s: float
    build_s: float


def build(path: Path) -> Built:
    """Generate CUDA for a hopper IR file and compile it; needs no GPU."""
    from tawa import ir
    from tawa.codegen import generate
    from tawa.runtime import nvrtc

    kernel = ir.parse(path.read_text())
    started = time.perf_counter()
    source = generate(kernel)
    middle = time.perf_counter()
    binary = nvrtc.build(source, source.entry_name)
    ended = time.perf_counter()
    return Built(
        source.entry_name,
        source.text,
        binary.data,
        binary.spill_bytes,
        tuple(source.parameters),
        source.threads,
        source.shared_bytes,
        source.cluster,
        middle - started,
        ended - middle,
    )


def _unwrap(result: Sequence[Any], what: str) -> Any:
    """Return a driver call's value, or raise with the name of its error."""
    if int(result[0]) != 0:
        raise RuntimeError(f"{what}: {result[0].name}")
    return result[1] if len(result) == 2 else result[1:]


def encode(parameter: TensorMapParameter, tensor: Any) -> Any:
    """Return the CUtensorMap of a torch tensor; all zeros where an extent is zero."""
    from cuda.bindings import driver as cu

    if 0 in tensor.shape:
        return cu.CUtensorMap()
    kinds = cu.CUtensorMapDataType
    kind = {
        "f16": kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        "bf16": kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        "f32": kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        "f8e4m3": kinds.CU_TENSOR_MAP_DATA_TYPE_UINT8,
        "f8e5m2": kinds.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }[parameter.dtype]
    swizzles = cu.CUtensorMapSwizzle
    swizzle = {
        0: swizzles.CU_TENSOR_MAP_SWIZZLE_NONE,
        32: swizzles.CU_TENSOR_MAP_SWIZZLE_32B,
        64: swizzles.CU_TENSOR_MAP_SWIZZLE_64B,
        128: swizzles.CU_TENSOR_MAP_SWIZZLE_128B,
    }[parameter.swizzle]
    rank = tensor.dim()
    item = tensor.element_size()
    return _unwrap(
        cu.cuTensorMapEncodeTiled(
            kind,
            rank,
            tensor.data_ptr(),
            [cu.cuuint64_t(extent) for extent in reversed(tensor.shape)],
            [cu.cuuint64_t(stride * item) for stride in reversed(tensor.stride()[:-1])],
            [cu.cuuint32_t(extent) for extent in reversed(parameter.box)],
            [cu.cuuint32_t(1)] * rank,
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        f"tensor map {parameter.label}",
    )


class Loaded:
    """A built kernel on the current device, ready to launch on torch's stream."""

    def __init__(self, built: Built) -> None:
        import torch
        from cuda.bindings import driver as cu

        torch.zeros(1, device="cuda")  # makes the primary context current
        self.built = built
        self._library = _unwrap(
            cu.cuLibraryLoadData(built.cubin, [], [], 0, [], [], 0), "cuLibraryLoadData"
        )
        kernel = _unwrap(
            cu.cuLibraryGetKernel(self._library, built.name.encode()), "cuLibraryGetKernel"
        )
        self._function = _unwrap(cu.cuKernelGetFunction(kernel), "cuKernelGetFunction")
        attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (code,) = cu.cuFuncSetAttribute(self._function, attribute, built.shared)
        if int(code) != 0:
            raise RuntimeError(f"{built.shared} bytes of shared memory: {code.name}")

    def bind(self, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> Any:
        """Return a call that launches with these arguments, encoded once."""
        import torch
        from cuda.bindings import driver as cu

        values: list[Any] = []
        types: list[Any] = []
        for parameter in self.built.parameters:
            match parameter:
                case TensorMapParameter():
                    values.append(encode(parameter, arguments[parameter.source]))
                    types.append(None)
                case ScalarParameter():
                    values.append(eval(parameter.expression, {}, dict(arguments)))
                    types.append(C_TYPES[parameter.dtype])
                case PointerParameter():
                    values.append(arguments[parameter.name].data_ptr())
                    types.append(ctypes.c_void_p)
                case GridParameter():
                    values.append(grid[parameter.axis])
                    types.append(ctypes.c_int32)
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.built.threads, 1, 1
        config.sharedMemBytes = self.built.shared
        config.hStream = torch.cuda.current_stream().cuda_stream
        if self.built.cluster > 1:
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x = self.built.cluster
            attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
            config.attrs = [attribute]
            config.numAttrs = 1
        packed = (tuple(values), tuple(types))
        function = self._function

        def launch() -> None:
            (code,) = cu.cuLaunchKernelEx(config, function, packed, 0)
            if int(code) != 0:
                raise RuntimeError(f"launch of {self.built.name}: {code.name}")

        return launch
