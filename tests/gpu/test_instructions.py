"""The instruction-level programs on the GPU: the same text and bits as through the emulation."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest

from instructions import Program
from instructions_all import PROGRAMS, SOURCES
from tawa.codegen.parameters import TensorMapParameter
from tawa.runtime import cubins
from tawa.runtime.compiled import LaunchShape
from tawa.runtime.driver import LoadedKernel, connect
from tawa.runtime.tensor_map import MapBuffer, Tensor, encode

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)


@cache
def loaded(number: int) -> LoadedKernel:
    """A program's kernel; NVRTC compiles the one text of all once."""
    source = SOURCES[number]
    cubin = cubins.build(source.text, SOURCES[0].entry_name)
    shape = LaunchShape(source.threads, source.shared_bytes, source.cluster)
    kernel = LoadedKernel(connect(), cubin.data, source.entry_name, shape)
    kernel.prepare(0)
    return kernel


def run(number: int) -> np.ndarray:
    """Launch a program once and return its result."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")  # makes the context current
    program, source, driver = PROGRAMS[number], SOURCES[number], connect()
    arrays = {"given": program.given, "result": program.before()}
    # The bytes as they lie, behind an alignment of 256 that every allocation of torch has.
    placed = {
        name: torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).ravel().copy()).cuda()
        for name, array in arrays.items()
    }
    keep: list[Any] = []
    addresses: list[int] = []
    for parameter in source.parameters:
        match parameter:
            case TensorMapParameter():
                array = arrays[parameter.source]
                steps = tuple(step // array.itemsize for step in array.strides)
                tensor = Tensor(
                    parameter.source, placed[parameter.source].data_ptr(), array.shape, steps
                )
                buffer: MapBuffer = encode(parameter, tensor, driver)
                keep.append(buffer)
                addresses.append(buffer.address)
            case _:
                word = ctypes.c_uint64(placed[parameter.name].data_ptr())
                keep.append(word)
                addresses.append(ctypes.addressof(word))
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    cu = driver.cu
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = source.cluster, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = source.threads, 1, 1
    config.sharedMemBytes = source.shared_bytes
    if source.cluster > 1:
        shape = cu.CUlaunchAttribute()
        shape.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape.value.clusterDim.x = source.cluster
        shape.value.clusterDim.y = shape.value.clusterDim.z = 1
        config.attrs, config.numAttrs = [shape], 1
    function = cu.CUfunction(loaded(number).function)
    driver.call("cuLaunchKernelEx", config, function, ctypes.addressof(table), 0)
    torch.cuda.synchronize()
    result = placed["result"].cpu().numpy()
    return result.view(program.expected.dtype).reshape(program.expected.shape)


@pytest.mark.parametrize(
    "number", [pytest.param(i, id=program.name) for i, program in enumerate(PROGRAMS)]
)
def test_as_ptx_defines_it(number: int) -> None:
    program: Program = PROGRAMS[number]
    assert not program.wrong(run(number))
