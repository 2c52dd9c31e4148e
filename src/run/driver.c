/* driver.c - (plan, kernel) -> the kernel run over every element.
 *
 * A kernel's grid axis takes the two inner dimensions; the rest are walked here like an odometer.  Knows
 * strides and pointers, not dtypes or what is computed. */
#include <string.h>

#include "run/driver.h"

enum { INNER = 2 };

static kiln_status run_box(const kiln_runner *run, const kiln_launch *l, int32_t *trap) {
    if (!run->fn) return kiln_interp_run(run->interp, l, trap);
    *trap = run->fn(l);
    return KILN_OK;
}

/* Moves to the next outer index; false when all have been visited. */
static bool step(const kiln_plan *plan, int64_t *index, char **ptr) {
    for (int d = INNER; d < plan->ndim; d++) {
        for (int b = 0; b < plan->noperands; b++) ptr[b] += plan->stride[b][d];
        if (++index[d] < plan->n[d]) return true;
        for (int b = 0; b < plan->noperands; b++) ptr[b] -= plan->stride[b][d] * plan->n[d];
        index[d] = 0;
    }
    return false;
}

kiln_status kiln_drive(const kiln_plan *plan, const kiln_runner *run, int nest, char *const *ptr,
                       const uint64_t *par, int32_t *trap) {
    static const int64_t origin[INNER] = {0, 0};
    int64_t n[INNER] = {plan->n[0], plan->ndim > 1 ? plan->n[1] : 1}, index[KILN_MAX_DIMS] = {0};
    int64_t stride[KILN_MAX_OPERANDS * INNER];
    char *at[KILN_MAX_OPERANDS];
    for (int b = 0; b < plan->noperands; b++) {
        stride[b * INNER] = plan->stride[b][0];
        stride[b * INNER + 1] = plan->ndim > 1 ? plan->stride[b][1] : 0;
        at[b] = ptr[b];
    }
    kiln_launch l = {
        .nest = nest, .ndim = INNER, .n = n, .ptr = at, .stride = stride, .origin = origin, .par = par};
    *trap = 0;
    do {
        KILN_TRY(run_box(run, &l, trap));
    } while (*trap == 0 && step(plan, index, at));
    return KILN_OK;
}
