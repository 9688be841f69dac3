"""The example in C++ beside a launcher: it allocates the arguments, launches, and waits."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tawa.errors import ArgumentError
from tawa.frontend.signature import DescriptorArg, PointerArg, ScalarArg
from tawa.runtime.arrays import look
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.dtypes import BYTES
from tawa.runtime.specialize import number
from tawa.tools.aot.conditions import paired
from tawa.tools.aot.names import fields_of

_TEXT = """\
// Runs @name@, built by `tawa build`, once:
//   @name@_example [X Y Z] [ARGUMENT=FILE ...]
// X, Y, Z: programs along each axis (1). An array is read from its FILE before the launch, and
// written to it after; others begin as zeros.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "@name@.h"

struct Array {
    const char *name;
    size_t bytes;
    std::string file;
    CUdeviceptr address;
};

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS) return;
    const char *text = nullptr;
    cuGetErrorString(result, &text);
    std::fprintf(stderr, "%s failed: %s\\n", what, text ? text : "unknown error");
    std::exit(1);
}
#define CHECK(call) check(call, #call)

static void transfer(Array &array, bool back)
{
    std::vector<char> bytes(array.bytes ? array.bytes : 1);
    const char *path = array.file.c_str();
    std::FILE *file = *path ? std::fopen(path, back ? "wb" : "rb") : nullptr;
    if (*path && !file) {
        std::perror(path);
        std::exit(1);
    }
    if (back && array.bytes) CHECK(cuMemcpyDtoH(bytes.data(), array.address, array.bytes));
    size_t moved = array.bytes;
    if (file && back) moved = std::fwrite(bytes.data(), 1, array.bytes, file);
    if (file && !back) moved = std::fread(bytes.data(), 1, array.bytes, file);
    if (file) std::fclose(file);
    if (moved != array.bytes) {
        std::fprintf(stderr, "%s: %zu bytes instead of %zu\\n", path, moved, array.bytes);
        std::exit(1);
    }
    if (!back && array.bytes) CHECK(cuMemcpyHtoD(array.address, bytes.data(), array.bytes));
}

int main(int count, char **words)
{
    std::vector<Array> arrays = {
@arrays@
    };
    uint32_t grid[3] = {1, 1, 1};
    int axis = 0;
    for (int place = 1; place < count; ++place) {
        const char *equals = std::strchr(words[place], '=');
        if (!equals && axis < 3) {
            grid[axis++] = (uint32_t)std::strtoul(words[place], nullptr, 10);
            continue;
        }
        bool found = false;
        for (Array &array : arrays)
            if (equals && std::string(words[place], equals - words[place]) == array.name) {
                array.file = equals + 1;
                found = true;
            }
        if (!found) {
            std::fprintf(stderr, "%s is no array of @name@\\n", words[place]);
            return 1;
        }
    }

    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    for (Array &array : arrays) {
        CHECK(cuMemAlloc(&array.address, array.bytes ? array.bytes : 1));
        transfer(array, false);
    }

    tawa_error error;
    @name@_kernel kernel;
    @name@_arguments arguments = {};
@given@
    if (@name@_load(&kernel, &error) != TAWA_OK
        || @name@_launch(&kernel, nullptr, grid[0], grid[1], grid[2], &arguments, &error)
            != TAWA_OK) {
        std::fprintf(stderr, "%s\\n", error.text);
        return 1;
    }
    CHECK(cuStreamSynchronize(nullptr));
    for (Array &array : arrays) {
        if (!array.file.empty()) transfer(array, true);
        CHECK(cuMemFree(array.address));
    }
    @name@_unload(&kernel);
    CHECK(cuDevicePrimaryCtxRelease(device));
    std::printf("@name@ ran on a grid of %u x %u x %u\\n", grid[0], grid[1], grid[2]);
    return 0;
}
"""


def write_example(kernel: Any, compiled: Sequence[CompiledKernel], given: Mapping[str, Any]) -> str:
    """Return the example: it passes arrays of the shapes that the kernel was built for, and its
    numbers.
    """
    first = compiled[0]
    fields = fields_of(first, paired(compiled))
    arrays: list[str] = []
    lines: list[str] = []
    for name, argument in first.signature.items():
        place = f"arguments.{fields.names.get(name)}"
        match argument:
            case PointerArg() | DescriptorArg():
                value = given[name]
                view = look(value.base if isinstance(argument, DescriptorArg) else value)
                reach = sum((size - 1) * step for size, step in zip(view.shape, view.strides))
                size = 0 if 0 in view.shape else (reach + 1) * BYTES[view.dtype]
                address = f"arrays[{len(arrays)}].address"
                arrays.append(f'        {{"{name}", {size}, "", 0}},')
                if isinstance(argument, PointerArg):
                    lines.append(f"{place} = {address};")
                    if name in fields.sized:
                        lines.append(f"arguments.{fields.sized[name]} = {size};")
                    continue
                shape, strides = (
                    ", ".join(map(str, numbers)) for numbers in (value.shape, value.strides)
                )
                lines.append(f"{place} = {{{address}, {{{shape}}}, {{{strides}}}}};")
            case ScalarArg():
                lines.append(f"{place} = {_spell(first.name, name, _number(kernel, name, given))};")
            case _:
                pass
    text = _TEXT.replace("@arrays@", "\n".join(arrays))
    text = text.replace("@given@", "\n".join(f"    {line}" for line in lines))
    return text.replace("@name@", first.name)


def _number(kernel: Any, name: str, given: Mapping[str, Any]) -> Any:
    if name in given:
        return given[name]
    function = kernel
    while not inspect.isfunction(function):
        function = function.fn
    return inspect.signature(function).parameters[name].default


def _spell(kernel: str, name: str, value: Any) -> str:
    match number(value):
        case bool() | int() as whole:
            whole = int(whole)
            if whole == -(1 << 63):
                return "INT64_MIN"
            return f"{whole}u" if whole >= 1 << 63 else str(whole)
        case float() as real if real - real == 0:
            return repr(real)
        case float() as real:
            return f'std::strtod("{real!r}", nullptr)'
        case _:
            raise ArgumentError(f"{kernel}: the example has no number for '{name}'")
