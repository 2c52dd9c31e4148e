/* loops_prims.h - reads prims.def for the types of KILN_LOOPS_SIZE bytes; included twice by loops.c.
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

/* WITH_<traits that a type has here>_<group of the trait>: special functions of f32 are computed in f64, so they are
 * among the loops of its size. */
#define GROUP_EXACT PLAIN
#define GROUP_JOINS PLAIN
#define GROUP_DIVIDES PLAIN
#define GROUP_NEAR PLAIN
#define GROUP_SPECIAL SPECIAL
#define WITH_ALL_PLAIN 1
#define WITH_ALL_SPECIAL 1
#define WITH_PLAIN_PLAIN 1
#define WITH_PLAIN_SPECIAL 0
#define WITH_SPECIAL_PLAIN 0
#define WITH_SPECIAL_SPECIAL 1

#define ONLY_0(...)
#define ONLY_1(...) __VA_ARGS__
#ifdef LOOPS_DEFINE
#define MAKE(NAME, name, arity, RULE, T) PASTE4(LOOP_, RULE, arity, )(name, T)
#else
#define MAKE(NAME, name, arity, RULE, T) t->prim[KILN_P_##NAME][PASTE2(DT_, T)] = PASTE4(loop_, name, _, T);
#endif
#define ONE(T, KIND, TRAITS, NAME, name, arity, RULE, TYPES, TRAIT, derivatives) \
    PASTE2(ONLY_, PASTE4(HAS_, TYPES, _, KIND))                                  \
    (PASTE2(ONLY_, PASTE4(WITH_, TRAITS, _, PASTE2(GROUP_, TRAIT)))(MAKE(NAME, name, arity, RULE, T)))

#if KILN_LOOPS_SIZE == 1
#define P(...) ONE(bool, B, ALL, __VA_ARGS__) ONE(u8, I, ALL, __VA_ARGS__) ONE(i8, I, ALL, __VA_ARGS__)
#elif KILN_LOOPS_SIZE == 2
#define P(...) ONE(i16, I, ALL, __VA_ARGS__) ONE(u16, I, ALL, __VA_ARGS__)
#elif KILN_LOOPS_SIZE == 4
#define P(...) ONE(i32, I, ALL, __VA_ARGS__) ONE(u32, I, ALL, __VA_ARGS__) ONE(f32, F, PLAIN, __VA_ARGS__)
#else
#define P(...)                    \
    ONE(i64, I, ALL, __VA_ARGS__) \
    ONE(u64, I, ALL, __VA_ARGS__) ONE(f64, F, ALL, __VA_ARGS__) ONE(f32, F, SPECIAL, __VA_ARGS__)
#endif
#include "expr/prims.def"
#undef P
#undef MAKE
