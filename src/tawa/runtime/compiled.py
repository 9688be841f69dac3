"""A compiled kernel: every stage's text, what it costs, and what was proved. Needs no GPU.

The value is complete and immutable, so that it can be stored on disk and read back; what is
expensive and seldom wanted (PTX, SASS, the parsed IR) is computed when first asked for.

The stages of a compiled kernel: IR as text; PTX and SASS, computed when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, TypeAlias

from tawa.codegen.parameters import Parameter
from tawa.errors import BuildError
from tawa.frontend.signature import Argument, ConstantArg, DescriptorArg, PointerArg, TupleArg
from tawa.plan.plan import FULL_SPEED, Declined, Plan
from tawa.runtime.locks import Lock

if TYPE_CHECKING:
    from tawa.ir import tile
    from tawa.simulator.trace import Trace

Stage: TypeAlias = str | bytes
LEVELS = ("tile", "aref", "hopper", "cuda", "ptx", "cubin", "sass")
_BUILT = ("cubin", "sass")


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """How a kernel is launched: threads a block, dynamic shared bytes, blocks a cluster.

    `blocks` of them share a multiprocessor. A `persistent` kernel gets a grid of at most as many
    for each and walks the user's grid itself. One launched `early` begins while the kernel before
    it in the stream ends, and waits for it before it touches memory.
    """

    threads: int
    shared: int
    cluster: int = 1
    persistent: bool = False
    blocks: int = 1
    early: bool = False


@dataclass(frozen=True, slots=True)
class SharedBuffer:
    """A buffer (or array of barriers) in shared memory: bytes, and bytes from the start."""

    label: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RoleRegisters:
    """A role's warps, its register budget a thread, and the use found in SASS (None: unknown)."""

    label: str
    warps: int
    budget: int
    used: int | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What one block of the kernel takes. `spills` in bytes a thread, None where not known.

    No plan asks for local memory. ptxas takes `stack` bytes a thread of it where registers do not
    suffice and for arrays that are indexed late; `local_in_loops` instructions access it in loops
    of roles, where each iteration waits for them.
    """

    roles: tuple[RoleRegisters, ...] = ()
    buffers: tuple[SharedBuffer, ...] = ()
    barriers: tuple[tuple[str, int], ...] = ()
    shared: int = 0
    shared_limit: int = 0
    registers_at_launch: int = 0
    spills: int | None = None
    stack: int = 0
    local_in_loops: int = 0


@dataclass(frozen=True, slots=True)
class Proof:
    """The verdict of the protocol check: `ok`, states (or events) visited, and one sentence."""

    ok: bool
    states: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition the compiler relied on and only a launch can decide.

    `condition` is a host expression (`tawa.codegen.parameters`); `reason` says what was promoted
    under it. Where it is false, the kernel compiled without descriptors for pointers runs.
    """

    condition: str
    reason: str


@dataclass(frozen=True, slots=True)
class Demand:
    """A condition, as a guard's, of every launch; `refusal` says why one is refused otherwise."""

    condition: str
    refusal: str


def places_at(level: str) -> str:
    """Return the name of what tells the places of a stage's operations."""
    return f"{level} places"


class Assembly(Mapping[str, Stage]):
    """The kernel at every stage. A stage given as a function is computed once, when read.

    `programs` are stages whose IR is at hand, as the one that was just compiled. Beside the text of
    a stage of IR stands, not listed, where its operations stand in Python: errors of the simulator
    show it.
    """

    def __init__(
        self,
        stages: Mapping[str, Stage],
        later: Mapping[str, Callable[[], Stage]] = MappingProxyType({}),
        programs: Mapping[str, tile.Kernel] = MappingProxyType({}),
    ) -> None:
        self._stages = dict(stages)
        self._later = dict(later)
        self._programs = dict(programs)
        self._lock = Lock()

    def __getitem__(self, level: str) -> Stage:
        """Return a stage; KeyError names the stages there are."""
        with self._lock:
            if (stage := self._stages.get(level)) is not None:
                return stage
            if (compute := self._later.get(level)) is None:
                unbuilt = level in _BUILT and "cubin" not in self._stages
                more = "; launches on the CPU build none: compile(...) does" if unbuilt else ""
                raise KeyError(f"no stage {level!r}; there are {', '.join(self)}{more}")
            return self._stages.setdefault(level, compute())

    def __iter__(self) -> Iterator[str]:
        return (level for level in LEVELS if level in self._stages or level in self._later)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def text(self, level: str) -> str:
        """Return a stage that is text; TypeError for the cubin."""
        stage = self[level]
        if not isinstance(stage, str):
            raise TypeError(f"the stage {level!r} is binary")
        return stage

    def program(self, level: str) -> tile.Kernel:
        """Return the IR of a stage, read from its text once. All share it: change a clone."""
        text = self.text(level)
        with self._lock:
            if (known := self._programs.get(level)) is not None:
                return known
        from tawa import ir
        from tawa.ir.text import put_places

        kernel = ir.parse(text)
        put_places(kernel, self.text(places_at(level)))
        return self._programs.setdefault(level, kernel)

    def forget_programs(self) -> None:
        """Give the memory of the IR back; the texts stay."""
        self._programs.clear()

    @property
    def ready(self) -> Mapping[str, Stage]:
        """The stages that are at hand without computing anything."""
        return MappingProxyType(self._stages)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledKernel:
    """A kernel compiled for one signature. `timings` in seconds by phase, in order.

    `name` is the user's function, `entry` the symbol in the cubin. Printing it gives the report.

    >>> @tawa.jit
    ... def double(x, n, B: tl.constexpr):
    ...     at = tl.program_id(0) * B + tl.arange(0, B)
    ...     tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
    >>> made = double.compile(tawa.array((200,), "f32"), 200, B=64)
    >>> made.name, made.plan.specialized, made.resources.spills
    ('double', False, 0)
    """

    name: str
    entry: str
    signature: Mapping[str, Argument]
    plan: Plan
    asm: Assembly
    launch: LaunchShape
    parameters: tuple[Parameter, ...]
    resources: Resources
    proof: Proof
    timings: Mapping[str, float] = field(default_factory=dict[str, float])
    declined: tuple[Declined, ...] = ()
    guards: tuple[Guard, ...] = ()
    demands: tuple[Demand, ...] = ()
    again: Callable[..., CompiledKernel] | None = None

    def __getitem__(self, grid: object) -> Callable[..., CompiledKernel]:
        """Return the function of a compiled kernel on a grid, as ``kernel.warmup(...)[grid]``: with
        the constants, which may be left out, and the options that it was compiled with. Like any
        launch it is one of what its arguments are, which need not be this kernel. Raises TypeError
        for a kernel without Python source.
        """
        if self.again is None:
            raise TypeError(f"{self.name} was compiled from IR: launch what compile_ir returned")
        return partial(self.again, grid)

    def _init_handles(self) -> None:  # pyright: ignore[reportUnusedFunction]
        """Do nothing: in Triton it loads the kernel, here the first launch does."""

    @property
    def cubin(self) -> bytes:
        """The binary for the GPU."""
        binary = self.asm["cubin"]
        if not isinstance(binary, bytes):
            raise TypeError("the stage 'cubin' is text")
        return binary

    @property
    def n_regs(self) -> int:
        """Registers that a launch takes a thread, as Triton calls it, 0 where that is not known:
        with roles what each has before they pass registers on."""
        if len(self.resources.roles) > 1:
            return self.resources.registers_at_launch
        return max((role.used or 0 for role in self.resources.roles), default=0)

    @property
    def n_spills(self) -> int:
        """Words of 4 bytes of local memory a thread, as Triton counts spills."""
        return self.resources.stack // 4

    @property
    def metadata(self) -> SimpleNamespace:
        """`name`, `num_warps` and `shared` (bytes) of a block; likewise."""
        warps = self.launch.threads // 32
        return SimpleNamespace(name=self.name, num_warps=warps, shared=self.launch.shared)

    def __str__(self) -> str:
        return "\n".join(report(self))

    def html(self, timeline: Trace | None = None) -> str:
        """Return one HTML page, for a browser: source, every stage and the report, linked by line.

        `timeline` is what `tawa.simulate` returned for a run of this kernel.

        >>> Path("kernel.html").write_text(kernel.compile(...).html())  # doctest: +SKIP
        """
        from tawa.runtime.page import page

        return page(self, timeline)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, so that a notebook's styles do not meet it."""
        from html import escape

        frame = 'style="width:100%;height:900px;border:0"'
        return f'<iframe {frame} srcdoc="{escape(self.html())}"></iframe>'

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name}({', '.join(spell_signature(self.signature))})>"


def spell_signature(signature: Mapping[str, Argument]) -> list[str]:
    """Return each parameter as a user reads it: ``a: *bf16 (16-byte aligned)``, ``K: i32``."""
    return [
        f"{name} {spell_argument(argument)}"
        if isinstance(argument, ConstantArg)
        else f"{name}: {spell_argument(argument)}"
        for name, argument in signature.items()
    ]


def spell_argument(argument: Argument) -> str:
    """Return one parameter's type as a user reads it."""
    match argument:
        case ConstantArg():
            value = argument.value
            return f"= {getattr(value, '__name__', None) or repr(value)}"
        case DescriptorArg():
            block = "x".join(map(str, argument.block_shape))
            ends = " (rows end inside 16 bytes)" if argument.ragged else ""
            windows = f"windows of {argument.window}, " if argument.window else ""
            return f"descriptor of {windows}{argument.dtype}[{block}]{ends}"
        case TupleArg():
            return f"({', '.join(argument.items)})"
        case PointerArg():
            return f"*{argument.dtype}" + (" (16-byte aligned)" if argument.divisible else "")
        case _:
            divisor = 16 if argument.divisible else 8 if argument.by_eight else 1
            return argument.dtype + (f" (divisible by {divisor})" if divisor > 1 else "")


def report(kernel: CompiledKernel) -> Iterator[str]:
    """Yield the lines of the readable report: roles, arefs, memory, proof, declined, times."""
    yield f"kernel {kernel.name}"
    declined = (*kernel.plan.declined, *kernel.declined)
    slow = [item.reason for item in declined if item.feature == FULL_SPEED]
    yield from _section("warning", list(dict.fromkeys(slow)))
    yield from _section("arguments", spell_signature(kernel.signature))
    yield from _section("launch", [_launch(kernel.launch)])
    yield from _section("roles", _roles(kernel))
    yield from _section("arefs", _arefs(kernel.plan))
    yield from _section("loops", _loops(kernel.plan))
    yield from _section("stores", _stores(kernel.plan))
    yield from _section("shared memory", _shared(kernel.resources))
    yield from _section("guards at launch", [f"{g.condition}: {g.reason}" for g in kernel.guards])
    yield from _section("proof", [_proof(kernel.proof)])
    others = (item for item in declined if item.feature != FULL_SPEED)
    unique = dict.fromkeys(f"{item.feature}: {item.reason}" for item in others)
    yield from _section("declined", list(unique))
    yield from _section("compile time", _times(kernel.timings))


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if not lines:
        return
    yield f"  {title}"
    yield from (f"    {line}" for line in lines)


def _launch(launch: LaunchShape) -> str:
    parts = [f"{launch.threads} threads", f"{launch.shared:,} bytes of shared memory"]
    if launch.cluster > 1:
        parts.append(f"clusters of {launch.cluster}")
    if launch.blocks > 1:
        parts.append(f"{launch.blocks} blocks a multiprocessor")
    if launch.persistent:
        parts.append("persistent")
    if launch.early:
        parts.append("begins while the kernel before it ends")
    return ", ".join(parts)


def _roles(kernel: CompiledKernel) -> list[str]:
    if not kernel.plan.specialized:
        found = kernel.resources.roles
        use = f", {found[0].used} registers" if found and found[0].used is not None else ""
        kind = f"none: an ordinary kernel of {kernel.plan.warps} warps{use}"
        return [kind, *(_local(kernel.resources) if kernel.resources.stack else ())]
    used = {role.label: role.used for role in kernel.resources.roles}
    lines: list[str] = []
    for role in kernel.plan.roles:
        copies = f"{role.instances} x " if role.instances > 1 else ""
        count = used.get(role.label)
        use = "" if count is None else f" ({count} used)"
        lines.append(f"{role.label}: {copies}{role.warps} warps, {role.registers} registers{use}")
    lines.append(f"consumers: {kernel.plan.arrangement}")
    return [*lines, *_local(kernel.resources)]


def _local(resources: Resources) -> list[str]:
    if resources.spills is None:
        return []
    text = f"spills: {resources.spills} bytes a thread"
    if not resources.stack:
        return [text]
    count = resources.local_in_loops
    where = f"{count} accesses" if count else "no access"
    return [text, f"stack: {resources.stack} bytes a thread, {where} in loops of roles"]


def _arefs(plan: Plan) -> list[str]:
    by = {
        "tma": "by TMA",
        "copy_async": "by cp.async of the producer's threads"
        if plan.specialized
        else "by cp.async, copied ahead",
        "transpose": "transposed in shared memory",
    }
    return [
        f"{aref.label}: depth {aref.depth}, {by[aref.via]}"
        + (", K interleaved" if aref.interleaved else "")
        for aref in plan.arefs
    ]


def _loops(plan: Plan) -> list[str]:
    return [f"{loop.loop}: {loop.schedule}, mma depth {loop.mma_depth}" for loop in plan.loops]


def _stores(plan: Plan) -> list[str]:
    return [
        f"{store.store}: {'by TMA' if store.via == 'tma' else 'from registers'}"
        + (f" in {store.parts} parts" if store.parts > 1 else "")
        + (f" through {store.places} places" if store.places > 1 else "")
        + (f" through the slot of {store.stage}" if store.stage else "")
        + (f", evict {store.eviction}" if store.eviction else "")
        for store in plan.stores
    ]


def _shared(resources: Resources) -> list[str]:
    lines = [f"{buffer.bytes:>9,}  {buffer.label}" for buffer in resources.buffers]
    lines += [f"{8 * count:>9,}  {label} ({count} barriers)" for label, count in resources.barriers]
    if resources.shared:
        limit = f" of {resources.shared_limit:,}" if resources.shared_limit else ""
        lines.append(f"{resources.shared:>9,}  in all{limit}")
    return lines


def _proof(proof: Proof) -> str:
    verdict = "ok" if proof.ok else "FAILED"
    return f"{verdict}, {proof.states:,} states: {proof.verdict}"


def _times(timings: Mapping[str, float]) -> list[str]:
    if not timings:
        return []
    lines = [f"{seconds * 1e3:8.1f} ms  {phase}" for phase, seconds in timings.items()]
    return [*lines, f"{sum(timings.values()) * 1e3:8.1f} ms  in all"]


# --- stages ---------------------------------------------------------------------------------------


def stage_of(level: str, kernel: tile.Kernel) -> dict[str, Stage]:
    """Return a stage of IR as text, and where its operations stand in Python."""
    from tawa.ir.text import places_of, text_of

    return {level: text_of(kernel), places_at(level): places_of(kernel)}


def with_later(
    stages: Mapping[str, Stage], programs: Mapping[str, tile.Kernel] = MappingProxyType({})
) -> Assembly:
    """Return the assembly of finished stages, with PTX and SASS to be made from them."""
    later: dict[str, Callable[[], Stage]] = {}
    source, cubin = stages.get("cuda"), stages.get("cubin")
    if isinstance(source, str) and "ptx" not in stages:
        later["ptx"] = partial(_ptx, source)
    if isinstance(cubin, bytes) and "sass" not in stages:
        later["sass"] = partial(_sass, cubin)
    return Assembly(stages, later, programs)


def _ptx(source: str) -> str:
    from tawa.runtime import nvrtc

    return nvrtc.build(source, ptx=True).ptx


def _sass(cubin: bytes) -> str:
    from tawa.runtime import sass

    if not (listing := sass.disassemble(cubin)):
        raise BuildError(
            "there is no nvdisasm to show SASS with",
            why="it comes with the package nvidia-cuda-nvdisasm",
            remedy="pip install 'tawa[sass]'",
        )
    return listing
