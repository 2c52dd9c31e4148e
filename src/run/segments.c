/* segments.c - (many runs of elements, one kernel) -> the kernel run over each, by as many threads as all are worth.
 *
 * All segments together are one row of elements, which is cut into parts of the same number of elements: one
 * fork and one join however many segments there are, and a part may be several segments or a piece of one.  Elements do not
 * depend on each other, so bits do not depend on the cuts.  Knows pointers and costs, not what is computed. */
#include "run/driver.h"
#include "tensor/blocks.h"

typedef struct sharing {
    const kiln_axes *axes;
    const kiln_runner *run;
    const kiln_segment *segment;
    size_t nsegments;
    int64_t chunk;
    int64_t piece;  /* elements that are launched at once; where all is near, any number */
    bool large;     /* it is not */
    int first_read; /* buffers before it are written, and not read */
    uint64_t flags; /* of every launch */
    int64_t stride[2 * KILN_SEGMENT_BUFFERS];
    bool timed;
    _Atomic int64_t took_ns; /* by all threads together */
    kiln_status status[KILN_CPU_PARTS_MAX];
    int32_t trap[KILN_CPU_PARTS_MAX];
} sharing;

/* The segment that element `at` of all is in. */
static size_t segment_at(const sharing *s, int64_t at) {
    size_t lo = 0, hi = s->nsegments;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (s->segment[mid].start <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static kiln_status launch(const sharing *s, kiln_launch *l, int32_t *trap) {
    if (!s->run->fn) return kiln_interp_run(s->run->interp, l, trap);
    *trap = s->run->fn(l);
    return KILN_OK;
}

/* Asks for the first lines of each buffer's next piece: it begins on another page, which no prefetcher of the processor
 * goes on to by itself, so that each page would begin with a wait for memory. */
static void look_ahead(const sharing *s, const kiln_segment *g, int64_t skip, int64_t left) {
    for (int b = s->first_read; b < s->axes->nbuffers; b++) {
        int64_t step = s->stride[2 * b],
                n = left * step < KILN_CPU_LIST_AHEAD_BYTES ? left * step : KILN_CPU_LIST_AHEAD_BYTES;
        const char *at = g->ptr[b] + skip * step;
        for (int64_t k = 0; k < n; k += KILN_CPU_LINE) __builtin_prefetch(at + k);
    }
}

/* A launch, with the extents and addresses that it points to. */
typedef struct piece {
    kiln_launch launch;
    int64_t n[2];
    char *ptr[KILN_SEGMENT_BUFFERS];
} piece;

/* n elements of a segment from `skip` on, by pieces. */
static kiln_status run_pieces(const sharing *s, const kiln_segment *g, int64_t skip, int64_t n, piece *p,
                              int32_t *trap) {
    kiln_status st = KILN_OK;
    const kiln_segment *end = s->segment + s->nsegments;
    p->launch.par = g->par;
    for (int64_t done = 0; done < n && st == KILN_OK && *trap == 0; done += p->n[0]) {
        int64_t left = n - done;
        p->n[0] = left < 2 * s->piece ? left : s->piece;
        for (int b = 0; b < s->axes->nbuffers; b++) p->ptr[b] = g->ptr[b] + (skip + done) * s->stride[2 * b];
        if (left > p->n[0])
            look_ahead(s, g, skip + done + p->n[0], left - p->n[0]);
        else if (s->large && g + 1 != end)
            look_ahead(s, g + 1, 0, g[1].n);
        st = launch(s, &p->launch, trap);
    }
    return st;
}

/* Elements from..to of all. */
static kiln_status run_between(const sharing *s, int64_t from, int64_t to, int32_t *trap) {
    static const int64_t origin[2];
    piece p;
    p.n[1] = 1;
    p.launch = (kiln_launch){
        .ndim = 2, .n = p.n, .ptr = p.ptr, .stride = s->stride, .origin = origin, .flags = s->flags};
    kiln_home home = 0;
    kiln_status st = KILN_OK;
    if (s->run->fn && s->run->work && !(p.launch.work = kiln_block_take_any(s->run->work, &home)))
        return KILN_NOMEM();
    *trap = 0;
    for (size_t k = segment_at(s, from); from < to && st == KILN_OK && *trap == 0; k++) {
        const kiln_segment *g = &s->segment[k];
        int64_t skip = from - g->start, left = g->n - skip;
        if (left > to - from) left = to - from;
        st = run_pieces(s, g, skip, left, &p, trap);
        from += left;
    }
    if (p.launch.work) kiln_block_give(p.launch.work, home);
    return st;
}

static void run_part(void *user, int64_t part) {
    sharing *s = user;
    int64_t from = part * s->chunk, to = from + s->chunk;
    if (to > s->axes->nelem) to = s->axes->nelem;
    int64_t start = s->timed ? kiln_clock_ns() : 0;
    s->status[part] = run_between(s, from, to, &s->trap[part]);
    if (s->timed) atomic_fetch_add_explicit(&s->took_ns, kiln_clock_ns() - start, memory_order_relaxed);
}

/* How many elements are a page of the buffer with the largest ones. */
static void set_pieces(sharing *s) {
    const kiln_axes *x = s->axes;
    int64_t widest = 1, all = 0;
    for (int b = 0; b < x->nbuffers; b++) {
        if (s->stride[2 * b] > widest) widest = s->stride[2 * b];
        all += s->stride[2 * b];
    }
    s->large = x->nelem >= KILN_CPU_LIST_LARGE_BYTES / (all ? all : 1);
    s->piece = s->large ? KILN_CPU_PAGE / widest : x->nelem;
    s->first_read = x->nwritten; /* what is written in place is read too, as another buffer */
}

/* As kiln_drive_flags.  All items write what they have just read if the first one does. */
static uint64_t launch_flags(const kiln_axes *x, const kiln_segment *g) {
    int64_t bytes = 0;
    bool over = false;
    for (int b = 0; b < x->nbuffers; b++) {
        if (kiln_axes_stride(x, b, 0)) bytes += x->bytes[b];
        for (int k = 0; k < x->nwritten; k++) over |= b != k && g->ptr[b] == g->ptr[k];
    }
    bytes *= x->nelem;
    return (bytes >= KILN_CPU_MEMORY_BYTES ? KILN_LAUNCH_MEMORY : 0) |
           (bytes >= KILN_CPU_STREAM_BYTES && !over ? KILN_LAUNCH_STREAM : 0);
}

static kiln_status run_shared(sharing *s, int threads, int64_t nparts, int32_t *trap) {
    s->chunk = (s->axes->nelem + nparts - 1) / nparts;
    s->chunk = (s->chunk + KILN_CPU_PART_ELEMENTS - 1) / KILN_CPU_PART_ELEMENTS * KILN_CPU_PART_ELEMENTS;
    nparts = (s->axes->nelem + s->chunk - 1) / s->chunk;
    kiln_pool_for(s->run->parallel, threads, nparts, run_part, s);
    *trap = 0;
    for (int64_t k = 0; k < nparts; k++) {
        if (s->status[k] != KILN_OK)
            return KILN_FAIL(s->status[k], "a part of the call failed: out of memory");
        if (*trap == 0) *trap = s->trap[k];
    }
    return KILN_OK;
}

kiln_status kiln_segments_run(const kiln_axes *x, const kiln_runner *run, const kiln_segment *segment,
                              size_t nsegments, bool ordered, int32_t *trap) {
    sharing s;
    int threads = 1;
    s.axes = x;
    s.run = run;
    s.segment = segment;
    s.nsegments = nsegments;
    s.flags = launch_flags(x, segment);
    s.timed = run->cost && x->nelem >= KILN_CPU_TIMED_ELEMENTS;
    s.took_ns = 0;
    for (int b = 0; b < x->nbuffers; b++) {
        s.stride[2 * b] = kiln_axes_stride(x, b, 0);
        s.stride[2 * b + 1] = 0;
    }
    set_pieces(&s);
    int64_t nparts = ordered ? 1 : kiln_drive_parts(x, run, &threads);
    int64_t start = s.timed ? kiln_clock_ns() : 0;
    kiln_status st = nparts < 2 ? run_between(&s, 0, x->nelem, trap) : run_shared(&s, threads, nparts, trap);
    if (!s.timed || st != KILN_OK) return st;
    int64_t took = nparts < 2 ? kiln_clock_ns() - start : atomic_load(&s.took_ns);
    kiln_cost_learn(run->cost, run->fn ? KILN_BY_KERNEL : KILN_BY_INTERP, x->nelem, took);
    return KILN_OK;
}
