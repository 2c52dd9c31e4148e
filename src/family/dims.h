/* dims.h - private to src/family: dimensions that rows name with `over`, and axes that no dimension gave. */
#ifndef KILN_DIMS_H
#define KILN_DIMS_H
#include "family/family.h"
#include "family/reduce_rules.h"

/* Sets plan->reduced to the dimensions that the row's `over` names: all, unless it names some. */
kiln_status kiln_over_find(kiln_plan *p) KILN_MUST_CHECK;

static inline bool kiln_is_over(const kiln_plan *p, int d) { return p->reduced >> d & 1; }

/* Whether result k has an element for each of those that are folded (`finish each`), not one for all of them. */
static inline bool kiln_is_each(const kiln_plan *p, int k) {
    const kiln_nameds *finish = &p->branch->reduce->finish;
    return k < finish->n && finish->at[k].each;
}

/* One more axis, of one position. */
void kiln_axes_add_one(kiln_plan *p, kiln_role role);
#endif
