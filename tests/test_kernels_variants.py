"""Which variants are proposed, and what launches they become. No compiler runs here."""

import pytest

import tawa
from tawa.errors import ArgumentError
from tawa.kernels.prepare import bind, prepare
from tawa.kernels.variants import Problem, Variant, variants


def placeholder(*shape, dtype="bf16", strides=None):
    return tawa.array(shape, dtype, strides=strides)


def turned(rows, columns, dtype="bf16"):
    return placeholder(rows, columns, dtype=dtype, strides=(1, rows))


def shape_of(variant):
    return variant.config.kwargs["BLOCK_M"], variant.config.kwargs["BLOCK_N"]


@pytest.mark.parametrize("k", [256, 1024, 8192])
def test_many_tiles_are_consumers_of_their_own_or_large(k):
    found = variants(Problem(8192, 8192, k, "bf16", "bf16", trans_b=True))
    assert all(each.form == "descriptors" or each.whole for each in found)
    assert sum(each.whole > 0 for each in found) <= 2
    own = [each for each in found if each.config.pins.get("arrangement") == "pingpong"]
    assert (128, 192) in map(shape_of, own)
    assert k < 8192 or any(shape_of(each)[1] > 192 for each in found if each not in own)


def test_tiles_of_one_wave_are_shared():
    found = variants(Problem(1024, 2048, 2048, "bf16", "bf16", trans_b=True))
    assert all("arrangement" not in each.config.pins for each in found[:4])


def test_an_epilogue_is_hidden_where_some_programs_have_two_tiles():
    found = variants(Problem(2048, 2048, 2048, "bf16", "bf16", trans_b=True))
    own = [each for each in found if each.config.pins == {"arrangement": "pingpong"}]
    assert (128, 128) in map(shape_of, own)


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((5000, 5000, 5120), (256, 152)),  # 660 tiles: five waves
        ((1536, 3072, 4096), (192, 192)),  # 128 tiles: one
        ((3072, 768, 1024), (192, 96)),
    ],
)
def test_tiles_come_out_even_in_waves(sizes, tile):
    found = variants(Problem(*sizes, "bf16", "bf16", trans_b=True))
    assert tile in map(shape_of, found[:3])


def test_tiles_of_narrow_outputs_are_rows_of_16_bytes():
    found = variants(Problem(5000, 5000, 5120, "f8e4m3", "f8e4m3", trans_b=True))
    assert all(shape_of(each)[1] % 16 == 0 for each in found)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"bias": True}, {False}),
        ({"scales": "row"}, set()),
        ({}, {False, True}),
        ({"dtype": "f32", "precision": "ieee"}, set()),
        ({"dtype": "f32", "precision": "tf32"}, {False, True}),
        ({"dtype": "f32", "precision": "tf32", "trans_b": False}, set()),
    ],
)
def test_no_pointer_follows_the_axis_of_a_cluster_and_no_thread_reads_what_it_shares(given, left):
    usual = {"dtype": "bf16", "out": "bf16", "trans_b": True, "off_lines": "ab"}
    kept = Problem(3000, 3000, 3000, **usual | given)
    grouped = [each for each in variants(kept, most=60) if "cluster" in each.config.pins]
    assert {each.config.kwargs.get("ACROSS", False) for each in grouped} == left


def test_rows_that_begin_inside_lines_are_shared_in_clusters():
    sizes = 3072, 768, 1000
    first, *_ = variants(Problem(*sizes, "bf16", "bf16", trans_b=True, off_lines="ab"))
    assert first.config.pins["cluster"] > 1
    kept = Problem(5000, 5000, 5000, "bf16", "bf16", trans_b=True, off_lines="ab")
    assert any("ACROSS" in each.config.kwargs for each in variants(kept))


def test_columns_side_by_side_come_in_whole_panels():
    found = variants(Problem(8192, 8192, 2048, "bf16", "bf16"))
    own = [each for each in found if "arrangement" in each.config.pins]
    assert {shape_of(each)[1] for each in own} == {128, 192}


def test_few_tiles_and_much_depth_split_k():
    first, *_ = variants(Problem(16, 512, 14336, "bf16", "bf16"))
    assert first.form == "split_once"
    assert any(each.form == "split" for each in variants(Problem(256, 512, 14336, "bf16", "bf16")))


def tiles(m, n, k, dtype="bf16"):
    found = variants(Problem(m, n, k, dtype, dtype))
    return [tuple(each.config.kwargs[f"BLOCK_{axis}"] for axis in "MNK") for each in found]


@pytest.mark.parametrize(("m", "rows"), [(1, 16), (16, 16), (17, 32), (33, 64), (64, 64)])
def test_few_rows_are_a_tile_of_few_rows(m, rows):
    found = tiles(m, 6144, 4096)
    assert {tile[0] for tile in found} == {rows}
    if rows < 64:  # operands are swapped: the columns are wgmma's M
        assert all(tile[1] % 64 == 0 for tile in found)


def test_64_rows_have_tiles_that_fill_the_gpu_evenly():
    assert (64, 48, 128) in tiles(64, 6144, 4096)
    assert (64, 32, 128) in tiles(64, 4096, 4096)
    first = variants(Problem(64, 6144, 4096, "bf16", "bf16"))[0]
    assert first.config.pins == {"persistent": False}


def test_a_width_is_fitted_where_waves_would_be_ragged():
    assert (128, 224, 64) in tiles(512, 28672, 4096)
    assert {tile[1] % 64 for tile in tiles(8192, 8192, 4096)} <= {0, 32}


def test_programs_of_one_wave_need_no_order():
    found = variants(Problem(1024, 1024, 1024, "bf16", "bf16"))
    assert any(each.config.pins == {"persistent": False} for each in found)
    found = variants(Problem(8192, 8192, 1024, "bf16", "bf16"))
    assert all("persistent" not in each.config.pins for each in found)


def test_a_batch_is_never_split():
    found = variants(Problem(64, 64, 8192, "bf16", "bf16", batch=2))
    assert {each.form for each in found} == {"descriptors"}


def test_an_output_that_tma_cannot_take_goes_through_pointers():
    found = variants(Problem(129, 257, 64, "bf16", "bf16", unaligned="c"))
    assert {(each.form, each.copied) for each in found} == {("pointers", "")}


def test_operands_that_tma_cannot_take_are_copied_where_products_take_longer():
    found = variants(Problem(4096, 4096, 4100, "bf16", "bf16", unaligned="ab"))
    assert (found[0].form, found[0].copied) == ("descriptors", "ab")
    assert all(each.copied or each.form == "pointers" for each in found)
    short = variants(Problem(8, 8, 65, "bf16", "bf16", unaligned="ab"))
    assert any(not each.copied for each in short)
    odd = variants(Problem(4096, 4097, 4100, "bf16", "bf16", unaligned="abc"))
    assert (odd[0].form, odd[0].copied) == ("pointers", "ab")


@pytest.mark.parametrize(("dtype", "depth"), [("bf16", 64), ("f8e4m3", 128), ("f32", 32)])
def test_a_step_of_k_is_one_swizzled_row(dtype, depth):
    for variant in variants(Problem(1024, 1024, 1024, dtype, dtype)):
        assert variant.config.kwargs["BLOCK_K"] == depth


def test_every_problem_has_a_variant():
    for m in (1, 16, 200, 5000):
        for n in (8, 64, 4096):
            for k in (8, 512, 16384):
                assert variants(Problem(m, n, k, "f16", "f16"))


def test_binding_reads_how_operands_lie():
    operands = bind(placeholder(128, 64), turned(64, 256))
    problem = operands.problem
    assert (problem.m, problem.n, problem.k) == (128, 256, 64)
    assert not problem.trans_a
    assert problem.trans_b
    assert problem.aligned
    assert operands.b.shape == (256, 64)
    assert operands.b.strides == (64, 1)
    assert operands.b.matrix_strides == (1, 64)


def test_odd_strides_do_not_fit_tma():
    assert bind(placeholder(128, 65), placeholder(65, 256)).problem.unaligned == "a"
    assert bind(placeholder(128, 64), placeholder(64, 257)).problem.unaligned == "bc"


def test_descriptors_have_the_blocks_of_the_tile():
    operands = bind(placeholder(256, 64), turned(64, 512))
    config = tawa.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64})
    (launch,) = prepare(operands, Variant("descriptors", config))
    a, b, c, k = launch.arguments
    assert (a.block_shape, b.block_shape, c.block_shape) == ([128, 64], [256, 64], [128, 256])
    assert launch.grid == (2, 2)
    assert k == 64
    assert launch.options["TRANS_B"] is True


def test_split_has_a_workspace_and_a_second_launch():
    operands = bind(placeholder(16, 1024), turned(1024, 512))
    config = tawa.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64})
    first, second = prepare(operands, Variant("split", config, splits=3))
    assert first.grid == (4 * 3,)
    assert first.options["CHUNK"] == 384
    assert first.arguments[3].shape == (4 * 3 * 64 * 128,)
    assert second.options["SPLITS"] == 3
    assert second.grid == (4, 8)


def test_whole_waves_are_not_split():
    operands = bind(placeholder(640, 448), turned(448, 640))
    config = tawa.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64})
    first, second = prepare(operands, Variant("split", config, splits=4, whole=24))
    assert first.grid == (24 + 1 * 4,)
    assert second.grid == (1, 16)
    found = variants(Problem(5120, 5120, 5120, "f16", "f16", trans_b=True), most=40)
    assert any(each.whole for each in found)


@pytest.mark.parametrize(
    ("a", "b", "match"),
    [
        (placeholder(8, 16), placeholder(8, 16), "16 columns"),
        (placeholder(8, 16), placeholder(16, 8, dtype="f16"), "no product of bf16 and f16"),
        (placeholder(8, 16, dtype="i32"), placeholder(16, 8, dtype="i32"), "no product of i32"),
        (placeholder(2, 8, 16), placeholder(16, 8), "no product of shapes"),
        (placeholder(8, 16, strides=(32, 2)), placeholder(16, 8), "no axis of the matrix"),
    ],
)
def test_operands_that_do_not_fit(a, b, match):
    with pytest.raises(ArgumentError, match=match):
        bind(a, b)


def test_unknown_activation():
    with pytest.raises(ArgumentError, match="no activation 'tanh'"):
        bind(placeholder(8, 16), placeholder(16, 8), activation="tanh")


def test_scales_go_together_and_fit():
    a, b = placeholder(8, 16, dtype="f8e4m3"), turned(16, 24, "f8e4m3")
    one, rows = placeholder(1, dtype="f32"), placeholder(8, dtype="f32")
    assert bind(a, b, scale_a=one, scale_b=one).problem.scales == "tensor"
    columns = placeholder(24, dtype="f32")
    assert bind(a, b, scale_a=rows, scale_b=columns).problem.scales == "row"
    with pytest.raises(ArgumentError, match="go together"):
        bind(a, b, scale_a=one)
    with pytest.raises(ArgumentError, match="8 and 1 elements"):
        bind(a, b, scale_a=rows, scale_b=one)
