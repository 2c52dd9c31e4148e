/* driver.c - (axes, kernel) -> the kernel run over every point.
 *
 * A kernel's grid axis takes two dimensions, the inner one and a second; the rest are walked here like an odometer.
 * An input that lies transposed (side by side along the second dimension, far apart along the inner one) is
 * brought into order tile by tile, since reading it element by element touches a cache line for each.  Knows
 * strides and pointers, not dtypes or what is computed. */
#include <string.h>

#include "run/driver.h"
#include "run/loops.h"
#include "tensor/blocks.h"

enum {
    INNER = 2, /* dimensions of the grid in one launch; all others of the axes follow */
    LAUNCH_DIMS = KILN_IR_MAX_AXES + 1,
    TILE_ROWS = 16,         /* along the second dimension: a cache line of 4-byte elements */
    TILE_COLS = 64,         /* along the inner one, at most */
    TILE_BAND = 512,        /* columns whose rows are followed down together */
    TILE_BYTES = 32 * 1024, /* of stack, for all tiles of a launch */
    TILE_LEAST = 8,         /* a shorter side is not worth it */
    LAUNCH_FEW = 64,        /* elements that are too few for a launch, where a call can have more */
    LAUNCH_NEAR = 4096,     /* elements that are near in any order */
    STREAM_ROW = 4096,      /* bytes of a row of results worth writing past the caches */
    LONG_ROW = 12 * 1024,   /* bytes of a row read again and again that do not stay in the first cache */
    SIDE_ROWS = 4,          /* rows of results then made side by side, ... */
    SIDE_COLS = 128         /* ... this many elements of each at a time */
};
#define STREAM_BYTES ((int64_t)32 << 20) /* of all operands: more than a core's share of the caches */
#define STREAM_LEAST (STREAM_BYTES / (16 * KILN_MAX_OPERANDS)) /* elements that can be so many bytes */

typedef struct drive {
    const kiln_axes *axes;
    const kiln_runner *run;
    kiln_launch launch;
    int first, second; /* dimensions of the grid that are the launch's: the inner one, the other */
    int64_t n[LAUNCH_DIMS],
        index[KILN_MAX_DIMS]; /* index: of the walk, for the dimensions outside the launch */
    int64_t stride[KILN_MAX_OPERANDS * LAUNCH_DIMS];
    char *at[KILN_MAX_OPERANDS];
} drive;

static kiln_status run_box(const drive *d, int32_t *trap) {
    if (!d->run->fn) return kiln_interp_run(d->run->interp, &d->launch, trap);
    *trap = d->run->fn(&d->launch);
    return KILN_OK;
}

/* Moves to the next place in the grid, but for the dimensions of the launch; false when all have been visited. */
static bool advance(const kiln_axes *x, int first, int second, int64_t *index, char **at) {
    for (int k = 0; k < x->ngrid; k++) {
        if (k == first || k == second) continue;
        for (int b = 0; b < x->nbuffers; b++) at[b] += kiln_axes_stride(x, b, k);
        if (++index[k] < x->n[k]) return true;
        for (int b = 0; b < x->nbuffers; b++) at[b] -= kiln_axes_stride(x, b, k) * x->n[k];
        index[k] = 0;
    }
    return false;
}

static bool advance_drive(drive *d) {
    return d->axes->ngrid > INNER && advance(d->axes, d->first, d->second, d->index, d->at);
}

/* -- tiles ------------------------------------------------------------------------------------------------ */

/* A launch cut in small ones. */
typedef struct tiles {
    uint32_t packed;         /* bit b: operand b goes through a copy of the tile */
    int64_t cols;            /* elements of a tile along the inner dimension, ... */
    int64_t rows;            /* ... along the second one */
    int64_t band;            /* columns whose rows are followed down together */
    const kiln_loops *loops; /* that copy */
} tiles;

static bool lies_along(const kiln_axes *x, int operand, int dim) {
    int64_t size = x->bytes[operand];
    return size <= KILN_TRANSPOSE_MAX && kiln_axes_stride(x, operand, dim) == size && x->n[dim] >= TILE_LEAST;
}

/* Picks the dimension along which some transposed input lies, as the second one, and all inputs that lie so.
 * Results need no tiles: the inner dimension is the one they lie along.  A band is narrow enough for the pages of its
 * input rows to stay at hand while it is followed down. */
static bool find_tiles(const kiln_axes *x, const kiln_runner *run, int *second, tiles *t) {
    if (!x->strided || x->n[0] < TILE_LEAST || x->ngrid < x->ndim) return false;
    *t = (tiles){.cols = TILE_COLS, .rows = TILE_ROWS, .band = TILE_BAND};
    for (int b = x->nwritten; b < x->nbuffers; b++) {
        if (lies_along(x, b, 0)) continue;
        for (int d = 1; d < x->ndim && !t->packed; d++)
            if (lies_along(x, b, d)) *second = d, t->packed = 1u << b;
        if (t->packed && lies_along(x, b, *second)) t->packed |= 1u << b;
    }
    if (!t->packed) return false;
    int count = __builtin_popcount(t->packed);
    while (count * t->cols * TILE_ROWS * KILN_TRANSPOSE_MAX > TILE_BYTES) t->cols /= 2;
    t->loops = kiln_loops_for(run->isa);
    return true;
}

/* Points the launch at the tile whose first element is (i, j); packed inputs at a transposed copy in `room`. */
static void enter_tile(drive *d, const tiles *t, int64_t i, int64_t j, char *const *base, char *room) {
    const kiln_axes *x = d->axes;
    int64_t cols = x->n[0] - i < t->cols ? x->n[0] - i : t->cols;
    int64_t rows = x->n[d->second] - j < t->rows ? x->n[d->second] - j : t->rows;
    d->n[0] = cols, d->n[1] = rows;
    for (int b = 0; b < x->nbuffers; b++) {
        d->at[b] = base[b] + i * kiln_axes_stride(x, b, 0) + j * kiln_axes_stride(x, b, d->second);
        if (!(t->packed >> b & 1)) continue;
        size_t size = x->bytes[b];
        int64_t row = (int64_t)size * t->cols;
        t->loops->transpose[size](room, row, d->at[b], kiln_axes_stride(x, b, 0), (size_t)cols, (size_t)rows);
        d->at[b] = room;
        d->stride[b * INNER] = (int64_t)size;
        d->stride[b * INNER + 1] = row;
        room += row * TILE_ROWS;
    }
}

static kiln_status run_band(drive *d, const tiles *t, int64_t from, char *const *base, char *room,
                            int32_t *trap) {
    int64_t cols = d->axes->n[0], rows = d->axes->n[d->second];
    int64_t to = cols - from < t->band ? cols : from + t->band;
    uint64_t flags = d->launch.flags;
    for (int64_t j = 0; j < rows; j += t->rows)
        for (int64_t i = from; i < to && *trap == 0; i += t->cols) {
            bool last = i + t->cols >= cols && j + t->rows >= rows;
            d->launch.flags = flags && !last ? flags | KILN_LAUNCH_MORE : flags;
            enter_tile(d, t, i, j, base, room);
            KILN_TRY(run_box(d, trap));
        }
    d->launch.flags = flags;
    return KILN_OK;
}

static kiln_status run_tiles(drive *d, const tiles *t, int32_t *trap) {
    _Alignas(64) char room[TILE_BYTES];
    char *base[KILN_MAX_OPERANDS];
    const kiln_axes *x = d->axes;
    do {
        memcpy(base, d->at, (size_t)x->nbuffers * sizeof *base);
        kiln_status st = KILN_OK;
        for (int64_t i = 0; i < x->n[0] && *trap == 0 && st == KILN_OK; i += t->band)
            st = run_band(d, t, i, base, room, trap);
        memcpy(d->at, base, (size_t)x->nbuffers * sizeof *base); /* some led into this frame */
        KILN_TRY(st);
    } while (*trap == 0 && advance_drive(d));
    return KILN_OK;
}

/* -- large results ---------------------------------------------------------------------------------------- */

/* Whether results are better written past the caches: the call moves more than they hold, in long rows, and does
 * not write what it has just read. */
static bool streams(const kiln_axes *x, char *const *ptr) {
    int64_t total = 0;
    if (x->strided || x->nelem < STREAM_LEAST || x->ngrid < x->ndim) return false;
    for (int b = 0; b < x->nbuffers; b++) {
        int64_t size = x->bytes[b], points = 1;
        for (int d = 0; d < x->ndim; d++)
            if (kiln_axes_stride(x, b, d)) points *= x->n[d];
        total += points * size;
        if (b < x->nwritten && x->n[0] * size < STREAM_ROW) return false;
        for (int k = x->nwritten; k < x->nbuffers; k++)
            if (b < x->nwritten && ptr[k] == ptr[b]) return false;
    }
    return total >= STREAM_BYTES;
}

/* Whether a large call reads a long row again for each row of results.  It would come from the second cache every
 * time, and get in the way of what comes from memory.  By short pieces of a few rows in turn, the piece of the row read
 * again stays near, and the rows that come from memory are few enough for the processor to follow each. */
static bool reads_again(const kiln_axes *x, uint64_t flags, tiles *t) {
    bool again = false;
    if (!(flags & KILN_LAUNCH_STREAM) || x->ndim < 2 || x->n[1] < SIDE_ROWS) return false;
    for (int b = x->nwritten; b < x->nbuffers; b++)
        again |= kiln_axes_stride(x, b, 0) && !kiln_axes_stride(x, b, 1) &&
                 x->n[0] * kiln_axes_stride(x, b, 0) > LONG_ROW;
    if (again) *t = (tiles){.cols = SIDE_COLS, .rows = SIDE_ROWS, .band = x->n[0]};
    return again;
}

/* The launch's dimensions: the two that move fastest, unless these are so short that the call would be all launches;
 * then the longest of the others is the second, and of a small call in the strided class, whose kernel
 * does not mind, the longest of all the inner one. */
static void pick_dims(const kiln_axes *x, int *first, int *second) {
    *first = 0, *second = 1;
    if (x->ngrid < INNER || x->n[0] * x->n[1] >= LAUNCH_FEW) return;
    for (int k = 1; k < x->ngrid && x->strided && x->npoints <= LAUNCH_NEAR; k++)
        if (x->n[k] > x->n[*first]) *first = k;
    if (*first == 1) *second = 0;
    for (int k = 0; k < x->ngrid; k++)
        if (k != *first && x->n[k] > x->n[*second]) *second = k;
}

/* Extents and strides of a launch over dimensions first and second of the grid and all others; how many that are. */
static int set_box(const kiln_axes *x, int first, int second, int64_t *n, int64_t *stride) {
    bool flat = x->ngrid <= second;
    int rest = x->ndim - x->ngrid;
    const int64_t *of = x->stride, *end = of + x->nbuffers * x->pitch;
    n[0] = x->n[first];
    n[1] = flat ? 1 : x->n[second];
    for (int d = 0; d < rest; d++) n[INNER + d] = x->n[x->ngrid + d];
    for (; rest == 0 && of != end; of += x->pitch, stride += INNER) {
        stride[0] = of[first];
        stride[1] = flat ? 0 : of[second];
    }
    for (; of != end; of += x->pitch) {
        *stride++ = of[first];
        *stride++ = flat ? 0 : of[second];
        for (int d = x->ngrid; d < x->ndim; d++) *stride++ = of[d];
    }
    return INNER + rest;
}

/* The origin of a launch, in room. */
static const int64_t *set_origin(const kiln_axes *x, int64_t *room) {
    room[0] = room[1] = 0;
    for (int d = 0; d < x->ndim - x->ngrid; d++) room[INNER + d] = x->origin[d];
    return room;
}

static kiln_status drive_alone(const kiln_axes *x, const kiln_runner *run, int nest, char *const *ptr,
                               const uint64_t *par, uint64_t flags, int32_t *trap) {
    static const int64_t zeros[LAUNCH_DIMS];
    int64_t origin[LAUNCH_DIMS];
    tiles t;
    drive d;
    d.axes = x;
    d.run = run;
    d.first = 0, d.second = 1;
    bool tiled = find_tiles(x, run, &d.second, &t);
    if (!tiled) pick_dims(x, &d.first, &d.second);
    int ndim = set_box(x, d.first, d.second, d.n, d.stride);
    for (int b = 0; b < x->nbuffers; b++) d.at[b] = ptr[b];
    d.launch = (kiln_launch){.nest = nest,
                             .ndim = ndim,
                             .n = d.n,
                             .ptr = d.at,
                             .stride = d.stride,
                             .origin = x->origin ? set_origin(x, origin) : zeros,
                             .par = par,
                             .flags = flags};
    for (int k = 0; k < x->ngrid && x->ngrid > INNER; k++) d.index[k] = 0;
    *trap = 0;
    if (tiled || (run->fn && reads_again(x, flags, &t))) return run_tiles(&d, &t, trap);
    kiln_home home = 0;
    if (run->fn && run->work && !(d.launch.work = kiln_block_take(run->work, &home))) return KILN_NOMEM();
    kiln_status st;
    do st = run_box(&d, trap);
    while (st == KILN_OK && *trap == 0 && advance_drive(&d));
    if (d.launch.work) kiln_block_give(d.launch.work, home);
    return st;
}

/* -- several threads -------------------------------------------------------------------------------------- */

enum {
    PART_NS = 2500,        /* least work of a part */
    PART_MOST_NS = 200000, /* most: a thread that is held up holds the others up for no longer */
    PARTS_PER_THREAD = 4,  /* threads are not equally fast */
    PARTS_MAX = 256,
    PART_ELEMENTS = 64,      /* borders inside a row are multiples: whole vectors, whole cache lines */
    TIMED_ELEMENTS = 1 << 14 /* from which a clock costs nothing */
};

/* -- what it costs ---- */

static _Atomic uint32_t *cost_at(const kiln_cost *cost, int tier, int64_t n) {
    int size = n < 1 << 18 ? 0 : n < 1 << 22 ? 1 : 2;
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

bool kiln_cost_of(const kiln_cost *cost, int tier, int64_t n, uint64_t *ps) {
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
    return run->cost && x->nelem >= TIMED_ELEMENTS;
}

/* -- parts ---- */

/* A dimension cut in parts of `chunk`.  Bits do not depend on where: elements do not depend on each other. */
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
    kiln_status status[PARTS_MAX];
    int32_t trap[PARTS_MAX];
} split;

static void run_part(void *user, int64_t part) {
    split *s = user;
    kiln_axes x = *s->axes;
    int64_t n[KILN_MAX_DIMS];
    char *ptr[KILN_MAX_OPERANDS];
    int64_t from = part * s->chunk, whole = x.n[s->dim], left = whole - from;
    for (int b = 0; b < x.nbuffers; b++) ptr[b] = s->ptr[b] + from * kiln_axes_stride(&x, b, s->dim);
    for (int d = 0; d < x.ndim; d++) n[d] = x.n[d];
    n[s->dim] = left < s->chunk ? left : s->chunk;
    x.n = n;
    x.npoints = x.npoints / whole * n[s->dim];
    x.nelem = x.nelem / whole * n[s->dim];
    int64_t start = s->timed ? kiln_clock_ns() : 0;
    s->status[part] = drive_alone(&x, s->run, s->nest, ptr, s->par, s->flags, &s->trap[part]);
    if (s->timed) atomic_fetch_add_explicit(&s->took_ns, kiln_clock_ns() - start, memory_order_relaxed);
}

int64_t kiln_drive_parts(const kiln_axes *x, const kiln_runner *run, int *threads) {
    *threads = 1;
    if (!run->parallel || run->parallel->threads < 2 || x->nelem < PART_ELEMENTS) return 1;
    int64_t work = work_ns(x, run);
    *threads = kiln_pool_threads(run->parallel, work);
    if (*threads < 2) return 1;
    int64_t parts = work / PART_NS, enough = (int64_t)*threads * PARTS_PER_THREAD;
    if (parts > enough) parts = enough;
    if (work / PART_MOST_NS > parts) parts = work / PART_MOST_NS;
    return parts < PARTS_MAX ? parts : PARTS_MAX;
}

/* The outermost dimension that is long enough, else the longest. */
static int64_t choose_cut(split *s, int64_t nparts) {
    const int64_t *n = s->axes->n;
    s->dim = 0;
    for (int d = 1; d < s->axes->ngrid; d++)
        if (n[d] >= nparts || n[d] > n[s->dim]) s->dim = d;
    s->chunk = (n[s->dim] + nparts - 1) / nparts;
    if (s->dim == 0) s->chunk = (s->chunk + PART_ELEMENTS - 1) / PART_ELEMENTS * PART_ELEMENTS;
    return (n[s->dim] + s->chunk - 1) / s->chunk;
}

static kiln_status drive_parts(const kiln_axes *x, const kiln_runner *run, split *s, int threads,
                               int64_t nparts, int32_t *trap) {
    nparts = choose_cut(s, nparts);
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

kiln_status kiln_drive(const kiln_axes *x, const kiln_runner *run, int nest, char *const *ptr,
                       const uint64_t *par, int32_t *trap) {
    int threads;
    int64_t nparts = kiln_drive_parts(x, run, &threads);
    uint64_t flags = streams(x, ptr) ? KILN_LAUNCH_STREAM : 0;
    bool timed = is_timed(x, run);
    if (nparts < 2) {
        int64_t start = timed ? kiln_clock_ns() : 0;
        kiln_status st = drive_alone(x, run, nest, ptr, par, flags, trap);
        if (timed && st == KILN_OK)
            kiln_cost_learn(run->cost, tier_of(run), x->nelem, kiln_clock_ns() - start);
        return st;
    }
    split s = {.axes = x, .run = run, .nest = nest, .ptr = ptr, .par = par, .flags = flags, .timed = timed};
    return drive_parts(x, run, &s, threads, nparts, trap);
}

/* -- small calls, again and again -------------------------------------------------------------------------- */

/* Whether such calls may want several threads, now or when they have been timed. */
static bool may_be_shared(const kiln_axes *x, const kiln_runner *run) {
    uint64_t ps;
    if (!run->parallel || run->parallel->threads < 2) return false;
    bool known = kiln_cost_of(run->cost, tier_of(run), x->nelem, &ps) || !is_timed(x, run);
    return !known || ps / 1000 >= KILN_POOL_LEAST_NS;
}

bool kiln_walk_make(const kiln_axes *x, const kiln_runner *run, kiln_walk *out) {
    tiles t;
    int first, second = 1;
    if (x->nbuffers > KILN_WALK_BUFFERS || x->nelem >= STREAM_LEAST || x->nelem == 0) return false;
    if (x->ngrid > KILN_WALK_OUTER + INNER || may_be_shared(x, run)) return false;
    if (x->ndim - x->ngrid > KILN_WALK_DIMS - INNER) return false;
    if (find_tiles(x, run, &second, &t)) return false;
    pick_dims(x, &first, &second);
    out->ndim = set_box(x, first, second, out->n, out->stride);
    int n = 0;
    for (int k = 0; k < x->ngrid; k++) {
        if (k == first || k == second) continue;
        for (int b = 0; b < x->nbuffers; b++)
            out->outer_stride[b * KILN_WALK_OUTER + n] = kiln_axes_stride(x, b, k);
        out->outer_n[n++] = x->n[k];
    }
    out->outer = (kiln_axes){.ngrid = n,
                             .nbuffers = x->nbuffers,
                             .pitch = KILN_WALK_OUTER,
                             .n = out->outer_n,
                             .stride = out->outer_stride};
    return true;
}

int32_t kiln_walk_run(const kiln_walk *w, kiln_kernel_fn fn, char **ptr, const uint64_t *par, char *work) {
    static const int64_t origin[KILN_WALK_DIMS];
    kiln_launch launch = {.ndim = w->ndim,
                          .n = w->n,
                          .ptr = ptr,
                          .stride = w->stride,
                          .origin = origin,
                          .par = par,
                          .work = work};
    int64_t index[KILN_WALK_OUTER] = {0};
    int32_t trap;
    do trap = fn(&launch);
    while (trap == 0 && advance(&w->outer, -1, -1, index, ptr));
    return trap;
}
