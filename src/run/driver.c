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

static kiln_status drive_alone(const kiln_plan *plan, const kiln_runner *run, int nest, char *const *ptr,
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

/* -- several threads -------------------------------------------------------------------------------------- */

enum {
    PART_PS = 20 * 1000 * 1000, /* less than 20 us of work is not worth waking anyone */
    PARTS_PER_THREAD = 4,       /* threads are not equally fast */
    PARTS_MAX = 256,
    PART_ELEMENTS = 64 /* borders inside a row are multiples: whole vectors, whole cache lines */
};

/* A dimension cut in parts of `chunk`.  Bits do not depend on where: elements do not depend on each other. */
typedef struct split {
    const kiln_plan *plan;
    const kiln_runner *run;
    int nest, dim;
    int64_t chunk;
    char *const *ptr;
    const uint64_t *par;
    kiln_status status[PARTS_MAX];
    int32_t trap[PARTS_MAX];
} split;

static void run_part(void *user, int64_t part) {
    split *s = user;
    kiln_plan plan = *s->plan;
    char *ptr[KILN_MAX_OPERANDS];
    int64_t from = part * s->chunk, left = plan.n[s->dim] - from;
    for (int b = 0; b < plan.noperands; b++) ptr[b] = s->ptr[b] + from * plan.stride[b][s->dim];
    plan.n[s->dim] = left < s->chunk ? left : s->chunk;
    plan.nelem = plan.nelem / s->plan->n[s->dim] * plan.n[s->dim];
    s->status[part] = drive_alone(&plan, s->run, s->nest, ptr, s->par, &s->trap[part]);
}

/* Parts that the work is worth; 1: none. */
static int64_t count_parts(const kiln_plan *plan, const kiln_runner *run) {
    if (!run->parallel || run->parallel->threads < 2 || plan->nelem < PART_ELEMENTS) return 1;
    double parts = (double)plan->nelem * run->cost_ps / PART_PS;
    double most = (double)run->parallel->threads * PARTS_PER_THREAD;
    if (most > PARTS_MAX) most = PARTS_MAX;
    return parts < 2 ? 1 : (int64_t)(parts < most ? parts : most);
}

/* The outermost dimension that is long enough, else the longest. */
static int64_t choose_cut(split *s, int64_t nparts) {
    const int64_t *n = s->plan->n;
    s->dim = 0;
    for (int d = 1; d < s->plan->ndim; d++)
        if (n[d] >= nparts || n[d] > n[s->dim]) s->dim = d;
    s->chunk = (n[s->dim] + nparts - 1) / nparts;
    if (s->dim == 0) s->chunk = (s->chunk + PART_ELEMENTS - 1) / PART_ELEMENTS * PART_ELEMENTS;
    return (n[s->dim] + s->chunk - 1) / s->chunk;
}

kiln_status kiln_drive(const kiln_plan *plan, const kiln_runner *run, int nest, char *const *ptr,
                       const uint64_t *par, int32_t *trap) {
    int64_t nparts = count_parts(plan, run);
    if (nparts < 2) return drive_alone(plan, run, nest, ptr, par, trap);
    split s = {.plan = plan, .run = run, .nest = nest, .ptr = ptr, .par = par};
    nparts = choose_cut(&s, nparts);
    kiln_pool_for(run->parallel, nparts, run_part, &s);
    *trap = 0;
    for (int64_t k = 0; k < nparts; k++) {
        if (s.status[k] != KILN_OK) return KILN_FAIL(s.status[k], "a part of the call failed: out of memory");
        if (*trap == 0) *trap = s.trap[k];
    }
    return KILN_OK;
}
