/* fold.h - private to src/family: what the two halves of the fold family agree on. */
#ifndef KILN_FOLD_H
#define KILN_FOLD_H
#include "family/family.h"

enum { KILN_FOLD_AXES = 2 }; /* reduced axes of a kernel */

/* kiln_plan.form of a fold. */
enum {
    KILN_FOLD_ACROSS = 1, /* the grid is the vector loop; else the fold is */
    KILN_FOLD_TWO = 2     /* there are two reduced axes */
};

/* Whether result k has an element for each of those that are folded (`finish each`), not one for all of them. */
static inline bool kiln_fold_is_each(const kiln_plan *p, int k) {
    const kiln_nameds *finish = &p->call->op->row->branches[p->typed.branch].reduce->finish;
    return k < finish->n && finish->at[k].each;
}

kiln_status kiln_fold_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) KILN_MUST_CHECK;
#endif
