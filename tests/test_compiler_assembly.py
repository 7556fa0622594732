"""Reading PTX, SASS and the log of ptxas, from lines as the tools write them."""

import pytest

from course_utils.compiler import read_ptx, read_sass
from course_utils.compiler.assembly import read_ptxas, tidy_sass

PTX = """
\t@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
\tld.global.L1::evict_last.L2::cache_hint.v2.b32 { %r1, %r2 }, [ %rd2 + 0 ], %rd3;
\tld.global.nc.v8.b32 { %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8 }, [ %rd1 + 0 ];
\tld.global.b16 %rs1, [%rd1];
\tld.volatile.global.f64 %fd1, [%rd1];
\tld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r5];
\tld.param.b64 %rd1, [kernel_param_0];
\tcp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, 0x10;
\tcp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 4;
\tst.global.v4.b32 [ %rd2 + 0 ], { %r1, %r2, %r3, %r4 };
\t@%p2 st.global.b8 [ %rd2 + 0 ], { %rs1 };
\tst.shared.b32 [%r1], %r2;
\tatom.global.gpu.acq_rel.add.f32 %f1, [ %rd1 + 0 ], %f2;
\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { %r1 }, { %r2 }, { %r3 }, { %r4 };
\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { %r1 }, { %r2 }, { %r3 }, { %r4 };
\tcp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], [%r2];
// ld.global.v4.b32 in a comment
\t.section\t.debug_info
\t.b8 ld.global.b32
"""

SASS = """
        /*00e0*/              @!P0 LDG.E.128 R4, desc[UR6][R18.64] ;       /* 0x0000000612048981 */
                                                                           /* 0x010ea2000c1e1d00 */
        /*00f0*/                   LDG.E.U16.CONSTANT R3, [R2.64] ;        /* 0x0000000612048981 */
        /*0100*/                   LDG.E.SYS R3, [R2] ;                    /* 0x0000000612048981 */
        /*0110*/                   LDGSTS.E.BYPASS.LTC128B.128 [R1], [R2.64] ;  /* 0x00000006 */
        /*0120*/                   STG.E.64 [R2.64], R4 ;                  /* 0x0000000612048981 */
        /*0130*/                   STG.E.U8 [R2.64], R4 ;                  /* 0x0000000612048981 */
        /*0140*/                   STS.128 [R2], R4 ;                      /* 0x0000000612048981 */
        /*0150*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;   /* 0x0000000612048981 */
        /*0160*/                   HFMA2 R22, -RZ, RZ, 1.5, 0 ;            /* 0x0000000612048981 */
        /*0170*/                   UTMALDG.2D [UR8], [UR4] ;               /* 0x0000000612048981 */
        /*0180*/                   EXIT ;                                  /* 0x0000000612048981 */
        /*0190*/                   BRA 0x190;                              /* 0x0000000612048981 */
        /*01a0*/                   NOP;                                    /* 0x0000000612048981 */
        /*01b0*/                   NOP;                                    /* 0x0000000612048981 */
"""


def test_ptx_is_counted_by_width():
    found = read_ptx(PTX)
    assert found.loads == {256: 1, 128: 2, 64: 2, 32: 1, 16: 1}
    assert list(found.loads) == sorted(found.loads, reverse=True)
    assert found.stores == {128: 1, 8: 1}
    assert found.matrix == {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 2}
    assert (found.matrix_unit, found.bulk_copies) == ("mma", 1)


def test_sass_is_counted_by_width():
    found = read_sass(SASS)
    assert found.loads == {128: 2, 32: 1, 16: 1}
    assert found.stores == {64: 1, 8: 1}
    assert found.matrix == {"HMMA.16816.F32.BF16": 1}
    assert found.bulk_copies == 1
    assert read_sass(tidy_sass(SASS)) == found


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        (
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd1, %rd2, p, 1, 1;",
            "wgmma",
        ),
        ("tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r2, %p1;", "tcgen05"),
        ("wgmma.fence.sync.aligned;", None),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", None),
    ],
)
def test_generations_of_matrix_instructions_in_ptx(line, unit):
    assert read_ptx(line).matrix_unit == unit


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("HGMMA.64x128x16.F32 R24, gdesc[UR4], R24, gsb0", "wgmma"),
        ("UTCHMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR12], idesc[UR13], UP0", "tcgen05"),
        ("IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4", "mma"),
        ("QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R4", "mma"),
        ("FFMA R1, R2, R3, R4", None),
        ("UTCBAR [UR4], URZ", None),
    ],
)
def test_generations_of_matrix_instructions_in_sass(line, unit):
    assert read_sass(line).matrix_unit == unit


def test_a_listing_is_tidied():
    lines = tidy_sass(SASS).splitlines()
    assert lines[0] == "00e0  @!P0 LDG.E.128 R4, desc[UR6][R18.64]"
    assert lines[-1] == "0190  BRA 0x190"
    assert len(lines) == 12


def test_the_log_of_ptxas():
    log = """
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    40 bytes stack frame, 36 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 392 bytes cmem[0]
"""
    assert read_ptxas(log) == (255, 40, 36, 28)
    with pytest.raises(ValueError, match=r"ptxas gave no figures. Its log is: \(empty\)"):
        read_ptxas("")
