"""Networks broken on purpose: what fails for all sizes is refused, for some sizes guarded."""

from __future__ import annotations

import random
import re
from itertools import product

import numpy as np
import pytest

from tawa import axon
from tawa.axon.run.evaluate import Evaluation
from tawa.axon.syntax.parser import parse_program
from tawa.errors import AxonError, AxonGuard

NETWORKS = (
    """fun net (x : f32[1, 2, h, w])
  (a : f32[4, 2, 3, 3])
  (b : f32[4, 2, 3, 3])
  (c : f32[4, 2, 2, 2])
  (d : f32[3, 4, 1, 1]) =
  let val e = relu (conv {stride = 2, pad = 1} a x)
  val f = conv {pad = 1, groups = 2} b e
  val g = e + f
  val u = conv_transpose {stride = 2} c g
  val y = concat [x, u] 1
  val z = conv {} d y
  in mean {axes = [2, 3]} z end""",
    """fun net (x : f32[h, w, 6])
  (q : f32[6, 6])
  (k : f32[6, 6])
  (v : f32[6, 4])
  (s : f32[4])
  (o : f32[4, 5]) =
  let val a = heads {count = 2} (linear x q)
  val b = heads {count = 2} (linear x k)
  val c = heads {count = 2} (linear x v)
  val p = softmax {axis = -1} (matmul a (swap {first = 2, second = 3} b))
  val m = unheads (matmul p c)
  val n = rms_norm s m
  in linear n o end""",
    """fun net (x : f32[1, 3, h, w])
  (a : f32[4, 3, 2, 2])
  (l : f32[4, 8])
  (r : f32[8, 2]) =
  let val b = conv {stride = 2} a x
  val t = flatten {axis = 2} b
  val s = permute t [0, 2, 1]
  val u = gelu (linear s l)
  val p = max_pool {size = 2, stride = 2} x
  val q = reshape p [3, -1]
  val v = linear u r
  in sum {axes = [0, 1]} v * sum {axes = [0, 1]} (pad {axis = 0, after = 1} q) end""",
    """fun net (x : f32[h, w, 6])
  (g : f32[6])
  (b : f32[6])
  (l : f32[12, 6])
  (c : f32[5, 6])
  (e : f32[5]) =
  let val n = layer_norm g b x
  val s = linear (concat [n, x] 2) l
  val a = attention s n x
  val m = max {axis = 2} (stack [a, s] 2)
  val p = pad {axis = 1, before = 1, after = 2} m
  val q = drop_first {axis = 1, count = 3} p
  val d = unmerge {axis = 2} (x + q) [2, 3]
  val r = merge {axis = 2, count = 2} d
  in logsumexp {axes = [0, 1]} (dense r c e) end""",
)


def mutants(text):
    """Yield (mutant, line): a number that is one more or less, or an operation left out."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        begin = line.index("[") if number < 1 or line.startswith("  (") else 0
        for match in re.finditer(r"-?\b\d+\b", line):
            if match.start() < begin:
                continue
            for change in (-1, 1, 2):
                value = int(match.group()) + change
                made = line[: match.start()] + str(value) + line[match.end() :]
                if value < 0 and line.startswith(("fun", "  (")):
                    continue
                yield "\n".join([*lines[:number], made, *lines[number + 1 :]]), number + 1
        yield from others(lines, number)
        for name in ("relu", "gelu", "unheads", "softmax {axis = -1}"):
            if f"{name} (" in line:
                made = line.replace(f"{name} (", "transpose (")
                yield "\n".join([*lines[:number], made, *lines[number + 1 :]]), number + 1


def others(lines, number):
    """Yield mutants that use another array of the program, known by then, in place of one."""
    line = lines[number]
    bound = re.compile(r"^\s*(?:let )?(?:val |\(|fun net \()(\w)\b")
    known = [match[1] for line in lines[:number] if (match := bound.match(line))]
    own = bound.match(line)
    for match in re.finditer(r"(?<![\w{])[a-z](?![\w:])", line):
        if (own and match.start() == own.start(1)) or match.group() not in known:
            continue
        for other in known:
            if other != match.group():
                made = line[: match.start()] + other + line[match.end() :]
                yield "\n".join([*lines[:number], made, *lines[number + 1 :]]), number + 1


ALL = [(text, *mutant) for text in NETWORKS for mutant in mutants(text)]


def run(text, sizes):
    """Which sizes NumPy runs; annotations are checked too."""
    fun = parse_program(text)[0]
    value = Evaluation([fun]).value("net")
    found = {}
    for h, w in sizes:
        arrays = []
        for pattern in fun.parameters:
            named = {"h": h, "w": w}
            shape = [getattr(s, "value", None) for s in pattern.type.sizes]
            names = [getattr(s, "name", None) for s in pattern.type.sizes]
            shape = [named[n] if v is None else v for v, n in zip(shape, names)]
            arrays.append(np.ones(shape, np.float32))
        result = value
        try:
            with np.errstate(all="ignore"):
                for array in arrays:
                    result = result(array)
            found[h, w] = arrays, result.shape
        except (ValueError, IndexError):
            found[h, w] = arrays, None
    return found


def near(text, line, error):
    """Whether an error names the line that was changed, or one that uses what it binds."""
    lines = text.split("\n")
    shown = re.findall(r"^\s*(\d+) \||\bat (\d+):\d+", str(error), re.MULTILINE)
    named = {int(line or other) for line, other in shown}
    bound = re.match(r"\s*(?:let )?(?:val |\(|fun net \()(\w)", lines[line - 1])
    users = {
        number
        for number, other in enumerate(lines, 1)
        if bound and re.search(rf"\b{bound[1]}\b", other)
    }
    return bool(named & (users | {line}))


def judge(chosen):
    sizes = list(product(range(1, 9), repeat=2))
    always = missed = placed = 0
    for _, text, line in chosen:
        outcome = run(text, sizes)
        fails = all(shape is None for _, shape in outcome.values())
        try:
            net = axon.load(text).net
        except AxonError as error:
            if not fails:
                pytest.fail(f"refused, but it runs:\n{text}\n{error}")
            always += 1
            placed += near(text, line, error)
            continue
        if fails:  # at these sizes; a guard such as w >= 16 holds beyond them
            outcome = run(text, product((*range(4, 13, 2), 16), repeat=2))
            fails = all(shape is None for _, shape in outcome.values())
        always += fails
        missed += fails
        for arrays, shape in outcome.values():
            try:
                said = tuple(size.value for size in net.check(*arrays).word)
            except AxonGuard:
                said = None
            assert said == shape, text
    assert always
    assert missed <= 0.02 * always, f"{missed} of {always} that always fail are not refused"
    assert placed >= 0.9 * (always - missed), f"{placed} of {always} places"
    return always, missed, placed


def test_the_networks_run():
    for text in NETWORKS:
        assert any(shape is not None for _, shape in run(text, [(4, 4), (8, 6)]).values())


def test_mutants():
    judge(random.Random(0).sample(ALL, 24))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("network", range(len(NETWORKS)))
def test_all_mutants(network):
    judge([(text, *mutant) for text in NETWORKS[network : network + 1] for mutant in mutants(text)])
