/* math.h - the one source of vector arithmetic: compiled into the interpreter, emitted into kernels.
 *
 * The .inc files of src/math hold C fragments over GNU vector types.  A fragment starts at a line
 *     [comment] @ name name ... [comment end]        (the names it defines, see docs/ARCHITECTURE.md)
 * and runs to the next such line.  src/run/loops.c includes the files whole; kiln_math_source picks the
 * fragments a kernel names, with all they use, so both tiers compute the same bits.  Within one
 * translation unit every vector has KILN_W lanes:
 *     vf32 vf64 vi8 vu8 vi16 vu16 vi32 vu32 vi64 vu64        (vf16 and vbf16 are vu16)
 * A bool is a mask, 0 or -1 in each lane, in a signed vector as wide as the type that made it.
 * Names a kernel may use, T being a compute type (bool u8 i8 i16 i32 i64 u16 u32 u64 f32 f64):
 *     P_T(a, ...)            primitive P of prims.def
 *     two_P_T(a, b, &x, &y)  the same of two vectors at once, of those P where that is faster
 *     cast_TO_FROM(v)        between compute types; f16 and bf16 only with f32
 *     mask_TO_FROM(m)        mask width change, in bits: mask_32_8
 *     load_T(p) store_T(p, v)          KILN_W contiguous elements, any alignment; also f16, bf16
 *     gather_T(p, stride, k)           k lanes at byte stride, the rest zero
 *     scatter_T(p, stride, k, v)       the first k lanes
 *     splat_T(x)                       x in every lane (bool: a mask of 8-bit lanes)
 *     copy_tail(dst, src, nbytes)      fewer bytes than a full vector
 *     copy_in(buffer, registers, src, nbytes)      the same, the rest of one or two registers' bytes zero
 *     tail_in(buffer, src, nbytes) tail_out(dst, buffer, nbytes)      through a 64-byte buffer, nbytes < 64, the rest zero
 *     stream_T(p, v) stream_end()      store_T past the caches, p aligned; after the last one
 *     any_lane(m)                      whether a mask of 8-bit lanes has one set
 *     iota_i64() iota_i32() first_lanes(k)  0, 1, 2, ...; a mask of 8-bit lanes with the first k set
 *     lane_is_i32(d)                   a mask of 32-bit lanes with lane d set
 *     load_some_T(p, k) store_some_T(p, k, v)      the first k lanes; the rest zero, or not written
 *     load_at_T(p, off, m, other) store_at_T(p, off, m, v)      each lane at p + off where m is set
 *     column_lanes_iBITS(lanes, cols, least, &used) loose_lanes_T(lanes, n) pick_BITS(v, lanes)      see columns.inc
 *     down_T(v, w)                     lane l + w in lane l
 *     blend_T(k, a, b)                 the first k lanes of a, the rest of b */
#ifndef KILN_MATH_H
#define KILN_MATH_H
#include "base/base.h"
#include "base/isa.h"

/* Writes the types and the fragments that define `names`, and what those use, each once, in an order
 * that compiles.  lanes: KILN_W.  KILN_E_BUG for a name no fragment defines. */
kiln_status kiln_math_source(kiln_sb *out, kiln_isa isa, int lanes, const char *const *names,
                             int n) KILN_MUST_CHECK;
bool kiln_math_has(const char *name); /* whether a fragment defines it */
#endif
