/* loops.c - the interpreter's inner loops of one ISA level and one element size.
 *
 * Compiled once per level and size (see loops.cmake) with
 *     -DKILN_LOOPS_ISA=V4 -DKILN_LOOPS_SIZE=8 -march=x86-64-v4 -DKILN_ISA_X86_V4=1 -DKILN_VB=64
 * It holds the loops whose widest type has KILN_LOOPS_SIZE bytes, over vectors of which one fills a
 * register, and exports kiln_loops_fill_<ISA>_<SIZE>.  All arithmetic is src/math's; which primitives
 * there are, prims.def says (read by loops_prims.h). */
#include "run/loops.h"

#include <string.h>

#undef bool /* here a name to paste, like f32 */

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#ifdef KILN_LOOPS_A64 /* isa.h has a constant of the name that src/math asks for */
#define KILN_ISA_A64 1
#endif
#define KILN_W (KILN_VB / KILN_LOOPS_SIZE)

#include "math/prelude.inc"
#include "math/cast.inc"
#include "math/memory.inc"
#include "math/arith.inc"
#include "math/divide.inc"
#include "math/elementary_f32.inc"
#include "math/elementary_f64.inc"
#include "math/elementary2_f32.inc"
#include "math/elementary2_f64.inc"
#include "math/gcd.inc"
#include "math/special_base.inc"
#include "math/special_gamma.inc"
#include "math/special_error.inc"
#include "math/special_bessel.inc"
#include "math/special_airy.inc"
#include "math/special_poly.inc"

/* -- bool as a mask of the width of T ---- */

#define BITS_bool 8
#define BITS_u8 8
#define BITS_i8 8
#define BITS_i16 16
#define BITS_i32 32
#define BITS_i64 64
#define BITS_u16 16
#define BITS_u32 32
#define BITS_u64 64
#define BITS_f32 32
#define BITS_f64 64
#define mask_8_8(m) (m)
#define to_bytes(T, m) CAT(mask_8_, BITS_##T)(m)
#define from_bytes(T, m) CAT(CAT(mask_, BITS_##T), _8)(m)

/* -- loops ---- */

#define MAYBE __attribute__((unused))
#define LOOP(name) \
    static void name(void *out, const void *a, MAYBE const void *b, MAYBE const void *c, size_t n)
#define EACH for (size_t i = 0; i < n; i += KILN_W)
#define AT(T, p) ((p) + i * sizeof(elem_##T))
#define IN(T, p) load_##T(AT(T, (const char *)(p)))
#define OUT(T, v) store_##T(AT(T, (char *)out), v)
typedef unsigned char elem_bool; /* the other elem_T come from memory.inc */
typedef unsigned short elem_f16, elem_bf16;

/* One loop per typing rule and arity. */
#define LOOP_SAME1(name, T) \
    LOOP(loop_##name##_##T) { EACH OUT(T, name##_##T(IN(T, a))); }
#define LOOP_SAME2(name, T) \
    LOOP(loop_##name##_##T) { EACH OUT(T, name##_##T(IN(T, a), IN(T, b))); }
#define LOOP_SAME3(name, T) \
    LOOP(loop_##name##_##T) { EACH OUT(T, name##_##T(IN(T, a), IN(T, b), IN(T, c))); }
#define LOOP_PRED1(name, T) \
    LOOP(loop_##name##_##T) { EACH OUT(bool, to_bytes(T, (name##_##T(IN(T, a))))); }
#define LOOP_CMP2(name, T) \
    LOOP(loop_##name##_##T) { EACH OUT(bool, to_bytes(T, (name##_##T(IN(T, a), IN(T, b))))); }
#define LOOP_SELECT3(name, T) \
    LOOP(loop_##name##_##T) { EACH OUT(T, name##_##T(from_bytes(T, IN(bool, a)), IN(T, b), IN(T, c))); }
#define LOOP_TOINT1(name, T) \
    LOOP(loop_##name##_##T) { EACH OUT(i32, name##_##T(IN(T, a))); }

enum {
    DT_bool = KILN_BOOL,
    DT_u8 = KILN_U8,
    DT_i8 = KILN_I8,
    DT_i16 = KILN_I16,
    DT_i32 = KILN_I32,
    DT_u16 = KILN_U16,
    DT_u32 = KILN_U32,
    DT_u64 = KILN_U64,
    DT_i64 = KILN_I64,
    DT_f16 = KILN_F16,
    DT_bf16 = KILN_BF16,
    DT_f32 = KILN_F32,
    DT_f64 = KILN_F64,
};

/* -- casts: C(TO, FROM) ---- */

#define cast_bool_bool(v) (v)
#define DEF_CAST(TO, FROM) \
    LOOP(loop_cast_##TO##_##FROM) { EACH OUT(TO, cast_##TO##_##FROM(IN(FROM, a))); }
#define DEF_CAST_BOOL(T)                                                               \
    LOOP(loop_cast_bool_##T) { EACH OUT(bool, to_bytes(T, cast_bool_##T(IN(T, a)))); } \
    LOOP(loop_cast_##T##_bool) { EACH OUT(T, cast_##T##_bool(from_bytes(T, IN(bool, a)))); }
#define DEF_SAME(T) \
    LOOP(loop_cast_##T##_##T) { memcpy(out, a, n * sizeof(elem_##T)); }
#define PUT_CAST(TO, FROM) t->cast[DT_##TO][DT_##FROM] = loop_cast_##TO##_##FROM;
#define PUT_CAST_BOOL(T) PUT_CAST(bool, T) PUT_CAST(T, bool)
#define PUT_SAME(T) PUT_CAST(T, T)
#define PAIR(C, A, B) C(A, B) C(B, A)

/* -- between memory and blocks ---- */

#define DEF_MEMORY(T)                                                                       \
    static void gather_block_##T(void *block, const char *src, int64_t stride, size_t n) {  \
        elem_##T *to = block;                                                               \
        enum { TWO = 2 * sizeof(elem_##T) }; /* a part of complex elements in a row */      \
        if (stride == sizeof(elem_##T))                                                     \
            memcpy(block, src, n * sizeof(elem_##T));                                       \
        else if (stride == TWO)                                                             \
            for (size_t i = 0; i < n; i++, src += TWO) to[i] = *(const elem_##T *)src;      \
        else                                                                                \
            for (size_t i = 0; i < n; i++, src += stride) to[i] = *(const elem_##T *)src;   \
    }                                                                                       \
    static void scatter_block_##T(char *dst, int64_t stride, const void *block, size_t n) { \
        const elem_##T *from = block;                                                       \
        enum { TWO = 2 * sizeof(elem_##T) };                                                \
        if (stride == sizeof(elem_##T))                                                     \
            memcpy(dst, block, n * sizeof(elem_##T));                                       \
        else if (stride == TWO)                                                             \
            for (size_t i = 0; i < n; i++, dst += TWO) *(elem_##T *)dst = from[i];          \
        else                                                                                \
            for (size_t i = 0; i < n; i++, dst += stride) *(elem_##T *)dst = from[i];       \
    }                                                                                       \
    static void splat_block_##T(void *block, const void *value, size_t n) {                 \
        elem_##T *to = block, x = *(const elem_##T *)value;                                 \
        v##T all;                                                                           \
        for (int l = 0; l < KILN_W; l++) all[l] = x;                                        \
        for (size_t i = 0; i < n; i += KILN_W) *(v##T *)(void *)(to + i) = all;             \
    }
#define PUT_MEMORY(T)                       \
    t->gather[DT_##T] = gather_block_##T;   \
    t->scatter[DT_##T] = scatter_block_##T; \
    t->splat[DT_##T] = splat_block_##T;

/* -- the four sizes ---- */

/* The formatter cannot settle on where these backslashes go. */
/* clang-format off */
#if KILN_LOOPS_SIZE == 1
#define UNSIGNED elem_u8
#define ALL(MEMORY, SAME, CAST, CAST_BOOL) \
    MEMORY(u8) MEMORY(i8) SAME(bool) SAME(u8) SAME(i8) \
    PAIR(CAST, u8, i8) CAST_BOOL(u8) CAST_BOOL(i8)
#elif KILN_LOOPS_SIZE == 2
#define UNSIGNED elem_u16
#define ALL(MEMORY, SAME, CAST, CAST_BOOL) \
    MEMORY(i16) SAME(i16) PAIR(CAST, i16, u8) PAIR(CAST, i16, i8) CAST_BOOL(i16) \
    MEMORY(u16) SAME(u16) PAIR(CAST, u16, u8) PAIR(CAST, u16, i8) PAIR(CAST, u16, i16) CAST_BOOL(u16)
#elif KILN_LOOPS_SIZE == 4
#define UNSIGNED elem_u32
#define ALL(MEMORY, SAME, CAST, CAST_BOOL) \
    MEMORY(i32) MEMORY(f32) SAME(i32) SAME(f32) CAST_BOOL(i32) CAST_BOOL(f32) \
    PAIR(CAST, i32, u8) PAIR(CAST, i32, i8) PAIR(CAST, i32, i16) PAIR(CAST, f32, u8) PAIR(CAST, f32, i8) \
    PAIR(CAST, f32, i16) PAIR(CAST, f32, i32) PAIR(CAST, f32, f16) PAIR(CAST, f32, bf16) \
    MEMORY(u32) SAME(u32) CAST_BOOL(u32) PAIR(CAST, u32, u8) PAIR(CAST, u32, i8) PAIR(CAST, u32, i16) \
    PAIR(CAST, u32, u16) PAIR(CAST, u32, i32) PAIR(CAST, u32, f32) PAIR(CAST, u16, i32) PAIR(CAST, u16, f32)
#else
#define UNSIGNED elem_u64
#define ALL(MEMORY, SAME, CAST, CAST_BOOL) \
    MEMORY(i64) MEMORY(f64) SAME(i64) SAME(f64) CAST_BOOL(i64) CAST_BOOL(f64) \
    PAIR(CAST, i64, u8) PAIR(CAST, i64, i8) PAIR(CAST, i64, i16) PAIR(CAST, i64, i32) PAIR(CAST, i64, f32) \
    PAIR(CAST, f64, u8) PAIR(CAST, f64, i8) PAIR(CAST, f64, i16) PAIR(CAST, f64, i32) PAIR(CAST, f64, i64) \
    PAIR(CAST, f64, f32) \
    MEMORY(u64) SAME(u64) CAST_BOOL(u64) PAIR(CAST, u64, u8) PAIR(CAST, u64, i8) PAIR(CAST, u64, i16) \
    PAIR(CAST, u64, u16) PAIR(CAST, u64, i32) PAIR(CAST, u64, u32) PAIR(CAST, u64, i64) PAIR(CAST, u64, f32) \
    PAIR(CAST, u64, f64) PAIR(CAST, u32, i64) PAIR(CAST, u32, f64) PAIR(CAST, u16, i64) PAIR(CAST, u16, f64)
#endif
/* clang-format on */

#include "run/loops_tile.h"
ALL(DEF_MEMORY, DEF_SAME, DEF_CAST, DEF_CAST_BOOL)

#define LOOPS_DEFINE
#include "run/loops_prims.h"
#undef LOOPS_DEFINE

#if KILN_LOOPS_SIZE == 1 /* bytes that are bool: any nonzero one becomes 1 */
static void gather_block_bool(void *block, const char *src, int64_t stride, size_t n) {
    unsigned char *to = block;
    size_t whole = stride == 1 ? n - n % KILN_W : 0, i = whole;
    loop_cast_bool_u8(block, src, NULL, NULL, whole);
    for (src += (int64_t)whole * stride; i < n; i++, src += stride) to[i] = *src != 0;
}
#endif

void CAT(CAT(CAT(kiln_loops_fill_, KILN_LOOPS_ISA), _), KILN_LOOPS_SIZE)(kiln_loops *t);
void CAT(CAT(CAT(kiln_loops_fill_, KILN_LOOPS_ISA), _), KILN_LOOPS_SIZE)(kiln_loops *t) {
    ALL(PUT_MEMORY, PUT_SAME, PUT_CAST, PUT_CAST_BOOL)
#include "run/loops_prims.h"
    t->transpose[KILN_LOOPS_SIZE] = transpose;
    t->expand_prepare[KILN_LOOPS_SIZE] = expand_prepare;
    t->expand[KILN_LOOPS_SIZE] = expand;
#if KILN_LOOPS_SIZE == 1
    t->gather[KILN_BOOL] = gather_block_bool;
    t->scatter[KILN_BOOL] = scatter_block_u8;
    t->splat[KILN_BOOL] = splat_block_u8;
#elif KILN_LOOPS_SIZE == 2
    for (int h = KILN_F16; h <= KILN_BF16; h++) {
        t->gather[h] = gather_block_i16;
        t->scatter[h] = scatter_block_i16;
        t->splat[h] = splat_block_i16;
        t->cast[h][h] = loop_cast_i16_i16;
    }
#endif
}
