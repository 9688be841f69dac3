"""Shared accesses, descriptors, conversions and formulas against their definitions."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tawa.errors import ShapeUnsupported
from tawa.layouts import fragments
from tawa.layouts.access import STEP_BYTES, Access, linear, matrix_access, operand, vector_access
from tawa.layouts.convert import convert, flattened, owns, projected, register_map
from tawa.layouts.indexing import fit
from tawa.layouts.register import LANES, RegisterLayout
from tawa.layouts.shared import SharedLayout


def swizzled(access: Access, offset: int) -> int:
    return offset ^ (offset >> 3 & access.chunk_mask)


def check_shortcut(access: Access) -> None:
    """Where the swizzle commutes, an exclusive-or with a constant gives the same address."""
    if not access.commutes:
        return
    for warp, by_warp in enumerate(access.warps):
        for lane, by_lane in enumerate(access.lanes):
            thread = swizzled(access, by_lane + by_warp)
            for index, (chunk, rest) in enumerate(zip(access.chunks(), access.rests())):
                assert (thread ^ chunk) + rest == access.address(lane, warp, index)


def layouts() -> st.SearchStrategy[tuple[RegisterLayout, int]]:
    def build(kind: str, m: int, n: int, bits: int) -> tuple[RegisterLayout, int]:
        match kind:
            case "accumulator":
                return fragments.wgmma_accumulator(m, n, 4), bits
            case "across":  # warps side by side: 96 columns are 24 a warp
                return fragments.mma_accumulator(m // 4, n, 4), bits
            case "three":  # runs of three: lanes and registers carry into the row
                return fragments.blocked((m // 4, 96), 4, 3), bits
            case "operand":
                return fragments.mma_operand_a(m, n, fragments.mma_accumulator(m, n, 4), bits), bits
            case _:
                return fragments.blocked((m, n), 4, 16 // (bits // 8)), bits

    return st.builds(
        build,
        st.sampled_from(["accumulator", "across", "three", "operand", "blocked"]),
        st.sampled_from([64, 128]),
        st.sampled_from([64, 96, 128, 192]),
        st.sampled_from([8, 16, 32]),
    )


orders = st.sampled_from([(0, 1), (1, 0)])
swizzles = st.sampled_from([0, 32, 64, 128])


def placed(layout: RegisterLayout, order: tuple[int, int], bits: int, swizzle: int) -> SharedLayout:
    width = layout.shape[order[-1]] * bits // 8
    assume(not swizzle or width % swizzle == 0)
    return SharedLayout(layout.shape, order, bits, swizzle)


@given(layouts(), orders, swizzles)
def test_vector_access_is_the_placement(
    made: tuple[RegisterLayout, int], order: tuple[int, int], swizzle: int
) -> None:
    layout, bits = made
    within = placed(layout, order, bits, swizzle)
    access = vector_access(layout, within)
    assert access is not None
    assert len(access.accesses) * access.elements == layout.register_count
    size = access.elements * bits // 8
    for warp in range(4):
        for lane in (0, 1, 5, 17, 31):
            for index in range(len(access.accesses)):
                address = access.address(lane, warp, index)
                assert address % size == 0
                for more in range(access.elements):
                    where = layout.coordinate(index * access.elements + more, lane, warp)
                    assert address + more * bits // 8 == within.offset(where)
    check_shortcut(access)


@given(layouts(), orders, st.sampled_from([0, 1]), st.sampled_from([1, 2, 4, 8]))
def test_multiply_adds_read_what_their_sums_span(
    made: tuple[RegisterLayout, int], order: tuple[int, int], dim: int, steps: int
) -> None:
    """Each step of K brings the rows (columns) of all registers, neighbours in memory first."""
    layout, bits = made
    k = 96
    part = fragments.fma_operand(layout, dim, k, steps, along_k=order[-1] != dim)
    runs = part.register_count * steps // k
    for lane, warp in [(0, 0), (5, 1), (31, layout.warp_count - 1)]:
        wanted = {
            layout.coordinate(register, lane, warp)[dim]
            for register in range(layout.register_count)
        }
        for start in range(0, k, steps):
            first = start // steps * runs
            read = [part.coordinate(first + index, lane, warp) for index in range(runs)]
            assert len(set(read)) == runs
            assert {(place[dim], place[1 - dim]) for place in read} == {
                (along, step) for along in wanted for step in range(start, start + steps)
            }
    access = vector_access(part, SharedLayout(part.shape, order, bits, 0))
    assert access is not None
    assert runs % access.elements == 0
    if order[-1] != dim:
        assert access.elements >= min(steps, 128 // bits, 32 // bits * steps)


@pytest.mark.parametrize(
    ("m", "n", "warps", "rows", "columns"),
    [(16, 16, 4, 1, 2), (64, 64, 4, 8, 4), (128, 128, 4, 16, 8), (128, 128, 8, 8, 8)],
)
def test_sums_of_multiply_adds_are_blocks(
    m: int, n: int, warps: int, rows: int, columns: int
) -> None:
    made = fragments.fma_accumulator(m, n, warps, 4)
    assert made is not None
    held = made.register_table
    assert len({row for row, _ in held}) == rows
    assert len({column for _, column in held}) == columns
    places = [
        made.coordinate(register, lane, warp)
        for register in range(made.register_count)
        for lane in range(LANES)
        for warp in range(warps)
    ]
    assert sorted(places) == [(row, column) for row in range(m) for column in range(n)]
    assert fragments.fma_accumulator(3, 5, 4, 4) is None


@given(layouts(), orders, swizzles)
def test_matrix_access_is_the_manuals(
    made: tuple[RegisterLayout, int], order: tuple[int, int], swizzle: int
) -> None:
    layout, bits = made
    within = placed(layout, order, bits, swizzle)
    access = matrix_access(layout, within)
    assume(access is not None)
    assert access is not None
    packed = 32 // bits
    per_row = 16 * 8 // bits
    for index in range(len(access.accesses)):
        for matrix in range(access.matrices):
            word = index * access.matrices + matrix
            for row in range(8):
                start = access.address(matrix * 8 + row, 1, index)
                assert start % 16 == 0
                for column in range(per_row):
                    if access.transposed:
                        lane, inside = column * 4 + row // 2, row % 2
                    else:
                        lane, inside = row * 4 + column // packed, column % packed
                    where = layout.coordinate(word * packed + inside, lane, 1)
                    assert start + column * bits // 8 == within.offset(where)
    check_shortcut(access)


def test_the_epilogue_of_a_product_uses_four_matrices() -> None:
    layout = fragments.wgmma_accumulator(128, 256, 8)
    access = matrix_access(layout, SharedLayout((128, 256), (0, 1), 16, 128))
    assert access is not None
    assert (access.matrices, access.transposed, access.commutes) == (4, False, True)
    turned = matrix_access(layout, SharedLayout((128, 256), (1, 0), 16, 128))
    assert turned is not None
    assert turned.transposed


@given(
    bits=st.sampled_from([8, 16, 32]),
    swizzle=st.sampled_from([32, 64, 128]),
    order=orders,
    k_dim=st.sampled_from([0, 1]),
    panels=st.sampled_from([1, 2, 3]),
)
def test_descriptor_walks_the_placement(
    bits: int, swizzle: int, order: tuple[int, int], k_dim: int, panels: int
) -> None:
    """The tensor core's address arithmetic (PTX ISA, "Strides") finds every element of a step."""
    width, rows = panels * swizzle * 8 // bits, 64
    shape = (rows, width) if order == (0, 1) else (width, rows)
    within = SharedLayout(shape, order, bits, swizzle)
    if order[-1] != k_dim and bits != 16:
        with pytest.raises(ShapeUnsupported):
            operand(within, k_dim)
        return
    side = operand(within, k_dim)
    step = STEP_BYTES * 8 // bits
    mn_extent, k_extent = shape[1 - k_dim], shape[k_dim]
    size = bits // 8
    for k0 in range(0, k_extent - step + 1, step):
        start = side.offset(0, k0)
        for mn in range(0, mn_extent, 3):
            for k in range(step):
                if side.transposed:
                    panel, inside = divmod(mn, swizzle // size)
                    raw = panel * side.leading + k // 8 * side.stride + k % 8 * swizzle
                    raw += inside * size
                else:
                    raw = mn // 8 * side.stride + mn % 8 * swizzle + k * size
                raw += start
                found = raw ^ (raw >> 3 & swizzle - 16)
                assert found == side.offset(mn, k0 + k)


def test_linear_is_the_placement_without_swizzle() -> None:
    within = SharedLayout((4, 16, 64), (0, 1, 2), 16, 128)
    for where in ((0, 0, 0), (1, 3, 17), (3, 15, 63)):
        offset = linear(within, where)
        assert offset ^ (offset >> 3 & 112) == within.offset(where)


# --- conversions ----------------------------------------------------------------------------------

pairs = st.tuples(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([16, 32, 64])
)


@given(pairs, st.sampled_from([1, 2, 4]))
def test_conversion_finds_every_element(sizes: tuple[int, int, int], warps: int) -> None:
    one, other, rows = sizes
    source = fragments.blocked((rows, 32), warps, one)
    target = fragments.blocked((rows, 32), warps, other)
    found = convert(source, target)
    if found.kind == "shared":
        assert warps > 1
        return
    for register in range(target.register_count):
        for warp in range(warps):
            for lane in range(LANES):
                where = target.coordinate(register, lane, warp)
                if found.kind == "shuffle":
                    held, of = found.sources[register][warp * LANES + lane]
                else:
                    held, of = found.registers[register], lane
                assert source.coordinate(held, of, warp) == where


def test_packing_an_accumulator_moves_nothing() -> None:
    accumulator = fragments.wgmma_accumulator(64, 64, 4)
    assert convert(accumulator, fragments.wgmma_operand(64, 64, 4, 16)).kind == "identity"
    assert convert(accumulator, fragments.wgmma_operand(64, 64, 4, 8)).kind == "shuffle"


def test_a_row_vector_is_broadcast_within_threads() -> None:
    accumulator = fragments.wgmma_accumulator(64, 32, 4)
    column = fragments.with_dimension(fragments.without_dimension(accumulator, 1), 1)
    found = register_map(column, projected(accumulator, (64, 1)))
    assert found == tuple(r // 2 % 2 for r in range(16))


def test_flattened_counts_in_row_major_order() -> None:
    layout = fragments.blocked((4, 8, 16), 2, 4)
    flat = flattened(layout)
    for register, lane, warp in ((0, 0, 0), (3, 7, 1), (5, 31, 1)):
        a, b, c = layout.coordinate(register, lane, warp)
        assert flat.coordinate(register, lane, warp) == ((a * 8 + b) * 16 + c,)


def test_replicas_have_one_owner() -> None:
    lanes, warps = owns(fragments.blocked((16,), 4, 1))
    assert lanes == ((16, 2),)
    assert warps == ((1, 4),)


@given(
    st.lists(st.tuples(st.sampled_from([2, 3, 4, 8]), st.integers(-3, 64)), min_size=0, max_size=4),
    st.integers(0, 5),
)
def test_digits_are_found_again(axes: list[tuple[int, int]], start: int) -> None:
    table = [start]
    for extent, step in axes:
        table = [value + digit * step for digit in range(extent) for value in table]
    formula = fit(table)
    assert formula is not None
    text = formula.render("i").replace("/", "//")
    assert [eval(text, {"i": i}) for i in range(len(table))] == table


def test_an_irregular_table_has_no_formula() -> None:
    assert fit([0, 5, 1, 7]) is None


@pytest.mark.parametrize("table", [(0, 1, 5), (0, 16, 0, 16, 48, 0), (0, 1, 2, 7, 8)])
def test_tables_that_no_digits_divide_have_no_formula(table: tuple[int, ...]) -> None:
    assert fit(table) is None
