"""Programs of shared and global memory: TMA, cp.async, ldmatrix and stmatrix, shuffles."""

from __future__ import annotations

import numpy as np

from instructions import (
    BARRIER,
    FILLED,
    ONE_BARRIER,
    Program,
    copy_out,
    load_box,
    swizzled,
    tensor_map,
)
from tawa.codegen.wrappers import arithmetic, memory, tma
from tawa.codegen.wrappers import barriers as b
from tawa.layouts.windows import Window
from window_definition import seen

RANDOM = np.random.default_rng(5)
WORD = memory.shared_load("u32", 1)
BYTES = np.frombuffer(RANDOM.bytes(16384), np.uint8)


def swizzles() -> list[Program]:
    """A box of 16-bit elements lands swizzled; the pattern is that of the address, not the tile."""
    made: list[Program] = []
    for span, place in ((0, 0), (32, 0), (64, 0), (128, 0), (32, 256), (64, 512), (128, 1024)):
        wide = span or 64
        given = np.arange(32 * wide // 2, dtype=np.uint16).reshape(32, wide // 2)
        size = given.nbytes
        where = swizzled(place + np.arange(size), span) - place
        expected = np.empty(size, np.uint8)
        expected[where] = given.view(np.uint8).ravel()
        box = tensor_map("map", "given", "f16", given.shape, swizzle=span)
        made.append(
            Program(
                f"TMA load, swizzle {span} at {place}",
                (*BARRIER, tma.tma_load(2), WORD),
                ONE_BARRIER + load_box("map", place, size, (0, 0)) + copy_out(place, size),
                given,
                expected,
                maps=(box,),
            )
        )
    return made


def fills() -> list[Program]:
    """What lies outside of the tensor reads as zero, or NaN where the map says so (of which PTX
    does not give the bits; these are an H200's).
    """
    made: list[Program] = []
    for dtype, kind in (("f16", np.float16), ("f32", np.float32)):
        given = RANDOM.standard_normal((20, 24)).astype(kind)
        nan = np.frombuffer(b"\xf7\x7f\xf7\x7f"[: np.dtype(kind).itemsize], kind)[0]
        for padding, fill in (("zero", kind(0)), ("nan", nan)):
            for row, column in ((-3, -8), (12, 16), (-40, 0), (4, 104)):
                expected = np.full((16, 16), fill, kind)
                for i in range(16):
                    for j in range(16):
                        if 0 <= row + i < 20 and 0 <= column + j < 24:
                            expected[i, j] = given[row + i, column + j]
                box = tensor_map("map", "given", dtype, (16, 16), padding=padding)
                size = expected.nbytes
                made.append(
                    Program(
                        f"TMA load {dtype} at {row}, {column}, outside {padding}",
                        (*BARRIER, tma.tma_load(2), WORD),
                        ONE_BARRIER + load_box("map", 0, size, (column, row)) + copy_out(0, size),
                        given,
                        expected,
                        maps=(box,),
                    )
                )
    return made


def starts() -> list[Program]:
    """A box begins at a multiple of 16 bytes along the fastest dimension (PTX does not say so; at
    any other element an H200 stops with an illegal instruction), also outside of the tensor.
    """
    made: list[Program] = []
    given = np.arange(16 * 128, dtype=np.float16).reshape(16, 128)
    for column in (8, 96, 104, 120, 128, 136, -8, -24):
        expected = np.zeros((16, 16), np.float16)
        for j in range(16):
            if 0 <= column + j < 128:
                expected[:, j] = given[:, column + j]
        made.append(
            Program(
                f"TMA load from column {column}",
                (*BARRIER, tma.tma_load(2), WORD),
                ONE_BARRIER + load_box("map", 0, 512, (column, 0)) + copy_out(0, 512),
                given,
                expected,
                maps=(tensor_map("map", "given", "f16", (16, 16)),),
            )
        )
    return made


def ranks() -> list[Program]:
    """Boxes of one to five dimensions, the fastest coordinate first."""
    made: list[Program] = []
    for rank in range(1, 6):
        shape = (3, 4, 3, 5, 32)[5 - rank :]
        box = (2, 2, 2, 4, 16)[5 - rank :]
        at = (1, 2, 1, 1, 16)[5 - rank :]
        given = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        expected = given[tuple(slice(a, a + n) for a, n in zip(at, box))].copy()
        one = tensor_map("map", "given", "f32", box)
        made.append(
            Program(
                f"TMA load of {rank} dimensions",
                (*BARRIER, tma.tma_load(rank), WORD),
                ONE_BARRIER
                + load_box("map", 0, expected.nbytes, at[::-1])
                + copy_out(0, expected.nbytes),
                given,
                expected,
                maps=(one,),
            )
        )
    return made


WINDOWS = (
    # images, windows, first window (all axes, slowest first), tap, swizzle
    ((3, 7, 16), Window((3,), (1,), ((1, 1),), (1,)), (0, 0), (2,), 0),
    ((3, 300, 16), Window((5,), (2,), ((4, 0),), (2,)), (1, 147), (0,), 32),
    ((2, 5, 6, 16), Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), (0, 0, 3), (0, 2), 32),
    ((2, 5, 6, 32), Window((3, 3), (2, 2), ((1, 0), (0, 1)), (1, 1)), (0, 1, 1), (2, 1), 64),
    ((3, 9, 4, 64), Window((2, 3), (3, 1), ((0, 3), (2, 2)), (2, 1)), (1, 0, 2), (1, 0), 128),
    ((2, 3, 4, 5, 16), Window((2, 3, 1), (1, 2, 1), ((1, 0), (1, 1), (0, 0)), (1, 1, 1)),
     (0, 2, 1, 3), (1, 2, 0), 32),
    ((2, 6, 6, 16), Window((1, 1), (8, 4), ((0, 0), (0, 0)), (1, 1)), (0, 0, 1), (0, 0), 0),
    ((2, 6, 6, 16), Window((3, 3), (1, 1), ((-1, 0), (0, -1)), (1, 1)), (0, 1, 1), (2, 2), 32),
)  # fmt: skip


def windows() -> list[Program]:
    """Pixels are counted from a first window on through rows, images and what is behind the last;
    a tap moves all of them, and what then lies outside of an image is zero.
    """
    made: list[Program] = []
    for shape, window, first, tap, swizzle in WINDOWS:
        given = RANDOM.integers(-99, 99, shape).astype(np.float16)
        counts, block = (shape[0], *window.counts(shape[1:-1])), (24, min(shape[-1], 64))
        number = int(np.ravel_multi_index(first, counts))
        expected = seen(given, window, number, 0, tap, block)
        axes = zip(first[1:], window.stride, window.lower)
        start = (first[0], *(at * step + low for at, step, low in axes), 0)
        moved = [t * apart for t, apart in zip(tap, window.dilation)]
        box = tensor_map("map", "given", "f16", block, swizzle=swizzle, window=window)
        size = expected.nbytes
        placed = np.empty(size, np.uint8)
        placed[swizzled(np.arange(size), swizzle)] = expected.view(np.uint8).ravel()
        load = load_box("map", 0, size, start[::-1], taps=moved[::-1])
        made.append(
            Program(
                f"TMA load of windows {window} from {first} at tap {tap}",
                (*BARRIER, tma.tma_load(len(shape), windows=True), WORD),
                ONE_BARRIER + load + copy_out(0, size),
                given,
                placed,
                maps=(box,),
            )
        )
    return made


def stores() -> list[Program]:
    """Stores and reductions leave alone what is outside of the tensor, and unswizzle."""
    made: list[Program] = []
    cases = [
        ("", "f16", np.float16, 128), ("", "f32", np.float32, 0), ("add", "f32", np.float32, 0),
        ("add", "i32", np.int32, 0), ("min", "i32", np.int32, 0), ("max", "i32", np.int32, 0),
        ("add", "f16", np.float16, 0), ("max", "f16", np.float16, 0),
        ("and", "u32", np.uint32, 0), ("or", "u32", np.uint32, 0), ("xor", "u32", np.uint32, 0),
    ]  # fmt: skip
    functions = {
        "": lambda old, new: new, "add": np.add, "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    for reduce, dtype, kind, span in cases:
        columns = 64 if span else 16
        given = RANDOM.integers(0, 100, (8, columns)).astype(kind)
        start = RANDOM.integers(0, 100, (12, columns)).astype(kind)
        expected = start.copy()
        row = 7  # rows 12..14 are outside
        expected[row:] = functions[reduce](start[row:], given[: 12 - row])
        boxes = (
            tensor_map("source", "given", dtype, given.shape, swizzle=span),
            tensor_map("target", "result", dtype, given.shape, swizzle=span),
        )
        store = tma.tma_store(2, reduce=reduce)
        made.append(
            Program(
                f"TMA {reduce or 'store'} {dtype}, swizzle {span}",
                (*BARRIER, tma.tma_load(2), store, tma.BULK_COMMIT, tma.BULK_WAIT_READ,
                 tma.BULK_WAIT, b.FENCE_PROXY_ASYNC),
                ONE_BARRIER
                + load_box("source", 0, given.nbytes, (0, 0))
                + f"""\
if (thread == 0) {{
  fence_proxy_async();
  {store.name}(&target, shared, 0, {row});
  bulk_commit();
  bulk_wait_read<0>();
  bulk_wait<0>();
}}
""",
                given,
                expected,
                maps=boxes,
                start=start,
            )
        )  # fmt: skip
    return made


def hinted() -> list[Program]:
    """Stores of two to five dimensions whose lines may leave the cache first; one that adds."""
    made: list[Program] = []
    for rank, reduce in ((2, ""), (3, ""), (4, ""), (5, ""), (2, "add")):
        shape = (2, 2, 3, 4, 16)[5 - rank :]
        at = (1, 1, 2, 2, 8)[5 - rank :]
        given = RANDOM.integers(0, 100, shape).astype(np.float32)
        start = RANDOM.integers(0, 100, shape).astype(np.float32)
        expected = start.copy()
        inside = tuple(slice(first, None) for first in at)
        part = given[tuple(slice(0, n - first) for n, first in zip(shape, at))]
        expected[inside] = part + (start[inside] if reduce else 0)
        store = tma.tma_store(rank, eviction="first", reduce=reduce)
        maps = tuple(
            tensor_map(label, source, "f32", shape)
            for label, source in (("source", "given"), ("target", "result"))
        )
        made.append(
            Program(
                f"TMA {reduce or 'store'} of {rank} dimensions, evicted first",
                (*BARRIER, tma.tma_load(rank), store, tma.BULK_COMMIT, tma.BULK_WAIT,
                 b.FENCE_PROXY_ASYNC),
                ONE_BARRIER
                + load_box("source", 0, given.nbytes, (0,) * rank)
                + f"""\
if (thread == 0) {{
  fence_proxy_async();
  {store.name}(&target, shared, {", ".join(map(str, at[::-1]))});
  bulk_commit();
  bulk_wait<0>();
}}
""",
                given,
                expected,
                maps=maps,
                start=start,
            )
        )  # fmt: skip
    return made


def written_by_threads() -> Program:
    """What threads write leaves by TMA after each has fenced the proxy."""
    expected = np.arange(256, dtype=np.uint32).reshape(8, 32) * 3
    return Program(
        "generic writes, proxy fence, TMA store",
        (b.BLOCK_SYNC, b.FENCE_PROXY_ASYNC, memory.shared_store("u32", 1), tma.tma_store(2),
         tma.BULK_COMMIT, tma.BULK_WAIT),
        """\
for (u32 i = thread; i < 256; i += 32) {
  u32 word = i * 3;
  shared_store_u32x1(shared + 4 * i, &word);
}
fence_proxy_async();
block_sync();
if (thread == 0) {
  tma_store_2d(&target, shared, 0, 0);
  bulk_commit();
  bulk_wait<0>();
}
""",
        np.zeros(4, np.uint32),
        expected,
        maps=(tensor_map("target", "result", "u32", expected.shape),),
    )  # fmt: skip


def copies_by_threads() -> list[Program]:
    """cp.async of 4, 8 and 16 bytes: bytes not copied become zero; a thread's arrival comes when
    all its copies are done, and counts as one.
    """
    made: list[Program] = []
    for size in (4, 8, 16):
        given = BYTES[: 32 * size].copy()
        expected = given.reshape(32, size).copy()
        for lane in range(32):
            expected[lane, lane % (size + 1) :] = 0
        copy = tma.copy_async(size)
        made.append(
            Program(
                f"cp.async of {size} bytes",
                (copy, tma.COPY_ARRIVE, WORD, *BARRIER),
                f"""\
const u32 filled = shared + {FILLED};
if (thread == 0) barrier_init(filled, 33);
block_sync();
{copy.name}(shared + {size} * thread, given + {size} * thread, thread % {size + 1});
copy_arrive(filled);
{copy.name}(shared + 4096 + {size} * thread, given, 0);
if (thread == 0) barrier_arrive(filled);
barrier_wait(filled, 0);
"""
                + copy_out(0, 32 * size)
                + "copy_arrive(filled);\nif (thread == 0) barrier_arrive(filled);\n"
                "barrier_wait(filled, 1);\n",
                given,
                expected,
            )
        )
    return made


def matrices() -> list[Program]:
    """Register i of lane l holds columns 2(l%4), 2(l%4)+1 of row l/4 of matrix i; .trans the other
    way round.
    """
    made: list[Program] = []
    for count in (1, 2, 4):
        for transposed in (False, True):
            given = np.arange(64 * count, dtype=np.uint16).reshape(count, 8, 8)
            loaded = np.zeros((32, count, 2), np.uint16)
            for lane in range(32):
                for i in range(count):
                    for half in range(2):
                        row, column = lane // 4, 2 * (lane % 4) + half
                        at = (column, row) if transposed else (row, column)
                        loaded[lane, i, half] = given[(i, *at)]
            tail = "_trans" if transposed else ""
            names = ", ".join(f"m[{i}]" for i in range(count))
            fill = """\
for (u32 i = thread; i < {0}; i += 32) {{
  u32 word = ((const u32*)given)[i];
  shared_store_u32x1(shared + 4 * i, &word);
}}
block_sync();
"""
            made.append(
                Program(
                    f"ldmatrix x{count}{tail}",
                    (memory.ldmatrix(count, transposed=transposed), memory.shared_store("u32", 1),
                     b.BLOCK_SYNC),
                    fill.format(32 * count)
                    + f"""\
u32 m[{count}];
ldmatrix_x{count}{tail}(shared + 16 * (lane % {8 * count}), {names});
for (int i = 0; i < {count}; ++i) ((u32*)result)[{count} * thread + i] = m[i];
""",
                    given,
                    loaded,
                )
            )  # fmt: skip
            made.append(
                Program(
                    f"stmatrix x{count}{tail}",
                    (memory.stmatrix(count, transposed=transposed), WORD, b.BLOCK_SYNC),
                    f"""\
u32 m[{count}];
for (int i = 0; i < {count}; ++i) m[i] = ((const u32*)given)[{count} * thread + i];
stmatrix_x{count}{tail}(shared + 16 * (lane % {8 * count}), {names});
block_sync();
"""
                    + copy_out(0, 128 * count),
                    loaded,
                    given,
                )
            )
    return made


def shuffles() -> Program:
    """Lanes exchange values: by a mask, and from a lane named by its number."""
    given = np.arange(32, dtype=np.float32) + 0.5
    lanes = np.arange(32)
    expected = np.stack([given[lanes ^ mask] for mask in (1, 2, 4, 8, 16, 31)])
    expected = np.vstack([expected, given[(lanes * 7 + 3) % 32]])
    return Program(
        "shuffles",
        (arithmetic.shuffle("float", "xor"), arithmetic.shuffle("float", "from")),
        """\
const float x = ((const float*)given)[lane];
const int masks[6] = {1, 2, 4, 8, 16, 31};
for (int i = 0; i < 6; ++i) ((float*)result)[32 * i + lane] = shuffle_xor(x, masks[i]);
((float*)result)[192 + lane] = shuffle_from(x, (lane * 7 + 3) % 32);
""",
        given,
        expected,
    )


PROGRAMS = [
    *swizzles(), *fills(), *starts(), *ranks(), *windows(), *stores(), written_by_threads(),
    *copies_by_threads(), *matrices(), shuffles(), *hinted(),
]  # fmt: skip
assert Program.shared >= FILLED + 64
