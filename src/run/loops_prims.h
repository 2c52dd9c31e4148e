/* loops_prims.h - reads prims.def once per type of KILN_LOOPS_SIZE bytes; included twice by loops.c.
 *
 * With LOOPS_DEFINE it defines loop_<primitive>_<type>, without it fills the table `t`.  A primitive is
 * left out for a type whose kind (B, I or F) is not among its operand types. */

#define PASTE2_(a, b) a##b
#define PASTE2(a, b) PASTE2_(a, b)
#define PASTE4_(a, b, c, d) a##b##c##d
#define PASTE4(a, b, c, d) PASTE4_(a, b, c, d)

/* HAS_<operand types>_<kind of T> */
#define HAS_B_B 1
#define HAS_B_I 0
#define HAS_B_F 0
#define HAS_I_B 0
#define HAS_I_I 1
#define HAS_I_F 0
#define HAS_F_B 0
#define HAS_F_I 0
#define HAS_F_F 1
#define HAS_BI_B 1
#define HAS_BI_I 1
#define HAS_BI_F 0
#define HAS_IF_B 0
#define HAS_IF_I 1
#define HAS_IF_F 1
#define HAS_BIF_B 1
#define HAS_BIF_I 1
#define HAS_BIF_F 1

#define ONLY_0(...)
#define ONLY_1(...) __VA_ARGS__
#ifdef LOOPS_DEFINE
#define MAKE(NAME, name, arity, RULE, T) PASTE4(LOOP_, RULE, arity, )(name, T)
#else
#define MAKE(NAME, name, arity, RULE, T) t->prim[KILN_P_##NAME][PASTE2(DT_, T)] = PASTE4(loop_, name, _, T);
#endif
#define P(NAME, name, arity, RULE, TYPES, TRAIT) \
    PASTE2(ONLY_, PASTE4(HAS_, TYPES, _, KIND))(PASTE2(IN_, TRAIT)(MAKE(NAME, name, arity, RULE, TYPE)))

/* Special functions of f32 are computed in f64, so they are among the loops of its size. */
#define IN_EXACT(...) PASTE2(ONLY_, WITH_PLAIN)(__VA_ARGS__)
#define IN_JOINS(...) PASTE2(ONLY_, WITH_PLAIN)(__VA_ARGS__)
#define IN_DIVIDES(...) PASTE2(ONLY_, WITH_PLAIN)(__VA_ARGS__)
#define IN_NEAR(...) PASTE2(ONLY_, WITH_PLAIN)(__VA_ARGS__)
#define IN_SPECIAL(...) PASTE2(ONLY_, WITH_SPECIAL)(__VA_ARGS__)
#define WITH_PLAIN 1
#define WITH_SPECIAL 1

#if KILN_LOOPS_SIZE == 1
#define TYPE bool
#define KIND B
#include "expr/prims.def"
#undef TYPE
#undef KIND
#define TYPE u8
#define KIND I
#include "expr/prims.def"
#undef TYPE
#define TYPE i8
#include "expr/prims.def"
#elif KILN_LOOPS_SIZE == 2
#define TYPE i16
#define KIND I
#include "expr/prims.def"
#undef TYPE
#define TYPE u16
#include "expr/prims.def"
#elif KILN_LOOPS_SIZE == 4
#define TYPE i32
#define KIND I
#include "expr/prims.def"
#undef TYPE
#define TYPE u32
#include "expr/prims.def"
#undef TYPE
#undef KIND
#define TYPE f32
#define KIND F
#undef WITH_SPECIAL
#define WITH_SPECIAL 0
#include "expr/prims.def"
#else
#define TYPE i64
#define KIND I
#include "expr/prims.def"
#undef TYPE
#define TYPE u64
#include "expr/prims.def"
#undef TYPE
#undef KIND
#define TYPE f64
#define KIND F
#include "expr/prims.def"
#undef TYPE
#define TYPE f32
#undef WITH_PLAIN
#define WITH_PLAIN 0
#include "expr/prims.def"
#endif
#undef TYPE
#undef KIND
#undef WITH_PLAIN
#undef WITH_SPECIAL
#undef P
#undef MAKE
