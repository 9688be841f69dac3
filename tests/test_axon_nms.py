"""Non-maximum suppression: by brute force, by onnx's own reference, and as torch calls it."""

from __future__ import annotations

import numpy as np
import pytest

from tawa import axon
from tawa.axon.fuse import compile
from tawa.errors import AxonError, AxonGuard

RNG = np.random.default_rng(0)
NMS = axon.load("fun f t b s = nms {iou = t} b s").f
GROUPS = axon.load("fun f (t, m) (a, b, s) = batched_nms {iou = t, most = m} a b s").f


def drawn(*shape):
    """Boxes on a coarse grid, many of them equal, touching or of no area; scores with ties."""
    low = RNG.integers(0, 6, (*shape, 2))
    boxes = np.concatenate([low, low + RNG.integers(0, 4, (*shape, 2))], -1)
    return boxes.astype(np.float32), (RNG.integers(0, 8, shape) / 8).astype(np.float32)


def kept(boxes, scores, iou, among=None):
    """Greedy by definition, one pair of boxes at a time."""
    chosen: list[int] = []
    for i in sorted(range(len(boxes)) if among is None else among, key=lambda i: (-scores[i], i)):
        if all(overlap(boxes[i], boxes[j]) <= np.float32(iou) for j in chosen):
            chosen.append(i)
    return chosen


def overlap(a, b):
    sides = [min(a[k + 2], b[k + 2]) - max(a[k], b[k]) for k in (0, 1)]
    if min(sides) <= 0:
        return np.float32(0)
    both, areas = sides[0] * sides[1], [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return both / (areas[0] + areas[1] - both)


@pytest.mark.parametrize("iou", [0.0, 0.25, 1 / 3, 0.5, 1.0])
def test_boxes_are_kept_as_by_brute_force(iou):
    torch = pytest.importorskip("torch")
    fewer = 0
    for n in (0, 1, 2, *range(3, 40, 4)):
        boxes, scores = drawn(n)
        found, wanted = NMS(iou, boxes, scores), kept(boxes, scores, iou)
        np.testing.assert_array_equal(found, np.array(wanted, np.int64), strict=True)
        tensors = NMS(iou, torch.tensor(boxes), torch.tensor(scores))
        assert torch.equal(tensors, torch.tensor(wanted, dtype=torch.int64))
        fewer += len(wanted) < n
    assert fewer >= 3 or iou == 1


def test_groups_are_apart_and_stop_at_a_number():
    boxes, scores = drawn(2, 3, 20)
    alive = RNG.random(scores.shape) < 0.7
    for most in (0, 1, 4, 50):
        wanted = [
            (*at, i)
            for at in np.ndindex(2, 3)
            for i in kept(boxes[at], scores[at], 0.3, np.flatnonzero(alive[at]))[:most]
        ]
        found = GROUPS((0.3, most), (alive, boxes, scores))
        np.testing.assert_array_equal(found, np.array(wanted, np.int64).reshape(-1, 3), strict=True)
    assert GROUPS((0.3, 4), (alive[:0], boxes[:0], scores[:0])).shape == (0, 3)
    none = GROUPS((0.3, 4), (alive[..., :0], boxes[..., :0, :], scores[..., :0]))
    assert none.shape == (0, 3)


def test_the_type_has_a_size_of_its_own():
    fun = axon.load("fun f (b, s) = nms b s\nfun g (b, s) = gather {axis = 0} b (nms b s)")
    assert str(fun.f.scheme) == "(f32[n, 4] * f32[n]) -> i64[k]"
    assert str(fun.g.scheme) == "(f32[d, 4] * f32[d]) -> f32[k, 4]"
    boxes, scores = drawn(9)
    np.testing.assert_array_equal(fun.g((boxes, scores)), boxes[kept(boxes, scores, 0.5)])
    for pair in ((boxes, scores[:8]), (boxes[:, :3], scores), (boxes, scores[:, None])):
        with pytest.raises(AxonGuard, match=r"axis|rank"):
            fun.f(pair)
    with pytest.raises(AxonError, match="depends on data"):
        compile(fun.f)((boxes, scores))


def test_nan_is_the_greatest_score():
    """As torch sorts; a box that is NaN shares nothing."""
    boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 2], [np.nan, 0, 1, 1]], np.float32)
    assert NMS(0.5, boxes, np.array([1, np.nan, 0.5], np.float32)).tolist() == [1, 2]


@pytest.mark.parametrize("centers", [0, 1])
@pytest.mark.parametrize("given", ["all", "no threshold", "no overlap", "inputs", "scalars"])
def test_models_of_onnx(centers, given):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    names = {"all": "miu", "no threshold": "mi", "no overlap": "m u"}.get(given, "miu")
    node = helper.make_node(
        "NonMaxSuppression", ["b", "s", *names.replace(" ", "")], ["y"], center_point_box=centers
    )
    if given == "no overlap":
        node.input[3:] = ["", "u"]
    kinds = {"m": TensorProto.INT64, "i": TensorProto.FLOAT, "u": TensorProto.FLOAT}
    info, sizes = helper.make_tensor_value_info, {"b": ["n", "k", 4], "s": ["n", "c", "k"]}
    for most, shape in ((3, (2, 3, 25)), (100, (1, 2, 30)), (0, (2, 2, 5)),
                        (2, (2, 0, 4)), (2, (0, 1, 4)), (2, (1, 2, 0))):  # fmt: skip
        (boxes, _), (_, scores) = drawn(shape[0], shape[2]), drawn(*shape)
        turned = RNG.random(boxes.shape[:2]) < 0.5  # any two corners
        boxes[turned] = boxes[turned][:, [2, 1, 0, 3]]
        one = () if given == "scalars" else (1,)
        numbers = {
            "m": np.full(one, most, np.int64),
            "i": np.full(one, 0.3, np.float32),
            "u": np.full(one, 0.25, np.float32),  # which some scores are
        }
        numbers = {name: numbers[name] for name in names.replace(" ", "")}
        inputs = [info(name, TensorProto.FLOAT, size) for name, size in sizes.items()]
        fed, weights = {"b": boxes, "s": scores}, numbers
        if given == "inputs":
            inputs += [info(name, kinds[name], [1]) for name in numbers]
            fed, weights = fed | numbers, {}
        graph = helper.make_graph(
            [node], "net", inputs, [info("y", TensorProto.INT64, None)],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        assert isinstance(made, onnx.ModelProto)
        # The reference takes arrays of one item alone, which scalars mean too.
        wanted = ReferenceEvaluator(node, opsets={"": 18}).run(
            None, fed | {name: array.reshape(1) for name, array in numbers.items()} | (
                {"": np.zeros(1, np.float32)} if given == "no overlap" else {})
        )[0]  # fmt: skip
        found = axon.load_onnx(made)(*fed.values())
        np.testing.assert_array_equal(found, wanted, strict=True)
        if most > 3:
            assert 0 < len(wanted) < scores.size


def test_models_of_onnx_without_a_number_or_one_below_0_keep_nothing():
    """The reference evaluator takes neither; boxes of other than four numbers are refused."""
    helper = pytest.importorskip("onnx").helper
    info = helper.make_tensor_value_info
    for sizes, most in ((4, []), (4, ["m"]), (5, []), (3, [])):
        fits = sizes == 4
        inputs = [info("b", 1, [1, "k", sizes]), info("s", 1, [1, 1, "k"])]
        node = helper.make_node("NonMaxSuppression", ["b", "s", *most], ["y"])
        weights = [helper.make_tensor(name, 7, [1], [-1]) for name in most]
        graph = helper.make_graph([node], "net", inputs, [info("y", 7, None)], weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        if fits:
            boxes, scores = drawn(1, 6)
            assert axon.load_onnx(made)(boxes, scores[None]).shape == (0, 3)
        else:
            with pytest.raises(AxonError):
                axon.load_onnx(made)


@pytest.fixture
def operator():
    """Torchvision's operator as it declares it, where torchvision is not installed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.library")
    if hasattr(torch.ops.torchvision, "nms"):
        yield torch.ops.torchvision.nms
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    def sized(dets, scores, iou_threshold):
        return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.long)

    def run(dets, scores, iou_threshold):
        return torch.tensor(kept(dets.numpy(), scores.numpy(), iou_threshold), dtype=torch.long)

    torch.library.register_fake("torchvision::nms", sized, lib=library)
    library.impl("nms", run, "CPU")
    yield torch.ops.torchvision.nms
    library._destroy()


@pytest.mark.parametrize("load", ["fx", "export"])
def test_modules_of_torch(operator, load):
    torch = pytest.importorskip("torch")

    class Detector(torch.nn.Module):
        def forward(self, boxes, scores):
            keep = operator(boxes, scores, 0.4)
            return torch.index_select(boxes, 0, keep) * 2, keep, operator(boxes, scores, 0)

    boxes, scores = map(torch.tensor, drawn(30))
    dims = {"boxes": "n 4", "scores": "n"}
    if load == "fx":
        graph = axon.load_fx(Detector(), dims=dims)
    else:
        graph = axon.load_export(torch.export.export(Detector(), (boxes, scores)), dims=dims)
    more = map(torch.tensor, drawn(50))
    for pair in ((boxes, scores), tuple(more)):
        for one, other in zip(graph(*pair), Detector()(*pair), strict=True):
            torch.testing.assert_close(one, other)


def test_a_threshold_of_a_traced_module_may_be_an_input(operator):
    torch = pytest.importorskip("torch")

    class Chosen(torch.nn.Module):
        def forward(self, boxes, scores, iou):
            return operator(boxes, scores, iou)

    graph, (boxes, scores) = axon.load_fx(Chosen()), map(torch.tensor, drawn(30))
    for iou in (0.1, 0.6):
        found = graph(boxes, scores, torch.tensor(iou))
        assert torch.equal(found, Chosen()(boxes, scores, iou))
