"""What `tawa.axon` says of sizes, beside torch.export and onnxruntime's symbolic shapes.

    pip install onnx onnxruntime sympy
    python benchmarks/axon_shapes.py            prints the tables of benchmarks/results/axon.md
    python benchmarks/axon_shapes.py --time     the times alone
    python benchmarks/axon_shapes.py --every 3    a third of the mutants

1. Times, in seconds of CPU: ResNet-34, from a torch module or its ONNX file to shapes and guards.
2. Seeded faults: a U-Net step with one number changed. What torch computes at all sizes from 1 to
   8 says whether a mutant always fails, sometimes or never; each system is asked once, without
   data, and then for each size. onnxruntime's tool and `onnx.shape_inference` know no conditions,
   so they are asked only whether they refuse.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
from torch import nn

from tawa import axon
from tawa.errors import AxonError, AxonGuard

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
NUMBERS = {
    "a": [4, 2, 3, 3], "b": [4, 2, 3, 3], "c": [4, 2, 2, 2], "d": [3, 4, 1, 1],
    "stride": [2], "pad": [1], "inner pad": [1], "groups": [2], "up": [2], "axis": [1],
}  # fmt: skip
SIZES = [*product(range(1, 9), repeat=2)]
AUTO = torch.export.Dim.AUTO


class Step(nn.Module):
    """A step of U-Net made of numbers."""

    def __init__(self, numbers: dict[str, list[int]]) -> None:
        super().__init__()
        self.n = numbers
        for name in "abcd":
            self.register_buffer(name, torch.zeros(numbers[name]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve, convolve in groups, add, go up, join with the input, mix, take the mean."""
        n, f = self.n, nn.functional
        e = f.relu(f.conv2d(x, self.a, stride=n["stride"][0], padding=n["pad"][0]))
        g = e + f.conv2d(e, self.b, padding=n["inner pad"][0], groups=n["groups"][0])
        u = f.conv_transpose2d(g, self.c, stride=n["up"][0])
        return f.conv2d(torch.cat([x, u], n["axis"][0]), self.d).mean((2, 3))


def as_onnx(n: dict[str, list[int]]) -> Any:
    """Return the same as a model of ONNX."""
    node, pads = helper.make_node, lambda name: [n[name][0]] * 4
    nodes = [
        node("Conv", ["x", "a"], ["e0"], strides=n["stride"] * 2, pads=pads("pad")),
        node("Relu", ["e0"], ["e"]),
        node("Conv", ["e", "b"], ["f"], pads=pads("inner pad"), group=n["groups"][0]),
        node("Add", ["e", "f"], ["g"]),
        node("ConvTranspose", ["g", "c"], ["u"], strides=n["up"] * 2),
        node("Concat", ["x", "u"], ["y"], axis=n["axis"][0]),
        node("Conv", ["y", "d"], ["z0"]),
        node("ReduceMean", ["z0"], ["z"], axes=[2, 3], keepdims=0),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "h", "w"])
    made = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(torch.zeros(n[name]).numpy(), name) for name in "abcd"]
    graph = helper.make_graph(nodes, "step", [given], [made], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])


def mutants() -> Iterator[dict[str, list[int]]]:
    """Yield the numbers with one of them a little less or more."""
    for name, numbers in NUMBERS.items():
        for place, change in product(range(len(numbers)), (-1, 1, 2)):
            made = list(numbers)
            made[place] += change
            if made[place] >= 0:
                yield {**NUMBERS, name: made}


Judge = Callable[[int, int], bool]


def runs(module: Callable[..., Any], h: int, w: int) -> bool:
    """Tell whether a module takes an image of some size."""
    try:
        module(torch.zeros(1, 2, h, w))
    except Exception:  # whatever torch refuses by
        return False
    return True


def by_tawa(module: Step) -> Judge | None:
    """Return what decides a size; None where the module is refused."""
    try:
        graph = axon.load_fx(module, dims={"x": "1 2 h w"})
    except AxonError:
        return None

    def judge(h: int, w: int) -> bool:
        try:
            graph.function.check(torch.zeros(1, 2, h, w), graph.weights)
        except AxonGuard:
            return False
        return True

    return judge


def by_export(module: Step) -> Judge | None:
    """The same by torch.export; its example is the first size that runs, or 8 by 8."""
    h, w = next((s for s in reversed(SIZES) if runs(module, *s)), (8, 8))
    try:
        shapes = ({2: AUTO, 3: AUTO},)
        found = torch.export.export(module, (torch.zeros(1, 2, h, w),), dynamic_shapes=shapes)
    except Exception:  # of many classes
        return None
    made = found.module()
    return lambda h, w: runs(made, h, w)


def by_onnx(tool: Callable[[Any], Any]) -> Callable[[dict[str, list[int]]], Judge | None]:
    """Return what asks a tool for ONNX, which knows no conditions."""

    def ask(numbers: dict[str, list[int]]) -> Judge | None:
        try:
            tool(as_onnx(numbers))
        except Exception:  # of many classes
            return None
        return lambda h, w: True

    return ask


SYSTEMS: dict[str, Callable[[dict[str, list[int]]], Judge | None]] = {
    "tawa": lambda numbers: by_tawa(Step(numbers)),
    "torch.export, Dim.AUTO": lambda numbers: by_export(Step(numbers)),
    "onnxruntime": by_onnx(SymbolicShapeInference.infer_shapes),
    "onnx.shape_inference": by_onnx(
        lambda m: onnx.shape_inference.infer_shapes(m, check_type=True, strict_mode=True)
    ),
}


def faults(every: int) -> None:
    """Print what each system says of the mutants, or of each so-manieth."""
    kinds: Counter[str] = Counter()
    said: dict[str, Counter[str]] = {name: Counter() for name in SYSTEMS}
    for numbers in islice(mutants(), 0, None, every):
        truth = {size: runs(Step(numbers), *size) for size in SIZES}
        kind = "never" if all(truth.values()) else "some" if any(truth.values()) else "always"
        kinds[kind] += 1
        for name, ask in SYSTEMS.items():
            judge, count = ask(numbers), said[name]
            if judge is None:
                count[f"{kind} refused"] += 1
                continue
            answers = {size: judge(*size) for size in SIZES}
            count[f"{kind} exact"] += answers == truth
            count["lets through"] += any(answers[s] and not truth[s] for s in SIZES)
            count["too strict"] += any(truth[s] and not answers[s] for s in SIZES)
    print(f"| {sum(kinds.values())} mutants | refused of {kinds['always']} that always fail "
          f"| exact on all sizes of {kinds['some']} that sometimes fail | refused of these "
          "| mutants let through at a size that fails | refused at a size that runs |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for name, count in said.items():
        strict = count["too strict"] + count["some refused"] + count["never refused"]
        cells = [count["always refused"], count["some exact"], count["some refused"],
                 count["lets through"], strict]  # fmt: skip
        print("|", " | ".join([name, *map(str, cells)]), "|")


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of a call, its result, or what it raised."""
    start = time.process_time()
    try:
        found = run()
    except Exception as error:  # a refusal is a row of the table
        found = error
    return time.process_time() - start, found


def chain(kind: str) -> nn.Module:
    """Return a network of 2,000 operations."""
    make = {
        "linear": lambda: nn.Linear(4, 4, False),
        "conv": lambda: nn.Conv2d(4, 4, 3, 1, 1, bias=False),
    }[kind]
    return nn.Sequential(*(m for _ in range(1000) for m in (make(), nn.ReLU()))).eval()


def imported() -> float:
    """Return the CPU time of a process that imports the language and checks a first program."""
    text = "from tawa import axon; axon.load('fun f x = relu (x + x)').f.scheme"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", text], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def times() -> None:
    """Print the times for ResNet-34, for 2,000 operations, and of the import."""
    from axon_networks import ResNet

    module, example = ResNet().eval(), torch.randn(2, 3, 64, 64)
    file = io.BytesIO()
    names = {"x": {0: "n", 2: "h", 3: "w"}}
    torch.onnx.export(module, (example,), file, dynamo=False, input_names=["x"], dynamic_axes=names)
    model = onnx.load_from_string(file.getvalue())
    dims = {n: torch.export.Dim(n) for n in "nhw"}
    fixed, auto = ({0: dims["n"], 2: dims["h"], 3: dims["w"]},), ({0: AUTO, 2: AUTO, 3: AUTO},)
    export, infer = torch.export.export, SymbolicShapeInference.infer_shapes
    chains = {kind: chain(kind) for kind in ("linear", "conv")}
    rows: dict[str, Callable[[], Any]] = {
        "tawa, from torch.fx": lambda: axon.load_fx(module, dims={"x": "n 3 h w"}).guards,
        "tawa, from ONNX": lambda: axon.load_onnx(model, dims={"x": "n 3 h w"}).guards,
        "torch.export, Dim": lambda: export(module, (example,), dynamic_shapes=fixed),
        "torch.export, Dim.AUTO": lambda: export(module, (example,), dynamic_shapes=auto),
        "onnxruntime": lambda: infer(model),
        "onnx.shape_inference": lambda: onnx.shape_inference.infer_shapes(model),
        "tawa, 1,000 linear and relu": lambda: axon.load_fx(chains["linear"]).guards,
        "tawa, 1,000 convolutions and relu": lambda: axon.load_fx(chains["conv"]).guards,
    }
    print(f"{len(model.graph.node)} nodes; tawa's import and a first program: {imported():.2f} s\n")
    print("| ResNet-34 | s, first | s, least of 4 | first line of what it says |")
    print("|---|---|---|---|")
    for name, run in rows.items():
        first, found = seconds(run)
        least = min(seconds(run)[0] for _ in range(4))
        text = f"{type(found).__name__}: {found}" if isinstance(found, Exception) else ""
        if isinstance(found, list):
            text = ", ".join(map(str, found))
        print(
            f"| {name} | {first:.2f} | {least:.3f} | {' '.join(text.split())[:140]} |", flush=True
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--time", action="store_true", help="the times alone")
    parser.add_argument("--every", type=int, default=1, help="each so-manieth mutant alone")
    options = parser.parse_args()
    os.chdir(tempfile.mkdtemp())  # onnxruntime's tool writes a file where it is
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stderr(io.StringIO()):
        times()
        if not options.time:
            print()
            faults(options.every)


if __name__ == "__main__":
    main()
