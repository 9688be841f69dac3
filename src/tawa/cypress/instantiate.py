"""The instantiated tree: variants traced, launches bound to instances, their parts followed down.

A node whose launches stay at BLOCK or above is one of control. A node that hands parts of its
tensors to warpgroups, warps or threads is spread: what stands below is one leaf, and which part of
each of its tensors a processor has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from math import prod

from tawa.cypress.checks import check_leaf_names, check_prange, check_privileges
from tawa.cypress.machine import BLOCK, HOST, THREAD, WARP, WARPGROUP
from tawa.cypress.mapping import Instance, Mapping, nearest
from tawa.cypress.size import Int, extent, key
from tawa.cypress.tensor import Tensor
from tawa.cypress.trace import Launch, Loop, traced, walk
from tawa.cypress.tree import Node, Operand, Part, Spread
from tawa.errors import MappingError
from tawa.integers.expressions import ONE, ZERO, Expr

_PROCESSORS = {WARP: 4, THREAD: 32}
_Called = tuple[str, tuple[tuple[Expr, ...], ...]]
"""An instance with the shapes of its tensors."""


def instantiate(mapping: Mapping) -> Node:
    """Return the tree of a mapping, from its entry; raises MappingError."""
    entry = mapping.entry
    variant = entry.variant
    if entry.level != HOST or not variant.inner:
        raise MappingError(
            f'the entry "{entry.name}" runs at {entry.level}',
            place=entry.place,
            why="a program starts at HOST, with an inner variant that launches blocks",
        )
    parameters: list[Tensor] = []
    for name, kind in zip(variant.parameters, variant.types, strict=True):
        if kind is None or kind.element is None:
            raise MappingError(
                f"{variant.name} does not say of which type the elements of {name} are",
                place=variant.place,
                why="a program's kernel is compiled for them",
                remedy=f"annotate it: {name}: cy.Tensor[cy.f16, 2]",
            )
        shape = tuple(extent(name, dim) for dim in range(kind.rank))
        parameters.append(Tensor(name, kind.element, shape))
    return _node(mapping, entry, tuple(parameters), (), count())


def _node(
    mapping: Mapping,
    instance: Instance,
    parameters: tuple[Tensor, ...],
    above: tuple[_Called, ...],
    unique: Iterator[int],
) -> Node:
    variant = instance.variant
    called = instance.name, tuple(tuple(map(key, p.shape)) for p in parameters)
    if called in above:
        raise instance.error(
            " launches itself without end",
            why=f"on the way down stand {' > '.join(name for name, _ in above)}",
            remedy="let calls end at a leaf",
        )
    if not variant.inner:
        check_leaf_names(instance)
        return Node(instance, parameters, (), ())
    run = lambda: variant.function(*parameters, **instance.tunables)  # noqa: E731
    equal: list[tuple[Int, Int]] = []
    statements = traced(variant.name, run, unique, equal)
    children: list[tuple[Launch, Node]] = []
    launches = [each for each, _ in walk(statements) if isinstance(each, Launch)]
    for launch in launches:
        chosen = _choose(mapping, instance, launch, [e for e in launches if e.task == launch.task])
        bound = _bind(instance, chosen, launch)
        children.append((launch, _node(mapping, chosen, bound, (*above, called), unique)))
    node = Node(instance, parameters, statements, tuple(children), tuple(equal))
    check_privileges(node)
    check_prange(node)
    return node


def _choose(mapping: Mapping, instance: Instance, launch: Launch, alike: list[Launch]) -> Instance:
    named = [mapping[name] for name in instance.calls]
    fit = [each for each in named if each.variant.task == launch.task]
    if len(fit) == 1:
        return fit[0]
    if len(fit) == len(alike):
        return fit[alike.index(launch)]
    tasks = [each.variant.task for each in named]
    raise instance.error(
        f" launches {launch.task}, and calls {len(fit)} instances of it for {len(alike)} launches",
        place=launch.place,
        why=f"its calls are {', '.join(f'{e.name} ({e.variant.task})' for e in named) or 'none'}",
        remedy=nearest(launch.task, tasks) or "name one instance for all launches, or one for each",
    )


def _bind(parent: Instance, child: Instance, launch: Launch) -> tuple[Tensor, ...]:
    variant = child.variant
    if len(launch.arguments) != len(variant.parameters):
        raise MappingError(
            f'the launch of {launch.task} gives {len(launch.arguments)} tensors to "{child.name}"',
            place=launch.place,
            why=f"{variant.name} has {', '.join(variant.parameters)}",
        )
    if child.level.depth < parent.level.depth:
        raise parent.error(
            f' at {parent.level} launches "{child.name}" at {child.level}',
            place=launch.place,
            why="work goes down the machine, never up",
        )
    bound: list[Tensor] = []
    for name, kind, given in zip(variant.parameters, variant.types, launch.arguments, strict=True):
        alike = kind is None or kind.element in (None, given.element)
        if kind is not None and not (alike and kind.rank == len(given.shape)):
            element = kind.element or "any type"
            raise child.error(
                f" takes {name} of {element} with {kind.rank} dimensions",
                place=launch.place,
                why=f"{given} is of {given.element} with {len(given.shape)}",
            )
        bound.append(Tensor(name, given.element, given.shape, bound=given))
    return tuple(bound)


def spread_of(root: Node, node: Node) -> Spread:
    """Return what a spread node, or a leaf that BLOCK launches, comes down to."""
    instance = node.instance
    given = zip(instance.variant.parameters, node.parameters, instance.mems, strict=True)
    operands = [Operand(name, tensor, (), (memory,)) for name, tensor, memory in given]
    while node.instance.variant.inner:
        loop, launch = _only_loop(node)
        child = node.child(launch)
        own = {id(p): each for p, each in zip(node.parameters, operands, strict=True)}
        operands = list[Operand]()
        for tensor, (name, memory) in zip(
            launch.arguments, child.instance.memory.items(), strict=True
        ):
            above = own.get(id(tensor.local))
            if above is None:
                raise node.instance.error(
                    f" gives {child.instance.name} a tensor of its own",
                    place=launch.place,
                    why="what parts tensors over processors of a block passes on parts of them",
                )
            parts = (*above.parts, _part(loop, node, child, tensor))
            operands.append(Operand(name, above.tensor, parts, (*above.memories, memory)))
        node = child
    leaf = node.instance
    if leaf.like:
        model = next((n for n in root.walk() if n.instance.name == leaf.like), None)
        if model is None:
            raise leaf.error(f' is like "{leaf.like}", which nothing launches')
        first = spread_of(root, model).operands[0].parts
        first = tuple(step for step in first if step.level.depth <= leaf.level.depth)
        operands = [replace(each, parts=first) for each in operands]
    elif leaf.level.depth > BLOCK.depth and not any(each.parts for each in operands):
        raise leaf.error(
            f" runs at {leaf.level}, and no prange stands between it and BLOCK",
            why="it is one processor of many that would run it",
            remedy='part its tensors by a prange, or write like="..." after another instance',
        )
    return Spread(leaf, tuple(operands))


def _only_loop(node: Node) -> tuple[Loop, Launch]:
    match node.statements:
        case (Loop(kind="prange", body=(Launch() as launch,)) as loop,):
            return loop, launch
        case _:
            raise node.instance.error(
                " parts tensors over processors of a block, and does more",
                place=node.instance.variant.place,
                why="such a variant is one prange with one launch",
                remedy="do the rest in a variant at BLOCK",
            )


def _part(loop: Loop, node: Node, child: Node, given: Tensor) -> Part:
    level, numbers = child.instance.level, [n for n in loop.extents if isinstance(n, int)]
    if len(numbers) < len(loop.extents):
        raise MappingError(
            f"{loop} runs {' x '.join(map(str, loop.extents))} times",
            place=loop.place,
            why=f"how many of {level} share a tile is known when it is compiled",
        )
    extent = prod(numbers)
    pieces = list(given.path[len(given.local.path) :])
    if len(pieces) > 1:
        raise MappingError(f"{given} is a part of a part", place=given.place)
    under = {WARP: WARPGROUP, THREAD: WARP}.get(level)
    missing = under and node.instance.level != under
    piece = pieces[0] if pieces else None
    if piece and piece.held:
        if piece.held.level != level or key(piece.index[0]) != key(loop.indices[0]):
            raise child.instance.error(
                f" at {level} is given {given}, {piece.held} by {piece.held.level}",
                place=given.place,
                why="the parts of wgmma go to the level that they are made for, one to each",
            )
        if missing or WARP not in {each.held.level for each in given.path if each.held}:
            raise MappingError(
                f'{level} does not start wgmma: no {under} stands above "{child.instance.name}"',
                place=loop.place,
                why="wgmma is of the four warps of a warpgroup, and of the 32 threads of each",
                remedy=f"part over it in an instance at {under}",
            )
        cut = {"A": (0,), "B": (), "BT": (), "C": (0, 1)}[piece.held.operand]
        return Part(level, extent, cut, piece.held)
    if extent > 1 and (missing or extent != _PROCESSORS.get(level, extent)):
        raise child.instance.error(
            f" is one of {extent} {level}s of a {node.instance.level}",
            place=loop.place,
            why="a warpgroup has four warps, and a warp 32 threads: all of them take part",
            remedy=f"part over {_PROCESSORS[level]} in an instance at {under}",
        )
    whole = zip(piece.of.shape, piece.block, piece.index, strict=True) if piece else ()
    counts = [(key(1 if key(s) == key(b) else s // b), key(i)) for s, b, i in whole]
    own = [
        (n, [d for d, (_, at) in enumerate(counts) if at == key(i)])
        for i, n in zip(loop.indices, numbers, strict=True)
    ]
    grid = [(n, dims[0] if dims else -1) for n, dims in reversed(own)]
    given_out = {dim: key(n) for n, dim in grid}
    alone = all(len(dims) < 2 for _, dims in own) and all(
        n == given_out[d] if d in given_out else (n, at) == (ONE, ZERO)
        for d, (n, at) in enumerate(counts)
    )
    grid = tuple(each for each in grid if each[0] > 1)
    if not alone or (level == WARPGROUP and len(grid) > 1):
        raise MappingError(
            f"{given} is not the part of one of {extent} {level}s",
            place=given.place,
            why="each index of the prange gets its own part of one dimension, and all are given; "
            "warpgroups share one dimension",
        )
    return Part(level, extent, tuple(sorted(d for _, d in grid if d >= 0)), grid=grid)
