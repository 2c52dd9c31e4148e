/* parts.c - (axes, kernel with partial folds) -> its results, by several threads within one fold.
 *
 * The slowest reduced axis is cut at multiples of the fold's blocks times a power of two, which is where its tree has
 * whole branches; each part leaves its states in memory, and one more launch merges them in their order.  So the bits
 * do not depend on how many parts there are.  Knows axes and pointers, not what is folded. */
#include "run/driver.h"
#include "tensor/tensor.h"

enum { MAX_BUFFERS = KILN_DRIVE_BUFFERS };

/* Positions of the reduced axis, the first dimension beyond the grid, in each part: at most `most` parts. */
static int64_t part_length(const kiln_axes *x, const kiln_partial *how, int64_t most) {
    int64_t n = x->n[x->ngrid], length = how->unit;
    while (length < n && (n + length - 1) / length > most) length *= 2;
    return length;
}

bool kiln_parts_wanted(const kiln_axes *x, const kiln_runner *run, const kiln_partial *how) {
    if (!run->parallel || x->nelem == 0) return false;
    int threads;
    int64_t most = kiln_drive_parts(x, run, &threads),
            points = x->vector < x->ngrid ? KILN_CPU_FOLD_PART_LANES : 1;
    return most > 1 && x->npoints < most * points && part_length(x, how, most) < x->n[x->ngrid];
}

/* A fold on its way: the kernel's axes with buffers for states. */
typedef struct sharing {
    const kiln_axes *axes;
    kiln_runner run;
    const kiln_partial *how;
    const uint64_t *par;
    int64_t length, nparts;
    char *ptr[MAX_BUFFERS];
    int64_t stride[MAX_BUFFERS * KILN_MAX_DIMS]; /* as wide as there are dimensions */
    uint8_t bytes[MAX_BUFFERS];
    _Atomic int64_t took_ns; /* by all threads together */
    atomic_int failed;       /* a kiln_status */
} sharing;

/* States lie side by side over the grid, part after part. */
static int64_t place_states(sharing *s) {
    const kiln_axes *x = s->axes;
    int64_t at = 0;
    for (int k = 0; k < s->how->nstates; k++) {
        int64_t *one = s->stride + (x->nbuffers + k) * x->ndim;
        int64_t *all = one + s->how->nstates * x->ndim, next = s->how->bytes[k];
        for (int d = 0; d < x->ndim; d++) {
            one[d] = all[d] = d < x->ngrid ? next : 0;
            if (d < x->ngrid) next *= x->n[d];
        }
        all[x->ndim - 1] = next;
        s->bytes[x->nbuffers + k] = s->bytes[x->nbuffers + s->how->nstates + k] = s->how->bytes[k];
        s->ptr[x->nbuffers + k] = s->ptr[x->nbuffers + s->how->nstates + k] = (char *)at; /* moved below */
        at += kiln_block_align(next * s->nparts);
    }
    return at;
}

/* The axes with buffers for states, and `count` positions along dimension d.  n: room for extents. */
static kiln_axes with_states(const sharing *s, int d, int64_t count, int64_t *n) {
    kiln_axes x = *s->axes;
    for (int k = 0; k < x.ndim; k++) n[k] = k == d ? count : x.n[k];
    x.n = n;
    x.nbuffers += 2 * s->how->nstates;
    x.pitch = x.ndim;
    x.stride = s->stride;
    x.bytes = s->bytes;
    return x;
}

static void run_nest(sharing *s, const kiln_axes *x, int nest, char *const *ptr) {
    int32_t trap = 0;
    kiln_status st = kiln_drive(x, &s->run, nest, ptr, s->par, &trap);
    if (st == KILN_OK && trap) st = KILN_E_BUG; /* guards ran before */
    if (st != KILN_OK) atomic_store(&s->failed, (int)st);
}

static void run_part(void *user, int64_t part) {
    sharing *s = user;
    int r = s->axes->ngrid;
    int64_t n[KILN_MAX_DIMS], origin[KILN_MAX_DIMS] = {part * s->length}, left = s->axes->n[r] - origin[0];
    char *ptr[MAX_BUFFERS];
    kiln_axes x = with_states(s, r, left < s->length ? left : s->length, n);
    x.origin = origin;
    for (int b = 0; b < x.nbuffers; b++) ptr[b] = s->ptr[b];
    for (int b = 0; b < s->axes->nbuffers; b++)
        if (ptr[b]) ptr[b] += origin[0] * kiln_axes_stride(&x, b, r);
    for (int k = 0, b = s->axes->nbuffers; k < s->how->nstates; k++, b++)
        ptr[b] += part * kiln_axes_stride(&x, b + s->how->nstates, x.ndim - 1);
    int64_t start = kiln_clock_ns();
    run_nest(s, &x, s->how->nest, ptr);
    atomic_fetch_add_explicit(&s->took_ns, kiln_clock_ns() - start, memory_order_relaxed);
}

kiln_status kiln_parts_run(const kiln_axes *x, const kiln_runner *run, const kiln_partial *how,
                           char *const *ptr, const uint64_t *par) {
    int threads;
    sharing s = {.axes = x, .run = *run, .how = how, .par = par};
    s.run.parallel = NULL; /* each part in one thread, */
    s.run.cost = NULL;     /* and timed here */
    s.length = part_length(x, how, kiln_drive_parts(x, run, &threads));
    s.nparts = (x->n[x->ngrid] + s.length - 1) / s.length;
    for (int b = 0; b < x->nbuffers; b++) {
        s.ptr[b] = ptr[b];
        s.bytes[b] = x->bytes[b];
        for (int d = 0; d < x->ndim; d++) s.stride[b * x->ndim + d] = kiln_axes_stride(x, b, d);
    }
    int64_t nbytes = place_states(&s), n[KILN_MAX_DIMS];
    kiln_tensor *room = kiln_tensor_new_trusted(KILN_U8, 1, &nbytes, NULL, nbytes);
    if (!room) return KILN_NOMEM();
    for (int b = x->nbuffers; b < x->nbuffers + 2 * how->nstates; b++)
        s.ptr[b] = room->data + (uintptr_t)s.ptr[b];
    kiln_pool_for(run->parallel, threads, s.nparts, run_part, &s);
    kiln_cost_learn(run->cost, run->fn ? KILN_BY_KERNEL : KILN_BY_INTERP, x->nelem, atomic_load(&s.took_ns));
    kiln_axes merged = with_states(&s, x->ndim - 1, s.nparts, n);
    if (!atomic_load(&s.failed)) run_nest(&s, &merged, how->nest + 1, s.ptr);
    kiln_tensor_release(room);
    kiln_status st = (kiln_status)atomic_load(&s.failed);
    if (st == KILN_OK) return st;
    return KILN_FAIL(st,
                     st == KILN_E_NOMEM ? "a part of a fold is out of memory" : "a kernel of parts trapped");
}
