"""Kernels for the tests of the simulator: the worked GEMM, and a builder of small hopper IR."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from kernel_subject import in_rows
from tawa import ir
from tawa.errors import ProtocolError
from tawa.simulator import simulate
from tawa.simulator.memory import HostDescriptor

BF16 = np.dtype(ml_dtypes.bfloat16)
DATA = Path(__file__).parent / "data"


def host(array, block, padding="zero"):
    strides = tuple(step // array.itemsize for step in array.strides)
    return HostDescriptor(array, array.shape, strides, block, padding)


@cache
def gemm_text(level: str) -> str:
    return (DATA / f"gemm.{level}.mlir").read_text()


@cache
def gemm_kernel(level: str):
    return ir.parse(gemm_text(level))


def gemm(kernel, level: str, m: int, n: int, k: int, *, normal: bool = False, **how):
    """Run a GEMM kernel; return the poisoned and then written result, and A and B."""
    rng = np.random.default_rng(m * 31 + n * 7 + k)
    make = rng.standard_normal if normal else lambda shape: rng.integers(-4, 5, shape)
    a, b = make((m, k)).astype(BF16), make((k, n)).astype(BF16)
    c = in_rows(np.full((m, n), np.nan, BF16))
    arguments = {
        "a_desc": host(a, (128, 64)),
        "b_desc": host(b, (64, 256)),
        "c_desc": host(c, (128, 256)),
        "K": k,
    }
    grid = (-(-m // 128), -(-n // 256), 1)
    trace = simulate(kernel, grid, arguments, level=level, **how)
    return c, a, b, trace


def expected(a, b):
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32).astype(BF16)


def without(kernel, name: str, number: int):
    """Return a copy of a kernel that lacks the number-th operation of a name."""
    kernel = kernel.clone()
    operation = [op for op in kernel.walk() if op.name == name][number]
    for result, operand in zip(operation.results, operation.operands):
        result.replace_all_uses_with(operand)
    operation.detach()
    operation.erase()
    return kernel


# --- small hopper kernels -------------------------------------------------------------------------

INT = "#builtin.int"


def c32(name: str, value: int) -> str:
    return f"%{name} = tile.constant {{value = {INT}<{value}>}} : i32\n"


class Types:
    """The types of a tile of `shape` and what holds it, for a role of `warps` warps."""

    def __init__(self, shape=(64, 64), element="bf16", bits=16, swizzle=128, warps=4, slots=1):
        rows, columns = shape
        dims = "x".join(map(str, shape))
        self.element = element
        self.slots = slots
        self.layout = (
            f"{dims} r[{columns // 32}:(0,32) {rows // warps}:(1,0)] l[32:(0,1)] "
            f"w[{warps}:({rows // warps},0)]"
        )
        self.tensor = f'tensor<{dims}x{element}, #hopper.layout<"{self.layout}">>'
        self.shared = f'#hopper.shared_layout<"{dims} order(0,1) {bits}b swizzle{swizzle}">'
        self.buffer = f"!hopper.buffer<{INT}<{slots}>, {element}, {self.shared}>"
        self.view = f"!hopper.view<{element}, {self.shared}, {self.shared}>"
        self.desc = f"!tile.desc<tensor<{dims}x{element}>>"
        self.bytes = rows * columns * bits // 8
        box = min(columns, swizzle * 8 // bits) if swizzle else columns
        self.box = (rows, box)

    def map(self, rows: int | None = None) -> str:
        box = (rows or self.box[0], self.box[1])
        extents = ", ".join(f"{INT}<{extent}>" for extent in box)
        return f"!hopper.tensor_map<{self.element}, [{extents}]>"

    def make_map(self, name: str, desc: str, swizzle: int = 128, rows: int | None = None) -> str:
        return (
            f"%{name} = hopper.tensor_map %{desc} {{swizzle = {INT}<{swizzle}>}} : "
            f"({self.desc}) -> {self.map(rows)}\n"
        )

    def make_buffer(self, name: str, offset: int = 0) -> str:
        return f'%{name} = hopper.shared "{name}" {{offset = {INT}<{offset}>}} : {self.buffer}\n'

    def slot(self, name: str, buffer: str, index: str) -> str:
        return f"%{name} = hopper.slot %{buffer}[%{index}] : ({self.buffer}, i32) -> {self.view}\n"

    def load(self, name: str, view: str) -> str:
        return f'%{name} = hopper.shared_load "plain" %{view} : ({self.view}) -> {self.tensor}\n'

    def store(self, value: str, view: str) -> str:
        return f'hopper.shared_store "plain" %{value}, %{view} : {self.tensor}, {self.view}\n'

    def tma_load(
        self, source: str, m: str, n: str, view: str, barrier: str, slot: str, extra="", rows=None
    ) -> str:
        return (
            f"hopper.tma_load %{source}[%{m}, %{n}], %{view}, %{barrier}[%{slot}] {{{extra}}} : "
            f"{self.map(rows)}, i32, i32, {self.view}, {barriers(self.slots)}, i32\n"
        )

    def tma_store(self, target: str, m: str, n: str, view: str, by: str, rows=None) -> str:
        return (
            f'hopper.tma_store %{target}[%{m}, %{n}], %{view} {{by = "{by}"}} : '
            f"{self.map(rows)}, i32, i32, {self.view}\n"
        )


def barriers(count: int = 1) -> str:
    return f"!hopper.barriers<{INT}<{count}>>"


def make_barriers(name: str, offset: int, arrivals: int, count: int = 1) -> str:
    return (
        f'%{name} = hopper.barriers "{name}" {{offset = {INT}<{offset}>, '
        f"arrivals = {INT}<{arrivals}>}} : {barriers(count)}\n"
        f"hopper.init_barriers %{name} : {barriers(count)}\n"
    )


def wait(name: str, slot: str, phase: str, count: int = 1) -> str:
    return f"hopper.wait %{name}[%{slot}], %{phase} : {barriers(count)}, i32, i32\n"


def arrive(name: str, slot: str, by: str, count: int = 1, cluster: int = 0) -> str:
    extra = f", cluster = {INT}<{cluster}>" if cluster else ""
    return f'hopper.arrive %{name}[%{slot}] {{by = "{by}"{extra}}} : {barriers(count)}, i32\n'


def expect(name: str, slot: str, count: int, slots: int = 1) -> str:
    return f"hopper.expect %{name}[%{slot}] {{bytes = {INT}<{count}>}} : {barriers(slots)}, i32\n"


def named(kind: str, number: int, scope: str, threads: int) -> str:
    return (
        f'hopper.named_barrier "{kind}" {{id = {INT}<{number}>, scope = "{scope}", '
        f"threads = {INT}<{threads}>}}\n"
    )


def bulk_wait(by: str, read: bool = False, pending: int = 0) -> str:
    flag = "true" if read else "false"
    return f'hopper.bulk_wait {{pending = {INT}<{pending}>, read = {flag}, by = "{by}"}}\n'


def one_thread(body: str) -> str:
    return f'"hopper.one_thread"() ({{\n{body}}}) : () -> ()\n'


def role(label: str, first_warp: int, warps: int, body: str, registers: int = 24) -> str:
    return (
        f'"hopper.role"() ({{\n{body}}}) {{label = "{label}", first_warp = {INT}<{first_warp}>, '
        f"warps = {INT}<{warps}>, registers = {INT}<{registers}>}} : () -> ()\n"
    )


SYNC = "hopper.fence_barrier_init\nhopper.block_sync\n"


def program(parameters: dict[str, str], body: str, cluster: int = 1, persistent: bool = False):
    signature = ", ".join(f"%{name} : {kind}" for name, kind in parameters.items())
    facts = ", ".join(f'{{name = "{name}"}}' for name in parameters)
    launch = f"cluster = {INT}<{cluster}>, persistent = {str(persistent).lower()}"
    return ir.parse(
        f'"tile.kernel"() ({{\n^bb0({signature}):\n{body}}}) {{sym_name = "k", '
        f"arguments = [{facts}], options = {{}}, launch = {{{launch}}}}} : () -> ()"
    )


def some_seed_raises(message: str, run) -> None:
    """Assert that a run fails with a message under one of a few seeds."""
    found: list[str] = []
    for seed in range(40):
        try:
            run(seed)
        except ProtocolError as error:
            found.append(str(error))
    assert any(re.search(message, text) for text in found), found
