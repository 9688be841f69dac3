"""Random programs of `tawa.axon`, made together with arrays that most of them accept."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from tawa.axon.run.evaluate import Evaluation
from tawa.axon.syntax.parser import parse_program

UNARY = ("relu", "exp", "neg", "softmax", "cumsum", "zeros_like")
BINARY = ("+", "*", "-")


@dataclass
class Program:
    """A program under construction: parameters with arrays, and its lines."""

    rng: random.Random
    parameters: list[str] = field(default_factory=list)
    inputs: list[np.ndarray] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    calls: int = 0

    def parameter(self, shape: tuple[int, ...]) -> str:
        """Add a parameter that fits; return its name."""
        name = f"p{len(self.inputs)}"
        array = np.ones(shape, np.float32)
        how = self.rng.random()
        if how < 0.45:
            self.parameters.append(name)
        elif how < 0.8:
            sizes = [
                str(n) if self.rng.random() < 0.2 else f"{name}_{axis}"
                for axis, n in enumerate(shape)
            ]
            self.parameters.append(f"({name} : f32[{', '.join(sizes)}])")
        else:
            known = self.rng.choice("abcd")
            sizes = [f"..{name}", *([known] if shape else [])]
            self.parameters.append(f"({name} : f32[{', '.join(sizes)}])")
        self.inputs.append(array)
        self.values[name] = array
        return name

    def text(self) -> str:
        """Return the program."""
        last = self.lines[-1].split()[1] if self.lines else "p0"
        body = "\n".join(f"      {line}" for line in self.lines)
        head = f"fun f {' '.join(self.parameters)} ="
        return f"{head}\n  let\n{body}\n  in {last} end" if self.lines else f"{head} {last}"


def random_program(seed: int) -> Program:
    """Return a program of up to eight operators."""
    rng = random.Random(seed)
    made = Program(rng)
    rank = rng.choice((1, 2, 2, 3, 4, 4))
    made.parameter(tuple([rng.randint(0, 6) for _ in range(rank)]))
    for _ in range(rng.randint(1, 8)):
        expression = _operator(made)
        name = f"v{len(made.lines)}"
        line = f"val {name} = {expression}"
        try:
            value = _value(made, line, name)
        except (ValueError, IndexError):
            if rng.random() < 0.85:
                continue
            made.lines.append(line)
            return made
        if not isinstance(value, np.ndarray) or value.size > 5000:
            continue
        made.lines.append(line)
        made.values[name] = value
    return made


def _value(made: Program, line: str, name: str) -> object:
    tree = parse_program(line)[0]
    with np.errstate(all="ignore"):
        return Evaluation([]).evaluate(tree.value, dict(made.values))


def _sized(rng: random.Random, size: int) -> int:
    return size if rng.random() < 0.8 else rng.randint(0, 6)


def _operator(made: Program) -> str:
    rng = made.rng
    name = rng.choice(list(made.values)[-3:])
    shape = made.values[name].shape
    rank = len(shape)
    axis = rng.randint(-rank, rank - 1) if rank else 0
    if rng.random() < 0.05:
        axis += rng.choice((-1, 1))
    small = rng.randint(0, 3)
    choices = ["unary", "binary", "new", "axis", "reshape", "reduce", "concat", "sizes"]
    if rank >= 1:
        choices += ["linear", "norm", "heads", "slice", "split"]
    if rank >= 2:
        choices += ["matmul", "transpose", "window"]
    if rank >= 3:
        choices += ["conv", "pool", "conv", "pool", "upsample", "deconv"]
    match rng.choice(choices):
        case "unary":
            return f"{rng.choice(UNARY)} {name}"
        case "binary":
            other = rng.choice(list(made.values))
            return f"{name} {rng.choice(BINARY)} {other}"
        case "new":
            sizes = [1 if rng.random() < 0.3 else _sized(rng, n) for n in shape]
            other = made.parameter(tuple(sizes[rng.randint(0, rank) :]))
            pair = [name, other]
            rng.shuffle(pair)
            return f"{pair[0]} {rng.choice(BINARY)} {pair[1]}"
        case "axis":
            operator = rng.choice(
                ("max", "argmax", "squeeze", "unsqueeze", "flip", "cumsum", "sort")
            )
            call = f"{operator} {{axis = {axis}}} {name}"
            return f"cast ({call})" if operator == "argmax" else call
        case "reshape":
            return _reshape(made, name, shape)
        case "reduce":
            axes = rng.sample(range(rank), min(rank, rng.randint(0, 2)))
            axes = [a - rank if rng.random() < 0.4 else a for a in axes]
            operator = rng.choice(("sum", "mean_keep", "sum_keep", "var"))
            return f"{operator} {{axes = {axes}}} {name}"
        case "concat":
            sizes = [_sized(rng, n) for n in shape]
            if rank:
                sizes[axis % rank] = rng.randint(0, 4)
            other = name if rng.random() < 0.4 else made.parameter(tuple(sizes))
            operator = rng.choice(("concat", "concat", "stack"))
            return f"{operator} [{name}, {other}] ({axis})"
        case "sizes":
            return rng.choice(
                (
                    f"pad {{axis = {axis}, before = {small}, after = {rng.randint(0, 2)}}} {name}",
                    f"tile {{axis = {axis}, count = {small}}} {name}",
                    f"drop_last {{axis = {axis}, count = {small}}} {name}",
                    f"reshape {name} [size {name}]",
                    f"zeros [dim ({axis}) {name}, 2]",
                    f"expand {name} [{', '.join(str(_sized(rng, n)) for n in (2, *shape))}]",
                    f"ravel {name}",
                    f"flatten {{axis = {abs(axis)}}} {name}",
                )
            )
        case "linear":
            weight = made.parameter((_sized(rng, shape[-1]), rng.randint(0, 4)))
            return f"linear {name} {weight}"
        case "norm":
            scale = made.parameter((_sized(rng, shape[-1]),))
            return f"rms_norm {scale} {name}"
        case "heads":
            return f"heads {{count = {small}}} {name}"
        case "slice":
            end, start, step = rng.randint(0, 6), rng.randint(0, 3), rng.randint(1, 3)
            return f"slice {{axis = {axis}, start = {start}, step = {step}}} {end} {name}"
        case "split":
            return f"topk {{count = {small}}} {name}"
        case "matmul":
            sizes = [1 if rng.random() < 0.3 else n for n in shape[:-2]]
            sizes = sizes[rng.randint(0, len(sizes)) :]
            other = made.parameter((*sizes, _sized(rng, shape[-1]), rng.randint(0, 4)))
            return f"matmul {name} {other}"
        case "transpose":
            if rng.random() < 0.5:
                return f"transpose {name}"
            order = list(range(rank))
            rng.shuffle(order)
            return f"permute {name} {order}"
        case "window":
            stride = rng.randint(1, 3)
            return f"unfold {{size = {rng.randint(1, 3)}, stride = {stride}}} {name}"
        case "conv":
            kernel = [rng.randint(1, 3) for _ in shape[2:]]
            groups = rng.choice((1, 1, 1, 2))
            weight = made.parameter(
                (groups * rng.randint(1, 2), _sized(rng, shape[1] // groups), *kernel)
            )
            options = f"stride = {rng.randint(1, 3)}, pad = {rng.randint(0, 2)}"
            options += f", dilation = {rng.randint(1, 2)}, groups = {groups}"
            return f"conv {{{options}}} {weight} {name}"
        case "deconv":
            kernel = [rng.randint(1, 3) for _ in shape[2:]]
            weight = made.parameter((_sized(rng, shape[1]), rng.randint(0, 2), *kernel))
            options = f"stride = {rng.randint(1, 3)}, pad = {rng.randint(0, 1)}"
            return f"conv_transpose {{{options}}} {weight} {name}"
        case "pool":
            size = rng.randint(1, 3)
            options = f"size = {size}, stride = {rng.randint(1, 3)}, pad = {rng.randint(0, 1)}"
            return f"{rng.choice(('max_pool', 'avg_pool'))} {{{options}}} {name}"
        case _:
            return f"upsample {{scale = {rng.randint(1, 3)}}} {name}"


def _reshape(made: Program, name: str, shape: tuple[int, ...]) -> str:
    rng = made.rng
    sizes: list[str] = [f"dim {axis} {name}" for axis in range(len(shape))]
    if len(sizes) >= 2 and rng.random() < 0.6:
        at = rng.randint(0, len(sizes) - 2)
        sizes[at : at + 2] = [f"{sizes[at]} * {sizes[at + 1]}"]
    if sizes and rng.random() < 0.5:
        sizes[rng.randrange(len(sizes))] = "-1"
    if rng.random() < 0.4:
        sizes.insert(rng.randint(0, len(sizes)), str(rng.randint(1, 3)))
    if sizes and rng.random() < 0.2:
        sizes[rng.randrange(len(sizes))] = str(rng.randint(0, 6))
    return f"reshape {name} [{', '.join(sizes)}]"


def other_inputs(made: Program, seed: int) -> list[np.ndarray]:
    """Return arrays of other shapes: some sizes, seldom a rank, are others."""
    rng = random.Random(seed)
    sizes = sorted({n for array in made.inputs for n in array.shape})
    swap = {n: rng.randint(0, 6) for n in sizes if rng.random() < 0.5}
    found: list[np.ndarray] = []
    for array in made.inputs:
        shape = [swap.get(n, n) for n in array.shape]
        if rng.random() < 0.15 and shape:
            shape[rng.randrange(len(shape))] = rng.randint(0, 6)
        if rng.random() < 0.04:
            shape.insert(rng.randint(0, len(shape)), rng.randint(0, 3))
        if rng.random() < 0.04 and shape:
            del shape[rng.randrange(len(shape))]
        found.append(np.ones(shape, np.float32))
    return found


def annotations_hold(made: Program, arrays: list[np.ndarray]) -> bool:
    """Tell whether arrays are as the parameters' annotations say, with one size for each name."""
    known: dict[str, int] = {}
    for parameter, array in zip(made.parameters, arrays):
        if not parameter.startswith("("):
            continue
        items = parameter[parameter.index("[") + 1 : -2].split(", ")
        items = [item for item in items if item]
        shape = list(array.shape)
        if items and items[0].startswith(".."):
            items = items[1:]
            if len(shape) < len(items):
                return False
            shape = shape[len(shape) - len(items) :]
        if len(shape) != len(items):
            return False
        for item, size in zip(items, shape):
            if (int(item) if item.isdigit() else known.setdefault(item, size)) != size:
                return False
    return True
