"""NVRTC builds, its log, and what is read from machine code."""

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
@needs_nvdisasm
def test_disassembly_finds_loops() -> None:
    report = nvrtc.inspect_sass(nvrtc.disassemble(nvrtc.build(KERNEL, "k")))
    assert report.loops >= 1
    assert report.hgmma == 0
    assert report.defects == ()


LISTING = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_outer:
        /*0010*/                   MEMBAR.ALL.GPU ;
.L_main:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*0030*/              @!P0 BRA `(.L_spin) ;
.L_back:
        /*0040*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0050*/                   {inside} ;
        /*0060*/              @!P1 BRA `(.L_main) ;
        /*0070*/                   STL [R1], R9 ;
        /*0080*/              @!P2 BRA `(.L_outer) ;
        /*0090*/                   EXIT ;
.L_spin:
        /*00a0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*00b0*/              @!P0 BRA `(.L_spin) ;
        /*00c0*/                   BRA `(.L_back) ;
.L_end:
        /*00d0*/                   BRA `(.L_end) ;
"""


@pytest.mark.parametrize(
    ("inside", "membars", "spills"),
    [
        ("NOP", 0, 0),
        ("MEMBAR.ALL.GPU", 1, 0),
        ("MEMBAR.ALL.CTA", 0, 0),
        ("STL [R1+0x4], R40", 0, 1),
        ("LDL R40, [R1+0x4]", 0, 1),
    ],
)
def test_defects_count_in_the_main_loop_only(inside: str, membars: int, spills: int) -> None:
    report = sass.inspect(LISTING.replace("{inside}", inside))
    assert (report.membar_in_loop, report.local_in_loops) == (membars, spills)
    assert report.hgmma == 1
    assert bool(report.defects) == bool(membars or spills)
    # The persistent loop's spill and fence are outside the main loop.
    assert report.local_accesses == 1 + spills


PRODUCER = """
.L_tiles:
        /*0000*/                   STL [R1], R9 ;
.L_trips:
        /*0010*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*0020*/              @!P0 BRA `(.L_trips) ;
        /*0030*/                   LDL R9, [R1] ;
.L_lanes:
        /*0040*/                   {work} ;
        /*0048*/               @P3 BRA `(.L_lanes) ;
        /*0050*/              @!P1 BRA `(.L_trips) ;
        /*0060*/              @!P2 BRA `(.L_tiles) ;
        /*0070*/                   EXIT ;
"""


@pytest.mark.parametrize(
    ("work", "found"),
    [
        ("UTMALDG.2D [UR8], [UR4]", 1),
        ("LDGSTS.E.BYPASS.128 [R4], [R2.64]", 1),
        ("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ", 1),
        ("NOP", 0),
    ],
)
def test_local_memory_counts_in_loops_of_roles(work: str, found: int) -> None:
    report = sass.inspect(PRODUCER.replace("{work}", work))
    assert (report.local_in_loops, report.local_accesses) == (found, 2)


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
