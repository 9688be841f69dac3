"""NVRTC builds, its log, and what is read from machine code."""

import re
import struct

import pytest

from tawa.errors import BuildError
from tawa.runtime import nvrtc, sass

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
needs_nvdisasm = pytest.mark.skipif(
    nvrtc.is_available() and sass.find_nvdisasm() is None, reason="nvdisasm is not installed"
)

KERNEL = 'extern "C" __global__ void k(float* x, int n) { for (int i = 0; i < n; ++i) x[i] += 1; }'


@needs_nvrtc
def test_build_gives_a_cubin_and_its_numbers() -> None:
    cubin = nvrtc.build(KERNEL, "k", ptx=True)
    assert cubin.data[:4] == b"\x7fELF"
    assert 0 < cubin.registers <= 64
    assert cubin.spill_bytes == 0
    assert cubin.seconds > 0
    assert ".entry k(" in cubin.ptx


@needs_nvrtc
def test_refused_text_raises_with_the_log() -> None:
    with pytest.raises(BuildError) as caught:
        nvrtc.build('extern "C" __global__ void k() { undeclared(); }', "broken")
    assert "broken.cu(1)" in str(caught.value)
    assert "undeclared" in str(caught.value)


@pytest.mark.parametrize("code", ["C7504", "C7508", "C7509", "C7510", "C7512", "C7515"])
def test_defects_in_the_log_raise(code: str) -> None:
    what = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to"
    with pytest.raises(BuildError, match=r"compiles badly"):
        nvrtc.check_log(f"ptxas info    : ({code}) {what} something in function 'k'", "k")


def test_information_in_the_log_passes() -> None:
    nvrtc.check_log(
        "ptxas info    : (C7519) Potential Performance Loss: spills\nUsed 168 registers"
    )


# Without its pin the accumulator is written between products, and ptxas gives the pipeline up.
SERIALISED = """
extern "C" __global__ void __launch_bounds__(128, 1) k(float* x, unsigned long long d, int n) {
  float acc[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, "
                 "%4, %4, 1, 1, 1, 0, 0;"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]) : "l"(d));
    acc[0] += 1;
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  x[threadIdx.x] = acc[0] + acc[1] + acc[2] + acc[3];
}
"""


@needs_nvrtc
def test_a_serialised_product_is_refused() -> None:
    with pytest.raises(BuildError, match="wgmma is serialised"):
        nvrtc.build(SERIALISED, "serialised")
    assert nvrtc.build(SERIALISED, "serialised", strict=False).data


@needs_nvrtc
def test_loops_are_found() -> None:
    report = sass.inspect(nvrtc.build(KERNEL, "k").data)
    assert report.loops >= 1
    assert report.hgmma == 0
    assert report.defects == ()


CODES = {
    "NOP": (0x918, 0),
    "EXIT": (0x94D, 0),
    "BRA": (0x947, 0),
    "LDL": (0x983, 0),
    "STL": (0x387, 0),
    "HGMMA": (0x9F0, 0),
    "UTMALDG": (0x5B4, 0),
    "LDGSTS": (0xFAE, 0),
    "SYNCS.ARRIVE": (0x9A7, 0x1000),
    "SYNCS.PHASECHK": (0x5A7, 0x1),
    "MEMBAR.CTA": (0x992, 0x8000),
    "MEMBAR.GPU": (0x992, 0xA000),
}


def assembled(text: str) -> bytes:
    """Machine code of labels, and of instructions that run always or where P0 is not set."""
    labels: dict[str, int] = {}
    lines: list[list[str]] = []
    for line in text.split("\n"):
        if line.endswith(":"):
            labels[line[:-1].strip()] = len(lines)
        elif line.strip():
            lines.append(line.split())
    words: list[int] = []
    for place, (*unless, name, operand) in enumerate(
        [*w, ""] if w[-1] in CODES else w for w in lines
    ):
        low, high = CODES[name]
        distance = 4 * (labels[operand] - place - 1) if operand else 0
        low |= (
            (8 if unless else 7) << 12
            | (distance & 0xFF) << 16
            | (distance >> 8 & 0x3FFFFFFF) << 34
        )
        words += [low, high | 7 << 23 | distance >> 38 & 0x3FFFF]
    return struct.pack(f"<{len(words)}Q", *words)


PERSISTENT = """
    NOP
outer:
    MEMBAR.GPU
main:
    SYNCS.PHASECHK
    unless BRA spin
back:
    HGMMA
    {inside}
    unless BRA main
    STL
    unless BRA outer
    EXIT
spin:
    SYNCS.PHASECHK
    unless BRA spin
    BRA back
end:
    BRA end
"""


@pytest.mark.parametrize(
    ("inside", "membars", "spills"),
    [
        ("NOP", 0, 0),
        ("MEMBAR.GPU", 1, 0),
        ("MEMBAR.CTA", 0, 0),
        ("STL", 0, 1),
        ("LDL", 0, 1),
    ],
)
def test_defects_count_in_the_main_loop_only(inside: str, membars: int, spills: int) -> None:
    report = sass.inspect_code(assembled(PERSISTENT.replace("{inside}", inside)))
    assert (report.membar_in_loop, report.local_in_loops) == (membars, spills)
    assert (report.hgmma, report.loops) == (1, 4)
    assert bool(report.defects) == bool(membars or spills)
    assert report.local_of_helpers == 0
    # The persistent loop's spill and fence are outside the main loop.
    assert report.local_accesses == 1 + spills


PRODUCER = """
tiles:
    STL
trips:
    SYNCS.PHASECHK
    unless BRA trips
    LDL
lanes:
    {work}
    unless BRA lanes
    unless BRA trips
    unless BRA tiles
    EXIT
"""


@pytest.mark.parametrize(
    ("work", "found"),
    [("UTMALDG", 1), ("LDGSTS", 1), ("SYNCS.ARRIVE", 1), ("NOP", 0)],
)
def test_local_memory_counts_in_loops_of_roles(work: str, found: int) -> None:
    report = sass.inspect_code(assembled(PRODUCER.replace("{work}", work)))
    assert (report.local_in_loops, report.local_accesses) == (found, 2)
    assert report.local_of_helpers == found


KINDS = (
    *("HGMMA", "HMMA", "SYNCS.ARRIVE", "SYNCS.PHASECHK", "UTMALDG", "LDGSTS", "ARRIVES"),
    *("LDL", "STL", "MEMBAR"),
)
VARIED = """
extern "C" __global__ void __launch_bounds__(128, 1) k(float* x, unsigned long long d, int n) {
  __shared__ alignas(128) unsigned long long ready[64];
  unsigned address = (unsigned)__cvta_generic_to_shared(ready), done = 0;
  volatile float held[9];
  float c[4] = {0, 0, 0, 0};
  unsigned a = n;
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(address));
  for (int i = 0; i < n; ++i) {
    held[i % 9] = x[i];
    if (x[i] > 1) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(address + 64), "l"(x + 4 * i));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(address));
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(address));
    while (!done)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;"
                   " selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(address));
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2}], [%0];" :: "r"(address), "l"(d), "r"(i) : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3},"
                 " {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a));
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, "
                 "%4, %4, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(d));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
    __syncwarp();
  }
  x[threadIdx.x] = held[n % 9] + c[0] + c[1] + c[2] + c[3];
}
"""


@needs_nvrtc
@needs_nvdisasm
def test_machine_code_is_read_as_nvdisasm_reads_it() -> None:
    cubin = nvrtc.build(VARIED, "k", strict=False)
    (code,) = sass._sections(cubin.data)
    words = memoryview(code).cast("Q")
    names: list[str] = []
    labels: dict[str, int] = {}
    branches: dict[int, str] = {}
    for line in sass.disassemble(cubin.data).splitlines():
        if label := re.match(r"(\.L\w+):", line):
            labels[label[1]] = len(names)
        elif found := re.match(r"\s+/\*\w+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]+)(.*?);", line):
            if target := re.search(r"`\((\.L\w+)\)", found[2]) if found[1][:3] == "BRA" else None:
                branches[len(names)] = target[1]
            names.append(found[1])
    assert len(names) == len(words) // 2
    assert branches
    for place, label in branches.items():
        assert labels[label] in sass._after(place, words[2 * place], words[2 * place + 1])
    for kind in KINDS:
        assert any(name.startswith(kind) for name in names), kind
    known = [name.startswith((*KINDS, "SYNCS.ARRIVE")) for name in names]
    assert known == [word & 0xFFF in sass._KINDS for word in words[::2]]


@needs_nvrtc
def test_the_stack_is_reported() -> None:
    text = KERNEL.replace("{ for", "{ volatile float y[4]; for").replace("x[i] += 1", "y[i] = x[i]")
    assert nvrtc.build(text, "k").stack >= 16
    assert nvrtc.build(KERNEL, "k").stack == 0


def test_an_output_of_one_byte_is_not_written_into_a_shared_object() -> None:
    """NVRTC gives an empty log as one zero byte; ``b" " * 1`` is the space of the whole process."""
    import ctypes

    def get(program: object, buffer: bytes) -> tuple[int]:
        ctypes.memset(buffer, 0, 1)
        return (0,)

    assert nvrtc._read(lambda program: (0, 1), get, None) == b""
    assert bytes([32]) == b"\x20"
    assert bytes([32])[0] == 32
