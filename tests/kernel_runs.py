"""Every kernel of the tests and of the library with what it means and arguments of any trip count.

`SUBJECTS[name].at(extent)` is a kernel ready to run: its tile IR, which is the oracle, its hopper
IR, a grid and fresh arguments. `extent` sizes the loop that the ring turns in, in multiples of
`step`; None is a usual size, of a few tiles and an uneven tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

import codegen_kernels as codegen
import counted_kernels as counted
import tawa.language as tl
import test_lower_copy_async as copies
import test_lower_instances as instances
import test_lower_pingpong as pingpong
from frontend_kernels import of
from kernel_subject import Arguments, Ready, Subject, copied, descriptor
from library_kernels import LIBRARY, Library
from lower_kernels import CASES, DTYPES, Case, fresh, integers, tile_kernel
from proof_kernels import DATA, KERNELS, PLANS, codegen_products, lowered_launch
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg, PointerArg
from tawa.ir import parse, tile
from tawa.kernels.prepare import Launch
from tawa.runtime.dispatch import host_argument
from tawa.runtime.dtypes import numpy_dtype
from tawa.runtime.specialize import bind
from tawa.simulator import simulate
from tile_shapes import SHAPES, inputs, text_of
from told_kernels import TOLD

# --- from signatures ------------------------------------------------------------------------------


def sized(
    name: str,
    oracle: Callable[[], tile.Kernel],
    arguments: Callable[[int | None], Arguments],
    grid: tuple[int, int, int],
    **how: Any,
) -> Subject:
    """A kernel of `proof_kernels` whose IR does not depend on its size."""
    pair = cache(lambda: (oracle(), KERNELS[name]()))
    return Subject(lambda extent: Ready(*pair(), grid, arguments(extent)), **how)


def _case(name: str, case: Case) -> Subject:
    """A case of the lowering: its loop is counted by a scalar, past the end of arrays as well."""
    constants = {key: arg.value for key, arg in case.signature.items() if hasattr(arg, "value")}
    knobs = {"K": constants.get("BK", 0), "n": constants.get("BN", 0)}
    knob = next((key for key in knobs if key in case.arguments), "")
    if "x_ptr" in case.signature:
        knob = ""  # the extent of a masked row
    step = 1 if name == "in place" else knobs.get(knob, 0)

    def arguments(extent: int | None) -> Arguments:
        wide = case if extent is None or "a_ptr" not in case.signature else _wider(case, extent)
        _, given = fresh(wide)
        return given | ({} if extent is None else {knob: extent})

    make = partial(tile_kernel, case)
    return sized(name, make, arguments, case.grid, step=step, exact=case.exact)


def _wider(case: Case, extent: int) -> Case:
    """The same product by pointers with that many columns of A and rows of B."""
    m, n = case.arguments["M"], case.arguments["N"]
    width = max(16, extent)
    given = {"a_ptr": integers((m, width), "f16"), "b_ptr": integers((width, n), "f16")}
    if "am" in case.arguments:
        given |= {"am": width}
    elif extent:
        # Descriptors made in the kernel: B is stored by its columns.
        given |= {"b_ptr": integers((n, width), "f16")}
    return replace(case, arguments=case.arguments | given)


KNOBS = {"K": 16, "counts": 1, "TILES": 1}
"""Of the shapes: the argument that says how often a loop runs, and what of it is one iteration."""


def _shape(name: str, full: str) -> Subject:
    takes = SHAPES[name].arguments
    knob, step = next((item for item in KNOBS.items() if item[0] in takes), ("", 0))

    def arguments(extent: int | None) -> Arguments:
        given = inputs(name, 5, **({knob: extent} if knob and extent is not None else {}))
        if knob == "counts" and extent is not None:
            given["counts"] = np.array([extent, 0, extent // 2], np.int32)
        return given

    return sized(full, lambda: parse(text_of(name)), arguments, SHAPES[name].grid, step=step)


# --- products and attention on descriptors --------------------------------------------------------


def _filled(
    shapes: Mapping[str, tuple[int, int]],
    blocks: Mapping[str, tuple[int, ...]],
    dtype: str,
    outputs: tuple[str, ...],
    low: int = -2,
    high: int = 3,
) -> Arguments:
    """Descriptors of small integers; outputs begin as NaNs."""
    found: Arguments = {}
    for name, shape in shapes.items():
        array = integers(tuple(max(8, extent) for extent in shape), dtype, low, high)
        if name in outputs:
            array = np.full(shape, np.nan, DTYPES[dtype])
        found[name] = descriptor(array, blocks[name])
    return found


def _gemm_sample(name: str) -> Subject:
    blocks = {"a_desc": (128, 64), "b_desc": (64, 256), "c_desc": (128, 256)}

    def arguments(extent: int | None) -> Arguments:
        k = 200 if extent is None else extent
        shapes = {"a_desc": (200, k), "b_desc": (k, 264), "c_desc": (200, 264)}
        return _filled(shapes, blocks, "bf16", ("c_desc",)) | {"K": k}

    text = (DATA / "gemm.tile.mlir").read_text()
    return sized(f"sample {name}", lambda: parse(text), arguments, (2, 2, 1), step=64)


def residual(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """What the sample of that name computes: the tiles of A are added to their products."""
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        acc = tl.dot(a, b_desc.load([k, n]), acc)
        acc += a.to(tl.float32)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def softmax(q_desc, k_desc, v_desc, o_desc, length, scale, BM: tl.constexpr, D: tl.constexpr):
    """What the sample of attention computes."""
    row = tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for j in range(0, length, BM):
        s = tl.dot(q, k_desc.load([j, 0]).T) * (scale * 1.4426950408889634)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        change = tl.exp2(top - new)
        total = total * change + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v_desc.load([j, 0]), acc * change[:, None])
        top = new
    o_desc.store([row, 0], (acc / total[:, None]).to(tl.float16))


def _samples() -> Iterator[tuple[str, Subject]]:
    for name in ("gemm", "gemm_cluster", "gemm_persistent"):
        yield f"sample {name}", _gemm_sample(name)
    blocks = {"a_desc": (128, 64), "b_desc": (64, 64), "c_desc": (128, 64)}
    described = {name: DescriptorArg("bf16", block) for name, block in blocks.items()}
    signature = of(**described, K="i32", BM=128, BN=64, BK=64)

    def of_residual(extent: int | None) -> Arguments:
        k = 200 if extent is None else extent
        shapes = {"a_desc": (200, k), "b_desc": (k, 104), "c_desc": (200, 104)}
        return _filled(shapes, blocks, "bf16", ("c_desc",)) | {"K": k}

    make = partial(build, residual, signature, {})
    yield "sample residual", sized("sample residual", make, of_residual, (2, 2, 1), step=64)
    tiles = dict.fromkeys(("q_desc", "k_desc", "v_desc", "o_desc"), (128, 64))
    described = {name: DescriptorArg("f16", block) for name, block in tiles.items()}
    signature = of(**described, length="i32", scale="f32", BM=128, D=64)

    def of_softmax(extent: int | None) -> Arguments:
        n = 384 if extent is None else extent
        shapes = {"q_desc": (200, 64), "k_desc": (n, 64), "v_desc": (n, 64), "o_desc": (200, 64)}
        given = _filled(shapes, tiles, "f16", ("o_desc",), -1, 2)
        return given | {"length": n, "scale": 0.125}

    make = partial(build, softmax, signature, {})
    how = {"step": 128, "exact": False}
    yield "sample attention", sized("sample attention", make, of_softmax, (2, 1, 1), **how)


# --- kernels of code generation -------------------------------------------------------------------


def _codegen() -> Iterator[tuple[str, Subject]]:
    for name, function, case in codegen_products():
        blocks = {
            key: arg.block_shape for key, arg in case.items() if isinstance(arg, DescriptorArg)
        }
        turned_a, turned_b = function is codegen.matmul_tt, function is not codegen.matmul_nn

        def arguments(
            extent: int | None,
            blocks: Mapping[str, Any] = blocks,
            turned_a: bool = turned_a,
            turned_b: bool = turned_b,
        ) -> Arguments:
            k = 208 if extent is None else extent
            shapes = {"a_desc": (k, 200) if turned_a else (200, k)}
            shapes |= {"b_desc": (136, k) if turned_b else (k, 136), "c_desc": (200, 136)}
            return _filled(shapes, blocks, "bf16", ("c_desc",)) | {"K": k}

        make = partial(build, function, case, {})
        yield name, sized(name, make, arguments, (2, 2, 1), step=64)
    yield "codegen attention", _codegen_attention()
    for name, (function, signature) in codegen.ORDINARY.items():
        given, grid = _ordinary(name, signature)
        how = {"exact": "softmax" not in name, "step": 1 if name == "while" else 0}

        def sizes(
            extent: int | None, given: Arguments = given, knob: bool = name == "while"
        ) -> Arguments:
            return copied(given) | ({"n": extent} if knob and extent is not None else {})

        make = partial(build, function, signature, {})
        yield f"codegen {name}", sized(f"codegen {name}", make, sizes, grid, **how)


def _codegen_attention() -> Subject:
    def arguments(extent: int | None) -> Arguments:
        n = 256 if extent is None else extent
        rng = np.random.default_rng(3)
        lengths = {"q_desc": 200, "k_desc": n, "v_desc": n, "o_desc": 200}
        arrays = {
            name: rng.standard_normal((1, max(8, rows), 128)).astype(np.float16)
            for name, rows in lengths.items()
        }
        arrays["o_desc"][...] = np.nan
        found = {name: descriptor(array, (1, 128, 128)) for name, array in arrays.items()}
        return found | {"S": n, "scale": 0.125}

    make = partial(build, codegen.attention, codegen.ATTENTION, {})
    how = {"step": 128, "exact": False}
    return sized("codegen attention", make, arguments, (2, 1, 1), **how)


def _ordinary(name: str, signature: Mapping[str, Any]) -> tuple[Arguments, tuple[int, int, int]]:
    """Arguments of a kernel that is not split into roles, and its grid."""
    rng = np.random.default_rng(len(name))
    low, rows = (0, 2) if name == "histogram" else (-9, 2)
    sizes = {"add": 1300, "histogram": 1024, "quantize": 1024, "while": 32, "softmax": 2048}
    size = next((size for key, size in sizes.items() if name.startswith(key)), 4096)
    given: Arguments = {}
    for argument, arg in signature.items():
        if isinstance(arg, PointerArg):
            values = rng.integers(low, 10, size)
            given[argument] = values.astype(numpy_dtype(arg.dtype))
    if "scale" in signature:
        given["scale"] = 2.5
    if name.startswith("softmax"):
        width = 1024 if name == "softmax" else 512
        given |= {"stride": width, "n": width - 24}
        return given, (rows, 1, 1)
    if "n" in signature:
        given["n"] = 20 if name == "while" else 704
    blocks = -(-704 // signature["B"].value) if name.startswith("add") else 1
    return given, (blocks, 1, 1)


# --- instances, turns, copies, while --------------------------------------------------------------


def _instances(name: str, function: Any) -> Subject:
    def arguments(extent: int | None) -> Arguments:
        return instances._arguments(200, 100, 96 if extent is None else extent, instances.BM)

    make = partial(instances._tiles, function)
    return sized(name, make, arguments, (4, 2, 1), step=instances.BK)


def _turns(name: str, function: Any, bm: int) -> Subject:
    def arguments(extent: int | None) -> Arguments:
        n, rows = 192 if extent is None else extent, 3 * bm - 8
        blocks = {"q_desc": (bm, 64), "k_desc": (64, 64), "v_desc": (64, 64), "o_desc": (bm, 64)}
        shapes = {"q_desc": (rows, 64), "k_desc": (n, 64), "v_desc": (n, 64), "o_desc": (rows, 64)}
        return _filled(shapes, blocks, "f16", ("o_desc",), -1, 2) | {"n": n}

    make = partial(pingpong._tiles, function, bm)
    return sized(name, make, arguments, (3, 1, 1), step=64, exact=False)


def _copies(name: str, function: Any) -> Subject:
    def arguments(extent: int | None) -> Arguments:
        return copies.arguments(function, 208 if extent is None else extent)

    make = partial(build, function, copies.signature(function), {})
    return sized(name, make, arguments, (2, 2, 1), step=copies.BK)


def _paged(extent: int | None) -> Arguments:
    return copies.paged_arguments(192 if extent is None else extent)[0]


def _counted(name: str, function: Any) -> Subject:
    def arguments(extent: int | None) -> Arguments:
        k = 208 if extent is None else extent
        blocks = dict.fromkeys(("a_desc", "b_desc"), (64, 64))
        shapes = {"a_desc": (64, k), "b_desc": (k, 64)}
        out = np.full((64, 64), np.nan, np.float32)
        given = _filled(shapes, blocks, "f16", ())
        return given | {"c_desc": descriptor(out, (64, 64)), "K": k}

    make = partial(build, function, counted.signature(), {})
    return sized(name, make, arguments, (1, 1, 1), step=64)


def _special() -> Iterator[tuple[str, Subject]]:
    for function in (instances.gemm, instances.residual, instances.twice):
        for depth in (1, 2):
            name = f"instances {function.__name__} depth {depth}"
            yield name, _instances(name, function)
    yield "instances three", _instances("instances three", instances.gemm)
    for name in KERNELS:
        if name.startswith("turns "):
            function = pingpong.filtered if "filtered" in name else pingpong.attention
            yield name, _turns(name, function, 192 if name == "turns three" else 128)
    for function in copies.KERNELS:
        name = f"copies {function.__name__}"
        yield name, _copies(name, function)
    yield "copies depth 4", _copies("copies depth 4", copies.gather)
    make = partial(build, copies.paged, copies.paged_signature(), {})
    yield "copies paged", sized("copies paged", make, _paged, (1, 1, 1), step=64, exact=False)
    for name, case in PLANS.items():
        yield f"plan {name}", _case(f"plan {name}", case)
    for function in (counted.up_to, counted.up_to_and_with):
        name = f"while {function.__name__}"
        yield name, _counted(name, function)


def _told() -> Iterator[tuple[str, Subject]]:
    """Words in memory count the iterations, or choose in those of K."""
    for name, (function, signature) in TOLD.items():
        tiles = "K" in signature

        def arguments(extent: int | None, tiles: bool = tiles) -> Arguments:
            n = extent if extent is not None else 160 if tiles else 3
            flag = np.array([1 if tiles else n, *[0] * 9], np.int32)
            if not tiles:
                return {"x": np.ones(256, np.float32), "flag": flag, "out": np.zeros(256, "f4")}
            shapes = {"a_desc": (64, n), "b_desc": (n, 64), "c_desc": (64, 64)}
            given = _filled(shapes, dict.fromkeys(shapes, (64, 64)), "f16", ())
            c = descriptor(np.full((64, 64), np.nan, np.float32), (64, 64))
            return given | {"c_desc": c, "flag": flag, "K": n}

        make = partial(build, function, signature, {})
        yield name, sized(name, make, arguments, (1, 1, 1), step=64 if tiles else 1)


# --- the library ----------------------------------------------------------------------------------


def ready(launches: list[Launch], index: int) -> Ready:
    """A launch of the library; those before it have run, as the oracle has them."""
    for before in launches[:index]:
        made = ready([before], 0)
        simulate(made.oracle, made.grid, made.arguments, level="tile")
    launch = launches[index]
    oracle, kernel = lowered_launch(launch)
    values = bind(launch.kernel.kernel, launch.arguments, dict(launch.options)).values
    given = {name: host_argument(values[name]) for name in oracle.argument_names}
    return Ready(oracle, kernel, (*launch.grid, 1, 1)[:3], given)


def _library() -> Iterator[tuple[str, Subject]]:
    for name, item in LIBRARY.items():

        def at(extent: int | None, item: Library = item) -> Ready:
            return ready(item.launches(extent), item.index)

        yield name, Subject(at, item.step, item.exact, least=item.least)


def _all() -> Iterator[tuple[str, Subject]]:
    yield from _samples()
    for name, case in CASES.items():
        yield name, _case(name, case)
    for name in SHAPES:
        for full in (f"shape {name}", f"shape {name} ordinary"):
            yield full, _shape(name, full)
    yield from _codegen()
    yield from _special()
    yield from _told()
    yield from _library()


SUBJECTS: dict[str, Subject] = dict(_all())

__all__ = ["SUBJECTS"]
