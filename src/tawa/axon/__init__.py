"""A language whose tensor shapes and ranks are inferred.

In the spirit of the abstract of "Axon: A Language for Dynamic Shapes in Deep Learning Graphs"
(arXiv:2210.02374); the body of the paper was not available to us, so grammar, operators and solver
are ours. `docs/axon.md` is its manual.
"""

from tawa.axon.load.graph import Graph
from tawa.axon.load.onnx import load_onnx
from tawa.axon.load.torch_graphs import load_export, load_fx
from tawa.axon.module import Function, Guard, Module, check, graph, load

__all__ = [
    "Function",
    "Graph",
    "Guard",
    "Module",
    "check",
    "graph",
    "load",
    "load_export",
    "load_fx",
    "load_onnx",
]
