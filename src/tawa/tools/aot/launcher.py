"""The launcher of a kernel in C: what `tawa.runtime.launcher` generates in Python.

One function for each kernel that a launch may run: the one that was asked for, and the ordinary one
for launches that a guard of the first refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tawa.codegen.parameters import (
    CounterParameter,
    GridParameter,
    Parameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from tawa.errors import InternalError
from tawa.frontend.signature import DescriptorArg, PointerArg, ScalarArg
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.dtypes import BYTES
from tawa.runtime.guards import PERHAPS
from tawa.runtime.tensor_map import MAP_TYPES, SWIZZLES, Tensor, check
from tawa.target import H200, PROGRAMS, WALKED
from tawa.tools.aot.conditions import Condition, paired
from tawa.tools.aot.expressions import Translation
from tawa.tools.aot.names import C_TYPES, Fields, fields_of

_NARROW = {
    "f16": ("uint16_t", "tawa_half({}, bad)"),
    "bf16": ("uint16_t", "tawa_narrow(tawa_float({}, bad), 8, 7, 1)"),
    "f8e4m3": ("uint8_t", "tawa_narrow(tawa_float({}, bad), 4, 3, 0)"),
    "f8e5m2": ("uint8_t", "tawa_narrow(tawa_float({}, bad), 5, 2, 1)"),
}
"""What is passed of a number that is narrower than a float: its bits, rounded as Python does."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """The texts of a launcher: its header and its source, in C99 that is C++ too."""

    header: str
    source: str


def write_launcher(kernels: Sequence[CompiledKernel]) -> Launcher:
    """Return the launcher of the first kernel, which falls back on the others in order."""
    name = kernels[0].name
    fields = fields_of(kernels[0], paired(kernels))
    variants = [_Variant(index, kernel, fields) for index, kernel in enumerate(kernels)]
    state = [line for variant in variants for line in variant.state()]
    header = "\n".join([*_header(name, fields, state), ""])
    source = "\n".join(
        [
            f"/* The launcher of {name}, written by `tawa build`. */",
            "#define TAWA_PROGRAMS " + ", ".join(map(str, PROGRAMS)),
            f"#define TAWA_WALKED INT64_C({WALKED})",
            f'#include "{name}.h"',
            '#include "tawa_support.h"',
            "",
            *(line for variant in variants for line in variant.lines()),
            *_argument_check(fields),
            *_entries(name, fields, variants),
            "",
        ]
    )
    return Launcher(header, source)


def _header(name: str, fields: Fields, state: Sequence[str]) -> Iterator[str]:
    guard = f"TAWA_KERNEL_{name.upper()}_H"
    declarations = fields.declarations()
    if not fields.names:
        declarations = [*declarations, "    int unused; /* C has no empty struct */"]
    yield from (
        f"/* {name}, built by `tawa build`. Link with -lcuda. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        '#include "tawa.h"',
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "typedef struct {",
        *declarations,
        f"}} {fields.struct};",
        "",
        "/* A loaded kernel. It serves one thread at a time: load one for each. */",
        "typedef struct {",
        *state,
        f"}} {name}_kernel;",
        "",
        "/* Load the kernel for the device of the current context. `error` may be 0. */",
        f"tawa_code {name}_load({name}_kernel *kernel, tawa_error *error);",
        "",
        "/* Launch on a grid of x * y * z programs, on a stream of the device it was loaded for.",
        "   What a launch cannot be is refused, and then nothing has run. */",
        f"tawa_code {name}_launch({name}_kernel *kernel, CUstream stream, uint32_t x, uint32_t y,",
        f"    uint32_t z, const {fields.struct} *arguments, tawa_error *error);",
        "",
        "/* Give the kernel back, when no launch of it is under way. */",
        f"void {name}_unload({name}_kernel *kernel);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
    )


def _quote(text: str) -> str:
    plain = text.encode("ascii", "replace").decode("ascii").encode("unicode_escape").decode("ascii")
    return '"' + plain.replace('"', '\\"').replace("?", "\\?") + '"'


class _Variant:
    """One of the kernels that a launch may run."""

    def __init__(self, index: int, kernel: CompiledKernel, fields: Fields) -> None:
        self.index, self.kernel, self.fields = index, kernel, fields
        self.name = fields.kernel
        self.guards = [
            Condition(f"{self.name}_guard{index}_{place}", guard.condition, fields)
            for place, guard in enumerate(kernel.guards)
        ]
        self.demands = [
            Condition(f"{self.name}_demand{index}_{place}", demand.condition, fields)
            for place, demand in enumerate(kernel.demands)
        ]
        self.maps = [item for item in kernel.parameters if isinstance(item, TensorMapParameter)]

    @property
    def asks(self) -> bool:
        """Whether a launch has something to decide."""
        return bool(self.guards or self.demands)

    def state(self) -> list[str]:
        """Return what a loaded kernel holds of this variant."""
        lines = [f"    tawa_loaded loaded{self.index};"]
        if any(isinstance(item, CounterParameter) for item in self.kernel.parameters):
            lines.append(f"    tawa_counters counters{self.index};")
        if self.asks:  # the verdict of the latest launch
            lines += [
                f"    {self.fields.struct} arguments{self.index};",
                f"    int64_t grid{self.index}[3];",
                f"    int verdict{self.index};",
            ]
        return lines

    def lines(self) -> Iterator[str]:
        """Yield the kernel's binary, its shape, its conditions and its launch."""
        yield from self._binary()
        for place, item in enumerate(self.maps):
            yield from self._map_shape(place, item)
        yield from (condition.text for condition in (*self.guards, *self.demands))
        if self.asks:
            yield from self._decide()
        yield from self._launch()

    def _binary(self) -> Iterator[str]:
        cubin, launch = self.kernel.cubin, self.kernel.launch
        yield f"static const union {{ unsigned char bytes[{len(cubin)}]; uint64_t aligned; }}"
        yield f"{self.name}_cubin{self.index} = {{{{"
        for start in range(0, len(cubin), 32):
            yield ",".join(map(str, cubin[start : start + 32])) + ","
        yield "}};"
        carveout = 0
        if launch.blocks > 1:
            each = launch.blocks * (launch.shared + 1024)
            carveout = min(100, -(-100 * each // H200.shared_per_multiprocessor))
        yield f"static const tawa_shape {self.name}_shape{self.index} = {{"
        yield f"    {_quote(self.name)}, {_quote(self.kernel.entry)},"
        yield f"    {self.name}_cubin{self.index}.bytes,"
        yield f"    {launch.threads}, {launch.shared}, {launch.cluster}, {launch.blocks},"
        yield f"    {carveout}, {int(launch.persistent)}, {int(launch.early)}"
        yield "};"
        yield ""

    def _map_shape(self, place: int, item: TensorMapParameter) -> Iterator[str]:
        rank, name = len(item.box), item.source or item.label
        check(item, Tensor(name, 0, (0,) * rank, (0,) * rank))  # what no launch could change
        box = ", ".join(map(str, item.box))
        yield f"static const tawa_map_shape {self.name}_map{self.index}_{place} = {{"
        yield f"    {_quote(name)}, (CUtensorMapDataType){MAP_TYPES[item.dtype]},"
        yield f"    (CUtensorMapSwizzle){SWIZZLES[item.swizzle]},"
        yield f"    (CUtensorMapFloatOOBfill){int(item.padding == 'nan')},"
        yield f"    {rank}, {BYTES[item.dtype]}, {item.row}, {{{box}}}"
        yield "};"
        yield ""

    def _decide(self) -> Iterator[str]:
        """Yield the function of the verdict: 1 for launches that may run, 0 for the others."""
        index = self.index
        yield f"static tawa_code {self.name}_decide{index}({self.name}_kernel *kernel,"
        yield f"    const int64_t grid[3], const {self.fields.struct} *arguments,"
        yield "    int *verdict, tawa_error *error)"
        yield "{"
        yield "    (void)error;"
        yield f"    if (kernel->verdict{index} >= 0"
        yield f"        && !memcmp(kernel->grid{index}, grid, sizeof kernel->grid{index})"
        yield f"        && !memcmp(&kernel->arguments{index}, arguments, sizeof *arguments)) {{"
        yield f"        *verdict = kernel->verdict{index};"
        yield "        return TAWA_OK;"
        yield "    }"
        yield "    *verdict = 1;"
        for place, _ in enumerate(self.guards):
            call = f"{self.name}_guard{index}_{place}(arguments, grid)"
            yield f"    if (*verdict && {call} != 1) *verdict = 0;"
        for place, (demand, made) in enumerate(zip(self.kernel.demands, self.demands)):
            call = f"{self.name}_demand{index}_{place}(arguments, grid)"
            said = "".join(f", {name}=%lld" for name in made.used).removeprefix(", ")
            text = f"%s: %s{demand.refusal.replace('%', '%%')}"
            text += f": the launch has {said}" if said else ""
            wide = (f", (long long)arguments->{self.fields.names[name]}" for name in made.used)
            yield f"    const int demand{place} = *verdict ? {call} : 1;"
            yield f"    if (demand{place} == 0 || demand{place} == -2)"
            yield f"        return tawa_fail(error, TAWA_DEMAND, {_quote(text)},"
            yield f'            {_quote(self.name)}, demand{place} ? {_quote(PERHAPS)} : ""'
            yield f"            {''.join(wide)});"
        yield f"    kernel->verdict{index} = *verdict;"
        yield f"    memcpy(kernel->grid{index}, grid, sizeof kernel->grid{index});"
        yield f"    memcpy(&kernel->arguments{index}, arguments, sizeof *arguments);"
        yield "    return TAWA_OK;"
        yield "}"
        yield ""

    def _launch(self) -> Iterator[str]:
        index, count = self.index, len(self.kernel.parameters)
        shape = f"&{self.name}_shape{index}"
        yield "/* Sets *refused where a guard does not hold. */"
        yield f"static tawa_code {self.name}_launch{index}({self.name}_kernel *kernel,"
        yield f"    CUstream stream, const int64_t grid[3], const {self.fields.struct} *arguments,"
        yield "    int *refused, tawa_error *error)"
        yield "{"
        yield f"    uint64_t values[{max(1, count)}] = {{0}};"
        yield f"    void *parameters[{max(1, count)}] = {{0}};"
        yield "    int failed = 0, empty = 0, *const bad = &failed;"
        if self.maps:
            yield f"    uint64_t memory[{16 * len(self.maps) + 8}];"
            yield "    CUtensorMap *const maps ="
            yield "        (CUtensorMap *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);"
        yield "    tawa_code code;"
        yield "    (void)values, (void)bad, (void)arguments;"
        yield f"    code = tawa_check_grid({shape}, grid, &empty, error);"
        yield "    *refused = 0;"
        yield "    if (code != TAWA_OK || empty) return code;"
        if self.asks:
            yield "    int verdict = 1;"
            yield f"    code = {self.name}_decide{index}(kernel, grid, arguments, &verdict, error);"
            yield "    if (code != TAWA_OK) return code;"
            yield "    if (!verdict) return *refused = 1, TAWA_OK;"
        for place, parameter in enumerate(self.kernel.parameters):
            yield from (f"    {line}" for line in self._parameter(place, parameter))
        yield f"    return tawa_submit({shape}, &kernel->loaded{index}, stream, grid, parameters,"
        yield "        error);"
        yield "}"
        yield ""

    def _parameter(self, place: int, parameter: Parameter) -> Iterator[str]:
        match parameter:
            case PointerParameter(name):
                yield from _put(place, "uint64_t", f"arguments->{self.fields.names[name]}")
            case GridParameter(axis):
                yield from _put(place, "int32_t", f"grid[{axis}]")
            case CounterParameter():
                yield "int32_t number = 0;"
                yield f"code = tawa_counter(&kernel->counters{self.index}, stream,"
                yield f"    {_quote(self.name)}, &number, error);"
                yield "if (code != TAWA_OK) return code;"
                yield from _put(place, "int32_t", "number")
            case TensorMapParameter():
                yield from self._map(place, parameter)
            case ScalarParameter():
                yield from self._scalar(place, parameter)

    def _scalar(self, place: int, parameter: ScalarParameter) -> Iterator[str]:
        dtype, name = parameter.dtype, parameter.expression
        given = self.fields.signature.get(name)
        field = f"arguments->{self.fields.names.get(name)}"
        if isinstance(given, ScalarArg) and given.dtype == dtype:
            if dtype not in _NARROW:
                value = f"({field} != 0)" if dtype == "i1" else field
                yield from _put(place, C_TYPES[dtype], value)
                return
            kind, form = _NARROW[dtype]
            value = form.format(field)
        elif dtype[0] in "iu":
            bits, signed = int(dtype[1:]), dtype[0] == "i"
            kind, value = C_TYPES[dtype], Translation(self.fields).text(name)
            high = "INT64_MAX" if bits == 64 else f"INT64_C({(1 << bits - signed) - 1})"
            low = "0" if not signed else "INT64_MIN" if bits == 64 else f"-INT64_C({1 << bits - 1})"
            value = f"tawa_fit({value}, {low}, {high}, bad)"
        else:
            raise InternalError(f"{self.name}: the parameter {name!r} of {dtype} is no argument")
        yield from _put(place, kind, value)
        yield "if (failed)"
        yield "    return tawa_fail(error, TAWA_ARGUMENT,"
        yield f'        "%s: %s does not fit {dtype}",'
        yield f"        {_quote(self.name)}, {_quote(name)});"

    def _map(self, place: int, item: TensorMapParameter) -> Iterator[str]:
        before = self.kernel.parameters[:place]
        number = sum(isinstance(each, TensorMapParameter) for each in before)
        if item.source:
            tensor = f"arguments->{self.fields.names[item.source]}"
            texts = f"{tensor}.address", f"{tensor}.extents", f"{tensor}.strides"
        else:
            spell = Translation(self.fields).text
            yield f"const int64_t base{place} = {spell(item.base)};"
            for what, found in (("extents", item.extents), ("strides", item.strides)):
                yield f"const int64_t {what}{place}[] = {{{', '.join(map(spell, found))}}};"
            yield "if (failed)"
            yield "    return tawa_fail(error, TAWA_ARGUMENT,"
            yield '        "%s: the descriptor %s is beyond 64 bits",'
            yield f"        {_quote(self.name)}, {_quote(item.label)});"
            texts = f"(CUdeviceptr)base{place}", f"extents{place}", f"strides{place}"
        shape = f"&{self.name}_map{self.index}_{number}"
        yield f"code = tawa_encode(&maps[{number}], {_quote(self.name)}, {shape},"
        yield f"    {', '.join(texts)}, error);"
        yield "if (code != TAWA_OK) return code;"
        yield f"parameters[{place}] = &maps[{number}];"


def _put(place: int, kind: str, value: str) -> Iterator[str]:
    yield f"TAWA_PUT(values[{place}], {kind}, {value});"
    yield f"parameters[{place}] = &values[{place}];"


def _argument_check(fields: Fields) -> Iterator[str]:
    """Yield the check that the arguments are what the kernel was compiled for."""
    name = fields.kernel
    yield f"static tawa_code {name}_check(const {fields.struct} *arguments, tawa_error *error)"
    yield "{"
    yield "    (void)arguments, (void)error;"
    for given, argument in fields.signature.items():
        field = f"arguments->{fields.names.get(given)}"
        match argument:
            case PointerArg(divisible=True):
                rule = f"{field} % 16", "is built for an address that is a multiple of 16 bytes"
            case ScalarArg(divisible=True):
                rule = f"{field} % 16", "is built for a multiple of 16"
            case ScalarArg(by_eight=True):
                rule = f"{field} % 8", "is built for a multiple of 8"
            case DescriptorArg(ragged=False):
                rows = f"{field}.extents[{len(argument.block_shape) - 1}]"
                unit = 16 // BYTES[argument.dtype]
                rule = f"{rows} % {unit}", "is built for rows that are multiples of 16 bytes"
            case _:
                continue
        yield f"    if ({rule[0]} != 0)"
        yield "        return tawa_fail(error, TAWA_ARGUMENT,"
        yield f'            "%s: %s {rule[1]}: build it for such an argument too",'
        yield f"            {_quote(name)}, {_quote(given)});"
    yield "    return TAWA_OK;"
    yield "}"
    yield ""


def _entries(name: str, fields: Fields, variants: Sequence[_Variant]) -> Iterator[str]:
    yield f"tawa_code {name}_load({name}_kernel *kernel, tawa_error *error)"
    yield "{"
    yield "    tawa_code code = TAWA_OK;"
    yield "    memset(kernel, 0, sizeof *kernel);"
    yield "    (void)code;"
    for index in range(len(variants)):
        yield f"    code = tawa_load(&kernel->loaded{index}, &{name}_shape{index}, error);"
        yield f"    if (code != TAWA_OK) {{ {name}_unload(kernel); return code; }}"
    for variant in variants:
        if variant.asks:
            yield f"    kernel->verdict{variant.index} = -1;"
    yield "    return TAWA_OK;"
    yield "}"
    yield ""
    yield f"tawa_code {name}_launch({name}_kernel *kernel, CUstream stream, uint32_t x, uint32_t y,"
    yield f"    uint32_t z, const {fields.struct} *arguments, tawa_error *error)"
    yield "{"
    yield "    const int64_t grid[3] = {x, y, z};"
    yield "    int refused = 0;"
    yield f"    tawa_code code = tawa_enter(&kernel->loaded0, {_quote(name)}, error);"
    yield f"    if (code == TAWA_OK) code = {name}_check(arguments, error);"
    yield "    if (code != TAWA_OK) return code;"
    for index in range(len(variants)):
        yield f"    code = {name}_launch{index}(kernel, stream, grid, arguments, &refused, error);"
        yield "    if (code != TAWA_OK || !refused) return code;"
    yield "    return tawa_fail(error, TAWA_GUARD,"
    yield f'        "%s: a condition of the kernel does not hold", {_quote(name)});'
    yield "}"
    yield ""
    yield f"void {name}_unload({name}_kernel *kernel)"
    yield "{"
    for index in range(len(variants)):
        library = f"kernel->loaded{index}.library"
        yield f"    if ({library}) cuLibraryUnload({library});"
    yield "    memset(kernel, 0, sizeof *kernel);"
    yield "}"
