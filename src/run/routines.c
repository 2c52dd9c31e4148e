/* routines.c - the table of the library's routines, by the names that rows give them.
 *
 * A launch does not say which dtype it is of, so there is a function of each routine for each dtype, all made here from
 * src/expr/routine.def.  Knows no operator and no family. */
#include "run/keys.h"

/* clang-format off */
#define EACH_DTYPE(NAME) \
    FN(NAME, BOOL) FN(NAME, U8) FN(NAME, I8) FN(NAME, I16) FN(NAME, I32) FN(NAME, I64) \
    FN(NAME, F16) FN(NAME, BF16) FN(NAME, F32) FN(NAME, F64)
/* clang-format on */

#define FN(NAME, T) \
    static int32_t NAME##_##T(const kiln_launch *l) { return run_##NAME(l, KILN_##T); }
#define PICK(NAME, FIND, numbers, results)                          \
    static int32_t run_##NAME(const kiln_launch *l, kiln_dtype t) { \
        return kiln_pick_rows(l, t, results, kiln_find_##FIND);     \
    }                                                               \
    EACH_DTYPE(NAME)
#include "expr/routine.def"
#undef PICK
#undef FN

#define FN(NAME, T) [KILN_##T] = NAME##_##T,
#define PICK(NAME, FIND, numbers, results) \
    static const kiln_routine the_##NAME = {{EACH_DTYPE(NAME)}, KILN_KEYS_COPIES};
#include "expr/routine.def"
#undef PICK
#undef FN

const kiln_routine *const kiln_routines[KILN_ROUTINE_COUNT] = {
#define PICK(NAME, FIND, numbers, results) [KILN_ROUTINE_##NAME] = &the_##NAME,
#include "expr/routine.def"
#undef PICK
};
