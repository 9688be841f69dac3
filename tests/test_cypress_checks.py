"""Illegal programs, refused by name before anything runs, and legal ones right beside them."""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tawa.cypress as cy
import tawa.language as tl
from tawa.cypress import BLOCK, GLOBAL, HOST, NONE, REGISTER, SHARED, THREAD, WARP, f16, f32
from tawa.errors import MappingError, OverBudget

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "08_cypress.py"
I, T16 = cy.Instance, cy.Tensor[f16, 2]


@pytest.fixture(scope="module")
def mapping():
    return runpy.run_path(str(EXAMPLE))["mapping"]()


@cy.leaf("move", reads="A", writes="C")
def move(C, A):
    return A + 1


def moved(body, reads="A", writes="C", leaf=move, mems=(GLOBAL, SHARED), level=BLOCK):
    """A program of one inner variant at HOST and one leaf; blocks are 16 x 64."""

    def host(C: T16, A: T16):
        c, a = (cy.blocks(t, (16, 64)) for t in (C, A))
        body(c, a)

    host.__annotations__ = {"C": T16, "A": T16}
    variant = cy.inner("move", reads=reads, writes=writes)(host)
    first = I("host", variant, HOST, [GLOBAL] * 2, calls=["leaf"], entry=True)
    return cy.program(cy.Mapping([first, I("leaf", leaf, level, list(mems))]))


def straight(c, a):
    for i, j in cy.prange(*c.grid):
        cy.launch("move", c[i, j], a[i, j])


def refused(match, run, *, why="", caret=True):
    with pytest.raises(MappingError, match=match) as caught:
        run()
    assert why in caught.value.why, str(caught.value)
    if caret:
        assert "^" in str(caught.value)


def test_the_straight_one_is_legal():
    program = moved(straight)
    a, c = np.zeros((24, 72), np.float16), np.zeros((24, 72), np.float16)
    program(c, a)
    np.testing.assert_array_equal(c, 1)


# --- prange: iterations are independent -----------------------------------------------------------


def each(index, kind="c", grid=lambda c: c.grid):
    def body(c, a):
        for i, j in cy.prange(*grid(c)):
            at = index(i, j)
            cy.launch("move", c[at], a[i, j])

    return body


OVERLAPS = {
    "half": (lambda i, j: (i // 2, j), "c[i//2, j] is the same block for i = 0, j = 0 and i ="),
    "one": (lambda i, j: (i, 0), "c[i, 0] is the same block for i = 0, j = 0 and i = 0, j = 1"),
    "sum": (lambda i, j: (i + j, i + j), "is the same block for"),
    "modulo": (lambda i, j: (i % 3, j), "c[i % 3, j] is the same block for"),
    "times": (lambda i, j: (i * j, j), "c[i*j, j] is the same block for"),
}
DISJOINT = {
    "turned": lambda i, j: (j, i),
    "spaced": lambda i, j: (2 * i + 1, j),
    "skew": lambda i, j: (i + j, j),
    "both": lambda i, j: (i + j, i - j),
    "more": lambda i, j: (i + 2 * j + 3, j * 5),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_iterations_that_write_one_block_are_refused(name):
    index, why = OVERLAPS[name]
    refused("prange over i, j writes overlapping parts of C", lambda: moved(each(index)), why=why)


@pytest.mark.parametrize("name", DISJOINT)
def test_iterations_that_write_blocks_of_their_own_are_not(name):
    moved(each(DISJOINT[name]))


@pytest.mark.parametrize(
    ("grid", "index", "legal"),
    [
        ((4, 2), lambda i, j: (2 * i + j, 0), True),
        ((4, 3), lambda i, j: (2 * i + j, 0), False),
        ((2, 2), lambda i, j: (i * 3 % 4, j), True),
        ((5, 2), lambda i, j: (i * 3 % 4, j), False),
        ((1, 4), lambda i, j: (0, j), True),
        ((2, 4), lambda i, j: (0, j), False),
        ((6, 1), lambda i, j: (i // 2 + i, j), True),
        ((1, 1), lambda i, j: (0, 0), True),
    ],
)
def test_known_extents_are_decided_exactly(grid, index, legal):
    body = each(index, grid=lambda c: grid)
    if legal:
        moved(body)
    else:
        refused("writes overlapping parts of C", lambda: moved(body))


def test_brute_force_agrees_with_the_answer_for_unknown_extents():
    for a in range(-2, 3):
        for b in range(-2, 3):
            for c in range(-2, 3):
                index = lambda i, j, a=a, b=b, c=c: (a * i + b * j + 8, c * j + 8)  # noqa: E731
                seen = {index(i, j) for i in range(6) for j in range(6)}
                if len(seen) == 36:
                    moved(each(index))
                else:
                    with pytest.raises(MappingError, match=r"writes overlapping|cannot show"):
                        moved(each(index))


def test_what_cannot_be_shown_is_said_so():
    far = lambda i, j: (i * 10 // 10 + (i // 40) * -40, j)  # noqa: E731
    refused("cannot show that its parts of C are disjoint", lambda: moved(each(far)))


def test_reading_what_another_iteration_writes_is_refused():
    def body(c, a):
        for i, j in cy.prange(*c.grid):
            cy.launch("move", c[i, j], c[i, j + 1])

    with pytest.raises(MappingError):
        moved(body, reads="A C")


# --- privileges -----------------------------------------------------------------------------------


@cy.leaf("move", reads="A C", writes="C")
def more(C, A):
    return A + C


@cy.leaf("move", reads="A", writes="C A")
def both(C, A):
    return A, A


@cy.leaf("move", reads="A", writes="C")
def sly(C, A):
    return A + C


@cy.leaf("move", reads="A", writes="C")
def nothing(C, A):
    A + 1


@cy.leaf("move", reads="A", writes="C")
def narrow(C, A):
    return tl.sum(A, 1)


PRIVILEGES = {
    '"host" reads C, which it declares writes': {"leaf": more, "mems": (SHARED, SHARED)},
    '"host" writes A, which it declares reads': {"leaf": both, "mems": (GLOBAL, SHARED)},
    '"leaf" reads C, which it declares writes': {"leaf": sly},
    '"leaf" returns 0 values, and declares writes="C"': {"leaf": nothing},
    r'"leaf" returns \[16\] for C, which is \[16, 64\]': {"leaf": narrow},
    '"host" reads A, which it declares writes': {"reads": "", "writes": "A C"},
    '"host" writes C, which it declares reads': {"reads": "A C", "writes": ""},
}


@pytest.mark.parametrize("words", PRIVILEGES)
def test_no_task_does_more_than_it_declares(words):
    refused(words, lambda: moved(straight, **PRIVILEGES[words]), caret=False)


def test_declaring_more_is_legal():
    moved(straight, reads="A C", writes="A C")


def test_parameters_are_declared_and_named_rightly():
    def leaf(C, A):
        return A

    refused("reads B, which is none", lambda: cy.leaf("m", reads="B", writes="C A")(leaf), caret=0)
    refused("neither reads nor writes A", lambda: cy.leaf("m", writes="C")(leaf), caret=False)
    refused("does not say the types", lambda: cy.inner("m", reads="A C")(leaf), caret=False)
    refused(r"no type of tensors", lambda: cy.Tensor[f16])
    refused(r"no type of tensors", lambda: cy.Tensor[f16, 6])


# --- variants -------------------------------------------------------------------------------------


def test_a_variant_is_traced_once_for_all_sizes():
    def choose(c, a):
        if c.grid[0] > 1:
            straight(c, a)

    def element(c, a):
        for i, j in cy.prange(*c.grid):
            cy.launch("move", c[i, j], a[i, j] + 1)

    def subscript(c, a):
        for i, j in cy.prange(*c.grid):
            a[i, j][0, 0]

    def leaves(c, a):
        for i, j in cy.prange(*c.grid):
            cy.launch("move", c[i, j], a[i, j])
            break

    def number(c, a):
        for i, j in cy.prange(*c.grid):
            cy.launch("move", c[i, j], 3)

    def rank(c, a):
        for i in cy.prange(c.grid[0]):
            cy.launch("move", c[i], a[i, 0])

    def python(c, a):
        for i in range(c.grid[0]):
            cy.launch("move", c[i, 0], a[i, 0])

    def past(c, a):
        cy.launch("move", c[0, -1], a[0, 0])

    refused("Python asks for the value of", lambda: moved(choose))
    refused("touches elements of a", lambda: moved(element))
    refused("touches elements of a", lambda: moved(subscript))
    refused("leaves a loop early", lambda: moved(leaves))
    refused("is no tensor: 3", lambda: moved(number))
    refused("c has 2 dimensions, the index 1", lambda: moved(rank))
    refused("Python asks for the value of", lambda: moved(python))
    refused("c has no part -1", lambda: moved(past))
    refused("outside of an inner variant", lambda: cy.launch("move"))
    refused("move is called", lambda: move(1, 2))


def test_sizes_are_divided_as_they_can_be():
    def turned(c, a):
        for i, j in cy.prange(*c.grid):
            cy.launch("move", c[i, j], a[8 % (i + 1), j])

    def fine(c, a):
        for i, j in cy.prange(*c.grid):
            cy.launch("move", c[i, j], a[(i - 1) // 2, 2 * j % 3])

    refused(r"\(8\) % \(i \+ 1\)", lambda: moved(turned))
    program = moved(fine)
    a = (np.arange(80 * 200) % 7).astype(np.float16).reshape(80, 200)
    ours, wanted = np.zeros_like(a), np.zeros_like(a)
    program(ours, a)
    program.sequential(wanted, a)
    np.testing.assert_array_equal(ours, wanted)


@cy.inner("rows", reads="A", writes="C")
def by_rows(C: T16, A: T16, *, N: int):
    c, a = (cy.blocks(t, (t.shape[0] // N, t.shape[1])) for t in (C, A))
    for i in cy.prange(N):
        cy.launch("rows", c[i, 0], a[i, 0])


@cy.inner("rows", reads="A", writes="C")
def by_tiles(C: T16, A: T16):
    c, a = (cy.blocks(t, (32, 64)) for t in (C, A))
    for i, j in cy.prange(*c.grid):
        cy.launch("rows", c[i, j], a[i, j])


@cy.leaf("rows", reads="A", writes="C")
def along(C, A):
    return A - tl.sum(A, 1)[:, None]


@cy.leaf("rows", reads="A", writes="C")
def down(C, A):
    return A - tl.sum(A, 0)[None, :]


@cy.leaf("rows", reads="A", writes="C")
def shaped(C, A):
    return A * A.shape[0]


@cy.leaf("rows", reads="A", writes="C")
def turned(C, A):
    if A.shape[0] == 32:
        return A / (A + 1)
    return (A + 1) / A


@cy.leaf("rows", reads="A", writes="C")
def placed(C, A):
    return A * tl.arange(0, 64)[None, :].to(tl.float16) * tl.arange(0, A.shape[0])[:, None]


@cy.leaf("rows", reads="A", writes="C")
def located(C, A):
    return A * tl.program_id(0)


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (along, ""),
        (down, "cannot be parted: 2 by rows over WARPGROUP"),
        (shaped, "computes with the shapes of its tensors"),
        (turned, "computes with the shapes of its tensors"),
        (placed, "cannot be parted: 2 by rows over WARPGROUP"),
        (located, "asks which block it runs in"),
    ],
)
def test_parts_of_a_leaf_are_the_leaf_of_parts(leaf, words):
    instances = [
        I("host", by_tiles, HOST, [GLOBAL] * 2, calls=["rows"], entry=True),
        I("rows", by_rows, BLOCK, [GLOBAL, SHARED], {"N": 2}, calls=["leaf"]),
        I("leaf", leaf, cy.WARPGROUP, [GLOBAL, SHARED]),
    ]
    lone = I("rows", leaf, BLOCK, [GLOBAL, SHARED])
    if words:
        refused(words, lambda: cy.program(cy.Mapping(instances)), caret=False)
    else:
        for kept in (instances, [instances[0], lone]):
            program = cy.program(cy.Mapping(kept))
            a = (np.arange(40 * 72) % 5 - 2).astype(np.float16).reshape(40, 72)
            ours, wanted = np.zeros_like(a), np.zeros_like(a)
            program(ours, a)
            program.sequential(wanted, a)
            np.testing.assert_array_equal(ours, wanted)
    if leaf in (down, shaped):
        cy.program(cy.Mapping([instances[0], lone]))


@cy.inner("rows", reads="A", writes="C")
def within(C: T16, A: T16):
    cy.launch("rows", C, A)


@cy.inner("rows", reads="A", writes="C")
def idle(C: T16, A: T16):
    half = cy.blocks(A, (16, 64))
    for _k in cy.srange(half.grid[0] - 2):
        cy.launch("rows", C, A)


@pytest.mark.parametrize("memories", [[SHARED, SHARED], [GLOBAL, SHARED], [SHARED, GLOBAL]])
def test_copies_stand_where_memories_ask_for_them(memories):
    instances = [
        I("host", by_tiles, HOST, [GLOBAL] * 2, calls=["block"], entry=True),
        I("block", within, BLOCK, memories, calls=["leaf"]),
        I("leaf", along, BLOCK, [SHARED, SHARED]),
    ]
    program = cy.program(cy.Mapping(instances))
    assert program.show("event").count("copy ") == 2
    a = (np.arange(40 * 72) % 5 - 2).astype(np.float16).reshape(40, 72)
    ours, wanted = np.zeros_like(a), np.zeros_like(a)
    program(ours, a)
    program.sequential(wanted, a)
    np.testing.assert_array_equal(ours, wanted)
    if memories[0] is SHARED:
        lazy = cy.Mapping(instances).with_("block", variant=idle)
        with pytest.raises(MappingError, match='"block" maps C to SHARED, and nothing writes it'):
            cy.program(lazy)


def test_blocks_inside_of_blocks_divide_them(mapping):
    refused("blocks of 48 do not divide 128", lambda: cy.program(_rows(mapping, 48)))
    cy.program(mapping.with_("tile", WGS=2))
    refused("blocks of 42 do not divide 128", lambda: cy.program(mapping.with_("tile", WGS=3)))


def _rows(mapping, rows):
    @cy.inner("mma", reads="C A B", writes="C")
    def tile(C: cy.Tensor[f32, 2], A: T16, B: T16):
        c, a = (cy.blocks(t, (rows, t.shape[1])) for t in (C, A))
        for i in cy.prange(2):
            cy.launch("mma", c[i, 0], a[i, 0], B)

    return mapping.with_("tile", variant=tile, tunables={})


# Annotations of local variants are read where they are written.
_rows.__globals__.update(cy=cy, f32=f32, T16=T16)


# --- mappings -------------------------------------------------------------------------------------

MAPPINGS = {
    'host" calls "blok", which is no instance': ("host", {"calls": ["blok"]}, "block"),
    r'"tile": WGS=0': ("tile", {"WGS": 0}, "1 or more"),
    r'"tile" has no WGs': ("tile", {"WGs": 2}, "WGS"),
    r'"block": pipeline=0': ("block", {"pipeline": 0}, "counts from 1"),
    "HOST does not see SHARED": ("host", {"mems": [SHARED, GLOBAL, GLOBAL]}, "HOST sees GLOBAL"),
    "BLOCK does not see REGISTER": ("tile", {"mems": [REGISTER, SHARED, SHARED]}, "BLOCK sees"),
    '"block" gives 2 memories': ("block", {"mems": [GLOBAL, GLOBAL]}, "3 tensors: C, A, B"),
    '"leaf": B of wgmma is mapped to REGISTER': (
        *("leaf", {"mems": [REGISTER, SHARED, REGISTER]}, "wgmma reads B from SHARED"),
    ),
    '"leaf" is a leaf and maps C to NONE': ("leaf", {"mems": [NONE, SHARED, SHARED]}, "elements"),
    '"tile" launches mma, and calls 0 instances': ("tile", {"calls": ["clear"]}, "clear (clear)"),
    '"warp" launches itself without end': ("warp", {"calls": ["warp"]}, "warp"),
    "and specialize=False": ("block", {"specialize": False}, "producer"),
    '"block" has persistent': (
        *("block", {"specialize": False, "pipeline": 1}, "are the producer's"),
    ),
    "parted for wgmma 64x64x16": ("wg", {"N": 64}, "one instruction wide"),
    "no wgmma of 64x20x16": ("wg", {"N": 20}, "multiple of 8"),
    'acc of "tile" is materialized|acc of "clear" is materialized|acc of "leaf"': (
        *("clear", {"level": BLOCK, "like": "", "mems": [SHARED]}, ""),
    ),
    '"clear" runs at THREAD, and no prange': ("clear", {"like": ""}, "one processor of many"),
    "does not start wgmma|parts of wgmma": ("wg", {"PROC": THREAD}, ""),
    "THREAD does not start wgmma|WARP does not start|is one of": (
        *("tile", {"calls": ["warp"]}, ""),
    ),
    'WARP does not start wgmma: no WARPGROUP stands above "warp"': ("wg", {"level": BLOCK}, "four"),
    "sets what a block is": ("tile", {"pipeline": 2}, "HOST launches"),
    "a mapping has one entry, this one 2": ("block", {"entry": True}, ""),
    "a mapping has one entry, this one 0": ("host", {"entry": False}, ""),
    "is no variant": ("leaf", {"variant": len}, ""),
    "go down|work goes down": ("block", {"level": WARP}, ""),
}


@pytest.mark.parametrize("words", MAPPINGS)
def test_mappings_that_do_not_fit_are_refused(mapping, words):
    name, changes, why = MAPPINGS[words]
    with pytest.raises(MappingError) as caught:
        cy.program(mapping.with_(name, **changes))
    text = str(caught.value)
    assert why in text, text
    if "|" not in words and "go down" not in words:
        assert words.replace("\\", "") in text, text
    assert is_listed(caught.value)


@cache
def listed():
    """The messages on the page of the error, as patterns, by the anchor that an error links to."""
    page = EXAMPLE.parent.parent / "docs" / "reference" / "errors" / "MappingError.md"
    lines = re.findall(r"^- <a id=\"(.*)\"></a>`(.*)`(?::|\.|$)", page.read_text(), re.M)
    assert len(lines) > 80
    return {anchor: re.escape(line).replace("…", ".*") for anchor, line in lines}


def is_listed(error):
    """Whether an error is on the page, where it says."""
    (note,) = error.__notes__
    page, anchor = note.split("#")
    assert page == "page: docs/reference/errors/MappingError.md"
    return re.fullmatch(listed()[anchor], error.what)


def _one(place, memory, *others):
    return {"mems": [memory if n == place else other for n, other in enumerate(others)]}


_INNER = ("host", "block", "tile", "wg", "warp")
MANY = {
    "HOST does not see": [
        ("host", _one(n, m, *[GLOBAL] * 3)) for n in range(3) for m in (SHARED, REGISTER)
    ],
    "BLOCK does not see REGISTER": [
        (name, _one(n, REGISTER, NONE, SHARED, SHARED))
        for name in ("block", "tile")
        for n in range(3)
    ],
    "is a leaf and maps . to NONE": [
        *(("leaf", _one(n, NONE, REGISTER, SHARED, SHARED)) for n in range(3)),
        *(("copy", _one(n, NONE, GLOBAL, REGISTER)) for n in range(2)),
    ],
    "gives . memories": [(name, {"mems": [NONE] * n}) for name in _INNER for n in (1, 4)],
    "launches itself without end": [("warp", {"calls": ["warp"]})],
    "which is no instance": [(name, {"calls": [f"{name}s"]}) for name in _INNER],
    "launches .*, and calls 0 instances": [(name, {"calls": ["clear"]}) for name in _INNER[2:]],
    "WGS=": [("tile", {"WGS": n}) for n in (0, -1, True, 1.5, "two")],
    "pipeline=": [("block", {"pipeline": n}) for n in (0, -1, True, 1.5)],
    "there is no wgmma of": [("wg", {"N": n}) for n in (4, 12, 20, 264, 512)],
    "instruction wide": [("wg", {"N": n}) for n in (8, 16, 32, 64)],
    "a part is a whole number of instructions": [
        *(("wg", {"N": n}) for n in (56, 136, 248, 256)),
        ("wg", {"calls": ["wg"]}),
        ("warp", {"PROC": WARP}),
    ],
    "parts of wgmma|does not start wgmma|is one of": [
        ("wg", {"PROC": THREAD}),
        ("tile", {"calls": ["warp"]}),
        ("wg", {"level": BLOCK}),
        ("warp", {"level": THREAD}),
    ],
    "sets what a block is": [
        (name, field)
        for name in ("tile", "wg", "leaf")
        for field in ({"pipeline": 2}, {"persistent": True}, {"cluster": 2})
    ],
    "this one [02]": [(name, {"entry": name != "host"}) for name in _INNER],
    "is no variant": [(name, {"variant": each}) for name in _INNER for each in (len, None)],
    "of wgmma is mapped to": [
        ("leaf", {"mems": [REGISTER, a, REGISTER]}) for a in (SHARED, REGISTER)
    ],
}


@pytest.mark.parametrize("words", MANY)
def test_each_way_to_say_what_does_not_fit_is_refused(mapping, words):
    for name, changes in MANY[words]:
        with pytest.raises(MappingError, match=words) as caught:
            cy.program(mapping.with_(name, **changes))
        assert is_listed(caught.value), (name, changes)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tile", {"WGS": 1}),
        ("block", {"pipeline": 1}),
        ("block", {"persistent": False}),
        ("block", {"cluster": 2}),
        ("leaf", {"mems": [REGISTER, REGISTER, SHARED]}),
        ("wg", {"mems": [NONE, NONE, SHARED]}),
    ],
)
def test_what_stands_beside_them_is_not(mapping, name, changes):
    cy.program(mapping.with_("host", U=64 if "WGS" in changes else 128).with_(name, **changes))


def test_the_nearest_name_is_proposed(mapping):
    with pytest.raises(MappingError, match=r"did you mean WGS\?"):
        mapping.with_("tile", WGSS=2)
    with pytest.raises(MappingError, match=r"did you mean block\?"):
        mapping.with_("blocks", W=2)


def test_splits_of_an_accumulator_are_alike(mapping):
    other = cy.lib.mma("other", WGS=1, N=128)
    apart = cy.Mapping([*mapping.instances, *other]).with_("clear", like="other")
    with pytest.raises(MappingError, match='"clear" is like "other", which nothing launches'):
        cy.program(apart)


@pytest.mark.parametrize(
    ("pipeline", "rows", "fits"), [(5, 128, 1), (6, 128, 1), (7, 128, 0), (8, 64, 1)]
)
def test_shared_memory_has_a_ceiling(mapping, pipeline, rows, fits):
    edited = mapping.with_("block", pipeline=pipeline).with_("host", U=rows)
    edited = edited.with_("tile", WGS=rows // 64)
    if fits:
        cy.program(edited).compile()
    else:
        with pytest.raises(OverBudget, match=r"needs 245,872 bytes of SHARED") as caught:
            cy.program(edited)
        assert "A x 7 slots: 114,688" in str(caught.value)


def maximum(a, b):
    return tl.maximum(a, b)


# --- the end of tensors ---------------------------------------------------------------------------


@cy.leaf("move", reads="A", writes="C")
def largest(C, A):
    return A - tl.max(A, 1)[:, None]


@cy.leaf("move", reads="A", writes="C")
def shifted(C, A):
    return A - tl.sum(A + 1, 1)[:, None]


@cy.leaf("move", reads="A", writes="C")
def running(C, A):
    return tl.cumsum(A, 1)


@cy.leaf("move", reads="A", writes="C")
def rising(C, A):
    return tl.associative_scan(A, 1, maximum, True)


@cy.leaf("move", reads="A", writes="C")
def exponents(C, A):
    return A - tl.sum(tl.exp(A.to(tl.float32)), 1)[:, None].to(tl.float16)


@cy.leaf("move", reads="A", writes="C")
def squares(C, A):
    return A - tl.dot((A + 1).T, A + 1).to(tl.float16)


@cy.leaf("move", reads="A", writes="C")
def centred(C, A):
    return A + 1 - tl.sum(tl.where(A > 0, A, -A) * 2 + tl.abs(A), 1)[:, None]


@pytest.mark.parametrize("leaf", [largest, shifted, rising, exponents])
def test_what_is_past_the_end_may_not_show(leaf):
    refused("depends on elements past the end", lambda: moved(straight, leaf=leaf), caret=False)


def test_sums_of_zeros_may():
    moved(straight, leaf=running)
    program = moved(straight, leaf=centred)
    a = (np.arange(24 * 72) % 5 - 2).astype(np.float16).reshape(24, 72)
    ours, wanted = np.zeros_like(a), np.zeros_like(a)
    program(ours, a)
    program.sequential(wanted, a)
    np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize(
    ("groups", "rows", "columns", "needed"),
    [(1, 128, 256, 256), (4, 256, 256, 128), (2, 128, 256, 0)],
)
def test_registers_have_a_budget(mapping, groups, rows, columns, needed):
    edited = mapping.with_("tile", WGS=groups).with_("block", pipeline=2)
    edited = edited.with_("host", U=rows, V=columns)
    edited = edited.with_("wg", N=columns).with_("warp", N=columns)
    if needed:
        with pytest.raises(OverBudget, match=f"holds {needed} registers through the loop over k"):
            cy.program(edited)
    else:
        cy.program(edited)


def test_registers_have_a_budget_without_roles(mapping):
    plain = mapping.with_("block", specialize=False, persistent=False, pipeline=1)
    plain = plain.with_("tile", WGS=4).with_("wg", N=256).with_("warp", N=256)
    with pytest.raises(
        OverBudget, match="holds 128 registers through the loop over k, and has 128"
    ):
        cy.program(plain.with_("host", U=256, V=256))
    three = plain.with_("tile", WGS=3).with_("host", U=192, V=256)
    assert "plan ordinary warps=12" in cy.program(three).show("plan")
