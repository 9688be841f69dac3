"""What ONNX itself knows of a model: types and ranks, and operators that others define."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.axon.run.values import DTYPES

_DEFINED = 18  # the operator set that defines many operators, which also are of earlier sets


def taken_apart(
    onnx: Any, model: Any, node: Any, known: dict[str, tuple[str, int]], version: int
) -> tuple[Any, int] | None:
    """Return a node as a model of others, with their operator set; None where it is no function.

    `known`: the element types and ranks of its inputs, by name.
    """
    from onnx import inliner

    helper, inputs = onnx.helper, list[Any]()
    for name, (element, rank) in known.items():
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[element]))
        inputs.append(helper.make_tensor_value_info(name, kind, [None] * rank))
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    opsets, whole = {each.domain: each for each in model.opset_import}, onnx.NodeProto()
    whole.CopyFrom(node)
    if onnx.defs.has(node.op_type, version, node.domain):  # what is left out is not put in
        schemas = [
            onnx.defs.get_schema(node.op_type, n, node.domain)
            for n in (version, max(version, _DEFINED))
        ]
        if len({schema.since_version for schema in schemas}) == 1:
            version = max(version, _DEFINED)
            opsets[""] = helper.make_opsetid("", version)
        said = {item.name for item in node.attribute}
        left = (item for name, item in schemas[0].attributes.items() if name not in said)
        whole.attribute.extend(item.default_value for item in left if item.default_value.name)
    graph = helper.make_graph([whole], "operator", inputs, outputs)
    alone = helper.make_model(graph, opset_imports=opsets.values(), functions=model.functions)
    own = [(node.domain, node.op_type)]
    try:
        made = inliner.inline_selected_functions(alone, own, False, True)
    except (RuntimeError, TypeError):  # of a type that is not known; an onnx that cannot
        return None
    same = [(each.domain, each.op_type) for each in made.graph.node] == own
    return None if same else (made, version)


def inferred(onnx: Any, model: Any) -> Any:
    """Return a model's graph with the types and shapes that ONNX infers; data of weights is not
    looked at.
    """
    bare, graph, helper = onnx.ModelProto(), model.graph, onnx.helper
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    bare.ir_version = model.ir_version
    small = [item for item in graph.initializer if np.prod(item.dims, dtype=object) <= 64]
    large = [item for item in graph.initializer if item not in small]
    made = (helper.make_tensor_value_info(item.name, item.data_type, item.dims) for item in large)
    inputs = [*graph.input, *made]
    bare.graph.CopyFrom(helper.make_graph(graph.node, "bare", inputs, graph.output, small))
    return onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
