"""The tile kernel of a plate: the sum of its term and its slopes, for a block of chains.

The data flow is that of attention: the chains' vectors are queries, a matrix of data is both keys
and values, and the term's slope stands where softmax does. No linear predictor is stored.

Numbers: tensor cores add in float32 and cut off what does not fit, always toward zero; over a
predictor's many products that is an error of one sign. So a row and a vector are each cut into
parts of 8 bits on a grid of its own (`steps.parts_of`, `split_up`): a product of parts is a sum of
whole numbers of a common unit below 2**24, in which nothing is cut off. The product of first parts
and the sum of all others, 2**-9 of it, meet in a rounding add. Slopes take one part of the row and
two of the vector (16 bits), the value three of each (24 bits) without the parts' products below
2**-24, and its tiles are added with their rounding errors kept. Slopes are one function of the
chain whether its value is asked or not: leapfrogs stay reversible, and only the value must be
exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tawa.ir.build import Desc, KernelBuilder, Value
from tawa.ppl.tiles.plates import Plate, width_of
from tawa.ppl.tiles.terms import Evaluated, evaluate
from tawa.runtime.tile_function import CompiledIr, compile_ir
from tawa.target import H200

ROWS, PARTS = 64, 3
ENDS = 16  # what a program does before and after its tiles of rows, in their time
GRID = 1.5 * 2.0**16
"""Times the power of two at or below the largest number of a row: a float32 whose last bit is the
unit in which that row's numbers are at most 256. Each further part has a unit 2**-9 of it."""


@dataclass(frozen=True, slots=True)
class Split:
    """How programs share the rows of a plate: a block of chains has `parts` of them."""

    rows: int
    lanes: int
    chains: int = 128

    @classmethod
    def of(cls, plate: Plate, lanes: int) -> Split:
        """Return the split of a plate: a block has fewer chains where its sums are wide."""
        width = sum(width_of(columns) for columns in plate.inputs if columns)
        return cls(plate.rows, lanes, 128 if width <= 64 else 64)

    @property
    def blocks(self) -> int:
        """Blocks of chains."""
        return -(-self.lanes // self.chains)

    @property
    def parts(self) -> int:
        """The number of parts with which the busiest multiprocessor has the least to do."""
        tiles = -(-self.rows // ROWS)
        most = min(H200.multiprocessors, tiles)

        def work(parts: int) -> int:
            programs = -(-self.blocks * parts // H200.multiprocessors)
            return programs * (-(-tiles // parts) + ENDS)

        return min(range(1, most + 1), key=work)

    @property
    def tiles(self) -> int:
        """Tiles of rows in a part."""
        return -(-self.rows // (ROWS * self.parts))

    @property
    def padded(self) -> int:
        """The rows, and those after the end that fill the last tiles."""
        return self.tiles * self.parts * ROWS


def words_of(plate: Plate) -> int:
    """Return how many numbers of a lane a plate takes: its vectors' and scalars'."""
    return sum(max(1, width) for width in plate.inputs)


def plate_kernel(plate: Plate, split: Split, *, valued: bool) -> CompiledIr:
    """Compile the kernel of a plate. Grid: (blocks of chains, parts of the rows).

    Arguments: descriptors bf16 [padded, width] of the parts of each matrix (`matrix0_0`, ..), whose
    columns are divided by `scale0`, .. f32 [width]; pointers [padded] to the columns (`column0`,
    ..); `given` f32 [words, lanes], the vectors and
    scalars in order; `slopes` f32 [parts, words, lanes]; if `valued`, `value` f32
    [parts, 2, lanes], a sum and its rounding error; `lanes`, a multiple of 16; `tiles`, those of
    rows in a part.
    """
    # Strict: a sum of products in one accumulator would cut off, and these are added by rounding.
    return compile_ir(_Maker(plate, split, valued).kernel(), strict=True)


class _Maker:
    def __init__(self, plate: Plate, split: Split, valued: bool) -> None:
        self.plate, self.split, self.valued = plate, split, valued
        self.products = [n for n, width in enumerate(plate.inputs) if width]
        self.k = KernelBuilder(f"{plate.term.name}_{'value' if valued else 'slopes'}")
        self.vectors: dict[int, list[Value]] = {}
        self.scalars: dict[int, Value] = {}
        self.tiles: dict[tuple[int, int], Value] = {}
        self.data: list[Value] = []

    def kernel(self) -> Any:
        """Build the kernel."""
        k, plate = self.k, self.plate
        used = range(PARTS if self.valued else 1)
        matrices = {
            (n, part): k.descriptor(
                f"matrix{place}_{part}", "bf16", (ROWS, width_of(plate.inputs[n]))
            )
            for place, n in enumerate(self.products)
            for part in used
        }
        scales = {
            n: k.pointer(f"scale{place}", "f32") + k.arange(0, width_of(plate.inputs[n]))
            for place, n in enumerate(self.products)
        }
        columns = {c: k.pointer(c.name, _stored(c.type.kind)) for c in plate.term.params}
        given, slopes = k.pointer("given", "f32"), k.pointer("slopes", "f32")
        value = k.pointer("value", "f32") if self.valued else None
        lanes = k.scalar("lanes", "i32", divisible=16)
        tiles = k.scalar("tiles", "i32")
        part = k.program_id(1)
        chains = self.split.chains
        chain = k.program_id(0) * chains + k.arange(0, chains)
        places = self.places(chain, lanes)
        for n, (place, mask) in enumerate(places):
            held = k.load(given + place, mask, 0.0, name=f"given{n}")
            if n in self.products:
                scaled = held * k.load(scales[n], name=f"scale{n}")[None, :]
                self.vectors[n] = self.split_up(scaled, PARTS if self.valued else 2)
            else:
                self.scalars[n] = held[:, None]
        shapes = [(chains, width_of(w)) if w else (chains,) for w in plate.inputs]
        sums = [k.zeros(shape, "f32") for shape in [*shapes, *([(chains,)] * 2 * self.valued)]]
        with k.range(0, tiles, 1, carry=sums, name="rows") as loop:
            at = (part * tiles + loop.index) * ROWS
            loop.yield_(*self.iteration(at, matrices, columns, loop.carried))
        base = part * words_of(plate) * lanes
        for n, ((place, mask), done) in enumerate(zip(places, loop.results, strict=False)):
            slope = done * k.load(scales[n])[None, :] if n in self.products else done
            k.store(slopes + base + place, slope, mask, name=f"slopes{n}")
        if value is not None:
            for n, done in enumerate(loop.results[-2:]):
                k.store(value + (2 * part + n) * lanes + chain, done, chain < lanes)
        return k.finish()

    def places(self, chain: Value, lanes: Value) -> list[tuple[Value, Value]]:
        """Return where each vector and scalar of the block of chains lies, and which is there."""
        made: list[tuple[Value, Value]] = []
        first = 0
        for width in self.plate.inputs:
            if width:
                word = self.k.arange(0, width_of(width))[None, :]
                there = (word < width) & (chain < lanes)[:, None]
                made.append(((first + word) * lanes + chain[:, None], there))
            else:
                made.append((first * lanes + chain, chain < lanes))
            first += max(1, width)
        return made

    def split_up(self, held: Value, parts: int) -> list[Value]:
        """Return parts of a tile's rows on their grids, the large one first, as bfloat16."""
        largest = self.k.call("abs", held).max(1).to("i32", bitcast=True)
        unit = (largest & 0x7F800000).to("f32", bitcast=True)[:, None] * GRID
        made: list[Value] = []
        for _ in range(parts):
            part = (held + unit) - unit
            made.append(part.to("bf16"))
            held, unit = held - part, unit * 2.0**-9
        return made

    def iteration(
        self,
        at: Value,
        matrices: dict[tuple[int, int], Desc],
        columns: dict[Any, Value],
        sums: Sequence[Value],
    ) -> list[Value]:
        """Add a tile of rows to the sums."""
        k, split = self.k, self.split
        row = at + k.arange(0, ROWS)
        self.there = (row < split.rows)[None, :] if split.padded > split.rows else None
        self.tiles = {
            (n, part): desc.load([at, 0], name=f"matrix{n}_{part}")
            for (n, part), desc in matrices.items()
        }
        self.data = []
        for column, pointer in columns.items():
            held = k.load(pointer + row, name=column.name)
            self.data.append((held != 0 if column.type.kind == "bool" else held)[None, :])
        large, small = self.products_of((0, 0)), self.products_of((1, 0))
        term = self.evaluate({n: large[n] + small[n] for n in self.products})
        made: list[Value] = []
        for n, total in enumerate(sums[: len(self.plate.inputs)]):
            slope = self.whole(term.slope(n))
            if n in self.products:
                rounded: Value = slope.to("bf16")
                made.append(k.dot(rounded, self.tiles[n, 0], total, name=f"slope{n}"))
            else:
                made.append(total + slope.sum(1))
        if self.valued:
            for pair in ((0, 1), (1, 1), (0, 2), (2, 0)):
                small = self.products_of(pair, small)
            exact = {n: large[n] + small[n] for n in self.products}
            value = self.whole(self.evaluate(exact).value).sum(1)
            made += _two_sum(sums[-2], sums[-1], value)
        return made

    def products_of(
        self, pair: tuple[int, int], others: dict[int, Value] | None = None
    ) -> dict[int, Value]:
        """Return products of a part of the vectors and one of the matrices, added to others."""
        made: dict[int, Value] = {}
        for n in self.products:
            vector, matrix = self.vectors[n][pair[0]], self.tiles[n, pair[1]].T
            name = f"linear{n}_{pair[0]}_{pair[1]}"
            made[n] = self.k.dot(vector, matrix, (others or {}).get(n), name=name)
        return made

    def evaluate(self, linear: dict[int, Value]) -> Evaluated:
        inputs = [(linear | self.scalars)[n] for n in range(len(self.plate.inputs))]
        return evaluate(self.k, self.plate.term, inputs, self.data)

    def whole(self, tile: Any) -> Value:
        """Return a tile of all chains and rows, zero in rows after the end."""
        made = self.k.zeros((self.split.chains, ROWS), "f32") + tile
        return made if self.there is None else self.k.where(self.there, made, 0.0)


def _stored(kind: str) -> str:
    return "f32" if kind == "f32" else "i32"


def _two_sum(total: Value, error: Value, amount: Value) -> list[Value]:
    """Return a sum and its rounding errors, an amount further (Knuth)."""
    made = total + amount
    part = made - total
    return [made, error + ((total - (made - part)) + (amount - part))]


def sum_kernel(words: int, parts: int) -> CompiledIr:
    """Compile the kernel that adds parts of sums up in order. Grid: (blocks of 1,024 numbers,).

    Arguments: `parts` f32 [parts, words, lanes], `whole` f32 [words, lanes], `lanes`.
    """
    k = KernelBuilder("plate_sum")
    given, whole = k.pointer("parts", "f32"), k.pointer("whole", "f32")
    size = k.scalar("lanes", "i32", divisible=16) * words
    place = k.program_id(0) * 1024 + k.arange(0, 1024)
    with k.range(0, parts, 1, carry=[k.zeros((1024,), "f32")], name="parts") as loop:
        part = k.load(given + loop.index * size + place, place < size, 0.0)
        loop.yield_(loop.carried[0] + part)
    k.store(whole + place, loop.results[0], place < size)
    return compile_ir(k.finish())
