/* split.c - (axes, kernel) -> the kernel run by as many threads as are worth it.
 *
 * Work is cut along one dimension of the grid into parts, each of which the driver runs.  What an element costs is known
 * from calls before, or guessed.  Knows costs and threads, not memory or what is computed. */
#include "run/driver.h"

/* -- what it costs ----------------------------------------------------------------------------------------- */

static _Atomic uint32_t *cost_at(const kiln_cost *cost, int tier, int64_t n) {
    int size = n < KILN_CPU_NEAR_ELEMENTS ? 0 : n < KILN_CPU_MIDDLE_ELEMENTS ? 1 : 2;
    return (_Atomic uint32_t *)&cost->ps[tier][size];
}

static uint32_t fit_ps(uint64_t ps) { return ps < KILN_COST_GUESS ? (uint32_t)ps : KILN_COST_GUESS - 1; }

void kiln_cost_guess(kiln_cost *cost, uint64_t interp_ps, uint64_t kernel_ps) {
    for (int k = 0; k < KILN_COST_SIZES; k++) {
        atomic_store_explicit(&cost->ps[KILN_BY_INTERP][k], fit_ps(interp_ps) | KILN_COST_GUESS,
                              memory_order_relaxed);
        atomic_store_explicit(&cost->ps[KILN_BY_KERNEL][k], fit_ps(kernel_ps) | KILN_COST_GUESS,
                              memory_order_relaxed);
    }
}

KILN_HOT bool kiln_cost_of(const kiln_cost *cost, int tier, int64_t n, uint64_t *ps) {
    uint32_t one = atomic_load_explicit(cost_at(cost, tier, n), memory_order_relaxed);
    if (__builtin_mul_overflow((uint64_t)n, one & ~KILN_COST_GUESS, ps)) *ps = UINT64_MAX;
    return !(one & KILN_COST_GUESS);
}

static int tier_of(const kiln_runner *run) { return run->fn ? KILN_BY_KERNEL : KILN_BY_INTERP; }

static int64_t work_ns(const kiln_axes *x, const kiln_runner *run) {
    uint64_t ps;
    (void)kiln_cost_of(run->cost, tier_of(run), x->nelem, &ps);
    return (int64_t)(ps / 1000);
}

/* A first measurement replaces the guess; later ones change it by a quarter, and none to more than twice: the thread may
 * have been held up. */
void kiln_cost_learn(kiln_cost *cost, int tier, int64_t n, int64_t took_ns) {
    _Atomic uint32_t *at = cost_at(cost, tier, n);
    uint32_t old = atomic_load_explicit(at, memory_order_relaxed);
    uint64_t ps = took_ns < INT64_MAX / 1000 ? (uint64_t)took_ns * 1000 / (uint64_t)n : KILN_COST_GUESS;
    if (!(old & KILN_COST_GUESS)) {
        if (ps > 2 * (uint64_t)old + 1) ps = 2 * (uint64_t)old + 1;
        ps = (3 * (uint64_t)old + ps + 2) / 4;
    }
    if (fit_ps(ps) != old) atomic_store_explicit(at, fit_ps(ps), memory_order_relaxed);
}

static bool is_timed(const kiln_axes *x, const kiln_runner *run) {
    return run->cost && x->nelem >= KILN_CPU_TIMED_ELEMENTS;
}

/* -- parts ------------------------------------------------------------------------------------------------- */

/* A dimension of the grid cut in parts of `chunk`.  Bits do not depend on where: elements do not depend on each other. */
typedef struct split {
    const kiln_axes *axes;
    const kiln_runner *run;
    int nest, dim;
    int64_t chunk;
    char *const *ptr;
    const uint64_t *par;
    uint64_t flags; /* of every launch */
    bool timed;
    _Atomic int64_t took_ns; /* by all threads together */
    kiln_status status[KILN_CPU_PARTS_MAX];
    int32_t trap[KILN_CPU_PARTS_MAX];
} split;

/* The first place along each dimension beyond the grid, in room, for a part that begins at `from` of the indexed dimension dim. */
static const int64_t *move_origin(const kiln_axes *x, int dim, int64_t from, int64_t *room) {
    for (int d = x->ngrid; d < x->ndim; d++) room[d - x->ngrid] = x->origin ? x->origin[d - x->ngrid] : 0;
    room[dim - x->ngrid] += from;
    return room;
}

static void run_part(void *user, int64_t part) {
    split *s = user;
    kiln_axes x = *s->axes;
    int64_t n[KILN_MAX_DIMS], origin[KILN_MAX_DIMS];
    char *ptr[KILN_DRIVE_BUFFERS];
    int64_t from = part * s->chunk, whole = x.n[s->dim], left = whole - from;
    if (s->dim >= x.ngrid) x.origin = move_origin(&x, s->dim, from, origin);
    for (int b = 0; b < x.nbuffers; b++)
        ptr[b] = s->ptr[b] + (x.triangle ? kiln_drive_triangle_from(&x, b, from)
                                         : from * kiln_axes_stride(&x, b, s->dim));
    for (int d = 0; d < x.ndim; d++) n[d] = x.n[d];
    n[s->dim] = left < s->chunk ? left : s->chunk;
    if (x.triangle) n[0] -= from;
    x.n = n;
    x.npoints = x.npoints / whole * n[s->dim];
    x.nelem = x.nelem / whole * n[s->dim];
    int64_t start = s->timed ? kiln_clock_ns() : 0;
    const kiln_pass pass = {&x, s->run, s->par, s->flags, s->nest};
    s->status[part] = kiln_drive_alone(&pass, ptr, &s->trap[part]);
    if (s->timed) atomic_fetch_add_explicit(&s->took_ns, kiln_clock_ns() - start, memory_order_relaxed);
}

int64_t kiln_drive_parts(const kiln_axes *x, const kiln_runner *run, int *threads) {
    *threads = 1;
    if (!run->parallel || run->parallel->threads < 2 || x->nelem < KILN_CPU_PART_ELEMENTS) return 1;
    int64_t work = work_ns(x, run);
    *threads = kiln_pool_threads(run->parallel, work);
    if (*threads < 2) return 1;
    int64_t parts = work / KILN_CPU_PART_NS, enough = (int64_t)*threads * KILN_CPU_PARTS_PER_THREAD;
    if (parts < *threads) parts = *threads;
    if (parts > enough) parts = enough;
    if (work / KILN_CPU_PART_MOST_NS > parts) parts = work / KILN_CPU_PART_MOST_NS;
    if (parts > KILN_CPU_PARTS_MAX) parts = KILN_CPU_PARTS_MAX;
    return parts > *threads ? parts - parts % *threads : parts; /* as many for each, where all are as fast */
}

static int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* The outermost dimension that is long enough, else the longest; indexed ones are inside those before them.  Columns that are gone down are cut in few parts, so that they are
 * wide, if there is one for each thread. */
static int64_t choose_cut(split *s, int64_t nparts, int threads) {
    const kiln_axes *x = s->axes;
    const int64_t *n = x->n;
    s->dim = x->nindexed ? x->ngrid + x->nindexed - 1 : 0;
    for (int d = s->dim - 1; d >= x->ngrid; d--)
        if (n[d] >= nparts || n[d] > n[s->dim]) s->dim = d;
    for (int d = 0; d < x->ngrid; d++)
        if (n[d] >= nparts || n[d] > n[s->dim] || x->triangle) s->dim = d;
    s->chunk = pieces(n[s->dim], nparts);
    if (s->dim == x->vector && x->ndim > x->ngrid && s->chunk < KILN_CPU_PART_COLUMNS) {
        int64_t most = pieces(n[s->dim], threads);
        s->chunk = most < KILN_CPU_PART_COLUMNS ? most : KILN_CPU_PART_COLUMNS;
    }
    if (s->dim == x->vector) s->chunk = pieces(s->chunk, KILN_CPU_PART_ELEMENTS) * KILN_CPU_PART_ELEMENTS;
    return pieces(n[s->dim], s->chunk);
}

static kiln_status drive_parts(const kiln_axes *x, const kiln_runner *run, split *s, int threads,
                               int64_t nparts, int32_t *trap) {
    nparts = choose_cut(s, nparts, threads);
    kiln_pool_for(run->parallel, threads, nparts, run_part, s);
    *trap = 0;
    for (int64_t k = 0; k < nparts; k++) {
        if (s->status[k] != KILN_OK)
            return KILN_FAIL(s->status[k], "a part of the call failed: out of memory");
        if (*trap == 0) *trap = s->trap[k];
    }
    if (s->timed) kiln_cost_learn(run->cost, tier_of(run), x->nelem, atomic_load(&s->took_ns));
    return KILN_OK;
}

KILN_HOT kiln_status kiln_drive(const kiln_axes *x, const kiln_runner *run, int nest, char *const *ptr,
                                const uint64_t *par, int32_t *trap) {
    _Static_assert((int64_t)KILN_CPU_TIMED_ELEMENTS <= KILN_CPU_FAR_LEAST, "small calls need no flags");
    kiln_pass pass = {x, run, par, 0, nest};
    bool alone = !run->parallel || run->parallel->threads < 2;
    if (x->nelem < KILN_CPU_TIMED_ELEMENTS && (alone || work_ns(x, run) < KILN_POOL_LEAST_NS))
        return kiln_drive_alone(&pass, ptr, trap);
    int threads;
    int64_t nparts = kiln_drive_parts(x, run, &threads);
    uint64_t flags = kiln_drive_flags(x, threads, ptr);
    bool timed = is_timed(x, run);
    if (nparts < 2) {
        int64_t start = timed ? kiln_clock_ns() : 0;
        pass.flags = flags;
        kiln_status st = kiln_drive_alone(&pass, ptr, trap);
        if (timed && st == KILN_OK)
            kiln_cost_learn(run->cost, tier_of(run), x->nelem, kiln_clock_ns() - start);
        return st;
    }
    split s = {.axes = x, .run = run, .nest = nest, .ptr = ptr, .par = par, .flags = flags, .timed = timed};
    return drive_parts(x, run, &s, threads, nparts, trap);
}

bool kiln_may_be_shared(const kiln_axes *x, const kiln_runner *run, uint64_t least_ns) {
    uint64_t ps;
    if (!run->parallel || run->parallel->threads < 2) return false;
    bool known = kiln_cost_of(run->cost, tier_of(run), x->nelem, &ps) || !is_timed(x, run);
    return !known || ps / 1000 >= least_ns;
}
