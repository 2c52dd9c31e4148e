/* loops_prims.h - reads prims.def for the types of KILN_LOOPS_SIZE bytes; included twice by loops.c.
 *
 * With LOOPS_DEFINE it defines loop_<primitive>_<type>, without it fills the table `t`.  A primitive is
 * left out for a type whose kind (B, I or F) is not among its operand types. */

#define PASTE2_(a, b) a##b
#define PASTE2(a, b) PASTE2_(a, b)
#define PASTE4_(a, b, c, d) a##b##c##d
#define PASTE4(a, b, c, d) PASTE4_(a, b, c, d)

/* TAKES_<operand types>: of the kinds B, I and F. */
#define TAKES_B 1, 0, 0
#define TAKES_I 0, 1, 0
#define TAKES_F 0, 0, 1
#define TAKES_BI 1, 1, 0
#define TAKES_IF 0, 1, 1
#define TAKES_BIF 1, 1, 1
#define KIND_B(b, i, f) b
#define KIND_I(b, i, f) i
#define KIND_F(b, i, f) f
#define APPLY(M, ...) M(__VA_ARGS__)

/* Special functions of f32 are computed in f64, so they are among the loops of its size: whether a type has those of a
 * trait here, by whether it has the plain and the special ones. */
#define HAS_EXACT(plain, special) plain
#define HAS_JOINS(plain, special) plain
#define HAS_DIVIDES(plain, special) plain
#define HAS_NEAR(plain, special) plain
#define HAS_SPECIAL(plain, special) special

#define ONLY_0(...)
#define ONLY_1(...) __VA_ARGS__
#ifdef LOOPS_DEFINE
#define MAKE(NAME, name, arity, RULE, T) PASTE4(LOOP_, RULE, arity, )(name, T)
#else
#define MAKE(NAME, name, arity, RULE, T) t->prim[KILN_P_##NAME][PASTE2(DT_, T)] = PASTE4(loop_, name, _, T);
#endif
#define ONE(T, KIND, plain, special, NAME, name, arity, RULE, TYPES, TRAIT, derivatives) \
    PASTE2(ONLY_, APPLY(KIND_##KIND, TAKES_##TYPES))                                     \
    (PASTE2(ONLY_, HAS_##TRAIT(plain, special))(MAKE(NAME, name, arity, RULE, T)))

#if KILN_LOOPS_SIZE == 1
#define P(...) ONE(bool, B, 1, 1, __VA_ARGS__) ONE(u8, I, 1, 1, __VA_ARGS__) ONE(i8, I, 1, 1, __VA_ARGS__)
#elif KILN_LOOPS_SIZE == 2
#define P(...) ONE(i16, I, 1, 1, __VA_ARGS__) ONE(u16, I, 1, 1, __VA_ARGS__)
#elif KILN_LOOPS_SIZE == 4
#define P(...) ONE(i32, I, 1, 1, __VA_ARGS__) ONE(u32, I, 1, 1, __VA_ARGS__) ONE(f32, F, 1, 0, __VA_ARGS__)
#else
#define P(...)                     \
    ONE(i64, I, 1, 1, __VA_ARGS__) \
    ONE(u64, I, 1, 1, __VA_ARGS__) ONE(f64, F, 1, 1, __VA_ARGS__) ONE(f32, F, 0, 1, __VA_ARGS__)
#endif
#include "expr/prims.def"
#undef P
#undef MAKE
