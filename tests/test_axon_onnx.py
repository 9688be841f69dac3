"""ONNX models with symbolic sizes: guards, shapes, and numbers as onnx's own reference has them."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tawa import axon  # noqa: E402
from tawa.errors import AxonError, AxonGuard  # noqa: E402

RNG = np.random.default_rng(0)


def model(nodes, inputs, outputs, weights, opset=18):
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def step():
    """A step of U-Net: a convolution of stride 2, a transposed one, and the input beside it."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("ConvTranspose", ["r", "v"], ["u"], strides=[2, 2]),
        node("Concat", ["x", "u"], ["y"], axis=1),
    ]
    weights = {"w": normal(4, 3, 3, 3), "b": normal(4), "v": normal(4, 2, 2, 2)}
    return model(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights)


def test_a_step_of_u_net():
    made = step()
    graph = axon.load_onnx(made)
    assert [g.text for g in graph.guards] == ["h % 2 == 0", "h >= 2", "w % 2 == 0", "w >= 2"]
    assert graph.shape("c") == "[n, 4, (h + 1)//2, (w + 1)//2]"
    x = normal(2, 3, 6, 4)
    wanted = ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_allclose(graph(x), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(AxonGuard):
        graph(normal(2, 3, 5, 4))
    with pytest.raises(AxonError, match=r"names z, which is no input\n.*the inputs are x$"):
        axon.load_onnx(made, dims={"z": "n 3 h w"})


def test_sizes_are_followed_to_a_reshape():
    node = helper.make_node
    weights = {
        "zero": np.array(0), "one": np.array(1), "axis": np.array([0]),
        "heads": np.array([2]), "rest": np.array([-1]), "w": normal(6, 8),
    }  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"]),
        node("Gather", ["s", "one"], ["t"]),
        node("Unsqueeze", ["b", "axis"], ["b1"]),
        node("Unsqueeze", ["t", "axis"], ["t1"]),
        node("Concat", ["b1", "t1", "heads", "rest"], ["to"], axis=0),
        node("Reshape", ["m", "to"], ["r"]),
        node("Transpose", ["r"], ["y"], perm=[0, 2, 1, 3]),
        node("ReduceMean", ["y", "rest"], ["z"], keepdims=0),
    ]
    made = model(nodes, {"x": ["b", "t", 6]}, ["y", "z"], weights)
    graph = axon.load_onnx(made)
    assert graph.shape("y") == "[b, 2, t, 4]"
    x = normal(3, 5, 6)
    for found, wanted in zip(graph(x), ReferenceEvaluator(made).run(None, {"x": x})):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_block_of_a_classifier():
    node = helper.make_node
    weights = {
        "w": normal(4, 3, 3, 3), "scale": normal(4), "shift": normal(4), "mean": normal(4),
        "var": np.abs(normal(4)), "last": normal(5, 4), "bias": normal(5),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[0, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        node("MaxPool", ["n"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "last", "bias"], ["e"], transB=1),
        node("Softmax", ["e"], ["y"]),
    ]
    made = model(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights)
    graph = axon.load_onnx(made)
    assert {g.text for g in graph.guards} == {"h >= 2", "w >= 1"}
    x = normal(2, 3, 7, 8)
    wanted = ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_allclose(graph(x), wanted, rtol=1e-3, atol=1e-5)


def test_what_cannot_fit_is_an_error_with_its_node():
    made = step()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(normal(4, 2, 3, 3), "w"))
    with pytest.raises(AxonError, match=r"c = Conv\(x, w, b\)"):
        axon.load_onnx(made)


def test_what_is_not_supported_is_named():
    made = model([helper.make_node("Unique", ["x"], ["y"])], {"x": ["n"]}, ["y"], {})
    with pytest.raises(AxonError, match="Unique is not supported"):
        axon.load_onnx(made)
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y"], {}, opset=12)
    with pytest.raises(AxonError, match="operator set 12"):
        axon.load_onnx(made)


def test_the_same_network_from_torch_and_from_onnx():
    """One table says what operators mean: guards, shapes and numbers are the same."""
    torch = pytest.importorskip("torch")
    made = step()
    weights = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in made.graph.initializer}

    class Step(torch.nn.Module):
        def forward(self, x):
            c = torch.conv2d(x, weights["w"], weights["b"], 2, 1)
            u = torch.conv_transpose2d(torch.relu(c), weights["v"], None, 2)
            return torch.cat([x, u], 1)

    traced = axon.load_fx(Step(), dims={"x": "n 3 h w"})
    graph = axon.load_onnx(made)
    assert [str(guard) for guard in traced.guards] == [str(guard) for guard in graph.guards]
    assert [*traced.shapes.values()] == [*graph.shapes.values()]
    x = normal(2, 3, 6, 4)
    np.testing.assert_array_equal(traced(x), graph(x))


def test_operators_that_take_arrays_apart():
    node = helper.make_node
    weights = {
        "from": np.array([1, -3]), "to": np.array([2**40, 5]), "axes": np.array([1, 2]),
        "parts": np.array([1, 2, 1]), "pads": np.array([0, 1, 0, 2]), "at": np.array([0, 2]),
        "scale": normal(4, 6), "shift": normal(4, 6), "low": np.array(-0.5, np.float32),
        "two": np.array([1, 2]),
    }  # fmt: skip
    nodes = [
        node("LayerNormalization", ["x", "scale", "shift"], ["l"], axis=-2, epsilon=1e-3),
        node("Slice", ["l", "from", "to", "axes"], ["s"]),
        node("Split", ["l", "parts"], ["p", "q", "r"], axis=1),
        node("Split", ["l"], ["e", "f"], axis=2, num_outputs=2),
        node("Pad", ["q", "pads", "", "at"], ["d"]),
        node("Gelu", ["d"], ["g"], approximate="tanh"),
        node("LeakyRelu", ["e"], ["k"], alpha=0.3),
        node("Concat", ["r", "p"], ["c"], axis=1),
        node("ReduceMax", ["f", "two"], ["m"], keepdims=1),
        node("ReduceMin", ["s", "two"], ["n"], keepdims=0),
        node("Max", ["k", "low", "f"], ["t"]),
    ]
    outputs = ["s", "g", "t", "c", "m", "n"]
    made = model(nodes, {"x": ["b", 4, 6]}, outputs, weights, opset=20)
    x = normal(3, 4, 6)
    wanted = ReferenceEvaluator(made).run(None, {"x": x})
    for found, each in zip(axon.load_onnx(made)(x), wanted, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "more", "options"),
    [
        ("Clip", {"low": np.float32(0)}, {}),
        ("Clip", {"": None, "high": np.float32(0)}, {}),
        ("Clip", {}, {}),
        ("ReduceMean", {}, {"keepdims": 0}),
        ("ReduceSum", {"axes": np.array([], np.int64)}, {"keepdims": 0}),
        ("ReduceSum", {}, {"noop_with_empty_axes": 1}),
        ("Resize", {"": None, "s": np.array([1, 1, 3, 3], np.float32)}, {"mode": "nearest"}),
        ("Resize", {"": None, "s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "linear"}),
        ("Pad", {"p": np.array([0, 0, 1, 0, 0, 0, 2, 1])}, {"mode": "reflect"}),
        ("Pad", {"p": np.array([0, 0, 1, 0, 0, 0, 2, 1])}, {"mode": "edge"}),
    ],
)
def test_operands_that_are_left_out(kind, more, options):
    node = helper.make_node(kind, ["x", *more], ["y"], **options)
    weights = {name: value for name, value in more.items() if name}
    made, x = model([node], {"x": [None, 3, "h", 2]}, ["y"], weights), normal(2, 3, 4, 2)
    wanted = ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_allclose(axon.load_onnx(made)(x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "more", "options", "results"),
    [
        ("MaxPool", {}, {"kernel_shape": [2, 2, 1], "auto_pad": "SAME_UPPER", "strides": [2, 2, 1]},
         1),
        ("Dropout", {"r": np.float32(0.5), "t": np.bool_(True)}, {}, 1),
        ("BatchNormalization", dict.fromkeys("abcd", np.ones(3, np.float32)),
         {"training_mode": 1}, 3),
        ("MaxPool", {}, {"kernel_shape": [2, 2, 1]}, 2),
        ("Resize", {"": None, "s": np.array([1, 1, 3, 3, 3], np.float32)},
         {"coordinate_transformation_mode": "asymmetric"}, 1),
    ],
)  # fmt: skip
def test_what_onnx_computes_otherwise_is_refused(kind, more, options, results):
    outputs = ["y", "z", "u"][:results]
    node = helper.make_node(kind, ["x", *more], outputs, **options)
    weights = {name: value for name, value in more.items() if name}
    with pytest.raises(AxonError):
        axon.load_onnx(model([node], {"x": [2, 3, 4, 2, 2]}, outputs, weights))


X, T = normal(2, 3, 4, 6), normal(2, 3, 4, 6) > 0
W = RNG.integers(-9, 9, (2, 3, 4, 6))
FORMS = [  # operator, operands after the first, attributes, the first operand, operator set
    ("Transpose",), ("Transpose", {}, {"perm": [0, 2, 3, 1]}), ("Flatten", {}, {"axis": 2}),
    ("Flatten", {}, {"axis": 0}), ("Flatten", {}, {"axis": -1}),
    ("Gemm", {"w": normal(6, 5), "c": normal(5)}, {"alpha": 0.5, "beta": 2.0}, normal(4, 6)),
    ("Gemm", {"w": normal(6, 5)}, {"transA": 1}, normal(6, 4)),
    ("Gemm", {"w": normal(5, 6), "c": normal(1, 5)}, {"transB": 1}, normal(4, 6)),
    ("Einsum", {"w": normal(6, 5)}, {"equation": "abcd,de->abce"}),
    ("Cast", {}, {"to": TensorProto.INT64}), ("Cast", {}, {"to": TensorProto.DOUBLE}),
    ("Cast", {}, {"to": TensorProto.BOOL}), ("CastLike", {"w": np.array([1])}),
    ("Tile", {"r": np.array([1, 2, 1, 3])}), ("ReduceMean",), ("ReduceMax", {}, {"keepdims": 0}),
    ("ReduceProd", {"a": np.array([1])}), ("ReduceL1", {"a": np.array([1])}),
    ("ReduceSumSquare", {"a": np.array([1])}), ("ReduceLogSumExp", {"a": np.array([-1])}),
    ("ArgMax", {}, {"axis": 1}), ("ArgMin", {}, {"axis": -1, "keepdims": 0}),
    ("TopK", {"k": np.array([2])}, {"axis": 2}), ("Trilu", {}, {"upper": 0}),
    ("Trilu", {"k": np.array(1)}), ("CumSum", {"a": np.array(1)}), ("LogSoftmax", {}, {"axis": 1}),
    ("GatherElements", {"i": RNG.integers(0, 3, (2, 3, 4, 6))}, {"axis": 1}),
    ("InstanceNormalization", {"s": normal(3), "b": normal(3)}),
    ("GroupNormalization", {"s": normal(3), "b": normal(3)}, {"num_groups": 3}, X, 21),
    ("RMSNormalization", {"s": normal(6)}, {}, X, 23), ("PRelu", {"s": normal(3, 1, 1)}), ("Selu",),
    ("Celu", {}, {"alpha": 0.5}), ("ThresholdedRelu", {}, {"alpha": 0.5}), ("HardSigmoid",),
    ("Swish", {}, {"alpha": 0.7}, X, 24), ("Pow", {"p": np.float32(2)}),
    ("Mod", {"p": np.float32(2)}, {"fmod": 1}), ("Div", {"b": np.array(4)}, {}, W), ("Atan",),
    ("Div", {"b": np.array(-4)}, {}, W), ("DepthToSpace", {}, {"blocksize": 2}, normal(1, 8, 2, 3)),
    ("DepthToSpace", {}, {"blocksize": 2, "mode": "CRD"}, normal(1, 8, 2, 3)),
    ("SpaceToDepth", {}, {"blocksize": 2}), ("GlobalMaxPool",), ("GlobalAveragePool",),
    ("GlobalAveragePool", {}, {}, normal(2, 3, 4, 2, 2)),
    ("MaxPool", {}, {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 2]},
     normal(1, 2, 5, 7)),
    ("MaxPool", {}, {"kernel_shape": [2, 2], "pads": [0, 1, 1, 0]}),
    ("Conv", {"w": normal(5, 3, 3, 2)}, {"auto_pad": "SAME_UPPER"}),
    ("Conv", {"w": normal(5, 3, 3, 2)}, {"auto_pad": "SAME_LOWER"}), ("Mean", {"b": X}),
    ("LpNormalization", {}, {"axis": 1}), ("Pad", {"p": np.arange(8) % 3, "v": np.float32(2)}),
    ("Slice", {"s": np.array([-1]), "e": np.array([-(2**31)]), "a": np.array([1]),
               "t": np.array([-1])}),
    ("Squeeze", {"a": np.array([1, 3])}, {}, normal(2, 1, 3, 1)), ("NonZero", {}, {}, T),
    ("OneHot", {"d": np.array(4), "v": np.array([2, 5], np.int64)}, {}, W % 12 - 6), ("IsInf",),
    ("Attention", {"k": normal(2, 3, 5, 6), "v": normal(2, 3, 5, 6)}, {}, X, 23),
    ("GatherND", {"i": RNG.integers(0, 2, (4, 3, 2))}), ("GatherND", {"i": np.array([[1], [0]])}),
    ("GatherND", {"i": RNG.integers(0, 2, (4, 2, 1))}, {}, normal(3, 5)),
    ("Reshape", {"s": np.array([4, -1, 3])}, {"allowzero": 1}),
    ("PRelu", {"s": normal(3, 1, 1)}, {}, X, 13), ("HardSigmoid", {}, {"alpha": 0.3}, X, 13),
    ("ThresholdedRelu", {}, {}, X, 14), ("Shrink", {}, {"lambd": 0.3}, X, 13),
    ("Shrink", {}, {"lambd": 0.3, "bias": 0.1}), ("MeanVarianceNormalization",),
    ("ReduceLogSum", {"a": np.array([1])}, {}, abs(X) + 1), ("Elu", {}, {"alpha": 0.5}),
    ("SoftmaxCrossEntropyLoss", {"t": np.array([0, 4, 2])}, {"reduction": "mean"}, normal(3, 5)),
    ("RMSNormalization", {"s": normal(4, 6)}, {"axis": -2}, X, 23),
    ("MatMul", {"w": normal(6)}), ("Shape",), ("Shape", {}, {"start": 1, "end": -1}), ("Size",),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0])
def test_forms_of_operators(form):
    """In value and element type, from a model that says ranks alone."""
    kind, more, options, x, opset = (*form, *(None, {}, {}, X, 18)[len(form) :])
    results = ["y", "z"][: 2 if kind == "TopK" else 1]
    given = helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype)
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", *more], results, **options)],
        "net",
        [helper.make_tensor_value_info("x", given, [None] * x.ndim)],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in results],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in more.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    found, wanted = axon.load_onnx(made)(x), ReferenceEvaluator(made).run(None, {"x": x})
    for one, other in zip(found if kind == "TopK" else (found,), wanted, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_functions_of_a_model_and_branches_that_are_known():
    node, opsets = helper.make_node, [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    body = [node("Add", ["a", "b"], ["t"]), node("Mul", ["t", "a"], ["o"])]
    twice = helper.make_function("own", "Twice", ["a", "b"], ["o"], body, opsets[:1])
    chosen = [
        helper.make_graph([node(kind, ["u"], [name])], name,
                          [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])
        for kind, name in (("Relu", "one"), ("Neg", "other"))
    ]  # fmt: skip
    nodes = [
        node("Twice", ["x", "w"], ["t"], domain="own"),
        node("Twice", ["t", "x"], ["u"], domain="own"),
        node("If", ["c"], ["y"], then_branch=chosen[0], else_branch=chosen[1]),
    ]
    made = model(nodes, {"x": ["n", 4]}, ["y"], {"w": normal(4), "c": np.array([False])})
    made.functions.append(twice)
    made.opset_import.append(opsets[1])
    x = normal(3, 4)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(axon.load_onnx(made)(x), wanted, rtol=1e-5)
    heads = node("Attention", ["x", "k", "k"], ["y"], q_num_heads=2, kv_num_heads=2)
    with pytest.raises(AxonError, match="not supported"):
        axon.load_onnx(model([heads], {"x": ["b", "t", 8], "k": ["b", "u", 8]}, ["y"], {}, 23))


def test_functions_that_are_called_as_operators_of_onnx():
    """A function of a model is what the model says, of weights and of sizes too."""
    node, opsets = helper.make_node, [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", "Relu", ["a"], ["o"], [node("Relu", ["a"], ["o"])], opsets[:1]),
        helper.make_function(
            "own", "Add", ["a", "b"], ["o"], [node("Mul", ["a", "b"], ["o"])], opsets[:1]
        ),
    ]
    nodes = [
        node("Add", ["w", "w"], ["squares"], domain="own"),
        node("Add", ["x", "squares"], ["scaled"], domain="own"),
        node("Relu", ["scaled"], ["above"], domain="own"),
        node("Neg", ["above"], ["below"]),
        node("Shape", ["below"], ["s"]),
        node("Add", ["s", "two"], ["t"], domain="own"),
        node("Expand", ["one", "t"], ["y"]),
    ]
    weights = {"w": normal(4), "two": np.array([2, 3]), "one": normal(1)}
    made = model(nodes, {"x": ["n", 4]}, ["above", "y"], weights)
    made.functions.extend(functions)
    made.opset_import.append(opsets[1])
    x = normal(3, 4)
    for one, other in zip(axon.load_onnx(made)(x), ReferenceEvaluator(made).run(None, {"x": x})):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    other = model([node("Relu", ["x"], ["y"], domain="other")], {"x": ["n", 4]}, ["y"], {})
    other.opset_import.append(helper.make_opsetid("other", 1))
    with pytest.raises(AxonError, match="the operator Relu of other is not supported"):
        axon.load_onnx(other)


def test_what_is_computed_of_weights_alone_is_a_weight():
    node = helper.make_node
    nodes = [
        node("Transpose", ["w"], ["t"]),
        node("Cast", ["s"], ["c"], to=TensorProto.FLOAT),
        node("Mul", ["t", "c"], ["m"]),
        node("MatMul", ["x", "m"], ["y"]),
    ]
    made = model(nodes, {"x": ["n", 4]}, ["y"], {"w": normal(5, 4), "s": np.array(3)})
    graph, x = axon.load_onnx(made), normal(2, 4)
    assert [*graph.shapes] == ["y"]
    wanted = ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_allclose(graph(x), wanted, rtol=1e-5, atol=1e-5)


def test_arrays_are_made_of_sizes():
    node = helper.make_node
    weights = {"zero": np.array(0), "one": np.array(1), "axis": np.array([0])}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["t"]),
        node("Range", ["zero", "t", "one"], ["r"]),
        node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["t", "axis"], ["t1"]),
        node("ConstantOfShape", ["t1"], ["c"]),
        node("Add", ["x", "f"], ["a"]),
        node("Add", ["a", "c"], ["y"]),
    ]
    made, x = model(nodes, {"x": ["b", "t"]}, ["y"], weights), normal(3, 5)
    graph = axon.load_onnx(made)
    assert graph.shape("y") == "[b, t]"
    wanted = ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_allclose(graph(x), wanted, rtol=1e-5, atol=1e-5)


def made_of_sizes():
    """What exporters write between the sizes of an image and what is made of them."""
    node, real = helper.make_node, TensorProto.FLOAT
    numbers = {
        "0": 0, "1": 1, "2.": np.float32(2), "[0]": [0], "[1]": [1], "[2]": [2], "[4]": [4],
        "[-1]": [-1], "-1": [-1, -1, -1, -1], "table": np.arange(40), "k": normal(1, 40),
    }  # fmt: skip
    weights = {name: np.asarray(value) for name, value in numbers.items()}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "[0]", "[2]"], ["batch"]),
        node("Concat", ["batch", "[-1]"], ["flat"], axis=0),
        node("Reshape", ["x", "flat"], ["y"]),
        node("Gather", ["s", "[2]"], ["h"]),
        node("Cast", ["h"], ["real"], to=real),
        node("Div", ["real", "2."], ["half"]),
        node("Ceil", ["half"], ["up"]),
        node("Mul", ["up", "2."], ["even"]),
        node("Cast", ["even"], ["size"], to=TensorProto.INT64),
        node("Slice", ["s", "[-1]", "[4]"], ["w"]),
        node("Concat", ["batch", "size", "w"], ["wanted"], axis=0),
        node("Resize", ["x", "", "", "wanted"], ["z"], mode="linear"),
        node("Equal", ["wanted", "-1"], ["any"]),
        node("Where", ["any", "s", "wanted"], ["chosen"]),
        node("ConstantOfShape", ["chosen"], ["none"]),
        node("Add", ["none", "z"], ["more"]),
        node("Sqrt", ["real"], ["root"]),
        node("Mul", ["more", "root"], ["scaled"]),
        node("Slice", ["k", "[0]", "h", "[1]"], ["part"]),
        node("Gather", ["table", "h"], ["item"]),
        node("Mul", ["s", "s"], ["squares"]),
    ]
    results = ["y", "scaled", "part", "item", "half", "squares"]
    return model(nodes, {"x": ["n", "c", "h", "w"]}, results, weights)


def test_sizes_are_numbers_and_arrays():
    made = made_of_sizes()
    graph = axon.load_onnx(made)
    assert graph.shape("z") == "[n, c, 2*((h + 1)//2), w]"
    for h in (5, 6):
        x = normal(2, 3, h, 4)
        wanted = ReferenceEvaluator(made).run(None, {"x": x})
        for name, one, other in zip("yspihq", graph(x), wanted, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype), name
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("by", [3.0, 0.5])
def test_quotients_of_sizes_that_are_not_rounded_are_arrays(by):
    node = helper.make_node
    nodes = [
        *made_of_sizes().graph.node[:7],
        node("Add", ["half", "by"], ["sum"]),
        node("Div", ["half", "2."], ["quarter"]),
        node("Add", ["sum", "quarter"], ["more"]),
        node("Cast", ["more"], ["z"], to=TensorProto.INT64),
        node("Equal", ["h", "two"], ["e"]),
    ]
    numbers = {"2.": np.float32(2), "[0]": [0], "[2]": [2], "[-1]": [-1], "two": 2}
    weights = {
        name: np.asarray(value) for name, value in (*numbers.items(), ("by", np.float32(by)))
    }
    made = model(nodes, {"x": ["n", "c", "h", "w"]}, ["z", "e"], weights)
    for h in (2, 5):
        x = normal(2, 3, h, 4)
        for one, other in zip(
            axon.load_onnx(made)(x), ReferenceEvaluator(made).run(None, {"x": x})
        ):
            assert (one, one.dtype) == (other, other.dtype)
    sized = model(
        [*nodes, node("Reshape", ["x", "z"], ["r"])], {"x": ["n", "c", "h", "w"]}, ["r"], weights
    )
    with pytest.raises(AxonError, match="depend on data"):
        axon.load_onnx(sized)


NODE = helper.make_node
FLOATS = NODE("Cast", ["s"], ["f"], to=TensorProto.FLOAT)
LESS = NODE("Sub", ["s", "five"], ["t"])


@pytest.mark.parametrize(
    "nodes",
    [
        [LESS, NODE("Div", ["t", "two"], ["y"])],  # towards 0
        [NODE("Div", ["less", "s"], ["y"])],
        [LESS, NODE("Mod", ["t", "two"], ["y"])],  # the divisor's sign
        [LESS, NODE("Div", ["t", "two"], ["d"]), NODE("Equal", ["d", "less"], ["y"])],
        [NODE("Mul", ["s", "less"], ["t"]), NODE("Equal", ["t", "minus"], ["y"])],
        [NODE("Cast", ["s"], ["b"], to=TensorProto.BOOL), NODE("Not", ["b"], ["y"])],
        *([NODE("Cast", ["s"], ["y"], to=to)] for to in (TensorProto.DOUBLE, TensorProto.INT32)),
        [
            *(NODE("Mul", ["s", "s"], ["t"]), NODE("Mul", ["t", "t"], ["u"])),
            NODE("Cast", ["u"], ["y"], to=TensorProto.INT8),  # 256 is 0
        ],
        [
            *(LESS, NODE("Cast", ["t"], ["f"], to=TensorProto.FLOAT)),
            *(NODE("Div", ["f", "half"], ["d"]), NODE("Cast", ["d"], ["y"], to=TensorProto.INT64)),
        ],
        [FLOATS, NODE("Div", ["f", "half"], ["d"]), NODE("Ceil", ["d"], ["y"])],
        *([NODE("ReduceProd", ["s"], ["y"], keepdims=keep)] for keep in (0, 1)),
        [NODE("ReduceProd", ["s"], ["y"], noop_with_empty_axes=1)],
        [NODE("ReduceProd", ["s"], ["p"]), NODE("Reshape", ["x", "p"], ["y"])],
        [NODE("ReduceSum", ["s"], ["y"])],
        [NODE("Shape", ["x"], ["y"], start=2)],
        [
            NODE("Cast", ["s"], ["i"], to=TensorProto.INT32),
            NODE("ReduceProd", ["i"], ["n"], keepdims=0),
            *(
                NODE("Constant", [], ["c"], value_int=1),
                NODE("Cast", ["c"], ["one"], to=TensorProto.INT32),
            ),
            NODE("Range", ["one", "n", "one"], ["y"]),
        ],
        [NODE("Constant", [], ["c"], value_floats=[0.5, 2.0]), NODE("Identity", ["c"], ["y"])],
    ],
)
def test_what_is_computed_of_sizes_is_as_onnx_has_it(nodes):
    weights = {"five": np.array([5]), "two": np.array([2]), "half": np.array([2], np.float32)}
    weights |= {"less": np.array([-2]), "minus": np.array([-8])}
    made = model([NODE("Shape", ["x"], ["s"]), *nodes], {"x": ["a", "b"]}, [], weights)
    made.graph.output.append(onnx.ValueInfoProto(name="y"))
    x = normal(3, 4)
    found, wanted = axon.load_onnx(made)(x), ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, wanted, strict=True)


def test_a_quotient_of_sizes_that_may_be_below_0_is_no_size():
    nodes = [
        *(NODE("Shape", ["x"], ["s"]), LESS, NODE("Div", ["t", "two"], ["d"])),
        NODE("ConstantOfShape", ["d"], ["y"]),
    ]
    weights = {"five": np.array([5]), "two": np.array([2])}
    with pytest.raises(AxonError, match="sizes that depend on data"):
        axon.load_onnx(model(nodes, {"x": ["a", "b"]}, ["y"], weights))


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        *([sizes, {}] for sizes in ([1, 2, 8, 12], [3, 2, 5, 7], [1, 1, 4, 6], [1, 3, 8, 12])),
        ([1, 2, 1, 1], {"coordinate_transformation_mode": "pytorch_half_pixel"}),
        ([1, 2, 2, 3], {"antialias": 1}),
        ([1, 2, 8, 9], {"keep_aspect_ratio_policy": "not_larger"}),
        ([8, 12], {"axes": [2, 3]}),
    ],
)
def test_resize_has_the_sizes_that_it_is_given_or_is_refused(sizes, options):
    nodes = [NODE("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", **options)]
    made = model(nodes, {"x": ["n", 2, "h", "w"]}, ["y"], {"sizes": np.array(sizes)})
    x = normal(1, 2, 4, 6)
    if options or sizes[1] != 2:
        with pytest.raises((AxonError, AxonGuard)):
            axon.load_onnx(made)(x)
    else:
        wanted = ReferenceEvaluator(made).run(None, {"x": x})[0]
        np.testing.assert_allclose(axon.load_onnx(made)(x), wanted, rtol=1e-4, atol=1e-5)
