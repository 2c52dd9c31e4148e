/* fold.h - what planning (fold.c, fold_results.c), lowering (fold_lower.c) and choosing a form (src/target/cpu/choose_fold.c) of a fold share. */
#ifndef KILN_FOLD_H
#define KILN_FOLD_H
#include "family/family.h"

enum { KILN_FOLD_AXES = 2 }; /* reduced axes of a kernel */

/* kiln_plan.form of a fold. */
enum {
    KILN_FOLD_ACROSS = 1, /* the grid is the vector loop; else the fold is */
    KILN_FOLD_TWO = 2,    /* there are two reduced axes */
    KILN_FOLD_SPOTS =
        4, /* many short rows are filled, and then an element of each is set (kiln_reduce.spots) */
    KILN_FOLD_PAIR = 8 /* across, over one axis of two places at most: its tree has no more */
};

kiln_status kiln_fold_results(kiln_plan *p) KILN_MUST_CHECK; /* fold_results.c */
kiln_status kiln_fold_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) KILN_MUST_CHECK;
#endif
