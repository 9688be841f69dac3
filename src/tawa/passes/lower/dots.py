"""Products: each `tile.dot` becomes the best instruction that takes it.

Purpose: choose wgmma, mma.sync or fused multiply-add, and bring the operands where it wants them.
Before -> after:
    %a, %b : views of slots                     %acc' = hopper.wgmma %a_view, %b_view, %acc if %more
    %acc' = tile.dot %a, %b, %acc       ->      (later) fence, commit and wait by `waits`
Requires: rings lowered (slots are views). Ensures: no `tile.dot` is left; a product whose
accumulator starts at zero takes it as zero by predicate (right for loops of no iteration: the
constant stays). Declines when: named in the notes: `wgmma: ...` with the rule, and the instruction
taken instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from xdsl.dialects import scf
from xdsl.dialects.builtin import Float32Type, IntAttr
from xdsl.ir import Attribute, BlockArgument, SSAValue

from tawa.analysis.hardware import K_BYTES, tensor_core_objection
from tawa.analysis.statements import name_of
from tawa.errors import PlanError, ShapeUnsupported
from tawa.ir import hopper, place_of, tile
from tawa.ir.types import Real, bit_width, element_type, i1, shape_of, spell, with_shape
from tawa.ir.walk import all_of, terminator, walk
from tawa.layouts.fragments import share_out
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.context import Lowering, role_of
from tawa.passes.lower.emit import Emitter, append_operands, replace, widen_for
from tawa.passes.lower.operands import operand_a, operand_a_view, operand_b, stage
from tawa.passes.lower.views import as_view, slice_view, view_kind

_WARPGROUP = 4


@dataclass(frozen=True, slots=True)
class Product:
    """The facts of one dot that decide its instruction."""

    m: int
    n: int
    k: int
    a: Attribute
    b: Attribute
    acc: Attribute
    precision: str
    warps: int
    by_columns: bool

    @property
    def bits(self) -> int:
        """Width of the operands' elements."""
        return bit_width(self.a)


def lower_dots(lowering: Lowering) -> None:
    """Replace every dot of the kernel. Raises `PlanError` for an operand that has no choice."""
    for role in lowering.roles:
        for dot in all_of(role, tile.Dot):
            _lower_dot(lowering, dot)


def facts_of(lowering: Lowering, dot: tile.Dot, warps: int) -> Product:
    """Return the facts of a dot. Raises `ShapeUnsupported` for a batch of products."""
    shape_a, shape_b = shape_of(dot.a.type), shape_of(dot.b.type)
    if len(shape_a) != 2:
        raise ShapeUnsupported(
            f"a dot of {spell(dot.a.type)} and {spell(dot.b.type)}",
            place=place_of(dot),
            why="the tensor cores multiply matrices of two dimensions.",
            remedy="loop over the batch, or give it an axis of the grid.",
        )
    return Product(
        shape_a[0],
        shape_b[1],
        shape_a[1],
        element_type(dot.a.type),
        element_type(dot.b.type),
        element_type(dot.acc.type),
        dot.precision.data,
        warps,
        lowering.by_columns,
    )


def _tensor_core_objection(product: Product) -> str:
    types = product.a, product.b, product.acc
    return tensor_core_objection(*types, product.k, product.precision)


def wgmma_objection(product: Product) -> str:
    """Return the rule by which wgmma does not take a product, or nothing."""
    if objection := _tensor_core_objection(product):
        return objection
    if product.warps % _WARPGROUP:
        return f"{product.warps} warps are not whole warpgroups"
    if product.m % 64:
        return f"M = {product.m} is not a multiple of 64"
    _, across = share_out(product.m, product.warps, product.by_columns)
    if product.n % (8 * across):
        return f"N = {product.n} is not a multiple of {8 * across}"
    return ""


def mma_objection(product: Product) -> str:
    """Return the rule by which mma.sync does not take a product, or nothing."""
    if objection := _tensor_core_objection(product):
        return objection
    if product.m % 16 or product.n % 8:
        return f"{product.m} x {product.n} is not made of 16 x 8 fragments"
    return ""


def _lower_dot(lowering: Lowering, dot: tile.Dot) -> None:
    product = facts_of(lowering, dot, role_of(dot).warps.data)
    objection = wgmma_objection(product)
    if not objection:
        _emit_wgmma(lowering, dot, product)
        return
    name = name_of(dot)
    if place := lowering.operand_plan(dot):
        raise PlanError(
            f"operand {name} a={place}",
            why=f"wgmma does not take this product: {objection}",
            remedy="leave it out",
        )
    if not (also := mma_objection(product)):
        lowering.note(f"wgmma for {name}", f"{objection}; mma.sync is used")
        _emit_mma(dot, product)
        return
    lowering.note(f"tensor cores for {name}", f"{also}; fused multiply-add is used")
    _emit_fma(lowering, dot)


# --- wgmma --------------------------------------------------------------------------------------


def _emit_wgmma(lowering: Lowering, dot: tile.Dot, product: Product) -> None:
    emitter = Emitter.before(dot)
    acc = _widened(emitter, dot.acc)
    if 0 <= dot.max_imprecise.data <= product.k and product.bits == 8:
        replace(dot, [_narrowed(emitter, _promoted(lowering, dot, acc), dot.result.type)])
        return
    a = operand_a(lowering, emitter, dot)
    b = operand_b(lowering, emitter, dot)
    accumulate = _accumulate(lowering, dot) if acc is dot.acc else None
    wgmma = emitter.put(hopper.Wgmma.make(a, b, acc, accumulate, results=[acc.type]))
    replace(dot, [_narrowed(emitter, wgmma.result, dot.result.type)])


def _promoted(lowering: Lowering, dot: tile.Dot, acc: SSAValue) -> SSAValue:
    """Sum an 8-bit product in runs of at most `max_imprecise` of K, each added to `acc` in fp32.

    wgmma keeps fewer bits than fp32 while it accumulates 8-bit products; the additions do not.
    """
    emitter = Emitter.before(dot)
    a = operand_a_view(lowering, emitter, dot)
    b = operand_b(lowering, emitter, dot)
    k = view_kind(b).shape[0]
    run = promotion_run(k, dot.max_imprecise.data)
    for start in range(0, k, run):
        zero = emitter.put(tile.Constant.make(results=[acc.type], value=Real(0.0))).result
        part = hopper.Wgmma.make(
            slice_view(emitter, a, 1, start, run),
            slice_view(emitter, b, 0, start, run),
            zero,
            [emitter.constant(0, i1, "from_zero")],
            results=[acc.type],
        )
        acc = emitter.apply("add", acc, emitter.put(part).result)
    return acc


def promotion_run(k: int, most: int) -> int:
    """Return the K of one run: whole steps of wgmma, at most `most` (one step at least)."""
    steps = k // K_BYTES
    return K_BYTES * next(
        run for run in range(max(1, min(steps, most // K_BYTES)), 0, -1) if steps % run == 0
    )


def _widened(emitter: Emitter, acc: SSAValue) -> SSAValue:
    """Return an accumulator of 32 bits: fp16 sums are made in fp32 and rounded once a product."""
    if bit_width(element_type(acc.type)) == 32:
        return acc
    wide = with_shape(shape_of(acc.type), Float32Type())
    return emitter.put(tile.Cast.make(acc, results=[wide])).result


def _narrowed(emitter: Emitter, result: SSAValue, kind: Attribute) -> SSAValue:
    if result.type == kind:
        return result
    return emitter.put(tile.Cast.make(result, results=[kind])).result


# --- the accumulator's start --------------------------------------------------------------------


def is_zero(value: SSAValue) -> bool:
    """Tell whether a value is the constant zero."""
    match value.owner:
        case tile.Constant(value=IntAttr() | Real() as number):
            return number.data == 0
        case tile.Splat() | tile.Cast() as inner:
            return is_zero(inner.value)
        case _:
            return False


def _accumulate(lowering: Lowering, dot: tile.Dot) -> SSAValue | None:
    """Return the predicate (i1) "add to the accumulator", None where it always is.

    False for a product that starts from zero; "not the first iteration" for one whose loop starts
    the accumulator at zero and touches it nowhere else.
    """
    acc = dot.acc
    if is_zero(acc):
        return Emitter.before(dot).constant(0, i1, "from_zero")
    if (
        not isinstance(acc, BlockArgument)
        or acc.owner is not dot.parent
        or acc.has_more_than_one_use()
    ):
        return None
    loop = acc.owner.parent_op()
    if not isinstance(loop, scf.ForOp) or acc.index == 0:
        return None
    if not is_zero(loop.iter_args[acc.index - 1]):
        return None
    iteration = trip_counter(lowering, loop)
    emitter = Emitter.before(dot)
    return emitter.apply("gt", iteration, emitter.constant(0), hint="more")


def trip_counter(lowering: Lowering, loop: scf.ForOp) -> SSAValue:
    """Return the loop-carried count of finished iterations (i32), adding it when it is not there.

    The loop operation may be rebuilt; its body block stays.
    """
    block = loop.body.block
    if block in lowering.iterations:
        return lowering.iterations[block]
    wide = widen_for(loop, [Emitter.before(loop).constant(0)])
    wide.results[-1].name_hint = "iteration_end"
    iteration = block.args[-1]
    iteration.name_hint = "iteration"
    lowering.iterations[block] = iteration
    end = terminator(block)
    emitter = Emitter.before(end)
    append_operands(
        end, [emitter.apply("add", iteration, emitter.constant(1), hint="next_iteration")]
    )
    return iteration


# --- other instructions -------------------------------------------------------------------------


def _emit_mma(dot: tile.Dot, product: Product) -> None:
    emitter = Emitter.before(dot)
    acc = _widened(emitter, dot.acc)
    mma = emitter.put(
        hopper.Mma.make(dot.a, dot.b, acc, results=[acc.type], precision=product.precision)
    )
    replace(dot, [_narrowed(emitter, mma.result, dot.result.type)])


def _emit_fma(lowering: Lowering, dot: tile.Dot) -> None:
    emitter = Emitter.before(dot)
    views: list[SSAValue] = []
    for value, which in ((dot.a, "a"), (dot.b, "b")):
        view = as_view(emitter, value, dot)
        if view is None:
            # Rows are read one element at a time; no swizzle is needed for that.
            shape = shape_of(value.type)
            element = element_type(value.type)
            layout = SharedLayout(shape, (0, 1), max(8, bit_width(element)), 0)
            view = stage(lowering, emitter, value, layout, f"{name_of(dot)} {which}")
        views.append(view)
    fma = emitter.put(hopper.FmaDot.make(*views, dot.acc, results=[dot.result.type]))
    replace(dot, [fma.result])


def narrow_panels(lowering: Lowering) -> None:
    """Settle the bytes of K that a panel of 8-bit tiles may hold: 128, or what runs divide into."""
    runs = [
        promotion_run(shape_of(op.a.type)[-1], op.max_imprecise.data)
        for op in walk(lowering.kernel)
        if isinstance(op, tile.Dot) and bit_width(element_type(op.a.type)) == 8
        if op.max_imprecise.data <= shape_of(op.a.type)[-1]
    ]
    lowering.widest_run = min((gcd(128, run) for run in runs), default=128)
